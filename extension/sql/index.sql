-- BatchScan of the rows that an index finds: orders, filters, versions, rescans, limits, aggregations.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off;
CREATE TABLE visits (id int, at timestamp, kind int, shuffled int, note text) WITH (fillfactor = 80);
INSERT INTO visits
    SELECT i, '2024-01-01'::timestamp + i * interval '10 minutes', i % 50, (i * 7919) % 20011, CASE WHEN i % 5 <> 0 THEN 'note ' || i % 13 END
    FROM generate_series(1, 20000) i;
CREATE INDEX ON visits (at); CREATE INDEX ON visits (shuffled); CREATE INDEX ON visits (kind, id); CREATE INDEX ON visits (lower(note), id);
VACUUM (ANALYZE, FREEZE) visits;
-- The order of a query's rows is that of its index.
CREATE FUNCTION in_order(query text) RETURNS TABLE (nodes text, result text) LANGUAGE plpgsql AS $$
DECLARE
    batched text;
    stock text;
BEGIN
    PERFORM set_config('batchexec.mode', 'prefer', true);
    nodes := batched_nodes(query);
    EXECUTE format('SELECT count(*) || '' '' || md5(string_agg(q::text, '','')) FROM (%s) q', query) INTO batched;
    PERFORM set_config('batchexec.mode', 'forbid', true);
    EXECUTE format('SELECT count(*) || '' '' || md5(string_agg(q::text, '','')) FROM (%s) q', query) INTO stock;
    PERFORM set_config('batchexec.mode', 'allow', true);
    IF batched IS DISTINCT FROM stock THEN
        RAISE EXCEPTION E'results differ: %\nbatched: %\nstock: %', query, batched, stock;
    END IF;
    result := batched;
    RETURN NEXT;
END $$;
SELECT * FROM in_order('SELECT id, note FROM visits WHERE at >= ''2024-02-01'' AND at < ''2024-03-01'' ORDER BY at');
SELECT * FROM in_order('SELECT id, note FROM visits WHERE at >= ''2024-02-01'' AND note LIKE ''note 1%'' ORDER BY at DESC');
SELECT * FROM in_order('SELECT id, shuffled FROM visits WHERE shuffled BETWEEN 100 AND 9000 AND kind <> 3 ORDER BY shuffled');
SELECT * FROM in_order('SELECT kind, id FROM visits WHERE kind IN (3, 9, 44) AND id > 500 ORDER BY kind, id');
SELECT * FROM in_order('SELECT id FROM visits WHERE (kind, id) > (40, 300) ORDER BY kind DESC, id DESC');
SELECT * FROM in_order('SELECT id FROM visits WHERE lower(note) = ''note 4'' AND md5(note || id) < ''8'' ORDER BY id');
SELECT * FROM in_order('SELECT id FROM visits WHERE at IS NOT NULL AND 20000 / (id - 20001) < 0 ORDER BY at');
-- Aggregations of its batches, joins over them.
SELECT * FROM compare('SELECT count(*), sum(id), max(note COLLATE "C") FROM visits WHERE at >= ''2024-02-01'' AND at < ''2024-03-01''');
SELECT * FROM compare('SELECT date_trunc(''month'', at) AS month, count(*), count(DISTINCT note), avg(kind) FROM visits WHERE at >= ''2024-02-01'' AND kind < 20 GROUP BY 1');
SELECT * FROM compare('SELECT md5(string_agg(id::text, '','')), sum(id / (kind - 51)) FROM visits WHERE shuffled < 3000');
SELECT * FROM compare('SELECT sum(1 / (id - 700)) FROM visits WHERE at > ''2024-01-01''');
SELECT * FROM compare('SELECT count(*), sum(b.id) FROM visits a JOIN visits b ON a.id = b.shuffled WHERE a.at < ''2024-01-20'' AND b.at > ''2024-02-01''');
SELECT * FROM compare('SELECT count(*) FROM visits WHERE at > ''2030-01-01''');
-- Rescans with other parameters, subqueries, cursors, limits, generic plans.
SELECT * FROM compare('SELECT k, (SELECT sum(id) FROM visits WHERE kind = k AND note IS NOT NULL) FROM generate_series(1, 6) k');
SELECT * FROM compare('SELECT k, v.id FROM generate_series(1, 40, 10) k, LATERAL (SELECT id FROM visits WHERE kind = k AND note IS NULL ORDER BY id DESC LIMIT 2) v');
SELECT * FROM compare('SELECT count(*) FROM visits WHERE at > (SELECT max(at) - interval ''3 days'' FROM visits WHERE kind = 7)');
BEGIN;
DECLARE c NO SCROLL CURSOR FOR SELECT id FROM visits WHERE kind = 11 AND id > 3000 ORDER BY id;
FETCH 2 FROM c; FETCH 3 FROM c; CLOSE c;
COMMIT;
PREPARE of_kind(int) AS SELECT count(*), sum(shuffled) FROM visits WHERE kind = $1 AND id > 10;
SET plan_cache_mode = force_generic_plan; SET batchexec.mode = prefer;
EXECUTE of_kind(3); EXECUTE of_kind(NULL);
SET batchexec.enabled = off;
EXECUTE of_kind(3);
RESET batchexec.enabled; RESET plan_cache_mode; RESET batchexec.mode;
-- Newer versions on the same page and on others, deleted rows, old snapshots, changes through the index that is read.
UPDATE visits SET note = 'new' WHERE id % 7 = 0;
UPDATE visits SET kind = 3 WHERE id % 501 = 0;
UPDATE visits SET at = at + interval '1 second' WHERE id % 11 = 0;
DELETE FROM visits WHERE id % 13 = 0;
SELECT * FROM in_order('SELECT id, note FROM visits WHERE at >= ''2024-02-01'' AND kind < 30 ORDER BY at');
SELECT * FROM compare('SELECT kind, count(*), sum(id) FROM visits WHERE kind < 5 GROUP BY kind');
VACUUM visits;
SELECT * FROM in_order('SELECT id, note FROM visits WHERE at >= ''2024-02-01'' AND kind < 30 ORDER BY at');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM compare('SELECT count(*), sum(id) FROM visits WHERE kind = 3');
SET LOCAL batchexec.mode = prefer;
UPDATE visits SET kind = kind + 1 WHERE kind >= 3 AND id < 9000;
SELECT * FROM compare('SELECT kind, count(*), sum(id) FROM visits WHERE kind BETWEEN 3 AND 6 GROUP BY kind');
ROLLBACK;
-- Chosen where the table's rows follow the index, and enough of them are found.
RESET enable_seqscan;
SET batchexec.explain = on;
EXPLAIN (COSTS OFF) SELECT max(note COLLATE "C") FROM visits WHERE at = '2024-02-01';
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT count(note) FROM visits WHERE at >= '2024-02-01' AND at < '2024-02-20' AND kind < 20;
DROP TABLE visits;
