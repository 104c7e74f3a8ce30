-- Submits from SQL with tags, with deduplication keys, and after other jobs.

-- Refuses tags that jobs cannot have: an object of names and texts, or a list with one (or null) for each of so many jobs.
CREATE FUNCTION gristmill.check_tags(tags jsonb, jobs integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tags_max CONSTANT integer := 32;
    wrong text;
BEGIN
    IF tags IS NULL THEN
        RETURN;
    ELSIF jsonb_typeof(tags) = 'array' AND jsonb_array_length(tags) <> jobs THEN
        RAISE EXCEPTION 'the option tags is a list of %, for % jobs', jsonb_array_length(tags), jobs
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give one object (or null) a job, or one object for all.';
    ELSIF jsonb_typeof(tags) NOT IN ('array', 'object') THEN
        RAISE EXCEPTION 'the option tags is %', left(tags::text, 80) USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give an object such as {"customer": "7"}, or a list with one a job.';
    END IF;
    SELECT left(job::text, 80) INTO wrong
    FROM jsonb_array_elements(CASE jsonb_typeof(tags) WHEN 'array' THEN tags ELSE jsonb_build_array(tags) END) job
    WHERE jsonb_typeof(job) NOT IN ('object', 'null')
        OR (jsonb_typeof(job) = 'object' AND (
            (SELECT count(*) FROM jsonb_object_keys(job)) > tags_max
            OR EXISTS (
                SELECT FROM jsonb_each(job) t
                WHERE octet_length(t.key) NOT BETWEEN 1 AND 100 OR t.key ~ '[=*\u0001-\u001f\u007f-\u009f]'
                    OR jsonb_typeof(t.value) <> 'string' OR octet_length(t.value #>> '{}') > 200
                    OR (t.value #>> '{}') ~ '[\u0001-\u001f\u007f-\u009f]')))
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the tags of a job are %', wrong USING ERRCODE = 'invalid_parameter_value', HINT = format(
            'Give an object of at most %s names (1 to 100 bytes without = and *) and texts (at most 200 bytes), without control characters.',
            tags_max);
    END IF;
END
$$;

-- Stores the tags of a batch of so many jobs, of which the first has this number (from 1) among those that were submitted.
CREATE FUNCTION gristmill.insert_tags(batch_id bigint, jobs integer, first integer, tags jsonb) RETURNS void
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
END
$$;

-- What jobs wait for: batches (`42`), jobs (`42:7`) or some jobs of a batch (`42:0-499,731`), each batch once; the
-- positions are NULL where all are meant. The batches are locked.
CREATE FUNCTION gristmill.option_after(given jsonb, on_failure text) RETURNS TABLE (id bigint, positions int4multirange)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    prerequisites_max CONSTANT integer := 1000;
    wrong text;
    ids bigint[];
    meant int4multirange[];
BEGIN
    IF on_failure NOT IN ('cancel', 'fail', 'ignore') THEN
        RAISE EXCEPTION 'the option after_failure is %', quote_literal(left(on_failure, 80))
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give cancel, fail or ignore.';
    ELSIF coalesce(given, 'null') IN ('null', '[]') THEN
        RETURN;
    ELSIF jsonb_typeof(given) <> 'array' THEN
        RAISE EXCEPTION 'the option after is %', left(given::text, 80) USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give a list such as ["42", "42:7"].';
    ELSIF jsonb_array_length(given) > prerequisites_max THEN
        RAISE EXCEPTION 'the option after names % batches and jobs', jsonb_array_length(given)
            USING ERRCODE = 'program_limit_exceeded',
            HINT = format('Name %s at most: a whole batch counts once, however many jobs it has.', prerequisites_max);
    END IF;
    SELECT left(a.item::text, 80) INTO wrong FROM jsonb_array_elements(given) AS a (item)
    WHERE jsonb_typeof(a.item) <> 'string'
        OR (a.item #>> '{}') !~ '^[0-9]{1,18}(:[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*)?$'
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the option after names %', wrong USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Name a batch ("42"), a job ("42:7") or some jobs of a batch ("42:0-499,731").';
    END IF;
    SELECT array_agg(n.id ORDER BY n.id), array_agg(n.positions ORDER BY n.id) INTO ids, meant FROM (
        SELECT p.id, CASE WHEN NOT bool_or(p.is_whole) THEN range_agg(p.range) END AS positions FROM (
            SELECT split_part(a.item, ':', 1)::bigint AS id, strpos(a.item, ':') = 0 AS is_whole,
                int4range(split_part(r.part, '-', 1)::integer,
                    coalesce(nullif(split_part(r.part, '-', 2), ''), split_part(r.part, '-', 1))::integer, '[]') AS range
            FROM jsonb_array_elements_text(given) AS a (item)
            LEFT JOIN LATERAL string_to_table(split_part(a.item, ':', 2), ',') AS r (part) ON strpos(a.item, ':') > 0
        ) p GROUP BY p.id
    ) n;
    PERFORM gristmill.lock_batches(ids);
    SELECT CASE WHEN b.id IS NULL THEN format('there is no batch %s', m.id)
        ELSE format('batch %s has %s jobs, and none at position %s', m.id, b.count, upper(m.positions) - 1) END
    INTO wrong FROM unnest(ids, meant) AS m (id, positions) LEFT JOIN gristmill.batch b ON b.id = m.id
    WHERE b.id IS NULL OR upper(m.positions) > b.count LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the option after names what there is not: %', wrong USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Name batches and jobs as a submit has returned them.';
    END IF;
    RETURN QUERY SELECT m.id, m.positions FROM unnest(ids, meant) AS m (id, positions);
END
$$;

-- Lets a batch that was stored in this transaction wait for these positions of these batches (all, where they are NULL).
CREATE FUNCTION gristmill.block_batch(
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
    WITH gone AS (
        DELETE FROM gristmill.slice s WHERE s.batch_id = block_batch.batch_id RETURNING s.*
    )
    INSERT INTO gristmill.blocked (batch_id, part, attempt, rescues, count, expires_at, positions)
    SELECT g.batch_id, 0, g.attempt, g.rescues, g.count, g.expires_at, g.positions FROM gone g;
END
$$;

-- The deduplication keys of so many jobs: the option `key` of one, or `keys` of each.
CREATE FUNCTION gristmill.option_keys(options jsonb, jobs integer) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    given CONSTANT jsonb := CASE
        WHEN options ? 'key' AND NOT options ? 'keys' AND jobs = 1 THEN jsonb_build_array(options -> 'key')
        WHEN options ? 'keys' AND NOT options ? 'key' THEN options -> 'keys' END;
    wrong text;
BEGIN
    IF given IS NULL OR jsonb_typeof(given) <> 'array' OR jsonb_array_length(given) <> jobs THEN
        RAISE EXCEPTION 'the options have no key for each of the % jobs', jobs USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give key for one job, or keys: a list with a text (or null) for each.';
    END IF;
    SELECT left(k.item::text, 80) INTO wrong FROM jsonb_array_elements(given) AS k (item)
    WHERE jsonb_typeof(k.item) NOT IN ('string', 'null') OR octet_length(k.item #>> '{}') NOT BETWEEN 1 AND 200
        OR (k.item #>> '{}') ~ '[\u0001-\u001f\u007f-\u009f]' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the key of a job is %', wrong USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give a text of 1 to 200 bytes without control characters, or null.';
    END IF;
    RETURN ARRAY(SELECT k.item #>> '{}' FROM jsonb_array_elements(given) WITH ORDINALITY AS k (item, number) ORDER BY k.number);
END
$$;

-- Stores those of these jobs whose keys no other job has, as a batch, and returns the id of each, or of the job that stands
-- for it.
CREATE FUNCTION gristmill.submit_keyed(
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
    SELECT CASE scope_name WHEN 'kind' THEN min(l.id) FILTER (WHERE l.kind = submit_keyed.kind) * 2
        ELSE min(l.id) FILTER (WHERE l.queue = submit_keyed.queue) * 2 + 1 END
    INTO scope_id FROM gristmill.lane l;
    PERFORM pg_advisory_xact_lock(1196576077, scope_id);

    SELECT array_agg(j.last ORDER BY j.number), array_agg(k.batch_id ORDER BY j.number),
        array_agg(k.position ORDER BY j.number), array_agg(k.open ORDER BY j.number)
    INTO lasts, owners, owned, are_open
    FROM (
        SELECT g.number, g.key, (CASE WHEN g.key IS NULL THEN g.number ELSE max(g.number) OVER (PARTITION BY g.key) END)::integer AS last
        FROM unnest(keys) WITH ORDINALITY AS g (key, number)
    ) j
    LEFT JOIN gristmill.job_key k ON k.scope = scope_id AND k.key = j.key AND (k.open OR k.until > now_ms);
    IF on_duplicate = 'reject' THEN
        SELECT format('the key %L is that of %s', keys[n], coalesce(format('job %s:%s', owners[n], owned[n]), 'two jobs of this submit'))
        INTO wrong FROM generate_subscripts(keys, 1) n WHERE lasts[n] <> n OR owners[n] IS NOT NULL LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION '%', wrong USING ERRCODE = 'unique_violation', HINT = 'Nothing was submitted.';
        END IF;
    ELSE
        -- Those that make room, or those that stand for others, with the higher priority of the two.
        SELECT array_agg(o.id), array_agg(o.positions) INTO others, other_positions FROM (
            SELECT owners[n] AS id, range_agg(int4range(owned[n], owned[n] + 1)) AS positions
            FROM generate_subscripts(keys, 1) n WHERE are_open[n] AND lasts[n] = n GROUP BY 1
        ) o;
        IF others IS NULL THEN
            NULL;
        ELSIF on_duplicate = 'replace' THEN
            PERFORM gristmill.cancel_with_keys(others, other_positions, '{}', now_ms);
            DELETE FROM gristmill.job_key k WHERE k.scope = scope_id AND k.key = ANY (keys) AND k.batch_id = ANY (others);
            PERFORM gristmill.settle(others, array_fill(2147483647, ARRAY[cardinality(others)]), now_ms);
        ELSE
            SELECT array_agg(o.id), array_agg(o.positions) INTO others, other_positions
            FROM unnest(others, other_positions) AS o (id, positions) JOIN gristmill.batch b ON b.id = o.id
            WHERE b.priority < submit_keyed.priority;
            IF others IS NOT NULL THEN
                PERFORM gristmill.raise_jobs(others, other_positions, -submit_keyed.priority);
            END IF;
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
            WHERE NOT j.open AND (j.until IS NULL OR j.until <= now_ms)
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
    END IF;
    RETURN QUERY
    SELECT CASE WHEN k.number IS NULL THEN owners[lasts[d.n]] || ':' || owned[lasts[d.n]] ELSE new_id || ':' || (k.number - 1) END
    FROM generate_subscripts(keys, 1) AS d (n) LEFT JOIN unnest(kept) WITH ORDINALITY AS k (n, number) ON k.n = lasts[d.n]
    ORDER BY d.n;
END
$$;

-- The options of a batch as they are stored: NULL where all are default. The group is its lane's.
CREATE OR REPLACE FUNCTION gristmill.batch_options(priority integer, run_at bigint, expires_at bigint, options jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ten_years_ms CONSTANT bigint := 316224000000;
    retry CONSTANT jsonb := coalesce(nullif(options -> 'retry', 'null'), '{}');
    backoff CONSTANT text := coalesce(retry ->> 'backoff', 'jitter');
    built jsonb;
BEGIN
    IF priority IS NULL OR priority NOT BETWEEN -32768 AND 32767 THEN
        RAISE EXCEPTION 'the priority is %', coalesce(priority::text, 'NULL') USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give -32768 to 32767: higher is claimed first, and 0 is the default.';
    END IF;
    PERFORM gristmill.check_keys('options', options, ARRAY['timeout_ms', 'complete_within_ms', 'retry', 'group',
        'tags', 'key', 'keys', 'unique', 'after', 'after_failure']);
    PERFORM gristmill.check_keys('the option retry', retry, ARRAY['attempts_max', 'backoff', 'delay_ms', 'delay_ms_max']);
    IF backoff NOT IN ('constant', 'linear', 'exponential', 'jitter') THEN
        RAISE EXCEPTION 'the option retry.backoff is %', quote_literal(left(backoff, 80)) USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give constant, linear, exponential or jitter.';
    END IF;
    built := jsonb_strip_nulls(jsonb_build_object(
        'priority', priority, 'run_at', run_at, 'expires_at', expires_at,
        'timeout_ms', gristmill.option_number('timeout_ms', options -> 'timeout_ms', 1, ten_years_ms, NULL),
        'complete_within_ms',
            gristmill.option_number('complete_within_ms', options -> 'complete_within_ms', 1, ten_years_ms, NULL),
        'retry', jsonb_build_object(
            'attempts_max', gristmill.option_number('retry.attempts_max', retry -> 'attempts_max', 1, 1000, 3),
            'backoff', backoff,
            'delay_ms', gristmill.option_number('retry.delay_ms', retry -> 'delay_ms', 0, ten_years_ms, 1000),
            'delay_ms_max', gristmill.option_number('retry.delay_ms_max', retry -> 'delay_ms_max', 0, ten_years_ms, 300000))));
    RETURN nullif(built, '{"priority": 0, "retry":
        {"attempts_max": 3, "backoff": "jitter", "delay_ms": 1000, "delay_ms_max": 300000}}')::text;
END
$$;

-- Stores jobs of one kind, and returns their ids in the order of the payloads. They are claimed once the caller's
-- transaction commits; if it rolls back, they never were. They are packed into batches of up to 10,000 jobs
-- (BATCH_JOBS_MAX) and 1 MiB of payloads (BATCH_BYTES_TARGET); a larger payload has a batch to itself. The options say what
-- tags and keys they have, and what they wait for.
CREATE OR REPLACE FUNCTION gristmill.submit(
    kind text, payloads json[], queue text DEFAULT 'default', priority integer DEFAULT 0,
    run_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, options jsonb DEFAULT '{}'
) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    jobs_max CONSTANT integer := 10000;
    bytes_max CONSTANT integer := 1048576;
    lanes_max CONSTANT integer := 10000;
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
        CASE WHEN given.item IS NULL OR octet_length(given.item) > 16777216 OR strpos(given.item, '\u') > 0
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
        PERFORM gristmill.insert_tags(batch_id, last - first + 1, first, tags);
        PERFORM gristmill.block_batch(batch_id, prerequisites, prerequisite_positions, on_failure);
        RETURN QUERY SELECT batch_id || ':' || position FROM generate_series(0, last - first) position;
        first := last + 1;
    END LOOP;
    IF prerequisites IS NOT NULL THEN
        PERFORM gristmill.await(prerequisites),
            gristmill.settle(prerequisites, array_fill(2147483647, ARRAY[cardinality(prerequisites)]), now_ms);
    END IF;
    PERFORM gristmill.wake();
END
$$;

REVOKE EXECUTE ON FUNCTION gristmill.insert_tags, gristmill.option_after, gristmill.block_batch, gristmill.submit_keyed FROM PUBLIC;
