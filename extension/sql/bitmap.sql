-- BatchScan over a bitmap: exact and lossy pages, updated rows, rescans, limits.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
SET enable_seqscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off;
CREATE TABLE readings (id int, kind int, reading int, note text, point point) WITH (fillfactor = 80);
INSERT INTO readings
    SELECT i, i % 97, (i * 7919) % 10000, CASE WHEN i % 5 <> 0 THEN 'note ' || i % 13 END, point(i % 100, i / 100)
    FROM generate_series(1, 20000) i;
CREATE INDEX ON readings (kind); CREATE INDEX ON readings (reading);
CREATE INDEX ON readings USING gist (point);
VACUUM (ANALYZE, FREEZE) readings;
SELECT * FROM compare('SELECT id, reading FROM readings WHERE kind = 3 AND note LIKE ''note 1%'' AND id < 3000');
SELECT * FROM compare('SELECT count(*), sum(id) FROM readings WHERE kind = 3');
SELECT * FROM compare('SELECT count(*), sum(id), min(note) FROM readings WHERE kind IN (3, 5) AND reading BETWEEN 100 AND 4000');
SELECT * FROM compare('SELECT id FROM readings WHERE (kind = 3 OR reading = 77) AND id % 2 = 1 AND id < 900');
SELECT * FROM compare('SELECT id FROM readings WHERE kind = 3 AND md5(note) < ''4'' AND reading > 5000');
SELECT * FROM compare('SELECT id, point FROM readings WHERE point <@ circle ''<(50, 50), 3>'' AND kind > 90');
SELECT * FROM compare('SELECT id FROM readings WHERE kind = 1000');
-- Aggregations that take the scan's batches: groups, filters, expressions, texts, DISTINCT, sets, order of rows, errors.
SELECT * FROM compare('SELECT kind, note, count(*), sum(reading), avg(id), max(note COLLATE "C") FROM readings WHERE kind < 4 AND reading > 100 GROUP BY kind, note');
SELECT * FROM compare('SELECT id % 3, count(*) FILTER (WHERE note IS NULL), sum(reading * 2 + id), string_agg(left(note, 5), '','') FILTER (WHERE id < 2000) FROM readings WHERE kind IN (3, 9) GROUP BY 1 HAVING count(*) > 5');
SELECT * FROM compare('SELECT count(DISTINCT note), count(DISTINCT id % 50), min(md5(note)) FROM readings WHERE kind BETWEEN 5 AND 9');
SELECT * FROM compare('SELECT kind, note, count(*) FROM readings WHERE kind < 3 GROUP BY ROLLUP (kind, note)');
SELECT * FROM compare('SELECT DISTINCT kind, note FROM readings WHERE reading < 500');
SELECT * FROM compare('SELECT k, (SELECT sum(id) FROM readings WHERE kind = k AND note IS NOT NULL) FROM generate_series(1, 6) k');
SELECT * FROM compare('SELECT sum(1000000 / (reading - 5000)), sum(id * 1000000) FROM readings WHERE kind < 40');
SELECT * FROM compare('SELECT count(*) FROM readings WHERE kind = 1000');
SET work_mem = '64kB'; SET hash_mem_multiplier = 1;
SELECT * FROM compare('SELECT note, count(*), md5(string_agg(repeat(note, 9), '','')) FROM readings WHERE kind < 60 GROUP BY 1');
RESET work_mem; RESET hash_mem_multiplier;
SET batchexec.explain = on; SET batchexec.mode = prefer; SET enable_hashagg = off;
EXPLAIN (COSTS OFF) SELECT kind, sum(reading) FROM readings WHERE kind < 4 AND note = 'note 3' GROUP BY kind;
SELECT line FROM explain_figures('SELECT kind, sum(reading) FROM readings WHERE kind < 4 AND note = ''note 3'' GROUP BY kind') line WHERE line !~ 'Buckets|Memory|Batch|Index Searches';
RESET enable_hashagg;
PREPARE of_kind(int) AS SELECT sum(reading) FROM readings WHERE kind = $1 AND id > 10;
SET plan_cache_mode = force_generic_plan;
EXECUTE of_kind(3);
SET batchexec.enabled = off;
EXECUTE of_kind(3);
EXPLAIN (COSTS OFF) EXECUTE of_kind(3);
RESET batchexec.enabled; RESET plan_cache_mode; RESET batchexec.mode;
SET batchexec.explain = off;
-- As stock, a division may fail only for rows that the index finds.
SELECT * FROM compare('SELECT count(*) FROM readings WHERE kind = 3 AND 10 / (id - 4) >= 0');
SELECT * FROM compare('SELECT count(*) FROM readings WHERE kind = 3 AND 10 / (id - 100) >= 0');
-- Joins, rescans with another parameter, limits, a cursor.
SELECT * FROM compare('SELECT k, (SELECT count(*) FROM readings WHERE kind = k AND reading > k * 50) FROM generate_series(1, 6) k');
SELECT * FROM compare('SELECT k, r.id FROM generate_series(1, 40, 10) k, LATERAL (SELECT id FROM readings WHERE kind = k AND note IS NULL ORDER BY id LIMIT 1) r');
SELECT * FROM compare('SELECT sum(a.id), sum(b.reading) FROM readings a JOIN readings b ON a.reading = b.id WHERE a.kind < 9 AND a.id > 50 AND b.kind < 50');
SELECT * FROM compare('SELECT sum(id) FROM (SELECT id FROM readings WHERE kind < 40 AND note IS NULL LIMIT 300) r');
BEGIN;
DECLARE c NO SCROLL CURSOR FOR SELECT id FROM readings WHERE kind = 11 AND reading > 3000;
FETCH 2 FROM c; FETCH 3 FROM c; CLOSE c;
COMMIT;
-- Bitmaps that are too large to name each row.
CREATE TABLE wide AS SELECT i AS id, i % 3 AS kind, repeat('w', 800) AS filling FROM generate_series(1, 20000) i;
CREATE INDEX ON wide (kind);
VACUUM (ANALYZE, FREEZE) wide;
SET work_mem = 64;
SELECT * FROM compare('SELECT count(*), sum(id) FROM (SELECT * FROM wide WHERE kind = 1 AND id % 5 = 0 OFFSET 0) w');
SET batchexec.explain = on; SET batchexec.mode = prefer;
SELECT regexp_replace(line, '\d+', 'some') AS line
    FROM explain_figures('SELECT id FROM wide WHERE kind = 1 AND id % 5 = 0') line WHERE line ~ 'Custom Scan|Filter:|Lossy|Bitmap';
RESET work_mem;
SELECT line FROM explain_figures('SELECT id FROM wide WHERE kind = 1 AND id % 5 = 0') line WHERE line ~ 'Custom Scan|Filter:|Lossy|Bitmap';
SET batchexec.explain = off; RESET batchexec.mode;
DROP TABLE wide;
-- Newer versions on the same page and on others, deleted rows, old snapshots.
UPDATE readings SET note = 'new' WHERE id % 7 = 0;
UPDATE readings SET kind = 3 WHERE id % 501 = 0;
DELETE FROM readings WHERE id % 11 = 0;
SELECT result FROM compare('SELECT count(*), sum(id), count(DISTINCT note) FROM (SELECT * FROM readings WHERE kind = 3 AND reading > 10 OFFSET 0) r');
SELECT * FROM compare('SELECT note, count(*) FROM readings WHERE kind < 30 AND id > 10 GROUP BY note');
VACUUM readings;
SELECT result FROM compare('SELECT count(*), sum(id), count(DISTINCT note) FROM (SELECT * FROM readings WHERE kind = 3 AND reading > 10 OFFSET 0) r');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM compare('SELECT count(*), sum(id) FROM readings WHERE kind = 3 AND reading > 10');
UPDATE readings SET kind = 4 WHERE kind = 3 AND id < 9000;
SELECT * FROM compare('SELECT count(*), sum(id) FROM readings WHERE kind = 3 AND reading > 10');
ROLLBACK;
SELECT * FROM compare('SELECT count(*), sum(id) FROM readings WHERE kind = 3 AND reading > 10');
-- The planner's rows decide whether it pays.
SELECT batched_nodes('SELECT id FROM readings WHERE kind < 40 AND note = ''note 1''') AS filters_much,
       batched_nodes('SELECT id FROM readings WHERE kind < 40') AS filters_nothing,
       batched_nodes('SELECT id FROM readings WHERE reading = 40 AND note = ''note 1''') AS few_rows,
       batched_nodes('SELECT ctid FROM readings WHERE kind < 40 AND note = ''note 1''') AS row_identity;
RESET enable_seqscan; RESET enable_indexscan; RESET enable_indexonlyscan;
DROP TABLE readings;
