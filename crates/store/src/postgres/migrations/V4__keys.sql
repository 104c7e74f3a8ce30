-- Who has a deduplication key: a job that is open, or whose period is not over. Rows are locked after all others but
-- those of the same table, and there by scope and key. Who submits jobs with keys holds an advisory lock of their scope
-- (class 1196576077) from before it looks, so that no two do at the same time.
CREATE TABLE gristmill.job_key (
    scope    integer NOT NULL, -- twice the first lane of a kind, or once more than twice that of a queue
    key      text COLLATE "C" NOT NULL,
    batch_id bigint NOT NULL,
    until    bigint,           -- the end of its period
    position integer NOT NULL,
    open     boolean NOT NULL, -- whether the job is not over
    rerun    text,             -- JSON: what runs once more after the job has completed
    PRIMARY KEY (scope, key)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX job_key_over ON gristmill.job_key (until) WHERE NOT open;

-- The keys of the batches that have some.
CREATE TABLE gristmill.keyed (
    batch_id bigint PRIMARY KEY,
    scope    integer NOT NULL,
    keys     text NOT NULL -- a JSON array, a string or null a position
);

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

-- The keys at these positions of these batches, by their order. Nothing for a batch without keys.
CREATE FUNCTION gristmill.keys_at(batch_ids bigint[], meant int4multirange[])
RETURNS TABLE (scope integer, key text, batch_id bigint, "position" integer)
LANGUAGE sql STABLE STRICT ROWS 1000
BEGIN ATOMIC
    SELECT b.scope, t.item #>> '{}', b.batch_id, (t.number - 1)::integer
    FROM unnest(batch_ids, meant) AS m (batch_id, positions)
    JOIN gristmill.keyed b ON b.batch_id = m.batch_id
    CROSS JOIN LATERAL gristmill.unpacked(b.keys) WITH ORDINALITY AS t (item, number)
    WHERE m.positions @> (t.number - 1)::integer AND t.item #>> '{}' IS NOT NULL
    ORDER BY b.scope, (t.item #>> '{}') COLLATE "C";
END;

-- Lets go of the keys of jobs that are over, as far as their periods are. Returns what is to run once more, where the
-- jobs have completed.
CREATE FUNCTION gristmill.release_keys(batch_ids bigint[], meant int4multirange[], completed boolean, now_ms bigint)
RETURNS TABLE (key text, rerun text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    WITH ended AS MATERIALIZED (
        SELECT e.scope, e.key, e.batch_id FROM gristmill.keys_at(batch_ids, meant) e
    ), kept AS (
        UPDATE gristmill.job_key k SET open = false, rerun = NULL FROM ended e
        WHERE k.scope = e.scope AND k.key = e.key AND k.batch_id = e.batch_id AND k.until > now_ms
            AND NOT (completed AND k.rerun IS NOT NULL)
    ), gone AS (
        DELETE FROM gristmill.job_key k USING ended e
        WHERE k.scope = e.scope AND k.key = e.key AND k.batch_id = e.batch_id
            AND (k.until IS NULL OR k.until <= now_ms OR (completed AND k.rerun IS NOT NULL))
        RETURNING k.key, k.rerun
    )
    SELECT g.key, g.rerun FROM gone g WHERE completed AND g.rerun IS NOT NULL;
END
$$;

-- These positions without those whose key another job has by now.
CREATE FUNCTION gristmill.without_taken_keys(batch_ids bigint[], meant int4multirange[], now_ms bigint) RETURNS int4multirange[]
LANGUAGE sql STABLE STRICT
BEGIN ATOMIC
    SELECT coalesce(array_agg(m.positions - coalesce(t.positions, '{}') ORDER BY m.number), '{}')
    FROM unnest(batch_ids, meant) WITH ORDINALITY AS m (batch_id, positions, number)
    LEFT JOIN LATERAL (
        SELECT range_agg(int4range(e.position, e.position + 1)) AS positions
        FROM gristmill.keys_at(ARRAY[m.batch_id], ARRAY[m.positions]) e
        JOIN gristmill.job_key k ON k.scope = e.scope AND k.key = e.key
        WHERE k.batch_id <> e.batch_id AND (k.open OR k.until > now_ms)
    ) t ON true;
END;

-- Gives jobs of these batches that wait again their keys back.
CREATE FUNCTION gristmill.take_keys_again(batch_ids bigint[], meant int4multirange[], now_ms bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM gristmill.keyed k WHERE k.batch_id = ANY (batch_ids);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO gristmill.job_key AS k (scope, key, batch_id, position, open)
    SELECT e.scope, e.key, e.batch_id, e.position, true
    FROM gristmill.keys_at(batch_ids, meant) e
    JOIN gristmill.slice s ON s.batch_id = e.batch_id AND s.positions @> e.position
    ORDER BY e.scope, e.key COLLATE "C"
    ON CONFLICT (scope, key) DO UPDATE SET open = true, position = excluded.position, batch_id = excluded.batch_id,
        until = CASE WHEN k.batch_id = excluded.batch_id THEN k.until END,
        rerun = CASE WHEN k.batch_id = excluded.batch_id THEN k.rerun END
    WHERE k.batch_id = excluded.batch_id OR (NOT k.open AND (k.until IS NULL OR k.until <= now_ms));
    PERFORM FROM gristmill.keys_at(batch_ids, meant) e
        JOIN gristmill.slice s ON s.batch_id = e.batch_id AND s.positions @> e.position
        JOIN gristmill.job_key k ON k.scope = e.scope AND k.key = e.key
        WHERE k.batch_id <> e.batch_id;
    IF FOUND THEN
        RAISE EXCEPTION 'another job has taken the key of one that is retried meanwhile'
            USING ERRCODE = 'serialization_failure', HINT = 'Begin the transaction again.';
    END IF;
END
$$;

-- Gives what waits of these positions of these batches a higher priority (a lower rank), if it is one.
CREATE FUNCTION gristmill.raise_jobs(batch_ids bigint[], meant int4multirange[], new_rank integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM gristmill.lock_batches(batch_ids);
    WITH raised AS MATERIALIZED (
        SELECT s.batch_id, s.id, s.positions * m.positions AS taken, s.positions - m.positions AS rest
        FROM gristmill.slice s JOIN unnest(batch_ids, meant) AS m (batch_id, positions) ON m.batch_id = s.batch_id
        WHERE s.positions && m.positions AND s.rank > new_rank
    ), added AS (
        INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, positions)
        SELECT s.batch_id, s.run_at, s.expires_at, s.lane_id, s.attempt, s.rescues, gristmill.count(r.taken), s.job_bytes,
            new_rank, r.taken
        FROM raised r JOIN gristmill.slice s ON s.batch_id = r.batch_id AND s.id = r.id
    ), shortened AS (
        UPDATE gristmill.slice s SET positions = r.rest, count = gristmill.count(r.rest)
        FROM raised r WHERE s.batch_id = r.batch_id AND s.id = r.id AND NOT isempty(r.rest)
    )
    DELETE FROM gristmill.slice s USING raised r WHERE s.batch_id = r.batch_id AND s.id = r.id AND isempty(r.rest);
END
$$;

-- As cancel_jobs, and lets go of the keys of what is over.
CREATE FUNCTION gristmill.cancel_with_keys(batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    cancelled CONSTANT bigint := gristmill.cancel_jobs(batch_ids, meant, states, now_ms);
BEGIN
    PERFORM FROM gristmill.keyed k WHERE k.batch_id = ANY (batch_ids);
    IF FOUND THEN
        PERFORM gristmill.release_keys(array_agg(r.batch_id), array_agg(r.positions), false, now_ms)
        FROM gristmill.report r WHERE r.batch_id = ANY (batch_ids) AND r.state <> 'completed';
    END IF;
    RETURN cancelled;
END
$$;

-- As retry_jobs, for jobs whose keys no other job has by now.
CREATE FUNCTION gristmill.retry_with_keys(batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    retried bigint;
BEGIN
    PERFORM FROM gristmill.keyed k WHERE k.batch_id = ANY (batch_ids);
    IF NOT FOUND THEN
        RETURN gristmill.retry_jobs(batch_ids, meant, states, now_ms);
    END IF;
    retried := gristmill.retry_jobs(batch_ids, gristmill.without_taken_keys(batch_ids, meant, now_ms), states, now_ms);
    PERFORM gristmill.take_keys_again(batch_ids, meant, now_ms);
    RETURN retried;
END
$$;

-- As before, and with their keys.
CREATE OR REPLACE FUNCTION gristmill.cancel(ids text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
BEGIN
    RETURN (SELECT gristmill.cancel_with_keys(coalesce(array_agg(batch_id), '{}'), coalesce(array_agg(positions), '{}'), '{}', now_ms)
            FROM gristmill.jobs_by_id(cancel.ids));
END
$$;

CREATE OR REPLACE FUNCTION gristmill.retry(ids text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    retried bigint;
BEGIN
    SELECT gristmill.retry_with_keys(coalesce(array_agg(batch_id), '{}'), coalesce(array_agg(positions), '{}'), '{}', now_ms)
        INTO retried FROM gristmill.jobs_by_id(retry.ids);
    IF retried > 0 THEN
        PERFORM gristmill.wake();
    END IF;
    RETURN retried;
END
$$;

REVOKE EXECUTE ON FUNCTION gristmill.release_keys, gristmill.take_keys_again, gristmill.raise_jobs,
    gristmill.cancel_with_keys, gristmill.retry_with_keys FROM PUBLIC;
