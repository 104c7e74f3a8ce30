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

-- One row a job, unpacked from the batches: for people. A condition on batch_id (and position) is fast;
-- others unpack the whole store. Each part of the union walks from its batch to what is stored of it, so
-- that the condition reaches all of them; the parts are put together by a window (SQLite hands a condition
-- down through PARTITION BY, and not through GROUP BY), of which the part with the payload is shown.
--
-- Positions such as 0-499,731 become a JSON array of ranges by replace(), and a range becomes its
-- positions as the keys of an array of zeros of its length. Nothing newer than SQLite 3.38 is used.
CREATE VIEW job AS
WITH piece AS (
    SELECT b.id AS batch_id, r.state, r.attempt, NULL AS run_at, r.finished_at, r.worker, r.positions
    FROM batch b CROSS JOIN report r ON r.id >= b.id << 14 AND r.id < (b.id + 1) << 14
    UNION ALL
    SELECT b.id, iif(s.run_at <= (julianday('now') - 2440587.5) * 86400000, 'waiting', 'scheduled'), s.attempt, s.run_at, NULL, NULL,
        s.positions
    FROM batch b CROSS JOIN slice s
        ON s.lane_id = b.lane_id AND s.rank = -b.priority AND s.run_at = b.run_at AND s.batch_id = b.id
    UNION ALL
    SELECT b.id, iif(s.run_at <= (julianday('now') - 2440587.5) * 86400000, 'waiting', 'scheduled'), s.attempt, s.run_at, NULL, NULL,
        s.positions
    FROM batch b CROSS JOIN slice s ON s.strayed = 1 AND s.batch_id = b.id
    UNION ALL
    SELECT h.batch_id, 'running', h.attempt, NULL, NULL, w.name, h.positions
    FROM held h LEFT JOIN worker w ON w.id = h.worker_id
),
value_range AS (
    SELECT batch_id, report_id, first, last,
        coalesce(sum(last - first + 1) OVER (
            PARTITION BY batch_id, report_id ORDER BY first ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS before
    FROM (
        SELECT b.id AS batch_id, r.id AS report_id, CAST(g.value AS INTEGER) AS first,
            CAST(substr(g.value, instr(g.value, '-') + 1) AS INTEGER) AS last
        FROM batch b CROSS JOIN report r ON r.id >= b.id << 14 AND r.id < (b.id + 1) << 14
            CROSS JOIN json_each('["' || replace(r.positions, ',', '","') || '"]') g
        WHERE r."values" IS NOT NULL
    )
),
part AS (
    SELECT b.id AS batch_id, p.key AS position,
        CASE p.type WHEN 'object' THEN p.value WHEN 'array' THEN p.value WHEN 'true' THEN 'true'
            WHEN 'false' THEN 'false' ELSE json_quote(p.value) END AS payload,
        NULL AS value, NULL AS state, NULL AS attempt, NULL AS run_at, NULL AS finished_at, NULL AS worker
    FROM batch b CROSS JOIN json_each(b.payloads) p
    UNION ALL
    SELECT v.batch_id, v.first + e.key - v.before, NULL,
        CASE e.type WHEN 'object' THEN e.value WHEN 'array' THEN e.value WHEN 'true' THEN 'true'
            WHEN 'false' THEN 'false' ELSE json_quote(e.value) END,
        NULL, NULL, NULL, NULL, NULL
    FROM value_range v CROSS JOIN report r ON r.id = v.report_id CROSS JOIN json_each(r."values") e
    WHERE e.key BETWEEN v.before AND v.before + v.last - v.first
    UNION ALL
    SELECT i.batch_id, CAST(g.value AS INTEGER) + n.key, NULL, NULL, i.state, i.attempt, i.run_at, i.finished_at,
        i.worker
    FROM piece i CROSS JOIN json_each('["' || replace(i.positions, ',', '","') || '"]') g
        CROSS JOIN json_each('[' || substr(replace(hex(zeroblob(
            CAST(substr(g.value, instr(g.value, '-') + 1) AS INTEGER) - CAST(g.value AS INTEGER) + 1
        )), '00', ',0'), 2) || ']') n
),
whole AS (
    SELECT batch_id, position, payload, max(value) OVER job AS value, max(state) OVER job AS state,
        max(attempt) OVER job AS attempt, max(run_at) OVER job AS run_at, max(finished_at) OVER job AS finished_at,
        max(worker) OVER job AS worker
    FROM part WINDOW job AS (PARTITION BY batch_id, position)
)
SELECT w.batch_id || ':' || w.position AS id, w.batch_id, w.position, l.kind, l.queue, r.name AS run, w.state,
    w.attempt, b.priority, w.payload, w.value,
    CASE WHEN w.state <> 'completed' THEN (
        SELECT f.error ->> '$.message' FROM failure f WHERE f.batch_id = w.batch_id AND f.position = w.position
        ORDER BY f.lease_id DESC LIMIT 1
    ) END AS error,
    b.submitted_at, w.run_at, w.finished_at, w.worker
FROM whole w JOIN batch b ON b.id = w.batch_id JOIN lane l ON l.id = b.lane_id LEFT JOIN run r ON r.id = b.run_id
WHERE w.payload IS NOT NULL;
