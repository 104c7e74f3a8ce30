-- Changing jobs: cancel, retry, discard, prioritise, postpone. Each change has a function on positions of batches, which the store
-- calls and which anybody else is denied, and one on ids of jobs for SQL clients. The PostgreSQL store has no other code for these
-- changes; the suite of `store-conformance` compares them with the SQLite store's.
--
-- In all of them, `meant` has the positions of each batch (`{(,)}` means all), and `states` the states of the jobs that change (any
-- state, where it is empty). Each returns how many jobs it changed, unless it says otherwise.

-- Locks the open jobs of batches, so that they stay as they are until the end of the transaction: once a batch is locked nothing of
-- it comes back, so its slices can only have become leases, and leases reports. A transaction that calls this more than once locks
-- all of the batches first: a transaction that gives jobs back holds a batch while it waits for a lease.
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

-- Locks the open jobs of batches and the edges they wait for, and cuts their rows so that each row is meant as a whole or not at all.
-- Rows that others are claiming at this moment stay as they are.
CREATE OR REPLACE FUNCTION gristmill.cut_open(batch_ids bigint[], meant int4multirange[]) RETURNS void
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
            awaited, family)
        SELECT s.batch_id, s.run_at, s.expires_at, s.lane_id, s.attempt, s.rescues, gristmill.count(c.taken), s.job_bytes,
            s.rank, c.taken, s.awaited, s.family
        FROM cut c JOIN gristmill.slice s ON s.batch_id = c.batch_id AND s.id = c.id
    )
    UPDATE gristmill.slice s SET positions = c.rest, count = gristmill.count(c.rest)
    FROM cut c WHERE s.batch_id = c.batch_id AND s.id = c.id;

    -- A row of `held` keeps the part that has the position of its key.
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
            lane_id, positions, awaited, rank, pauses, claimed_at, family)
        SELECT h.lease_id, h.batch_id, h.attempt, lower(c.moved), h.worker_id, h.run_at, h.expires_at, h.rescues,
            gristmill.count(c.moved), h.lane_id, c.moved, h.awaited, h.rank, h.pauses, h.claimed_at, h.family
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
            paused_until, family)
        SELECT w.batch_id, c.new_part, w.attempt, w.rescues, gristmill.count(c.taken), w.expires_at, c.taken, w.rank, w.run_at,
            w.pauses, w.paused_until, w.family
        FROM cut c JOIN gristmill.blocked w ON w.batch_id = c.batch_id AND w.part = c.part
    )
    UPDATE gristmill.blocked w SET positions = c.rest, count = gristmill.count(c.rest)
    FROM cut c WHERE w.batch_id = c.batch_id AND w.part = c.part;
END
$$;

-- Cancels open jobs. Returns which those were; the caller settles the edges that lead to them.
CREATE OR REPLACE FUNCTION gristmill.cancel_open(
    batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint,
    OUT cancelled bigint, OUT ended_ids bigint[], OUT ended_positions int4multirange[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
        -- The attempt that would have come next is never made.
        SELECT t.batch_id, t.attempt, range_agg(range) AS positions
        FROM (SELECT batch_id, attempt - 1 AS attempt, taken FROM waiting
              UNION ALL SELECT batch_id, attempt - 1, taken FROM blocked
              UNION ALL SELECT batch_id, attempt, taken FROM running) t
        CROSS JOIN LATERAL unnest(t.taken) range
        GROUP BY t.batch_id, t.attempt
    ), reported AS (
        INSERT INTO gristmill.report (batch_id, first_position, attempt, finished_at, count, state, positions)
        SELECT batch_id, lower(positions), attempt, now_ms, gristmill.count(positions), 'cancelled', positions FROM ended
    ), by_batch AS (
        SELECT e.batch_id, range_agg(range) AS positions FROM ended e CROSS JOIN LATERAL unnest(e.positions) range GROUP BY e.batch_id
    )
    SELECT coalesce(sum(gristmill.count(b.positions)), 0), coalesce(array_agg(b.batch_id), '{}'), coalesce(array_agg(b.positions), '{}')
    INTO cancelled, ended_ids, ended_positions FROM by_batch b;
END
$$;

-- Cancels open jobs. Returns how many it cancelled, without their children and the jobs that wait for them, which are cancelled with
-- them. A worker that runs one of them learns it from its next heartbeat, and its report of that job is refused.
CREATE OR REPLACE FUNCTION gristmill.cancel(ids text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    batch_ids bigint[];
    meant int4multirange[];
    tree record;
BEGIN
    SELECT coalesce(array_agg(batch_id), '{}'), coalesce(array_agg(positions), '{}') INTO batch_ids, meant
        FROM gristmill.jobs_by_id(cancel.ids);
    SELECT * INTO tree FROM gristmill.cancel_trees(batch_ids, meant, '{}', now_ms);
    IF gristmill.settle(tree.ended_ids, tree.ended_positions, now_ms) > 0 THEN
        PERFORM gristmill.wake();
    END IF;
    RETURN tree.cancelled;
END
$$;

-- Cancels one job. Returns whether it was open.
CREATE OR REPLACE FUNCTION gristmill.cancel(id text) RETURNS boolean
LANGUAGE sql
RETURN gristmill.cancel(ARRAY[id]) = 1;

-- Makes dead, cancelled and expired jobs claimable again. A job that was rejected (dead on attempt 0) cannot run, however often it is
-- tried, and a rejected job that was discarded since cannot either. Nothing can run jobs that wait for a signal. A flow goes on after its
-- last step, and may have used the outcomes of its steps: those stay as they are.
CREATE OR REPLACE FUNCTION gristmill.retry_jobs(batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    retried bigint;
BEGIN
    PERFORM FROM gristmill.batch WHERE id = ANY (batch_ids) ORDER BY id FOR NO KEY UPDATE;
    WITH meant AS MATERIALIZED (
        SELECT m.batch_id, m.positions FROM unnest(batch_ids, meant) AS m (batch_id, positions)
    ), runnable AS (
        SELECT r.batch_id, r.first_position, r.positions, m.positions - coalesce(x.rejected, '{}') - coalesce(y.cleaned_up, '{}') AS meant
        FROM gristmill.report r JOIN meant m ON m.batch_id = r.batch_id
        JOIN gristmill.batch b ON b.id = r.batch_id AND NOT gristmill.is_signal(b.options)
            AND NOT gristmill.is_step(b.id)
        LEFT JOIN LATERAL (
            SELECT range_agg(int4range(f.position, f.position + 1)) AS rejected FROM gristmill.failure f
            WHERE f.batch_id = r.batch_id AND f.lease_id = 0 AND f.attempt = 0 AND f.error::json ->> 'type' <> 'prerequisite'
        ) x ON r.state = 'cancelled' AND r.attempt = 0
        -- A retry would undo what is cleaned up after them.
        LEFT JOIN LATERAL (
            SELECT range_agg(p) AS cleaned_up FROM gristmill.cleanup u CROSS JOIN LATERAL unnest(u.positions) AS p
            WHERE u.batch_id = r.batch_id AND u.ends_at IS NULL
        ) y ON r.state = 'cancelled'
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
    ), steps AS MATERIALIZED (
        SELECT l.batch_id, l.family, range_agg(int4range(l.position, l.position + 1)) AS positions FROM (
            SELECT s.batch_id, p.position, max(s.family) AS family
            FROM again a JOIN gristmill.suspension s ON s.batch_id = a.batch_id AND s.flow IS NOT NULL
            CROSS JOIN LATERAL unnest(s.parents) AS p (position)
            WHERE a.positions @> p.position GROUP BY s.batch_id, p.position
        ) l GROUP BY l.batch_id, l.family
    ), parts AS (
        SELECT s.batch_id, s.family, s.positions FROM steps s
        UNION ALL
        SELECT a.batch_id, NULL, a.positions - coalesce((
            SELECT range_agg(r) FROM steps s CROSS JOIN LATERAL unnest(s.positions) r WHERE s.batch_id = a.batch_id), '{}')
        FROM again a
    ), claimable AS (
        -- The caller wants the job to run: it must not expire at once.
        INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, positions,
            awaited, family)
        SELECT b.id, now_ms, NULL, b.lane_id, 1, 0, gristmill.count(p.positions),
            greatest(gristmill.batch_bytes(b.id, octet_length(b.payloads), b.options) / b.count, 1),
            -b.priority::integer, p.positions, gristmill.is_awaited(b.id), p.family
        FROM parts p JOIN gristmill.batch b ON b.id = p.batch_id
        WHERE NOT isempty(p.positions)
        RETURNING count
    )
    SELECT coalesce(sum(count), 0) INTO retried FROM claimable;
    RETURN retried;
END
$$;

-- The first of these jobs that a retry may not name, and its flow: a step of a flow that has ended without completing.
CREATE OR REPLACE FUNCTION gristmill.ended_step(
    batch_ids bigint[], meant int4multirange[], OUT step_batch bigint, OUT step_position integer, OUT flow_batch bigint,
    OUT flow_position integer
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT r.batch_id, lower(r.positions * m.positions), c.parent_id,
        (coalesce(c.parents, s.parents))[width_bucket(lower(r.positions * m.positions), c.bounds)]
    FROM unnest(batch_ids, meant) AS m (batch_id, positions)
    JOIN gristmill.child_batch c ON c.batch_id = m.batch_id
    JOIN gristmill.suspension s ON s.batch_id = c.parent_id AND s.family = c.family AND s.flow IS NOT NULL
    JOIN gristmill.report r ON r.batch_id = m.batch_id AND r.positions && m.positions
        AND r.state <> 'completed' AND (r.state <> 'dead' OR r.attempt > 0)
    ORDER BY 1, 2 LIMIT 1;
END;

-- Retries those jobs whose keys no other job has taken since. Of jobs with the same key, the first one gets it.
CREATE OR REPLACE FUNCTION gristmill.retry_with_keys(batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    with_keys bigint[];
    jobs record;
    retried bigint;
BEGIN
    SELECT array_agg(k.batch_id) INTO with_keys FROM gristmill.keyed k WHERE k.batch_id = ANY (batch_ids);
    IF with_keys IS NULL THEN
        RETURN gristmill.retry_jobs(batch_ids, meant, states, now_ms);
    END IF;
    PERFORM FROM gristmill.batch WHERE id = ANY (batch_ids) ORDER BY id FOR NO KEY UPDATE;
    SELECT gristmill.retry_jobs(coalesce(array_agg(m.batch_id), '{}'), coalesce(array_agg(m.positions), '{}'), states, now_ms)
    INTO retried FROM unnest(batch_ids, meant) AS m (batch_id, positions) WHERE m.batch_id <> ALL (with_keys);
    -- One batch sees the keys that the ones before it have taken.
    FOR jobs IN
        SELECT ARRAY[m.batch_id] AS batch_ids, ARRAY[m.positions] AS positions
        FROM unnest(batch_ids, meant) AS m (batch_id, positions) WHERE m.batch_id = ANY (with_keys) ORDER BY m.batch_id
    LOOP
        retried := retried + gristmill.retry_jobs(
            jobs.batch_ids, gristmill.without_taken_keys(jobs.batch_ids, jobs.positions, now_ms), states, now_ms);
        PERFORM gristmill.take_keys_again(jobs.batch_ids, jobs.positions, now_ms);
    END LOOP;
    RETURN retried;
END
$$;

-- Makes dead, cancelled or expired jobs claimable again, with all their attempts before them. Returns how many it retried.
CREATE OR REPLACE FUNCTION gristmill.retry(ids text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    batch_ids bigint[];
    meant int4multirange[];
    refused record;
    retried bigint;
BEGIN
    SELECT coalesce(array_agg(j.batch_id), '{}'), coalesce(array_agg(j.positions), '{}') INTO batch_ids, meant
        FROM gristmill.jobs_by_id(retry.ids) j;
    SELECT * INTO refused FROM gristmill.ended_step(batch_ids, meant);
    IF refused.step_batch IS NOT NULL THEN
        RAISE EXCEPTION 'job %:% is a step of flow %:%, which may have used its outcome, so it cannot be retried',
            refused.step_batch, refused.step_position, refused.flow_batch, refused.flow_position
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Retry the flow, which goes on after its last step, or submit it again.';
    END IF;
    retried := gristmill.retry_with_keys(batch_ids, meant, '{}', now_ms);
    IF retried > 0 THEN
        PERFORM gristmill.wake();
    END IF;
    RETURN retried;
END
$$;

-- Makes one job claimable again. Returns whether it was dead, cancelled or expired.
CREATE OR REPLACE FUNCTION gristmill.retry(id text) RETURNS boolean
LANGUAGE sql
RETURN gristmill.retry(ARRAY[id]) = 1;

-- Ends dead jobs as cancelled.
CREATE OR REPLACE FUNCTION gristmill.discard_jobs(batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint) RETURNS bigint
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

-- Ends dead jobs as cancelled. Returns how many were dead.
CREATE OR REPLACE FUNCTION gristmill.discard(ids text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
BEGIN
    RETURN (SELECT gristmill.discard_jobs(coalesce(array_agg(batch_id), '{}'), coalesce(array_agg(positions), '{}'), '{}', now_ms)
            FROM gristmill.jobs_by_id(discard.ids));
END
$$;

-- Ends one dead job as cancelled. Returns whether it was dead.
CREATE OR REPLACE FUNCTION gristmill.discard(id text) RETURNS boolean
LANGUAGE sql
RETURN gristmill.discard(ARRAY[id]) = 1;

-- Gives open jobs another rank. Jobs that run keep it for when they come back.
CREATE OR REPLACE FUNCTION gristmill.prioritise_jobs(
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

-- Gives open jobs another priority: higher is claimed first. Returns how many were open.
CREATE OR REPLACE FUNCTION gristmill.prioritise(ids text[], priority integer) RETURNS bigint
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

-- Gives one job another priority. Returns whether it was open.
CREATE OR REPLACE FUNCTION gristmill.prioritise(id text, priority integer) RETURNS boolean
LANGUAGE sql
RETURN gristmill.prioritise(ARRAY[id], priority) = 1;

-- Gives claimable jobs a higher priority (a lower rank), where theirs is lower. Locks their batches alone. Returns whether there are any.
CREATE OR REPLACE FUNCTION gristmill.raise_jobs(batch_ids bigint[], meant int4multirange[], new_rank integer) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    lower_ids bigint[];
BEGIN
    SELECT array_agg(DISTINCT s.batch_id) INTO lower_ids
    FROM gristmill.slice s JOIN unnest(batch_ids, meant) AS m (batch_id, positions) ON m.batch_id = s.batch_id
    WHERE s.positions && m.positions AND s.rank > new_rank;
    IF lower_ids IS NULL THEN
        RETURN false;
    END IF;
    PERFORM gristmill.lock_batches(lower_ids);
    WITH raised AS MATERIALIZED (
        SELECT s.batch_id, s.id, s.positions * m.positions AS taken, s.positions - m.positions AS rest
        FROM gristmill.slice s JOIN unnest(batch_ids, meant) AS m (batch_id, positions) ON m.batch_id = s.batch_id
        WHERE s.positions && m.positions AND s.rank > new_rank AND s.batch_id = ANY (lower_ids)
    ), added AS (
        INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, positions,
            awaited, family)
        SELECT s.batch_id, s.run_at, s.expires_at, s.lane_id, s.attempt, s.rescues, gristmill.count(r.taken), s.job_bytes,
            new_rank, r.taken, s.awaited, s.family
        FROM raised r JOIN gristmill.slice s ON s.batch_id = r.batch_id AND s.id = r.id
    ), shortened AS (
        UPDATE gristmill.slice s SET positions = r.rest, count = gristmill.count(r.rest)
        FROM raised r WHERE s.batch_id = r.batch_id AND s.id = r.id AND NOT isempty(r.rest)
    )
    DELETE FROM gristmill.slice s USING raised r WHERE s.batch_id = r.batch_id AND s.id = r.id AND isempty(r.rest);
    RETURN true;
END
$$;

-- Makes jobs that have not started claimable from these moments on, one moment a batch. Returns those jobs. A job that waits for its
-- children, or finalizes, has started.
CREATE OR REPLACE FUNCTION gristmill.postpone_jobs(batch_ids bigint[], meant int4multirange[], run_ats bigint[])
RETURNS TABLE (batch_id bigint, positions int4multirange)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM gristmill.cut_open(batch_ids, meant);
    RETURN QUERY
    WITH wanted AS MATERIALIZED (
        SELECT m.batch_id, m.positions, m.run_at FROM unnest(batch_ids, meant, run_ats) AS m (batch_id, positions, run_at)
    ), waiting AS (
        UPDATE gristmill.slice s SET run_at = m.run_at FROM wanted m
        WHERE s.batch_id = m.batch_id AND m.positions @> s.positions AND s.attempt = 1 AND s.rescues = 0 AND s.family IS NULL
        RETURNING s.batch_id, s.positions
    ), blocked AS (
        UPDATE gristmill.blocked w SET run_at = m.run_at FROM wanted m
        WHERE w.batch_id = m.batch_id AND m.positions @> w.positions AND w.attempt = 1 AND w.rescues = 0 AND w.family IS NULL
        RETURNING w.batch_id, w.positions
    )
    SELECT w.batch_id, w.positions FROM waiting w UNION ALL SELECT b.batch_id, b.positions FROM blocked b;
END
$$;
