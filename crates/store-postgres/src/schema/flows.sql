-- Flows: jobs that run step by step. See flow.rs in the crate `store`.

-- Whether jobs run as a step of a flow that runs again when any child ends, so that others may be open still.
CREATE OR REPLACE FUNCTION gristmill.wakes_on_any(batch_id bigint, family bigint) RETURNS boolean
LANGUAGE sql STABLE
RETURN EXISTS (SELECT FROM gristmill.suspension s WHERE s.batch_id = $1 AND s.family = $2 AND s.flow = 'any');

-- Whether the jobs of a batch are steps of flows.
CREATE OR REPLACE FUNCTION gristmill.is_step(batch_id bigint) RETURNS boolean
LANGUAGE sql STABLE
RETURN EXISTS (SELECT FROM gristmill.child_batch c JOIN gristmill.suspension s ON s.batch_id = c.parent_id AND s.family = c.family
    WHERE c.batch_id = $1 AND s.flow IS NOT NULL);

-- Notes the flows among jobs that are about to be cancelled that are to be cleaned up after. The batches are locked.
CREATE OR REPLACE FUNCTION gristmill.note_cleanups(batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM gristmill.suspension s WHERE s.batch_id = ANY (batch_ids) AND s.cleanup_ms IS NOT NULL) THEN
        WITH open AS (
            SELECT s.batch_id, s.family, s.positions, false AS was_running FROM gristmill.slice s
            WHERE s.batch_id = ANY (batch_ids) AND s.family IS NOT NULL
                AND (cardinality(states) = 0 OR CASE WHEN s.run_at <= now_ms THEN 'waiting' ELSE 'scheduled' END = ANY (states))
            UNION ALL
            SELECT h.batch_id, h.family, h.positions, true FROM gristmill.held h
            WHERE h.batch_id = ANY (batch_ids) AND h.family IS NOT NULL
                AND (cardinality(states) = 0 OR 'running' = ANY (states))
            UNION ALL
            SELECT w.batch_id, w.family, w.positions, false FROM gristmill.blocked w
            WHERE w.batch_id = ANY (batch_ids) AND w.family IS NOT NULL
                AND (cardinality(states) = 0 OR CASE WHEN w.pauses IS NULL THEN 'blocked' ELSE 'paused' END = ANY (states))
        )
        INSERT INTO gristmill.cleanup (batch_id, positions, begins_at, was_running, within_ms)
        SELECT o.batch_id, range_agg(r), now_ms, o.was_running, s.cleanup_ms
        FROM unnest(batch_ids, meant) AS m (batch_id, positions) JOIN open o ON o.batch_id = m.batch_id
        JOIN gristmill.suspension s ON s.batch_id = o.batch_id AND s.family = o.family AND s.cleanup_ms IS NOT NULL
        CROSS JOIN LATERAL unnest(o.positions * m.positions) r
        WHERE NOT EXISTS (SELECT FROM gristmill.cleanup u WHERE u.batch_id = o.batch_id AND u.ends_at IS NOT NULL)
        GROUP BY o.batch_id, o.was_running, s.cleanup_ms;
    END IF;
    -- Flows whose steps a worker runs, and theirs, are noted by now.
    IF EXISTS (SELECT FROM gristmill.cleanup u WHERE u.begins_at = now_ms AND NOT u.was_running) THEN
        UPDATE gristmill.cleanup u SET was_running = true WHERE u.begins_at = now_ms AND NOT u.was_running AND u.batch_id IN (
            WITH RECURSIVE up (id) AS (
                SELECT c.parent_id FROM unnest(batch_ids, meant) AS m (batch_id, positions)
                JOIN gristmill.held h ON h.batch_id = m.batch_id AND h.positions && m.positions
                JOIN gristmill.child_batch c ON c.batch_id = h.batch_id
                WHERE cardinality(states) = 0 OR 'running' = ANY (states)
                UNION
                SELECT c.parent_id FROM up JOIN gristmill.child_batch c ON c.batch_id = up.id
            ) SELECT id FROM up
        );
    END IF;
END
$$;

-- Takes over the cleanup after these flows, of different batches; or none begins, and they can be retried. Returns whether it could: not
-- if it has begun for one of them.
CREATE OR REPLACE FUNCTION gristmill.take_cleanups(batch_ids bigint[], flows int4multirange[], begins boolean) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM gristmill.batch WHERE id = ANY (batch_ids) ORDER BY id FOR NO KEY UPDATE;
    PERFORM FROM unnest(batch_ids, flows) AS f (batch_id, positions) LEFT JOIN LATERAL (
        SELECT range_agg(r) AS positions FROM gristmill.cleanup u CROSS JOIN LATERAL unnest(u.positions) r
        WHERE u.batch_id = f.batch_id AND u.begins_at IS NOT NULL
    ) noted ON true
    WHERE NOT coalesce(noted.positions, '{}') @> f.positions;
    IF FOUND THEN
        RETURN false;
    END IF;
    UPDATE gristmill.cleanup u SET positions = u.positions - f.positions FROM unnest(batch_ids, flows) AS f (batch_id, positions)
        WHERE u.batch_id = f.batch_id AND u.begins_at IS NOT NULL AND u.positions && f.positions;
    DELETE FROM gristmill.cleanup u WHERE u.batch_id = ANY (batch_ids) AND isempty(u.positions);
    INSERT INTO gristmill.cleanup (batch_id, positions)
        SELECT f.batch_id, f.positions FROM unnest(batch_ids, flows) AS f (batch_id, positions) WHERE begins;
    RETURN true;
END
$$;

-- Keeps still what reports of a worker concern, before it locks what its leases hold: the batches whose positions come back, and the open
-- children of flows that end, or that wait again and have seen them (`seeing` names their batches). A child that ends meanwhile sees the
-- edge that its flow adds, or the flow sees that it has ended. Returns the batches of these children; NULL where there are none.
CREATE OR REPLACE FUNCTION gristmill.lock_reported(
    worker bigint, lease_ids bigint[], batch_ids bigint[], attempts integer[], meant int4multirange[], seeing bigint[], back bigint[]
) RETURNS bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    flows bigint[];
    child_ids bigint[];
    locked bigint[];
BEGIN
    LOOP
        SELECT array_agg(DISTINCT h.batch_id), array_agg(DISTINCT k.batch_id) INTO flows, child_ids
        FROM unnest(lease_ids, batch_ids, attempts, meant) AS r (lease_id, batch_id, attempt, positions)
        JOIN gristmill.held h ON h.lease_id = r.lease_id AND h.batch_id = r.batch_id AND h.attempt = r.attempt
            AND h.worker_id = worker AND h.family IS NOT NULL AND h.positions && r.positions
        JOIN gristmill.suspension s ON s.batch_id = h.batch_id AND s.family = h.family
            AND (s.flow = 'any' OR (s.flow IS NOT NULL AND h.batch_id = ANY (seeing)))
        CROSS JOIN LATERAL gristmill.open_children(h.batch_id, h.family, h.positions * r.positions) k;
        IF locked IS NULL THEN
            PERFORM FROM gristmill.batch WHERE id = ANY (back || flows) ORDER BY id FOR SHARE;
        END IF;
        EXIT WHEN child_ids IS NULL OR child_ids <@ locked;
        -- Until these were locked, they may have spawned siblings.
        PERFORM gristmill.lock_batches(child_ids);
        locked := coalesce(locked, '{}') || child_ids;
    END LOOP;
    RETURN locked;
END
$$;

-- Cancels the children that flows leave open where they end after they ran as these families, with their descendants. Returns what that
-- ended; the caller settles it.
CREATE OR REPLACE FUNCTION gristmill.cancel_left_open(
    batch_ids bigint[], families bigint[], meant int4multirange[], now_ms bigint,
    OUT ended_ids bigint[], OUT ended_positions int4multirange[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    child_ids bigint[];
    children int4multirange[];
BEGIN
    SELECT array_agg(k.batch_id), array_agg(k.positions) INTO child_ids, children
        FROM gristmill.left_open(batch_ids, families, meant) k;
    IF child_ids IS NOT NULL THEN
        SELECT t.ended_ids, t.ended_positions INTO ended_ids, ended_positions
            FROM gristmill.cancel_trees(child_ids, children, '{}', now_ms) t;
    END IF;
END
$$;

-- Leaves only these parents in a family, with their memos; without parents, deletes it. The row is locked. Batches in which they have no
-- children are no longer of the family; the bounds of the others stay those of all who were in it.
CREATE OR REPLACE FUNCTION gristmill.narrow_family(batch_id bigint, family bigint, parents integer[], memos text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM gristmill.child_batch c USING gristmill.suspension s
        WHERE s.batch_id = narrow_family.batch_id AND s.family = narrow_family.family
            AND c.parent_id = s.batch_id AND c.family = s.family AND NOT EXISTS (
                SELECT FROM ROWS FROM (unnest(coalesce(c.parents, s.parents)), unnest(c.bounds), unnest(c.bounds[2:]))
                    AS b (parent, first, last)
                WHERE b.parent = ANY (narrow_family.parents) AND b.first < b.last);
    IF cardinality(parents) = 0 THEN
        DELETE FROM gristmill.suspension s WHERE s.batch_id = narrow_family.batch_id AND s.family = narrow_family.family;
        RETURN;
    END IF;
    UPDATE gristmill.child_batch c SET parents = s.parents FROM gristmill.suspension s
        WHERE s.batch_id = narrow_family.batch_id AND s.family = narrow_family.family
            AND c.parent_id = s.batch_id AND c.family = s.family AND c.parents IS NULL;
    UPDATE gristmill.suspension s SET parents = narrow_family.parents, memos = narrow_family.memos
        WHERE s.batch_id = narrow_family.batch_id AND s.family = narrow_family.family;
END
$$;

-- Completes jobs that wait for events, with these values: each a JSON array of one. The caller has locked their rows of `blocked`, and
-- settles the edges that lead to them.
CREATE OR REPLACE FUNCTION gristmill.complete_signals(batch_id bigint, positions integer[], "values" text[], now_ms bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    gone CONSTANT int4multirange := (SELECT range_agg(int4range(p, p + 1)) FROM unnest(complete_signals.positions) p);
BEGIN
    DELETE FROM gristmill.blocked w WHERE w.batch_id = complete_signals.batch_id AND gone @> w.positions;
    UPDATE gristmill.blocked w SET positions = w.positions - gone, count = gristmill.count(w.positions - gone)
        WHERE w.batch_id = complete_signals.batch_id AND w.positions && gone;
    INSERT INTO gristmill.report (batch_id, first_position, attempt, finished_at, count, state, positions, durations,
        durations_sum_us, duration_buckets, "values")
    SELECT complete_signals.batch_id, e.position, 1, now_ms, 1, 'completed', int4multirange(int4range(e.position, e.position + 1)), '[0]',
        0, '0:1', e.value
    FROM unnest(complete_signals.positions, complete_signals."values") AS e (position, value);
END
$$;

-- The oldest open job that waits for an event of this flow.
CREATE OR REPLACE FUNCTION gristmill.awaiting_event(flow_id bigint, flow_position integer, name text)
RETURNS TABLE (batch_id bigint, "position" integer)
LANGUAGE sql STABLE STRICT ROWS 1
BEGIN ATOMIC
    SELECT w.batch_id, lower(w.positions * k.children)
    FROM (
        SELECT c.batch_id, int4multirange(int4range(c.bounds[p.place], c.bounds[p.place + 1])) AS children
        FROM gristmill.child_batch c JOIN gristmill.suspension s ON s.batch_id = c.parent_id AND s.family = c.family
        CROSS JOIN LATERAL width_bucket($2, coalesce(c.parents, s.parents)) AS p (place)
        WHERE c.parent_id = $1 AND c.event = $3 AND (coalesce(c.parents, s.parents))[p.place] = $2
    ) k JOIN gristmill.blocked w ON w.batch_id = k.batch_id AND w.positions && k.children
    ORDER BY 1, 2 LIMIT 1;
END;

-- Sends events to flows: each value a JSON array of one. An event ends the oldest job of the flow that waits for it, or is kept until the
-- flow awaits it. Returns for each event what became of it: delivered, kept, ended (the flow), unknown (the flow) or full; and how many
-- jobs have become claimable.
CREATE OR REPLACE FUNCTION gristmill.send_events(
    flow_ids bigint[], flow_positions integer[], names text[], "values" text[], now_ms bigint, OUT receipts text[], OUT claimable bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept_max CONSTANT integer := 1000;
    receipt text;
    awaiting record;
    ended_ids bigint[] := '{}';
    ended_positions integer[] := '{}';
BEGIN
    receipts := '{}';
    claimable := 0;
    -- A flow that begins to wait meanwhile sees the kept event, or is seen.
    PERFORM FROM gristmill.batch WHERE id = ANY (flow_ids) ORDER BY id FOR NO KEY UPDATE;
    PERFORM FROM gristmill.blocked b JOIN (
            SELECT DISTINCT a.batch_id FROM unnest(flow_ids, flow_positions, names) AS e (flow_id, flow_position, name)
            CROSS JOIN LATERAL gristmill.awaiting_event(e.flow_id, e.flow_position, e.name) a
        ) a USING (batch_id)
        ORDER BY b.batch_id, b.part FOR UPDATE OF b;
    FOR n IN 1 .. cardinality(flow_ids) LOOP
        receipt := NULL;
        IF NOT EXISTS (SELECT FROM gristmill.batch b WHERE b.id = flow_ids[n] AND flow_positions[n] < b.count) THEN
            receipt := 'unknown';
        END IF;
        WHILE receipt IS NULL LOOP
            SELECT * INTO awaiting FROM gristmill.awaiting_event(flow_ids[n], flow_positions[n], names[n]);
            EXIT WHEN NOT FOUND;
            -- Where it ended meanwhile, or stands in another row, the next look sees that.
            PERFORM FROM gristmill.blocked b WHERE b.batch_id = awaiting.batch_id AND b.positions @> awaiting.position FOR UPDATE;
            IF FOUND THEN
                PERFORM gristmill.complete_signals(awaiting.batch_id, ARRAY[awaiting.position], ARRAY["values"[n]], now_ms);
                ended_ids := ended_ids || awaiting.batch_id;
                ended_positions := ended_positions || awaiting.position;
                receipt := 'delivered';
            END IF;
        END LOOP;
        IF receipt IS NULL THEN
            IF NOT EXISTS (
                SELECT FROM gristmill.slice s WHERE s.batch_id = flow_ids[n] AND s.positions @> flow_positions[n]
                UNION ALL SELECT FROM gristmill.held h WHERE h.batch_id = flow_ids[n] AND h.positions @> flow_positions[n]
                UNION ALL SELECT FROM gristmill.blocked w WHERE w.batch_id = flow_ids[n] AND w.positions @> flow_positions[n]
            ) THEN
                receipt := 'ended';
            ELSIF kept_max <= (
                SELECT count(*) FROM gristmill.kept_event k WHERE k.batch_id = flow_ids[n] AND k.position = flow_positions[n]
            ) THEN
                receipt := 'full';
            ELSE
                INSERT INTO gristmill.kept_event (batch_id, position, name, value)
                VALUES (flow_ids[n], flow_positions[n], names[n], "values"[n]);
                receipt := 'kept';
            END IF;
        END IF;
        receipts := receipts || receipt;
    END LOOP;
    IF cardinality(ended_ids) > 0 THEN
        SELECT gristmill.settle(array_agg(e.batch_id), array_agg(e.positions), now_ms) INTO claimable FROM (
            SELECT u.batch_id, range_agg(int4range(u.position, u.position + 1)) AS positions
            FROM unnest(ended_ids, ended_positions) AS u (batch_id, position) GROUP BY u.batch_id
        ) e;
    END IF;
END
$$;

-- Gives the events that these ended children of flows got, and that the flows have not read, to the oldest open waits for them. Where
-- none is open, they are kept, before those that were sent later. A flow that begins anew has no wait that stays open. The children of a
-- flow follow one another, the oldest first; the rows of the open waits are locked. The event of a child goes back once, however often
-- flows name the child. Returns what that ended; the caller settles it.
CREATE OR REPLACE FUNCTION gristmill.give_back_events(
    flow_id bigint, flow_positions integer[], child_ids bigint[], child_positions integer[], is_anew boolean, now_ms bigint,
    OUT ended_ids bigint[], OUT ended_positions int4multirange[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unread record;
    taker record;
    flow_before integer;
    first_id bigint; -- of the events of a flow
BEGIN
    FOR unread IN
        SELECT u.number, u.flow_position, u.child_id, u.child_position, c.event, r."values" AS value
        FROM unnest(flow_positions, child_ids, child_positions) WITH ORDINALITY AS u (flow_position, child_id, child_position, number)
        JOIN gristmill.child_batch c ON c.batch_id = u.child_id AND c.event IS NOT NULL
        JOIN gristmill.reported r ON r.batch_id = u.child_id AND r.first_position = u.child_position AND r.state = 'completed'
        ORDER BY u.number
    LOOP
        INSERT INTO gristmill.returned_event (batch_id, position) VALUES (unread.child_id, unread.child_position) ON CONFLICT DO NOTHING;
        CONTINUE WHEN NOT FOUND;
        SELECT a.batch_id, a.position INTO taker FROM gristmill.awaiting_event(flow_id, unread.flow_position, unread.event) a
            WHERE NOT is_anew;
        IF FOUND THEN
            PERFORM gristmill.complete_signals(taker.batch_id, ARRAY[taker.position], ARRAY[unread.value], now_ms);
            ended_ids := ended_ids || taker.batch_id;
            ended_positions := ended_positions || int4multirange(int4range(taker.position, taker.position + 1));
            CONTINUE;
        END IF;
        IF flow_before IS DISTINCT FROM unread.flow_position THEN
            flow_before := unread.flow_position;
            SELECT coalesce(min(k.id), 0) - cardinality(child_ids) - 1 INTO first_id
                FROM gristmill.kept_event k WHERE k.batch_id = flow_id AND k.position = unread.flow_position;
        END IF;
        INSERT INTO gristmill.kept_event (batch_id, position, id, name, value) OVERRIDING SYSTEM VALUE
        VALUES (flow_id, unread.flow_position, first_id + unread.number, unread.event, unread.value);
    END LOOP;
END
$$;

-- Gives new jobs that wait for an event the kept events of their flows, the oldest first. The batches of the flows are locked. Returns
-- what that ended; the caller settles it.
CREATE OR REPLACE FUNCTION gristmill.deliver_kept(
    child_ids bigint[], now_ms bigint, OUT ended_ids bigint[], OUT ended_positions int4multirange[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    child record;
    jobs integer[];
    texts text[];
BEGIN
    FOR child IN
        SELECT c.batch_id, c.parent_id, c.event, c.bounds, coalesce(c.parents, s.parents) AS parents
        FROM gristmill.child_batch c JOIN gristmill.suspension s ON s.batch_id = c.parent_id AND s.family = c.family
        WHERE c.batch_id = ANY (child_ids) AND c.event IS NOT NULL ORDER BY c.batch_id
    LOOP
        WITH due AS MATERIALIZED (
            SELECT k.position, k.id, k.value, child.bounds[p.place] + k.number - 1 AS job
            FROM (
                SELECT e.position, e.id, e.value, (row_number() OVER (PARTITION BY e.position ORDER BY e.id))::integer AS number
                FROM gristmill.kept_event e
                WHERE e.batch_id = child.parent_id AND e.name = child.event AND e.position = ANY (child.parents)
            ) k CROSS JOIN LATERAL width_bucket(k.position, child.parents) AS p (place)
            WHERE k.number <= child.bounds[p.place + 1] - child.bounds[p.place]
        ), taken AS (
            DELETE FROM gristmill.kept_event e USING due d
            WHERE e.batch_id = child.parent_id AND e.position = d.position AND e.id = d.id
        )
        SELECT array_agg(d.job), array_agg(d.value) INTO jobs, texts FROM due d;
        CONTINUE WHEN jobs IS NULL;
        PERFORM gristmill.complete_signals(child.batch_id, jobs, texts, now_ms);
        ended_ids := ended_ids || child.batch_id;
        ended_positions := ended_positions || (SELECT range_agg(int4range(j, j + 1)) FROM unnest(jobs) j);
    END LOOP;
END
$$;

-- Sends an event to a flow. Returns what became of it: `delivered` to a job that waited for it, `kept` until the flow awaits it, or not
-- stored because the flow has `ended`, is `unknown`, or has too many kept events (`full`).
CREATE OR REPLACE FUNCTION gristmill.send_event(id text, name text, value jsonb DEFAULT 'null') RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    value_bytes_max CONSTANT integer := 16777216;
    now_ms CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    packed CONSTANT text := '[' || coalesce(send_event.value::text, 'null') || ']';
    sent record;
BEGIN
    PERFORM gristmill.check_name('event', send_event.name);
    IF octet_length(packed) - 2 > value_bytes_max THEN
        RAISE EXCEPTION 'the value of the event has % bytes', octet_length(packed) - 2 USING ERRCODE = 'program_limit_exceeded',
            HINT = format('A value has at most %s bytes.', value_bytes_max);
    END IF;
    SELECT e.receipts[1] AS receipt, e.claimable INTO sent
    FROM gristmill.jobs_by_id(ARRAY[send_event.id]) j
    CROSS JOIN LATERAL gristmill.send_events(ARRAY[j.batch_id], ARRAY[lower(j.positions)], ARRAY[send_event.name], ARRAY[packed], now_ms) e;
    IF sent.claimable > 0 THEN
        PERFORM gristmill.wake();
    END IF;
    RETURN sent.receipt;
END
$$;
