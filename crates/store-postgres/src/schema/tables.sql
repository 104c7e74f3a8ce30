-- The tables of a PostgreSQL store: version 1 of its layout.
--
-- Times are milliseconds since 1970, by the clock that all users of the store go by. Positions are multiranges:
-- `{[0,500),[731,732)}`. Fixed-width columns come first and long ones last. A sum is a checksum of a row, by which damage is found
-- (`integrity.rs` in the crate `store`). Programs compute it. Rows that SQL functions write have none (NULL) until housekeeping adds it
-- (`integrity.rs` in this crate); they are not checked before.
--
-- The order in which rows are locked, so that no two transactions wait for each other: lane, run, worker, batch, slice, held, edge,
-- blocked, and then the rest; the keys of jobs come last of all. Moving positions forward (slice to held, held to report) needs no
-- lock of the batch. Moving them back (held or report to slice) locks the batch FOR SHARE first. Operations that need all positions
-- of a batch to stand still (cancel, retry, prune, delete) lock it FOR NO KEY UPDATE.

-- --- batches and their jobs ---

-- A queue, a kind and a group; the group is '' for jobs without one. Ids ascend in the order of commits (see intern_lane): a process
-- that has read them up to one learns the new ones by asking for those above. A prune deletes lanes without batches and keys, but never
-- the last one, so that no id is given twice. It retires them first: no batch is stored in a retired lane before intern_lane has
-- made it anew. Processes that know a lane from before learn so by the statement that stores a batch (see lane_gone in failure.rs).
CREATE TABLE gristmill.lane (
    id        integer PRIMARY KEY,
    retired   boolean NOT NULL DEFAULT false,
    queue     text NOT NULL,
    kind      text NOT NULL,
    job_group text NOT NULL,
    UNIQUE (queue, kind, job_group)
);

-- No id is given twice; a transaction that is rolled back leaves a gap.
CREATE SEQUENCE gristmill.batch_id;
CREATE SEQUENCE gristmill.lease_id;

-- Never changed.
CREATE TABLE gristmill.batch (
    id           bigint PRIMARY KEY,
    submitted_at bigint NOT NULL,
    run_at       bigint NOT NULL, -- from when its first slice can be claimed
    run_id       bigint,
    sum          bigint,          -- of lane, count, priority, times, options and payloads
    lane_id      integer NOT NULL,
    count        integer NOT NULL,
    priority     smallint NOT NULL,
    options      text,            -- JSON; NULL where all are default
    payloads     text NOT NULL    -- a JSON array, one payload a position
);
CREATE INDEX batch_run ON gristmill.batch (run_id, id) WHERE run_id IS NOT NULL;
CREATE INDEX batch_without_sum ON gristmill.batch (id) WHERE sum IS NULL;

-- Claimable positions. A claim that takes a part of one changes no indexed column.
CREATE TABLE gristmill.slice (
    batch_id   bigint NOT NULL,
    id         bigint GENERATED ALWAYS AS IDENTITY,
    run_at     bigint NOT NULL,
    expires_at bigint,
    family     bigint,           -- the family whose parents finalize, since their children have ended; NULL for jobs that begin
    lane_id    integer NOT NULL,
    attempt    integer NOT NULL, -- the attempt that comes next
    rescues    integer NOT NULL,
    count      integer NOT NULL,
    job_bytes  integer NOT NULL, -- of the batch's payloads, in the mean
    rank       integer NOT NULL, -- the priority, negated
    awaited    boolean NOT NULL DEFAULT false, -- whether other jobs wait for this batch: ending its jobs then settles edges
    positions  int4multirange NOT NULL,
    PRIMARY KEY (batch_id, id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- The order of claims. Within a batch, lower(positions) decides.
CREATE INDEX slice_order ON gristmill.slice (lane_id, rank, run_at, batch_id);
CREATE INDEX slice_expiry ON gristmill.slice (expires_at) WHERE expires_at IS NOT NULL;

-- The positions that leases hold: a row a claimed slice. A lease has no row of its own.
CREATE TABLE gristmill.held (
    lease_id       bigint NOT NULL,
    batch_id       bigint NOT NULL,
    worker_id      bigint NOT NULL,
    run_at         bigint NOT NULL,
    claimed_at     bigint,
    expires_at     bigint,
    family         bigint,           -- as that of the slice
    attempt        integer NOT NULL,
    first_position integer NOT NULL, -- when it was claimed
    rescues        integer NOT NULL,
    count          integer NOT NULL,
    lane_id        integer,          -- the use of a limit is counted from the held jobs of its lanes
    rank           integer,          -- a priority that was changed, negated, for when the jobs come back; NULL for the batch's own
    awaited        boolean NOT NULL DEFAULT false, -- as that of the slice
    positions      int4multirange NOT NULL,
    pauses         jsonb,            -- until when by reason; NULL without pauses. The jobs are paused once they come back
    PRIMARY KEY (lease_id, batch_id, attempt, first_position)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX held_batch ON gristmill.held (batch_id);

-- Jobs out of the way of claims: they wait for others, or are paused by themselves.
CREATE TABLE gristmill.blocked (
    batch_id     bigint NOT NULL,
    expires_at   bigint,
    run_at       bigint,           -- from when they can be claimed; NULL for the batch's own
    paused_until bigint,           -- when the last of their pauses is over by itself; NULL where one has no end
    family       bigint,           -- the family whose parents they are, while they wait for their children or are paused
    part         integer NOT NULL, -- 0 for the jobs of a batch that wait to begin
    attempt      integer NOT NULL, -- the attempt that comes next
    rescues      integer NOT NULL,
    count        integer NOT NULL,
    rank         integer,          -- a priority that was changed, negated; NULL for the batch's own
    positions    int4multirange NOT NULL,
    pauses       jsonb,            -- until when by reason; NULL without pauses
    PRIMARY KEY (batch_id, part)
);
CREATE INDEX blocked_expiry ON gristmill.blocked (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX blocked_paused ON gristmill.blocked (paused_until) WHERE paused_until IS NOT NULL;
-- Numbers of parts that are split off others, or paused.
CREATE SEQUENCE gristmill.blocked_part AS integer MINVALUE 1048576 CYCLE;

-- --- outcomes ---

-- Packed outcomes. The key refuses a second outcome.
--
-- A compacted report stands for several reports of completed jobs of one batch: its count and positions are theirs together, and it
-- ended when the last of them did. It has no durations, logs and values of its own.
CREATE TABLE gristmill.report (
    batch_id         bigint NOT NULL,
    finished_at      bigint NOT NULL,
    durations_sum_us bigint, -- of all its jobs together, in microseconds; NULL where none completed
    sum              bigint, -- of the other columns, where the jobs completed; a compacted report has those of its reports in parts
    first_position   integer NOT NULL,
    attempt          integer NOT NULL,
    count            integer NOT NULL,
    state            text NOT NULL, -- completed, dead, cancelled or expired
    worker           text,
    cause            text, -- JSON: the job that did not complete, so that these, which waited for it, were cancelled
    positions        int4multirange NOT NULL,
    duration_buckets text, -- how many jobs took how long, for histories: bucket:count, with spaces between
    durations        text, -- a JSON array of microseconds, one a position
    logs             text, -- a JSON object, text by position
    "values"         text, -- a JSON array, one value a position
    parts            text, -- of a compacted report, a JSON array: each of its reports without its bodies
    bodies           text, -- of a compacted report, a JSON array, in the same order: durations, logs and values
    PRIMARY KEY (batch_id, first_position)
);
-- Successes, which are nearly all, cost nothing here.
CREATE INDEX report_unsuccessful ON gristmill.report (state, batch_id) WHERE state <> 'completed';
-- Reports are added in the order of time, or nearly.
CREATE INDEX report_finished ON gristmill.report USING brin (finished_at);

-- A failed attempt. Lease ids ascend; a job that was rejected before any lease has 0. A job may fail more than once under a lease: a
-- retry without a delay runs in the same slot.
CREATE TABLE gristmill.failure (
    batch_id    bigint NOT NULL,
    lease_id    bigint NOT NULL,
    duration_us bigint NOT NULL,
    failed_at   bigint NOT NULL,
    retried_at  bigint,        -- when the job is tried again; NULL where it is not
    position    integer NOT NULL,
    attempt     integer NOT NULL,
    worker      text,
    error       text NOT NULL, -- JSON
    log         text,
    PRIMARY KEY (batch_id, position, lease_id, attempt)
);

-- Values of completed jobs, for later jobs of the same queue, kind and group with the same payload.
CREATE TABLE gristmill.cached (
    digest    text COLLATE "C" PRIMARY KEY, -- of the queue, the kind, the group and the payload, in hexadecimal
    stored_at bigint NOT NULL,
    until     bigint NOT NULL,              -- when it is forgotten
    sum       bigint NOT NULL,              -- of the digest and the value
    value     text NOT NULL                 -- JSON
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX cached_until ON gristmill.cached (until);

-- --- keys and tags ---

-- The job that has a deduplication key: an open one, one whose period is not over, or one that another job waits behind. Rows are
-- locked after all others but those of the same table, and there by scope and key. A transaction that submits jobs with keys locks the
-- row of their scope's lane before its look, so that no two submit at the same time.
CREATE TABLE gristmill.job_key (
    scope    integer NOT NULL, -- twice the first lane of a kind, or once more than twice that of a queue
    key      text COLLATE "C" NOT NULL,
    batch_id bigint NOT NULL,
    until    bigint,           -- the end of its period
    position integer NOT NULL,
    open     boolean NOT NULL, -- whether the job is open
    rerun    text,             -- JSON: the job that is submitted after this one
    PRIMARY KEY (scope, key)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX job_key_over ON gristmill.job_key (until) WHERE NOT open;

-- The keys of the batches that have some.
CREATE TABLE gristmill.keyed (
    batch_id bigint PRIMARY KEY,
    sum      bigint,       -- of the other columns
    scope    integer NOT NULL,
    keys     text NOT NULL -- a JSON array, a string or null a position
);
CREATE INDEX keyed_without_sum ON gristmill.keyed (batch_id) WHERE sum IS NULL;

-- Tags of jobs: a row for each pair of name and value and batch.
CREATE TABLE gristmill.tag (
    batch_id  bigint NOT NULL,
    count     integer NOT NULL, -- jobs
    name      text COLLATE "C" NOT NULL,
    value     text COLLATE "C" NOT NULL,
    positions int4multirange,   -- NULL where all jobs of the batch have it
    PRIMARY KEY (name, value, batch_id)
);
CREATE INDEX tag_batch ON gristmill.tag (batch_id);

-- Payloads that were added to debounced jobs after their submit.
CREATE TABLE gristmill.debounced (
    batch_id bigint NOT NULL,
    position integer NOT NULL,
    number   integer NOT NULL, -- their order; always 0 where only the last payload counts
    count    integer NOT NULL, -- payloads
    payloads text NOT NULL,    -- JSON, with commas between them
    PRIMARY KEY (batch_id, position, number)
);

-- --- dependencies and families ---

-- What blocked jobs wait for: jobs of one batch. Deleted once those have ended, also where nothing waits for them any more. An edge
-- leads from a later batch to an earlier one, or from parents to a batch of their children.
CREATE TABLE gristmill.edge (
    prerequisite_id bigint NOT NULL,
    first_position  integer NOT NULL, -- the lowest of the positions
    batch_id        bigint NOT NULL,  -- the jobs that wait, with their part
    part            integer NOT NULL,
    on_failure      text NOT NULL,    -- cancel, fail or ignore; children for one to children; hook for one of a batch to itself
    positions       int4multirange,   -- of the prerequisite; NULL for all
    PRIMARY KEY (prerequisite_id, first_position, batch_id, part, on_failure)
);
CREATE INDEX edge_batch ON gristmill.edge (batch_id, part);

CREATE SEQUENCE gristmill.family;

-- Families: jobs of a batch that spawned children and were suspended together. Kept until the batch is deleted.
CREATE TABLE gristmill.suspension (
    batch_id   bigint NOT NULL,
    family     bigint NOT NULL,
    on_failure text NOT NULL,      -- fail or collect
    flow       text,               -- for steps of flows, when they run again: all, any or anew; NULL for other jobs
    cleanup_ms bigint,             -- how long an instance may clean up after flows that are cancelled after this step; NULL where none does
    parents    integer[] NOT NULL, -- the positions of all of them, ascending
    memos      text NOT NULL,      -- a JSON array, one memo a position
    PRIMARY KEY (batch_id, family)
);
CREATE INDEX suspension_cleanup ON gristmill.suspension (batch_id) WHERE cleanup_ms IS NOT NULL;

-- The batches of their children.
CREATE TABLE gristmill.child_batch (
    batch_id  bigint PRIMARY KEY, -- the children
    parent_id bigint NOT NULL,    -- the batch of their parents
    family    bigint NOT NULL,
    event     text COLLATE "C",   -- the name of the event that the children wait for; NULL for others
    bounds    integer[] NOT NULL, -- where the children of each parent begin, and where the last one's end
    parents   integer[],          -- the positions of the parents with children in it, where these are not their whole family
    together  boolean NOT NULL    -- whether those of a parent are told together, as those of a map are
);
CREATE INDEX child_batch_parent ON gristmill.child_batch (parent_id, family);
CREATE INDEX child_batch_event ON gristmill.child_batch (parent_id, event) WHERE event IS NOT NULL;

-- Batches of children that are steps of flows and have the kind of their flows, as those of scripts have.
CREATE TABLE gristmill.step_batch (
    batch_id bigint PRIMARY KEY
);

-- Events for flows that do not await them yet. An event goes away with the batch of its flow, or when it is awaited. Who adds one locks
-- the batch FOR NO KEY UPDATE, and who looks for one locks it FOR SHARE: a flow that begins to wait meanwhile misses none.
CREATE TABLE gristmill.kept_event (
    batch_id bigint NOT NULL, -- the flow
    id       bigint GENERATED ALWAYS AS IDENTITY,
    position integer NOT NULL,
    name     text COLLATE "C" NOT NULL,
    value    text NOT NULL, -- a JSON array of one
    PRIMARY KEY (batch_id, position, id)
);

-- Instances that clean up after cancelled flows. A row is one of three sorts: flows for which a cleanup begins, flows for which it has
-- begun, which a retry leaves alone, and the instances themselves, until they end. Who changes a row of flows locks their batch.
CREATE TABLE gristmill.cleanup (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch_id    bigint NOT NULL,
    positions   int4multirange NOT NULL,
    begins_at   bigint,                         -- of cancelled flows: when they were cancelled; NULL once the cleanup has begun
    was_running boolean NOT NULL DEFAULT false, -- whether a worker ran them then, or their steps: the cleanup begins later
    within_ms   bigint,                         -- how long it may take
    ends_at     bigint,                         -- of instances that clean up: when they are cancelled, or looked at
    has_begun   boolean NOT NULL DEFAULT false  -- of instances: whether a look has found that they have begun
);
CREATE INDEX cleanup_batch ON gristmill.cleanup (batch_id);
CREATE INDEX cleanup_begins ON gristmill.cleanup (was_running, begins_at) WHERE begins_at IS NOT NULL;
CREATE INDEX cleanup_instances ON gristmill.cleanup (batch_id) WHERE ends_at IS NOT NULL;
CREATE INDEX cleanup_ends ON gristmill.cleanup (ends_at) WHERE ends_at IS NOT NULL;

-- Jobs that got an event which their flow has not read, and which went back: it goes back once. Deleted with the batch of the job.
CREATE TABLE gristmill.returned_event (
    batch_id bigint NOT NULL,
    position integer NOT NULL,
    PRIMARY KEY (batch_id, position)
);

-- --- schedules and runs ---

-- Jobs that are submitted again and again.
CREATE TABLE gristmill.schedule (
    name          text PRIMARY KEY,
    next_at       bigint,          -- NULL once it is not due any more
    since         bigint NOT NULL,
    last_at       bigint,
    last_batch_id bigint,
    last_position integer,
    fired         bigint NOT NULL,
    paused_until  bigint,
    definition    text NOT NULL    -- JSON: rule, kind, queue, payload, options, policies
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX schedule_due ON gristmill.schedule (next_at) WHERE next_at IS NOT NULL;

CREATE TABLE gristmill.run (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    description text NOT NULL,
    state       text NOT NULL, -- submitting, submitted or finished
    jobs        bigint NOT NULL,
    bytes       bigint NOT NULL,
    lines       bigint NOT NULL,
    crc32       bigint NOT NULL,
    created_at  bigint NOT NULL
) WITH (fillfactor = 80);

-- --- controls ---

-- Pauses, limits, shares and agings. A claim under a control that limits it locks the row: after the locks of held rows and before
-- those of slices, for which it never waits. So claims under one limit decide one at a time.
CREATE TABLE gristmill.control (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key        text NOT NULL UNIQUE, -- JSON: effect, scope and reason
    definition text NOT NULL         -- JSON
) WITH (fillfactor = 70);

-- One row. A change of a control raises the version, and claims read the controls again.
CREATE TABLE gristmill.control_version (
    id      integer PRIMARY KEY CHECK (id = 1),
    version bigint NOT NULL
);
INSERT INTO gristmill.control_version VALUES (1, 0);

-- The buckets of rates. The group is '' where all share one.
CREATE TABLE gristmill.bucket (
    control_id  bigint NOT NULL,
    empty_at_ns bigint NOT NULL, -- nanoseconds since 1970
    job_group   text NOT NULL,
    PRIMARY KEY (control_id, job_group)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- --- workers ---

CREATE TABLE gristmill.worker (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name            text NOT NULL,
    host            text NOT NULL,
    process_id      bigint NOT NULL,
    process_started text NOT NULL,
    started_at      bigint NOT NULL,
    heartbeat_at    bigint NOT NULL,
    queues          text[] NOT NULL, -- those that it claims from; empty where it does not say
    kinds           text[] NOT NULL, -- those that it runs; empty for all, or where it does not say
    drain_at        bigint           -- when it was asked to end its jobs and leave
) WITH (fillfactor = 50);

-- Positions that a worker held and lost, until it learns so.
CREATE TABLE gristmill.revoked (
    worker_id bigint NOT NULL,
    lease_id  bigint NOT NULL,
    batch_id  bigint NOT NULL,
    id        bigint GENERATED ALWAYS AS IDENTITY,
    positions int4multirange NOT NULL,
    PRIMARY KEY (worker_id, lease_id, batch_id, id)
);

-- The last progress that a worker reported of its jobs: one row, however many jobs.
CREATE TABLE gristmill.progress (
    worker_id bigint PRIMARY KEY,
    at        bigint NOT NULL,
    jobs      text NOT NULL -- a JSON array
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Batch statistics by hop, since the store was made.
CREATE TABLE gristmill.hop_stat (
    hop            text PRIMARY KEY,
    batches        bigint NOT NULL,
    items          bigint NOT NULL,
    items_max      bigint NOT NULL,
    ended_full     bigint NOT NULL,
    ended_drained  bigint NOT NULL,
    ended_bytes    bigint NOT NULL,
    ended_deadline bigint NOT NULL,
    ended_limit    bigint NOT NULL
) WITH (fillfactor = 50);

-- Ended jobs by lane, since the store was made. Those of a lane that is deleted go to another one of its queue and kind.
CREATE TABLE gristmill.lane_stat (
    lane_id integer PRIMARY KEY,
    ended   text NOT NULL -- JSON
) WITH (fillfactor = 50);

-- --- events, waiters and followers ---

-- At most one row: somebody listens to events, or did within the last hour. Without it none is kept.
CREATE TABLE gristmill.listening (
    id             integer PRIMARY KEY CHECK (id = 1),
    until          bigint NOT NULL,
    kept_after_xid bigint NOT NULL, -- all events of later transactions are there
    kept_after_id  bigint NOT NULL
);

-- Transactions do not commit in the order of their numbers: a reader of events stops before the oldest transaction that is open.
CREATE TABLE gristmill.event (
    xid       xid8 NOT NULL DEFAULT pg_current_xact_id(),
    id        bigint GENERATED ALWAYS AS IDENTITY,
    at        bigint NOT NULL,
    type      text NOT NULL,
    batch_id  bigint,
    attempt   integer,
    run_at    bigint,
    worker_id bigint,
    positions int4multirange, -- of a batch's submission, all
    detail    text,
    PRIMARY KEY (xid, id)
);

-- Batches whose outcomes a process awaits: a row for each batch and each connection that listens on `gristmill_ended`. The rows of
-- closed connections stay until the next listener deletes them; a NOTIFY that nobody hears is harmless. After a crash of the server
-- there are no connections, and so no rows.
CREATE UNLOGGED TABLE gristmill.awaited (
    batch_id bigint,
    listener integer, -- the process id of the connection
    PRIMARY KEY (batch_id, listener)
);

-- The followers of what running jobs print, and until when they follow. Without a row no output is kept.
CREATE TABLE gristmill.following (
    id       text PRIMARY KEY,
    until    bigint NOT NULL,
    followed text NOT NULL -- a JSON array
);

-- What followed jobs printed within the last moments.
CREATE TABLE gristmill.live_output (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       bigint NOT NULL,
    batch_id bigint NOT NULL,
    position integer NOT NULL,
    kind     text NOT NULL,
    attempt  integer NOT NULL,
    start    bigint NOT NULL,
    text     text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- --- connections ---

-- The connections that write: a row each, with the number of the last operation that it committed. A process that lost the connection
-- while a COMMIT was under way learns here whether it was committed. (The id of a transaction would not do: after a crash, or on a
-- standby that took over, it may be given to another.)
CREATE TABLE gristmill.writer (
    id        text PRIMARY KEY, -- also in the connection's application_name
    operation bigint NOT NULL,
    at        timestamptz NOT NULL DEFAULT now(), -- of that operation
    layout    text NOT NULL DEFAULT current_setting('gristmill.layout') -- of the connection's program; see refuse_others in open.rs
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- --- compression ---

-- lz4 costs a tenth of the processor that pglz takes; a server without it keeps its default.
DO $$
BEGIN
    ALTER TABLE gristmill.batch ALTER COLUMN payloads SET COMPRESSION lz4;
    ALTER TABLE gristmill.report ALTER COLUMN durations SET COMPRESSION lz4, ALTER COLUMN logs SET COMPRESSION lz4,
        ALTER COLUMN "values" SET COMPRESSION lz4, ALTER COLUMN parts SET COMPRESSION lz4,
        ALTER COLUMN bodies SET COMPRESSION lz4;
    ALTER TABLE gristmill.failure ALTER COLUMN error SET COMPRESSION lz4, ALTER COLUMN log SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    RAISE NOTICE 'this server has no lz4; payloads and values are compressed by its default';
END
$$;
