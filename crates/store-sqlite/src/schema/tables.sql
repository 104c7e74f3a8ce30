-- The tables of a SQLite store: version 1 of its layout.
--
-- Times are milliseconds since 1970. Positions are ranges, as text: `0-499,731`. Long columns stand last: SQLite reads the columns
-- before them without following their overflow pages. A sum is a checksum of a row, by which damage is found (`integrity.rs` in the
-- crate `store`).

-- The header of the file says that it is a store ("GRML").
PRAGMA application_id = 1196576076;

-- --- batches and their jobs ---

-- A queue, a kind and a group; the group is '' for jobs without one. Slices are ordered by lane, so that a claim of some queues and
-- kinds reads the heads of a few lanes and nothing else. A prune deletes lanes without batches and keys, but never the last one, so that
-- no id is given twice.
CREATE TABLE lane (
    id        INTEGER PRIMARY KEY,
    queue     TEXT NOT NULL,
    kind      TEXT NOT NULL,
    job_group TEXT NOT NULL,
    sum       INTEGER NOT NULL, -- of the three names
    UNIQUE (queue, kind, job_group)
) STRICT;

-- Never changed. An id is one above that of the last row and of all deleted ones (see sequence): AUTOINCREMENT would write one more
-- page with each submit.
CREATE TABLE batch (
    id           INTEGER PRIMARY KEY,
    lane_id      INTEGER NOT NULL,
    run_id       INTEGER,
    count        INTEGER NOT NULL,
    priority     INTEGER NOT NULL,
    submitted_at INTEGER NOT NULL,
    run_at       INTEGER NOT NULL, -- from when its first slice can be claimed
    sum          INTEGER NOT NULL, -- of the other columns
    options      TEXT,             -- JSON; NULL where all are default
    payloads     TEXT NOT NULL     -- a JSON array, one payload a position
) STRICT;
CREATE INDEX batch_run ON batch (run_id, id) WHERE run_id IS NOT NULL;

-- The batches of each lane with ids below `totalled` in `sequence`, and their jobs. Housekeeping adds new batches, so a submit writes
-- nothing here; the deletion of a batch subtracts it.
CREATE TABLE lane_total (
    lane_id INTEGER PRIMARY KEY,
    batches INTEGER NOT NULL,
    jobs    INTEGER NOT NULL
) STRICT;

-- Claimable positions, in the order of claims.
CREATE TABLE slice (
    lane_id        INTEGER NOT NULL,
    rank           INTEGER NOT NULL, -- the priority, negated
    run_at         INTEGER NOT NULL,
    batch_id       INTEGER NOT NULL,
    first_position INTEGER NOT NULL,
    attempt        INTEGER NOT NULL, -- the attempt that comes next
    rescues        INTEGER NOT NULL,
    count          INTEGER NOT NULL,
    expires_at     INTEGER,
    strayed        INTEGER,          -- 1 where the rank or run_at is not the batch's own, else NULL
    family         INTEGER,          -- the family whose parents finalize, since their children have ended; NULL for jobs that begin
    positions      TEXT NOT NULL,
    PRIMARY KEY (lane_id, rank, run_at, batch_id, first_position)
) STRICT, WITHOUT ROWID;
-- A batch's slices are found by the values of the batch. Only later ones (retries) need an index, so a submit or a claim writes no
-- page of it.
CREATE INDEX slice_strayed ON slice (batch_id) WHERE strayed = 1;
CREATE INDEX slice_expiry ON slice (expires_at) WHERE expires_at IS NOT NULL;

-- The positions that leases hold: a row a claimed slice. A lease has no row of its own.
CREATE TABLE held (
    lease_id       INTEGER NOT NULL,
    batch_id       INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    first_position INTEGER NOT NULL, -- when it was claimed
    worker_id      INTEGER NOT NULL,
    lane_id        INTEGER,          -- the use of a limit is counted from the held jobs of its lanes
    rescues        INTEGER NOT NULL,
    rank           INTEGER,          -- a priority that was changed, negated, for when the jobs come back; NULL for the batch's own
    run_at         INTEGER NOT NULL,
    claimed_at     INTEGER,
    count          INTEGER NOT NULL,
    expires_at     INTEGER,
    family         INTEGER,          -- as that of the slice
    pauses         TEXT,             -- JSON, until when by reason; NULL without pauses. The jobs are paused once they come back
    positions      TEXT NOT NULL,
    PRIMARY KEY (lease_id, batch_id, attempt, first_position)
) STRICT, WITHOUT ROWID;

-- Jobs out of the way of claims: they wait for others, or are paused by themselves.
CREATE TABLE blocked (
    batch_id     INTEGER NOT NULL,
    part         INTEGER NOT NULL, -- 0 for the jobs of a batch that wait to begin
    attempt      INTEGER NOT NULL, -- the attempt that comes next
    rescues      INTEGER NOT NULL,
    rank         INTEGER,          -- a priority that was changed, negated; NULL for the batch's own
    run_at       INTEGER,          -- from when they can be claimed; NULL for the batch's own
    count        INTEGER NOT NULL,
    expires_at   INTEGER,
    paused_until INTEGER,          -- when the last of their pauses is over by itself; NULL where one has no end
    family       INTEGER,          -- the family whose parents they are, while they wait for their children or are paused
    pauses       TEXT,             -- JSON, until when by reason; NULL without pauses
    positions    TEXT NOT NULL,
    PRIMARY KEY (batch_id, part)
) STRICT, WITHOUT ROWID;
CREATE INDEX blocked_expiry ON blocked (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX blocked_paused ON blocked (paused_until) WHERE paused_until IS NOT NULL;

-- The lowest ids that were never given. A process takes lease ids in blocks, and gives those without writing; of batch ids, only those
-- of deleted batches are written down. A change of a control raises the version of the controls, and a deletion of lanes the number of
-- those: by that, processes that know lanes from before learn that some are gone. `totalled` is the lowest id of a batch that is not
-- in lane_total.
CREATE TABLE sequence (
    name       TEXT PRIMARY KEY,
    next_value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO sequence VALUES ('lease', 1), ('batch', 1), ('control_version', 0), ('lanes_deleted', 0), ('totalled', 0);

-- --- outcomes ---

-- Packed outcomes. The id is the batch's id, shifted left by 14 bits, and the first position: one b-tree keeps the reports of a batch
-- together, and its key refuses a second outcome.
--
-- A compacted report stands for several reports of completed jobs of one batch: its count and positions are theirs together, and it
-- ended when the last of them did. It has no durations, logs and values of its own.
CREATE TABLE report (
    id          INTEGER PRIMARY KEY,
    state       TEXT NOT NULL, -- completed, dead, cancelled or expired
    attempt     INTEGER NOT NULL,
    count       INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    sum         INTEGER, -- of the other columns, where the jobs completed; a compacted report has those of its reports in parts
    worker      TEXT,
    cause       TEXT, -- JSON: the job that did not complete, so that these, which waited for it, were cancelled
    positions   TEXT NOT NULL,
    durations   TEXT, -- a JSON array of microseconds, one a position
    logs        TEXT, -- a JSON object, text by position
    "values"    TEXT, -- a JSON array, one value a position
    parts       TEXT, -- of a compacted report, a JSON array: each of its reports without its bodies
    bodies      TEXT  -- of a compacted report, a JSON array, in the same order: durations, logs and values
) STRICT;
-- Successes, which are nearly all, cost nothing here.
CREATE INDEX report_unsuccessful ON report (state, id) WHERE state <> 'completed';

-- How long the jobs of a report took, for histories of thousands of reports. A table of its own: a row of a report or of a batch fills
-- a page, and a page here has dozens of rows. Batches of which all reports are here are not read at all (`query/gaps.rs`).
CREATE TABLE report_durations (
    id          INTEGER PRIMARY KEY, -- the report's
    lane_id     INTEGER NOT NULL,
    count       INTEGER NOT NULL,    -- its jobs; 0 for a compacted report, whose parts have the numbers
    batch_count INTEGER NOT NULL,    -- jobs of its batch
    finished_at INTEGER NOT NULL,
    sum_us      INTEGER NOT NULL,    -- of all its jobs together, in microseconds
    buckets     TEXT NOT NULL        -- how many jobs took how long: bucket:count, with spaces between
) STRICT;

-- A failed attempt. A job that was rejected before any lease has the lease 0. A job may fail more than once under a lease: a retry
-- without a delay runs in the same slot. A process takes many lease ids at once, so a later attempt may have a smaller one.
CREATE TABLE failure (
    batch_id    INTEGER NOT NULL,
    position    INTEGER NOT NULL,
    lease_id    INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    failed_at   INTEGER NOT NULL,
    retried_at  INTEGER,       -- when the job is tried again; NULL where it is not
    sum         INTEGER NOT NULL, -- of batch, position, attempt, error and log
    worker      TEXT,
    error       TEXT NOT NULL, -- JSON
    log         TEXT,
    PRIMARY KEY (batch_id, position, lease_id, attempt)
) STRICT, WITHOUT ROWID;

-- Values of completed jobs, for later jobs of the same queue, kind and group with the same payload.
CREATE TABLE cached (
    digest    TEXT NOT NULL UNIQUE, -- of the queue, the kind, the group and the payload, in hexadecimal
    stored_at INTEGER NOT NULL,
    until     INTEGER NOT NULL,     -- when it is forgotten
    sum       INTEGER NOT NULL,     -- of the digest and the value
    value     TEXT NOT NULL         -- JSON
) STRICT;
CREATE INDEX cached_until ON cached (until);

-- --- keys and tags ---

-- The job that has a deduplication key: an open one, one whose period is not over, or one that another job waits behind.
CREATE TABLE job_key (
    scope    INTEGER NOT NULL, -- twice the first lane of a kind, or once more than twice that of a queue
    key      TEXT NOT NULL,
    batch_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    open     INTEGER NOT NULL, -- whether the job is open
    until    INTEGER,          -- the end of its period
    rerun    TEXT,             -- JSON: the job that is submitted after this one
    PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_key_over ON job_key (until) WHERE open = 0;

-- The keys of the batches that have some.
CREATE TABLE keyed (
    batch_id INTEGER PRIMARY KEY,
    scope    INTEGER NOT NULL,
    sum      INTEGER NOT NULL, -- of the other columns
    keys     TEXT NOT NULL -- a JSON array, a string or null a position
) STRICT;

-- Tags of jobs: a row for each pair of name and value and batch.
CREATE TABLE tag (
    name      TEXT NOT NULL,
    value     TEXT NOT NULL,
    batch_id  INTEGER NOT NULL,
    count     INTEGER NOT NULL, -- jobs
    positions TEXT,             -- NULL where all jobs of the batch have it
    PRIMARY KEY (name, value, batch_id)
) STRICT, WITHOUT ROWID;

-- All tags of each batch that has some, packed, for showing and deleting them. Where each job has a value of its own, an index of the
-- tags by batch costs as much as the tags themselves.
CREATE TABLE tagged (
    batch_id INTEGER PRIMARY KEY,
    tags     TEXT NOT NULL -- a JSON array of name, value and positions (null where all jobs have it)
) STRICT;

-- Payloads that were added to debounced jobs after their submit.
CREATE TABLE debounced (
    batch_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    number   INTEGER NOT NULL, -- their order; always 0 where only the last payload counts
    count    INTEGER NOT NULL, -- payloads
    payloads TEXT NOT NULL,    -- JSON, with commas between them
    PRIMARY KEY (batch_id, position, number)
) STRICT, WITHOUT ROWID;

-- --- dependencies and families ---

-- What blocked jobs wait for: jobs of one batch. Deleted once those have ended. An edge leads from a later batch to an earlier one, or
-- from parents to a batch of their children.
CREATE TABLE edge (
    prerequisite_id INTEGER NOT NULL,
    first_position  INTEGER NOT NULL, -- the lowest of the positions
    batch_id        INTEGER NOT NULL, -- the jobs that wait, with their part
    part            INTEGER NOT NULL,
    on_failure      TEXT NOT NULL,    -- cancel, fail or ignore; children for one to children; hook for one of a batch to itself
    positions       TEXT,             -- of the prerequisite; NULL for all
    PRIMARY KEY (prerequisite_id, first_position, batch_id, part, on_failure)
) STRICT, WITHOUT ROWID;
CREATE INDEX edge_batch ON edge (batch_id, part);

-- Families: jobs of a batch that spawned children and were suspended together. Kept until the batch is deleted.
CREATE TABLE suspension (
    batch_id   INTEGER NOT NULL,
    family     INTEGER NOT NULL,
    on_failure TEXT NOT NULL, -- fail or collect
    flow       TEXT,          -- for steps of flows, when they run again: all, any or anew; NULL for other jobs
    cleanup_ms INTEGER,       -- how long an instance may clean up after flows that are cancelled after this step; NULL where none does
    positions  TEXT NOT NULL, -- of all parents
    memos      TEXT NOT NULL, -- a JSON array, one memo a position
    PRIMARY KEY (batch_id, family)
) STRICT, WITHOUT ROWID;

-- The batches of their children.
CREATE TABLE child_batch (
    batch_id  INTEGER PRIMARY KEY, -- the children
    parent_id INTEGER NOT NULL,    -- the batch of their parents
    family    INTEGER NOT NULL,
    shares    TEXT NOT NULL,       -- a JSON array: how many are each parent's, in the order of the parents
    together  INTEGER NOT NULL DEFAULT 0, -- 1 if those of a parent are told together, as those of a map are
    parents   TEXT                 -- the positions of the parents with children in it, where these are not their whole family
) STRICT;
CREATE INDEX child_batch_parent ON child_batch (parent_id, family);

-- Batches of children that are steps of flows and have the kind of their flows, as those of scripts have.
CREATE TABLE step_batch (
    batch_id INTEGER PRIMARY KEY
) STRICT;

-- Events for flows that do not await them yet. An event goes away with the batch of its flow, or when it is awaited.
CREATE TABLE kept_event (
    id       INTEGER PRIMARY KEY,
    batch_id INTEGER NOT NULL, -- the flow
    position INTEGER NOT NULL,
    name     TEXT NOT NULL,
    value    TEXT NOT NULL     -- a JSON array of one
) STRICT;
CREATE INDEX kept_event_job ON kept_event (batch_id, position);

-- Instances that clean up after cancelled flows. A row is one of three sorts: flows for which a cleanup begins, flows for which it has
-- begun, which a retry leaves alone, and the instances themselves, until they end.
CREATE TABLE cleanup (
    id          INTEGER PRIMARY KEY,
    batch_id    INTEGER NOT NULL,
    positions   TEXT NOT NULL,
    begins_at   INTEGER,                    -- of cancelled flows: when they were cancelled; NULL once the cleanup has begun
    was_running INTEGER NOT NULL DEFAULT 0, -- whether a worker ran them then, or their steps: the cleanup begins later
    within_ms   INTEGER,                    -- how long it may take
    ends_at     INTEGER,                    -- of instances that clean up: when they are cancelled, or looked at
    has_begun   INTEGER NOT NULL DEFAULT 0  -- of instances: whether a look has found that they have begun
) STRICT;
CREATE INDEX cleanup_batch ON cleanup (batch_id);
CREATE INDEX cleanup_begins ON cleanup (was_running, begins_at) WHERE begins_at IS NOT NULL;
CREATE INDEX cleanup_instances ON cleanup (batch_id) WHERE ends_at IS NOT NULL;
CREATE INDEX cleanup_ends ON cleanup (ends_at) WHERE ends_at IS NOT NULL;

-- Jobs that got an event which their flow has not read, and which went back: it goes back once. Deleted with the batch of the job.
CREATE TABLE returned_event (
    batch_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (batch_id, position)
) STRICT, WITHOUT ROWID;

-- --- schedules and runs ---

-- Jobs that are submitted again and again.
CREATE TABLE schedule (
    name          TEXT PRIMARY KEY,
    next_at       INTEGER,          -- NULL once it is not due any more
    since         INTEGER NOT NULL,
    last_at       INTEGER,
    last_batch_id INTEGER,
    last_position INTEGER,
    fired         INTEGER NOT NULL,
    paused_until  INTEGER,
    definition    TEXT NOT NULL     -- JSON: rule, kind, queue, payload, options, policies
) STRICT, WITHOUT ROWID;
CREATE INDEX schedule_due ON schedule (next_at) WHERE next_at IS NOT NULL;

CREATE TABLE run (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    name        TEXT NOT NULL UNIQUE,
    description TEXT NOT NULL,
    state       TEXT NOT NULL, -- submitting, submitted or finished
    jobs        INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    lines       INTEGER NOT NULL,
    crc32       INTEGER NOT NULL,
    created_at  INTEGER NOT NULL
) STRICT;

-- --- controls ---

-- Pauses, limits, shares and agings.
CREATE TABLE control (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    key        TEXT NOT NULL UNIQUE, -- JSON: effect, scope and reason
    definition TEXT NOT NULL         -- JSON
) STRICT;

-- The buckets of rates. The group is '' where all share one.
CREATE TABLE bucket (
    control_id  INTEGER NOT NULL,
    job_group   TEXT NOT NULL,
    empty_at_ns INTEGER NOT NULL, -- nanoseconds since 1970
    PRIMARY KEY (control_id, job_group)
) STRICT, WITHOUT ROWID;

-- --- workers ---

CREATE TABLE worker (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    name            TEXT NOT NULL,
    host            TEXT NOT NULL,
    process_id      INTEGER NOT NULL,
    process_started TEXT NOT NULL,
    started_at      INTEGER NOT NULL,
    heartbeat_at    INTEGER NOT NULL, -- by the wall clock, as it was then
    boot            TEXT NOT NULL,    -- the boot of the machine in which that was
    beat_ms         INTEGER NOT NULL, -- and when, since then, by a clock that nobody sets
    queues          TEXT NOT NULL,    -- a JSON array: the queues that it claims from; empty where it does not say
    kinds           TEXT NOT NULL,    -- a JSON array: the kinds that it runs; empty for all, or where it does not say
    drain_at        INTEGER           -- when it was asked to end its jobs and leave
) STRICT;

-- Positions that a worker held and lost, until it learns so.
CREATE TABLE revoked (
    worker_id INTEGER NOT NULL,
    lease_id  INTEGER NOT NULL,
    batch_id  INTEGER NOT NULL,
    number    INTEGER NOT NULL, -- tells revocations of one lease and batch apart
    positions TEXT NOT NULL,
    PRIMARY KEY (worker_id, lease_id, batch_id, number)
) STRICT, WITHOUT ROWID;

-- The last progress that a worker reported of its jobs: one row, however many jobs.
CREATE TABLE progress (
    worker_id INTEGER PRIMARY KEY,
    at        INTEGER NOT NULL,
    jobs      TEXT NOT NULL -- a JSON array
) STRICT;

-- Batch statistics by hop, since the store was made.
CREATE TABLE hop_stat (
    hop         TEXT PRIMARY KEY,
    batches     INTEGER NOT NULL,
    items       INTEGER NOT NULL,
    items_max   INTEGER NOT NULL,
    end_reasons TEXT NOT NULL -- a JSON object, batches by reason
) STRICT, WITHOUT ROWID;

-- Ended jobs by lane, since the store was made. Those of a lane that is deleted go to another one of its queue and kind.
CREATE TABLE lane_stat (
    lane_id INTEGER PRIMARY KEY,
    ended   TEXT NOT NULL -- JSON
) STRICT;

-- --- events and followers ---

-- At most one row: somebody listens to events, or did within the last hour. Without it there are no triggers that write events.
CREATE TABLE listening (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    until      INTEGER NOT NULL,
    kept_after INTEGER NOT NULL -- all events with higher ids are there
) STRICT;

-- In the order of the commits. No id is given twice.
CREATE TABLE event (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    at        INTEGER NOT NULL,
    type      TEXT NOT NULL,
    batch_id  INTEGER,
    attempt   INTEGER,
    run_at    INTEGER,
    worker_id INTEGER,
    positions TEXT, -- of a batch's submission, all
    detail    TEXT
) STRICT;

-- The followers of what running jobs print, and until when they follow. Without a row no output is kept.
CREATE TABLE following (
    id       TEXT PRIMARY KEY,
    until    INTEGER NOT NULL,
    followed TEXT NOT NULL -- a JSON array
) STRICT;

-- What followed jobs printed within the last moments.
CREATE TABLE live_output (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    at       INTEGER NOT NULL,
    batch_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    attempt  INTEGER NOT NULL,
    start    INTEGER NOT NULL,
    text     TEXT NOT NULL
) STRICT;
