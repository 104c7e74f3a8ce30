-- Jobs that wait for others. The order of locks goes on: … slice, held, edge, blocked, and then the rest.

-- What waits, out of the way of claims.
CREATE TABLE gristmill.blocked (
    batch_id   bigint NOT NULL,
    part       integer NOT NULL, -- 0 for what waits to begin
    attempt    integer NOT NULL, -- the attempt that comes next
    rescues    integer NOT NULL,
    count      integer NOT NULL,
    expires_at bigint,
    positions  int4multirange NOT NULL,
    PRIMARY KEY (batch_id, part)
);
CREATE INDEX blocked_expiry ON gristmill.blocked (expires_at) WHERE expires_at IS NOT NULL;

-- What it waits for: jobs of one batch. Deleted once those have ended, also where nothing waits for them any more. An
-- edge leads from a later batch to an earlier one.
CREATE TABLE gristmill.edge (
    prerequisite_id bigint NOT NULL,
    first_position  integer NOT NULL, -- the lowest of the positions
    batch_id        bigint NOT NULL,  -- what waits
    part            integer NOT NULL,
    on_failure      text NOT NULL,    -- cancel, fail or ignore
    positions       int4multirange,   -- of the prerequisite; NULL for all
    PRIMARY KEY (prerequisite_id, first_position, batch_id, part, on_failure)
);
CREATE INDEX edge_batch ON gristmill.edge (batch_id, part);

-- Whether others wait for jobs of the batch. It is here that who ends them finds it, without a look for edges.
ALTER TABLE gristmill.slice ADD COLUMN awaited boolean NOT NULL DEFAULT false;
ALTER TABLE gristmill.held ADD COLUMN awaited boolean NOT NULL DEFAULT false;

CREATE OR REPLACE FUNCTION gristmill.lock_batches(batch_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM gristmill.batch WHERE id = ANY (batch_ids) ORDER BY id FOR NO KEY UPDATE;
    PERFORM FROM gristmill.slice WHERE batch_id = ANY (batch_ids) ORDER BY batch_id, id FOR UPDATE;
    PERFORM FROM gristmill.held WHERE batch_id = ANY (batch_ids)
        ORDER BY lease_id, batch_id, attempt, first_position FOR UPDATE;
    PERFORM FROM gristmill.blocked WHERE batch_id = ANY (batch_ids) ORDER BY batch_id, part FOR UPDATE;
END
$$;

-- Says of what is open of batches that others wait for it. The batches are locked. What waited may have become claimable
-- meanwhile, and what was claimable held, so the tables come in that order.
CREATE FUNCTION gristmill.await(batch_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE gristmill.slice SET awaited = true WHERE batch_id = ANY (batch_ids) AND NOT awaited;
    UPDATE gristmill.held SET awaited = true WHERE batch_id = ANY (batch_ids) AND NOT awaited;
END
$$;

-- Settles the edges that lead to jobs which have ended: of these batches, at positions up to these. What waits in vain
-- ends, with all that waits for it in turn. Returns how many jobs can be claimed now. What was ended must be written.
CREATE FUNCTION gristmill.settle(batch_ids bigint[], last_positions integer[], now_ms bigint) RETURNS bigint
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
                AND NOT EXISTS (SELECT FROM gristmill.edge e WHERE e.batch_id = b.batch_id AND e.part = b.part)
            RETURNING b.*
        ), claimable AS (
            INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, positions,
                awaited)
            SELECT b.id, b.run_at, f.expires_at, b.lane_id, f.attempt, f.rescues, f.count,
                greatest(octet_length(b.payloads) / b.count, 1), -b.priority::integer, f.positions,
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

-- One row a job, unpacked from the batches: for people. A condition on batch_id, or a join by it, is fast: it leads
-- to the batch's rows of each table, and those alone are unpacked. Others unpack the whole store. (The LATERAL is what
-- lets PostgreSQL hand a join down; a union of parts under GROUP BY takes constants only.)
CREATE OR REPLACE VIEW gristmill.job AS
SELECT b.id || ':' || j.position AS id, b.id AS batch_id, j.position, l.kind, l.queue, r.name AS run, j.state, j.attempt,
    b.priority, j.payload, j.value,
    CASE WHEN j.state <> 'completed' THEN (
        SELECT f.error::json ->> 'message' FROM gristmill.failure f
        WHERE f.batch_id = b.id AND f.position = j.position ORDER BY f.lease_id DESC LIMIT 1
    ) END AS error,
    gristmill.moment(b.submitted_at) AS submitted_at, gristmill.moment(j.run_at) AS run_at,
    gristmill.moment(j.finished_at) AS finished_at, j.worker
FROM gristmill.batch b
JOIN gristmill.lane l ON l.id = b.lane_id
LEFT JOIN gristmill.run r ON r.id = b.run_id
CROSS JOIN LATERAL (
    SELECT (p.number - 1)::integer AS position, p.payload, e.value, e.state, e.attempt, e.run_at, e.finished_at, e.worker
    FROM gristmill.unpacked(b.payloads) WITH ORDINALITY AS p (payload, number)
    LEFT JOIN (
        SELECT u.position, u.value, t.state, t.attempt, NULL::bigint AS run_at, t.finished_at, t.worker
        FROM gristmill.report t
        CROSS JOIN LATERAL ROWS FROM (gristmill.unpacked(t.positions), gristmill.unpacked(t."values")) AS u (position, value)
        WHERE t.batch_id = b.id
        UNION ALL
        SELECT u.position, NULL, CASE WHEN s.run_at <= extract(epoch FROM now()) * 1000 THEN 'waiting' ELSE 'scheduled' END,
            s.attempt, s.run_at, NULL, NULL
        FROM gristmill.slice s CROSS JOIN LATERAL gristmill.unpacked(s.positions) AS u (position)
        WHERE s.batch_id = b.id
        UNION ALL
        SELECT u.position, NULL, 'running', h.attempt, NULL, NULL, w.name
        FROM gristmill.held h LEFT JOIN gristmill.worker w ON w.id = h.worker_id
        CROSS JOIN LATERAL gristmill.unpacked(h.positions) AS u (position)
        WHERE h.batch_id = b.id
        UNION ALL
        SELECT u.position, NULL, 'blocked', w.attempt, NULL, NULL, NULL
        FROM gristmill.blocked w CROSS JOIN LATERAL gristmill.unpacked(w.positions) AS u (position)
        WHERE w.batch_id = b.id
    ) e ON e.position = p.number - 1
) j;

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
        WHERE w.positions && m.positions AND (cardinality(states) = 0 OR 'blocked' = ANY (states))
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

-- Makes those of these positions of these batches claimable again that are dead, cancelled or expired, and in one of
-- these states (in any, where there are none). Returns how many. A job that was rejected (dead on attempt 0) cannot
-- run, however often it is tried.
CREATE OR REPLACE FUNCTION gristmill.retry_jobs(batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    retried bigint;
BEGIN
    PERFORM FROM gristmill.batch WHERE id = ANY (batch_ids) ORDER BY id FOR NO KEY UPDATE;
    WITH meant AS MATERIALIZED (
        SELECT m.batch_id, m.positions FROM unnest(batch_ids, meant) AS m (batch_id, positions)
    ), ended AS MATERIALIZED (
        SELECT r.batch_id, r.first_position, r.positions * m.positions AS taken, r.positions - m.positions AS rest
        FROM gristmill.report r JOIN meant m ON m.batch_id = r.batch_id
        WHERE r.positions && m.positions AND r.state <> 'completed' AND (r.state <> 'dead' OR r.attempt > 0)
            AND (cardinality(states) = 0 OR r.state = ANY (states))
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

-- Cancels jobs that are not over. Returns how many there were; what waits for them and is cancelled with them is not
-- counted. A worker that runs one of them is told by its next heartbeat, and its report of it is refused.
CREATE OR REPLACE FUNCTION gristmill.cancel(ids text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    batch_ids bigint[];
    meant int4multirange[];
    cancelled bigint;
BEGIN
    SELECT coalesce(array_agg(batch_id), '{}'), coalesce(array_agg(positions), '{}') INTO batch_ids, meant
        FROM gristmill.jobs_by_id(cancel.ids);
    cancelled := gristmill.cancel_with_keys(batch_ids, meant, '{}', now_ms);
    IF gristmill.settle(batch_ids, array_fill(2147483647, ARRAY[cardinality(batch_ids)]), now_ms) > 0 THEN
        PERFORM gristmill.wake();
    END IF;
    RETURN cancelled;
END
$$;

-- Gives what waits of these positions of these batches a higher priority (a lower rank), if it is one.
CREATE OR REPLACE FUNCTION gristmill.raise_jobs(batch_ids bigint[], meant int4multirange[], new_rank integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM gristmill.lock_batches(batch_ids);
    WITH raised AS MATERIALIZED (
        SELECT s.batch_id, s.id, s.positions * m.positions AS taken, s.positions - m.positions AS rest
        FROM gristmill.slice s JOIN unnest(batch_ids, meant) AS m (batch_id, positions) ON m.batch_id = s.batch_id
        WHERE s.positions && m.positions AND s.rank > new_rank
    ), added AS (
        INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, positions,
            awaited)
        SELECT s.batch_id, s.run_at, s.expires_at, s.lane_id, s.attempt, s.rescues, gristmill.count(r.taken), s.job_bytes,
            new_rank, r.taken, s.awaited
        FROM raised r JOIN gristmill.slice s ON s.batch_id = r.batch_id AND s.id = r.id
    ), shortened AS (
        UPDATE gristmill.slice s SET positions = r.rest, count = gristmill.count(r.rest)
        FROM raised r WHERE s.batch_id = r.batch_id AND s.id = r.id AND NOT isempty(r.rest)
    )
    DELETE FROM gristmill.slice s USING raised r WHERE s.batch_id = r.batch_id AND s.id = r.id AND isempty(r.rest);
END
$$;

-- The rank is the priority, negated, also of the lowest. Stores one batch of items that are checked already. Returns its id.
CREATE OR REPLACE FUNCTION gristmill.insert_batch(
    lane_id integer, items text[], now_ms bigint, run_at bigint, expires_at bigint, priority integer, options text
) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    batch_id CONSTANT bigint := nextval('gristmill.batch_id');
    count CONSTANT integer := cardinality(items);
    payloads CONSTANT text := '[' || array_to_string(items, E'\n,') || ']';
BEGIN
    INSERT INTO gristmill.batch (id, submitted_at, run_at, lane_id, count, priority, options, payloads)
    VALUES (batch_id, now_ms, coalesce(insert_batch.run_at, now_ms), insert_batch.lane_id, count, insert_batch.priority,
        insert_batch.options, payloads);
    INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, positions)
    VALUES (batch_id, coalesce(insert_batch.run_at, now_ms), insert_batch.expires_at, insert_batch.lane_id, 1, 0, count,
        greatest(octet_length(payloads) / count, 1), -insert_batch.priority, int4multirange(int4range(0, count)));
    RETURN batch_id;
END
$$;

REVOKE EXECUTE ON FUNCTION gristmill.await(bigint[]), gristmill.settle(bigint[], integer[], bigint) FROM PUBLIC;
