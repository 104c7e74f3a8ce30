-- Pauses: of lanes, as controls, and of jobs by themselves, which are rows of `blocked` until their last pause ends.

-- The key that tells a pause from all other controls, as the store writes it.
CREATE OR REPLACE FUNCTION gristmill.pause_key(reason text, queue text, kind text, job_group text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '["pause",' || coalesce(to_json(queue)::text, 'null') || ',' || coalesce(to_json(kind)::text, 'null') || ','
    || coalesce(to_json(job_group)::text, 'null') || ',false,' || to_json(reason)::text || ']';

-- Pauses a queue, a kind and a group (all, where they are NULL), until that moment or until it is resumed. Pauses for other reasons
-- stand beside it.
CREATE OR REPLACE FUNCTION gristmill.pause(
    reason text, queue text DEFAULT NULL, kind text DEFAULT NULL, job_group text DEFAULT NULL, until timestamptz DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    controls_max CONSTANT integer := 10000;
    until_ms CONSTANT bigint := gristmill.milliseconds('until', pause.until);
    definition CONSTANT text := jsonb_build_object(
        'scope', jsonb_strip_nulls(jsonb_build_object('queue', pause.queue, 'kind', pause.kind, 'group', pause.job_group)),
        'effect', jsonb_build_object('pause', jsonb_strip_nulls(jsonb_build_object('reason', pause.reason, 'until', until_ms)))
    )::text;
BEGIN
    PERFORM gristmill.check_name('reason', pause.reason);
    PERFORM gristmill.check_name(named.what, named.name)
        FROM (VALUES ('queue', pause.queue), ('kind', pause.kind), ('group', pause.job_group)) named (what, name)
        WHERE named.name IS NOT NULL;
    UPDATE gristmill.control_version SET version = version + 1;
    INSERT INTO gristmill.control AS c (key, definition)
    VALUES (gristmill.pause_key(pause.reason, pause.queue, pause.kind, pause.job_group), definition)
    ON CONFLICT (key) DO UPDATE SET definition = excluded.definition;
    IF (SELECT count(*) FROM gristmill.control) > controls_max THEN
        RAISE EXCEPTION 'the store holds at most % controls', controls_max USING ERRCODE = 'program_limit_exceeded', HINT = 'Lift some.';
    END IF;
END
$$;

-- Ends the pause for that reason of exactly this queue, kind and group. Returns whether there was one.
CREATE OR REPLACE FUNCTION gristmill.resume(
    reason text, queue text DEFAULT NULL, kind text DEFAULT NULL, job_group text DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE gristmill.control_version SET version = version + 1;
    DELETE FROM gristmill.control c WHERE c.key = gristmill.pause_key(resume.reason, resume.queue, resume.kind, resume.job_group);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM gristmill.wake();
    RETURN true;
END
$$;

-- When the last of some pauses is over by itself; NULL where one has no end.
CREATE OR REPLACE FUNCTION gristmill.paused_until(pauses jsonb) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN bool_and(value <> 'null'::jsonb) THEN max((value #>> '{}')::bigint) END FROM jsonb_each(pauses);
END;

-- Some pauses without the one for that reason and without those that are over; NULL where none is left, and where the reason is NULL,
-- which means all.
CREATE OR REPLACE FUNCTION gristmill.pauses_left(pauses jsonb, reason text, now_ms bigint) RETURNS jsonb
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT jsonb_object_agg(key, value) FROM jsonb_each(pauses)
    WHERE key <> reason AND (value = 'null'::jsonb OR (value #>> '{}')::bigint > now_ms);
END;

-- Pauses open jobs for that reason, until that moment (NULL: until they are resumed). See change.sql for the other parameters.
-- Returns how many it paused.
CREATE OR REPLACE FUNCTION gristmill.pause_jobs(
    batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint, reason text, until bigint
) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reasons_max CONSTANT integer := 32;
    pause CONSTANT jsonb := jsonb_build_object(reason, until);
    paused bigint;
BEGIN
    PERFORM gristmill.cut_open(batch_ids, meant);
    WITH meant AS MATERIALIZED (
        SELECT m.batch_id, m.positions FROM unnest(batch_ids, meant) AS m (batch_id, positions)
    ), blocked AS (
        UPDATE gristmill.blocked w SET pauses = coalesce(w.pauses, '{}') || pause,
            paused_until = gristmill.paused_until(coalesce(w.pauses, '{}') || pause)
        FROM meant m WHERE w.batch_id = m.batch_id AND m.positions @> w.positions
            AND (cardinality(states) = 0 OR CASE WHEN w.pauses IS NULL THEN 'blocked' ELSE 'paused' END = ANY (states))
        RETURNING w.count
    ), waiting AS (
        DELETE FROM gristmill.slice s USING meant m
        WHERE s.batch_id = m.batch_id AND m.positions @> s.positions AND (cardinality(states) = 0
            OR CASE WHEN s.run_at <= now_ms THEN 'waiting' ELSE 'scheduled' END = ANY (states))
        RETURNING s.*
    ), kept_back AS (
        INSERT INTO gristmill.blocked (batch_id, part, attempt, rescues, count, expires_at, positions, rank, run_at, pauses,
            paused_until, family)
        SELECT w.batch_id, nextval('gristmill.blocked_part'), w.attempt, w.rescues, w.count, w.expires_at, w.positions, w.rank,
            w.run_at, pause, until, w.family
        FROM waiting w
    ), running AS (
        UPDATE gristmill.held h SET pauses = coalesce(h.pauses, '{}') || pause FROM meant m
        WHERE h.batch_id = m.batch_id AND m.positions @> h.positions
            AND (cardinality(states) = 0 OR 'running' = ANY (states))
        RETURNING h.count
    )
    SELECT coalesce(sum(count), 0) INTO paused
    FROM (SELECT count FROM blocked UNION ALL SELECT count FROM waiting UNION ALL SELECT count FROM running) c;
    PERFORM FROM (
        SELECT pauses FROM gristmill.blocked WHERE batch_id = ANY (batch_ids)
        UNION ALL SELECT pauses FROM gristmill.held WHERE batch_id = ANY (batch_ids)
    ) p WHERE (SELECT count(*) FROM jsonb_object_keys(p.pauses)) > reasons_max;
    IF FOUND THEN
        RAISE EXCEPTION 'a job is paused for at most % reasons', reasons_max USING ERRCODE = 'program_limit_exceeded',
            HINT = 'Resume it for one of the others first.';
    END IF;
    RETURN paused;
END
$$;

-- Makes blocked parts claimable that are not paused and wait for no others. Parts that wait for a signal stay. Returns how many jobs those
-- are.
CREATE OR REPLACE FUNCTION gristmill.free_parts(batch_ids bigint[], parts integer[]) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    freed bigint;
BEGIN
    WITH free AS (
        DELETE FROM gristmill.blocked w USING unnest(batch_ids, parts) AS k (batch_id, part)
        JOIN gristmill.batch b ON b.id = k.batch_id
        WHERE w.batch_id = k.batch_id AND w.part = k.part AND w.pauses IS NULL AND NOT gristmill.is_signal(b.options)
            AND NOT EXISTS (SELECT FROM gristmill.edge e WHERE e.batch_id = w.batch_id AND e.part = w.part)
        RETURNING w.*
    ), claimable AS (
        INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, positions,
            awaited, family)
        SELECT b.id, coalesce(f.run_at, b.run_at), f.expires_at, b.lane_id, f.attempt, f.rescues, f.count,
            greatest(gristmill.batch_bytes(b.id, octet_length(b.payloads), b.options) / b.count, 1),
            coalesce(f.rank, -b.priority::integer), f.positions, gristmill.is_awaited(b.id), f.family
        FROM free f JOIN gristmill.batch b ON b.id = f.batch_id
        RETURNING count
    )
    SELECT coalesce(sum(count), 0) INTO freed FROM claimable;
    RETURN freed;
END
$$;

-- Ends the pause of jobs for that reason (all their pauses, where it is NULL). Returns how many were paused.
CREATE OR REPLACE FUNCTION gristmill.resume_jobs(
    batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint, reason text
) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    resumed bigint;
    freed bigint[];
    freed_parts integer[];
BEGIN
    PERFORM gristmill.cut_open(batch_ids, meant);
    WITH meant AS MATERIALIZED (
        SELECT m.batch_id, m.positions FROM unnest(batch_ids, meant) AS m (batch_id, positions)
    ), running AS (
        UPDATE gristmill.held h SET pauses = gristmill.pauses_left(h.pauses, reason, now_ms)
        FROM meant m WHERE h.batch_id = m.batch_id AND m.positions @> h.positions
            AND (cardinality(states) = 0 OR 'running' = ANY (states))
            AND CASE WHEN reason IS NULL THEN h.pauses IS NOT NULL ELSE h.pauses ? reason END
        RETURNING h.count
    ), blocked AS (
        UPDATE gristmill.blocked w SET
            pauses = gristmill.pauses_left(w.pauses, reason, now_ms),
            paused_until = gristmill.paused_until(gristmill.pauses_left(w.pauses, reason, now_ms))
        FROM meant m WHERE w.batch_id = m.batch_id AND m.positions @> w.positions
            AND (cardinality(states) = 0 OR 'paused' = ANY (states))
            AND CASE WHEN reason IS NULL THEN w.pauses IS NOT NULL ELSE w.pauses ? reason END
        RETURNING w.batch_id, w.part, w.count, w.pauses
    )
    SELECT coalesce((SELECT sum(count) FROM running), 0) + coalesce(sum(b.count), 0),
        array_agg(b.batch_id) FILTER (WHERE b.pauses IS NULL), array_agg(b.part) FILTER (WHERE b.pauses IS NULL)
    INTO resumed, freed, freed_parts FROM blocked b;
    PERFORM gristmill.free_parts(freed, freed_parts);
    RETURN resumed;
END
$$;

-- Ends some pauses that are over. Returns how many jobs have become claimable.
CREATE OR REPLACE FUNCTION gristmill.end_pauses(now_ms bigint, rows_max bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended bigint[];
    ended_parts integer[];
BEGIN
    WITH ended AS (
        UPDATE gristmill.blocked w SET pauses = NULL, paused_until = NULL FROM (
            SELECT o.batch_id, o.part FROM gristmill.blocked o WHERE o.paused_until <= now_ms ORDER BY o.paused_until
            LIMIT rows_max FOR UPDATE SKIP LOCKED) o
        WHERE w.batch_id = o.batch_id AND w.part = o.part
        RETURNING w.batch_id, w.part
    )
    SELECT array_agg(batch_id), array_agg(part) INTO ended, ended_parts FROM ended;
    IF ended IS NULL THEN
        RETURN 0;
    END IF;
    RETURN gristmill.free_parts(ended, ended_parts);
END
$$;

-- Pauses open jobs for that reason, until that moment or until they are resumed. Returns how many were open.
CREATE OR REPLACE FUNCTION gristmill.pause(ids text[], reason text, until timestamptz DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    until_ms CONSTANT bigint := gristmill.milliseconds('until', pause.until);
BEGIN
    PERFORM gristmill.check_name('reason', pause.reason);
    RETURN (SELECT gristmill.pause_jobs(coalesce(array_agg(batch_id), '{}'), coalesce(array_agg(positions), '{}'), '{}', now_ms,
        pause.reason, until_ms) FROM gristmill.jobs_by_id(pause.ids));
END
$$;

-- Ends the pause of jobs for that reason (all their own pauses, where it is NULL). Returns how many were paused.
CREATE OR REPLACE FUNCTION gristmill.resume(ids text[], reason text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    resumed bigint;
BEGIN
    SELECT gristmill.resume_jobs(coalesce(array_agg(batch_id), '{}'), coalesce(array_agg(positions), '{}'), '{}', now_ms,
        resume.reason) INTO resumed FROM gristmill.jobs_by_id(resume.ids);
    IF resumed > 0 THEN
        PERFORM gristmill.wake();
    END IF;
    RETURN resumed;
END
$$;
