-- A priority that was changed stays with a job that runs or waits for others: negated, NULL for the batch's own.
ALTER TABLE gristmill.held ADD COLUMN rank integer;
ALTER TABLE gristmill.blocked ADD COLUMN rank integer;

-- What is paused by itself stands in `blocked`, as what waits for others does. What was paused while it ran does so once it
-- comes back.
ALTER TABLE gristmill.held ADD COLUMN pauses jsonb;          -- until when by reason; NULL where there are none
ALTER TABLE gristmill.blocked ADD COLUMN pauses jsonb;
ALTER TABLE gristmill.blocked ADD COLUMN paused_until bigint; -- when the last of them is over by itself; NULL where one is not
ALTER TABLE gristmill.blocked ADD COLUMN run_at bigint;      -- from when it can be claimed; NULL for the batch's own
CREATE INDEX blocked_paused ON gristmill.blocked (paused_until) WHERE paused_until IS NOT NULL;

-- Numbers of parts that are split off others, or paused.
CREATE SEQUENCE gristmill.blocked_part AS integer MINVALUE 1048576 CYCLE;

-- Locks what is open of batches and what it waits for, and cuts its rows so that each is meant as a whole or not at all.
-- What others are claiming at this moment stays as it is.
CREATE FUNCTION gristmill.cut_open(batch_ids bigint[], meant int4multirange[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM gristmill.batch WHERE id = ANY (batch_ids) ORDER BY id FOR NO KEY UPDATE;
    PERFORM FROM gristmill.slice WHERE batch_id = ANY (batch_ids) ORDER BY batch_id, id FOR UPDATE;
    PERFORM FROM gristmill.held WHERE batch_id = ANY (batch_ids)
        ORDER BY lease_id, batch_id, attempt, first_position FOR UPDATE;
    PERFORM FROM gristmill.edge WHERE batch_id = ANY (batch_ids)
        ORDER BY prerequisite_id, first_position, batch_id, part, on_failure FOR UPDATE;
    PERFORM FROM gristmill.blocked WHERE batch_id = ANY (batch_ids) ORDER BY batch_id, part FOR UPDATE;

    -- What became claimable while this waited is not locked yet.
    WITH meant AS (
        SELECT m.batch_id, m.positions FROM unnest(batch_ids, meant) AS m (batch_id, positions)
    ), cut AS MATERIALIZED (
        SELECT s.batch_id, s.id, s.positions * m.positions AS taken, s.positions - m.positions AS rest
        FROM gristmill.slice s JOIN meant m ON m.batch_id = s.batch_id
        WHERE s.positions && m.positions AND NOT m.positions @> s.positions
        FOR UPDATE OF s SKIP LOCKED
    ), added AS (
        INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, positions,
            awaited)
        SELECT s.batch_id, s.run_at, s.expires_at, s.lane_id, s.attempt, s.rescues, gristmill.count(c.taken), s.job_bytes,
            s.rank, c.taken, s.awaited
        FROM cut c JOIN gristmill.slice s ON s.batch_id = c.batch_id AND s.id = c.id
    )
    UPDATE gristmill.slice s SET positions = c.rest, count = gristmill.count(c.rest)
    FROM cut c WHERE s.batch_id = c.batch_id AND s.id = c.id;

    -- A row of what is held stays with those among which the position of its key is.
    WITH meant AS (
        SELECT m.batch_id, m.positions FROM unnest(batch_ids, meant) AS m (batch_id, positions)
    ), cut AS MATERIALIZED (
        SELECT h.lease_id, h.batch_id, h.attempt, h.first_position,
            CASE WHEN m.positions @> h.first_position THEN h.positions * m.positions ELSE h.positions - m.positions END AS kept,
            CASE WHEN m.positions @> h.first_position THEN h.positions - m.positions ELSE h.positions * m.positions END AS moved
        FROM gristmill.held h JOIN meant m ON m.batch_id = h.batch_id
        WHERE h.positions && m.positions AND NOT m.positions @> h.positions
    ), added AS (
        INSERT INTO gristmill.held (lease_id, batch_id, attempt, first_position, worker_id, run_at, expires_at, rescues, count,
            lane_id, positions, awaited, rank, pauses)
        SELECT h.lease_id, h.batch_id, h.attempt, lower(c.moved), h.worker_id, h.run_at, h.expires_at, h.rescues,
            gristmill.count(c.moved), h.lane_id, c.moved, h.awaited, h.rank, h.pauses
        FROM cut c JOIN gristmill.held h ON (h.lease_id, h.batch_id, h.attempt, h.first_position)
            = (c.lease_id, c.batch_id, c.attempt, c.first_position)
    )
    UPDATE gristmill.held h SET positions = c.kept, count = gristmill.count(c.kept) FROM cut c
    WHERE (h.lease_id, h.batch_id, h.attempt, h.first_position) = (c.lease_id, c.batch_id, c.attempt, c.first_position);

    -- What waits for others and is split off waits for the same, as a part with a number of its own.
    WITH meant AS (
        SELECT m.batch_id, m.positions FROM unnest(batch_ids, meant) AS m (batch_id, positions)
    ), cut AS MATERIALIZED (
        SELECT w.batch_id, w.part, w.positions * m.positions AS taken, w.positions - m.positions AS rest,
            nextval('gristmill.blocked_part')::integer AS new_part
        FROM gristmill.blocked w JOIN meant m ON m.batch_id = w.batch_id
        WHERE w.positions && m.positions AND NOT m.positions @> w.positions
    ), waits AS (
        INSERT INTO gristmill.edge (prerequisite_id, first_position, batch_id, part, on_failure, positions)
        SELECT e.prerequisite_id, e.first_position, e.batch_id, c.new_part, e.on_failure, e.positions
        FROM cut c JOIN gristmill.edge e ON e.batch_id = c.batch_id AND e.part = c.part
    ), added AS (
        INSERT INTO gristmill.blocked (batch_id, part, attempt, rescues, count, expires_at, positions, rank, run_at, pauses,
            paused_until)
        SELECT w.batch_id, c.new_part, w.attempt, w.rescues, gristmill.count(c.taken), w.expires_at, c.taken, w.rank, w.run_at,
            w.pauses, w.paused_until
        FROM cut c JOIN gristmill.blocked w ON w.batch_id = c.batch_id AND w.part = c.part
    )
    UPDATE gristmill.blocked w SET positions = c.rest, count = gristmill.count(c.rest)
    FROM cut c WHERE w.batch_id = c.batch_id AND w.part = c.part;
END
$$;

-- Gives the open jobs among these positions of these batches (`{(,)}` means all) that are in one of these states (in any,
-- where there are none) another rank. Returns how many those are. Those that run keep it for when they come back.
CREATE FUNCTION gristmill.prioritise_jobs(
    batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint, new_rank integer
) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    changed bigint;
BEGIN
    PERFORM gristmill.cut_open(batch_ids, meant);
    WITH meant AS MATERIALIZED (
        SELECT m.batch_id, m.positions FROM unnest(batch_ids, meant) AS m (batch_id, positions)
    ), waiting AS (
        UPDATE gristmill.slice s SET rank = new_rank FROM meant m
        WHERE s.batch_id = m.batch_id AND m.positions @> s.positions AND (cardinality(states) = 0
            OR CASE WHEN s.run_at <= now_ms THEN 'waiting' ELSE 'scheduled' END = ANY (states))
        RETURNING s.count
    ), running AS (
        UPDATE gristmill.held h SET rank = new_rank FROM meant m
        WHERE h.batch_id = m.batch_id AND m.positions @> h.positions
            AND (cardinality(states) = 0 OR 'running' = ANY (states))
        RETURNING h.count
    ), blocked AS (
        UPDATE gristmill.blocked w SET rank = new_rank FROM meant m
        WHERE w.batch_id = m.batch_id AND m.positions @> w.positions
            AND (cardinality(states) = 0 OR CASE WHEN w.pauses IS NULL THEN 'blocked' ELSE 'paused' END = ANY (states))
        RETURNING w.count
    )
    SELECT coalesce(sum(count), 0) INTO changed
    FROM (SELECT count FROM waiting UNION ALL SELECT count FROM running UNION ALL SELECT count FROM blocked) c;
    RETURN changed;
END
$$;

-- As before, and with the priority that was given since; what is paused stays. Settles the edges that lead to jobs which have ended: of these batches, at positions up to these. What waits in vain
-- ends, with all that waits for it in turn. Returns how many jobs can be claimed now. What was ended must be written.
CREATE OR REPLACE FUNCTION gristmill.settle(batch_ids bigint[], last_positions integer[], now_ms bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended bigint[] := batch_ids;
    lasts integer[] := last_positions;
    waiting bigint[];
    waiting_parts integer[];
    vain bigint[];
    vain_parts integer[];
    vain_policies text[];
    causes bigint[];
    cause_positions text[];
    gone bigint[];
    freed bigint;
    claimable bigint := 0;
BEGIN
    LOOP
        -- Who ends the rest of what an edge leads to waits here, and then sees what is ended by now.
        PERFORM FROM gristmill.edge e JOIN unnest(ended, lasts) AS n (batch_id, last) ON e.prerequisite_id = n.batch_id
            WHERE e.first_position <= n.last
            ORDER BY e.prerequisite_id, e.first_position, e.batch_id, e.part, e.on_failure FOR UPDATE OF e;
        IF NOT FOUND THEN
            RETURN claimable;
        END IF;

        WITH RECURSIVE met AS MATERIALIZED (
            SELECT e.prerequisite_id, e.first_position, e.batch_id, e.part, e.on_failure, e.positions,
                e.on_failure <> 'ignore' AND EXISTS (
                    SELECT FROM gristmill.report r WHERE r.batch_id = e.prerequisite_id AND r.state <> 'completed'
                        AND (e.positions IS NULL OR r.positions && e.positions)) AS in_vain
            FROM gristmill.edge e JOIN unnest(ended, lasts) AS n (batch_id, last) ON e.prerequisite_id = n.batch_id
            WHERE e.first_position <= n.last
                AND NOT EXISTS (SELECT FROM gristmill.slice s WHERE s.batch_id = e.prerequisite_id
                    AND (e.positions IS NULL OR s.positions && e.positions))
                AND NOT EXISTS (SELECT FROM gristmill.held h WHERE h.batch_id = e.prerequisite_id
                    AND (e.positions IS NULL OR h.positions && e.positions))
                AND NOT EXISTS (SELECT FROM gristmill.blocked w WHERE w.batch_id = e.prerequisite_id
                    AND (e.positions IS NULL OR w.positions && e.positions))
        ), gone AS (
            DELETE FROM gristmill.edge e USING met m
            WHERE (e.prerequisite_id, e.first_position, e.batch_id, e.part, e.on_failure)
                = (m.prerequisite_id, m.first_position, m.batch_id, m.part, m.on_failure)
        ), in_vain (batch_id, part, on_failure, cause, positions) AS (
            SELECT m.batch_id, m.part, m.on_failure, m.prerequisite_id, m.positions FROM met m WHERE m.in_vain
            UNION
            -- What waits for something that waits in vain waits in vain, too.
            SELECT e.batch_id, e.part, e.on_failure, e.prerequisite_id, e.positions
            FROM in_vain v JOIN gristmill.edge e ON e.prerequisite_id = v.batch_id
            WHERE e.on_failure <> 'ignore'
                AND EXISTS (SELECT FROM gristmill.blocked w WHERE w.batch_id = v.batch_id AND w.part = v.part
                    AND (e.positions IS NULL OR w.positions && e.positions))
                AND NOT EXISTS (SELECT FROM gristmill.slice s WHERE s.batch_id = v.batch_id
                    AND (e.positions IS NULL OR s.positions && e.positions))
                AND NOT EXISTS (SELECT FROM gristmill.held h WHERE h.batch_id = v.batch_id
                    AND (e.positions IS NULL OR h.positions && e.positions))
                AND NOT EXISTS (SELECT FROM gristmill.blocked w WHERE w.batch_id = v.batch_id AND w.part <> v.part
                    AND (e.positions IS NULL OR w.positions && e.positions))
        ), chosen AS (
            SELECT DISTINCT ON (v.batch_id, v.part) v.* FROM in_vain v
            ORDER BY v.batch_id, v.part, v.on_failure DESC, v.cause
        )
        SELECT w.ids, w.parts, c.ids, c.parts, c.policies, c.causes, c.positions
        INTO waiting, waiting_parts, vain, vain_parts, vain_policies, causes, cause_positions
        FROM (SELECT array_agg(m.batch_id) AS ids, array_agg(m.part) AS parts FROM met m) w,
            (SELECT array_agg(c.batch_id) AS ids, array_agg(c.part) AS parts, array_agg(c.on_failure) AS policies,
                array_agg(c.cause) AS causes, array_agg(c.positions::text) AS positions FROM chosen c) c;

        IF waiting IS NULL THEN
            RETURN claimable;
        END IF;

        -- Of two transactions that settle the last two edges, the second one sees that the first is gone.
        PERFORM FROM gristmill.blocked b JOIN (
                SELECT k.batch_id, k.part FROM unnest(waiting, waiting_parts) AS k (batch_id, part)
                UNION SELECT k.batch_id, k.part FROM unnest(vain, vain_parts) AS k (batch_id, part)
            ) k USING (batch_id, part)
            ORDER BY b.batch_id, b.part FOR UPDATE OF b;

        gone := NULL;
        IF vain IS NOT NULL THEN
            -- Dead on the attempt that it waited for, and not on attempt 0: unlike a job that was rejected, it can be
            -- retried.
            WITH ended AS (
                DELETE FROM gristmill.blocked b USING unnest(vain, vain_parts, vain_policies) AS k (batch_id, part, on_failure)
                WHERE b.batch_id = k.batch_id AND b.part = k.part
                RETURNING b.batch_id, b.attempt, b.count, b.positions, k.on_failure
            ), reported AS (
                INSERT INTO gristmill.report (batch_id, first_position, attempt, finished_at, count, state, positions)
                SELECT batch_id, lower(positions), CASE on_failure WHEN 'fail' THEN attempt ELSE attempt - 1 END, now_ms, count,
                    CASE on_failure WHEN 'fail' THEN 'dead' ELSE 'cancelled' END, positions FROM ended
            )
            SELECT array_agg(batch_id) INTO gone FROM ended;
            INSERT INTO gristmill.failure (batch_id, lease_id, duration_us, failed_at, position, attempt, error)
            SELECT k.batch_id, 0, 0, now_ms, u.position, 0, json_build_object('type', 'prerequisite', 'message',
                format('job %s:%s, which it waited for, ended as %s', k.cause, c.position, c.state), 'permanent', true)
            FROM unnest(vain, vain_policies, causes, cause_positions) AS k (batch_id, on_failure, cause, positions)
            CROSS JOIN LATERAL (
                SELECT r.state, lower(r.positions * coalesce(k.positions::int4multirange, '{(,)}')) AS position
                FROM gristmill.report r WHERE r.batch_id = k.cause AND r.state <> 'completed'
                    AND r.positions && coalesce(k.positions::int4multirange, '{(,)}') ORDER BY 2 LIMIT 1
            ) c
            JOIN gristmill.report r ON r.batch_id = k.batch_id AND r.state = 'dead'
            CROSS JOIN LATERAL gristmill.unpacked(r.positions) AS u (position)
            WHERE k.on_failure = 'fail' AND k.batch_id = ANY (gone)
            ON CONFLICT DO NOTHING;
        END IF;

        WITH free AS (
            DELETE FROM gristmill.blocked b USING (
                SELECT DISTINCT k.batch_id, k.part FROM unnest(waiting, waiting_parts) AS k (batch_id, part)) k
            WHERE b.batch_id = k.batch_id AND b.part = k.part
                AND b.pauses IS NULL AND NOT EXISTS (SELECT FROM gristmill.edge e WHERE e.batch_id = b.batch_id AND e.part = b.part)
            RETURNING b.*
        ), claimable AS (
            INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, positions,
                awaited)
            SELECT b.id, coalesce(f.run_at, b.run_at), f.expires_at, b.lane_id, f.attempt, f.rescues, f.count,
                greatest(octet_length(b.payloads) / b.count, 1), coalesce(f.rank, -b.priority::integer), f.positions,
                EXISTS (SELECT FROM gristmill.edge e WHERE e.prerequisite_id = b.id)
            FROM free f JOIN gristmill.batch b ON b.id = f.batch_id
            RETURNING count
        )
        SELECT coalesce(sum(count), 0) INTO freed FROM claimable;
        claimable := claimable + freed;

        IF gone IS NULL THEN
            RETURN claimable;
        END IF;
        ended := gone;
        lasts := array_fill(2147483647, ARRAY[cardinality(gone)]);
    END LOOP;
END
$$;

-- When the last of some pauses is over by itself; NULL where one is not.
CREATE FUNCTION gristmill.paused_until(pauses jsonb) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN bool_and(value <> 'null'::jsonb) THEN max((value #>> '{}')::bigint) END FROM jsonb_each(pauses);
END;

-- What is left of some pauses without the one of that reason and those that are over; NULL where that is nothing, as
-- without a reason, which means all.
CREATE FUNCTION gristmill.pauses_left(pauses jsonb, reason text, now_ms bigint) RETURNS jsonb
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT jsonb_object_agg(key, value) FROM jsonb_each(pauses)
    WHERE key <> reason AND (value = 'null'::jsonb OR (value #>> '{}')::bigint > now_ms);
END;

-- Keeps the open jobs among these positions of these batches that are in one of these states (in any, where there are
-- none) from being claimed, for that reason and until that moment (NULL until they are resumed). Returns how many.
CREATE FUNCTION gristmill.pause_jobs(
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
            paused_until)
        SELECT w.batch_id, nextval('gristmill.blocked_part'), w.attempt, w.rescues, w.count, w.expires_at, w.positions, w.rank,
            w.run_at, pause, until
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

-- Lets be claimed what nothing keeps back any more: these parts of these batches, but for those that wait for others.
-- Returns how many jobs that are.
CREATE FUNCTION gristmill.free_parts(batch_ids bigint[], parts integer[]) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    freed bigint;
BEGIN
    WITH free AS (
        DELETE FROM gristmill.blocked w USING unnest(batch_ids, parts) AS k (batch_id, part)
        WHERE w.batch_id = k.batch_id AND w.part = k.part AND w.pauses IS NULL
            AND NOT EXISTS (SELECT FROM gristmill.edge e WHERE e.batch_id = w.batch_id AND e.part = w.part)
        RETURNING w.*
    ), claimable AS (
        INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, positions,
            awaited)
        SELECT b.id, coalesce(f.run_at, b.run_at), f.expires_at, b.lane_id, f.attempt, f.rescues, f.count,
            greatest(octet_length(b.payloads) / b.count, 1), coalesce(f.rank, -b.priority::integer), f.positions,
            EXISTS (SELECT FROM gristmill.edge e WHERE e.prerequisite_id = b.id)
        FROM free f JOIN gristmill.batch b ON b.id = f.batch_id
        RETURNING count
    )
    SELECT coalesce(sum(count), 0) INTO freed FROM claimable;
    RETURN freed;
END
$$;

-- Ends the pause of that reason (all pauses, where it is NULL) of the jobs among these positions of these batches that
-- are in one of these states (in any, where there are none). Returns how many those are.
CREATE FUNCTION gristmill.resume_jobs(
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

-- Ends some pauses that are over. Returns how many jobs can be claimed for that.
CREATE FUNCTION gristmill.end_pauses(now_ms bigint, rows_max bigint) RETURNS bigint
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

-- Cancels the open jobs among these positions of these batches (`{(,)}` means all) that are in one of these states
-- (in any, where there are none). Returns how many. What waits for them is settled by the caller.
CREATE OR REPLACE FUNCTION gristmill.cancel_jobs(batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    cancelled bigint;
BEGIN
    PERFORM gristmill.lock_batches(batch_ids);
    WITH meant AS MATERIALIZED (
        SELECT m.batch_id, m.positions FROM unnest(batch_ids, meant) AS m (batch_id, positions)
    ), waiting AS MATERIALIZED (
        SELECT s.batch_id, s.id, s.attempt, s.positions * m.positions AS taken, s.positions - m.positions AS rest
        FROM gristmill.slice s JOIN meant m ON m.batch_id = s.batch_id
        WHERE s.positions && m.positions AND (cardinality(states) = 0
            OR CASE WHEN s.run_at <= now_ms THEN 'waiting' ELSE 'scheduled' END = ANY (states))
    ), running AS MATERIALIZED (
        SELECT h.lease_id, h.batch_id, h.attempt, h.first_position, h.worker_id, h.positions * m.positions AS taken,
            h.positions - m.positions AS rest
        FROM gristmill.held h JOIN meant m ON m.batch_id = h.batch_id
        WHERE h.positions && m.positions AND (cardinality(states) = 0 OR 'running' = ANY (states))
    ), blocked AS MATERIALIZED (
        SELECT w.batch_id, w.part, w.attempt, w.positions * m.positions AS taken, w.positions - m.positions AS rest
        FROM gristmill.blocked w JOIN meant m ON m.batch_id = w.batch_id
        WHERE w.positions && m.positions AND (cardinality(states) = 0
            OR CASE WHEN w.pauses IS NULL THEN 'blocked' ELSE 'paused' END = ANY (states))
    ), shortened_slice AS (
        UPDATE gristmill.slice s SET positions = w.rest, count = gristmill.count(w.rest)
        FROM waiting w WHERE s.batch_id = w.batch_id AND s.id = w.id AND NOT isempty(w.rest)
    ), deleted_slice AS (
        DELETE FROM gristmill.slice s USING waiting w WHERE s.batch_id = w.batch_id AND s.id = w.id AND isempty(w.rest)
    ), shortened_blocked AS (
        UPDATE gristmill.blocked w SET positions = b.rest, count = gristmill.count(b.rest)
        FROM blocked b WHERE w.batch_id = b.batch_id AND w.part = b.part AND NOT isempty(b.rest)
    ), deleted_blocked AS (
        DELETE FROM gristmill.blocked w USING blocked b WHERE w.batch_id = b.batch_id AND w.part = b.part AND isempty(b.rest)
    ), shortened_held AS (
        UPDATE gristmill.held h SET positions = r.rest, count = gristmill.count(r.rest) FROM running r
        WHERE (h.lease_id, h.batch_id, h.attempt, h.first_position) = (r.lease_id, r.batch_id, r.attempt, r.first_position)
            AND NOT isempty(r.rest)
    ), deleted_held AS (
        DELETE FROM gristmill.held h USING running r
        WHERE (h.lease_id, h.batch_id, h.attempt, h.first_position) = (r.lease_id, r.batch_id, r.attempt, r.first_position)
            AND isempty(r.rest)
    ), told AS (
        INSERT INTO gristmill.revoked (worker_id, lease_id, batch_id, positions)
        SELECT worker_id, lease_id, batch_id, taken FROM running
    ), ended AS (
        -- The attempt that would have come next is not made any more.
        SELECT t.batch_id, t.attempt, range_agg(range) AS positions
        FROM (SELECT batch_id, attempt - 1 AS attempt, taken FROM waiting
              UNION ALL SELECT batch_id, attempt - 1, taken FROM blocked
              UNION ALL SELECT batch_id, attempt, taken FROM running) t
        CROSS JOIN LATERAL unnest(t.taken) range
        GROUP BY t.batch_id, t.attempt
    ), reported AS (
        INSERT INTO gristmill.report (batch_id, first_position, attempt, finished_at, count, state, positions)
        SELECT batch_id, lower(positions), attempt, now_ms, gristmill.count(positions), 'cancelled', positions FROM ended
        RETURNING count
    )
    SELECT coalesce(sum(count), 0) INTO cancelled FROM reported;
    RETURN cancelled;
END
$$;

-- One row a job, unpacked from the batches: for people. A condition on batch_id, or a join by it, is fast: it leads
-- to the batch's rows of each table, and those alone are unpacked. Others unpack the whole store. (The LATERAL is what
-- lets PostgreSQL hand a join down; a union of parts under GROUP BY takes constants only.)
CREATE OR REPLACE VIEW gristmill.job AS
SELECT b.id || ':' || j.position AS id, b.id AS batch_id, j.position, l.kind, l.queue, r.name AS run, j.state, j.attempt,
    coalesce(-j.rank, b.priority)::smallint AS priority, j.payload, j.value,
    CASE WHEN j.state <> 'completed' THEN (
        SELECT f.error::json ->> 'message' FROM gristmill.failure f
        WHERE f.batch_id = b.id AND f.position = j.position ORDER BY f.lease_id DESC LIMIT 1
    ) END AS error,
    gristmill.moment(b.submitted_at) AS submitted_at, gristmill.moment(j.run_at) AS run_at,
    gristmill.moment(j.finished_at) AS finished_at, j.worker,
    nullif(l.job_group, '') AS job_group
FROM gristmill.batch b
JOIN gristmill.lane l ON l.id = b.lane_id
LEFT JOIN gristmill.run r ON r.id = b.run_id
CROSS JOIN LATERAL (
    SELECT (p.number - 1)::integer AS position, p.payload, e.value, e.state, e.attempt, e.run_at, e.finished_at, e.worker, e.rank
    FROM gristmill.unpacked(b.payloads) WITH ORDINALITY AS p (payload, number)
    LEFT JOIN (
        SELECT u.position, u.value, t.state, t.attempt, NULL::bigint AS run_at, t.finished_at, t.worker, NULL::integer AS rank
        FROM gristmill.report t
        CROSS JOIN LATERAL ROWS FROM (gristmill.unpacked(t.positions), gristmill.unpacked(t."values")) AS u (position, value)
        WHERE t.batch_id = b.id
        UNION ALL
        SELECT u.position, NULL, CASE WHEN s.run_at <= extract(epoch FROM now()) * 1000 THEN 'waiting' ELSE 'scheduled' END,
            s.attempt, s.run_at, NULL, NULL, s.rank
        FROM gristmill.slice s CROSS JOIN LATERAL gristmill.unpacked(s.positions) AS u (position)
        WHERE s.batch_id = b.id
        UNION ALL
        SELECT u.position, NULL, 'running', h.attempt, NULL, NULL, w.name, h.rank
        FROM gristmill.held h LEFT JOIN gristmill.worker w ON w.id = h.worker_id
        CROSS JOIN LATERAL gristmill.unpacked(h.positions) AS u (position)
        WHERE h.batch_id = b.id
        UNION ALL
        SELECT u.position, NULL, CASE WHEN w.pauses IS NULL THEN 'blocked' ELSE 'paused' END, w.attempt, NULL, NULL, NULL, w.rank
        FROM gristmill.blocked w CROSS JOIN LATERAL gristmill.unpacked(w.positions) AS u (position)
        WHERE w.batch_id = b.id
    ) e ON e.position = p.number - 1
) j;

-- Makes cancelled ones of the dead jobs among these positions of these batches, where that state is meant. Returns how
-- many.
CREATE FUNCTION gristmill.discard_jobs(batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    discarded bigint;
BEGIN
    PERFORM FROM gristmill.batch WHERE id = ANY (batch_ids) ORDER BY id FOR NO KEY UPDATE;
    -- A report stays with those that begin with its position.
    WITH dead AS MATERIALIZED (
        SELECT r.batch_id, r.first_position, r.positions * m.positions AS taken, r.positions - m.positions AS rest
        FROM gristmill.report r JOIN unnest(batch_ids, meant) AS m (batch_id, positions) ON m.batch_id = r.batch_id
        WHERE r.positions && m.positions AND r.state = 'dead' AND r.state <> 'completed'
            AND (cardinality(states) = 0 OR 'dead' = ANY (states))
    ), added AS (
        INSERT INTO gristmill.report (batch_id, first_position, attempt, finished_at, count, state, worker, positions)
        SELECT r.batch_id, lower(o.positions), r.attempt, r.finished_at, gristmill.count(o.positions), o.state, r.worker,
            o.positions
        FROM dead d JOIN gristmill.report r ON r.batch_id = d.batch_id AND r.first_position = d.first_position
        CROSS JOIN LATERAL (
            SELECT CASE WHEN d.taken @> d.first_position THEN d.rest ELSE d.taken END,
                CASE WHEN d.taken @> d.first_position THEN 'dead' ELSE 'cancelled' END) o (positions, state)
        WHERE NOT isempty(o.positions)
    ), changed AS (
        UPDATE gristmill.report r SET
            positions = CASE WHEN d.taken @> d.first_position THEN d.taken ELSE d.rest END,
            count = gristmill.count(CASE WHEN d.taken @> d.first_position THEN d.taken ELSE d.rest END),
            state = CASE WHEN d.taken @> d.first_position THEN 'cancelled' ELSE 'dead' END
        FROM dead d WHERE r.batch_id = d.batch_id AND r.first_position = d.first_position
    )
    SELECT coalesce(sum(gristmill.count(d.taken)), 0) INTO discarded FROM dead d;
    RETURN discarded;
END
$$;

-- As before; but for those that were dead from the start and discarded since, which can never run.
CREATE OR REPLACE FUNCTION gristmill.retry_jobs(batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    retried bigint;
BEGIN
    PERFORM FROM gristmill.batch WHERE id = ANY (batch_ids) ORDER BY id FOR NO KEY UPDATE;
    WITH meant AS MATERIALIZED (
        SELECT m.batch_id, m.positions FROM unnest(batch_ids, meant) AS m (batch_id, positions)
    ), runnable AS (
        SELECT r.batch_id, r.first_position, r.positions, m.positions - coalesce(x.rejected, '{}') AS meant
        FROM gristmill.report r JOIN meant m ON m.batch_id = r.batch_id
        LEFT JOIN LATERAL (
            SELECT range_agg(int4range(f.position, f.position + 1)) AS rejected FROM gristmill.failure f
            WHERE f.batch_id = r.batch_id AND f.lease_id = 0 AND f.attempt = 0 AND f.error::json ->> 'type' <> 'prerequisite'
        ) x ON r.state = 'cancelled' AND r.attempt = 0
        WHERE r.state <> 'completed' AND (r.state <> 'dead' OR r.attempt > 0)
            AND (cardinality(states) = 0 OR r.state = ANY (states))
    ), ended AS MATERIALIZED (
        SELECT r.batch_id, r.first_position, r.positions * r.meant AS taken, r.positions - r.meant AS rest
        FROM runnable r WHERE r.positions && r.meant
    ), shortened AS (
        UPDATE gristmill.report r SET first_position = lower(e.rest), positions = e.rest, count = gristmill.count(e.rest)
        FROM ended e WHERE r.batch_id = e.batch_id AND r.first_position = e.first_position AND NOT isempty(e.rest)
    ), deleted AS (
        DELETE FROM gristmill.report r USING ended e
        WHERE r.batch_id = e.batch_id AND r.first_position = e.first_position AND isempty(e.rest)
    ), again AS (
        SELECT e.batch_id, range_agg(range) AS positions FROM ended e CROSS JOIN LATERAL unnest(e.taken) range GROUP BY e.batch_id
    ), claimable AS (
        -- Who asks for it now does not want it to expire at once.
        INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, positions,
            awaited)
        SELECT b.id, now_ms, NULL, b.lane_id, 1, 0, gristmill.count(a.positions), greatest(octet_length(b.payloads) / b.count, 1),
            -b.priority::integer, a.positions, EXISTS (SELECT FROM gristmill.edge e WHERE e.prerequisite_id = b.id)
        FROM again a JOIN gristmill.batch b ON b.id = a.batch_id
        RETURNING count
    )
    SELECT coalesce(sum(count), 0) INTO retried FROM claimable;
    RETURN retried;
END
$$;

-- Gives jobs that are not over another priority: higher is claimed first. Returns how many there were.
CREATE FUNCTION gristmill.prioritise(ids text[], priority integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
BEGIN
    IF priority IS NULL OR priority NOT BETWEEN -32768 AND 32767 THEN
        RAISE EXCEPTION 'the priority is %', coalesce(priority::text, 'NULL') USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give -32768 to 32767: higher is claimed first, and 0 is the default.';
    END IF;
    RETURN (SELECT gristmill.prioritise_jobs(coalesce(array_agg(batch_id), '{}'), coalesce(array_agg(positions), '{}'), '{}',
        now_ms, -prioritise.priority) FROM gristmill.jobs_by_id(prioritise.ids));
END
$$;

-- Gives one job another priority. Returns whether it was not over yet.
CREATE FUNCTION gristmill.prioritise(id text, priority integer) RETURNS boolean
LANGUAGE sql
RETURN gristmill.prioritise(ARRAY[id], priority) = 1;

-- Keeps jobs that are not over from being claimed, for that reason, until that moment or until they are resumed. Returns how
-- many there were.
CREATE FUNCTION gristmill.pause(ids text[], reason text, until timestamptz DEFAULT NULL) RETURNS bigint
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

-- Ends the pause of that reason of jobs (all their own pauses, where it is NULL). Returns how many there were.
CREATE FUNCTION gristmill.resume(ids text[], reason text DEFAULT NULL) RETURNS bigint
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

-- Ends dead jobs as cancelled. Returns how many there were.
CREATE FUNCTION gristmill.discard(ids text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
BEGIN
    RETURN (SELECT gristmill.discard_jobs(coalesce(array_agg(batch_id), '{}'), coalesce(array_agg(positions), '{}'), '{}', now_ms)
            FROM gristmill.jobs_by_id(discard.ids));
END
$$;

-- Ends one dead job as cancelled. Returns whether it was dead.
CREATE FUNCTION gristmill.discard(id text) RETURNS boolean
LANGUAGE sql
RETURN gristmill.discard(ARRAY[id]) = 1;

REVOKE EXECUTE ON FUNCTION gristmill.cut_open, gristmill.prioritise_jobs, gristmill.discard_jobs, gristmill.pause_jobs,
    gristmill.resume_jobs, gristmill.free_parts, gristmill.end_pauses,
    gristmill.pause(text[], text, timestamptz), gristmill.resume(text[], text),
    gristmill.prioritise(text[], integer), gristmill.prioritise(text, integer),
    gristmill.discard(text[]), gristmill.discard(text) FROM PUBLIC;
