-- Hash joins over batches.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
SET jit = off;
SET enable_mergejoin = off; SET enable_nestloop = off;
CREATE TABLE facts (k int, wide bigint, small smallint, f double precision, r real, n numeric, t text, v varchar(20), c char(8), d date, at timestamp, flag bool, amount numeric(12,2), id uuid);
INSERT INTO facts SELECT CASE WHEN i % 11 > 0 THEN i % 300 END, i % 50, i % 20, CASE WHEN i % 7 > 0 THEN (i % 9) / 2.0 END, (i % 5) / 2.0,
    CASE WHEN i % 5 > 0 THEN (i % 40)::numeric / 4 END, CASE WHEN i % 6 > 0 THEN 'name ' || i % 70 END, 'v' || i % 30, 'c' || i % 12,
    date '2020-01-01' + i % 100, timestamp '2020-01-01' + i % 100 * interval '1 day', i % 3 = 0, i / 100.0, md5((i % 9)::text)::uuid
    FROM generate_series(1, 6000) i;
CREATE TABLE few (k int, wide bigint, f double precision, n numeric, t text, v varchar, c char(4), d date, label text, id uuid);
INSERT INTO few SELECT CASE WHEN i % 13 > 0 THEN i END, i % 25, CASE WHEN i % 8 > 0 THEN i % 4 / 2.0 END, (i % 30)::numeric(10,3) / 4, CASE WHEN i % 9 > 0 THEN 'name ' || i END,
    'v' || i % 40, 'c' || i % 20, date '2020-01-01' + i, 'label ' || i % 10, md5(i::text)::uuid FROM generate_series(1, 120) i;
INSERT INTO few SELECT * FROM few WHERE k % 10 = 0;
VACUUM (ANALYZE, FREEZE) facts, few;
-- Keys of every kind, of one type and of two; NULLs match nothing; duplicates match each other.
SELECT * FROM compare('SELECT count(*), sum(amount), sum(few.k), count(label), max(facts.k) FROM facts JOIN few ON facts.k = few.k');
SELECT * FROM compare('SELECT count(*), sum(amount), min(few.wide) FROM facts JOIN few ON facts.k = few.wide');
SELECT * FROM compare('SELECT count(*), sum(amount), min(few.wide) FROM facts JOIN few ON small = few.wide');
SELECT * FROM compare('SELECT count(*), sum(amount), sum(few.f) FROM facts JOIN few ON facts.f = few.f');
SELECT * FROM compare('SELECT count(*), sum(amount), sum(few.f) FROM facts JOIN few ON r = few.f');
SELECT * FROM compare('SELECT count(*), sum(amount), sum(few.n) FROM facts JOIN few ON facts.n = few.n');
SELECT * FROM compare('SELECT count(*), sum(amount), sum(few.n + facts.n) FROM facts JOIN few ON facts.k = few.n');
SELECT * FROM compare('SELECT count(*), sum(amount), sum(length(few.t)) FROM facts JOIN few ON facts.t = few.t');
SELECT * FROM compare('SELECT count(*), sum(amount) FROM facts JOIN few ON facts.v = few.v');
SELECT * FROM compare('SELECT count(*), sum(amount), sum(length(few.t)) FROM facts JOIN few ON facts.t = few.v');
SELECT * FROM compare('SELECT count(*), sum(amount) FROM facts JOIN few ON facts.c = few.c');
SELECT * FROM compare('SELECT count(*), sum(amount) FROM facts JOIN few ON facts.v = few.c::text');
SELECT * FROM compare('SELECT count(*), sum(amount), max(few.d) FROM facts JOIN few ON facts.d = few.d');
SELECT * FROM compare('SELECT count(*), sum(amount), max(few.d) FROM facts JOIN few ON facts.at = few.d');
SELECT * FROM compare('SELECT count(*), sum(amount) FROM facts JOIN few ON facts.k = few.k AND facts.wide = few.wide AND facts.c = few.c');
SELECT * FROM compare('SELECT count(*), sum(amount) FROM facts JOIN few ON facts.k + 1 = few.k * 2');
SELECT * FROM compare('SELECT count(*), sum(amount) FROM facts JOIN few ON facts.id = few.id');
-- Left, semi and anti joins; NULLs of either side.
SELECT * FROM compare('SELECT count(*), count(few.k), sum(few.n), count(label) FROM facts LEFT JOIN few ON facts.k = few.k');
SELECT * FROM compare('SELECT count(*), sum(amount) FROM facts LEFT JOIN few ON facts.k = few.k WHERE few.label IS NULL');
SELECT * FROM compare('SELECT count(*), sum(amount), sum(k) FROM facts WHERE k IN (SELECT k FROM few)');
SELECT * FROM compare('SELECT count(*), sum(amount), sum(k) FROM facts WHERE EXISTS (SELECT FROM few WHERE few.k = facts.k AND few.c = facts.c)');
SELECT * FROM compare('SELECT count(*), sum(amount), sum(k), count(k) FROM facts WHERE NOT EXISTS (SELECT FROM few WHERE few.k = facts.k)');
SELECT * FROM compare('SELECT count(*), sum(amount) FROM facts WHERE NOT EXISTS (SELECT FROM few WHERE few.k = facts.k AND label > ''x'')');
SELECT * FROM compare('SELECT count(*), sum(amount) FROM facts JOIN few ON facts.k = few.k WHERE label > ''x''');
SELECT * FROM compare('SELECT count(*), count(few.k) FROM facts LEFT JOIN few ON facts.k = few.k AND label > ''x''');
SELECT * FROM compare('SELECT count(*) FROM facts LEFT JOIN few ON facts.k = few.k AND facts.amount > few.n');
SELECT * FROM compare('SELECT count(*), count(facts.k), count(few.k) FROM facts FULL JOIN few ON facts.k = few.k');
SELECT * FROM compare('SELECT few.k, count(*), count(facts.k), sum(amount) FROM few LEFT JOIN facts ON facts.k = few.k GROUP BY few.k');
SELECT * FROM compare('SELECT few.label, few.k, facts.k, facts.t, facts.n, facts.id FROM few LEFT JOIN facts ON facts.k = few.k AND facts.amount < 9 WHERE coalesce(facts.k, 7) < 100');
SELECT * FROM compare('SELECT few.label, facts.k FROM few LEFT JOIN facts ON facts.k = few.k WHERE few.k IS NULL AND few.n > 1');
-- Rows, columns of types without vectors, filters, conditions by column and by row.
SELECT * FROM compare('SELECT facts.*, few.* FROM facts JOIN few ON facts.k = few.k WHERE amount < 20');
SELECT * FROM compare('SELECT facts.id, few.id, r, facts.f, flag, facts.at, few.c FROM facts JOIN few ON facts.wide = few.k WHERE facts.k < 20 AND few.n > 1');
SELECT * FROM compare('SELECT few.label, r, facts.id FROM facts LEFT JOIN few ON facts.k = few.k WHERE amount < 5');
SELECT * FROM compare('SELECT count(*), sum(amount) FROM facts JOIN few ON facts.k = few.k AND facts.amount > few.n AND facts.d < few.d');
SELECT * FROM compare('SELECT count(*), sum(amount) FROM facts JOIN few ON facts.k = few.k AND upper(facts.t) < upper(label)');
SELECT * FROM compare('SELECT label, count(*), sum(amount), avg(facts.f), min(few.n), max(facts.d) FROM facts JOIN few ON facts.k = few.k GROUP BY label');
SELECT * FROM compare('SELECT label, facts.c, few.n, count(*), sum(amount * few.n) FROM facts JOIN few ON facts.k = few.k GROUP BY 1, 2, 3');
SELECT * FROM compare('SELECT label, sum(CASE WHEN facts.flag THEN amount END), count(*) FILTER (WHERE few.n > 2) FROM facts JOIN few ON facts.k = few.k GROUP BY label HAVING count(*) > 100');
SELECT * FROM compare('SELECT facts.k, label FROM facts JOIN few ON facts.k = few.k ORDER BY amount, label LIMIT 5');
SELECT * FROM compare('SELECT facts.k, (SELECT max(x.n) FROM few x WHERE x.wide = few.wide) FROM facts JOIN few ON facts.k = few.k WHERE amount < 1');
-- Errors, where stock raises them alone.
SELECT * FROM compare('SELECT sum(100 / (few.k - 5)) FROM facts JOIN few ON facts.k = few.k WHERE few.k <> 5');
SELECT * FROM compare('SELECT sum(100 / (few.k - 5)) FROM facts JOIN few ON facts.k = few.k');
SELECT * FROM compare('SELECT count(*) FROM facts JOIN few ON facts.k = few.k AND 100 / (few.k - facts.k) > 0');
-- Keys that few outer rows have, or most, or only the first ones; of one column and of two.
CREATE TABLE wanted AS SELECT i * 40 AS k, i % 50 AS wide, i AS score FROM generate_series(1, 3000) i;
VACUUM (ANALYZE, FREEZE) wanted;
SELECT * FROM compare('SELECT count(*), sum(score), sum(amount) FROM facts JOIN wanted ON facts.k * 20 = wanted.k');
SELECT * FROM compare('SELECT count(*), sum(score), sum(amount) FROM facts JOIN wanted ON facts.k * 20 = wanted.k AND facts.wide = wanted.wide');
SELECT * FROM compare('SELECT count(*), count(score), sum(amount) FROM facts LEFT JOIN wanted ON facts.k = wanted.k');
SELECT * FROM compare('SELECT count(*), count(facts.k), sum(score) FROM wanted LEFT JOIN facts ON facts.k = wanted.k');
SELECT * FROM compare('SELECT count(*), sum(amount) FROM facts WHERE NOT EXISTS (SELECT FROM wanted WHERE facts.k * 20 = wanted.k)');
SELECT * FROM compare('SELECT s, (SELECT sum(amount) FROM facts JOIN wanted ON facts.k * 20 = wanted.k WHERE score % 7 = s) FROM generate_series(1, 5) s');
DROP TABLE wanted;
-- Joins over joins, and over what is not a table.
SELECT * FROM compare('SELECT a.label, count(*), sum(amount), sum(b.n), max(c.d) FROM facts JOIN few a ON facts.k = a.k JOIN few b ON facts.wide = b.wide JOIN few c ON b.k = c.k GROUP BY a.label');
SELECT * FROM compare('SELECT facts.k, q.n, q.t FROM facts JOIN (SELECT k, count(*) n, max(label) t FROM few GROUP BY k HAVING count(*) > 1) q ON facts.k = q.k WHERE amount < 10');
SELECT * FROM compare('WITH w AS MATERIALIZED (SELECT k, label FROM few) SELECT w.label, count(*) FROM facts JOIN w ON facts.k = w.k JOIN w x ON facts.wide = x.k GROUP BY 1');
SELECT * FROM compare('SELECT count(*), sum(s) FROM facts JOIN generate_series(1, 50) s ON s = facts.k');
-- The inner side anew for each row above, or once for all.
SELECT * FROM compare('SELECT s, (SELECT sum(amount) FROM facts JOIN few ON facts.k = few.k WHERE facts.wide > s) FROM generate_series(1, 5) s');
SELECT * FROM compare('SELECT s, (SELECT sum(amount) FROM facts JOIN few ON facts.k = few.k WHERE few.wide > s) FROM generate_series(1, 5) s');
SELECT * FROM compare('SELECT s, (SELECT sum(amount) FROM facts JOIN few ON facts.k = few.k + s) FROM generate_series(1, 5) s');
-- Toasted values, on either side.
CREATE TABLE large (k int, t text);
ALTER TABLE large ALTER t SET STORAGE external;
INSERT INTO large SELECT i % 300, repeat('name ' || i % 5, 1000) FROM generate_series(1, 400) i;
CREATE TABLE large_few AS SELECT * FROM large WHERE k < 8;
VACUUM (ANALYZE, FREEZE) large, large_few;
SELECT * FROM compare('SELECT count(*), sum(length(a.t)), max(md5(b.t)) FROM large a JOIN large_few b ON a.t = b.t');
SELECT * FROM compare('SELECT b.t = a.t, length(b.t), count(*) FROM large a JOIN large_few b ON a.k = b.k GROUP BY a.t, b.t');
DROP TABLE large, large_few;
-- More inner rows than memory: joined in rounds.
CREATE TABLE many AS SELECT i % 20000 AS k, i AS v, 'text ' || i % 100 AS t FROM generate_series(1, 30000) i;
VACUUM (ANALYZE, FREEZE) many;
CREATE FUNCTION compare_preferred(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    batched text[];
BEGIN
    PERFORM set_config('batchexec.mode', 'prefer', true);
    batched := outcome(query);
    PERFORM set_config('batchexec.mode', 'forbid', true);
    IF batched IS DISTINCT FROM outcome(query) THEN
        RAISE EXCEPTION 'results differ: %', query;
    END IF;
    RETURN cardinality(batched) || ' rows';
END $$;
SET work_mem = '64kB'; SET hash_mem_multiplier = 1;
SELECT compare_preferred('SELECT count(*), sum(a.v), sum(b.v), max(b.t) FROM many a JOIN many b ON a.k = b.k');
SELECT compare_preferred('SELECT a.t, count(*), count(b.v), sum(b.v) FROM many a LEFT JOIN many b ON a.k = b.v + 5000 GROUP BY a.t');
SELECT compare_preferred('SELECT count(*), sum(v) FROM many a WHERE NOT EXISTS (SELECT FROM many b WHERE a.v = b.k)');
SELECT compare_preferred('SELECT count(*), sum(v) FROM many a WHERE v IN (SELECT k FROM many b)');
SELECT compare_preferred('SELECT a.k, b.t, c.v FROM many a JOIN many b ON a.k = b.v JOIN many c ON c.v = b.k WHERE a.v < 3000');
SELECT compare_preferred('SELECT a.k, count(*), sum(b.v) FROM many a JOIN few b0 ON a.v % 100 = b0.k JOIN many b ON a.k = b.v GROUP BY a.k');
SELECT compare_preferred('SELECT s, (SELECT sum(b.v) FROM many a JOIN many b ON a.k = b.k WHERE a.v < s * 100) FROM generate_series(1, 3) s');
RESET work_mem; RESET hash_mem_multiplier;
-- More groups than memory, over a join.
SET work_mem = '64kB'; SET hash_mem_multiplier = 1.0;
SELECT compare_preferred('SELECT a.v, count(*), sum(few.n) FROM many a JOIN few ON a.v % 100 = few.k GROUP BY a.v');
RESET work_mem; RESET hash_mem_multiplier;
-- Workers each build the table; or share it, and then it is the stock server's.
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2;
SELECT compare_preferred('SELECT label, count(*), sum(amount), sum(facts.k) FROM facts JOIN few ON facts.k = few.k GROUP BY label');
SET enable_parallel_hash = off;
SELECT compare_preferred('SELECT label, count(*), sum(amount), sum(facts.k) FROM facts JOIN few ON facts.k = few.k GROUP BY label');
SELECT compare_preferred('SELECT facts.k, label, amount FROM facts JOIN few ON facts.k = few.k');
SET work_mem = '64kB'; SET hash_mem_multiplier = 1;
SELECT compare_preferred('SELECT count(*), sum(a.v), sum(b.v), max(b.t) FROM many a JOIN many b ON a.k = b.k');
SELECT compare_preferred('SELECT a.v, count(*) FROM many a JOIN few ON a.v % 100 = few.k GROUP BY a.v');
RESET work_mem; RESET hash_mem_multiplier;
RESET enable_parallel_hash; RESET max_parallel_workers_per_gather; SET max_parallel_workers_per_gather = 0;
-- A key behind one that is NULL is evaluated, and raises its error, only where the row may be returned without a match.
CREATE TABLE keyed AS SELECT CASE WHEN i % 2 > 0 THEN i END AS a, i % 2 AS b FROM generate_series(1, 2000) i;
ANALYZE keyed;
SELECT compare_preferred('SELECT count(*) FROM keyed JOIN many ON keyed.a = many.k AND 10 / keyed.b = many.k % 5');
SELECT compare_preferred('SELECT count(*) FROM many LEFT JOIN keyed ON keyed.a = many.k AND 10 / keyed.b = many.k % 5');
SELECT compare_preferred('SELECT count(*) FROM keyed WHERE EXISTS (SELECT FROM many WHERE keyed.a = many.k AND 10 / keyed.b = many.k % 5)');
SELECT compare_preferred('SELECT count(*) FROM keyed LEFT JOIN many ON keyed.a = many.k AND 10 / keyed.b = many.k % 5');
SELECT compare_preferred('SELECT count(*) FROM keyed FULL JOIN many ON keyed.a = many.k AND 10 / keyed.b = many.k % 5');
DROP TABLE keyed;
-- The groups of a join exceed the memory.
SET work_mem = 64; SET hash_mem_multiplier = 1; SET enable_sort = off;
SELECT * FROM compare('SELECT count(*), sum(c), sum(labels) FROM (SELECT amount, count(*) AS c, count(label) AS labels FROM facts LEFT JOIN few USING (k) GROUP BY amount) g');
RESET work_mem; RESET hash_mem_multiplier; RESET enable_sort;
-- A record's fields are found where it is made alone.
CREATE TABLE edges AS SELECT i AS f, i + 1 AS t FROM generate_series(1, 500) i;
ANALYZE edges;
SET batchexec.mode = prefer;
EXPLAIN (VERBOSE, COSTS OFF) WITH RECURSIVE reached(f, t) AS (SELECT * FROM edges WHERE f = 1 UNION ALL SELECT edges.* FROM edges, reached WHERE edges.f = reached.t)
    SEARCH BREADTH FIRST BY f, t SET seq SELECT * FROM reached ORDER BY seq;
RESET batchexec.mode;
DROP TABLE edges;
-- An inner side in batches: values of all kinds, NULLs, filters, joins and expressions below.
SET batchexec.mode = prefer;
SELECT * FROM compare('SELECT few.k, inner_side.* FROM few JOIN (SELECT k, wide, small, f, r, n, t, v, c, d, at, flag, amount FROM facts WHERE amount < 12) inner_side ON few.k = inner_side.k');
SELECT * FROM compare('SELECT few.k, inner_side.* FROM few LEFT JOIN (SELECT k, r, n, t FROM facts WHERE r > 1 AND f IS NULL) inner_side ON few.k = inner_side.k');
SELECT * FROM compare('SELECT few.k, facts.id, facts.r FROM few JOIN facts ON few.k = facts.k WHERE facts.amount < 8');
SELECT * FROM compare('SELECT count(*), sum(s.doubled) FROM few JOIN (SELECT k, amount * 2 AS doubled FROM facts) s ON few.k = s.k');
SELECT * FROM compare('SELECT count(*), sum(b.amount), min(b.t), max(b.r) FROM facts a JOIN (facts b JOIN few ON b.k = few.k) ON a.n = b.n AND a.small = b.small');
SELECT * FROM compare('SELECT count(*) FROM few WHERE NOT EXISTS (SELECT FROM facts WHERE facts.t = few.t AND facts.amount > 3)');
SELECT * FROM compare('SELECT few.k, (SELECT count(*) FROM few x JOIN facts ON facts.k = x.k AND facts.wide < few.wide) FROM few WHERE few.k < 9');
SET work_mem = '64kB'; SET hash_mem_multiplier = 1;
SELECT * FROM compare('SELECT few.k, facts.r, facts.t, facts.n FROM few LEFT JOIN facts ON few.k = facts.k');
SELECT * FROM compare('SELECT count(*), sum(a.amount), max(b.t) FROM facts a JOIN (facts b JOIN few ON b.k = few.k) ON a.n = b.n AND a.small = b.small');
RESET work_mem; RESET hash_mem_multiplier; RESET batchexec.mode;
-- Full joins: NULLs and duplicates of both sides, an empty side, filters above, rows, groups, and a spill.
SELECT * FROM compare('SELECT facts.k, facts.t, few.k, few.label FROM facts FULL JOIN few ON facts.k = few.k AND facts.wide = few.wide WHERE facts.amount IS NULL OR facts.amount < 2');
SELECT * FROM compare('SELECT label, count(*), count(facts.k), sum(amount), sum(few.n) FROM facts FULL JOIN few ON facts.t = few.t GROUP BY label');
SELECT * FROM compare('SELECT count(*), count(f.k), count(few.k) FROM facts f FULL JOIN (SELECT * FROM few WHERE k < 0) few ON f.k = few.k');
SELECT * FROM compare('SELECT count(*), count(f.k), count(few.k) FROM (SELECT * FROM facts WHERE amount < 0) f FULL JOIN few ON f.k = few.k');
SELECT * FROM compare('SELECT count(*), count(facts.k), count(b.k), count(few.k) FROM facts FULL JOIN few ON facts.k = few.k FULL JOIN few b ON b.wide = facts.wide');
SELECT * FROM compare('SELECT few.wide, (SELECT count(*) FROM (SELECT * FROM facts WHERE small = few.wide) f FULL JOIN few x ON f.k = x.k) FROM few WHERE few.k < 6');
-- The outer keys' errors are raised where the inner side is empty as well, if outer rows are read then.
SELECT * FROM compare('SELECT count(*) FROM facts LEFT JOIN (SELECT * FROM few WHERE k < 0) e ON 10 / facts.small = e.k');
SELECT * FROM compare('SELECT count(*) FROM facts WHERE NOT EXISTS (SELECT FROM few WHERE k < 0 AND k = 10 / facts.small)');
SELECT * FROM compare('SELECT count(*) FROM facts FULL JOIN (SELECT * FROM few WHERE k < 0) e ON 10 / facts.small = e.k');
SELECT * FROM compare('SELECT count(*), count(e.k) FROM facts LEFT JOIN (SELECT * FROM few WHERE k < 0) e ON 10 / (facts.small + 1) = e.k');
SELECT * FROM compare('SELECT count(*) FROM facts JOIN (SELECT * FROM few WHERE k < 0) e ON 10 / facts.small = e.k');
SELECT * FROM compare('SELECT count(*) FROM facts RIGHT JOIN (SELECT * FROM few WHERE k < 0) e ON 10 / facts.small = e.k');
-- A constant of a side without a row is NULL.
SELECT * FROM compare('SELECT a.one, a.k, b.two, b.k FROM (SELECT 1 AS one, * FROM facts WHERE wide = 3) a FULL JOIN (SELECT 2 AS two, * FROM few) b ON a.k = b.k WHERE a.one IS NULL OR b.two IS NULL AND a.amount < 9');
SELECT * FROM compare('SELECT a.one, a.k, b.two, b.k FROM (SELECT 1 AS one, * FROM facts WHERE wide = 3) a RIGHT JOIN (SELECT 2 AS two, * FROM few) b ON a.k = b.k WHERE a.one IS NULL');
SET batchexec.mode = prefer;
SELECT * FROM compare('SELECT count(*), count(a.one), count(a.k), count(b.two) FROM (SELECT 1 AS one, * FROM facts WHERE wide < 3) a RIGHT JOIN (SELECT 2 AS two, * FROM few) b ON a.k = b.k');
SELECT * FROM compare('SELECT count(*), count(a.one), count(a.k), count(b.two) FROM (SELECT 1 AS one, * FROM facts WHERE wide < 3) a FULL JOIN (SELECT 2 AS two, * FROM few) b ON a.k = b.k');
SET work_mem = '64kB'; SET hash_mem_multiplier = 1; SET batchexec.mode = prefer;
SELECT * FROM compare('SELECT count(*), count(a.k), count(b.k), sum(a.amount), sum(b.amount) FROM facts a FULL JOIN (SELECT * FROM facts WHERE amount > 20) b ON a.t = b.t AND a.amount = b.amount');
RESET work_mem; RESET hash_mem_multiplier; RESET batchexec.mode;
-- Prepared, switched off after planning, and on again.
PREPARE joined AS SELECT label, count(*) FROM facts JOIN few ON facts.k = few.k WHERE few.k < 5 GROUP BY label ORDER BY label;
SET plan_cache_mode = force_generic_plan;
EXECUTE joined;
SET batchexec.enabled = off;
EXECUTE joined;
EXPLAIN (COSTS OFF) EXECUTE joined;
RESET batchexec.enabled;
EXECUTE joined;
-- Planned while off, and switched on.
DEALLOCATE joined;
SET batchexec.enabled = off;
PREPARE joined AS SELECT label, count(*) FROM facts JOIN few ON facts.k = few.k WHERE few.k < 5 GROUP BY label ORDER BY label;
EXPLAIN (COSTS OFF) EXECUTE joined;
SET batchexec.mode = forbid;
RESET batchexec.enabled;
EXPLAIN (COSTS OFF) EXECUTE joined;
RESET batchexec.mode;
EXPLAIN (COSTS OFF) EXECUTE joined;
RESET plan_cache_mode;
-- What EXPLAIN shows.
SET batchexec.explain = on;
EXPLAIN (VERBOSE, COSTS OFF) SELECT label, sum(amount) FROM facts JOIN few ON facts.k = few.k AND facts.n > few.n WHERE flag GROUP BY label;
EXPLAIN (VERBOSE, COSTS OFF) SELECT facts.t, a.label, q.n FROM facts JOIN few a ON facts.k = a.k LEFT JOIN (SELECT k, count(*) n FROM few GROUP BY k) q ON facts.wide = q.k;
SELECT regexp_replace(line, 'Memory: \d+', 'Memory: …') FROM explain_figures('SELECT count(*) FROM facts JOIN few ON facts.k = few.k AND facts.n > few.n') line WHERE line ~ 'Join|Hash|Not';
-- Of the rows of a key, a semi or anti join keeps one.
SELECT line FROM explain_figures('SELECT count(*) FROM facts WHERE EXISTS (SELECT FROM many WHERE many.k = facts.k)') line WHERE line ~ 'Join Type|Hash Table Rows';
SELECT line FROM explain_figures('SELECT count(*) FROM facts WHERE NOT EXISTS (SELECT FROM many WHERE many.k = facts.k)') line WHERE line ~ 'Join Type|Hash Table Rows';
SELECT count(*), count(DISTINCT k) FROM many WHERE k IS NOT NULL;
SET work_mem = '64kB'; SET hash_mem_multiplier = 1; SET batchexec.mode = prefer;
SELECT regexp_replace(line, '\d+ kB|\d+kB', '…') FROM explain_figures('SELECT count(*) FROM facts JOIN many ON facts.k = many.k') line WHERE line ~ 'Batch(Join|Agg)|Hash Cond|Not';
RESET work_mem; RESET hash_mem_multiplier; RESET batchexec.mode;
EXPLAIN (COSTS OFF) SELECT facts.k FROM facts JOIN few ON facts.k = few.k LIMIT 3;
EXPLAIN (COSTS OFF) SELECT count(*) FROM facts FULL JOIN few ON facts.k = few.k;
EXPLAIN (COSTS OFF) SELECT count(*) FROM facts JOIN few ON facts.id = few.id;
-- A key's operator that the user may not execute.
BEGIN;
CREATE ROLE regress_batchexec_reader;
GRANT SELECT ON facts, few TO regress_batchexec_reader;
REVOKE EXECUTE ON FUNCTION int4eq(int, int) FROM PUBLIC;
SET LOCAL ROLE regress_batchexec_reader;
SET LOCAL batchexec.mode = 'require';
SELECT outcome('SELECT count(*) FROM facts JOIN few ON facts.k = few.k');
SET LOCAL batchexec.mode = 'forbid';
SELECT outcome('SELECT count(*) FROM facts JOIN few ON facts.k = few.k');
ROLLBACK;
-- A cursor comes as far as in the stock server before it meets an error.
CREATE FUNCTION first_rows(query text, n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    found record;
    reader refcursor;
    result text := '';
BEGIN
    OPEN reader FOR EXECUTE query;
    FOR i IN 1..n LOOP
        FETCH reader INTO found;
        result := result || found::text;
    END LOOP;
    CLOSE reader;
    RETURN result;
EXCEPTION WHEN OTHERS THEN
    RETURN result || ' ' || SQLERRM;
END $$;
CREATE FUNCTION compare_first(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    batched text;
BEGIN
    PERFORM set_config('batchexec.mode', 'prefer', true);
    batched := batched_nodes(query) || ': ' || first_rows(query, 9);
    PERFORM set_config('batchexec.mode', 'forbid', true);
    IF batched NOT LIKE '%: ' || first_rows(query, 9) THEN
        RAISE EXCEPTION 'results differ: %, stock: %', batched, first_rows(query, 9);
    END IF;
    RETURN batched;
END $$;
CREATE TABLE steps AS SELECT i AS id, (i + 1) / 2 AS k FROM generate_series(1, 5000) i;
CREATE TABLE places AS SELECT i AS k, i AS v FROM generate_series(-200, 200) i;
VACUUM (ANALYZE, FREEZE) steps, places;
SELECT compare_first('SELECT s.id, p.v FROM steps s LEFT JOIN places p ON 100 / (s.id - 4) = p.k');
SELECT compare_first('SELECT s.id FROM steps s WHERE EXISTS (SELECT FROM places p WHERE 100 / (s.id - 4) = p.k)');
SELECT compare_first('SELECT s.id, p.v FROM steps s LEFT JOIN places p ON s.id = p.k WHERE 100 / (s.id - 4) <> 0');
SELECT compare_first('SELECT s.id, r.id FROM steps s JOIN steps r ON s.k = r.k AND 100 / (s.id + r.id - 8) <> 90');
SELECT compare_first('SELECT s.id, p.v FROM steps s JOIN places q ON s.id = q.k JOIN places p ON 100 / (s.id - 4) = p.k');
SELECT compare_first('SELECT s.id, r.id, p.v FROM steps s JOIN steps r ON s.k = r.k JOIN places p ON 100 / (s.id + r.id - 8) = p.k');
SELECT compare_first('SELECT s.id, p.v FROM steps s JOIN places p ON s.id + 1 = p.k');
DROP FUNCTION compare_first, first_rows;
DROP TABLE steps, places;
-- A window is known only where it is made: the condition shows its function.
SET batchexec.mode = prefer;
SELECT trim(line) FROM explain_figures('SELECT count(*) FROM facts WHERE (k, wide) IN (SELECT k, row_number() OVER () FROM few)') line WHERE line ~ 'Hash Cond|Batch(Agg|Join)';
SELECT trim(line) FROM explain_figures('SELECT count(*) FROM facts WHERE (k, wide) IN (SELECT k, sum(k + 1) FILTER (WHERE k > 0) OVER (PARTITION BY k) FROM few)') line WHERE line ~ 'Hash Cond|Batch(Agg|Join)';
RESET batchexec.mode;
DROP TABLE facts, few, many;
-- A join of three views' tables, whose planning is told of each join in a variable of the stock server's.
SELECT count(*) >= 0 AS is_planned FROM pg_stat_xact_user_tables;
