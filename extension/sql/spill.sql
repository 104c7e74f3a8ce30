-- Joins whose inner rows exceed the memory for a hash table: in rounds, with rows of both sides in files.
CREATE FUNCTION compare_spilled(query text, node text, spilled text, report text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    batched text[];
    nodes int;
    nodes_spilled int;
BEGIN
    PERFORM set_config('batchexec.mode', 'prefer', true);
    PERFORM set_config('work_mem', '64kB', true);
    PERFORM set_config('hash_mem_multiplier', '1', true);
    batched := outcome(query);
    SELECT count(*) FILTER (WHERE l ~ node), count(*) FILTER (WHERE l ~ spilled) INTO nodes, nodes_spilled FROM explain_figures(query) l;
    PERFORM set_config('batchexec.mode', 'forbid', true);
    IF batched IS DISTINCT FROM outcome(query) THEN
        RAISE EXCEPTION E'results differ: %\nbatched: %\nstock: %', query, batched[1:9], (outcome(query))[1:9];
    END IF;
    RETURN format(report, cardinality(batched), nodes, nodes_spilled);
END $$;
CREATE FUNCTION compare_rounds(query text) RETURNS text LANGUAGE sql AS $$
    SELECT compare_spilled(query, 'BatchJoin', 'Hash Table Rounds: ([2-9]|\d\d)', '%s rows, joins %s, in rounds %s')
$$;
CREATE FUNCTION compare_files(query text) RETURNS text LANGUAGE sql AS $$
    SELECT compare_spilled(query, 'BatchAgg', 'Files Read: [1-9]', '%s rows, aggregations %s, with files %s')
$$;
SET enable_mergejoin = off; SET enable_nestloop = off; SET batchexec.explain = on;
-- NULLs in the keys, values of all kinds, rows with and without a match on both sides.
CREATE TABLE wide_rows AS SELECT i AS id, CASE WHEN i % 99 > 0 THEN i % 4000 END AS k, (i % 700)::numeric / 7 AS amount, 'text ' || i % 50 AS t,
    i::real / 3 AS r, i::float8 / 3 AS f, i % 3 = 0 AS flag, date '2020-01-01' + i % 900 AS d, md5(i::text)::uuid AS u, jsonb_build_object('i', i % 5) AS j,
    (i % 300)::char(6) AS c, (i % 100)::smallint AS small FROM generate_series(1, 9000) i;
CREATE TABLE narrow_rows AS SELECT i AS id, CASE WHEN i % 97 > 0 THEN i + 2000 END AS k, i * 1.5 AS amount, CASE WHEN i % 5 > 0 THEN 'text ' || i % 80 END AS t,
    md5((i * 2)::text)::uuid AS u, ARRAY[i, i % 3] AS a FROM generate_series(1, 6000) i;
VACUUM (ANALYZE, FREEZE) wide_rows, narrow_rows;
SELECT compare_rounds('SELECT a.*, b.* FROM wide_rows a JOIN narrow_rows b ON a.k = b.k');
SELECT compare_rounds('SELECT a.*, b.* FROM wide_rows a LEFT JOIN narrow_rows b ON a.k = b.k');
SELECT compare_rounds('SELECT a.*, b.* FROM wide_rows a RIGHT JOIN narrow_rows b ON a.k = b.k');
SELECT compare_rounds('SELECT a.*, b.* FROM wide_rows a FULL JOIN narrow_rows b ON a.k = b.k');
SELECT compare_rounds('SELECT a.*, b.* FROM narrow_rows a RIGHT JOIN wide_rows b ON a.k = b.k');
SELECT compare_rounds('SELECT a.* FROM wide_rows a WHERE EXISTS (SELECT FROM narrow_rows b WHERE a.k = b.k)');
SELECT compare_rounds('SELECT a.* FROM wide_rows a WHERE NOT EXISTS (SELECT FROM narrow_rows b WHERE a.k = b.k)');
SELECT compare_rounds('SELECT a.u, b.a, a.r FROM wide_rows a JOIN narrow_rows b ON a.k = b.k AND a.amount < b.amount WHERE a.f > 100');
SELECT compare_rounds('SELECT a.t, count(*), sum(a.amount), sum(b.amount), max(a.r), min(a.d), count(b.a) FROM wide_rows a JOIN narrow_rows b ON a.k + 1 = b.k GROUP BY a.t');
SELECT compare_rounds('SELECT count(*), sum(a.amount), sum(b.amount) FROM wide_rows a FULL JOIN narrow_rows b ON a.k = b.k AND a.t = b.t');
SELECT compare_rounds('SELECT count(*), sum(a.amount) FROM wide_rows a JOIN narrow_rows b ON a.amount = b.amount');
SELECT compare_rounds('SELECT count(*), sum(a.id), sum(b.id) FROM wide_rows a JOIN wide_rows b ON a.id = b.id AND a.c = b.c AND a.d = b.d');
-- Joins in rounds below joins in rounds, and aggregations of them.
SELECT compare_rounds('SELECT a.id, b.id, c.id, c.u FROM wide_rows a JOIN narrow_rows b ON a.k = b.k JOIN wide_rows c ON c.id = b.id');
SELECT compare_rounds('SELECT count(*), sum(a.id), sum(b.id), sum(c.id) FROM wide_rows a LEFT JOIN narrow_rows b ON a.k = b.k FULL JOIN wide_rows c ON c.k = b.id');
SELECT compare_rounds('SELECT a.id, count(*), sum(b.amount) FROM wide_rows a JOIN narrow_rows b ON a.k = b.k GROUP BY a.id');
-- A side without rows, and one without a match.
SELECT compare_rounds('SELECT count(*), count(a.id), sum(b.id) FROM (SELECT * FROM wide_rows WHERE id < 0) a FULL JOIN narrow_rows b ON a.k = b.k');
SELECT compare_rounds('SELECT count(*), count(a.id), count(b.id) FROM wide_rows a LEFT JOIN narrow_rows b ON a.k = -b.id');
-- Read again for each row of another table: with inner rows that change, and without.
SELECT compare_rounds('SELECT s, (SELECT sum(a.id + b.id) FROM wide_rows a JOIN narrow_rows b ON a.k = b.k WHERE a.id % 4 = s) FROM generate_series(0, 3) s');
SELECT compare_rounds('SELECT s, (SELECT count(b.id) FROM wide_rows a LEFT JOIN (SELECT * FROM narrow_rows WHERE id % 2 = s % 2) b ON a.k = b.k) FROM generate_series(0, 2) s');
SELECT compare_rounds('SELECT s, (SELECT sum(a.id) FROM wide_rows a JOIN narrow_rows b ON a.k = b.k + s) FROM generate_series(0, 2) s');
-- Rows of one key exceed the memory on their own: they stay together.
CREATE TABLE one_key AS SELECT CASE WHEN i % 10 = 0 THEN i ELSE 7 END AS k, i AS v FROM generate_series(1, 5000) i;
ANALYZE one_key;
SELECT compare_rounds('SELECT count(*), sum(a.id), sum(b.v) FROM wide_rows a JOIN one_key b ON a.k = b.k');
SELECT compare_rounds('SELECT count(*), sum(a.id), sum(b.v) FROM (SELECT * FROM wide_rows WHERE id < 900) a FULL JOIN one_key b ON a.k = b.k');
-- Far more rows than the planner expects: parts are divided again.
CREATE FUNCTION more_rows(n int) RETURNS SETOF int LANGUAGE plpgsql IMMUTABLE ROWS 10 AS 'BEGIN RETURN QUERY SELECT generate_series(1, n); END';
SELECT compare_rounds('SELECT count(*), sum(a.id), sum(m) FROM wide_rows a LEFT JOIN (SELECT m FROM more_rows(9000) m OFFSET 0) b ON a.id = b.m');
SELECT compare_rounds('SELECT count(*), sum(a.id), sum(m) FROM wide_rows a FULL JOIN (SELECT m FROM more_rows(9000) m OFFSET 0) b ON a.id = b.m');
-- Values that are stored elsewhere, compressed, or long.
CREATE TABLE long_values AS SELECT i AS id, i % 600 AS k, repeat(md5(i::text), 10 + i % 90) AS t FROM generate_series(1, 1200) i;
ALTER TABLE long_values ALTER t SET STORAGE external;
INSERT INTO long_values SELECT i + 1200, i % 600, repeat(md5(i::text), 10 + i % 90) FROM generate_series(1, 1200) i;
VACUUM (ANALYZE, FREEZE) long_values;
SELECT compare_rounds('SELECT a.id, md5(a.t), md5(b.t) FROM long_values a JOIN long_values b ON a.k = b.k');
SELECT compare_rounds('SELECT count(*), sum(length(a.t)), sum(length(b.t)) FROM long_values a JOIN long_values b ON a.t = b.t');
-- Errors of keys are the stock server's.
SELECT compare_preferred('SELECT count(*) FROM wide_rows a JOIN narrow_rows b ON 100 / (a.id - 8999) = b.k');
-- In workers, each of which has files of its own.  Of rounds, EXPLAIN has the figures of the leader, which may come too late to read any rows.
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2; SET enable_parallel_hash = off;
SET work_mem = '64kB'; SET hash_mem_multiplier = 1;
SELECT compare_preferred('SELECT a.t, count(*), sum(a.amount), sum(b.amount), count(b.a) FROM wide_rows a JOIN narrow_rows b ON a.k = b.k GROUP BY a.t');
SELECT compare_preferred('SELECT a.id, b.id, a.u FROM wide_rows a LEFT JOIN narrow_rows b ON a.k = b.k');
RESET work_mem; RESET hash_mem_multiplier; RESET parallel_setup_cost; RESET parallel_tuple_cost; RESET min_parallel_table_scan_size; SET max_parallel_workers_per_gather = 0; RESET enable_parallel_hash;
-- What EXPLAIN shows.
SET work_mem = '64kB'; SET hash_mem_multiplier = 1; SET batchexec.mode = prefer;
SELECT regexp_replace(trim(line), '\d+kB|\d+ kB', '…') FROM explain_figures('SELECT count(*) FROM wide_rows a JOIN narrow_rows b ON a.k = b.k') line WHERE line ~ 'Join|Hash|Disk|Not';
-- Of several runs, the largest figures; in JSON all of them, even if nothing was read.
SELECT regexp_replace(trim(line), '\d+ kB', '…') FROM explain_figures('SELECT s, (SELECT count(b.id) FROM wide_rows a LEFT JOIN (SELECT * FROM narrow_rows WHERE id > s * 3000) b ON a.k = b.k) FROM generate_series(0, 2) s') line WHERE line ~ 'Join Type|Hash Table|Disk|Not';
SELECT regexp_replace(trim(line), '\d+ kB', '…') FROM explain_figures('SELECT s, (SELECT sum(a.id) FROM wide_rows a JOIN narrow_rows b ON a.k = b.k + s) FROM generate_series(9, 0) s') line WHERE line ~ 'Join Type|Hash Table|Disk|Not';
CREATE FUNCTION join_figures(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (ANALYZE, FORMAT yaml) ' || query LOOP
        RETURN QUERY SELECT trim(l) FROM regexp_split_to_table(line, E'\n') l WHERE l ~ 'Hash Table R|Disk Usage';
    END LOOP;
END $$;
SELECT join_figures('SELECT count(*) FROM wide_rows a JOIN (SELECT * FROM narrow_rows WHERE id = 7) b ON a.k = b.k');
SELECT join_figures('SELECT s, (SELECT sum(a.id) FROM wide_rows a JOIN narrow_rows b ON a.k = b.k + s) FROM generate_series(9, 0) s');
DROP FUNCTION join_figures;
-- Rows of one key are divided as long as others are split off, and not again: little is written a second time.
CREATE FUNCTION written_blocks_a_block(query text) RETURNS float LANGUAGE plpgsql AS $$
DECLARE
    plan jsonb;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) ' || query INTO plan;
    plan := jsonb_path_query_first(plan, '$.**?(@."Custom Plan Provider" == "BatchJoin")');
    RETURN (plan->>'Temp Written Blocks')::float * current_setting('block_size')::int / 1024 / (plan->>'Disk Usage')::float;
END $$;
SELECT written_blocks_a_block('SELECT count(*), sum(b.v), max(a.u::text) FROM wide_rows a JOIN one_key b ON a.k = b.k') < 3.5 AS is_little;
DROP FUNCTION written_blocks_a_block;
-- A leader that leaves all to its workers has no figures.
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2; SET enable_parallel_hash = off;
SET parallel_leader_participation = off;
SELECT trim(line) FROM explain_figures('SELECT count(*) FROM wide_rows a JOIN narrow_rows b ON a.k = b.k') line WHERE line ~ 'Join Type|Hash Table|Disk|Not';
RESET parallel_setup_cost; RESET parallel_tuple_cost; RESET min_parallel_table_scan_size; SET max_parallel_workers_per_gather = 0; RESET enable_parallel_hash;
RESET parallel_leader_participation;
-- The limit on temporary files holds.
SET temp_file_limit = '16kB';
SELECT left((outcome('SELECT count(*) FROM wide_rows a JOIN narrow_rows b ON a.k = b.k'))[1], 34) AS error;
RESET temp_file_limit;
-- A semi or anti join keeps one row of each key, and nothing of others: batches or rows of few keys need no files.
CREATE TABLE few_keys AS SELECT i AS id, repeat('key number ' || i % 20, 5) AS k FROM generate_series(1, 30000) i;
VACUUM (ANALYZE, FREEZE) few_keys;
SET work_mem = '256kB';
SELECT trim(line) FROM explain_figures('SELECT count(*) FROM wide_rows a WHERE NOT EXISTS (SELECT FROM few_keys b WHERE b.k = a.t)') line WHERE line ~ 'Join Type|Table Rows|Usage|Not';
SELECT trim(line) FROM explain_figures('SELECT count(*) FROM wide_rows a WHERE NOT EXISTS (SELECT FROM (SELECT * FROM few_keys ORDER BY id OFFSET 0) b WHERE b.k = a.t)') line WHERE line ~ 'Join Type|Table Rows|Rounds|Not';
SELECT compare_preferred('SELECT count(*), sum(id) FROM wide_rows a WHERE NOT EXISTS (SELECT FROM few_keys b WHERE b.k = repeat(''key number '' || a.id % 30, 5))');
SELECT compare_preferred('SELECT count(*), sum(id) FROM wide_rows a WHERE EXISTS (SELECT FROM (SELECT * FROM few_keys ORDER BY id OFFSET 0) b WHERE b.k = repeat(''key number '' || a.id % 30, 5))');
-- A round takes the memory that there is: of keys that are values of the rows, that are computed, and that are all that is kept.
CREATE TABLE long_keys AS SELECT md5(i::text) || md5((-i)::text) AS t, i * 1234567.891234 AS n FROM generate_series(1, 40000) i;
VACUUM (ANALYZE, FREEZE) long_keys;
SET work_mem = '1MB';
-- The memory is 1024 kB; assertions make each piece of it larger.
CREATE FUNCTION memory_of_rounds(query text) RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN count(*) FILTER (WHERE line ~ 'Rounds: ([2-9]|\d\d)') = 1 AND max(substring(line FROM 'Hash Table Memory: (\d+) kB')::int) < 1300
        THEN 'within' ELSE 'beyond: ' || string_agg(trim(line), ', ') END FROM explain_figures(query) line WHERE line ~ 'Hash Table'
$$;
SELECT memory_of_rounds('SELECT count(*) FROM long_keys a JOIN long_keys b ON a.t = b.t');
SELECT memory_of_rounds('SELECT count(*) FROM long_keys a LEFT JOIN long_keys b ON a.n = b.n');
SELECT memory_of_rounds('SELECT count(*) FROM long_keys a JOIN long_keys b ON a.t || ''x'' = b.t || ''x''');
SELECT memory_of_rounds('SELECT count(*) FROM long_keys a JOIN long_keys b ON a.n + 1 = b.n + 1');
SELECT memory_of_rounds('SELECT count(*) FROM long_keys a WHERE NOT EXISTS (SELECT FROM long_keys b WHERE a.t = b.t)');
SELECT memory_of_rounds('SELECT count(*) FROM long_keys a WHERE EXISTS (SELECT FROM long_keys b WHERE a.n = b.n)');
SELECT compare_preferred('SELECT count(*), max(a.t), min(b.t), sum(b.n) FROM long_keys a JOIN long_keys b ON a.t = b.t AND a.n = b.n');
SELECT compare_preferred('SELECT count(*), max(a.t), sum(n) FROM long_keys a WHERE NOT EXISTS (SELECT FROM long_keys b WHERE a.t = b.t AND b.n > 9876543210)');
RESET work_mem; RESET hash_mem_multiplier; RESET batchexec.mode;
RESET enable_mergejoin; RESET enable_nestloop;
DROP FUNCTION memory_of_rounds;
DROP TABLE long_keys, few_keys, wide_rows, narrow_rows, one_key, long_values;
-- Groups that exceed the memory: rows of those that don't fit wait in files.
CREATE TABLE events AS SELECT i AS id, CASE WHEN i % 11 > 0 THEN i * 7 % 9001 END AS k, 'name ' || i % 8000 AS name, (i % 7000)::numeric / 8 AS price,
    i::float8 / 7 AS f, i::real AS r, date '2020-01-01' + i % 3000 AS d, md5((i % 900)::text)::uuid AS u, i % 5 = 0 AS flag, ARRAY[i] AS a FROM generate_series(1, 12000) i;
CREATE TABLE parted (id int, k int, name text, v int) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (7000);
CREATE TABLE parted_2 (extra text, v int, name text, k int, id int NOT NULL);
ALTER TABLE parted_2 DROP COLUMN extra;
ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES FROM (7000) TO (90000);
INSERT INTO parted SELECT id, k, name, id % 77 FROM events;
VACUUM (ANALYZE, FREEZE) events, parted;
SET enable_sort = off;
SELECT compare_files('SELECT id, count(*), sum(k), avg(price), max(name), sum(f), min(d) FROM events GROUP BY id');
SELECT compare_files('SELECT name, k, count(*), sum(price), sum(r), count(u), bool_and(flag) FROM events GROUP BY name, k');
SELECT compare_files('SELECT k + id, count(a), string_agg(name, '','') , array_agg(id) FROM events WHERE id % 3 > 0 GROUP BY 1');
SELECT compare_files('SELECT price, f, count(*) FILTER (WHERE flag), stddev(f), corr(f, r) FROM events GROUP BY 1, 2 HAVING count(*) < 9');
SELECT compare_files('SELECT id, count(*), sum(k) FROM events GROUP BY id HAVING sum(k) > 8990');
SELECT compare_files('SELECT u, k, max(price), length(max(name)) FROM events GROUP BY u, k');
SELECT compare_files('SELECT id, name, count(*), sum(v) FROM parted GROUP BY id, name');
SELECT compare_files('SELECT id, count(*) FROM (SELECT id FROM events UNION ALL SELECT id FROM parted) u GROUP BY id');
SELECT compare_files('SELECT a.id, count(*), sum(b.v), max(b.name) FROM events a JOIN parted_1 b ON a.k = b.k GROUP BY a.id');
SELECT compare_files('SELECT s, (SELECT sum(c) FROM (SELECT id, count(*) c FROM events WHERE id % 4 <> s GROUP BY id) q) FROM generate_series(0, 2) s');
-- Groups that are fewer or far more than the planner expects, and rows that are divided several times.
SELECT compare_files('SELECT id % 10000 * 3, name || ''x'', count(*) FROM events GROUP BY 1, 2');
SELECT compare_files('SELECT abs(id * -1), count(*) FROM events GROUP BY 1');
-- In the order of the keys.
SET enable_hashagg = off; SET enable_sort = on;
SELECT compare_files('SELECT array_agg(id) FROM (SELECT id, count(*) FROM events GROUP BY id ORDER BY id DESC) q');
SELECT compare_files('SELECT md5(array_agg(q)::text) FROM (SELECT name, k, count(*), sum(id) FROM events GROUP BY name, k ORDER BY name COLLATE "C", k DESC NULLS LAST) q');
SELECT compare_files('SELECT md5(array_agg(q)::text) FROM (SELECT k, id, count(*) FROM events GROUP BY k, id HAVING count(*) > 0 AND k > 100 ORDER BY k, id LIMIT 4000) q');
RESET enable_hashagg; RESET enable_sort;
-- Distinct values that exceed the memory: alone, in groups, of all types, in workers' leaders and rescans.
SET enable_sort = off;
CREATE TABLE many_values AS SELECT i * 17 % 40009 AS v, i % 3 AS g FROM generate_series(1, 60000) i;
VACUUM (ANALYZE, FREEZE) many_values;
SELECT compare_files('SELECT count(DISTINCT v), count(*), sum(v) FROM many_values');
SELECT compare_files('SELECT g, count(DISTINCT v), sum(DISTINCT v), count(*) FROM many_values GROUP BY g');
SELECT compare_files('SELECT count(DISTINCT name), count(DISTINCT price), count(DISTINCT f), count(DISTINCT r), count(DISTINCT d), count(DISTINCT k) FROM events');
SELECT compare_files('SELECT id % 7, count(DISTINCT name), count(DISTINCT price) FILTER (WHERE k > 4000), sum(DISTINCT k), max(f) FROM events GROUP BY 1');
SELECT compare_files('SELECT flag, count(DISTINCT name || k), min(DISTINCT id) FROM events GROUP BY flag');
SELECT compare_files('SELECT v, count(DISTINCT id) FROM parted GROUP BY v');
SELECT compare_files('SELECT count(DISTINCT a.id), count(DISTINCT b.name) FROM events a JOIN parted_1 b ON a.k = b.k');
SELECT compare_files('SELECT s, (SELECT count(DISTINCT v) FROM many_values WHERE g <> s) FROM generate_series(0, 3) s');
SELECT compare_preferred('SELECT count(DISTINCT 100 / (v - 40000)) FROM many_values');
RESET enable_sort;
SELECT compare_files('SELECT md5(array_agg(q)::text) FROM (SELECT id % 7 AS k, count(DISTINCT name) FROM events GROUP BY 1 ORDER BY 1) q');
DROP TABLE many_values;
-- Groups and their distinct values both exceed the memory.
SET enable_sort = off;
SELECT compare_files('SELECT id, count(DISTINCT k), count(DISTINCT name), sum(k) FROM events GROUP BY id');
SELECT compare_files('SELECT k, d, count(DISTINCT id), min(DISTINCT id) FILTER (WHERE flag), max(id) FROM events GROUP BY k, d HAVING count(DISTINCT id) > 0');
SELECT compare_files('SELECT id % 3000, count(DISTINCT name || k), max(name) FROM events GROUP BY 1');
SELECT compare_files('SELECT id, count(DISTINCT name) FROM parted GROUP BY id');
SELECT compare_files('SELECT a.id, count(DISTINCT b.name), count(*) FROM events a JOIN parted_1 b ON a.k = b.k GROUP BY a.id');
SELECT compare_files('SELECT s, (SELECT sum(c) FROM (SELECT id, count(DISTINCT k) c FROM events WHERE id % 4 <> s GROUP BY id) q) FROM generate_series(0, 2) s');
SELECT compare_preferred('SELECT id, count(DISTINCT 1 / (id - 11500)) FROM events GROUP BY id');
RESET enable_sort;
SELECT compare_files('SELECT md5(array_agg(q)::text) FROM (SELECT id, count(DISTINCT name), sum(DISTINCT k) FROM events GROUP BY id ORDER BY id DESC) q');
-- Grouping sets that are more than the planner expects: a row may have a group in memory in some of them.
CREATE TABLE grown (LIKE events) WITH (autovacuum_enabled = off);
INSERT INTO grown SELECT events.* FROM events, generate_series(1, 500) WHERE id = 1;
ANALYZE grown;
INSERT INTO grown SELECT * FROM events;
SET enable_sort = off;
SELECT compare_files('SELECT flag, k, id, count(*), sum(k), max(name), grouping(flag, k, id) FROM grown GROUP BY GROUPING SETS ((flag), (k), (id))');
SELECT compare_files('SELECT name, flag, count(*), avg(price), sum(f) FILTER (WHERE id % 3 > 0) FROM grown GROUP BY CUBE (name, flag)');
SELECT compare_files('SELECT k, id, max(price), min(name), corr(f, r) FROM grown WHERE id % 3 > 0 GROUP BY ROLLUP (k, id) HAVING count(*) < 100');
SELECT compare_files('SELECT price, name, d, count(*), grouping(price, name, d) FROM grown GROUP BY CUBE (price, name, d)');
SELECT compare_files('SELECT a.id, b.v, count(*), max(b.name) FROM grown a JOIN parted_1 b ON a.k = b.k GROUP BY CUBE (a.id, b.v)');
SELECT compare_files('SELECT s, (SELECT sum(c) FROM (SELECT id, k, count(*) c FROM grown WHERE id % 4 <> s GROUP BY CUBE (id, k)) q) FROM generate_series(0, 2) s');
SELECT compare_files('SELECT count(*) FROM (SELECT id, k, count(*) FROM grown GROUP BY GROUPING SETS ((id), (k)) LIMIT 15000) q');
SELECT compare_preferred('SELECT id, k, sum(1 / (id - 11500)) FROM grown GROUP BY CUBE (id, k)');
RESET enable_sort;
-- An expression that goes by row for rows of a file first, and then, in a rescan, for rows of the table.
CREATE TABLE scales AS SELECT i AS id, CASE WHEN i < 11990 THEN 1.5 ELSE 123456789012345678901234567890.5 END AS x FROM generate_series(1, 12000) i;
CREATE TABLE mixed AS SELECT i AS id, CASE WHEN i <= 5000 THEN (900000000000000 + i)::numeric ELSE (i / 1000000.0)::numeric(20, 9) END AS x FROM generate_series(1, 10000) i;
CREATE TABLE doubled AS SELECT x * 2 AS y, id FROM mixed WHERE id % 4 = 0;
VACUUM (ANALYZE) scales, mixed, doubled;
SET enable_sort = off;
SELECT compare_files('SELECT lo, (SELECT sum(n) FROM (SELECT id, count(*) FILTER (WHERE x * 2 > 5000) AS n FROM scales WHERE id > lo GROUP BY id OFFSET 0) s) FROM (VALUES (0), (11980)) v (lo)');
RESET enable_sort;
SET enable_mergejoin = off;
SELECT compare_rounds('SELECT lo, (SELECT count(*) FROM mixed JOIN doubled ON mixed.x * 2 = y WHERE mixed.id < lo OR mixed.id > hi) FROM (VALUES (4700, 5300), (5000, 5000)) v (lo, hi)');
RESET enable_mergejoin;
DROP TABLE scales, mixed, doubled;
-- Of two errors in a file, that of the first row; the rows have passed the filter, whose columns are not in the file.
CREATE TABLE errors AS SELECT i % 9000 AS g, 1 AS a, 1 AS b, 1 AS q FROM generate_series(1, 12000) i;
INSERT INTO errors VALUES (8999, 1, 2147483647, 1), (8999, 0, 1, 1);
ANALYZE errors;
SET enable_sort = off;
SELECT compare_preferred('SELECT g, sum(1 / a), sum(b + 1) FROM errors WHERE q > 0 GROUP BY g');
RESET enable_sort;
DROP TABLE errors;
-- An array that exceeds the memory has to stay; distinct values beside it are few.
SELECT set_config(name, 'off', false) FROM pg_settings WHERE name = 'enable_presorted_aggregate' \g /dev/null
SELECT compare_files('SELECT count(DISTINCT id % 10), array_length(array_agg(id), 1) FROM events');
-- Stopped early, and with an error.
SELECT compare_files('SELECT count(*) FROM (SELECT id, count(*) FROM events GROUP BY id LIMIT 7000) q');
SELECT compare_preferred('SELECT id, sum(1 / (id - 11500)) FROM events GROUP BY id');
SET work_mem = '64kB'; SET hash_mem_multiplier = 1; SET batchexec.mode = prefer;
SELECT regexp_replace(trim(line), '\d+kB|\d+ kB', '…') FROM explain_figures('SELECT id, name, count(*) FROM parted GROUP BY id, name') line WHERE line ~ 'Agg|Group Key|Passes|Files|Disk|Not';
SET temp_file_limit = '16kB';
SELECT left((outcome('SELECT id, name, count(*) FROM parted GROUP BY id, name'))[1], 34) AS error;
RESET temp_file_limit; RESET work_mem; RESET hash_mem_multiplier; RESET batchexec.mode;
SET batchexec.explain = off;
DROP TABLE events, parted, grown;
