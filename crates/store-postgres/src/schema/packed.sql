-- Reading packed values. These functions only compute: anybody may call them, and they run with the rights of their caller.

-- Each of a set of positions. STRICT keeps PostgreSQL from inlining this function and the next: it would then expect a million
-- rows a batch, and spend a second on compiling a query of milliseconds.
CREATE OR REPLACE FUNCTION gristmill.unpacked(positions int4multirange) RETURNS SETOF integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE ROWS 100
BEGIN ATOMIC
    SELECT generate_series(lower(range), upper(range) - 1) FROM unnest(positions) range;
END;

-- Each item of a packed array, in order. A line feed separates items and never stands within one.
CREATE OR REPLACE FUNCTION gristmill.unpacked(items text) RETURNS SETOF json
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE ROWS 100
BEGIN ATOMIC
    SELECT item::json FROM string_to_table(substr(items, 2, length(items) - 2), E'\n,') item;
END;

-- Some items of a packed array: a large batch that is claimed in small parts travels in parts.
CREATE OR REPLACE FUNCTION gristmill.selected(items text, positions int4multirange) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT '[' || string_agg(t.item, E'\n,' ORDER BY t.number) || ']'
    FROM string_to_table(substr(items, 2, length(items) - 2), E'\n,') WITH ORDINALITY t (item, number)
    WHERE positions @> (t.number - 1)::integer
$$;

-- The number of positions.
CREATE OR REPLACE FUNCTION gristmill.count(positions int4multirange) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(sum(upper(range) - lower(range)), 0)::integer FROM unnest(positions) range;
END;

-- A stored moment (milliseconds since 1970); infinity where it is later than PostgreSQL knows.
CREATE OR REPLACE FUNCTION gristmill.moment(milliseconds bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN milliseconds < 9000000000000000 THEN to_timestamp(milliseconds / 1000.0) ELSE 'infinity' END;

-- A moment as the tables store it: milliseconds since 1970.
CREATE OR REPLACE FUNCTION gristmill.milliseconds(what text, moment timestamptz) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF moment NOT BETWEEN '1970-01-01 00:00:00Z' AND '9999-12-31 23:59:59.999Z' THEN
        RAISE EXCEPTION '% is %', what, moment USING ERRCODE = 'datetime_field_overflow',
            HINT = 'Give a moment between the years 1970 and 9999.';
    END IF;
    RETURN floor(extract(epoch FROM moment) * 1000);
END
$$;
