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
SELECT * FROM compare('SELECT DISTINCT name COLLATE "C", 100 / (small + 1) FROM grouped WHERE v > 100');
-- Grouping sets: a hash table each, and one for no keys.
SELECT * FROM compare('SELECT i, small, count(*) FROM grouped GROUP BY GROUPING SETS ((i), (small), ())');
SELECT * FROM compare('SELECT flag, name, small, count(*), sum(v), avg(n), min(day), grouping(flag), grouping(name, small) FROM grouped GROUP BY CUBE (flag, name, small)');
SELECT * FROM compare('SELECT i % 3, small + 1, sum(v + small), max(f), grouping(i % 3) FROM grouped GROUP BY ROLLUP (1, 2)');
SELECT * FROM compare('SELECT flag, day, count(*) FILTER (WHERE i > 4), sum(length(upper(name))), grouping(day) FROM grouped GROUP BY GROUPING SETS ((flag, day), (day), (flag), (), ()) HAVING grouping(flag) = 1 OR count(*) > 1000');
SELECT * FROM compare('SELECT flag, count(*), sum(v) FROM grouped WHERE v < 0 GROUP BY ROLLUP (flag)');
SELECT * FROM compare('SELECT count(*), sum(v) FROM grouped WHERE v < 0 GROUP BY GROUPING SETS ((), ())');
SELECT * FROM compare('SELECT flag, 100 / (i - 5), count(*) FROM grouped GROUP BY CUBE (1, 2)');
SELECT * FROM compare('SELECT i, flag, grouping(i, flag) FROM grouped GROUP BY i, flag');
SELECT * FROM compare('SELECT n, code, count(*) FROM (SELECT * FROM grouped UNION ALL SELECT * FROM grouped WHERE i < 2) q GROUP BY CUBE (n, code)');
-- Parts of different types, which the planner keeps apart.
SELECT * FROM compare('SELECT x, count(*) FROM (SELECT i AS x, v FROM grouped UNION ALL SELECT NULL::bigint, v FROM grouped WHERE i < 2) q GROUP BY x');
SELECT * FROM compare('SELECT i FROM grouped UNION SELECT NULL::bigint');
-- DISTINCT arguments: the values that a group has met, in place of a sort.
RESET enable_sort;
SELECT * FROM compare('SELECT count(DISTINCT i), count(DISTINCT name), count(DISTINCT code), count(DISTINCT f), count(DISTINCT n), count(DISTINCT flag), count(DISTINCT day) FROM grouped');
SELECT * FROM compare('SELECT sum(DISTINCT i), avg(DISTINCT v), min(DISTINCT small), max(DISTINCT i), stddev(DISTINCT i), sum(i), count(*) FROM grouped');
SELECT * FROM compare('SELECT flag, count(DISTINCT i), sum(DISTINCT v % 7), count(DISTINCT name) FILTER (WHERE small > 0), count(*), min(name COLLATE "C") FROM grouped GROUP BY flag');
SELECT * FROM compare('SELECT day, small, count(DISTINCT upper(name)), count(DISTINCT i * 2) FROM grouped GROUP BY 1, 2 HAVING count(DISTINCT i) > 2');
SELECT * FROM compare('SELECT string_agg(k::text || '':'' || c, '','') FROM (SELECT i AS k, count(DISTINCT v % 13) AS c FROM grouped GROUP BY i ORDER BY i DESC) q');
SELECT * FROM compare('SELECT row_number() OVER (), name, count(DISTINCT v) FROM grouped GROUP BY name ORDER BY name');
SELECT * FROM compare('SELECT count(DISTINCT 100 / (i - 5)) FROM grouped');
SELECT * FROM compare('SELECT small, count(DISTINCT 100 / (i - 5)) FILTER (WHERE i <> 5) FROM grouped GROUP BY small');
SELECT * FROM compare('SELECT count(DISTINCT i), sum(DISTINCT v) FROM grouped WHERE v < 0');
SELECT * FROM compare('SELECT count(DISTINCT i), count(DISTINCT q.name) FROM (SELECT i, name FROM grouped UNION ALL SELECT v, upper(name) FROM grouped WHERE i < 2) q');
SELECT * FROM compare('SELECT small, (SELECT count(DISTINCT v % g.small) FROM grouped WHERE v < 50) FROM (VALUES (2), (5), (9)) g (small)');
-- Not ours: what depends on the order, on the first of equal values, or on more than one argument.
SELECT * FROM compare('SELECT flag, count(DISTINCT i), sum(f) FROM grouped GROUP BY flag');
SELECT * FROM compare('SELECT n, count(DISTINCT i) FROM grouped GROUP BY n');
SELECT * FROM compare('SELECT sum(DISTINCT n), corr(DISTINCT f, i) FROM grouped');
SELECT * FROM compare('SELECT flag, count(DISTINCT i) FROM grouped GROUP BY ROLLUP (flag)');
SET enable_sort = off;
-- Keys that are constants, which a newer planner leaves out: no row, no group.
SELECT result FROM compare('SELECT count(*) FROM grouped WHERE i = 99 GROUP BY i');
SELECT result FROM compare('SELECT i, name, count(*), sum(v) FROM grouped WHERE i = 99 AND name = ''none'' GROUP BY i, name');
SELECT result FROM compare('SELECT i, count(*), sum(v) FROM grouped WHERE i = 3 GROUP BY i HAVING count(*) > 1');
SELECT result FROM compare('SELECT i, count(DISTINCT name) FROM grouped WHERE i = 99 GROUP BY i ORDER BY 1');
SELECT result FROM compare('SELECT i, count(DISTINCT name) FROM grouped WHERE i = 3 GROUP BY i ORDER BY 1');
SELECT result FROM compare('SELECT DISTINCT i FROM grouped WHERE i = 99');
SELECT result FROM compare('SELECT DISTINCT i FROM grouped WHERE i = 3');
SELECT result FROM compare('SELECT i, count(*) FROM grouped WHERE i = 99 GROUP BY ROLLUP (i)');
-- Special keys.
INSERT INTO grouped (i, f, n, name) VALUES (NULL, 'NaN', 'NaN', NULL), (NULL, 'NaN', 'NaN', NULL), (NULL, '-0', 1.00, ''), (NULL, 'inf', '-inf', 'a'), (NULL, '-inf', 1, 'a');
SELECT * FROM compare('SELECT f = 0, count(*) FROM grouped GROUP BY f');
SELECT * FROM compare('SELECT i, f, count(*) FROM grouped WHERE i IS NULL GROUP BY i, f');
SELECT * FROM compare('SELECT n = 1, count(*), sum(f) FROM grouped GROUP BY n');
SELECT * FROM compare('SELECT name, count(*) FROM grouped WHERE i IS NULL GROUP BY name');
SELECT * FROM compare('SELECT i, name, count(*), count(v), grouping(i) FROM grouped WHERE i IS NULL OR i < 2 GROUP BY CUBE (i, name)');
SELECT * FROM compare('SELECT count(DISTINCT i), count(DISTINCT f), count(DISTINCT n), count(DISTINCT name), sum(DISTINCT v) FROM grouped');
SELECT * FROM compare('SELECT i, count(DISTINCT name), count(DISTINCT f), count(DISTINCT small) FROM grouped GROUP BY i');
-- More groups than fit in memory.
CREATE TABLE many AS SELECT k AS key, k % 3 AS v FROM generate_series(1, 30000) k;
VACUUM (ANALYZE, FREEZE) many;
SET work_mem = 64; SET hash_mem_multiplier = 1;
SELECT * FROM compare('SELECT count(*), sum(c), sum(s) FROM (SELECT key, count(*) c, sum(v) s FROM many GROUP BY key) g');
-- Old statistics: more groups than the planner reckons with.
CREATE TABLE stale AS SELECT 1 AS key, k % 3 AS v FROM generate_series(1, 1000) k;
ANALYZE stale;
INSERT INTO stale SELECT key, v FROM many;
SELECT * FROM compare('SELECT count(*), sum(c), sum(g) FROM (SELECT key, v, count(*) c, grouping(v) g FROM stale GROUP BY CUBE (key, v)) q');
SELECT * FROM compare('SELECT count(DISTINCT key), count(DISTINCT v) FROM many');
SELECT * FROM compare('SELECT v, count(DISTINCT key) FROM many GROUP BY v');
SET batchexec.mode = prefer;
SET batchexec.explain = on;
SELECT line FROM explain_figures('SELECT key, v, count(*) FROM stale GROUP BY CUBE (key, v)') line WHERE line LIKE '%Not Batched%';
SELECT line FROM explain_figures('SELECT v, count(DISTINCT key) FROM many GROUP BY v') line WHERE line LIKE '%Not Batched%';
RESET batchexec.mode;
SET batchexec.explain = off;
RESET work_mem; RESET hash_mem_multiplier;
SELECT * FROM compare('SELECT count(*), sum(c), sum(s) FROM (SELECT key, count(*) c, sum(v) s FROM many GROUP BY key) g');
SET batchexec.explain = on;
EXPLAIN (VERBOSE, COSTS OFF) SELECT i % 3, sum(v) FROM grouped WHERE flag GROUP BY 1 HAVING count(*) > 1;
EXPLAIN (VERBOSE, COSTS OFF) SELECT flag, i, sum(v), grouping(flag, i) FROM grouped GROUP BY ROLLUP (flag, i);
SET enable_sort = on;
EXPLAIN (VERBOSE, COSTS OFF) SELECT flag, count(DISTINCT i) FROM grouped GROUP BY flag;
EXPLAIN (COSTS OFF) SELECT count(DISTINCT i) FROM grouped;
EXPLAIN (COSTS OFF) SELECT DISTINCT small FROM grouped;
-- The planner sorts rows; groups are sorted instead, unless the order of rows shows in the result.
SET enable_hashagg = off;
EXPLAIN (COSTS OFF) SELECT name, count(*) FROM grouped GROUP BY name ORDER BY name DESC;
SELECT name, count(*), sum(v) FROM grouped GROUP BY name ORDER BY name DESC LIMIT 4;
SELECT batched_nodes('SELECT flag, sum(f) FROM grouped GROUP BY flag'), batched_nodes('SELECT n, count(*) FROM grouped GROUP BY n');
SELECT * FROM compare('SELECT extract(year FROM date ''2020-03-01'' + i * 100), i, sum(v), min(name) FROM grouped GROUP BY 1, 2');
RESET enable_hashagg;
SELECT line FROM explain_figures('SELECT flag, count(DISTINCT i), sum(f) FROM grouped GROUP BY flag') line WHERE line LIKE '%Not Batched%';
SELECT batched_nodes('SELECT flag, count(DISTINCT i), sum(f) FROM grouped GROUP BY flag');
SET batchexec.explain = off;
DROP TABLE grouped, many, stale;
RESET enable_sort;
