-- Submitting jobs within the transaction of a SQL client, and the parts of it that the store calls, too.

-- Wakes the processes that wait for work, if there are any: each holds a shared lock while it waits. Call it after COMMIT, or in
-- the transaction that submits: a process that goes to sleep before that COMMIT is not woken, and finds the work at its next look.
-- A NOTIFY takes a lock of the whole server at COMMIT, so there is none while all processes are busy.
CREATE OR REPLACE FUNCTION gristmill.wake() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF pg_try_advisory_lock(1196576076, 2) THEN
        PERFORM pg_advisory_unlock(1196576076, 2);
    ELSE
        PERFORM pg_notify('gristmill_work', '');
    END IF;
END
$$;

-- The lane of a queue, a kind and a group. Creates it where it does not exist.
CREATE OR REPLACE FUNCTION gristmill.intern_lane(queue text, kind text, job_group text, lanes_max integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    lane_id integer;
    is_retired boolean;
BEGIN
    SELECT l.id, l.retired INTO lane_id, is_retired FROM gristmill.lane l WHERE l.queue = $1 AND l.kind = $2 AND l.job_group = $3;
    IF is_retired THEN
        UPDATE gristmill.lane l SET retired = false WHERE l.id = lane_id RETURNING l.id INTO lane_id;
    END IF;
    IF lane_id IS NULL THEN
        LOCK TABLE gristmill.lane IN SHARE ROW EXCLUSIVE MODE;
        UPDATE gristmill.lane l SET retired = false WHERE l.queue = $1 AND l.kind = $2 AND l.job_group = $3 AND l.retired;
        SELECT l.id INTO lane_id FROM gristmill.lane l WHERE l.queue = $1 AND l.kind = $2 AND l.job_group = $3;
    END IF;
    IF lane_id IS NULL THEN
        SELECT coalesce(max(l.id), 0) + 1 INTO lane_id FROM gristmill.lane l;
        -- Lanes are deleted: as a rule there are fewer than ids were given.
        IF lane_id > lanes_max AND (SELECT count(*) FROM gristmill.lane) >= lanes_max THEN
            RAISE EXCEPTION 'the store has % combinations of queue, kind and group already, and `%`, `%` and `%` would be one more',
                lanes_max, $1, $2, $3
                USING ERRCODE = 'program_limit_exceeded', HINT = 'Put what varies into the payload.';
        END IF;
        INSERT INTO gristmill.lane (id, queue, kind, job_group) VALUES (lane_id, $1, $2, $3);
    ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
        -- A snapshot that stays does not show that a prune deletes the lane.
        PERFORM FROM gristmill.lane l WHERE l.id = lane_id FOR KEY SHARE;
    END IF;
    RETURN lane_id;
END
$$;

-- The bytes of the payloads, keys and tags of a batch, as `JobLabels` counts them. One without options has neither keys nor
-- tags, and nothing is looked up.
CREATE OR REPLACE FUNCTION gristmill.batch_bytes(batch_id bigint, payload_bytes integer, options text) RETURNS integer
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT payload_bytes + CASE WHEN options IS NULL THEN 0 ELSE
        coalesce((SELECT octet_length(k.keys) FROM gristmill.keyed k WHERE k.batch_id = $1), 0)
        + coalesce((SELECT sum(octet_length(t.name) + octet_length(t.value) + 80) FROM gristmill.tag t WHERE t.batch_id = $1), 0)::integer
        END;
END;

-- Counts the keys and tags of a batch that was stored with payloads alone.
CREATE OR REPLACE FUNCTION gristmill.count_labels(batch_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE gristmill.slice s SET job_bytes = greatest(gristmill.batch_bytes(b.id, octet_length(b.payloads), b.options) / b.count, 1)
    FROM gristmill.batch b WHERE b.id = count_labels.batch_id AND s.batch_id = b.id;
END
$$;

-- Stores one batch of checked items. Returns its id. The rank is the priority, negated; that of the lowest priority, too, fits into
-- its column.
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
    SELECT batch_id, now_ms, coalesce(insert_batch.run_at, now_ms), l.id, count, insert_batch.priority, insert_batch.options, payloads
    FROM gristmill.lane l WHERE l.id = insert_batch.lane_id AND NOT l.retired;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'a prune has deleted the name of the kind, queue and group meanwhile' USING ERRCODE = 'serialization_failure',
            HINT = 'Begin the transaction again.';
    END IF;
    INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, positions)
    VALUES (batch_id, coalesce(insert_batch.run_at, now_ms), insert_batch.expires_at, insert_batch.lane_id, 1, 0, count,
        greatest(octet_length(payloads) / count, 1), -insert_batch.priority, int4multirange(int4range(0, count)));
    RETURN batch_id;
END
$$;

-- Stores the tags of a batch of `jobs` jobs. `first` is the number (from 1) of its first job among all submitted ones.
CREATE OR REPLACE FUNCTION gristmill.insert_tags(batch_id bigint, jobs integer, first integer, tags jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF tags IS NULL THEN
        RETURN;
    ELSIF jsonb_typeof(tags) = 'object' THEN
        INSERT INTO gristmill.tag (batch_id, count, name, value)
        SELECT insert_tags.batch_id, jobs, t.key, t.value FROM jsonb_each_text(tags) t;
    ELSE
        INSERT INTO gristmill.tag (batch_id, count, name, value, positions)
        SELECT insert_tags.batch_id, count(*), t.key, t.value,
            CASE WHEN count(*) < jobs THEN range_agg(int4range((e.number - first)::integer, (e.number - first + 1)::integer)) END
        FROM jsonb_array_elements(tags) WITH ORDINALITY AS e (item, number)
        CROSS JOIN LATERAL jsonb_each_text(CASE jsonb_typeof(e.item) WHEN 'object' THEN e.item ELSE '{}' END) t
        WHERE e.number >= first AND e.number < first + jobs
        GROUP BY t.key, t.value;
    END IF;
    -- A claim reads tags only of batches that say so.
    IF FOUND THEN
        UPDATE gristmill.batch b SET options = (coalesce(b.options::jsonb, '{}') || '{"tagged": true}')::text
        WHERE b.id = insert_tags.batch_id;
    END IF;
END
$$;

-- Makes a batch of this transaction wait for these positions of these batches (for all jobs, where the positions are NULL).
CREATE OR REPLACE FUNCTION gristmill.block_batch(
    batch_id bigint, prerequisites bigint[], prerequisite_positions int4multirange[], on_failure text
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF prerequisites IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO gristmill.edge (prerequisite_id, first_position, batch_id, part, on_failure, positions)
    SELECT p.id, coalesce(lower(p.positions), 0), block_batch.batch_id, 0, block_batch.on_failure, p.positions
    FROM unnest(prerequisites, prerequisite_positions) AS p (id, positions);
    -- The jobs of the batch may read the outcomes of these jobs.
    UPDATE gristmill.batch b SET options = (coalesce(b.options::jsonb, '{}') || jsonb_build_object('prerequisites', (
        SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object('batch', p.id, 'positions', (
            SELECT string_agg(CASE WHEN upper(r) = lower(r) + 1 THEN lower(r)::text ELSE lower(r) || '-' || upper(r) - 1 END, ','
                ORDER BY lower(r))
            FROM unnest(p.positions) AS r))) ORDER BY p.number)
        FROM unnest(prerequisites, prerequisite_positions) WITH ORDINALITY AS p (id, positions, number))))::text
    WHERE b.id = block_batch.batch_id;
    WITH gone AS (
        DELETE FROM gristmill.slice s WHERE s.batch_id = block_batch.batch_id RETURNING s.*
    )
    INSERT INTO gristmill.blocked (batch_id, part, attempt, rescues, count, expires_at, positions)
    SELECT g.batch_id, 0, g.attempt, g.rescues, g.count, g.expires_at, g.positions FROM gone g;
END
$$;

-- Stores those jobs whose keys no other job has, as a batch. Returns the id of each job, or of the job that has its key. The rules are
-- those of `rules/keys.rs` in the crate `store`, which is the original; the test `keys_mean_the_same_by_sql` compares the two.
CREATE OR REPLACE FUNCTION gristmill.submit_keyed(
    lane_id integer, kind text, queue text, items text[], keys text[], tags jsonb, now_ms bigint, run_at bigint,
    expires_at bigint, priority integer, options text, uniqueness jsonb
) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    ten_years_ms CONSTANT bigint := 316224000000;
    given CONSTANT jsonb := coalesce(nullif(uniqueness, 'null'), '{}');
    scope_name CONSTANT text := coalesce(given ->> 'scope', 'kind');
    on_duplicate CONSTANT text := coalesce(given ->> 'on_duplicate', 'skip');
    period_ms bigint;
    scope_id integer;
    lasts integer[];   -- of each job, the number of the last one with its key
    owners bigint[];   -- the batches of the jobs that have the keys
    owned integer[];   -- their positions
    are_open boolean[];
    others bigint[];
    other_positions int4multirange[];
    tree record;
    kept integer[];    -- the numbers of those that are stored
    new_id bigint;
    wrong text;
    taken bigint;
BEGIN
    PERFORM gristmill.check_keys('the option unique', given, ARRAY['scope', 'on_duplicate', 'period_ms']);
    period_ms := gristmill.option_number('unique.period_ms', given -> 'period_ms', 1, ten_years_ms, NULL);
    IF scope_name NOT IN ('kind', 'queue') THEN
        RAISE EXCEPTION 'the option unique.scope is %', quote_literal(left(scope_name, 80))
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give kind or queue.';
    ELSIF on_duplicate NOT IN ('skip', 'replace', 'reject') THEN
        RAISE EXCEPTION 'the option unique.on_duplicate is %', quote_literal(left(on_duplicate, 80))
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give skip, replace or reject. (What runs once more, and what is debounced, is submitted over HTTP.)';
    END IF;
    -- Once more where a prune deletes the first lane meanwhile.
    LOOP
        SELECT CASE scope_name WHEN 'kind' THEN min(l.id) FILTER (WHERE l.kind = submit_keyed.kind) * 2
            ELSE min(l.id) FILTER (WHERE l.queue = submit_keyed.queue) * 2 + 1 END
        INTO scope_id FROM gristmill.lane l;
        PERFORM FROM gristmill.lane l WHERE l.id = scope_id / 2 FOR UPDATE;
        EXIT WHEN FOUND OR scope_id IS NULL;
    END LOOP;

    SELECT array_agg(j.last ORDER BY j.number), array_agg(k.batch_id ORDER BY j.number),
        array_agg(k.position ORDER BY j.number), array_agg(k.open ORDER BY j.number)
    INTO lasts, owners, owned, are_open
    FROM (
        SELECT g.number, g.key, (CASE WHEN g.key IS NULL THEN g.number ELSE max(g.number) OVER (PARTITION BY g.key) END)::integer AS last
        FROM unnest(keys) WITH ORDINALITY AS g (key, number)
    ) j
    LEFT JOIN gristmill.job_key k ON k.scope = scope_id AND k.key = j.key AND (k.open OR k.until > now_ms OR k.rerun IS NOT NULL);
    IF on_duplicate = 'reject' THEN
        SELECT format('the key %L is that of %s', keys[n], coalesce(format('job %s:%s', owners[n], owned[n]), 'two jobs of this submit'))
        INTO wrong FROM generate_subscripts(keys, 1) n WHERE lasts[n] <> n OR owners[n] IS NOT NULL LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION '%', wrong USING ERRCODE = 'unique_violation', HINT = 'Nothing was submitted.';
        END IF;
    ELSE
        -- The replaced jobs; or the jobs that stand for skipped ones, with the higher priority of the two.
        SELECT array_agg(o.id), array_agg(o.positions) INTO others, other_positions FROM (
            SELECT owners[n] AS id, range_agg(int4range(owned[n], owned[n] + 1)) AS positions
            FROM generate_subscripts(keys, 1) n WHERE are_open[n] AND lasts[n] = n GROUP BY 1
        ) o;
        IF others IS NULL THEN
            NULL;
        ELSIF on_duplicate = 'replace' THEN
            SELECT * INTO tree FROM gristmill.cancel_trees(others, other_positions, '{}', now_ms);
            DELETE FROM gristmill.job_key k WHERE k.scope = scope_id AND k.key = ANY (keys) AND k.batch_id = ANY (others);
            PERFORM gristmill.settle(tree.ended_ids, tree.ended_positions, now_ms);
        ELSE
            PERFORM gristmill.raise_jobs(others, other_positions, -submit_keyed.priority);
        END IF;
    END IF;

    SELECT array_agg(n ORDER BY n) INTO kept FROM generate_subscripts(keys, 1) n
    WHERE lasts[n] = n AND (owners[n] IS NULL OR (on_duplicate = 'replace' AND are_open[n]));
    IF kept IS NOT NULL THEN
        new_id := gristmill.insert_batch(
            submit_keyed.lane_id, ARRAY(SELECT items[k.n] FROM unnest(kept) WITH ORDINALITY AS k (n, number) ORDER BY k.number),
            now_ms, submit_keyed.run_at, submit_keyed.expires_at, submit_keyed.priority,
            (coalesce(options::jsonb, '{}') || jsonb_build_object('unique', jsonb_strip_nulls(jsonb_build_object(
                'scope', scope_name, 'on_duplicate', on_duplicate, 'period_ms', period_ms))))::text);
        INSERT INTO gristmill.keyed (batch_id, scope, keys)
        SELECT new_id, scope_id, '[' || string_agg(coalesce(to_json(submit_keyed.keys[k.n])::text, 'null'), E'\n,' ORDER BY k.number) || ']'
        FROM unnest(kept) WITH ORDINALITY AS k (n, number);
        WITH taken AS (
            INSERT INTO gristmill.job_key AS j (scope, key, batch_id, position, open, until)
            SELECT scope_id, submit_keyed.keys[k.n], new_id, k.number - 1, true, now_ms + period_ms
            FROM unnest(kept) WITH ORDINALITY AS k (n, number) WHERE submit_keyed.keys[k.n] IS NOT NULL
            ORDER BY submit_keyed.keys[k.n] COLLATE "C"
            ON CONFLICT (scope, key) DO UPDATE SET batch_id = excluded.batch_id, position = excluded.position, open = true,
                until = excluded.until, rerun = NULL
            WHERE NOT j.open AND (j.until IS NULL OR j.until <= now_ms) AND j.rerun IS NULL
            RETURNING 1
        )
        SELECT count(*) INTO taken FROM taken;
        IF taken < (SELECT count(submit_keyed.keys[n]) FROM unnest(kept) n) THEN
            RAISE EXCEPTION 'another job has taken one of the keys meanwhile' USING ERRCODE = 'serialization_failure',
                HINT = 'Begin the transaction again.';
        END IF;
        PERFORM gristmill.insert_tags(new_id, cardinality(kept), 1, CASE jsonb_typeof(tags)
            WHEN 'array' THEN (SELECT jsonb_agg(tags -> (k.n - 1) ORDER BY k.number) FROM unnest(kept) WITH ORDINALITY AS k (n, number))
            ELSE tags END);
        PERFORM gristmill.count_labels(new_id);
    END IF;
    RETURN QUERY
    SELECT CASE WHEN k.number IS NULL THEN owners[lasts[d.n]] || ':' || owned[lasts[d.n]] ELSE new_id || ':' || (k.number - 1) END
    FROM generate_subscripts(keys, 1) AS d (n) LEFT JOIN unnest(kept) WITH ORDINALITY AS k (n, number) ON k.n = lasts[d.n]
    ORDER BY d.n;
END
$$;

-- Stores jobs of one kind, and returns their ids in the order of the payloads. Workers claim them once the caller's transaction
-- commits; after a rollback they never existed. They are packed into batches of up to 10,000 jobs (BATCH_JOBS_MAX) and 1 MiB of
-- payloads (BATCH_BYTES_TARGET); a larger payload has a batch to itself. The options carry tags, keys and prerequisites.
CREATE OR REPLACE FUNCTION gristmill.submit(
    kind text, payloads json[], queue text DEFAULT 'default', priority integer DEFAULT 0,
    run_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, options jsonb DEFAULT '{}'
) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    jobs_max CONSTANT integer := 10000;
    bytes_max CONSTANT integer := 1048576;
    payload_bytes_max CONSTANT integer := 16777216;
    lanes_max CONSTANT integer := 1000000;
    now_ms CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    run_at_ms CONSTANT bigint := gristmill.milliseconds('run_at', submit.run_at);
    expires_at_ms CONSTANT bigint := gristmill.milliseconds('expires_at', submit.expires_at);
    extras CONSTANT text[] := ARRAY['tags', 'key', 'keys', 'unique', 'after', 'after_failure'];
    stored_options CONSTANT text :=
        gristmill.batch_options(submit.priority, run_at_ms, expires_at_ms,
            CASE jsonb_typeof(submit.options) WHEN 'object' THEN submit.options - extras ELSE coalesce(submit.options, '{}') END);
    tags CONSTANT jsonb := nullif(submit.options -> 'tags', 'null');
    on_failure CONSTANT text := coalesce(submit.options ->> 'after_failure', 'cancel');
    prerequisites bigint[];
    prerequisite_positions int4multirange[];
    job_group CONSTANT text := coalesce(submit.options ->> 'group', '');
    lane_id integer;
    items text[];
    item text;
    first integer := 1; -- of the batch that is being packed
    number integer := 0;
    bytes bigint := 0;
    ends integer[] := '{}';
    last integer;
    batch_id bigint;
BEGIN
    PERFORM gristmill.check_name('kind', submit.kind), gristmill.check_name('queue', submit.queue);
    IF coalesce(jsonb_typeof(submit.options -> 'group'), 'null') <> 'null' THEN
        PERFORM gristmill.check_name('group', job_group);
    END IF;
    -- An item stands on one line: a line feed between its tokens becomes a blank. (A function called for each item
    -- would take most of the time. OFFSET keeps PostgreSQL from computing each item four times.)
    SELECT array_agg(
        CASE WHEN given.item IS NULL OR octet_length(given.item) > payload_bytes_max OR strpos(given.item, E'\\u') > 0
             THEN gristmill.checked(given.item, given.number) ELSE given.item END ORDER BY given.number
    ) INTO items
    FROM (
        SELECT translate(btrim(p.payload::text, E' \t\n\r'), E'\n\r', '  '), p.number
        FROM unnest(submit.payloads) WITH ORDINALITY AS p (payload, number) OFFSET 0
    ) given (item, number);
    IF items IS NULL THEN
        RETURN;
    END IF;
    FOREACH item IN ARRAY items LOOP
        number := number + 1;
        IF number > first AND (number - first >= jobs_max OR bytes + octet_length(item) > bytes_max) THEN
            ends := ends || (number - 1);
            first := number;
            bytes := 0;
        END IF;
        bytes := bytes + octet_length(item);
    END LOOP;
    PERFORM gristmill.check_tags(tags, number);
    BEGIN
        lane_id := gristmill.intern_lane(submit.queue, submit.kind, job_group, lanes_max);
    EXCEPTION WHEN unique_violation THEN
        -- A transaction that keeps its snapshot does not see that another has made the lane since.
        RAISE EXCEPTION 'another transaction has submitted the first job of kind % to queue % meanwhile',
            quote_literal(submit.kind), quote_literal(submit.queue)
            USING ERRCODE = 'serialization_failure', HINT = 'Begin the transaction again.';
    END;
    IF coalesce(submit.options, '{}') ?| ARRAY['key', 'keys', 'unique'] THEN
        IF nullif(submit.options -> 'after', '[]') IS NOT NULL THEN
            RAISE EXCEPTION 'the options key and after are both given' USING ERRCODE = 'invalid_parameter_value',
                HINT = 'Jobs with keys cannot wait for others: leave out one of the two.';
        ELSIF cardinality(ends) > 0 THEN
            RAISE EXCEPTION 'there are % jobs with keys, or more than % bytes of them', number, bytes_max
                USING ERRCODE = 'program_limit_exceeded', HINT = format('Submit at most %s at a time.', jobs_max);
        END IF;
        RETURN QUERY SELECT gristmill.submit_keyed(lane_id, submit.kind, submit.queue, items,
            gristmill.option_keys(submit.options, number), tags, now_ms, run_at_ms, expires_at_ms, submit.priority,
            stored_options, submit.options -> 'unique');
        PERFORM gristmill.wake();
        RETURN;
    END IF;
    SELECT array_agg(p.id), array_agg(p.positions) INTO prerequisites, prerequisite_positions
    FROM gristmill.option_after(submit.options -> 'after', on_failure) p;
    first := 1;
    FOREACH last IN ARRAY ends || number LOOP
        batch_id := gristmill.insert_batch(
            lane_id, items[first:last], now_ms, run_at_ms, expires_at_ms, submit.priority, stored_options);
        IF tags IS NOT NULL THEN
            PERFORM gristmill.insert_tags(batch_id, last - first + 1, first, tags), gristmill.count_labels(batch_id);
        END IF;
        PERFORM gristmill.block_batch(batch_id, prerequisites, prerequisite_positions, on_failure);
        RETURN QUERY SELECT batch_id || ':' || position FROM generate_series(0, last - first) position;
        first := last + 1;
    END LOOP;
    IF prerequisites IS NOT NULL THEN
        PERFORM gristmill.await(prerequisites),
            gristmill.settle(prerequisites, array_fill(int4multirange '{(,)}', ARRAY[cardinality(prerequisites)]), now_ms);
    END IF;
    PERFORM gristmill.wake();
END
$$;

CREATE OR REPLACE FUNCTION gristmill.submit(
    kind text, payloads jsonb[], queue text DEFAULT 'default', priority integer DEFAULT 0,
    run_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, options jsonb DEFAULT '{}'
) RETURNS SETOF text
LANGUAGE sql
BEGIN ATOMIC
    SELECT gristmill.submit(kind, payloads::json[], queue, priority, run_at, expires_at, options);
END;

-- Stores one job, and returns its id.
CREATE OR REPLACE FUNCTION gristmill.submit(
    kind text, payload json, queue text DEFAULT 'default', priority integer DEFAULT 0,
    run_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, options jsonb DEFAULT '{}'
) RETURNS text
LANGUAGE sql
BEGIN ATOMIC
    SELECT gristmill.submit(kind, ARRAY[payload], queue, priority, run_at, expires_at, options);
END;

CREATE OR REPLACE FUNCTION gristmill.submit(
    kind text, payload jsonb, queue text DEFAULT 'default', priority integer DEFAULT 0,
    run_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, options jsonb DEFAULT '{}'
) RETURNS text
LANGUAGE sql
BEGIN ATOMIC
    SELECT gristmill.submit(kind, ARRAY[payload::json], queue, priority, run_at, expires_at, options);
END;

-- The text is JSON. PostgreSQL takes this overload for a literal or a parameter without a type.
CREATE OR REPLACE FUNCTION gristmill.submit(
    kind text, payload text, queue text DEFAULT 'default', priority integer DEFAULT 0,
    run_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, options jsonb DEFAULT '{}'
) RETURNS text
LANGUAGE sql
BEGIN ATOMIC
    SELECT gristmill.submit(kind, ARRAY[payload::json], queue, priority, run_at, expires_at, options);
END;
