-- BatchSort: keys of all types, NULLs, directions, files, rescans, and what stays with the stock Sort.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
-- The rows of a query in its order, or its error.
CREATE FUNCTION outcome_in_order(query text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    lines text[];
BEGIN
    EXECUTE format('SELECT array_agg(q::text) FROM (%s OFFSET 0) q', query) INTO lines;
    RETURN coalesce(lines, ARRAY['(no rows)']);
EXCEPTION WHEN OTHERS THEN
    RETURN ARRAY[SQLSTATE || ' ' || SQLERRM];
END $$;
-- Are the rows of a query the same in the same order, with batches and without? The first ones, and its batched nodes.
CREATE FUNCTION compare_order(query text) RETURNS TABLE (nodes text, rows int, firsts text) LANGUAGE plpgsql AS $$
DECLARE
    batched text[];
    stock text[];
BEGIN
    PERFORM set_config('batchexec.mode', 'prefer', true);
    nodes := batched_nodes(query);
    batched := outcome_in_order(query);
    PERFORM set_config('batchexec.mode', 'forbid', true);
    stock := outcome_in_order(query);
    PERFORM set_config('batchexec.mode', 'allow', true);
    IF batched IS DISTINCT FROM stock THEN
        RAISE EXCEPTION E'results differ: %\nbatched: %\nstock: %', query, batched[1:20], stock[1:20];
    END IF;
    rows := cardinality(batched);
    firsts := left(array_to_string(batched[1:3], ' '), 60);
    RETURN NEXT;
END $$;
CREATE DOMAIN sorted_number AS int;
CREATE TYPE sorted_mood AS ENUM ('sad', 'ok', 'happy');
CREATE TABLE sorted (id int, i2 smallint, i4 int, i8 bigint, f4 real, f8 float8, n numeric, m numeric(15, 2), d date,
                     at timestamp, zoned timestamptz, late time, b boolean, o oid, t text, v varchar(20), c char(9),
                     dom sorted_number, mood sorted_mood, u uuid, a int[], j jsonb);
INSERT INTO sorted
    SELECT i, (i * 7919) % 300 - 150, (i::bigint * 104729 % 4001 - 2000) * 1000000 % 2147483647, (i::bigint * 7919 % 997 - 500) * 9000000000000000,
           CASE i % 50 WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity' WHEN 2 THEN '-0' ELSE (i * 31 % 101 - 50)::text END::real,
           CASE i % 60 WHEN 0 THEN 'NaN' WHEN 1 THEN 'Infinity' WHEN 2 THEN '-0' WHEN 3 THEN '1e-320' ELSE (i * 37 % 1009 / 7.0 - 70)::text END::float8,
           CASE i % 70 WHEN 0 THEN 'NaN' WHEN 1 THEN '0.00' WHEN 2 THEN repeat('9', 60) WHEN 3 THEN '-1e-90' WHEN 4 THEN '1e-90' WHEN 5 THEN '-1e300'
               ELSE (i * 41 % 1013 - 500)::text || '.' || i % 13 END::numeric,
           (i * 43 % 100003)::numeric / 100 - 400,
           CASE i % 80 WHEN 0 THEN 'infinity' WHEN 1 THEN '-infinity' ELSE (date '2000-01-01' + i * 47 % 3000)::text END::date,
           timestamp '2000-01-01' + (i * 53 % 4001) * interval '1 hour 7 microseconds', timestamptz '2000-01-01 00:00+00' - (i * 59 % 2003) * interval '1 day',
           time '00:00' + (i * 61 % 1440) * interval '1 minute', i % 3 = 0, (i::bigint * 4000000007 % 4294967296)::oid,
           CASE i % 9 WHEN 0 THEN '' WHEN 1 THEN repeat('same ', 30) || i % 17 WHEN 2 THEN repeat('é', i % 12) WHEN 3 THEN repeat(md5((i % 11)::text), CASE WHEN i % 270 = 3 THEN 300 ELSE 3 END)
               ELSE substr(md5((i % 400)::text), 1, i % 20) END,
           substr(md5((i % 90)::text), 1, i % 12), substr(md5((i % 90)::text), 1, i % 8) || CASE WHEN i % 5 = 0 THEN ' ' ELSE '' END,
           i % 40, (ARRAY['sad', 'ok', 'happy'])[i % 3 + 1]::sorted_mood, md5((i % 700)::text)::uuid, ARRAY[i % 5, i], jsonb_build_object('k', i)
    FROM generate_series(1, 4000) i;
UPDATE sorted SET i4 = NULL, f8 = NULL, n = NULL, t = NULL, d = NULL, c = NULL WHERE id % 13 = 0;
VACUUM (ANALYZE, FREEZE) sorted;
SELECT key, order_, (compare_order(format('SELECT * FROM sorted ORDER BY %s %s, id', key, order_))).nodes
FROM unnest(ARRAY['i2', 'i4', 'i8', 'f4', 'f8', 'n', 'm', 'd', 'at', 'zoned', 'late', 'b', 'o', 't', 'v', 'c', 'dom']) WITH ORDINALITY AS k (key, number),
     unnest(ARRAY['', 'DESC', 'NULLS FIRST', 'DESC NULLS LAST']) WITH ORDINALITY AS o (order_, place)
ORDER BY number, place;
-- Rows of one size, of which a filter leaves some, are taken in by column.
SELECT key, order_, (compare_order(format('SELECT id, i2, i4, i8, f4, f8, b, o, d, at, late FROM sorted WHERE id %% 3 > 0 ORDER BY %s %s, id', key, order_))).nodes
FROM unnest(ARRAY['i2', 'i4', 'f4', 'f8', 'b', 'o', 'd']) WITH ORDINALITY AS k (key, number),
     unnest(ARRAY['', 'DESC', 'NULLS FIRST', 'DESC NULLS LAST']) WITH ORDINALITY AS o (order_, place)
ORDER BY number, place;
SELECT * FROM compare_order('SELECT i4, id FROM sorted WHERE id % 13 = 0 ORDER BY i4, f8 DESC, id DESC');
SELECT * FROM compare_order('SELECT a.i8, b.f4, a.id, b.id FROM sorted a JOIN sorted b ON a.i2 = b.i2 AND a.id % 40 = b.dom ORDER BY b.f4 DESC, a.i8, b.id, a.id');
-- Several keys; the second one may be of any type.
SELECT * FROM compare_order('SELECT id, b, t FROM sorted ORDER BY b, t DESC, id');
SELECT * FROM compare_order('SELECT id, i2, n, t FROM sorted ORDER BY i2 % 4, n DESC NULLS LAST, t COLLATE "C", id DESC');
SELECT * FROM compare_order('SELECT id, b, mood, u, a FROM sorted ORDER BY b DESC, mood, u, a DESC');
SELECT * FROM compare_order('SELECT j, a, id FROM sorted WHERE i4 > 0 ORDER BY d DESC, f4, f8, c, id');
SELECT * FROM compare_order('SELECT t FROM sorted ORDER BY t');
-- Equal rows come in the order in which they are read.
SELECT bool_and(place > place_before) FROM (SELECT i2, lag(i2) OVER () AS i2_before, place, lag(place) OVER () AS place_before FROM (SELECT i2, row_number() OVER () AS place FROM sorted ORDER BY i2) q) r WHERE i2 = i2_before;
-- Over joins, functions, values and expressions.
SELECT * FROM compare_order('SELECT a.id, b.id FROM sorted a JOIN sorted b ON a.dom = b.id ORDER BY b.i8 DESC, a.id');
SELECT * FROM compare_order('SELECT a.id, b.n, b.a FROM sorted a LEFT JOIN sorted b ON a.i2 = b.id ORDER BY b.n NULLS FIRST, a.id');
SELECT * FROM compare_order('SELECT g, -g % 7 AS k, array_append(ARRAY[g], 1) AS e FROM generate_series(1, 2000) g ORDER BY 2 DESC, g');
SELECT * FROM compare_order('SELECT * FROM (VALUES (3, ''c''), (1, ''a''), (NULL, ''b'')) v (k, l) ORDER BY k');
SELECT * FROM compare_order('SELECT id, upper(t) FROM sorted ORDER BY upper(t), id');
SELECT * FROM compare_order('SELECT id, 1 / (id - 77) FROM sorted ORDER BY i4');
SELECT * FROM compare_order('SELECT id FROM sorted WHERE id < 0 ORDER BY id');
-- More rows than are sorted at once: they are divided first.
SET work_mem = '64MB';
SELECT * FROM compare_order('SELECT g, g * 999983::bigint * 1000003 % 4000000007 - 2000000000 FROM generate_series(1, 70000) g ORDER BY 2');
SELECT * FROM compare_order('SELECT g, md5((g % 9000)::text) FROM generate_series(1, 50000) g ORDER BY 2 DESC, 1');
RESET work_mem;
-- Groups, windows, distinct rows and merge joins above.
SELECT * FROM compare('SELECT id, rank() OVER (PARTITION BY i2 ORDER BY m), sum(id) OVER (PARTITION BY i2 ORDER BY m) FROM sorted');
SET enable_hashagg = off; SET enable_hashjoin = off; SET enable_nestloop = off;
SELECT * FROM compare('SELECT DISTINCT b, o::bigint % 10 FROM sorted');
SELECT * FROM compare('SELECT t, count(DISTINCT i2), max(mood::text) FROM sorted GROUP BY t');
-- A sum of floats depends on the order of equal rows, which is the stock server's own; so is the one of equal numerics that is kept.
SELECT (compare('SELECT b, sum(f8) FROM sorted WHERE f8 < 1e9 GROUP BY b')).nodes LIMIT 1;
SELECT (compare('SELECT n, corr(f4, i2) FROM sorted GROUP BY n')).nodes LIMIT 1;
SELECT (compare('SELECT DISTINCT n FROM sorted')).nodes LIMIT 1;
SELECT * FROM compare('SELECT array_agg(id) FROM (SELECT id FROM sorted WHERE id < 9 ORDER BY i8, id) q');
EXPLAIN (COSTS OFF) SELECT count(*) FROM sorted x JOIN (SELECT id, n FROM sorted) y ON x.i4 = y.id;
RESET enable_hashagg; RESET enable_hashjoin; RESET enable_nestloop;
-- Files: one run after another, merged in levels where memory is small.
SET work_mem = 64;
SELECT * FROM compare_order('SELECT id, i4, t, a FROM sorted ORDER BY i4 DESC, t, id');
SELECT * FROM compare_order('SELECT * FROM sorted ORDER BY t DESC, id');
SELECT * FROM compare_order('SELECT id, i4, f4, b FROM sorted WHERE id % 7 > 1 ORDER BY f8 DESC NULLS FIRST, i4, id');
SELECT * FROM compare_order('SELECT i4 FROM sorted ORDER BY i4 NULLS FIRST');
SELECT * FROM compare_order('SELECT g, g * 7919::bigint % 10007 FROM generate_series(1, 30000) g ORDER BY 2, 1 DESC');
SET batchexec.explain = on;
SELECT regexp_replace(line, '(Memory|Runs|Usage): \d+', '\1: N') FROM explain_figures('SELECT id, m FROM sorted ORDER BY b DESC NULLS LAST, m, id') line WHERE line !~ 'Batch|Irregular';
SET batchexec.explain = off;
-- A run that is stopped gives its files back, and so does one that fails.
BEGIN;
DECLARE ordered NO SCROLL CURSOR FOR SELECT id FROM sorted ORDER BY i8, id;
FETCH 2 FROM ordered;
CLOSE ordered;
ROLLBACK;
SET temp_file_limit = 64;
SELECT left(unnest(outcome_in_order('SELECT * FROM sorted ORDER BY id')), 33);
RESET temp_file_limit; RESET work_mem;
-- Read again: with another parameter, or by a node that said so.
SELECT * FROM compare('SELECT k, x.id FROM generate_series(1, 4) k, LATERAL (SELECT id, i2 FROM sorted WHERE dom = k ORDER BY i2, id OFFSET 5 LIMIT 30000) x');
SELECT * FROM compare('SELECT k, (SELECT string_agg(id::text, '','') FROM (SELECT id FROM sorted WHERE id < 5 ORDER BY i8 OFFSET 0) q) FROM generate_series(1, 2) k');
SET enable_material = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
SELECT * FROM compare('SELECT a.id, b.id FROM sorted a JOIN (SELECT id, dom FROM sorted ORDER BY i2 OFFSET 0) b ON b.id = a.id AND b.dom > 38 WHERE a.id < 200');
SET batchexec.mode = prefer; SET batchexec.explain = on;
SELECT trim(line) FROM explain_figures('SELECT a.id, b.id FROM sorted a JOIN (SELECT id, dom FROM sorted ORDER BY i2 OFFSET 0) b ON b.id = a.id + b.dom WHERE a.id < 9') line WHERE line ~ 'BatchSort|Not';
RESET batchexec.mode; SET batchexec.explain = off; RESET enable_material; RESET enable_hashjoin; RESET enable_mergejoin;
-- What stays the stock server's, and why.
SET batchexec.explain = on; SET batchexec.mode = prefer;
EXPLAIN (COSTS OFF) SELECT id FROM sorted ORDER BY i4 LIMIT 10;
EXPLAIN (COSTS OFF) SELECT id FROM sorted ORDER BY i4 LIMIT 10001;
EXPLAIN (COSTS OFF) SELECT id FROM sorted ORDER BY t COLLATE "und-x-icu", id;
EXPLAIN (COSTS OFF) SELECT id FROM sorted ORDER BY mood, id;
EXPLAIN (COSTS OFF) SELECT ROW(id, t) FROM sorted ORDER BY id;
EXPLAIN (COSTS OFF) SELECT id FROM sorted ORDER BY t DESC, id NULLS FIRST;
SET batchexec.mode = allow;
EXPLAIN (COSTS OFF) SELECT id FROM sorted WHERE dom = 3 ORDER BY i4;
CREATE FUNCTION explained_as_json(query text) RETURNS SETOF json LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY EXECUTE 'EXPLAIN (ANALYZE, FORMAT JSON) ' || query;
END $$;
SELECT node->'Sort Key' AS keys, node ?& ARRAY['Sort Memory', 'Sorted Runs', 'Disk Usage'] AS has_figures
FROM (SELECT explained::jsonb->0->'Plan' AS node FROM explained_as_json('SELECT id, n FROM sorted ORDER BY n DESC, id') explained) q;
-- A prepared statement follows the setting.
PREPARE in_order AS SELECT array_agg(id) FILTER (WHERE id < 7) FROM (SELECT id FROM sorted ORDER BY i8, id OFFSET 1) q;
SET plan_cache_mode = force_generic_plan;
EXECUTE in_order;
SET batchexec.enabled = off;
EXECUTE in_order;
EXPLAIN (COSTS OFF) EXECUTE in_order;
RESET batchexec.enabled; RESET plan_cache_mode;
-- Workers sort a share each.
SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SET batchexec.explain = off;
EXPLAIN (COSTS OFF) SELECT id, t FROM sorted ORDER BY t, id;
SELECT * FROM compare_order('SELECT id, t FROM sorted ORDER BY t, id');
-- The first rows by a text or a numeric: rows that the Sort can't return stay in the scan.
SET max_parallel_workers_per_gather = 0;
SELECT key, order_, (compare_order(format('SELECT id, %s FROM sorted ORDER BY %s %s, id LIMIT 7', key, key, order_))).nodes
FROM unnest(ARRAY['n', 'm', 't', 'v', 'c']) WITH ORDINALITY AS k (key, number), unnest(ARRAY['', 'DESC', 'NULLS FIRST', 'DESC NULLS LAST']) WITH ORDINALITY AS o (order_, place)
ORDER BY number, place;
SET batchexec.explain = on;
SELECT line FROM explain_figures('SELECT id, t FROM sorted ORDER BY t DESC NULLS LAST LIMIT 7') line WHERE line ~ 'Bound|Sort';
SET batchexec.explain = off;
DROP TABLE sorted;
DROP TYPE sorted_mood;
DROP DOMAIN sorted_number;
