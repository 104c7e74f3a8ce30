-- Scans under UPDATE and DELETE.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
CREATE TABLE changed (id int, kind int, amount numeric(10, 2), note text, at timestamp);
INSERT INTO changed SELECT i, i % 100, i / 4.0, CASE WHEN i % 7 > 0 THEN 'note ' || i % 50 END, '2024-01-31'::timestamp + i * interval '1 hour'
    FROM generate_series(1, 4000) i;
CREATE TABLE parts (id int, kind int, note text) PARTITION BY RANGE (id);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (1500);
CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (1500) TO (9999);
INSERT INTO parts SELECT i, i % 100, 'part ' || i % 9 FROM generate_series(1, 3000) i;
VACUUM (ANALYZE, FREEZE) changed, parts;
-- What is in a table after a change, which is undone, and how many rows it says that it has changed; or its error.
CREATE FUNCTION after_change(change text, of_table text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    line record;
    returned int := 0;
    content text;
BEGIN
    IF change ~ 'RETURNING' THEN
        FOR line IN EXECUTE change LOOP
            returned := returned + hashtext(line::text) % 1000;
        END LOOP;
    ELSE
        EXECUTE change;
        GET DIAGNOSTICS returned = ROW_COUNT;
    END IF;
    EXECUTE format('SELECT count(*) || '' '' || coalesce(md5(string_agg(t::text, '','' ORDER BY t::text)), ''-'') FROM %s t', of_table) INTO content;
    RAISE EXCEPTION USING MESSAGE = returned || ' ' || content, ERRCODE = 'ZZ001';
EXCEPTION
    WHEN SQLSTATE 'ZZ001' THEN RETURN SQLERRM;
    WHEN OTHERS THEN RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
CREATE FUNCTION compare_change(change text, of_table text DEFAULT 'changed') RETURNS TABLE (nodes text, result text) LANGUAGE plpgsql AS $$
DECLARE
    stock text;
BEGIN
    PERFORM set_config('batchexec.mode', 'prefer', true);
    nodes := batched_nodes(change);
    result := after_change(change, of_table);
    PERFORM set_config('batchexec.mode', 'forbid', true);
    stock := after_change(change, of_table);
    PERFORM set_config('batchexec.mode', 'allow', true);
    IF result IS DISTINCT FROM stock THEN
        RAISE EXCEPTION E'results differ: %\nbatched: %\nstock: %', change, result, stock;
    END IF;
    RETURN NEXT;
END $$;
SELECT * FROM compare_change('UPDATE changed SET amount = amount + 1 WHERE kind = 7');
SELECT * FROM compare_change('UPDATE changed SET kind = kind + 1, note = upper(note) WHERE note LIKE ''%4_'' OR note IS NULL');
SELECT * FROM compare_change('UPDATE changed c SET note = left(note, 3), at = at + interval ''1 month'' WHERE id % 3 = 1 RETURNING c.id, c.note, c.ctid IS NULL, c.*');
SELECT * FROM compare_change('DELETE FROM changed WHERE kind BETWEEN 10 AND 40 AND amount > 100');
SELECT * FROM compare_change('DELETE FROM changed WHERE note LIKE ''note 1%'' RETURNING id, tableoid::regclass');
SELECT * FROM compare_change('DELETE FROM changed');
SELECT * FROM compare_change('UPDATE changed SET id = 1000 / (kind - 99) WHERE kind > 50');
SELECT * FROM compare_change('UPDATE changed SET amount = amount * 1000000 WHERE id > 3990');
-- Every version is changed once, and not those that the statement has made.
SELECT * FROM compare_change('UPDATE changed SET id = id + 5000, note = repeat(note, 30) WHERE id > 0');
-- Partitions, also where rows move to another one.
SELECT * FROM compare_change('UPDATE parts SET note = note || ''!'' WHERE kind < 5', 'parts');
SELECT * FROM compare_change('UPDATE parts SET id = id + 1000 WHERE kind < 5', 'parts');
SELECT * FROM compare_change('DELETE FROM parts WHERE note = ''part 3''', 'parts');
-- Triggers see each row as it was, and may leave it out or change another row of the table.
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.id % 5 = 0 THEN
        RETURN NULL;
    END IF;
    IF OLD.id IN (107, 1207) THEN
        UPDATE changed SET note = 'by the trigger' WHERE id = 3908;
    END IF;
    NEW.note := OLD.note || ' was ' || OLD.kind;
    RETURN NEW;
END $$;
CREATE TRIGGER note_change BEFORE UPDATE ON changed FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION note_change();
SELECT * FROM compare_change('UPDATE changed SET kind = 1 WHERE kind = 7');
DROP TRIGGER note_change ON changed;
-- In stock nodes: what reads other rows, too.
SELECT * FROM compare_change('UPDATE changed c SET amount = 0 FROM parts p WHERE p.id = c.id AND p.kind = 3');
SELECT * FROM compare_change('DELETE FROM changed WHERE id IN (SELECT id FROM parts WHERE kind = 3)');
SELECT * FROM compare_change('UPDATE changed SET amount = (SELECT max(kind) FROM parts) WHERE kind = 3');
SELECT * FROM compare_change('WITH picked AS (SELECT id FROM parts WHERE kind = 3) DELETE FROM changed c USING picked p WHERE c.id = p.id');
-- A cursor's row.
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM changed WHERE kind = 9;
FETCH 2 FROM c;
UPDATE changed SET note = 'current' WHERE CURRENT OF c;
SELECT id, kind, note FROM changed WHERE note = 'current';
ROLLBACK;
-- Chosen by its cost, where no index is cheaper.
VACUUM (FULL, ANALYZE) changed;
EXPLAIN (COSTS OFF) UPDATE changed SET amount = 1 WHERE kind = 7;
CREATE INDEX ON changed (kind);
EXPLAIN (COSTS OFF) DELETE FROM changed WHERE kind = 7 AND amount = 3;
DROP TABLE changed, parts;
