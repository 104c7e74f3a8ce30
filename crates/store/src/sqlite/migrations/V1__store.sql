-- The header of the file says whose it is ("GRML").
PRAGMA application_id = 1196576076;

-- A queue and a kind. Slices are ordered by lane, so that a claim of some queues and kinds reads
-- the heads of a few lanes and nothing else.
CREATE TABLE lane (
    id    INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    kind  TEXT NOT NULL,
    UNIQUE (queue, kind)
) STRICT;

-- Never changed. The long columns stand last: a row is read without following its overflow pages. An
-- id is one above the last row's and all that were deleted (see sequence): AUTOINCREMENT would write a
-- page more with each submit.
CREATE TABLE batch (
    id           INTEGER PRIMARY KEY,
    lane_id      INTEGER NOT NULL,
    run_id       INTEGER,
    count        INTEGER NOT NULL,
    priority     INTEGER NOT NULL,
    submitted_at INTEGER NOT NULL, -- milliseconds since 1970, as all times
    run_at       INTEGER NOT NULL, -- from when its first slice can be claimed
    options      TEXT,             -- JSON; NULL where all are default
    payloads     TEXT NOT NULL     -- a JSON array, one payload a position
) STRICT;
CREATE INDEX batch_run ON batch (run_id, id) WHERE run_id IS NOT NULL;

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
    strayed        INTEGER,          -- 1 where run_at is not the batch's own, else NULL
    positions      TEXT NOT NULL,    -- ranges: 0-499,731
    PRIMARY KEY (lane_id, rank, run_at, batch_id, first_position)
) STRICT, WITHOUT ROWID;
-- A batch's slices are found by what the batch says of them; only those that come later (retries) need
-- an index, so that a submit or a claim writes no page of it.
CREATE INDEX slice_strayed ON slice (batch_id) WHERE strayed = 1;
CREATE INDEX slice_expiry ON slice (expires_at) WHERE expires_at IS NOT NULL;

-- What leases hold: a row a claimed slice. A lease has no row of its own.
CREATE TABLE held (
    lease_id       INTEGER NOT NULL,
    batch_id       INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    first_position INTEGER NOT NULL, -- when it was claimed
    worker_id      INTEGER NOT NULL,
    rescues        INTEGER NOT NULL,
    run_at         INTEGER NOT NULL,
    count          INTEGER NOT NULL,
    expires_at     INTEGER,
    positions      TEXT NOT NULL,
    PRIMARY KEY (lease_id, batch_id, attempt, first_position)
) STRICT, WITHOUT ROWID;

-- Packed outcomes. The id is the batch's id, shifted left by 14 bits, and the first position: one
-- b-tree keeps a batch's reports together, and its key refuses a second outcome.
CREATE TABLE report (
    id          INTEGER PRIMARY KEY,
    state       TEXT NOT NULL,
    attempt     INTEGER NOT NULL,
    count       INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    worker      TEXT,
    positions   TEXT NOT NULL,
    durations   TEXT, -- a JSON array of microseconds, one a position
    logs        TEXT, -- a JSON object, text by position
    "values"    TEXT  -- a JSON array, one value a position
) STRICT;
-- Successes, which are nearly all, cost nothing here.
CREATE INDEX report_unsuccessful ON report (state, id) WHERE state <> 'completed';

-- A failed attempt. A job fails at most once under a lease, and lease ids ascend; 0 for a job that
-- was rejected before any.
CREATE TABLE failure (
    batch_id    INTEGER NOT NULL,
    position    INTEGER NOT NULL,
    lease_id    INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    failed_at   INTEGER NOT NULL,
    worker      TEXT,
    error       TEXT NOT NULL, -- JSON
    log         TEXT,
    PRIMARY KEY (batch_id, position, lease_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE worker (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    name            TEXT NOT NULL,
    host            TEXT NOT NULL,
    process_id      INTEGER NOT NULL,
    process_started TEXT NOT NULL,
    started_at      INTEGER NOT NULL,
    heartbeat_at    INTEGER NOT NULL
) STRICT;

-- Positions that a worker held and lost, until it is told.
CREATE TABLE revoked (
    worker_id INTEGER NOT NULL,
    lease_id  INTEGER NOT NULL,
    batch_id  INTEGER NOT NULL,
    number    INTEGER NOT NULL, -- tells revocations of one lease and batch apart
    positions TEXT NOT NULL,
    PRIMARY KEY (worker_id, lease_id, batch_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE run (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    name        TEXT NOT NULL UNIQUE,
    description TEXT NOT NULL,
    state       TEXT NOT NULL,
    jobs        INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    lines       INTEGER NOT NULL,
    crc32       INTEGER NOT NULL,
    created_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE hop_stat (
    hop         TEXT PRIMARY KEY,
    batches     INTEGER NOT NULL,
    items       INTEGER NOT NULL,
    items_max   INTEGER NOT NULL,
    end_reasons TEXT NOT NULL -- a JSON object, batches by reason
) STRICT, WITHOUT ROWID;

-- The lowest ids that were never given. Lease ids are taken in blocks, which a process gives without
-- writing; of batch ids, only those of deleted batches are written down.
CREATE TABLE sequence (
    name       TEXT PRIMARY KEY,
    next_value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO sequence VALUES ('lease', 1), ('batch', 1);
