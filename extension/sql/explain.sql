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
-- JSON made over windows and groups, whose syntax EXPLAIN finds below other nodes; up to 15 there is none.
CREATE FUNCTION explains(query text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
    errors text[];
    plan text;
BEGIN
    FOR mode IN 0 .. 1 LOOP
        PERFORM set_config('batchexec.mode', CASE mode WHEN 0 THEN 'forbid' ELSE 'prefer' END, true);
        BEGIN
            EXECUTE 'EXPLAIN (VERBOSE) ' || query INTO plan;
            errors[mode] := '';
        EXCEPTION WHEN OTHERS THEN
            errors[mode] := SQLERRM;
        END;
    END LOOP;
    RAISE DEBUG '%; by the stock server: %', errors[1], errors[0];
    RETURN errors[1] = '' OR errors[0] <> '';
END $$;
SELECT explains('SELECT JSON_ARRAYAGG(id RETURNING jsonb) OVER (ORDER BY id DESC), row_number() OVER (ORDER BY id) FROM readings');
SELECT explains('SELECT JSON_ARRAYAGG(id RETURNING text) OVER (ORDER BY id DESC) AS ids, kind FROM readings ORDER BY 1, 2');
SELECT explains('SELECT JSON_OBJECTAGG(id : kind RETURNING text) || random() FROM readings GROUP BY kind ORDER BY count(*)');
SELECT explains('SELECT ids, count(*) FROM (SELECT JSON_ARRAYAGG(id RETURNING jsonb) OVER (PARTITION BY kind) AS ids FROM readings) q GROUP BY ids');
SELECT explains('SELECT q.ids, k.name FROM kinds k JOIN (SELECT kind, JSON_ARRAYAGG(id RETURNING jsonb) OVER (PARTITION BY kind) AS ids FROM readings) q USING (kind)');
DROP FUNCTION explained, explains; DROP TABLE readings, kinds;
