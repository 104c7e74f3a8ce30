-- The planner's choice between batches, rows and indexes.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET max_parallel_workers_per_gather = 0;
CREATE TABLE readings (id int PRIMARY KEY, kind int, reading numeric, note text);
INSERT INTO readings SELECT i, i % 7, i / 10.0, repeat('x', 20) FROM generate_series(1, 30000) i;
CREATE TABLE kinds (kind int PRIMARY KEY, name text);
INSERT INTO kinds SELECT i, 'kind ' || i FROM generate_series(0, 6) i;
VACUUM (ANALYZE, FREEZE) readings, kinds;
-- Reading a table in batches is cheaper than its index; finding a few rows is not.
SET batchexec.mode = forbid;
EXPLAIN (COSTS OFF) SELECT count(*) FROM readings;
EXPLAIN (COSTS OFF) SELECT kind, count(*) FROM readings WHERE id > 20000 GROUP BY kind;
RESET batchexec.mode;
EXPLAIN (COSTS OFF) SELECT count(*) FROM readings;
EXPLAIN (COSTS OFF) SELECT kind, count(*) FROM readings WHERE id > 20000 GROUP BY kind;
EXPLAIN (COSTS OFF) SELECT count(*) FROM readings WHERE id < 30;
SELECT batched_nodes('SELECT max(id) FROM readings');
-- A join is batched where that is cheaper than finding the rows through the index, whose pages are in memory.
CREATE TABLE picks AS SELECT i * 29 AS id, i % 5 AS shelf FROM generate_series(1, 1000) i;
VACUUM (ANALYZE, FREEZE) picks;
EXPLAIN (COSTS OFF) SELECT shelf, sum(reading) FROM picks JOIN readings USING (id) WHERE shelf < 4 GROUP BY shelf;
EXPLAIN (COSTS OFF) SELECT sum(reading) FROM picks JOIN readings USING (id) WHERE picks.id < 900;
-- Nor is a join that may be stopped batched.
EXPLAIN (COSTS OFF) SELECT reading FROM picks JOIN readings USING (id) LIMIT 3;
SELECT * FROM compare('SELECT shelf, sum(reading) FROM picks JOIN readings USING (id) WHERE shelf < 4 GROUP BY shelf');
SELECT * FROM compare('SELECT kind, count(*) FROM readings WHERE EXISTS (SELECT FROM picks WHERE picks.id = readings.id) GROUP BY kind');
SELECT * FROM compare('SELECT kind, count(*) FROM readings WHERE NOT EXISTS (SELECT FROM picks WHERE picks.id = readings.id) GROUP BY kind');
SELECT * FROM compare('SELECT shelf, count(*), count(kind) FROM picks LEFT JOIN readings ON readings.id = picks.id AND kind < 3 GROUP BY shelf');
DROP TABLE picks;
-- What is filtered in batches costs less; pages cost the same.
SET batchexec.cost_page = 1;
CREATE FUNCTION total_cost(query text, mode text) RETURNS float LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    PERFORM set_config('batchexec.mode', mode, true);
    EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
    RETURN plan->0->'Plan'->>'Total Cost';
END $$;
SELECT query, total_cost(query, 'allow') < 0.9 * total_cost(query, 'forbid') AS is_less,
       total_cost(query, 'allow') <= total_cost(query, 'forbid') AS is_no_more
    FROM (VALUES ('SELECT * FROM readings WHERE kind = 3'),
                 ('SELECT * FROM readings r JOIN kinds k USING (kind) WHERE r.kind <> 3 AND r.reading > 2500'),
                 ('SELECT kind, sum(reading) FROM readings GROUP BY kind'),
                 ('SELECT * FROM readings WHERE md5(note) = note'),
                 ('SELECT * FROM readings'),
                 ('SELECT * FROM kinds WHERE name = ''kind 3'''),
                 ('SELECT * FROM readings WHERE kind = 3 FOR UPDATE'),
                 ('UPDATE readings SET kind = 1 WHERE kind = 3')) AS queries (query);
RESET batchexec.cost_page;
SET batchexec.cost_row = 1;
SELECT total_cost('SELECT * FROM readings WHERE kind = 3', 'allow') = total_cost('SELECT * FROM readings WHERE kind = 3', 'forbid') AS is_same;
EXPLAIN (COSTS OFF) SELECT * FROM readings WHERE kind = 3;
RESET batchexec.cost_row;
-- Small tables and too many groups stay with the stock nodes, unless asked for.
EXPLAIN (COSTS OFF) SELECT count(*) FROM readings r JOIN kinds k USING (kind) WHERE r.reading > 2500;
SET work_mem = 64; SET hash_mem_multiplier = 1; SET enable_sort = off;
EXPLAIN (COSTS OFF) SELECT reading, count(*) FROM readings GROUP BY reading;
SET batchexec.mode = prefer;
EXPLAIN (COSTS OFF) SELECT reading, count(*) FROM readings GROUP BY reading;
EXPLAIN (COSTS OFF) SELECT count(*) FROM kinds;
RESET work_mem; RESET hash_mem_multiplier; RESET enable_sort; RESET batchexec.mode;
-- Set-returning functions multiply the rows before they are grouped.
SELECT * FROM compare('SELECT kind % 2, generate_series(1, 2), count(*) FROM readings GROUP BY 1, 2 HAVING count(*) > 1');
SELECT * FROM compare('SELECT generate_series(1, 2), count(*) FROM readings GROUP BY 1');
-- The figures and the reasons in JSON.
CREATE FUNCTION explained(query text) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, FORMAT json) ' || query INTO plan;
    RETURN plan;
END $$;
SELECT node->>'Custom Plan Provider' AS node, node->>'Relation Name' AS relation, node->>'Alias' AS alias, node->>'Batch Rows' AS rows,
       (node->>'Batches')::int <= (node->>'Pages')::int AS batch_a_page, node->>'Irregular Pages' AS irregular,
       node->>'Batches Ended by Scan End' AS scan_end
    FROM (SELECT explained('SELECT sum(reading) FROM readings WHERE kind < 5')->0->'Plan') AS plan (node);
SELECT explained('SELECT count(*) FROM kinds, readings r WHERE r.id = 5')->1->'Not Batched' AS reasons;
SELECT explained('SELECT count(*) FROM readings r WHERE r.id < 5')->1->'Not Batched' AS reasons;
DROP FUNCTION explained;
-- Parallel plans.
SET max_parallel_workers_per_gather = 2; SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
EXPLAIN (COSTS OFF) SELECT count(*) FROM readings WHERE kind = 3;
EXPLAIN (COSTS OFF) SELECT kind, sum(reading) FROM readings GROUP BY kind;
EXPLAIN (COSTS OFF) SELECT id FROM readings WHERE kind = 3 AND reading > 1;
DROP TABLE readings, kinds; DROP FUNCTION total_cost;
-- A join to a unique key of several columns finds a row for each, as of a foreign key: also through a third table, and with a constant.
CREATE TABLE offers (part int, supplier int, price int, PRIMARY KEY (part, supplier));
INSERT INTO offers SELECT i / 40, i * 37 % 4000, i FROM generate_series(0, 7999) i;
CREATE TABLE sales (part int, supplier int, amount int);
INSERT INTO sales SELECT part, supplier, price + s FROM offers, generate_series(1, 3) s;
CREATE TABLE named (part int PRIMARY KEY, name text);
INSERT INTO named SELECT i, 'part ' || i FROM generate_series(0, 199) i;
VACUUM (ANALYZE) offers, sales, named;
CREATE FUNCTION estimated_rows(query text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
    RETURN round((plan->0->'Plan'->>'Plan Rows')::numeric, -2);
END $$;
SELECT estimated_rows('SELECT * FROM sales JOIN offers USING (part, supplier)');
SELECT estimated_rows('SELECT * FROM sales JOIN offers USING (part, supplier) JOIN named USING (part)');
SELECT estimated_rows('SELECT * FROM sales JOIN offers USING (part, supplier) WHERE price % 2 = 0');
SELECT estimated_rows('SELECT * FROM sales JOIN offers USING (part, supplier) WHERE sales.part = 4') <= 200;
SELECT estimated_rows('SELECT * FROM sales JOIN offers USING (part)');
SET batchexec.enabled = off;
SELECT estimated_rows('SELECT * FROM sales JOIN offers USING (part, supplier)');
RESET batchexec.enabled;
ALTER TABLE sales ADD FOREIGN KEY (part, supplier) REFERENCES offers;
SELECT estimated_rows('SELECT * FROM sales JOIN offers USING (part, supplier)');
DROP FUNCTION estimated_rows;
DROP TABLE sales, offers, named;
RESET min_parallel_table_scan_size; RESET parallel_setup_cost; RESET parallel_tuple_cost; SET max_parallel_workers_per_gather = 0;
-- UNION: groups over all parts; a part whose index would be read has its table scanned.
CREATE TABLE numbers (id int PRIMARY KEY, k int, wide bigint, n numeric, t text);
INSERT INTO numbers SELECT i, CASE WHEN i % 9 > 0 THEN i % 700 END, i % 300, (i % 50)::numeric / 4, 'text ' || i % 90 FROM generate_series(1, 12000) i;
VACUUM (ANALYZE, FREEZE) numbers;
EXPLAIN (COSTS OFF) SELECT id FROM numbers UNION SELECT k FROM numbers;
SELECT * FROM compare('SELECT count(*), sum(id) FROM (SELECT id FROM numbers UNION SELECT k FROM numbers) u');
SELECT * FROM compare('SELECT id FROM numbers WHERE id < 3 UNION SELECT k FROM numbers WHERE k < 5 UNION SELECT wide::int FROM numbers WHERE wide > 298');
SELECT * FROM compare('SELECT id, t FROM numbers WHERE id > 2000 UNION SELECT k, t FROM numbers WHERE n = 3 AND k < 90');
SELECT * FROM compare('SELECT count(*), sum(v) FROM (SELECT id AS v FROM numbers UNION SELECT wide FROM numbers) u');
SELECT * FROM compare('SELECT count(*), sum(v), sum(scale(v)) FROM (SELECT n AS v FROM numbers UNION SELECT n / 2 FROM numbers) u');
-- From 17 on, an index may bring the parts in order.
SET enable_indexscan = off; SET enable_indexonlyscan = off;
SELECT result FROM compare('SELECT count(*), sum(id) FROM (SELECT id FROM numbers UNION SELECT max(k) FROM numbers) u');
SELECT * FROM compare('SELECT count(*), sum(id) FROM (SELECT id FROM numbers INTERSECT SELECT k FROM numbers UNION SELECT 7) u');
SELECT * FROM compare('SELECT count(*) FROM (SELECT id FROM numbers UNION SELECT k FROM numbers ORDER BY 1 LIMIT 10) u');
RESET enable_indexscan; RESET enable_indexonlyscan;
DROP TABLE numbers;
-- A search leaves out merge joins above two tables only where all keys can be hashed, as money cannot, and sets nothing for good.
CREATE TABLE prices AS SELECT i AS id, i::money AS price FROM generate_series(1, 9000) i;
VACUUM (ANALYZE, FREEZE) prices;
EXPLAIN (COSTS OFF) SELECT count(*) FROM prices a JOIN prices b USING (id) JOIN prices c ON c.price = a.price + b.price;
EXPLAIN (COSTS OFF) SELECT count(*) FROM prices a JOIN prices b USING (id) JOIN prices c USING (id);
SHOW enable_mergejoin;
SET enable_mergejoin = off;
SELECT batched_nodes('SELECT count(*) FROM prices a JOIN prices b USING (id) JOIN prices c USING (id)');
SHOW enable_mergejoin;
RESET enable_mergejoin;
-- Sequential scans are off, and the search for join orders has memory of its own.
SET enable_seqscan = off; SET geqo_threshold = 2;
SELECT result FROM compare('SELECT count(*), sum(b.price::numeric) FROM (SELECT id, max(price) AS price FROM prices GROUP BY id) a JOIN prices b USING (id) JOIN prices c USING (id) WHERE b.price < 100::money');
RESET enable_seqscan; RESET geqo_threshold;
DROP TABLE prices;
