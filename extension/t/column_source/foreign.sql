-- Foreign tables in batches, next to the same in rows.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
CREATE FUNCTION reasons(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    line text;
BEGIN
    SET LOCAL batchexec.explain = on;
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
        IF line LIKE '%Not Batched: %' THEN
            RETURN NEXT trim(line);
        END IF;
    END LOOP;
    SET LOCAL batchexec.explain = off;
END $$;

CREATE TABLE items (k int NOT NULL, g int, n numeric(12,3), f double precision, d date, t text, gone int, c char(5) COLLATE "C");
ALTER TABLE items DROP COLUMN gone;
INSERT INTO items SELECT i, CASE WHEN i % 7 > 0 THEN i % 50 END, CASE WHEN i % 5 > 0 THEN i / 7.0 END, i / 8.0,
    date '2001-01-01' + i % 1000,
    CASE WHEN i % 6 > 0 THEN 'text ' || i % 9 END, 'c' || i % 30 FROM generate_series(1, 20000) i;
INSERT INTO items (k, t) VALUES (-1, repeat('long', 3000));
CREATE TABLE kinds AS SELECT i AS g, 'kind ' || i AS name FROM generate_series(0, 60) i;
VACUUM ANALYZE items, kinds;
SELECT make_foreign('items');

-- Plans by cost.
EXPLAIN (COSTS OFF) SELECT g, sum(n) FROM items WHERE k > 5 GROUP BY g;
EXPLAIN (COSTS OFF) SELECT * FROM items WHERE k > 19990 ORDER BY k LIMIT 2;

-- Scans, filters, aggregates.
SELECT * FROM compare('SELECT * FROM items WHERE k > 19995');
SELECT * FROM compare('SELECT k, t FROM items WHERE t = ''text 3'' AND n < 10');
SELECT * FROM compare('SELECT length(t), c FROM items WHERE k < 0');
SELECT * FROM compare('SELECT count(*) FROM items');
SELECT * FROM compare('SELECT count(*), sum(k), avg(n), min(d), max(t COLLATE "C"), round(stddev(f)::numeric, 6),
    array_agg(k) FILTER (WHERE k < 5) FROM items WHERE g > 3');
SELECT * FROM compare('SELECT g, count(*), sum(n), count(DISTINCT t) FROM items WHERE f > 10 GROUP BY g HAVING count(*) > 100');
SELECT * FROM compare('SELECT c, g, GROUPING(c, g), sum(k) FROM items GROUP BY ROLLUP (c, g)');
SELECT * FROM compare('SELECT DISTINCT g FROM items');
SELECT * FROM compare('SELECT k, t FROM items WHERE k > 0 ORDER BY d DESC, k LIMIT 5');
SELECT * FROM compare('SELECT k FROM items LIMIT 3');
SELECT * FROM compare('SELECT sum(100 / (k - 100)) FROM items');
SELECT * FROM compare('SELECT k FROM items WHERE 100 / (k - 100) > 1 AND k <> 100 LIMIT 2');

-- Joins: a foreign table is the outer side, the inner one, or both. Subqueries read it again.
SELECT * FROM compare('SELECT count(*), sum(i.n) FROM items i JOIN kinds USING (g) WHERE i.k > 10');
SELECT * FROM compare('SELECT name, count(*) FROM items i LEFT JOIN kinds USING (g) WHERE name IS DISTINCT FROM ''kind 2'' GROUP BY name');
SELECT * FROM compare('SELECT a.k, b.t FROM items a JOIN items b ON a.k = b.k + 1 WHERE a.g = 3 AND b.n < 30');
SELECT * FROM compare('SELECT count(*) FROM items a WHERE NOT EXISTS (SELECT FROM items b WHERE b.k = a.k + 10)');
SELECT * FROM compare('SELECT g, (SELECT count(*) FROM items i WHERE i.g = kinds.g AND i.k < kinds.g * 100) FROM kinds WHERE g < 6');
SELECT * FROM compare('SELECT k FROM kinds, LATERAL (SELECT k FROM items WHERE k > kinds.g * 1000 ORDER BY k LIMIT 1) q WHERE kinds.g < 4');
SELECT * FROM compare('SELECT sum(k) FROM items WHERE n > (SELECT avg(n) FROM items)
    AND g IN (SELECT g FROM kinds WHERE name LIKE ''%1'')');

-- Partitions and children that are foreign tables, next to ones that are not.
CREATE TABLE parts (k int, g int, t text) PARTITION BY RANGE (k);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (5000);
CREATE TABLE parts_middle PARTITION OF parts FOR VALUES FROM (5000) TO (15000);
CREATE TABLE parts_high (t text, gone int, g int, k int);
ALTER TABLE parts_high DROP COLUMN gone;
ALTER TABLE parts ATTACH PARTITION parts_high FOR VALUES FROM (15000) TO (MAXVALUE);
INSERT INTO parts SELECT i, i % 20, 'text ' || i FROM generate_series(1, 20000) i;
VACUUM ANALYZE parts;
SELECT make_foreign('parts_low'), make_foreign('parts_high');
EXPLAIN (COSTS OFF) SELECT g, count(*) FROM parts WHERE k > 100 GROUP BY g;
SELECT * FROM compare('SELECT g, count(*), max(k), min(length(t)) FROM parts WHERE k > 100 GROUP BY g');
SELECT * FROM compare('SELECT sum(k) FROM parts WHERE k > 16000');
SELECT * FROM compare('SELECT k, t FROM parts WHERE t = ''text 123'' OR t = ''text 12345'' OR k = 19999');
SELECT * FROM compare('SELECT count(*), sum(x) FROM (SELECT k AS x FROM items UNION ALL SELECT g FROM kinds
    UNION ALL SELECT k FROM parts_high) q');
SELECT * FROM compare('SELECT k % 3 FROM items UNION SELECT g FROM kinds');
CREATE TABLE base (k int, v bigint);
CREATE TABLE child () INHERITS (base);
INSERT INTO base SELECT i, i FROM generate_series(1, 3000) i;
INSERT INTO child SELECT i, i * 2 FROM generate_series(1, 3000) i;
SELECT make_foreign('base');
SELECT * FROM compare('SELECT count(*), sum(v) FROM base');
SELECT * FROM compare('SELECT count(*), sum(v) FROM ONLY base');
SELECT make_foreign('child');
SELECT * FROM compare('SELECT v, count(*), sum(k) FROM base WHERE v < 7 GROUP BY v');

-- Workers share tables, and one is a foreign table: each process would read all of it.
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT * FROM compare('SELECT g, count(*), sum(k) FROM parts GROUP BY g');
SET batchexec.mode = prefer;
SELECT reasons('SELECT g, count(*), sum(k) FROM parts GROUP BY g');
RESET batchexec.mode;
SELECT * FROM compare('SELECT g, sum(k) FROM items GROUP BY g HAVING sum(k) < 4000');
SET max_parallel_workers_per_gather = 0;

-- Groups that exceed the memory: rows of others wait in files, and the foreign table is read once.
SET work_mem = '64kB';
SET hash_mem_multiplier = 1;
SELECT reasons('SELECT k, d, c, count(*) FROM items GROUP BY k, d, c');
SELECT * FROM compare('SELECT count(*), sum(q.k) FROM (SELECT k, max(t) FROM items GROUP BY k) q');
SET batchexec.explain = on;
SELECT line FROM explain_figures('SELECT k, count(*) FROM items GROUP BY k') line WHERE line ~ 'BatchAgg|Not Batched';
SET batchexec.explain = off;
SELECT * FROM compare('SELECT count(*), sum(b.n) FROM items a JOIN items b USING (k)');
RESET work_mem;
RESET hash_mem_multiplier;

-- An error of a row that is read too early would be one more than in rows.
ALTER FOREIGN TABLE items OPTIONS (ADD damaged_row '1000');
SELECT * FROM compare('SELECT * FROM (SELECT k FROM items LIMIT 3 OFFSET 996) q');
SELECT * FROM compare('SELECT * FROM (SELECT k FROM items LIMIT 2 OFFSET 998) q');
SELECT * FROM compare('SELECT count(*) FROM items');
SELECT * FROM compare('SELECT EXISTS (SELECT FROM items WHERE k = 998)');
SELECT * FROM compare('SELECT sum(1 / (k - 999)) FROM items');
SELECT * FROM compare('SELECT count(*) FROM kinds JOIN items USING (g)');
ALTER FOREIGN TABLE items OPTIONS (DROP damaged_row);

-- Prepared statements, whose plans follow the settings and the table's options; cursors.
PREPARE summed (int) AS SELECT sum(k), count(t) FROM items WHERE k > $1;
SET plan_cache_mode = force_generic_plan;
EXECUTE summed (100);
SET batchexec.enabled = off;
EXECUTE summed (100);
RESET batchexec.enabled;
EXPLAIN (COSTS OFF) EXECUTE summed (100);
ALTER FOREIGN TABLE items OPTIONS (ADD checks_conditions 'true');
EXPLAIN (COSTS OFF) EXECUTE summed (100);
EXECUTE summed (100);
ALTER FOREIGN TABLE items OPTIONS (DROP checks_conditions);
EXECUTE summed (100);
BEGIN;
DECLARE reading NO SCROLL CURSOR FOR SELECT k FROM items WHERE k > 10;
FETCH 2 FROM reading;
DELETE FROM items_rows WHERE k BETWEEN 13 AND 19000;
FETCH 2 FROM reading;
MOVE 300 FROM reading;
FETCH 1 FROM reading;
ROLLBACK;
UPDATE items_rows SET k = k + 1 WHERE k = 20000;
EXECUTE summed (19999);
DEALLOCATE summed;

-- The rights to the local table are those of the view's owner.
CREATE ROLE batchexec_reader;
CREATE VIEW shown AS SELECT g, k FROM items WHERE k > 10;
GRANT SELECT ON shown, items, kinds TO batchexec_reader;
GRANT USAGE ON SCHEMA public TO batchexec_reader;
SET ROLE batchexec_reader;
SELECT * FROM compare('SELECT count(*), sum(k) FROM shown');
SELECT * FROM compare('SELECT count(*), sum(shown.k) FROM shown JOIN kinds USING (g)');
SELECT * FROM compare('SELECT sum(k) FROM items');
RESET ROLE;
DROP VIEW shown;

-- Rows of a foreign table, written to a table.
CREATE TABLE copied (k int, t text);
INSERT INTO copied SELECT k, t FROM items WHERE k > 0;
SELECT count(*), sum(k) FROM copied;

-- What stays in rows.
SELECT reasons('SELECT tableoid, k FROM items');
SELECT reasons('SELECT items FROM items');
SELECT reasons('SELECT k FROM items FOR SHARE');
SELECT reasons('UPDATE items_rows SET k = items.k FROM items WHERE items.k = items_rows.k');
ALTER FOREIGN TABLE items OPTIONS (ADD checks_conditions 'true');
SELECT reasons('SELECT sum(k) FROM items WHERE k > 5');
SET batchexec.mode = require;
SELECT sum(k) FROM items WHERE k > 5;
RESET batchexec.mode;
SELECT * FROM compare('SELECT sum(k) FROM items');
ALTER FOREIGN TABLE items OPTIONS (DROP checks_conditions);
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT reasons('SELECT sum(k) FROM items');
SELECT count(*) FROM items;
ROLLBACK;
ALTER FOREIGN TABLE items OPTIONS (ADD has_batches 'false');
SELECT reasons('SELECT sum(k) FROM items');
SELECT sum(k) FROM items;
ALTER FOREIGN TABLE items OPTIONS (DROP has_batches);
CREATE FOREIGN TABLE few (g int) SERVER local_rows OPTIONS (local_table 'kinds');
SELECT reasons('SELECT g FROM few');
SELECT * FROM compare('SELECT count(*), sum(g) FROM few');
-- A dictionary that breaks its contract is an error, not wrong rows.
SET row_wrapper.dictionary_fault = 'id';
SELECT count(*) FROM items WHERE upper(t) = 'TEXT 3';
SET row_wrapper.dictionary_fault = 'empty';
SELECT count(*) FROM items WHERE upper(t) = 'TEXT 3';
SET row_wrapper.dictionary_fault = 'count';
SELECT c, count(*) FROM items GROUP BY c;
SET row_wrapper.dictionary_fault = 'code';
SELECT c, count(*) FROM items GROUP BY c;
SET row_wrapper.dictionary_fault = 'null';
SELECT sum(length(t)) FROM items;
SET row_wrapper.dictionaries = off;
SELECT sum(length(t)) FROM items;
RESET row_wrapper.dictionary_fault; RESET row_wrapper.dictionaries;
SELECT * FROM compare('SELECT sum(length(t)) FROM items');
DROP FOREIGN TABLE few, items, base, child CASCADE;
DROP TABLE parts, items_rows, kinds, base_rows, child_rows, parts_low_rows, parts_high_rows, copied;
REVOKE USAGE ON SCHEMA public FROM batchexec_reader;
DROP ROLE batchexec_reader;
