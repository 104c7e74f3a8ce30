-- Rows of plans that have no batches, gathered into some for an aggregation; and rows that the Sort of a LIMIT leaves to a scan.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET max_parallel_workers_per_gather = 0;
SET jit = off;
CREATE TABLE items (id int PRIMARY KEY, kind int, price numeric, weight float8, note text, at date);
INSERT INTO items
    SELECT i, nullif(i % 9, 4), nullif(i % 50, 7)::numeric / 8, i / 3.0, CASE i % 5 WHEN 0 THEN repeat('note ', 900) WHEN 1 THEN NULL ELSE 'note ' || i % 30 END,
           date '2024-01-01' + i % 400
    FROM generate_series(1, 3000) i;
VACUUM (ANALYZE, FREEZE) items;
-- Functions, VALUES, WITH queries, limits, samples, windows, aggregates of aggregates, set operations.
SELECT * FROM compare('SELECT g % 7, count(*), sum(g), min(g), max(g), avg(g) FROM generate_series(1, 1000) g GROUP BY 1');
SELECT * FROM compare('SELECT sum(x), count(y), max(y), bool_or(x > 2) FROM (VALUES (1, ''a''), (2, NULL), (3, ''c'')) v (x, y)');
SELECT * FROM compare('SELECT count(*) FROM (VALUES (1)) v (x) WHERE x > 1');
SELECT * FROM compare('WITH w AS MATERIALIZED (SELECT * FROM items) SELECT kind, count(*), sum(price), avg(weight), min(at), length(max(note COLLATE "C")) FROM w GROUP BY kind');
SELECT * FROM compare('SELECT kind, sum(price) FROM (SELECT * FROM items ORDER BY id DESC LIMIT 700) q GROUP BY kind HAVING count(*) > 70');
SELECT * FROM compare('SELECT count(note), count(DISTINCT note), sum(DISTINCT kind) FROM items TABLESAMPLE system (100)');
SELECT * FROM compare('SELECT kind, sum(n), max(price) FROM (SELECT kind, price, row_number() OVER (PARTITION BY kind ORDER BY id) AS n FROM items) q GROUP BY kind');
SELECT * FROM compare('SELECT n, count(*), array_agg(kind) FROM (SELECT kind, count(*) AS n FROM items GROUP BY kind ORDER BY kind) q GROUP BY n');
SELECT * FROM compare('SELECT kind, at, count(*) FROM (SELECT kind, at FROM items UNION ALL SELECT g % 3, NULL FROM generate_series(1, 90) g) q GROUP BY CUBE (kind, at)');
SELECT * FROM compare('SELECT count(*), sum(kind) FROM (SELECT kind FROM items EXCEPT SELECT 3) q');
SELECT * FROM compare('SELECT a.kind, sum(a.price * g), count(a.note) FILTER (WHERE length(a.note) < 9) FROM items a JOIN generate_series(1, 30) g ON g > a.id % 40 GROUP BY a.kind');
SELECT * FROM compare('WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 700) SELECT n % 10, sum(n), corr(n, n % 7) FROM r GROUP BY 1');
-- Values that are long, compressed, expanded, or of types without a vector.
SELECT * FROM compare('SELECT md5(note), count(*), length(max(note COLLATE "C")) FROM (SELECT note FROM items OFFSET 0) q GROUP BY note HAVING count(*) > 100');
SELECT * FROM compare('SELECT count(a), count(DISTINCT b) FROM (SELECT array_append(ARRAY[g], g) AS a, NULLIF(g % 5, 2) AS b, ROW(g, g) FROM generate_series(1, 500) g) q');
SELECT * FROM compare('SELECT j->>''k'', count(*), sum((j->>''v'')::numeric) FROM (SELECT jsonb_build_object(''k'', g % 4, ''v'', g / 8.0) AS j FROM generate_series(1, 400) g) q GROUP BY 1');
-- An error below, and above.
SELECT * FROM compare('SELECT sum(100 / x) FROM (SELECT g - 400 AS x FROM generate_series(1, 600) g OFFSET 0) q');
SELECT * FROM compare('SELECT count(x) FROM (SELECT 100 / (g - 400) AS x FROM generate_series(1, 600) g OFFSET 0) q');
-- Below the hash joins that an aggregation reads: one, several, of each type, and where a join computes expressions.
SET enable_mergejoin = off; SET enable_nestloop = off; SET batchexec.join_paths = off;
CREATE TABLE dims AS SELECT g AS k, g % 10 AS n, 'name ' || g AS name, g / 4.0 AS price FROM generate_series(0, 500) g;
CREATE TABLE ends AS SELECT g AS n, ARRAY[g, g] AS list FROM generate_series(0, 7) g;
VACUUM (ANALYZE, FREEZE) dims, ends;
SELECT * FROM compare('SELECT count(*), sum(d.n), sum(g), max(d.name COLLATE "C") FROM generate_series(1, 3000) g JOIN dims d ON d.k = g % 700');
SELECT * FROM compare('SELECT e.n, count(*), sum(g + d.price) FROM generate_series(1, 3000) g JOIN dims d ON d.k = g % 700 JOIN ends e ON e.n = d.n GROUP BY e.n');
SELECT * FROM compare('SELECT d.n, count(g), count(*), sum(length(t)) FROM (SELECT g, ''text '' || g AS t FROM generate_series(1, 900) g OFFSET 0) q LEFT JOIN dims d ON d.name = replace(t, ''text'', ''name'') GROUP BY d.n');
SELECT * FROM compare('SELECT count(*), sum(i.kind) FROM (SELECT * FROM items ORDER BY id LIMIT 2000) i WHERE EXISTS (SELECT FROM dims d WHERE d.k = i.id AND d.n = i.kind)');
SELECT * FROM compare('SELECT count(*), sum(i.kind) FROM (SELECT * FROM items ORDER BY id LIMIT 2000) i WHERE NOT EXISTS (SELECT FROM dims d WHERE d.k = i.id)');
SELECT * FROM compare('SELECT count(*), count(d.k), count(g), sum(d.n) FROM generate_series(1, 900) g FULL JOIN dims d ON d.k = g - 300');
SELECT * FROM compare('WITH w AS MATERIALIZED (SELECT * FROM items) SELECT w.kind, count(*), sum(w.price * d.price), count(w.note) FROM w JOIN dims d ON d.k = w.id WHERE w.price + d.price > 3 GROUP BY w.kind');
SELECT * FROM compare('SELECT e.n, count(*) FROM (SELECT d.n + 1 AS m, g FROM generate_series(1, 2000) g JOIN dims d ON d.k = g % 600 OFFSET 0) q JOIN ends e ON e.n = q.m GROUP BY e.n');
SELECT * FROM compare('SELECT count(DISTINCT e.list), count(*) FROM (VALUES (1, 2), (3, NULL), (5, 2)) v (x, y) JOIN dims d ON d.k = v.x LEFT JOIN ends e ON e.n = v.y');
SELECT * FROM compare('SELECT count(*), count(q.list) FROM (SELECT g, ARRAY[g] AS list FROM generate_series(1, 900) g OFFSET 0) q JOIN dims d ON d.k = q.g JOIN ends e ON e.n = d.n WHERE q.list[1] + e.list[1] > 9');
SELECT * FROM compare('SELECT DISTINCT d.n, g % 2 FROM generate_series(1, 3000) g JOIN dims d ON d.k = g % 700');
-- None on either side; an error in a key, below, and in what is made of a pair.
SELECT * FROM compare('SELECT count(*), sum(d.n) FROM generate_series(1, 0) g JOIN dims d ON d.k = g');
SELECT * FROM compare('SELECT count(*), sum(d.n) FROM generate_series(1, 900) g JOIN dims d ON d.k = g WHERE d.n > 10');
SELECT * FROM compare('SELECT count(*) FROM generate_series(1, 900) g JOIN dims d ON d.k = 100 / (g - 700)');
SELECT * FROM compare('SELECT count(*) FROM (SELECT 100 / (g - 700) AS x FROM generate_series(1, 900) g OFFSET 0) q JOIN dims d ON d.k = q.x');
SELECT * FROM compare('SELECT sum(100 / (d.k - g)) FROM generate_series(1, 900) g JOIN dims d ON d.k = g');
-- Anew for each row above; a hash table that exceeds the memory.
SELECT * FROM compare('SELECT p, (SELECT count(*) + sum(d.n) FROM generate_series(1, p * 200) g JOIN dims d ON d.k = g + p) FROM generate_series(0, 4) p');
SELECT * FROM compare('SELECT p, q.* FROM generate_series(1, 3) p, LATERAL (SELECT d.n, count(*) FROM generate_series(p, 300) g JOIN dims d ON d.k = g WHERE d.n > p GROUP BY 1) q');
SET work_mem = 64; SET hash_mem_multiplier = 1;
SELECT * FROM compare('SELECT count(*), sum(length(i.note)), max(g) FROM generate_series(1, 5000) g JOIN items i ON i.id = g');
RESET work_mem; RESET hash_mem_multiplier;
RESET batchexec.join_paths;
-- By choice: where that is cheaper, and no reason is left.
EXPLAIN (COSTS OFF) SELECT d.n, count(*), sum(g + d.k) FROM generate_series(1, 1000000) g JOIN dims d ON d.k = g % 700 GROUP BY d.n;
EXPLAIN (COSTS OFF) SELECT sum(g) FROM generate_series(1, 10) g JOIN dims d ON d.k = g;
RESET enable_mergejoin; RESET enable_nestloop;
DROP TABLE dims, ends;
-- Anew for each outer row; none at all; more than once.
SELECT * FROM compare('SELECT p, (SELECT sum(g * p) FROM generate_series(1, p * 200) g) FROM generate_series(0, 4) p');
SELECT * FROM compare('SELECT p, q.* FROM generate_series(1, 3) p, LATERAL (SELECT g % p AS k, count(*) FROM generate_series(p, 300) g GROUP BY 1) q');
SELECT * FROM compare('SELECT p, q.n FROM generate_series(1, 3) p, LATERAL (SELECT count(*) AS n FROM (SELECT id FROM items WHERE kind = p LIMIT 400) i) q');
-- Groups, or distinct values, that exceed the memory.
SET work_mem = 64; SET hash_mem_multiplier = 1; SET enable_sort = off;
SELECT * FROM compare('SELECT g % 5000, count(*), sum(g), min(''text '' || g) FROM generate_series(1, 20000) g GROUP BY 1');
SELECT * FROM compare('SELECT count(DISTINCT g % 9000) FROM generate_series(1, 20000) g');
RESET work_mem; RESET hash_mem_multiplier; RESET enable_sort;
-- Workers read a part each; the leader gathers all.
SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SELECT * FROM compare('SELECT a.kind, count(*), sum(b.price) FROM items a JOIN items b ON b.id = a.id + 1 AND b.kind <> a.kind GROUP BY a.kind');
SELECT * FROM compare('SELECT kind, count(DISTINCT at) FROM (SELECT kind, at FROM items OFFSET 0) q GROUP BY kind');
SET work_mem = 64; SET hash_mem_multiplier = 1;
SELECT * FROM compare('SELECT id, count(*) FROM (SELECT id FROM items OFFSET 0) q GROUP BY id');
RESET work_mem; RESET hash_mem_multiplier;
SET max_parallel_workers_per_gather = 0;
-- A cursor, and a prepared statement that is switched off.
SET batchexec.mode = prefer;
BEGIN;
DECLARE sums NO SCROLL CURSOR FOR SELECT g % 400, sum(g) FROM generate_series(1, 4000) g GROUP BY 1;
FETCH 3 FROM sums;
MOVE 300 IN sums;
FETCH 1 FROM sums;
ROLLBACK;
PREPARE summed (int) AS SELECT count(*), sum(g) FROM generate_series(1, $1) g;
EXECUTE summed (1000);
EXPLAIN (COSTS OFF) EXECUTE summed (1000);
SET batchexec.enabled = off;
EXECUTE summed (1000);
RESET batchexec.enabled;
DEALLOCATE summed;
-- What EXPLAIN shows, and where it pays.
SELECT explain_figures('SELECT g % 7 AS k, count(*), sum(g) FROM generate_series(1, 1000) g GROUP BY 1 ORDER BY 1');
EXPLAIN (VERBOSE, COSTS OFF) SELECT kind, sum(n) FROM (SELECT kind, at, count(*) AS n FROM items GROUP BY kind, at) q GROUP BY kind;
RESET batchexec.mode;
EXPLAIN (COSTS OFF) SELECT g % 7, count(*), sum(g) FROM generate_series(1, 100000) g GROUP BY 1;
EXPLAIN (COSTS OFF) SELECT count(*) FROM generate_series(1, 100000) g;
EXPLAIN (COSTS OFF) SELECT g % 7, count(*), sum(g) FROM generate_series(1, 10) g GROUP BY 1;
-- What a subquery costs is not what an aggregation does.
EXPLAIN (COSTS OFF) WITH w AS MATERIALIZED (SELECT g FROM generate_series(1, 100000) g) SELECT count(*) FROM w;
DROP TABLE items;
-- LIMIT over ORDER BY: rows that the Sort can't return stay in the scan.
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
CREATE TABLE ranked (id int, v int, d double precision, s smallint, b bigint, day date, t text, flag bool);
INSERT INTO ranked
    SELECT k, CASE WHEN k % 11 <> 0 THEN k * 7919 % 1000 END,
           CASE k % 500 WHEN 1 THEN 'NaN' WHEN 2 THEN '-0' WHEN 3 THEN 'Infinity' WHEN 4 THEN '-Infinity' ELSE sin(k) END,
           k % 50 - 25, (k * 7919 % 3000 - 1500) * 3000000000, date '2020-01-01' + k % 100, 'text ' || k, k % 2 = 0
    FROM generate_series(1, 5000) k;
INSERT INTO ranked (id, v, b) VALUES (5001, -2147483648, -9223372036854775808), (5002, 2147483647, 9223372036854775807);
VACUUM (ANALYZE, FREEZE) ranked;
SELECT * FROM compare('SELECT id, v FROM ranked ORDER BY v LIMIT 7');
SELECT * FROM compare('SELECT id, v FROM ranked ORDER BY v DESC NULLS LAST, id LIMIT 5');
SELECT * FROM compare('SELECT id, v FROM ranked ORDER BY v NULLS FIRST, id DESC LIMIT 4');
SELECT * FROM compare('SELECT * FROM (SELECT id, v, t FROM ranked ORDER BY v DESC LIMIT 3 OFFSET 460) q');
SELECT * FROM compare('SELECT id, d FROM ranked ORDER BY d, id LIMIT 30');
SELECT * FROM compare('SELECT id, d FROM ranked ORDER BY d DESC NULLS LAST, id LIMIT 30');
SELECT * FROM compare('SELECT id, b FROM ranked ORDER BY b, id LIMIT 3');
SELECT * FROM compare('SELECT id, b FROM ranked ORDER BY b DESC NULLS FIRST, id LIMIT 3');
SELECT * FROM compare('SELECT * FROM ranked WHERE v > 20 AND flag ORDER BY day DESC, s, id LIMIT 6');
SELECT * FROM compare('SELECT id FROM ranked WHERE t LIKE ''%7'' AND v % 3 = 1 ORDER BY s, v LIMIT 6');
SELECT * FROM compare('SELECT id FROM ranked ORDER BY flag, id DESC LIMIT 2');
SELECT * FROM compare('SELECT id FROM ranked ORDER BY v LIMIT 0');
SELECT * FROM compare('SELECT id, v FROM ranked ORDER BY v, t LIMIT 20000');
-- The same of equal rows as stock, in the same order.
SELECT * FROM compare('SELECT array_agg(id) FROM (SELECT id FROM ranked ORDER BY s LIMIT 8) q');
SELECT * FROM compare('SELECT array_agg(id) FROM (SELECT id FROM ranked WHERE v IS NOT NULL ORDER BY day DESC LIMIT 60) q');
-- A row that is left out may fail in an expression, so none is.
SELECT * FROM compare('SELECT 1 / (id - 4000) FROM ranked ORDER BY id LIMIT 2');
-- Anew for each outer row, with other bounds.
SELECT * FROM compare('SELECT g, (SELECT sum(id) FROM (SELECT id FROM ranked WHERE s > g ORDER BY v, id LIMIT g) q) FROM generate_series(0, 6) g');
SELECT * FROM compare('SELECT g, q.id FROM generate_series(1, 3) g, LATERAL (SELECT id FROM ranked WHERE s = g ORDER BY b DESC, id LIMIT g) q');
PREPARE top (int) AS SELECT id, v FROM ranked ORDER BY v, id LIMIT $1;
SET plan_cache_mode = force_generic_plan;
EXECUTE top (3);
EXECUTE top (1);
EXECUTE top (NULL) \g /dev/null
DEALLOCATE top;
RESET plan_cache_mode;
-- Few of the rows reach the Sort.
SET batchexec.mode = prefer;
SET batchexec.explain = on;
SELECT explain_figures('SELECT id FROM ranked ORDER BY b DESC, id LIMIT 3');
SELECT explain_figures('SELECT id FROM ranked ORDER BY t LIMIT 3');
SET batchexec.explain = off;
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
SELECT * FROM compare('SELECT id, v FROM ranked ORDER BY v, id LIMIT 4');
DROP TABLE ranked;
