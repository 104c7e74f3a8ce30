-- Times are milliseconds since 1970, by the clock that all users of the store go by. Positions are multiranges:
-- `{[0,500),[731,732)}`.
--
-- The order in which rows are locked, so that no two wait for each other: run, worker, batch, slice, held, and then
-- the rest. What moves positions forward (slice to held, held to report) needs no lock of the batch. What brings them
-- back (held or report to slice) locks the batch FOR SHARE first, and what must see all positions of a batch stand
-- still (cancel, retry, prune, delete) locks it FOR NO KEY UPDATE.

-- A queue and a kind. Never deleted. Ids are contiguous, in the order of commits (see intern_lane), so that a process
-- that has read them up to one learns what is new by asking for those above.
CREATE TABLE gristmill.lane (
    id    integer PRIMARY KEY,
    queue text NOT NULL,
    kind  text NOT NULL,
    UNIQUE (queue, kind)
);

-- The lane of a queue and a kind, made where there is none.
CREATE FUNCTION gristmill.intern_lane(queue text, kind text, lanes_max integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    lane_id integer;
BEGIN
    SELECT l.id INTO lane_id FROM gristmill.lane l WHERE l.queue = $1 AND l.kind = $2;
    IF lane_id IS NULL THEN
        LOCK TABLE gristmill.lane IN SHARE ROW EXCLUSIVE MODE;
        SELECT l.id INTO lane_id FROM gristmill.lane l WHERE l.queue = $1 AND l.kind = $2;
    END IF;
    IF lane_id IS NULL THEN
        SELECT coalesce(max(l.id), 0) + 1 INTO lane_id FROM gristmill.lane l;
        IF lane_id > lanes_max THEN
            RAISE EXCEPTION 'the store has % pairs of queue and kind already, and `%` with `%` would be one more', lanes_max, $1, $2
                USING ERRCODE = 'program_limit_exceeded', HINT = 'Put what varies into the payload.';
        END IF;
        INSERT INTO gristmill.lane (id, queue, kind) VALUES (lane_id, $1, $2);
    END IF;
    RETURN lane_id;
END
$$;

-- Ids are never given twice; a transaction that is rolled back leaves a gap.
CREATE SEQUENCE gristmill.batch_id;
CREATE SEQUENCE gristmill.lease_id;

-- Never changed.
CREATE TABLE gristmill.batch (
    id           bigint PRIMARY KEY,
    submitted_at bigint NOT NULL,
    run_at       bigint NOT NULL, -- from when its first slice can be claimed
    run_id       bigint,
    lane_id      integer NOT NULL,
    count        integer NOT NULL,
    priority     smallint NOT NULL,
    options      text,            -- JSON; NULL where all are default
    payloads     text NOT NULL    -- a JSON array, one payload a position
);
CREATE INDEX batch_run ON gristmill.batch (run_id, id) WHERE run_id IS NOT NULL;

-- Claimable positions. Nothing that is indexed changes when a claim takes part of one.
CREATE TABLE gristmill.slice (
    batch_id   bigint NOT NULL,
    id         bigint GENERATED ALWAYS AS IDENTITY,
    run_at     bigint NOT NULL,
    expires_at bigint,
    lane_id    integer NOT NULL,
    attempt    integer NOT NULL, -- the attempt that comes next
    rescues    integer NOT NULL,
    count      integer NOT NULL,
    job_bytes  integer NOT NULL, -- of the batch's payloads, in the mean
    rank       integer NOT NULL, -- the priority, negated
    positions  int4multirange NOT NULL,
    PRIMARY KEY (batch_id, id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- The order of claims. Within a batch, lower(positions) decides.
CREATE INDEX slice_order ON gristmill.slice (lane_id, rank, run_at, batch_id);
CREATE INDEX slice_expiry ON gristmill.slice (expires_at) WHERE expires_at IS NOT NULL;

-- What leases hold: a row a claimed slice. A lease has no row of its own.
CREATE TABLE gristmill.held (
    lease_id       bigint NOT NULL,
    batch_id       bigint NOT NULL,
    attempt        integer NOT NULL,
    first_position integer NOT NULL, -- when it was claimed
    worker_id      bigint NOT NULL,
    run_at         bigint NOT NULL,
    expires_at     bigint,
    rescues        integer NOT NULL,
    count          integer NOT NULL,
    positions      int4multirange NOT NULL,
    PRIMARY KEY (lease_id, batch_id, attempt, first_position)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX held_batch ON gristmill.held (batch_id);

-- Some items of a packed array: of a large batch that is claimed in small parts, not all has to travel.
CREATE FUNCTION gristmill.selected(items text, positions int4multirange) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT '[' || string_agg(t.item, E'\n,' ORDER BY t.number) || ']'
    FROM string_to_table(substr(items, 2, length(items) - 2), E'\n,') WITH ORDINALITY t (item, number)
    WHERE positions @> (t.number - 1)::integer
$$;

-- Packed outcomes. The key refuses a second outcome.
CREATE TABLE gristmill.report (
    batch_id       bigint NOT NULL,
    first_position integer NOT NULL,
    attempt        integer NOT NULL,
    finished_at    bigint NOT NULL,
    count          integer NOT NULL,
    state          text NOT NULL, -- completed, dead, cancelled or expired
    worker         text,
    positions      int4multirange NOT NULL,
    durations      text, -- a JSON array of microseconds, one a position
    logs           text, -- a JSON object, text by position
    "values"       text, -- a JSON array, one value a position
    PRIMARY KEY (batch_id, first_position)
);
-- Successes, which are nearly all, cost nothing here.
CREATE INDEX report_unsuccessful ON gristmill.report (state, batch_id) WHERE state <> 'completed';

-- A failed attempt. A job fails at most once under a lease, and lease ids ascend; 0 for a job that was rejected
-- before any.
CREATE TABLE gristmill.failure (
    batch_id    bigint NOT NULL,
    lease_id    bigint NOT NULL,
    duration_us bigint NOT NULL,
    failed_at   bigint NOT NULL,
    position    integer NOT NULL,
    attempt     integer NOT NULL,
    worker      text,
    error       text NOT NULL, -- JSON
    log         text,
    PRIMARY KEY (batch_id, position, lease_id)
);

CREATE TABLE gristmill.worker (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name            text NOT NULL,
    host            text NOT NULL,
    process_id      bigint NOT NULL,
    process_started text NOT NULL,
    started_at      bigint NOT NULL,
    heartbeat_at    bigint NOT NULL
) WITH (fillfactor = 50);

-- Positions that a worker held and lost, until it is told.
CREATE TABLE gristmill.revoked (
    worker_id bigint NOT NULL,
    lease_id  bigint NOT NULL,
    batch_id  bigint NOT NULL,
    id        bigint GENERATED ALWAYS AS IDENTITY,
    positions int4multirange NOT NULL,
    PRIMARY KEY (worker_id, lease_id, batch_id, id)
);

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

-- The connections that write: a row each, with the number of the last operation that it committed. Whoever lost the
-- connection while a COMMIT was under way learns here what became of it. (The id of a transaction would not do: after
-- a crash, or on a standby that took over, it may be given to another.)
CREATE TABLE gristmill.writer (
    id        text PRIMARY KEY, -- also in the connection's application_name
    operation bigint NOT NULL,
    at        timestamptz NOT NULL DEFAULT now() -- of that operation
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Wakes the processes that wait for work, if there are any: each holds a shared lock while it waits. Must be called
-- after COMMIT, or else in the transaction that submits, where a process that goes to sleep before COMMIT is not woken
-- and finds the work when it looks by itself. A NOTIFY takes a lock of the whole server at COMMIT, so there is none
-- while all are busy.
CREATE FUNCTION gristmill.wake() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF pg_try_advisory_lock(1196576076, 2) THEN
        PERFORM pg_advisory_unlock(1196576076, 2);
    ELSE
        PERFORM pg_notify('gristmill_work', '');
    END IF;
END
$$;

-- lz4 costs a tenth of the processor that pglz takes; a server without it keeps its default.
DO $$
BEGIN
    ALTER TABLE gristmill.batch ALTER COLUMN payloads SET COMPRESSION lz4;
    ALTER TABLE gristmill.report ALTER COLUMN durations SET COMPRESSION lz4, ALTER COLUMN logs SET COMPRESSION lz4,
        ALTER COLUMN "values" SET COMPRESSION lz4;
    ALTER TABLE gristmill.failure ALTER COLUMN error SET COMPRESSION lz4, ALTER COLUMN log SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    RAISE NOTICE 'this server has no lz4; payloads and values are compressed by its default';
END
$$;
