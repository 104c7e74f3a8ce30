-- Aggregates over several tables: partitions, inheritance, the parts of a UNION ALL.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
SET enable_sort = off;
CREATE TABLE parts (k int, v text, w int, n numeric, f double precision) PARTITION BY RANGE (k);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000);
-- Its columns are in another order, and one was dropped.
CREATE TABLE parts_2 (f double precision, w int, dropped int, n numeric, v text, k int);
ALTER TABLE parts_2 DROP COLUMN dropped;
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (1000) TO (2000);
CREATE TABLE parts_3 PARTITION OF parts FOR VALUES FROM (2000) TO (3000);
CREATE TABLE parts_4 PARTITION OF parts DEFAULT;
INSERT INTO parts SELECT k, CASE WHEN k % 11 > 0 THEN 'v' || k % 3 END, CASE WHEN k % 13 > 0 THEN k % 7 END, k / 100.0, k / 7.0
    FROM generate_series(0, 2499) k;
VACUUM ANALYZE parts;
SELECT * FROM compare('SELECT count(*), sum(w), min(k), max(v COLLATE "C"), avg(n), sum(f) FROM parts');
SELECT * FROM compare('SELECT count(*), sum(w), avg(f) FROM parts WHERE v = ''v1'' AND w > 2 AND k > 500');
SELECT * FROM compare('SELECT v, count(*), sum(w), min(n), max(f) FROM parts GROUP BY v');
SELECT * FROM compare('SELECT w, v, count(*) FILTER (WHERE n > 3), avg(k) FROM parts GROUP BY w, v HAVING count(*) > 10');
SELECT * FROM compare('SELECT n, count(*) FROM parts WHERE k % 500 = 7 GROUP BY n');
SELECT * FROM compare('SELECT repeat(v, 50), sum(k) FROM parts GROUP BY 1');
SELECT * FROM compare('SELECT k % 10 + w, sum(100 / nullif(w, 0)), count(*) FROM parts GROUP BY 1');
SELECT * FROM compare('SELECT sum(100 / w) FROM parts');
SELECT * FROM compare('SELECT sum(100 / w) FROM parts WHERE w > 0');
SELECT * FROM compare('SELECT s, (SELECT sum(w) FROM parts WHERE w < s AND n > s) FROM generate_series(1, 4) s');
SELECT * FROM compare('SELECT s, g.* FROM generate_series(1, 2) s, LATERAL (SELECT v, count(*) FROM parts WHERE w < s GROUP BY v) g');
SET work_mem = 64; SET hash_mem_multiplier = 1; SET cpu_tuple_cost = 0.05;
SELECT * FROM compare('SELECT count(*), sum(c) FROM (SELECT k, count(*) AS c FROM parts GROUP BY k) g');
RESET work_mem; RESET hash_mem_multiplier; RESET cpu_tuple_cost;
-- What is the same of one table need not be so of another.
CREATE TABLE one (a int, b int); INSERT INTO one SELECT k, -k FROM generate_series(1, 100) k;
CREATE TABLE two (c int, d bigint); INSERT INTO two SELECT k * 10, k * 100 FROM generate_series(1, 50) k;
SELECT * FROM compare('SELECT sum(x), sum(y), count(*) FROM (SELECT a AS x, a AS y FROM one UNION ALL SELECT a, b FROM one) u');
SELECT * FROM compare('SELECT sum(x), count(y), max(z) FROM (SELECT a + 1 AS x, ''o'' AS y, 1 AS z FROM one WHERE b < -5 UNION ALL SELECT c * 2, NULL, 1 FROM two) u');
SELECT * FROM compare('SELECT x, count(*) FROM (SELECT a % 3 AS x FROM one UNION ALL SELECT c % 4 FROM two UNION ALL SELECT 7 FROM one) u GROUP BY x');
SELECT * FROM compare('SELECT sum(x) FROM (SELECT a::bigint AS x FROM one UNION ALL SELECT d FROM two) u');
SELECT * FROM compare('SELECT count(*) FROM (SELECT a FROM one UNION ALL SELECT c FROM two UNION ALL SELECT generate_series(1, 5)) u');
-- Partitions that are chosen when the plan runs are left to stock, with batched scans.
SET plan_cache_mode = force_generic_plan;
SET batchexec.mode = prefer;
PREPARE chosen (int) AS SELECT count(*), sum(w) FROM parts WHERE k < $1;
EXPLAIN (COSTS OFF) EXECUTE chosen (10);
EXECUTE chosen (1500);
DEALLOCATE chosen; RESET plan_cache_mode;
-- Switched off after planning.
PREPARE off_later AS SELECT count(*), sum(w) FROM parts;
SET batchexec.enabled = off;
EXECUTE off_later;
RESET batchexec.enabled;
EXECUTE off_later;
DEALLOCATE off_later;
SET batchexec.explain = on;
SELECT * FROM explain_figures('SELECT v, count(*) FROM parts WHERE w > 3 GROUP BY v') line WHERE line !~ 'Batches';
EXPLAIN (VERBOSE, COSTS OFF) SELECT v, sum(w) FROM parts WHERE w > 3 GROUP BY v;
SET batchexec.explain = off;
-- Workers share the tables.
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
SELECT * FROM compare('SELECT count(*), sum(w), min(k), max(v COLLATE "C"), avg(n) FROM parts');
SELECT * FROM compare('SELECT v, count(*), sum(w) FROM parts WHERE k > 100 GROUP BY v');
SELECT * FROM compare('SELECT s, (SELECT sum(w) FROM parts WHERE w < s) FROM generate_series(1, 3) s');
SELECT * FROM compare('SELECT count(*), sum(x) FROM (SELECT a AS x FROM one UNION ALL SELECT c FROM two) u');
SET enable_parallel_append = off;
SELECT * FROM compare('SELECT count(*), sum(w), avg(n) FROM parts');
SELECT * FROM compare('SELECT v, count(*), sum(w) FROM parts GROUP BY v');
RESET enable_parallel_append;
SET work_mem = 64; SET hash_mem_multiplier = 1; SET cpu_operator_cost = 0.1;
SELECT * FROM compare('SELECT count(*), sum(c) FROM (SELECT k, count(*) AS c FROM parts GROUP BY k) g');
RESET work_mem; RESET hash_mem_multiplier; RESET cpu_operator_cost;
ALTER TABLE parts_3 SET (parallel_workers = 0);
SELECT * FROM compare('SELECT count(*), sum(w), avg(n) FROM parts');
DROP TABLE parts, one, two;
