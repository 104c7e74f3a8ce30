-- Groups that exceed the memory for a hash table: rows of those that do not fit wait in files.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET max_parallel_workers_per_gather = 0;
SET enable_sort = off;
SET jit = off;
CREATE TABLE visits (key int, name text, price numeric, v int, note text);
INSERT INTO visits
    SELECT nullif(k * 7919 % 1500, 3), 'name ' || k % 700, nullif(k % 800, 5)::numeric / 8, k, repeat('note ', k % 5)
    FROM generate_series(1, 6000) k;
VACUUM (ANALYZE, FREEZE) visits;
CREATE TABLE parts (key int, name text, v int) PARTITION BY RANGE (v);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (2000);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (2000) TO (9000);
INSERT INTO parts SELECT key, name, v FROM visits;
VACUUM (ANALYZE, FREEZE) parts;
-- What of a plan says whether rows went to files.
CREATE FUNCTION files(query text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT regexp_replace(line, 'Read: \d+', 'Read: …') FROM explain_figures(query) line WHERE line ~ 'Agg|Files|Removed|Not Batched'
$$;
SET work_mem = 64; SET hash_mem_multiplier = 1;
SELECT * FROM compare('SELECT key, count(*), sum(v), min(note), max(price) FROM visits GROUP BY key');
SELECT * FROM compare('SELECT name, key % 2, count(*), avg(price) FROM visits GROUP BY 1, 2');
SELECT * FROM compare('SELECT price, count(*), sum(v) FILTER (WHERE v % 3 = 0) FROM visits WHERE v % 4 <> 1 GROUP BY price HAVING count(*) > 2');
SELECT * FROM compare('SELECT DISTINCT name FROM visits');
SELECT * FROM compare('SELECT key, count(*), max(v) FROM parts GROUP BY key');
SELECT * FROM compare('SELECT name, count(*) FROM (SELECT name, v FROM visits WHERE v < 4000 UNION ALL SELECT name, v FROM parts) q GROUP BY name');
-- A part of each group of each partition, and no more: the sum of floats depends on the parts.  Never analysed, few groups are expected.
CREATE TABLE pieces (name text, v int) PARTITION BY RANGE (v);
CREATE TABLE pieces_1 PARTITION OF pieces FOR VALUES FROM (0) TO (2000) WITH (autovacuum_enabled = off);
CREATE TABLE pieces_2 PARTITION OF pieces FOR VALUES FROM (2000) TO (9000) WITH (autovacuum_enabled = off);
INSERT INTO pieces SELECT name, v FROM visits;
VACUUM (FREEZE) pieces;
SET enable_partitionwise_aggregate = on; SET batchexec.cost_row = 1;
SELECT * FROM compare('SELECT name, sum(1 / (v + 0.1::float8)), regr_slope(1 / (v + 0.1::float8), v) FROM pieces GROUP BY name');
SET batchexec.mode = prefer; SET batchexec.explain = on;
SELECT files('SELECT name, sum(1 / (v + 0.1::float8)) FROM pieces GROUP BY name');
RESET enable_partitionwise_aggregate; RESET batchexec.cost_row; RESET batchexec.mode; SET batchexec.explain = off;
DROP TABLE pieces;
-- An error of a row in a file.
SELECT * FROM compare('SELECT key, sum(100 / (v - 5900)) FROM visits GROUP BY key');
SET batchexec.explain = on;
SELECT files('SELECT key, count(*), sum(v) FROM visits WHERE v % 4 <> 1 GROUP BY key');
SELECT files('SELECT key, count(*) FROM parts WHERE v > 1000 GROUP BY key');
-- No more groups are made than asked for; a rescan reads the table again.
SELECT files('SELECT key, count(*) FROM visits GROUP BY key LIMIT 5');
SELECT files('SELECT * FROM (VALUES (1), (2), (3)) p (p), LATERAL (SELECT key, count(*) FROM visits WHERE v % 4 <> p GROUP BY key OFFSET 0) q');
SET batchexec.explain = off;
SELECT * FROM compare('SELECT p, key, n FROM (VALUES (1), (2), (3)) p (p), LATERAL (SELECT key, count(*) AS n FROM visits WHERE v % 4 <> p GROUP BY key OFFSET 0) q');
SELECT * FROM compare('SELECT p, key, n FROM (VALUES (1), (2), (3)) p (p), LATERAL (SELECT key, count(*) AS n FROM visits WHERE v % 4 <> p GROUP BY key LIMIT 200) q ORDER BY n LIMIT 0');
-- A cursor goes on where it was, and an aborted one gives back what it holds.
BEGIN;
DECLARE counts CURSOR FOR SELECT key FROM visits GROUP BY key;
MOVE 1000 IN counts;
MOVE ALL IN counts;
CLOSE counts;
COMMIT;
-- Groups in an order are sorted.
SET batchexec.mode = prefer;
SET batchexec.explain = on;
SELECT files('SELECT v, count(*) FROM visits GROUP BY v');
SELECT files('SELECT key, name, count(*) FROM visits GROUP BY ROLLUP (key, name)');
SELECT files('SELECT key, count(DISTINCT v) FROM visits GROUP BY key');
SET enable_sort = on; SET enable_hashagg = off;
SELECT files('SELECT key, count(*) FROM visits GROUP BY key');
RESET batchexec.mode;
-- The planner counts the cost of files.
RESET enable_sort; RESET enable_hashagg;
SELECT files('SELECT key, count(*), sum(v) FROM visits GROUP BY key');
SELECT files('SELECT v, count(*) FROM visits GROUP BY v');
SET batchexec.explain = off;
DROP TABLE visits, parts;
DROP FUNCTION files;
