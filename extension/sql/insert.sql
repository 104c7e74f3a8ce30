-- BatchInsert: the same rows, constraints, errors and counts as the stock server's INSERT.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
SET default_toast_compression = pglz;
CREATE TABLE source (id int, kind smallint, amount numeric, note text, at timestamp);
INSERT INTO source
    SELECT i, i % 7, i / 8.0, CASE WHEN i % 11 = 0 THEN NULL ELSE repeat('x', i % 90) END, timestamp '2020-01-01' + i * interval '1 minute'
    FROM generate_series(1, 5000) i;
INSERT INTO source VALUES (5001, 1, 1, repeat('long ', 30000), NULL);
ALTER TABLE source ADD COLUMN late int DEFAULT 42;
VACUUM (ANALYZE, FREEZE) source;
CREATE TABLE target (LIKE source);
CREATE TABLE target_stock (LIKE source);

-- How one INSERT ends: its plan's first node, the rows it counts, or its error.
CREATE FUNCTION insert_outcome(command text, mode text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    count bigint;
BEGIN
    PERFORM set_config('batchexec.mode', mode, true);
    EXECUTE command;
    GET DIAGNOSTICS count = ROW_COUNT;
    RETURN count || ' rows';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
-- Runs the same INSERT batched into {t} and by row into {t}_stock, and compares what is in them.
CREATE FUNCTION compare_insert(command text, table_name text DEFAULT 'target') RETURNS TABLE (nodes text, result text) LANGUAGE plpgsql AS $$
DECLARE
    stock text;
    difference bigint;
BEGIN
    PERFORM set_config('batchexec.mode', 'prefer', true);
    nodes := batched_nodes(replace(command, '{t}', table_name));
    result := insert_outcome(replace(command, '{t}', table_name), 'prefer');
    stock := insert_outcome(replace(command, '{t}', table_name || '_stock'), 'forbid');
    IF replace(stock, table_name || '_stock', table_name) <> result THEN
        RAISE EXCEPTION 'outcomes differ: batched %, stock %', result, stock;
    END IF;
    EXECUTE format('SELECT count(*) FROM ((SELECT t::text FROM %1$s t EXCEPT ALL SELECT t::text FROM %2$s t) UNION ALL
                    (SELECT t::text FROM %2$s t EXCEPT ALL SELECT t::text FROM %1$s t)) d', table_name, table_name || '_stock') INTO difference;
    IF difference > 0 THEN
        RAISE EXCEPTION '% rows differ', difference;
    END IF;
    RETURN NEXT;
END $$;

SELECT * FROM compare_insert('INSERT INTO {t} SELECT * FROM source');
SELECT * FROM compare_insert('INSERT INTO {t} SELECT * FROM source WHERE kind = 3');
SELECT * FROM compare_insert('INSERT INTO {t} SELECT * FROM source WHERE id < 0');
SELECT * FROM compare_insert('INSERT INTO {t} (note, id) SELECT note || note, id + 1 FROM source WHERE kind < 3');
SELECT * FROM compare_insert('INSERT INTO {t} (id, amount) SELECT kind, sum(amount) FROM source GROUP BY kind ORDER BY kind');
SELECT * FROM compare_insert('INSERT INTO {t} (id, note) VALUES (1, ''a''), (2, NULL), (3, repeat(''y'', 20000))');
SELECT * FROM compare_insert('INSERT INTO {t} (id) SELECT i FROM generate_series(1, 2345) i');
SELECT * FROM compare_insert('INSERT INTO {t} SELECT * FROM {t} WHERE kind = 1');
SELECT * FROM compare_insert('INSERT INTO {t} (id) SELECT 12 / (id - 3000) FROM source');
SELECT count(*), count(DISTINCT ctid) = count(*) AS is_whole, sum(length(note)) FROM target;

-- Constraints and indexes.
CREATE TABLE strict (id int PRIMARY KEY, kind int NOT NULL CHECK (kind < 100), note text, EXCLUDE USING btree (note WITH =));
CREATE INDEX ON strict (kind) WHERE kind > 3;
CREATE INDEX ON strict (lower(note));
CREATE TABLE strict_stock (LIKE strict INCLUDING ALL, EXCLUDE USING btree (note WITH =));
SELECT * FROM compare_insert('INSERT INTO {t} SELECT id, kind, NULL FROM source', 'strict');
SELECT * FROM compare_insert('INSERT INTO {t} SELECT id + 6000, CASE WHEN id < 4000 THEN kind END FROM source', 'strict');
SELECT * FROM compare_insert('INSERT INTO {t} SELECT id + 6000, id - 4500 FROM source', 'strict');
SELECT substring(insert_outcome('INSERT INTO strict SELECT id + 4000, kind FROM source', 'prefer') FOR 70);
SELECT substring(insert_outcome('INSERT INTO strict SELECT id + 9000, kind, ''n'' || id % 3000 FROM source', 'prefer') FOR 40);
SELECT substring(insert_outcome('INSERT INTO strict SELECT id + 9000, kind, repeat(md5(id::text), 9000) FROM source', 'prefer') FOR 50);
SET enable_seqscan = off;
SELECT count(*), min(id), max(id) FROM strict WHERE id > 0;
SELECT count(*) FROM strict WHERE kind > 3;
RESET enable_seqscan;
CREATE TABLE part (id int, kind int) PARTITION BY LIST (kind);
CREATE TABLE part_one PARTITION OF part FOR VALUES IN (1);
SELECT insert_outcome('INSERT INTO part_one SELECT id, 1 FROM source', 'prefer');
SELECT insert_outcome('INSERT INTO part_one SELECT id, kind FROM source', 'prefer');
SELECT count(*) FROM part;

-- What was inserted is gone after a rollback, whole or to a savepoint, and seen by the next command.
SET batchexec.mode = prefer;
TRUNCATE target;
BEGIN;
INSERT INTO target SELECT * FROM source;
SELECT count(*) FROM target;
SAVEPOINT before_more;
INSERT INTO target SELECT * FROM source;
SELECT count(*) FROM target;
ROLLBACK TO before_more;
INSERT INTO target SELECT * FROM target;
SELECT count(*) FROM target;
ROLLBACK;
SELECT count(*) FROM target;
DROP TABLE target_stock;
CREATE TABLE target_stock (LIKE target);
ALTER TABLE target DROP COLUMN amount;
INSERT INTO target SELECT id, kind, note, at, late FROM source WHERE id > 5000;
SELECT id, kind, length(note), at, late FROM target;
CREATE TEMPORARY TABLE passing AS SELECT 1 AS id LIMIT 0;
INSERT INTO passing SELECT id FROM source;
SELECT count(*), sum(id) FROM passing;
CREATE UNLOGGED TABLE unlogged (id int);
INSERT INTO unlogged SELECT id FROM source;
SELECT count(*), sum(id) FROM unlogged;

-- A cached plan follows the settings, and changes of its table.
PREPARE copy_rows AS INSERT INTO unlogged SELECT id FROM source WHERE kind = 2;
SET plan_cache_mode = force_generic_plan;
SELECT batched_nodes('EXECUTE copy_rows');
EXECUTE copy_rows;
SET batchexec.enabled = off;
SELECT batched_nodes('EXECUTE copy_rows');
EXECUTE copy_rows;
RESET batchexec.enabled;
CREATE FUNCTION note_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN new.id := -new.id; RETURN new; END $$;
CREATE TRIGGER note_row BEFORE INSERT ON unlogged FOR EACH ROW EXECUTE FUNCTION note_row();
SELECT batched_nodes('EXECUTE copy_rows');
EXECUTE copy_rows;
SELECT count(*), min(id), sum(id) FROM unlogged;
DROP TRIGGER note_row ON unlogged;
DEALLOCATE copy_rows;

-- A volatile function sees what stock has inserted up to its row; nextval looks at no table.
CREATE FUNCTION rows_so_far() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$ BEGIN RETURN (SELECT count(*) FROM passing); END $$;
TRUNCATE passing;
INSERT INTO passing SELECT rows_so_far() FROM source WHERE id <= 50;
SELECT min(id), max(id), count(DISTINCT id) FROM passing;
CREATE SEQUENCE numbers;
TRUNCATE passing;
SELECT batched_nodes('INSERT INTO passing SELECT nextval(''numbers'') FROM source');
INSERT INTO passing SELECT nextval('numbers') FROM source;
SELECT min(id), max(id), count(DISTINCT id) FROM passing;

-- What keeps an INSERT from being batched.
SET batchexec.explain = on;
CREATE TABLE generated (id int, twice int GENERATED ALWAYS AS (id * 2) STORED);
CREATE TABLE deferred (id int PRIMARY KEY DEFERRABLE);
CREATE TABLE referring (id int REFERENCES strict);
CREATE TABLE checked (id int CHECK (id <> rows_so_far()));
CREATE DOMAIN counted AS int CHECK (value <> rows_so_far());
CREATE TABLE of_domain (id counted);
CREATE VIEW few AS SELECT * FROM unlogged WHERE id < 10 WITH CHECK OPTION;
EXPLAIN (COSTS OFF) INSERT INTO unlogged SELECT id FROM source;
EXPLAIN (COSTS OFF) INSERT INTO unlogged SELECT id FROM source RETURNING id;
EXPLAIN (COSTS OFF) INSERT INTO unlogged SELECT id FROM source ON CONFLICT DO NOTHING;
-- The subquery of an INSERT has another name from PostgreSQL 19 on.
CREATE FUNCTION insert_plan(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
        RETURN NEXT replace(line, 'unnamed_subquery', '"*SELECT*"');
    END LOOP;
END $$;
SELECT insert_plan('INSERT INTO unlogged SELECT id FROM source ORDER BY note');
EXPLAIN (COSTS OFF) INSERT INTO generated SELECT id FROM source;
EXPLAIN (COSTS OFF) INSERT INTO deferred SELECT id FROM source;
EXPLAIN (COSTS OFF) INSERT INTO referring SELECT id FROM source;
EXPLAIN (COSTS OFF) INSERT INTO checked SELECT id FROM source;
EXPLAIN (COSTS OFF) INSERT INTO of_domain SELECT id FROM source;
EXPLAIN (COSTS OFF) INSERT INTO few SELECT id FROM source;
EXPLAIN (COSTS OFF) INSERT INTO part SELECT id, 1 FROM source;
SELECT insert_plan('INSERT INTO unlogged SELECT rows_so_far() FROM source');
EXPLAIN (COSTS OFF) INSERT INTO unlogged VALUES (1);
SET batchexec.mode = allow;
EXPLAIN (COSTS OFF) INSERT INTO unlogged SELECT i FROM generate_series(1, 10) i;
SELECT line FROM explain_figures('INSERT INTO unlogged SELECT id FROM source') line WHERE line NOT LIKE '%Batches Ended%';
-- Tables that are made of a query's rows.
SET batchexec.enabled = off;
CREATE TABLE made_stock AS SELECT id, note, amount, at, kind FROM source WHERE id % 3 > 0;
SET batchexec.enabled = on;
CREATE TABLE made AS SELECT id, note, amount, at, kind FROM source WHERE id % 3 > 0;
SELECT count(*), (SELECT count(*) FROM (TABLE made EXCEPT TABLE made_stock) q), (SELECT count(*) FROM (TABLE made_stock EXCEPT TABLE made) q) FROM made;
CREATE MATERIALIZED VIEW seen AS SELECT * FROM made WHERE id < 4000;
UPDATE made SET kind = kind + 100 WHERE id % 2 = 0;
REFRESH MATERIALIZED VIEW seen;
SELECT count(*), count(*) FILTER (WHERE kind >= 100), md5(string_agg(s::text, ' ' ORDER BY id)) = (SELECT md5(string_agg(m::text, ' ' ORDER BY id)) FROM made m WHERE id < 4000) FROM seen s;
CREATE UNIQUE INDEX ON seen (id);
DELETE FROM made WHERE id < 1000;
REFRESH MATERIALIZED VIEW CONCURRENTLY seen;
SELECT count(*), min(id) FROM seen;
SELECT id, kind INTO TEMP chosen FROM made WHERE id < 2000;
SELECT count(*), sum(kind) FROM chosen;
CREATE TABLE none AS SELECT * FROM made WITH NO DATA;
SELECT count(*) FROM none;
-- One that looks at what was written, and one whose error comes late.
CREATE FUNCTION rows_made() RETURNS bigint LANGUAGE plpgsql VOLATILE AS 'BEGIN RETURN (SELECT count(*) FROM looked); END';
CREATE TABLE looked AS SELECT id, rows_made() AS before FROM source WHERE id <= 100;
SELECT count(*), sum(before) FROM looked;
CREATE TABLE failed AS SELECT 100 / (id - 4000) FROM source;
SELECT to_regclass('failed');
PREPARE made_again AS SELECT id FROM made WHERE id > 4990;
CREATE TABLE executed AS EXECUTE made_again;
SELECT count(*) FROM executed;
DROP MATERIALIZED VIEW seen;
DROP TABLE made, made_stock, chosen, none, looked, executed;
DROP FUNCTION rows_made;
DROP VIEW few;
DROP TABLE source, target, target_stock, strict, strict_stock, part, unlogged, passing, generated, deferred, referring, checked, of_domain CASCADE;
DROP DOMAIN counted;
DROP SEQUENCE numbers;
DROP FUNCTION insert_outcome, compare_insert, note_row, rows_so_far;
