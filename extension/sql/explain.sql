-- EXPLAIN: a reason for each node that might have been batched, and the sizes of the batches.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET max_parallel_workers_per_gather = 0;
CREATE TABLE readings (id int PRIMARY KEY, kind int, reading int, note text);
INSERT INTO readings SELECT i, i % 7, i / 10, repeat('x', 20) FROM generate_series(1, 5000) i;
CREATE TABLE kinds (kind int, name text);
INSERT INTO kinds SELECT i, 'kind ' || i FROM generate_series(0, 400) i;
VACUUM (ANALYZE, FREEZE) readings, kinds;
-- Aggregates and joins over what has no batches, where gathering its rows does not pay.
EXPLAIN (COSTS OFF) SELECT count(*) FROM generate_series(1, 10) g;
EXPLAIN (COSTS OFF) SELECT count(*) FROM (VALUES (1), (2)) v;
EXPLAIN (COSTS OFF) SELECT max(n) FROM (SELECT kind, count(*) AS n FROM readings GROUP BY kind) g;
EXPLAIN (COSTS OFF) SELECT count(*) FROM (SELECT DISTINCT ON (kind) kind FROM readings ORDER BY kind, id OFFSET 0) d;
EXPLAIN (COSTS OFF) SELECT count(*) FROM readings r JOIN kinds k ON r.id < k.kind;
EXPLAIN (COSTS OFF) SELECT sum(reading) FROM readings WHERE id = 7;
SET enable_hashjoin = off; SET enable_nestloop = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM readings r JOIN kinds k USING (kind);
RESET enable_hashjoin; RESET enable_nestloop;
SET enable_mergejoin = off; SET enable_nestloop = off;
EXPLAIN (COSTS OFF) SELECT * FROM generate_series(1, 3000) g JOIN kinds k ON k.kind = g;
RESET enable_mergejoin; RESET enable_nestloop;
EXPLAIN (COSTS OFF) SELECT count(*) FROM (SELECT kind FROM readings UNION ALL SELECT g FROM generate_series(1, 3) g) u;
SET batchexec.mode = prefer;
-- One reason says it all.
EXPLAIN (COSTS OFF) UPDATE kinds SET name = r.note FROM readings r WHERE r.kind = kinds.kind;
EXPLAIN (COSTS OFF) SELECT count(*) FROM readings r JOIN kinds k USING (kind);
-- Batches by their rows.
SELECT line FROM explain_figures('SELECT count(*) FROM readings') line WHERE line LIKE '%Batch Sizes%';
SET batchexec.batch_rows = 20;
SELECT line FROM explain_figures('SELECT count(*) FROM kinds') line WHERE line LIKE '%Batch Sizes%';
RESET batchexec.batch_rows;
SELECT line FROM explain_figures('SELECT id FROM readings OFFSET 2 LIMIT 1') line WHERE line LIKE '%Batch Sizes%';
SELECT line FROM explain_figures('SELECT id FROM kinds k JOIN readings r ON r.id = k.kind WHERE k.kind > 1000') line WHERE line LIKE '%Batch Sizes%';
CREATE FUNCTION explained(query text) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, FORMAT json) ' || query INTO plan;
    RETURN plan;
END $$;
SELECT sum((class->>'Batches')::int) = max(node->>'Batches')::int AS counts_all, bool_and((class->>'Rows Min')::int <= (class->>'Rows Max')::int) AS is_range,
       bool_and(node::jsonb ?& ARRAY['Batch Rows', 'Rows Removed by Sort Bound', 'Partial Group Flushes', 'Batches Evaluated by Row']) AS has_fields
    FROM (SELECT explained('SELECT sum(reading) FROM readings')->0->'Plan') AS plan (node), json_array_elements(node->'Batch Sizes') AS class;
RESET batchexec.mode;
SELECT explained('SELECT count(*) FROM generate_series(1, 10) g')->1->'Not Batched' AS reasons;
DROP FUNCTION explained; DROP TABLE readings, kinds;
