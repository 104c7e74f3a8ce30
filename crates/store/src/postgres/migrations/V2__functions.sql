-- What people and other programs use: the view `job`, and functions that submit, cancel and retry within the caller's
-- own transaction. The store's own cancel and retry call the same functions.
--
-- What changes something runs with its owner's rights (SECURITY DEFINER) and a pinned search_path, and nobody else may
-- call it until that is granted. What only computes runs with its caller's rights and may be called by anybody; it is
-- written in parsed bodies (BEGIN ATOMIC) or with a pinned search_path, so that no caller's objects stand in for
-- PostgreSQL's own.

-- --- unpacking ---

-- Each of a set of positions. STRICT keeps PostgreSQL from inlining these two: it would expect a million rows of one
-- batch then, and compile a query of milliseconds for a second.
CREATE FUNCTION gristmill.unpacked(positions int4multirange) RETURNS SETOF integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE ROWS 100
BEGIN ATOMIC
    SELECT generate_series(lower(range), upper(range) - 1) FROM unnest(positions) range;
END;

-- Each item of a packed array, in order. A line feed separates items and never stands within one.
CREATE FUNCTION gristmill.unpacked(items text) RETURNS SETOF json
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE ROWS 100
BEGIN ATOMIC
    SELECT item::json FROM string_to_table(substr(items, 2, length(items) - 2), E'\n,') item;
END;

-- How many positions there are.
CREATE FUNCTION gristmill.count(positions int4multirange) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(sum(upper(range) - lower(range)), 0)::integer FROM unnest(positions) range;
END;

-- A stored moment (milliseconds since 1970); infinity where it is later than PostgreSQL knows.
CREATE FUNCTION gristmill.moment(milliseconds bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN milliseconds < 9000000000000000 THEN to_timestamp(milliseconds / 1000.0) ELSE 'infinity' END;

-- --- the view ---

-- One row a job, unpacked from the batches: for people. A condition on batch_id, or a join by it, is fast: it leads
-- to the batch's rows of each table, and those alone are unpacked. Others unpack the whole store. (The LATERAL is what
-- lets PostgreSQL hand a join down; a union of parts under GROUP BY takes constants only.)
CREATE VIEW gristmill.job AS
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
    ) e ON e.position = p.number - 1
) j;

-- --- what is given ---

-- Refuses the name of a kind or queue that no batch can have.
CREATE FUNCTION gristmill.check_name(what text, name text) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF name IS NULL THEN
        RAISE EXCEPTION 'the % is NULL', what USING ERRCODE = 'null_value_not_allowed',
            HINT = format('Give the name of a %s.', what);
    ELSIF octet_length(name) NOT BETWEEN 1 AND 200 OR name ~ '[\u0001-\u001f\u007f-\u009f]' THEN
        RAISE EXCEPTION 'the name of a % has 1 to 200 bytes and no control characters: %', what, quote_literal(left(name, 80))
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Choose another name.';
    END IF;
END
$$;

-- A moment as it is stored: milliseconds since 1970.
CREATE FUNCTION gristmill.milliseconds(what text, moment timestamptz) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF moment NOT BETWEEN '1970-01-01 00:00:00Z' AND '9999-12-31 23:59:59.999Z' THEN
        RAISE EXCEPTION '% is %', what, moment USING ERRCODE = 'datetime_field_overflow',
            HINT = 'Give a moment between the years 1970 and 9999.';
    END IF;
    RETURN floor(extract(epoch FROM moment) * 1000);
END
$$;

-- A whole number from an object of options, or what holds otherwise.
CREATE FUNCTION gristmill.option_number(name text, given jsonb, lowest bigint, highest bigint, otherwise bigint) RETURNS bigint
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

-- Refuses what is no object, and keys that are not known.
CREATE FUNCTION gristmill.check_keys(what text, given jsonb, known text[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unknown text;
BEGIN
    IF jsonb_typeof(given) <> 'object' THEN
        RAISE EXCEPTION '% must be a JSON object, not %', what, left(given::text, 80) USING ERRCODE = 'invalid_parameter_value',
            HINT = format('Its keys are %s.', array_to_string(known, ', '));
    END IF;
    SELECT key INTO unknown FROM jsonb_object_keys(given) key WHERE key <> ALL (known) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% cannot have the key %', what, quote_literal(left(unknown, 80)) USING ERRCODE = 'invalid_parameter_value',
            HINT = format('Its keys are %s.', array_to_string(known, ', '));
    END IF;
END
$$;

-- The options of a batch as they are stored: NULL where all are default.
CREATE FUNCTION gristmill.batch_options(priority integer, run_at bigint, expires_at bigint, options jsonb) RETURNS text
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
    PERFORM gristmill.check_keys('options', options, ARRAY['timeout_ms', 'retry']);
    PERFORM gristmill.check_keys('the option retry', retry, ARRAY['attempts_max', 'backoff', 'delay_ms', 'delay_ms_max']);
    IF backoff NOT IN ('constant', 'linear', 'exponential', 'jitter') THEN
        RAISE EXCEPTION 'the option retry.backoff is %', quote_literal(left(backoff, 80)) USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give constant, linear, exponential or jitter.';
    END IF;
    built := jsonb_strip_nulls(jsonb_build_object(
        'priority', priority, 'run_at', run_at, 'expires_at', expires_at,
        'timeout_ms', gristmill.option_number('timeout_ms', options -> 'timeout_ms', 1, ten_years_ms, NULL),
        'retry', jsonb_build_object(
            'attempts_max', gristmill.option_number('retry.attempts_max', retry -> 'attempts_max', 1, 1000, 3),
            'backoff', backoff,
            'delay_ms', gristmill.option_number('retry.delay_ms', retry -> 'delay_ms', 0, ten_years_ms, 1000),
            'delay_ms_max', gristmill.option_number('retry.delay_ms_max', retry -> 'delay_ms_max', 0, ten_years_ms, 300000))));
    RETURN nullif(built, '{"priority": 0, "retry":
        {"attempts_max": 3, "backoff": "jitter", "delay_ms": 1000, "delay_ms_max": 300000}}')::text;
END
$$;

-- A payload that needs a closer look. Half of a surrogate pair (\ud800) is refused: by its grammar it is JSON, but no
-- text that others could read.
CREATE FUNCTION gristmill.checked(item text, number bigint) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    escapes text;
BEGIN
    IF item IS NULL THEN
        RAISE EXCEPTION 'payload % is NULL', number USING ERRCODE = 'null_value_not_allowed',
            HINT = 'For the null of JSON, give ''null''::json.';
    ELSIF octet_length(item) > 16777216 THEN
        RAISE EXCEPTION 'payload % is % bytes long; the limit is 16777216', number, octet_length(item)
            USING ERRCODE = 'program_limit_exceeded', HINT = 'Store it elsewhere, and submit a reference to it.';
    ELSIF item ~ '\\u[dD][89a-fA-F]' THEN
        -- Backslashes that are escaped themselves go first, then whole pairs: a half is what is left.
        escapes := regexp_replace(replace(item, '\\', ''), '\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}', '', 'g');
        IF escapes ~ '\\u[dD][89a-fA-F]' THEN
            RAISE EXCEPTION 'payload % has half of a surrogate pair in a string', number
                USING ERRCODE = 'untranslatable_character', HINT = 'Write the whole pair (\ud83d\ude00), or the character itself.';
        END IF;
    END IF;
    RETURN item;
END
$$;

-- Which positions of which batches are meant by ids such as 42:7.
CREATE FUNCTION gristmill.jobs_by_id(ids text[]) RETURNS TABLE (batch_id bigint, positions int4multirange)
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

-- --- submit ---

-- Stores one batch of items that are checked already. Returns its id.
CREATE FUNCTION gristmill.insert_batch(
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
        greatest(octet_length(payloads) / count, 1), least(-insert_batch.priority, 32767), int4multirange(int4range(0, count)));
    RETURN batch_id;
END
$$;

-- Stores jobs of one kind, and returns their ids in the order of the payloads. They are claimed once the caller's
-- transaction commits; if it rolls back, they never were. They are packed into batches of up to 10,000 jobs
-- (BATCH_JOBS_MAX) and 1 MiB of payloads (BATCH_BYTES_TARGET); a larger payload has a batch to itself.
CREATE FUNCTION gristmill.submit(
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
    stored_options CONSTANT text :=
        gristmill.batch_options(submit.priority, run_at_ms, expires_at_ms, coalesce(submit.options, '{}'));
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
    BEGIN
        lane_id := gristmill.intern_lane(submit.queue, submit.kind, lanes_max);
    EXCEPTION WHEN unique_violation THEN
        -- A transaction that keeps its snapshot does not see that another has made the lane since.
        RAISE EXCEPTION 'another transaction has submitted the first job of kind % to queue % meanwhile',
            quote_literal(submit.kind), quote_literal(submit.queue)
            USING ERRCODE = 'serialization_failure', HINT = 'Begin the transaction again.';
    END;
    first := 1;
    FOREACH last IN ARRAY ends || number LOOP
        batch_id := gristmill.insert_batch(
            lane_id, items[first:last], now_ms, run_at_ms, expires_at_ms, submit.priority, stored_options);
        RETURN QUERY SELECT batch_id || ':' || position FROM generate_series(0, last - first) position;
        first := last + 1;
    END LOOP;
    PERFORM gristmill.wake();
END
$$;

CREATE FUNCTION gristmill.submit(
    kind text, payloads jsonb[], queue text DEFAULT 'default', priority integer DEFAULT 0,
    run_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, options jsonb DEFAULT '{}'
) RETURNS SETOF text
LANGUAGE sql
BEGIN ATOMIC
    SELECT gristmill.submit(kind, payloads::json[], queue, priority, run_at, expires_at, options);
END;

-- Stores one job, and returns its id.
CREATE FUNCTION gristmill.submit(
    kind text, payload json, queue text DEFAULT 'default', priority integer DEFAULT 0,
    run_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, options jsonb DEFAULT '{}'
) RETURNS text
LANGUAGE sql
BEGIN ATOMIC
    SELECT gristmill.submit(kind, ARRAY[payload], queue, priority, run_at, expires_at, options);
END;

CREATE FUNCTION gristmill.submit(
    kind text, payload jsonb, queue text DEFAULT 'default', priority integer DEFAULT 0,
    run_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, options jsonb DEFAULT '{}'
) RETURNS text
LANGUAGE sql
BEGIN ATOMIC
    SELECT gristmill.submit(kind, ARRAY[payload::json], queue, priority, run_at, expires_at, options);
END;

-- The text is JSON. PostgreSQL takes this one where a literal or a parameter has no type.
CREATE FUNCTION gristmill.submit(
    kind text, payload text, queue text DEFAULT 'default', priority integer DEFAULT 0,
    run_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, options jsonb DEFAULT '{}'
) RETURNS text
LANGUAGE sql
BEGIN ATOMIC
    SELECT gristmill.submit(kind, ARRAY[payload::json], queue, priority, run_at, expires_at, options);
END;

-- --- cancel and retry ---

-- Locks what is open of batches, so that it stays as it is until the end of the transaction: once a batch is locked
-- nothing of it comes back, so its slices can only have become leases, and leases reports. A transaction that calls
-- this more than once locks all of the batches first: whoever gives jobs back holds a batch while it waits for a lease.
CREATE FUNCTION gristmill.lock_batches(batch_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM gristmill.batch WHERE id = ANY (batch_ids) ORDER BY id FOR NO KEY UPDATE;
    PERFORM FROM gristmill.slice WHERE batch_id = ANY (batch_ids) ORDER BY batch_id, id FOR UPDATE;
    PERFORM FROM gristmill.held WHERE batch_id = ANY (batch_ids)
        ORDER BY lease_id, batch_id, attempt, first_position FOR UPDATE;
END
$$;

-- Cancels the open jobs among these positions of these batches (`{(,)}` means all) that are in one of these states
-- (in any, where there are none). Returns how many.
CREATE FUNCTION gristmill.cancel_jobs(batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint) RETURNS bigint
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
    ), shortened_slice AS (
        UPDATE gristmill.slice s SET positions = w.rest, count = gristmill.count(w.rest)
        FROM waiting w WHERE s.batch_id = w.batch_id AND s.id = w.id AND NOT isempty(w.rest)
    ), deleted_slice AS (
        DELETE FROM gristmill.slice s USING waiting w WHERE s.batch_id = w.batch_id AND s.id = w.id AND isempty(w.rest)
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
CREATE FUNCTION gristmill.retry_jobs(batch_ids bigint[], meant int4multirange[], states text[], now_ms bigint) RETURNS bigint
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
        INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, positions)
        SELECT b.id, now_ms, NULL, b.lane_id, 1, 0, gristmill.count(a.positions), greatest(octet_length(b.payloads) / b.count, 1),
            least(-b.priority, 32767), a.positions
        FROM again a JOIN gristmill.batch b ON b.id = a.batch_id
        RETURNING count
    )
    SELECT coalesce(sum(count), 0) INTO retried FROM claimable;
    RETURN retried;
END
$$;

-- Cancels jobs that are not over. Returns how many there were. A worker that runs one of them is told by its next
-- heartbeat, and its report of it is refused.
CREATE FUNCTION gristmill.cancel(ids text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
BEGIN
    RETURN (SELECT gristmill.cancel_jobs(coalesce(array_agg(batch_id), '{}'), coalesce(array_agg(positions), '{}'), '{}', now_ms)
            FROM gristmill.jobs_by_id(cancel.ids));
END
$$;

-- Cancels one job. Returns whether it was not over yet.
CREATE FUNCTION gristmill.cancel(id text) RETURNS boolean
LANGUAGE sql
RETURN gristmill.cancel(ARRAY[id]) = 1;

-- Makes dead, cancelled or expired jobs claimable again, with all their attempts before them. Returns how many there
-- were.
CREATE FUNCTION gristmill.retry(ids text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    retried bigint;
BEGIN
    SELECT gristmill.retry_jobs(coalesce(array_agg(batch_id), '{}'), coalesce(array_agg(positions), '{}'), '{}', now_ms)
        INTO retried FROM gristmill.jobs_by_id(retry.ids);
    IF retried > 0 THEN
        PERFORM gristmill.wake();
    END IF;
    RETURN retried;
END
$$;

-- Makes one job claimable again. Returns whether it was dead, cancelled or expired.
CREATE FUNCTION gristmill.retry(id text) RETURNS boolean
LANGUAGE sql
RETURN gristmill.retry(ARRAY[id]) = 1;

-- --- rights ---

-- A role that can reach the schema may look at what it is granted, and change nothing, until it is granted that too.
DO $$
DECLARE
    changing regprocedure;
BEGIN
    FOR changing IN SELECT p.oid::regprocedure FROM pg_proc p
        WHERE p.pronamespace = 'gristmill'::regnamespace AND p.provolatile = 'v'
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', changing);
    END LOOP;
END
$$;
