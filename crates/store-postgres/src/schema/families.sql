-- Parents and their children. A parent stands in `blocked`, as a part of its batch, while its children are open.

-- The children of these parents in a family.
CREATE OR REPLACE FUNCTION gristmill.children_of(parent_id bigint, family bigint, parents int4multirange)
RETURNS TABLE (batch_id bigint, positions int4multirange)
LANGUAGE sql STABLE STRICT ROWS 4
BEGIN ATOMIC
    SELECT c.batch_id, range_agg(int4range(b.first, b.last))
    FROM gristmill.child_batch c JOIN gristmill.suspension s ON s.batch_id = c.parent_id AND s.family = c.family
    CROSS JOIN LATERAL ROWS FROM (unnest(coalesce(c.parents, s.parents)), unnest(c.bounds), unnest(c.bounds[2:])) AS b (parent, first, last)
    WHERE c.parent_id = $1 AND c.family = $2 AND $3 @> b.parent AND b.first < b.last
    GROUP BY c.batch_id;
END;

-- The children of these jobs that are cancelled when the jobs end or are cancelled, as far as their batches have open jobs: those of a
-- family; of a flow, those of all its steps.
CREATE OR REPLACE FUNCTION gristmill.open_children(parent_id bigint, family bigint, parents int4multirange)
RETURNS TABLE (batch_id bigint, positions int4multirange)
LANGUAGE sql STABLE STRICT ROWS 4
BEGIN ATOMIC
    SELECT c.batch_id, range_agg(int4range(b.first, b.last))
    FROM gristmill.suspension own
    JOIN gristmill.suspension s ON s.batch_id = own.batch_id
        AND (s.family = own.family OR (own.flow IS NOT NULL AND s.flow IS NOT NULL))
    JOIN gristmill.child_batch c ON c.parent_id = s.batch_id AND c.family = s.family
    CROSS JOIN LATERAL ROWS FROM (unnest(coalesce(c.parents, s.parents)), unnest(c.bounds), unnest(c.bounds[2:])) AS b (parent, first, last)
    WHERE own.batch_id = $1 AND own.family = $2 AND $3 @> b.parent AND b.first < b.last
        AND (EXISTS (SELECT FROM gristmill.slice o WHERE o.batch_id = c.batch_id)
            OR EXISTS (SELECT FROM gristmill.held o WHERE o.batch_id = c.batch_id)
            OR EXISTS (SELECT FROM gristmill.blocked o WHERE o.batch_id = c.batch_id))
    GROUP BY c.batch_id;
END;

-- The children that flows leave open where they end after they ran as these families. Only a flow that runs again when any child ends
-- leaves some.
CREATE OR REPLACE FUNCTION gristmill.left_open(batch_ids bigint[], families bigint[], meant int4multirange[])
RETURNS TABLE (batch_id bigint, positions int4multirange)
LANGUAGE sql STABLE STRICT ROWS 4
BEGIN ATOMIC
    SELECT k.batch_id, range_agg(r)
    FROM unnest(batch_ids, families, meant) AS m (batch_id, family, positions)
    JOIN gristmill.suspension s ON s.batch_id = m.batch_id AND s.family = m.family AND s.flow = 'any'
    CROSS JOIN LATERAL gristmill.open_children(m.batch_id, m.family, m.positions) k
    CROSS JOIN LATERAL unnest(k.positions) r
    GROUP BY k.batch_id ORDER BY k.batch_id;
END;

-- Cancels jobs as `cancel_open` does, and releases their keys. The children of cancelled parents are cancelled, too, and the children of
-- those: of parents that wait, and of flows that have some open while they run or could. Returns how many of the meant jobs were
-- cancelled, and all that was. The caller settles the edges that lead to those. Notes flows that are to be cleaned up after.
CREATE OR REPLACE FUNCTION gristmill.cancel_trees(
    batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint,
    OUT cancelled bigint, OUT ended_ids bigint[], OUT ended_positions int4multirange[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    level_ids bigint[] := batch_ids;
    level_positions int4multirange[] := meant;
    level_states text[] := states;
    level record;
    next_ids bigint[];
    next_positions int4multirange[];
BEGIN
    ended_ids := '{}';
    ended_positions := '{}';
    LOOP
        PERFORM gristmill.lock_batches(level_ids);
        WITH meant AS MATERIALIZED (
            SELECT m.batch_id, m.positions FROM unnest(level_ids, level_positions) AS m (batch_id, positions)
        ), children AS (
            SELECT k.batch_id, k.positions
            FROM meant m JOIN gristmill.blocked w ON w.batch_id = m.batch_id AND w.family IS NOT NULL AND w.positions && m.positions
                AND (cardinality(level_states) = 0
                    OR CASE WHEN w.pauses IS NULL THEN 'blocked' ELSE 'paused' END = ANY (level_states))
            CROSS JOIN LATERAL gristmill.open_children(w.batch_id, w.family, w.positions * m.positions) k
            UNION ALL
            SELECT k.batch_id, k.positions
            FROM meant m JOIN gristmill.slice s ON s.batch_id = m.batch_id AND s.family IS NOT NULL AND s.positions && m.positions
                AND (cardinality(level_states) = 0
                    OR CASE WHEN s.run_at <= now_ms THEN 'waiting' ELSE 'scheduled' END = ANY (level_states))
            CROSS JOIN LATERAL gristmill.left_open(ARRAY[s.batch_id], ARRAY[s.family], ARRAY[s.positions * m.positions]) k
            UNION ALL
            SELECT k.batch_id, k.positions
            FROM meant m JOIN gristmill.held h ON h.batch_id = m.batch_id AND h.family IS NOT NULL AND h.positions && m.positions
                AND (cardinality(level_states) = 0 OR 'running' = ANY (level_states))
            CROSS JOIN LATERAL gristmill.left_open(ARRAY[h.batch_id], ARRAY[h.family], ARRAY[h.positions * m.positions]) k
        )
        SELECT array_agg(c.batch_id ORDER BY c.batch_id), array_agg(c.positions ORDER BY c.batch_id) INTO next_ids, next_positions FROM (
            SELECT k.batch_id, range_agg(r) AS positions FROM children k CROSS JOIN LATERAL unnest(k.positions) r GROUP BY k.batch_id
        ) c;
        PERFORM gristmill.note_cleanups(level_ids, level_positions, level_states, now_ms);
        SELECT * INTO level FROM gristmill.cancel_open(level_ids, level_positions, level_states, now_ms);
        cancelled := coalesce(cancelled, level.cancelled);
        ended_ids := ended_ids || level.ended_ids;
        ended_positions := ended_positions || level.ended_positions;
        PERFORM FROM gristmill.keyed k WHERE k.batch_id = ANY (level.ended_ids);
        IF FOUND THEN
            PERFORM gristmill.release_keys(level.ended_ids, level.ended_positions, 'cancelled', now_ms);
        END IF;
        EXIT WHEN next_ids IS NULL;
        level_ids := next_ids;
        level_positions := next_positions;
        level_states := '{}';
    END LOOP;
END
$$;

-- Continues the parents of children that have ended. Parents without open children become claimable, to finalize; flows that wake on
-- any child, at once, or once all have ended that are told together. A part waits for the children in the batches that its edges lead
-- to: a flow, also for those of earlier steps. Under the policy `fail`, a failed child ends its parent as dead and cancels its siblings.
-- Returns how many jobs have become claimable, and which have ended.
CREATE OR REPLACE FUNCTION gristmill.settle_children(
    child_id bigint, parent_id bigint, parent_part integer, ended int4multirange, now_ms bigint,
    OUT claimable bigint, OUT ended_ids bigint[], OUT ended_positions int4multirange[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    waiting gristmill.blocked%ROWTYPE;
    parents integer[]; -- of the children that have ended, or of others
    policy text;
    wake text;
    together boolean;
    bounds integer[];
    touched integer[]; -- parents
    done integer[];
    failed integer[] := '{}';
    failed_children integer[];
    failed_states text[];
    brood record;
    still_open int4multirange;
    done_positions int4multirange;
    failed_positions int4multirange;
    rest int4multirange;
    done_part integer;
    failure_lease bigint;
    child_ids bigint[];
    child_positions int4multirange[];
    tree record;
    lease_jobs_max CONSTANT integer := 10000;
BEGIN
    claimable := 0;
    ended_ids := '{}';
    ended_positions := '{}';
    -- Of two transactions that end the last two children, the second one waits here, and sees what the first has ended.
    SELECT b.* INTO waiting FROM gristmill.blocked b WHERE b.batch_id = parent_id AND b.part = parent_part FOR UPDATE;
    IF NOT FOUND THEN
        DELETE FROM gristmill.edge e WHERE e.batch_id = parent_id AND e.part = parent_part;
        RETURN;
    END IF;
    SELECT coalesce(c.parents, s.parents), c.bounds, c.together, own.on_failure, own.flow INTO parents, bounds, together, policy, wake
        FROM gristmill.child_batch c JOIN gristmill.suspension s ON s.batch_id = c.parent_id AND s.family = c.family
        JOIN gristmill.suspension own ON own.batch_id = c.parent_id AND own.family = waiting.family
        WHERE c.batch_id = child_id;
    touched := ARRAY(
        SELECT DISTINCT parents[t.place] FROM unnest(ended * int4multirange(int4range(0, bounds[cardinality(bounds)]))) r
        CROSS JOIN LATERAL generate_series(width_bucket(lower(r), bounds), width_bucket(upper(r) - 1, bounds)) t (place)
        WHERE waiting.positions @> parents[t.place]
            AND (wake IS DISTINCT FROM 'any' OR coalesce(upper(ended), 2147483647) < 2147483647));
    IF wake = 'any' AND together THEN
        -- It is news once none of a parent's is open.
        SELECT range_agg(r) INTO still_open FROM (
            SELECT s.positions FROM gristmill.slice s WHERE s.batch_id = child_id
            UNION ALL SELECT h.positions FROM gristmill.held h WHERE h.batch_id = child_id
            UNION ALL SELECT w.positions FROM gristmill.blocked w WHERE w.batch_id = child_id
        ) o CROSS JOIN LATERAL unnest(o.positions) r;
        touched := ARRAY(SELECT t.parent FROM unnest(touched) t (parent) CROSS JOIN LATERAL width_bucket(t.parent, parents) p (place)
            WHERE NOT coalesce(still_open && int4range(bounds[p.place], bounds[p.place + 1]), false));
    END IF;
    IF policy = 'fail' THEN
        SELECT coalesce(array_agg(t.parent), '{}'), array_agg(c.position), array_agg(c.state)
            INTO failed, failed_children, failed_states
        FROM unnest(touched) t (parent) CROSS JOIN LATERAL width_bucket(t.parent, parents) p (place)
        CROSS JOIN LATERAL (
            SELECT r.state, lower(r.positions * int4multirange(int4range(bounds[p.place], bounds[p.place + 1]))) AS position
            FROM gristmill.report r WHERE r.batch_id = child_id AND r.state <> 'completed'
                AND r.positions && int4range(bounds[p.place], bounds[p.place + 1]) ORDER BY 2 LIMIT 1
        ) c;
    END IF;

    done := ARRAY(SELECT t.parent FROM unnest(touched) t (parent) WHERE t.parent <> ALL (failed));
    IF cardinality(done) > 0 AND wake IS DISTINCT FROM 'any' THEN
        -- The children that were spawned last are open the longest.
        FOR brood IN SELECT c.batch_id, coalesce(c.parents, s.parents) AS parents, c.bounds
            FROM gristmill.edge e JOIN gristmill.child_batch c ON c.batch_id = e.prerequisite_id
            JOIN gristmill.suspension s ON s.batch_id = c.parent_id AND s.family = c.family
            WHERE e.batch_id = settle_children.parent_id AND e.part = parent_part AND e.on_failure = 'children'
            ORDER BY c.batch_id DESC
        LOOP
            EXIT WHEN cardinality(done) = 0;
            bounds := brood.bounds;
            parents := brood.parents;
            SELECT range_agg(r) INTO still_open FROM (
                SELECT s.positions FROM gristmill.slice s WHERE s.batch_id = brood.batch_id
                UNION ALL SELECT h.positions FROM gristmill.held h WHERE h.batch_id = brood.batch_id
                UNION ALL SELECT w.positions FROM gristmill.blocked w WHERE w.batch_id = brood.batch_id
            ) o CROSS JOIN LATERAL unnest(o.positions) r;
            IF still_open IS NOT NULL THEN
                done := ARRAY(SELECT t.parent FROM unnest(done) t (parent)
                    CROSS JOIN LATERAL width_bucket(t.parent, parents) p (place)
                    WHERE NOT coalesce(parents[p.place] = t.parent
                        AND still_open && int4range(bounds[p.place], bounds[p.place + 1]), false));
            END IF;
        END LOOP;
    END IF;
    SELECT coalesce(range_agg(int4range(t.parent, t.parent + 1)), '{}') INTO done_positions FROM unnest(done) t (parent);
    SELECT coalesce(range_agg(int4range(t.parent, t.parent + 1)), '{}') INTO failed_positions FROM unnest(failed) t (parent);
    IF isempty(done_positions) AND isempty(failed_positions) THEN
        RETURN;
    END IF;

    rest := waiting.positions - done_positions - failed_positions;
    IF isempty(rest) THEN
        DELETE FROM gristmill.blocked b WHERE b.batch_id = parent_id AND b.part = parent_part;
        DELETE FROM gristmill.edge e WHERE e.batch_id = parent_id AND e.part = parent_part;
    ELSE
        UPDATE gristmill.blocked b SET positions = rest, count = gristmill.count(rest)
            WHERE b.batch_id = parent_id AND b.part = parent_part;
    END IF;
    IF NOT isempty(done_positions) THEN
        -- Paused parents stay blocked until their pauses end.
        INSERT INTO gristmill.blocked (batch_id, part, attempt, rescues, count, positions, rank, run_at, pauses, paused_until, family)
        VALUES (parent_id, nextval('gristmill.blocked_part'), waiting.attempt, waiting.rescues, gristmill.count(done_positions),
            done_positions, waiting.rank, waiting.run_at, waiting.pauses, waiting.paused_until, waiting.family)
        RETURNING part INTO done_part;
        claimable := gristmill.free_parts(ARRAY[parent_id], ARRAY[done_part]);
    END IF;
    IF isempty(failed_positions) THEN
        RETURN;
    END IF;

    INSERT INTO gristmill.report (batch_id, first_position, attempt, finished_at, count, state, positions)
    VALUES (parent_id, lower(failed_positions), waiting.attempt, now_ms, gristmill.count(failed_positions), 'dead', failed_positions);
    failure_lease := nextval('gristmill.lease_id');
    INSERT INTO gristmill.failure (batch_id, lease_id, duration_us, failed_at, position, attempt, error)
    SELECT parent_id, failure_lease, 0, now_ms, k.parent, waiting.attempt, json_build_object('type', 'children', 'message',
        format('job %s:%s, a child of it, ended as %s', child_id, k.child, k.state), 'permanent', true)
    FROM unnest(failed, failed_children, failed_states) AS k (parent, child, state);
    PERFORM FROM gristmill.keyed k WHERE k.batch_id = parent_id;
    IF FOUND THEN
        PERFORM gristmill.release_keys(ARRAY[parent_id], ARRAY[failed_positions], 'dead', now_ms);
    END IF;
    SELECT coalesce(array_agg(k.batch_id), '{}'), coalesce(array_agg(k.positions), '{}') INTO child_ids, child_positions
        FROM gristmill.open_children(parent_id, waiting.family, failed_positions) k;
    SELECT * INTO tree FROM gristmill.cancel_trees(child_ids, child_positions, '{}', now_ms);
    IF cardinality(child_ids) > 0 THEN
        -- The cancel may have cut slices of other parents' children. A claim of this transaction takes these for new ones, so it is told
        -- of more than it can take, and wakes others.
        claimable := claimable + lease_jobs_max + 1;
    END IF;
    ended_ids := tree.ended_ids || parent_id;
    ended_positions := tree.ended_positions || failed_positions;
END
$$;
