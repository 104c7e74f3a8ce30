-- A lane is a queue, a kind and a group; the group is '' for jobs without one.
ALTER TABLE gristmill.lane ADD COLUMN job_group text NOT NULL DEFAULT '';
ALTER TABLE gristmill.lane DROP CONSTRAINT lane_queue_kind_key, ADD UNIQUE (queue, kind, job_group);

DROP FUNCTION gristmill.intern_lane(text, text, integer);

-- The lane of a queue, a kind and a group, made where there is none.
CREATE FUNCTION gristmill.intern_lane(queue text, kind text, job_group text, lanes_max integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    lane_id integer;
BEGIN
    SELECT l.id INTO lane_id FROM gristmill.lane l WHERE l.queue = $1 AND l.kind = $2 AND l.job_group = $3;
    IF lane_id IS NULL THEN
        LOCK TABLE gristmill.lane IN SHARE ROW EXCLUSIVE MODE;
        SELECT l.id INTO lane_id FROM gristmill.lane l WHERE l.queue = $1 AND l.kind = $2 AND l.job_group = $3;
    END IF;
    IF lane_id IS NULL THEN
        SELECT coalesce(max(l.id), 0) + 1 INTO lane_id FROM gristmill.lane l;
        IF lane_id > lanes_max THEN
            RAISE EXCEPTION 'the store has % combinations of queue, kind and group already, and `%`, `%` and `%` would be one more',
                lanes_max, $1, $2, $3
                USING ERRCODE = 'program_limit_exceeded', HINT = 'Put what varies into the payload.';
        END IF;
        INSERT INTO gristmill.lane (id, queue, kind, job_group) VALUES (lane_id, $1, $2, $3);
    END IF;
    RETURN lane_id;
END
$$;
REVOKE EXECUTE ON FUNCTION gristmill.intern_lane(text, text, text, integer) FROM PUBLIC;

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
    PERFORM gristmill.check_keys('options', options, ARRAY['timeout_ms', 'retry', 'group']);
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

-- Stores jobs of one kind, and returns their ids in the order of the payloads. They are claimed once the caller's
-- transaction commits; if it rolls back, they never were. They are packed into batches of up to 10,000 jobs
-- (BATCH_JOBS_MAX) and 1 MiB of payloads (BATCH_BYTES_TARGET); a larger payload has a batch to itself.
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
    stored_options CONSTANT text :=
        gristmill.batch_options(submit.priority, run_at_ms, expires_at_ms, coalesce(submit.options, '{}'));
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
    BEGIN
        lane_id := gristmill.intern_lane(submit.queue, submit.kind, job_group, lanes_max);
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

-- What is in use of a limit is what is held of its lanes.
ALTER TABLE gristmill.held ADD COLUMN lane_id integer;
UPDATE gristmill.held h SET lane_id = b.lane_id FROM gristmill.batch b WHERE b.id = h.batch_id;

-- Pauses, limits, shares and agings. A claim that one limits locks its row, behind all that it locks of what is held
-- and before all that it takes of slices, which it never waits for: so of the claims under a limit one decides at a time.
CREATE TABLE gristmill.control (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key        text NOT NULL UNIQUE, -- JSON: effect, scope and reason
    definition text NOT NULL         -- JSON
) WITH (fillfactor = 70);

-- One row. Whoever changes a control raises the version, and claims read the controls again.
CREATE TABLE gristmill.control_version (version bigint NOT NULL);
INSERT INTO gristmill.control_version VALUES (0);

-- The buckets of rates. The group is '' where all share one.
CREATE TABLE gristmill.bucket (
    control_id  bigint NOT NULL,
    empty_at_ns bigint NOT NULL, -- nanoseconds since 1970
    job_group   text NOT NULL,
    PRIMARY KEY (control_id, job_group)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- What tells a pause from all other controls, as the store writes it.
CREATE FUNCTION gristmill.pause_key(reason text, queue text, kind text, job_group text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '["pause",' || coalesce(to_json(queue)::text, 'null') || ',' || coalesce(to_json(kind)::text, 'null') || ','
    || coalesce(to_json(job_group)::text, 'null') || ',false,' || to_json(reason)::text || ']';

-- Lets nothing of a queue, a kind and a group be claimed (of all, where they are NULL), until that moment or until it is
-- resumed. Pauses of other reasons stand beside it.
CREATE FUNCTION gristmill.pause(
    reason text, queue text DEFAULT NULL, kind text DEFAULT NULL, job_group text DEFAULT NULL, until timestamptz DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    until_ms CONSTANT bigint := gristmill.milliseconds('until', pause.until);
    definition CONSTANT text := jsonb_build_object(
        'scope', jsonb_strip_nulls(jsonb_build_object('queue', pause.queue, 'kind', pause.kind, 'group', pause.job_group)),
        'effect', jsonb_build_object('pause', jsonb_strip_nulls(jsonb_build_object('reason', pause.reason, 'until', until_ms)))
    )::text;
BEGIN
    PERFORM gristmill.check_name('reason', pause.reason);
    PERFORM gristmill.check_name(named.what, named.name)
        FROM (VALUES ('queue', pause.queue), ('kind', pause.kind), ('group', pause.job_group)) named (what, name)
        WHERE named.name IS NOT NULL;
    UPDATE gristmill.control_version SET version = version + 1;
    INSERT INTO gristmill.control AS c (key, definition)
    VALUES (gristmill.pause_key(pause.reason, pause.queue, pause.kind, pause.job_group), definition)
    ON CONFLICT (key) DO UPDATE SET definition = excluded.definition;
    IF (SELECT count(*) FROM gristmill.control) > 10000 THEN
        RAISE EXCEPTION 'the store holds at most 10000 controls' USING ERRCODE = 'program_limit_exceeded', HINT = 'Lift some.';
    END IF;
END
$$;

-- Ends the pause of that reason of exactly this queue, kind and group. Returns whether there was one.
CREATE FUNCTION gristmill.resume(
    reason text, queue text DEFAULT NULL, kind text DEFAULT NULL, job_group text DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE gristmill.control_version SET version = version + 1;
    DELETE FROM gristmill.control c WHERE c.key = gristmill.pause_key(resume.reason, resume.queue, resume.kind, resume.job_group);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM gristmill.wake();
    RETURN true;
END
$$;
REVOKE EXECUTE ON FUNCTION gristmill.pause(text, text, text, text, timestamptz),
    gristmill.resume(text, text, text, text) FROM PUBLIC;
