-- Deduplication keys as jobs end and as they are retried. A submit takes keys: `submit_keyed` for SQL clients, and the store's
-- own statements for its clients.

-- The keys at these positions of these batches, in the order of the keys. A batch without keys has none.
CREATE OR REPLACE FUNCTION gristmill.keys_at(batch_ids bigint[], meant int4multirange[])
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

-- Releases the keys of jobs that have ended in this state; a key with a period stays until the period ends. Returns the payloads
-- that run after completed jobs. `expire` submits the payloads that wait behind dead or expired jobs.
CREATE OR REPLACE FUNCTION gristmill.release_keys(batch_ids bigint[], meant int4multirange[], state text, now_ms bigint)
RETURNS TABLE (key text, rerun text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    WITH ended AS MATERIALIZED (
        SELECT k.scope, k.key, state = 'completed' AND k.rerun IS NOT NULL AS runs_again,
            state NOT IN ('completed', 'cancelled') AND k.rerun::json -> 'debounced' IS NOT NULL AS is_due
        FROM gristmill.keys_at(batch_ids, meant) e -- in the order in which all lock
        CROSS JOIN LATERAL (
            SELECT * FROM gristmill.job_key j
            WHERE j.scope = e.scope AND j.key = e.key AND j.batch_id = e.batch_id AND j.open FOR UPDATE
        ) k
    ), kept AS (
        UPDATE gristmill.job_key k SET open = false, until = CASE WHEN e.is_due THEN now_ms ELSE k.until END,
            rerun = CASE WHEN e.is_due THEN k.rerun END
        FROM ended e WHERE k.scope = e.scope AND k.key = e.key AND (e.is_due OR (k.until > now_ms AND NOT e.runs_again))
    ), gone AS (
        DELETE FROM gristmill.job_key k USING ended e
        WHERE k.scope = e.scope AND k.key = e.key AND NOT e.is_due AND (k.until IS NULL OR k.until <= now_ms OR e.runs_again)
        RETURNING k.key, k.rerun, e.runs_again
    )
    SELECT g.key, g.rerun FROM gone g WHERE g.runs_again;
END
$$;

-- These positions, without jobs whose key another job has since taken.
CREATE OR REPLACE FUNCTION gristmill.without_taken_keys(batch_ids bigint[], meant int4multirange[], now_ms bigint) RETURNS int4multirange[]
LANGUAGE sql STABLE STRICT
BEGIN ATOMIC
    SELECT coalesce(array_agg(m.positions - coalesce(t.positions, '{}') ORDER BY m.number), '{}')
    FROM unnest(batch_ids, meant) WITH ORDINALITY AS m (batch_id, positions, number)
    LEFT JOIN LATERAL (
        SELECT range_agg(int4range(e.position, e.position + 1)) AS positions
        FROM gristmill.keys_at(ARRAY[m.batch_id], ARRAY[m.positions]) e
        JOIN gristmill.job_key k ON k.scope = e.scope AND k.key = e.key
        WHERE k.batch_id <> e.batch_id AND (k.open OR k.until > now_ms OR k.rerun IS NOT NULL)
    ) t ON true;
END;

-- Gives the retried jobs of these batches their keys back.
CREATE OR REPLACE FUNCTION gristmill.take_keys_again(batch_ids bigint[], meant int4multirange[], now_ms bigint) RETURNS void
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
    WHERE k.batch_id = excluded.batch_id OR (NOT k.open AND (k.until IS NULL OR k.until <= now_ms) AND k.rerun IS NULL);
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
