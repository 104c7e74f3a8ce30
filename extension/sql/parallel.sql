-- Parallel query, partitions, inheritance.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
CREATE TABLE wide (k int, b bigint, n numeric(12,2), f double precision, t text COLLATE "C", flag bool);
INSERT INTO wide SELECT k, k, k / 100.0, k, 'text ' || k % 10, k % 2 = 0 FROM generate_series(1, 20000) k;
VACUUM (ANALYZE, FREEZE) wide;
SELECT * FROM compare('SELECT count(*), sum(k), avg(k), sum(b), avg(b), sum(n), avg(n), sum(f), avg(f) FROM wide');
SELECT * FROM compare('SELECT min(t), max(t), min(n), max(f), bool_and(flag), bool_or(flag) FROM wide WHERE k > 100');
SELECT * FROM compare('SELECT count(*), sum(k), sum(b), sum(n), avg(n), min(t), avg(f) FROM wide WHERE k < 0');
SELECT * FROM compare('SELECT t, count(*), sum(n), avg(b), avg(k) FROM wide GROUP BY t');
SELECT * FROM compare('SELECT k FROM wide WHERE b = 777');
SELECT * FROM compare('SELECT var_pop(k), stddev(k), var_samp(k) FILTER (WHERE flag), stddev_pop(k) FILTER (WHERE k < 0) FROM wide');
SELECT * FROM compare('SELECT variance(f)::numeric(20,4), stddev_pop(f) FILTER (WHERE k < 0) FROM wide');
SELECT * FROM compare('SELECT corr(f, k)::numeric(20,8), regr_avgx(k, f)::numeric(20,4), covar_pop(f, k) FILTER (WHERE k < 0) FROM wide');
SELECT * FROM compare('SELECT t, stddev_samp(k), var_pop(f)::numeric(20,4) FROM wide GROUP BY t');
SELECT * FROM compare('SELECT k % 5000, count(*), sum(b), max(t) FROM wide GROUP BY 1');
SET work_mem = 64; SET hash_mem_multiplier = 1;
SELECT * FROM compare('SELECT count(*), sum(c) FROM (SELECT k % 5000, count(*) AS c FROM wide GROUP BY 1) g');
RESET work_mem; RESET hash_mem_multiplier;
SELECT * FROM compare('SELECT s, (SELECT count(*) FROM wide WHERE k % 100 = s) FROM generate_series(1, 3) s');
UPDATE wide SET n = 'NaN' WHERE k = 5;
SELECT * FROM compare('SELECT sum(n), avg(n) FROM wide');
SELECT * FROM compare('SELECT sum(n * 1e12 * n) FROM wide WHERE n < 1000');
DROP TABLE wide;
SET max_parallel_workers_per_gather = 0;
-- Partitions, with columns in another order.
CREATE TABLE parts (k int, v text, w int) PARTITION BY RANGE (k);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000);
CREATE TABLE parts_2 (w int, dropped int, v text, k int);
ALTER TABLE parts_2 DROP COLUMN dropped;
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (1000) TO (2000);
INSERT INTO parts SELECT k, 'v' || k % 3, k % 7 FROM generate_series(0, 1999) k;
VACUUM ANALYZE parts;
SELECT * FROM compare('SELECT count(*), sum(w), min(k) FROM parts WHERE v = ''v1'' AND w > 2');
SELECT * FROM compare('SELECT k, v FROM parts WHERE w = 3 AND k % 500 = 3');
SET enable_partitionwise_aggregate = on;
SELECT * FROM compare('SELECT count(*), sum(w), avg(w) FROM parts');
SELECT * FROM compare('SELECT v, count(*), avg(w) FROM parts GROUP BY v');
RESET enable_partitionwise_aggregate;
DROP TABLE parts;
CREATE TABLE parent (k int);
CREATE TABLE child (extra text) INHERITS (parent);
INSERT INTO parent SELECT generate_series(1, 10);
INSERT INTO child SELECT k, 'x' FROM generate_series(11, 20) k;
SELECT * FROM compare('SELECT sum(k), count(*) FROM parent WHERE k > 5');
SELECT * FROM compare('SELECT sum(k), count(*) FROM ONLY parent WHERE k > 5');
DROP TABLE parent, child;
-- Workers' figures reach EXPLAIN.
CREATE TABLE shared AS SELECT k FROM generate_series(1, 5000) k;
VACUUM (ANALYZE, FREEZE) shared;
SET max_parallel_workers_per_gather = 2; SET batchexec.explain = on;
SELECT regexp_replace(line, '\(rows mean.*|page=\d+ capacity=0 scan end=\d+', '...')
    FROM explain_figures('SELECT count(*) FROM shared WHERE k > 10') line WHERE line ~ 'Batches:|Irregular Pages';
DROP TABLE shared;
