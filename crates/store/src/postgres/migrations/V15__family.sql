-- Jobs that spawned children and wait for them. They stand in `blocked`, as parts of their batch of their own; an edge with
-- the policy `children` leads to each batch of children. In the order of locks it stays that of other edges.

CREATE SEQUENCE gristmill.family;

-- The family of which a slice finalizes the parents: all their children have ended. NULL for jobs that begin.
ALTER TABLE gristmill.slice ADD COLUMN family bigint;
ALTER TABLE gristmill.held ADD COLUMN family bigint;
-- The family that jobs are the parents of, whether they wait for children still or are paused.
ALTER TABLE gristmill.blocked ADD COLUMN family bigint;

-- Families: jobs of a batch that were suspended together. Kept until the batch is deleted.
CREATE TABLE gristmill.suspension (
    batch_id   bigint NOT NULL,
    family     bigint NOT NULL,
    on_failure text NOT NULL,      -- fail or collect
    parents    integer[] NOT NULL, -- the positions of all of them, ascending
    memos      text NOT NULL,      -- a JSON array, one memo a position
    PRIMARY KEY (batch_id, family)
);

-- The batches of their children.
CREATE TABLE gristmill.child_batch (
    batch_id  bigint PRIMARY KEY, -- the children
    parent_id bigint NOT NULL,    -- the batch of their parents
    family    bigint NOT NULL,
    bounds    integer[] NOT NULL, -- where the children of each parent begin, and where the last one's end
    parents   integer[]           -- the positions of the parents that have children in it, where these are not all of their family
);
CREATE INDEX child_batch_parent ON gristmill.child_batch (parent_id, family);

-- As before, and in the same family.
-- Locks what is open of batches and what it waits for, and cuts its rows so that each is meant as a whole or not at all.
-- What others are claiming at this moment stays as it is.
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

-- Keeps the open jobs among these positions of these batches that are in one of these states (in any, where there are
-- none) from being claimed, for that reason and until that moment (NULL until they are resumed). Returns how many.
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

-- Lets be claimed what nothing keeps back any more: these parts of these batches, but for those that wait for others.
-- Returns how many jobs that are.
CREATE OR REPLACE FUNCTION gristmill.free_parts(batch_ids bigint[], parts integer[]) RETURNS bigint
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
            awaited, family)
        SELECT b.id, coalesce(f.run_at, b.run_at), f.expires_at, b.lane_id, f.attempt, f.rescues, f.count,
            greatest(octet_length(b.payloads) / b.count, 1), coalesce(f.rank, -b.priority::integer), f.positions,
            EXISTS (SELECT FROM gristmill.edge e WHERE e.prerequisite_id = b.id), f.family
        FROM free f JOIN gristmill.batch b ON b.id = f.batch_id
        RETURNING count
    )
    SELECT coalesce(sum(count), 0) INTO freed FROM claimable;
    RETURN freed;
END
$$;

-- The children of these parents in a family.
CREATE FUNCTION gristmill.children_of(parent_id bigint, family bigint, parents int4multirange)
RETURNS TABLE (batch_id bigint, positions int4multirange)
LANGUAGE sql STABLE STRICT ROWS 4
BEGIN ATOMIC
    SELECT c.batch_id, range_agg(int4range(b.first, b.last))
    FROM gristmill.child_batch c JOIN gristmill.suspension s ON s.batch_id = c.parent_id AND s.family = c.family
    CROSS JOIN LATERAL ROWS FROM (unnest(coalesce(c.parents, s.parents)), unnest(c.bounds), unnest(c.bounds[2:])) AS b (parent, first, last)
    WHERE c.parent_id = $1 AND c.family = $2 AND $3 @> b.parent AND b.first < b.last
    GROUP BY c.batch_id;
END;

-- As cancel_jobs, and lets go of the keys of what is over; with what waited for its children these are cancelled, too, and
-- theirs. Returns how many were cancelled of those that were meant, and the descendants. What waits for either is settled
-- by the caller.
CREATE FUNCTION gristmill.cancel_tree(
    batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint,
    OUT cancelled bigint, OUT descendant_ids bigint[], OUT descendants int4multirange[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    level_ids bigint[] := batch_ids;
    level_positions int4multirange[] := meant;
    level_states text[] := states;
    level_cancelled bigint;
    next_ids bigint[];
    next_positions int4multirange[];
BEGIN
    descendant_ids := '{}';
    descendants := '{}';
    LOOP
        PERFORM gristmill.lock_batches(level_ids);
        next_ids := NULL;
        IF cardinality(level_states) = 0 OR level_states && ARRAY['blocked', 'paused'] THEN
            SELECT array_agg(c.batch_id), array_agg(c.positions) INTO next_ids, next_positions FROM (
                SELECT k.batch_id, range_agg(r) AS positions
                FROM unnest(level_ids, level_positions) AS m (batch_id, positions)
                JOIN gristmill.blocked w ON w.batch_id = m.batch_id AND w.family IS NOT NULL AND w.positions && m.positions
                    AND (cardinality(level_states) = 0
                        OR CASE WHEN w.pauses IS NULL THEN 'blocked' ELSE 'paused' END = ANY (level_states))
                CROSS JOIN LATERAL gristmill.children_of(w.batch_id, w.family, w.positions * m.positions) k
                CROSS JOIN LATERAL unnest(k.positions) r
                GROUP BY k.batch_id
            ) c;
        END IF;
        level_cancelled := gristmill.cancel_jobs(level_ids, level_positions, level_states, now_ms);
        cancelled := coalesce(cancelled, level_cancelled);
        PERFORM FROM gristmill.keyed k WHERE k.batch_id = ANY (level_ids);
        IF FOUND THEN
            PERFORM gristmill.release_keys(array_agg(r.batch_id), array_agg(r.positions), false, now_ms)
            FROM gristmill.report r WHERE r.batch_id = ANY (level_ids) AND r.state <> 'completed';
        END IF;
        EXIT WHEN next_ids IS NULL;
        descendant_ids := descendant_ids || next_ids;
        descendants := descendants || next_positions;
        level_ids := next_ids;
        level_positions := next_positions;
        level_states := '{}';
    END LOOP;
END
$$;

-- Goes on with the parents of children that have ended: those without open children can be claimed, to finalize; and where
-- that is their policy, those of whose children one has failed are dead, and their other children cancelled. Returns how
-- many can be claimed, and what has ended.
CREATE FUNCTION gristmill.settle_children(
    child_id bigint, parent_id bigint, parent_part integer, ended int4multirange, now_ms bigint,
    OUT claimable bigint, OUT ended_ids bigint[], OUT ended_positions int4multirange[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    waiting gristmill.blocked%ROWTYPE;
    parents integer[]; -- of the children that have ended, or of others
    policy text;
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
    SELECT coalesce(c.parents, s.parents), c.bounds, s.on_failure INTO parents, bounds, policy
        FROM gristmill.suspension s JOIN gristmill.child_batch c ON c.batch_id = child_id
        WHERE s.batch_id = settle_children.parent_id AND s.family = waiting.family;
    touched := ARRAY(
        SELECT DISTINCT parents[t.place] FROM unnest(ended * int4multirange(int4range(0, bounds[cardinality(bounds)]))) r
        CROSS JOIN LATERAL generate_series(width_bucket(lower(r), bounds), width_bucket(upper(r) - 1, bounds)) t (place)
        WHERE waiting.positions @> parents[t.place]);
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
    IF cardinality(done) > 0 THEN
        -- What was spawned last is open the longest.
        FOR brood IN SELECT c.batch_id, coalesce(c.parents, s.parents) AS parents, c.bounds
            FROM gristmill.child_batch c JOIN gristmill.suspension s ON s.batch_id = c.parent_id AND s.family = c.family
            WHERE c.parent_id = settle_children.parent_id AND c.family = waiting.family ORDER BY c.batch_id DESC
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
        -- What is paused stays, and waits for nothing but that.
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
        PERFORM gristmill.release_keys(ARRAY[parent_id], ARRAY[failed_positions], false, now_ms);
    END IF;
    SELECT coalesce(array_agg(k.batch_id), '{}'), coalesce(array_agg(k.positions), '{}') INTO child_ids, child_positions
        FROM gristmill.children_of(parent_id, waiting.family, failed_positions) k;
    SELECT * INTO tree FROM gristmill.cancel_tree(child_ids, child_positions, '{}', now_ms);
    ended_ids := child_ids || tree.descendant_ids || parent_id;
    ended_positions := child_positions || tree.descendants || failed_positions;
END
$$;

-- Settles the edges that lead to jobs which have ended: of these batches, among these positions. What waits in vain ends,
-- with all that waits for it in turn, and lets go of its keys; parents go on whose children have ended. Returns how many
-- jobs can be claimed now. What was ended must be written.
CREATE FUNCTION gristmill.settle(batch_ids bigint[], meant int4multirange[], now_ms bigint) RETURNS bigint
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
    brood record;
    verdict record;
    freed bigint;
    claimable bigint := 0;
BEGIN
    LOOP
        -- Who ends the rest of what an edge leads to waits here, and then sees what is ended by now.
        SELECT bool_or(l.is_family) INTO has_families FROM (
            SELECT e.on_failure = 'children' AS is_family
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
            WHERE e.first_position < coalesce(upper(n.positions), 2147483647) AND e.on_failure <> 'children'
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
            WHERE e.on_failure NOT IN ('ignore', 'children')
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
                    USING unnest(vain, vain_parts, vain_policies, causes, cause_positions) AS k (batch_id, part, on_failure, cause, positions)
                    WHERE b.batch_id = k.batch_id AND b.part = k.part
                    RETURNING b.batch_id, b.attempt, b.count, b.positions, k.on_failure, k.cause, k.positions AS of_cause
                ), reported AS (
                    INSERT INTO gristmill.report (batch_id, first_position, attempt, finished_at, count, state, positions)
                    SELECT batch_id, lower(positions), CASE on_failure WHEN 'fail' THEN attempt ELSE attempt - 1 END, now_ms, count,
                        CASE on_failure WHEN 'fail' THEN 'dead' ELSE 'cancelled' END, positions FROM ended
                )
                SELECT array_agg(batch_id), array_agg(positions), array_agg(on_failure), array_agg(cause), array_agg(of_cause)
                    INTO gone, gone_positions, gone_policies, gone_causes, gone_cause_positions FROM ended;
                INSERT INTO gristmill.failure (batch_id, lease_id, duration_us, failed_at, position, attempt, error)
                SELECT k.batch_id, 0, 0, now_ms, u.position, 0, json_build_object('type', 'prerequisite', 'message',
                    format('job %s:%s, which it waited for, ended as %s', k.cause, c.position, c.state), 'permanent', true)
                FROM unnest(gone, gone_positions, gone_policies, gone_causes, gone_cause_positions)
                    AS k (batch_id, positions, on_failure, cause, cause_positions)
                CROSS JOIN LATERAL (
                    SELECT r.state, lower(r.positions * coalesce(k.cause_positions::int4multirange, '{(,)}')) AS position
                    FROM gristmill.report r WHERE r.batch_id = k.cause AND r.state <> 'completed'
                        AND r.positions && coalesce(k.cause_positions::int4multirange, '{(,)}') ORDER BY 2 LIMIT 1
                ) c
                CROSS JOIN LATERAL gristmill.unpacked(k.positions) AS u (position)
                WHERE k.on_failure = 'fail'
                ON CONFLICT DO NOTHING;
                PERFORM FROM gristmill.keyed k WHERE k.batch_id = ANY (gone);
                IF FOUND THEN
                    PERFORM gristmill.release_keys(gone, gone_positions, false, now_ms);
                END IF;
            END IF;

            WITH free AS (
                DELETE FROM gristmill.blocked b USING (
                    SELECT DISTINCT k.batch_id, k.part FROM unnest(waiting, waiting_parts) AS k (batch_id, part)) k
                WHERE b.batch_id = k.batch_id AND b.part = k.part
                    AND b.pauses IS NULL AND NOT EXISTS (SELECT FROM gristmill.edge e WHERE e.batch_id = b.batch_id AND e.part = b.part)
                RETURNING b.*
            ), claimable AS (
                INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, positions,
                    awaited, family)
                SELECT b.id, coalesce(f.run_at, b.run_at), f.expires_at, b.lane_id, f.attempt, f.rescues, f.count,
                    greatest(octet_length(b.payloads) / b.count, 1), coalesce(f.rank, -b.priority::integer), f.positions,
                    EXISTS (SELECT FROM gristmill.edge e WHERE e.prerequisite_id = b.id), f.family
                FROM free f JOIN gristmill.batch b ON b.id = f.batch_id
                RETURNING count
            )
            SELECT coalesce(sum(count), 0) INTO freed FROM claimable;
            claimable := claimable + freed;
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

        IF coalesce(cardinality(gone), 0) = 0 THEN
            RETURN claimable;
        END IF;
        ended := gone;
        spans := gone_positions;
    END LOOP;
END
$$;

-- The same, of all positions up to these.
CREATE OR REPLACE FUNCTION gristmill.settle(batch_ids bigint[], last_positions integer[], now_ms bigint) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT gristmill.settle(batch_ids,
        ARRAY(SELECT int4multirange(int4range(0, least(n.last, 1000000) + 1)) FROM unnest(last_positions) WITH ORDINALITY AS n (last, number)
            ORDER BY n.number), now_ms);
$$;

-- As before, with the descendants of what waited for its children.
CREATE OR REPLACE FUNCTION gristmill.cancel_with_keys(batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tree record;
BEGIN
    SELECT * INTO tree FROM gristmill.cancel_tree(batch_ids, meant, states, now_ms);
    IF cardinality(tree.descendant_ids) > 0 AND gristmill.settle(tree.descendant_ids, tree.descendants, now_ms) > 0 THEN
        PERFORM gristmill.wake();
    END IF;
    RETURN tree.cancelled;
END
$$;

-- As retry_jobs, for jobs whose keys no other job has by now. Of jobs with the same key, the first one has it.
CREATE OR REPLACE FUNCTION gristmill.retry_with_keys(batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint) RETURNS bigint
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

-- Cancels jobs that are not over. Returns how many there were; what waits for them and is cancelled with them is not
-- counted, nor are their children. A worker that runs one of them is told by its next heartbeat, and its report of it is
-- refused.
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
    IF gristmill.settle(batch_ids, meant, now_ms) > 0 THEN
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
            awaited, family)
        SELECT s.batch_id, s.run_at, s.expires_at, s.lane_id, s.attempt, s.rescues, gristmill.count(r.taken), s.job_bytes,
            new_rank, r.taken, s.awaited, s.family
        FROM raised r JOIN gristmill.slice s ON s.batch_id = r.batch_id AND s.id = r.id
    ), shortened AS (
        UPDATE gristmill.slice s SET positions = r.rest, count = gristmill.count(r.rest)
        FROM raised r WHERE s.batch_id = r.batch_id AND s.id = r.id AND NOT isempty(r.rest)
    )
    DELETE FROM gristmill.slice s USING raised r WHERE s.batch_id = r.batch_id AND s.id = r.id AND isempty(r.rest);
END
$$;

-- Locks what stands behind children of these batches that end and spawn siblings: in the order in which it is locked when
-- they are settled.
CREATE FUNCTION gristmill.lock_parents(child_ids bigint[]) RETURNS void
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

REVOKE EXECUTE ON FUNCTION gristmill.lock_parents(bigint[]), gristmill.cancel_tree(bigint[], int4multirange[], text[], bigint),
    gristmill.settle_children(bigint, bigint, integer, int4multirange, bigint),
    gristmill.settle(bigint[], int4multirange[], bigint) FROM PUBLIC;
