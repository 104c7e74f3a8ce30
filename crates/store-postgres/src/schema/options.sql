-- Checks of the arguments that SQL clients give. Every error names the argument and the remedy.

-- Refuses a name that no kind, queue, group or reason can have.
CREATE OR REPLACE FUNCTION gristmill.check_name(what text, name text) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name_bytes_max CONSTANT integer := 200;
BEGIN
    IF name IS NULL THEN
        RAISE EXCEPTION 'the % is NULL', what USING ERRCODE = 'null_value_not_allowed',
            HINT = format('Give the name of a %s.', what);
    ELSIF octet_length(name) NOT BETWEEN 1 AND name_bytes_max OR name ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' THEN
        RAISE EXCEPTION 'the name of a % has 1 to % bytes and no control characters: %', what, name_bytes_max,
            quote_literal(left(name, 80))
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Choose another name.';
    END IF;
END
$$;

-- Whether jobs of a batch with these stored options wait for a signal, so that no worker runs them.
CREATE OR REPLACE FUNCTION gristmill.is_signal(options text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(options::jsonb ? 'signal', false);

-- A whole number of an object of options, or its default.
CREATE OR REPLACE FUNCTION gristmill.option_number(name text, given jsonb, lowest bigint, highest bigint, otherwise bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number numeric;
BEGIN
    IF given IS NULL OR given = 'null' THEN
        RETURN otherwise;
    END IF;
    IF jsonb_typeof(given) = 'number' THEN
        number := given;
    END IF;
    IF number IS NULL OR number % 1 <> 0 OR number NOT BETWEEN lowest AND highest THEN
        RAISE EXCEPTION 'the option % is %', name, left(given::text, 80) USING ERRCODE = 'invalid_parameter_value',
            HINT = format('Give a whole number from %s to %s.', lowest, highest);
    END IF;
    RETURN number;
END
$$;

-- Refuses a value that is no object, and an object with unknown keys.
CREATE OR REPLACE FUNCTION gristmill.check_keys(what text, given jsonb, known text[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unknown text;
    near text;
BEGIN
    IF jsonb_typeof(given) <> 'object' THEN
        RAISE EXCEPTION '% must be a JSON object, not %', what, left(given::text, 80) USING ERRCODE = 'invalid_parameter_value',
            HINT = format('Its keys are %s.', array_to_string(known, ', '));
    END IF;
    SELECT key INTO unknown FROM jsonb_object_keys(given) key WHERE key <> ALL (known) LIMIT 1;
    IF FOUND THEN
        SELECT k INTO near FROM unnest(known) k WHERE left(k, 3) = left(unknown, 3) LIMIT 1;
        RAISE EXCEPTION '% cannot have the key %', what, quote_literal(left(unknown, 80)) USING ERRCODE = 'invalid_parameter_value',
            HINT = CASE
                WHEN unknown IN ('queue', 'priority', 'run_at', 'expires_at')
                    THEN format('It is an argument of its own: give %s => ….', unknown)
                WHEN unknown = 'delay_ms' THEN 'Give the argument run_at => now() + ….'
                WHEN unknown IN ('cached_ms', 'on_success', 'on_failure')
                    THEN format('Submit jobs with %s over HTTP, or with gristmill submit.', unknown)
                ELSE coalesce(format('Did you mean %s? ', near), '') || format('Its keys are %s.', array_to_string(known, ', '))
            END;
    END IF;
END
$$;

-- The options of a batch as its row stores them: NULL where all are default. The group is part of the lane.
CREATE OR REPLACE FUNCTION gristmill.batch_options(priority integer, run_at bigint, expires_at bigint, options jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ten_years_ms CONSTANT bigint := 316224000000;
    attempts_max CONSTANT integer := 1000;
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
            'attempts_max', gristmill.option_number('retry.attempts_max', retry -> 'attempts_max', 1, attempts_max, 3),
            'backoff', backoff,
            'delay_ms', gristmill.option_number('retry.delay_ms', retry -> 'delay_ms', 0, ten_years_ms, 1000),
            'delay_ms_max', gristmill.option_number('retry.delay_ms_max', retry -> 'delay_ms_max', 0, ten_years_ms, 300000))));
    RETURN nullif(built, '{"priority": 0, "retry":
        {"attempts_max": 3, "backoff": "jitter", "delay_ms": 1000, "delay_ms_max": 300000}}')::text;
END
$$;

-- Checks a payload that may be too long or broken. Half of a surrogate pair (\ud800) is refused: the grammar of JSON allows it,
-- but no reader can decode it.
CREATE OR REPLACE FUNCTION gristmill.checked(item text, number bigint) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    payload_bytes_max CONSTANT integer := 16777216;
    escapes text;
BEGIN
    IF item IS NULL THEN
        RAISE EXCEPTION 'payload % is NULL', number USING ERRCODE = 'null_value_not_allowed',
            HINT = 'For the null of JSON, give ''null''::json.';
    ELSIF octet_length(item) > payload_bytes_max THEN
        RAISE EXCEPTION 'payload % is % bytes long; the limit is %', number, octet_length(item), payload_bytes_max
            USING ERRCODE = 'program_limit_exceeded', HINT = 'Store it elsewhere, and submit a reference to it.';
    ELSIF item ~ E'\\\\u[dD][89a-fA-F]' THEN
        -- Removes escaped backslashes first, and then whole pairs: the rest are unpaired surrogates.
        escapes := regexp_replace(replace(item, E'\\\\', ''), E'\\\\u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}', '', 'g');
        IF escapes ~ E'\\\\u[dD][89a-fA-F]' THEN
            RAISE EXCEPTION 'payload % has half of a surrogate pair in a string', number
                USING ERRCODE = 'untranslatable_character', HINT = E'Write the whole pair (\\ud83d\\ude00), or the character itself.';
        END IF;
    END IF;
    RETURN item;
END
$$;

-- The batches and positions that ids such as 42:7 name.
CREATE OR REPLACE FUNCTION gristmill.jobs_by_id(ids text[]) RETURNS TABLE (batch_id bigint, positions int4multirange)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wrong text;
BEGIN
    SELECT coalesce(quote_literal(left(id, 80)), 'NULL') INTO wrong FROM unnest(ids) id
    WHERE id IS NULL OR id !~ '^[0-9]{1,18}:[0-9]{1,5}$' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% is not the id of a job', wrong USING ERRCODE = 'invalid_parameter_value',
            HINT = 'An id is a batch and a position in it, as in 42:7.';
    END IF;
    RETURN QUERY SELECT named.batch_id, range_agg(int4range(named.position, named.position, '[]'))
    FROM (SELECT split_part(id, ':', 1)::bigint, split_part(id, ':', 2)::integer FROM unnest(ids) id) named (batch_id, position)
    GROUP BY named.batch_id ORDER BY named.batch_id;
END
$$;

-- Refuses tags that jobs cannot have. Tags are an object of names and texts for all jobs, or a list with an object (or null) for
-- each job.
CREATE OR REPLACE FUNCTION gristmill.check_tags(tags jsonb, jobs integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tags_max CONSTANT integer := 32;
    tag_name_bytes_max CONSTANT integer := 100;
    tag_value_bytes_max CONSTANT integer := 200;
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
                WHERE octet_length(t.key) NOT BETWEEN 1 AND tag_name_bytes_max OR t.key ~ E'[=*\\u0001-\\u001f\\u007f-\\u009f]'
                    OR jsonb_typeof(t.value) <> 'string' OR octet_length(t.value #>> '{}') > tag_value_bytes_max
                    OR (t.value #>> '{}') ~ E'[\\u0001-\\u001f\\u007f-\\u009f]')))
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the tags of a job are %', wrong USING ERRCODE = 'invalid_parameter_value', HINT = format(
            'Give an object of at most %s names (1 to %s bytes without = and *) and texts (at most %s bytes), '
            'without control characters.', tags_max, tag_name_bytes_max, tag_value_bytes_max);
    END IF;
END
$$;

-- The deduplication keys of jobs: the option `key` of one job, or the option `keys` of each.
CREATE OR REPLACE FUNCTION gristmill.option_keys(options jsonb, jobs integer) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    key_bytes_max CONSTANT integer := 200;
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
    WHERE jsonb_typeof(k.item) NOT IN ('string', 'null') OR octet_length(k.item #>> '{}') NOT BETWEEN 1 AND key_bytes_max
        OR (k.item #>> '{}') ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the key of a job is %', wrong USING ERRCODE = 'invalid_parameter_value',
            HINT = format('Give a text of 1 to %s bytes without control characters, or null.', key_bytes_max);
    END IF;
    RETURN ARRAY(SELECT k.item #>> '{}' FROM jsonb_array_elements(given) WITH ORDINALITY AS k (item, number) ORDER BY k.number);
END
$$;

-- The prerequisites that the option `after` names: batches (`42`), jobs (`42:7`) or some jobs of a batch (`42:0-499,731`). Each
-- batch comes once; its positions are NULL where all its jobs are prerequisites. Locks the batches.
CREATE OR REPLACE FUNCTION gristmill.option_after(given jsonb, on_failure text) RETURNS TABLE (id bigint, positions int4multirange)
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
