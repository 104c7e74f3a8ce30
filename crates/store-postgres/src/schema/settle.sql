-- Dependencies: jobs that wait for the end of others.

-- Marks the open jobs of batches as awaited. The caller has locked the batches. A waiting part may have become claimable
-- meanwhile, and a claimable one held, so the tables come in that order.
CREATE OR REPLACE FUNCTION gristmill.await(batch_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE gristmill.slice SET awaited = true WHERE batch_id = ANY (batch_ids) AND NOT awaited;
    UPDATE gristmill.held SET awaited = true WHERE batch_id = ANY (batch_ids) AND NOT awaited;
END
$$;

-- Whether the end of jobs of a batch settles edges. Children always are awaited: a flow that runs adds edges to them later.
CREATE OR REPLACE FUNCTION gristmill.is_awaited(batch_id bigint) RETURNS boolean
LANGUAGE sql STABLE
RETURN EXISTS (SELECT FROM gristmill.edge e WHERE e.prerequisite_id = $1)
    OR EXISTS (SELECT FROM gristmill.child_batch c WHERE c.batch_id = $1);

-- Settles the edges that lead to ended jobs: of these batches, at these positions. All positions that there can be (`{(,)}`) mean that
-- jobs may have ended, perhaps long before; a flow that wakes on any child does not take that for news. Jobs whose prerequisites
-- failed end, with all jobs that wait for them in turn, and release their keys. Parents whose children have ended continue. Returns
-- how many jobs have become claimable. The caller has written the outcomes of the ended jobs.
CREATE OR REPLACE FUNCTION gristmill.settle(batch_ids bigint[], meant int4multirange[], now_ms bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended bigint[] := batch_ids;
    spans int4multirange[] := meant;
    waiting bigint[];
    waiting_parts integer[];
    vain bigint[];
    vain_parts integer[];
    vain_policies text[];
    causes bigint[];
    cause_positions text[];
    gone bigint[];
    gone_positions int4multirange[];
    gone_policies text[];
    gone_causes bigint[];
    gone_cause_positions text[];
    has_families boolean;
    has_hooks boolean;
    brood record;
    verdict record;
    claimable bigint := 0;
BEGIN
    LOOP
        -- Of two transactions that end jobs of one prerequisite, the second one waits here, and then sees the jobs that the first has
        -- ended.
        SELECT bool_or(l.is_family), bool_or(l.is_hook) INTO has_families, has_hooks FROM (
            SELECT e.on_failure = 'children' AS is_family, e.on_failure = 'hook' AS is_hook
            FROM gristmill.edge e JOIN unnest(ended, spans) AS n (batch_id, positions) ON e.prerequisite_id = n.batch_id
            WHERE e.first_position < coalesce(upper(n.positions), 2147483647)
            ORDER BY e.prerequisite_id, e.first_position, e.batch_id, e.part, e.on_failure FOR UPDATE OF e
        ) l;
        IF has_families IS NULL THEN
            RETURN claimable;
        END IF;

        WITH RECURSIVE met AS MATERIALIZED (
            SELECT e.prerequisite_id, e.first_position, e.batch_id, e.part, e.on_failure, e.positions,
                e.on_failure <> 'ignore' AND EXISTS (
                    SELECT FROM gristmill.report r WHERE r.batch_id = e.prerequisite_id AND r.state <> 'completed'
                        AND (e.positions IS NULL OR r.positions && e.positions)) AS in_vain
            FROM gristmill.edge e JOIN unnest(ended, spans) AS n (batch_id, positions) ON e.prerequisite_id = n.batch_id
            WHERE e.first_position < coalesce(upper(n.positions), 2147483647) AND e.on_failure NOT IN ('children', 'hook')
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
            -- A job fails with its prerequisite, and so do the jobs that wait for it.
            SELECT e.batch_id, e.part, e.on_failure, e.prerequisite_id, e.positions
            FROM in_vain v JOIN gristmill.edge e ON e.prerequisite_id = v.batch_id
            WHERE e.on_failure NOT IN ('ignore', 'children', 'hook')
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

        gone := NULL;
        gone_positions := NULL;
        IF waiting IS NOT NULL THEN
            -- Of two transactions that settle the last two edges, the second one sees that the first is gone.
            PERFORM FROM gristmill.blocked b JOIN (
                    SELECT k.batch_id, k.part FROM unnest(waiting, waiting_parts) AS k (batch_id, part)
                    UNION SELECT k.batch_id, k.part FROM unnest(vain, vain_parts) AS k (batch_id, part)
                ) k USING (batch_id, part)
                ORDER BY b.batch_id, b.part FOR UPDATE OF b;

            IF vain IS NOT NULL THEN
                -- Dead on the attempt that it waited for, and not on attempt 0: unlike a job that was rejected, it can be
                -- retried.
                WITH ended AS (
                    DELETE FROM gristmill.blocked b
                    USING unnest(vain, vain_parts, vain_policies, causes, cause_positions)
                        AS k (batch_id, part, on_failure, cause, positions)
                    WHERE b.batch_id = k.batch_id AND b.part = k.part
                    RETURNING b.batch_id, b.attempt, b.count, b.positions, k.on_failure, k.cause, k.positions AS of_cause
                ), reported AS (
                    INSERT INTO gristmill.report (batch_id, first_position, attempt, finished_at, count, state, positions)
                    SELECT batch_id, lower(positions), CASE on_failure WHEN 'fail' THEN attempt ELSE attempt - 1 END, now_ms, count,
                        CASE on_failure WHEN 'fail' THEN 'dead' ELSE 'cancelled' END, positions FROM ended
                )
                SELECT array_agg(batch_id), array_agg(positions), array_agg(on_failure), array_agg(cause), array_agg(of_cause)
                    INTO gone, gone_positions, gone_policies, gone_causes, gone_cause_positions FROM ended;
                -- A dead job has a failure that names the prerequisite; of cancelled jobs, the report names it.
                WITH blamed AS MATERIALIZED (
                    SELECT k.batch_id, k.positions, k.on_failure, format('%s:%s', k.cause, c.position) AS job, c.state
                    FROM unnest(gone, gone_positions, gone_policies, gone_causes, gone_cause_positions)
                        AS k (batch_id, positions, on_failure, cause, cause_positions)
                    CROSS JOIN LATERAL (
                        SELECT r.state, lower(r.positions * coalesce(k.cause_positions::int4multirange, '{(,)}')) AS position
                        FROM gristmill.report r WHERE r.batch_id = k.cause AND r.state <> 'completed'
                            AND r.positions && coalesce(k.cause_positions::int4multirange, '{(,)}') ORDER BY 2 LIMIT 1
                    ) c
                ), failed AS (
                    INSERT INTO gristmill.failure (batch_id, lease_id, duration_us, failed_at, position, attempt, error)
                    SELECT b.batch_id, 0, 0, now_ms, u.position, 0, json_build_object('type', 'prerequisite', 'message',
                        format('job %s, which it waited for, ended as %s', b.job, b.state), 'permanent', true)
                    FROM blamed b CROSS JOIN LATERAL gristmill.unpacked(b.positions) AS u (position)
                    WHERE b.on_failure = 'fail'
                    ON CONFLICT DO NOTHING
                )
                UPDATE gristmill.report r SET cause = json_build_object('job', b.job, 'state', b.state)
                FROM blamed b WHERE r.batch_id = b.batch_id AND r.first_position = lower(b.positions) AND b.on_failure <> 'fail';
                PERFORM FROM gristmill.keyed k WHERE k.batch_id = ANY (gone);
                IF FOUND THEN
                    PERFORM gristmill.release_keys(array_agg(k.batch_id), array_agg(k.positions),
                        CASE k.on_failure WHEN 'fail' THEN 'dead' ELSE 'cancelled' END, now_ms)
                    FROM unnest(gone, gone_positions, gone_policies) AS k (batch_id, positions, on_failure) GROUP BY k.on_failure;
                END IF;
            END IF;

            claimable := claimable + gristmill.free_parts(waiting, waiting_parts);
        END IF;

        IF has_families THEN
            FOR brood IN
                SELECT e.prerequisite_id AS child_id, e.batch_id AS parent_id, e.part, range_agg(r) AS positions
                FROM unnest(ended, spans) AS n (batch_id, positions)
                JOIN gristmill.edge e ON e.prerequisite_id = n.batch_id AND e.on_failure = 'children'
                CROSS JOIN LATERAL unnest(n.positions) r
                GROUP BY e.prerequisite_id, e.batch_id, e.part ORDER BY e.batch_id, e.part, e.prerequisite_id
            LOOP
                SELECT * INTO verdict FROM gristmill.settle_children(brood.child_id, brood.parent_id, brood.part, brood.positions, now_ms);
                claimable := claimable + verdict.claimable;
                gone := gone || verdict.ended_ids;
                gone_positions := gone_positions || verdict.ended_positions;
            END LOOP;
        END IF;

        IF has_hooks THEN
            claimable := claimable + gristmill.submit_hooks(ended, now_ms);
        END IF;

        IF coalesce(cardinality(gone), 0) = 0 THEN
            RETURN claimable;
        END IF;
        ended := gone;
        spans := gone_positions;
    END LOOP;
END
$$;

-- Submits the jobs of the hooks of those of these batches that have ended: see hook.rs. The caller has locked the edges. Returns
-- how many jobs there are. Their lanes have been there since the batch was submitted.
CREATE OR REPLACE FUNCTION gristmill.submit_hooks(batch_ids bigint[], now_ms bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    lanes_max CONSTANT integer := 1000000;
    rfc_3339 CONSTANT text := 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"';
    ended record;
    counts record;
    hooks jsonb;
    target text;
    summary json;
    submitted bigint := 0;
BEGIN
    FOR ended IN
        DELETE FROM gristmill.edge e USING gristmill.batch b JOIN gristmill.lane l ON l.id = b.lane_id
        WHERE e.prerequisite_id = ANY (batch_ids) AND e.on_failure = 'hook' AND b.id = e.prerequisite_id
            AND NOT EXISTS (SELECT FROM gristmill.slice s WHERE s.batch_id = b.id)
            AND NOT EXISTS (SELECT FROM gristmill.held h WHERE h.batch_id = b.id)
            AND NOT EXISTS (SELECT FROM gristmill.blocked w WHERE w.batch_id = b.id)
        RETURNING b.id, b.submitted_at, b.options, l.queue, l.kind
    LOOP
        hooks := ended.options::jsonb -> 'hooks';
        SELECT coalesce(sum(r.count), 0) AS jobs, coalesce(sum(r.count) FILTER (WHERE r.state = 'completed'), 0) AS completed,
            coalesce(sum(r.count) FILTER (WHERE r.state = 'dead'), 0) AS dead,
            coalesce(sum(r.count) FILTER (WHERE r.state = 'cancelled'), 0) AS cancelled,
            coalesce(sum(r.count) FILTER (WHERE r.state = 'expired'), 0) AS expired
        INTO counts FROM gristmill.report r WHERE r.batch_id = ended.id;
        target := hooks ->> CASE WHEN counts.completed = counts.jobs THEN 'on_success' ELSE 'on_failure' END;
        CONTINUE WHEN target IS NULL;
        summary := json_strip_nulls(json_build_object(
            'outcome', CASE WHEN counts.completed = counts.jobs THEN 'success' ELSE 'failure' END,
            'name', hooks ->> 'name', 'batch', ended.id, 'kind', ended.kind, 'queue', ended.queue, 'jobs', counts.jobs,
            'completed', counts.completed, 'dead', counts.dead, 'cancelled', counts.cancelled, 'expired', counts.expired,
            'submitted_at', to_char(to_timestamp(ended.submitted_at / 1000.0) AT TIME ZONE 'UTC', rfc_3339),
            'ended_at', to_char(to_timestamp(now_ms / 1000.0) AT TIME ZONE 'UTC', rfc_3339)));
        IF strpos(target, '://') > 0 THEN
            summary := json_build_object('url', target, 'body', summary);
            target := 'http';
        END IF;
        PERFORM gristmill.insert_batch(gristmill.intern_lane(ended.queue, target, '', lanes_max), ARRAY[summary::text], now_ms,
            NULL, NULL, 0, NULL);
        submitted := submitted + 1;
    END LOOP;
    RETURN submitted;
END
$$;

-- Locks the parents of children in these batches that end and spawn siblings, in the order in which `settle` locks.
CREATE OR REPLACE FUNCTION gristmill.lock_parents(child_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM gristmill.edge e WHERE e.prerequisite_id = ANY (child_ids)
        ORDER BY e.prerequisite_id, e.first_position, e.batch_id, e.part, e.on_failure FOR UPDATE;
    PERFORM FROM gristmill.blocked b
        WHERE EXISTS (SELECT FROM gristmill.edge e WHERE e.prerequisite_id = ANY (child_ids) AND e.on_failure = 'children'
            AND e.batch_id = b.batch_id AND e.part = b.part)
        ORDER BY b.batch_id, b.part FOR UPDATE;
END
$$;
