-- BatchScan: quals, projection, limits, cursors, rescans, visibility.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
CREATE TABLE readings (id int, kind smallint, reading bigint, note text, late int, flag bool);
INSERT INTO readings
    SELECT i, i % 7, (i * 7919) % 1000, CASE WHEN i % 5 = 0 THEN 'note ' || i % 3 ELSE repeat('y', i % 40) END,
           i % 50, i % 2 = 0
    FROM generate_series(1, 3000) i;
VACUUM (ANALYZE, FREEZE) readings;
SELECT * FROM compare('SELECT * FROM readings WHERE id < 4');
SELECT * FROM compare('SELECT id, reading FROM readings WHERE late = 3 AND kind > 2');
SELECT * FROM compare('SELECT id + 1 AS next FROM readings WHERE id BETWEEN 10 AND 13 OR id = 99');
SELECT * FROM compare('SELECT id FROM readings WHERE NOT (id > 3) AND flag');
SELECT * FROM compare('SELECT id FROM readings WHERE id IN (5, 7, 9999)');
SELECT * FROM compare('SELECT id FROM readings WHERE id NOT IN (5, NULL) AND id < 9');
SELECT * FROM compare('SELECT count(*) FROM readings WHERE kind <> ALL (ARRAY[1, 2]::smallint[])');
SELECT * FROM compare('SELECT id FROM readings WHERE note = ''note 1'' AND id < 60');
SELECT * FROM compare('SELECT id FROM readings WHERE note LIKE ''note 2%'' AND id < 60');
SELECT * FROM compare('SELECT id FROM readings WHERE note NOT LIKE ''yy%'' AND id < 60');
SELECT * FROM compare('SELECT id FROM readings WHERE note LIKE ''%te%2%'' AND id < 60');
SELECT * FROM compare('SELECT count(*) FROM readings WHERE note LIKE ''n%e%1''');
SELECT * FROM compare('SELECT count(*) FROM readings WHERE note NOT LIKE ''%yyy%'' AND note LIKE ''%y''');
SELECT * FROM compare('SELECT count(*), count(*) FILTER (WHERE note LIKE ''yyyy%yyyy'') FROM readings WHERE note LIKE ''%%yyyy%yyyy%''');
SELECT * FROM compare('SELECT id FROM readings WHERE note IN (''y'', ''yy'') AND id < 99');
SELECT * FROM compare('SELECT id FROM readings WHERE id + late * 2 = 30');
SELECT * FROM compare('SELECT id FROM readings WHERE length(note) = 39 AND id < 200');
-- AND and OR compare texts of the rows alone that are not decided yet; others may use a comparison, too.
SELECT * FROM compare('SELECT id FROM readings WHERE id < 400 AND ((kind = 3 AND note = ''note 1'' AND late > 5) OR (kind = 4 AND note LIKE ''yyy%'' AND id % 3 = 0) OR (note IN (''y'', ''yy'') AND flag))');
SELECT * FROM compare('SELECT kind = 3 AND note = ''note 1'', late = 20 OR note LIKE ''%y'', count(*) FROM readings GROUP BY 1, 2');
SELECT * FROM compare('SELECT count(*), count(*) FILTER (WHERE note = ''note 1''), sum(id) FILTER (WHERE note LIKE ''yy%'') FROM readings WHERE (kind = 3 AND note = ''note 1'') OR (late < 2 AND note LIKE ''yy%'') OR kind = 4');
SELECT * FROM compare('SELECT (CASE WHEN id % 10 = 0 THEN NULL ELSE kind END = 3 AND CASE WHEN id % 4 = 0 THEN NULL ELSE note END = ''note 1''), count(*), sum(id) FROM readings GROUP BY 1');
SELECT * FROM compare('SELECT (CASE WHEN id % 10 = 0 THEN NULL ELSE kind END <> 3 OR CASE WHEN id % 4 = 0 THEN NULL ELSE note END = ''note 1''), count(*), sum(id) FROM readings GROUP BY 1');
-- A division that never fails, as the rows it would fail for are gone by then.
SELECT * FROM compare('SELECT id FROM readings WHERE late <> 0 AND 100 / late = 33');
-- One that does.
SELECT * FROM compare('SELECT id FROM readings WHERE 100 / late = 33');
SELECT * FROM compare('SELECT id FROM readings WHERE id * 1000000 > 5');
SELECT * FROM compare('SELECT id FROM readings WHERE id * 1000000 > 5 LIMIT 3');
SELECT * FROM compare('SELECT id FROM readings LIMIT 3');
-- Joins, subqueries, rescans with parameters.
SELECT * FROM compare('SELECT r.id, s.id FROM readings r JOIN readings s ON s.id = r.id + 1 WHERE r.id < 5');
SELECT * FROM compare('SELECT k, (SELECT max(id) FROM readings r WHERE r.kind = k) FROM generate_series(0, 3) k');
SELECT * FROM compare('SELECT k, x.id FROM generate_series(1, 3) k, LATERAL (SELECT id FROM readings WHERE late = k AND id > 40 LIMIT 1) x');
SELECT * FROM compare('SELECT id FROM readings WHERE id < (SELECT avg(id) / 500 FROM readings)');
SELECT result FROM compare('SELECT id FROM readings r WHERE id < 20 AND EXISTS (SELECT 1 FROM readings s WHERE s.id = r.id * 100)');
-- Prepared statements keep working when batching is switched off.
PREPARE by_id(int) AS SELECT id, note FROM readings WHERE id = $1;
SET plan_cache_mode = force_generic_plan;
EXECUTE by_id(7);
SET batchexec.enabled = off;
EXECUTE by_id(7);
EXPLAIN (COSTS OFF) EXECUTE by_id(7);
SET batchexec.enabled = on;
EXECUTE by_id(8);
EXPLAIN (COSTS OFF) EXECUTE by_id(7);
RESET plan_cache_mode;
-- Cursors: NO SCROLL ones are batched, others may go back.
BEGIN;
DECLARE forward NO SCROLL CURSOR FOR SELECT id FROM readings WHERE kind = 3;
FETCH 3 FROM forward;
SAVEPOINT s;
FETCH 1 FROM forward;
ROLLBACK TO s;
FETCH 1 FROM forward;
DECLARE either CURSOR FOR SELECT id FROM readings WHERE kind = 3;
FETCH 3 FROM either;
FETCH BACKWARD 1 FROM either;
COMMIT;
-- Pages that are not all-visible: updates, deletes, dead tuples, HOT chains.
UPDATE readings SET late = late + 1000 WHERE id % 100 = 1;
DELETE FROM readings WHERE id % 100 = 2;
SELECT * FROM compare('SELECT count(*), sum(late), sum(id) FROM readings');
SELECT * FROM compare('SELECT id, late FROM readings WHERE late > 1000 AND id < 500');
BEGIN;
UPDATE readings SET late = -1 WHERE id < 10;
INSERT INTO readings VALUES (100000, 1, 1, 'own', 1, true);
SELECT * FROM compare('SELECT count(*), sum(late), max(id) FROM readings');
ROLLBACK;
SELECT * FROM compare('SELECT count(*), sum(late), max(id) FROM readings');
-- Columns dropped, added, added with a default; values out of line.
ALTER TABLE readings DROP COLUMN reading;
ALTER TABLE readings ADD COLUMN added int DEFAULT 42;
ALTER TABLE readings ADD COLUMN empty text;
INSERT INTO readings (id, kind, note, late, flag, added, empty) VALUES (4000, 1, 'new', 1, true, 43, 'full');
INSERT INTO readings (id, note, empty) SELECT 4001, string_agg(md5(i::text), ''), repeat('z', 100000) FROM generate_series(1, 1000) i;
SELECT * FROM compare('SELECT count(*), sum(added), count(empty), min(added), count(note) FROM readings');
SELECT * FROM compare('SELECT id, added, kind FROM readings WHERE empty IS NOT NULL');
SELECT * FROM compare('SELECT id FROM readings WHERE empty = repeat(''z'', 100000)');
SELECT * FROM compare('SELECT id, length(note) FROM readings WHERE note > ''zz'' COLLATE "C" OR length(note) > 1000');
SELECT * FROM compare('SELECT added, count(*) FROM readings WHERE kind IS NULL OR late > 20 GROUP BY added');
-- Why not.
SET batchexec.mode = require;
SELECT ctid FROM readings WHERE id = 1;
SELECT r FROM readings r WHERE id = 1;
SELECT id FROM readings WHERE id = 1 FOR UPDATE;
UPDATE readings r SET late = 0 FROM readings s WHERE r.id = 1 AND s.id = 1;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT id FROM readings WHERE id = 1;
ROLLBACK;
RESET batchexec.mode;
SET batchexec.explain = on;
EXPLAIN (COSTS OFF) SELECT ctid FROM readings WHERE id = 1;
EXPLAIN (COSTS OFF) SELECT bit_and(id) FROM readings WHERE id = 1;
VACUUM FULL readings;
VACUUM (FREEZE) readings;
SELECT explain_figures('SELECT id FROM readings LIMIT 5');
SELECT explain_figures('SELECT id FROM readings WHERE id = 20 LIMIT 1');
SELECT regexp_replace(explain_figures('SELECT count(*) FROM readings WHERE id > 10'), 'max \d+', 'max n');
SET batchexec.explain = off;
DROP TABLE readings;
