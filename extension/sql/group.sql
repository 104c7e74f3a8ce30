-- GROUP BY in a hash table.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
SET enable_sort = off;
SET jit = off;
CREATE TABLE grouped (i int, small smallint, name text, code char(4), f double precision, n numeric, flag bool, v int, day date);
INSERT INTO grouped
    SELECT k % 10, k % 3, 'name ' || k % 4, left('abcd', k % 4 + 1), (k % 5) / 2.0, (k % 6)::numeric, k % 2 = 0, k, date '2024-01-01' + k % 2
    FROM generate_series(1, 5000) k;
VACUUM (ANALYZE, FREEZE) grouped;
SELECT * FROM compare('SELECT i, count(*), sum(v), avg(v) FROM grouped GROUP BY i');
SELECT * FROM compare('SELECT name, count(*), min(v) FROM grouped GROUP BY name');
SELECT * FROM compare('SELECT code, count(*) FROM grouped GROUP BY code');
SELECT * FROM compare('SELECT f, n, count(*) FROM grouped WHERE i < 3 GROUP BY f, n');
SELECT * FROM compare('SELECT flag, day, max(v) FROM grouped GROUP BY flag, day');
SELECT * FROM compare('SELECT i % 3, small + 1, sum(v) FROM grouped GROUP BY 1, 2');
SELECT * FROM compare('SELECT upper(name), sum(n) FROM grouped GROUP BY 1');
SELECT * FROM compare('SELECT i, sum(v) FROM grouped GROUP BY i HAVING sum(v) > 1250000 AND i > 3');
SELECT * FROM compare('SELECT i, sum(v) FILTER (WHERE flag), count(*) FILTER (WHERE name = ''name 1'') FROM grouped GROUP BY i');
SELECT * FROM compare('SELECT DISTINCT i, flag FROM grouped');
SELECT * FROM compare('SELECT i, 100 / (i - 5) FROM grouped GROUP BY i');
SELECT * FROM compare('SELECT 100 / (i - 5), count(*) FROM grouped GROUP BY 1');
SELECT * FROM compare('SELECT i, small, count(*) FROM grouped GROUP BY GROUPING SETS ((i), (small), ())');
-- Special keys.
INSERT INTO grouped (i, f, n, name) VALUES (NULL, 'NaN', 'NaN', NULL), (NULL, 'NaN', 'NaN', NULL), (NULL, '-0', 1.00, ''), (NULL, 'inf', '-inf', 'a'), (NULL, '-inf', 1, 'a');
SELECT * FROM compare('SELECT f = 0, count(*) FROM grouped GROUP BY f');
SELECT * FROM compare('SELECT i, f, count(*) FROM grouped WHERE i IS NULL GROUP BY i, f');
SELECT * FROM compare('SELECT n = 1, count(*), sum(f) FROM grouped GROUP BY n');
SELECT * FROM compare('SELECT name, count(*) FROM grouped WHERE i IS NULL GROUP BY name');
-- More groups than memory: the original plan takes over.
CREATE TABLE many AS SELECT k AS key, k % 3 AS v FROM generate_series(1, 30000) k;
VACUUM (ANALYZE, FREEZE) many;
SET work_mem = 64; SET hash_mem_multiplier = 1;
SELECT * FROM compare('SELECT count(*), sum(c), sum(s) FROM (SELECT key, count(*) c, sum(v) s FROM many GROUP BY key) g');
RESET work_mem; RESET hash_mem_multiplier;
SELECT * FROM compare('SELECT count(*), sum(c), sum(s) FROM (SELECT key, count(*) c, sum(v) s FROM many GROUP BY key) g');
SET batchexec.explain = on;
EXPLAIN (VERBOSE, COSTS OFF) SELECT i % 3, sum(v) FROM grouped WHERE flag GROUP BY 1 HAVING count(*) > 1;
SET batchexec.explain = off;
DROP TABLE grouped, many;
RESET enable_sort;
