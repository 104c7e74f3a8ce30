-- What the test wrapper needs in a database, and the way from tables to foreign tables.
CREATE FUNCTION row_wrapper_handler() RETURNS fdw_handler AS 'row_wrapper' LANGUAGE c STRICT;
CREATE FUNCTION row_wrapper_validator(text[], oid) RETURNS void AS 'row_wrapper' LANGUAGE c STRICT;
CREATE FOREIGN DATA WRAPPER row_wrapper HANDLER row_wrapper_handler VALIDATOR row_wrapper_validator;
CREATE SERVER local_rows FOREIGN DATA WRAPPER row_wrapper;

-- Rename a table to NAME_rows, and put a foreign table that has its rows, and its parents and children, in its place.
CREATE FUNCTION make_foreign(relation regclass, more_options text DEFAULT '') RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name text := (SELECT relname FROM pg_class WHERE oid = relation);
    bound text := (SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = relation);
    parents regclass[] := array(SELECT inhparent FROM pg_inherits WHERE inhrelid = relation);
    children regclass[] := array(SELECT inhrelid FROM pg_inherits WHERE inhparent = relation);
    columns text := (SELECT string_agg(format('%I %s%s%s', attname, format_type(atttypid, atttypmod),
                                              CASE WHEN attcollation <> typcollation THEN ' COLLATE ' || attcollation::regcollation END,
                                              CASE WHEN attnotnull THEN ' NOT NULL' END), ', ' ORDER BY attnum)
                     FROM pg_attribute a JOIN pg_type t ON t.oid = atttypid WHERE attrelid = relation AND attnum > 0 AND NOT attisdropped);
    other regclass;
BEGIN
    FOREACH other IN ARRAY parents LOOP
        EXECUTE format(CASE WHEN bound IS NULL THEN 'ALTER TABLE %2$s NO INHERIT %1$s'
            ELSE 'ALTER TABLE %s DETACH PARTITION %s' END, other, relation);
    END LOOP;
    FOREACH other IN ARRAY children LOOP
        EXECUTE format('ALTER TABLE %s NO INHERIT %s', other, relation);
    END LOOP;
    EXECUTE format('ALTER TABLE %I RENAME TO %I', name, name || '_rows');
    EXECUTE format('CREATE FOREIGN TABLE %I (%s) SERVER local_rows OPTIONS (local_table %L %s)',
        name, columns, name || '_rows', more_options);
    FOREACH other IN ARRAY parents LOOP
        EXECUTE format(CASE WHEN bound IS NULL THEN 'ALTER TABLE %2$I INHERIT %1$s'
            ELSE 'ALTER TABLE %s ATTACH PARTITION %I %s' END, other, name, bound);
    END LOOP;
    FOREACH other IN ARRAY children LOOP
        EXECUTE format('ALTER TABLE %s INHERIT %I', other, name);
    END LOOP;
END $$;

CREATE FUNCTION drop_tables(pattern text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name text;
    kind text;
BEGIN
    FOR name, kind IN SELECT relname, CASE relkind WHEN 'f' THEN 'FOREIGN TABLE' ELSE 'TABLE' END FROM pg_class
                      WHERE relkind IN ('r', 'p', 'f') AND relname LIKE pattern AND relnamespace = 'public'::regnamespace LOOP
        EXECUTE format('DROP %s IF EXISTS %I CASCADE', kind, name);
    END LOOP;
END $$;
