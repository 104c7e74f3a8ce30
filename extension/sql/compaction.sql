-- Batches of which a filter or a join leaves few rows: those of several are joined, or grouped, together.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
SET jit = off;
CREATE TABLE sparse (id int, k int, n numeric, f float8, r real, t text, s smallint, flag bool, j jsonb, day date);
INSERT INTO sparse
    SELECT i, nullif(i % 50, 7), CASE i % 9 WHEN 0 THEN NULL WHEN 1 THEN i / 7.0 WHEN 2 THEN 'NaN' ELSE i / 4.0 END, 1 / (i + 0.1), i / 3.0,
           CASE i % 6 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE 'text ' || i % 40 END,
           -- One page is full of rows that pass, among pages with few.
           CASE WHEN i % 97 = 0 OR i BETWEEN 9000 AND 9200 OR i > 19950 THEN 99 ELSE i % 30 - 15 END, i % 3 = 0, jsonb_build_object('k', i % 5), date '2024-01-01' + i % 90
    FROM generate_series(1, 20000) i;
CREATE TABLE dims (k int, name text, price numeric);
INSERT INTO dims SELECT i, 'name ' || i, i / 8.0 FROM generate_series(0, 49, 3) i;
INSERT INTO dims SELECT i, NULL, NULL FROM generate_series(0, 49, 9) i;
INSERT INTO dims VALUES (NULL, 'none', 1), (700, 'unmet', 2);
VACUUM (ANALYZE, FREEZE) sparse, dims;
-- Groups, in the order of rows: sums of floats, arrays.
SELECT * FROM compare('SELECT k, count(*), sum(f), sum(n), min(t COLLATE "C"), array_agg(id) FROM sparse WHERE s = 99 GROUP BY k');
SELECT * FROM compare('SELECT t, count(n), avg(r), bool_or(flag), max(day) FROM sparse WHERE s = 99 GROUP BY t');
SELECT * FROM compare('SELECT k, s, flag, count(*) FROM sparse WHERE s = 99 GROUP BY CUBE (k, s, flag)');
SELECT * FROM compare('SELECT k, count(DISTINCT t), sum(DISTINCT id) FILTER (WHERE flag) FROM sparse WHERE s = 99 GROUP BY k');
SELECT * FROM compare('SELECT DISTINCT n FROM sparse WHERE s = 99');
SELECT * FROM compare('SELECT n * 2, sum(n + id) FROM sparse WHERE s = 99 AND n <> ''NaN'' GROUP BY 1');
SELECT * FROM compare('SELECT k, sum(hashint4(id)) FROM sparse WHERE s = 99 GROUP BY k');
SELECT * FROM compare('SELECT upper(t), count(*) FROM sparse WHERE s = 99 AND upper(t) > ''TEXT 2'' COLLATE "C" GROUP BY 1');
SELECT * FROM compare('SELECT k, count(j), max((j->>''k'')::int) FROM sparse WHERE s = 99 GROUP BY k');
SELECT * FROM compare('SELECT k, count(*) FROM (SELECT k FROM sparse WHERE s = 99 UNION ALL SELECT k FROM dims UNION ALL SELECT id FROM sparse WHERE s = 98) q GROUP BY k');
-- Joins of all types, of several tables, and what is done above them.
SELECT * FROM compare('SELECT a.id, a.t, a.n, b.name FROM sparse a JOIN dims b ON a.k = b.k WHERE a.s = 99');
SELECT * FROM compare('SELECT a.id, a.j, a.day, b.price FROM sparse a LEFT JOIN dims b ON a.k = b.k WHERE a.s = 99');
SELECT * FROM compare('SELECT b.name, count(a.id), sum(a.f) FROM (SELECT * FROM sparse WHERE s = 99) a RIGHT JOIN dims b ON a.k = b.k GROUP BY 1');
SELECT * FROM compare('SELECT a.id, b.name FROM (SELECT * FROM sparse WHERE s = 99) a FULL JOIN dims b ON a.k = b.k');
SELECT * FROM compare('SELECT id, t FROM sparse WHERE s = 99 AND k IN (SELECT k FROM dims)');
SELECT * FROM compare('SELECT id, r FROM sparse a WHERE s = 99 AND NOT EXISTS (SELECT FROM dims b WHERE a.k = b.k)');
SELECT * FROM compare('SELECT c.name, sum(a.n), md5(array_agg(a.id)::text) FROM sparse a JOIN dims b ON a.k = b.k JOIN dims c ON b.k = c.k AND c.price > 2 WHERE a.t > ''text 3'' COLLATE "C" GROUP BY 1');
SELECT * FROM compare('SELECT a.id, d.id FROM sparse a JOIN sparse d ON a.id = d.id + 1 JOIN dims b ON d.k = b.k WHERE a.s = 99 AND a.f + d.f > 0.0001');
-- Rows that a filter may fail on wait for no others: the first error is that of the first row.
SELECT * FROM compare('SELECT k, sum(100 / (id - 970)) FROM sparse WHERE s = 99 AND 100 / (id - 1067) > -5000 GROUP BY k');
SELECT * FROM compare('SELECT a.id FROM sparse a JOIN dims b ON a.k = 100 / (b.k - 3) WHERE s = 99');
SELECT * FROM compare('SELECT count(*) FROM sparse a JOIN dims b ON a.k = b.k WHERE s = 99 AND 100 / (id - 970) <> 1');
-- Anew for each outer row.
SELECT * FROM compare('SELECT p, q.* FROM generate_series(97, 100) p, LATERAL (SELECT k, count(*), sum(f) FROM sparse WHERE s = p GROUP BY k) q');
SELECT * FROM compare('SELECT p, (SELECT sum(a.n) FROM sparse a JOIN dims b ON a.k = b.k WHERE a.s = p AND a.n < 90) FROM generate_series(98, 100) p');
-- Values that are long, or stored elsewhere.
CREATE TABLE long_values (id int, k int, t text, u text);
ALTER TABLE long_values ALTER t SET STORAGE EXTERNAL, ALTER u SET STORAGE PLAIN;
INSERT INTO long_values SELECT i, i % 4, repeat('long ', i % 900 + 1), repeat('x', 3000) || i % 3 FROM generate_series(1, 3000) i;
VACUUM (ANALYZE, FREEZE) long_values;
SELECT * FROM compare('SELECT md5(t), md5(u), count(*) FROM long_values WHERE k = 1 GROUP BY t, u');
SELECT * FROM compare('SELECT k, length(max(t COLLATE "C")), md5(min(u COLLATE "C")), count(DISTINCT u) FROM long_values WHERE id > 2900 GROUP BY k');
SELECT * FROM compare('SELECT md5(a.t), length(a.u), b.name FROM long_values a JOIN dims b ON a.k = b.k WHERE a.id > 2950');
DROP TABLE long_values;
-- Tables that exceed the memory.
SET work_mem = 64; SET hash_mem_multiplier = 1; SET enable_sort = off;
SELECT * FROM compare('SELECT id, t, count(*), sum(n) FROM sparse WHERE k IN (3, 4) GROUP BY id, t');
SELECT * FROM compare('SELECT a.id, a.t, d.n FROM sparse a JOIN sparse d ON a.id = d.id WHERE a.k = 3');
SELECT * FROM compare('SELECT a.t, count(d.id) FROM sparse a LEFT JOIN (SELECT id FROM sparse WHERE id % 2 = 0) d ON a.id = d.id WHERE a.k = 3 GROUP BY a.t');
RESET work_mem; RESET hash_mem_multiplier; RESET enable_sort;
-- Workers, each with a share of the table.
SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SELECT * FROM compare('SELECT k, count(*), sum(id), min(day) FROM sparse WHERE s = 99 GROUP BY k');
-- Not grouped before they are joined, as 19 may do.
SELECT * FROM compare('SELECT b.name, count(*), sum(a.id + length(b.name)) FROM sparse a JOIN dims b ON a.k = b.k WHERE a.s = 99 GROUP BY b.name');
SET max_parallel_workers_per_gather = 0;
-- A cursor reads on no further than it has to.
SET batchexec.mode = prefer;
BEGIN;
DECLARE pairs NO SCROLL CURSOR FOR SELECT a.id, a.t, b.name FROM sparse a JOIN dims b ON a.k = b.k WHERE a.s = 99 AND b.name IS NOT NULL;
FETCH 2 FROM pairs;
MOVE 40 IN pairs;
FETCH 2 FROM pairs;
MOVE ALL IN pairs;
FETCH 1 FROM pairs;
ROLLBACK;
-- What EXPLAIN shows.
SET batchexec.explain = on;
SELECT trim(line) FROM explain_figures('SELECT k, count(*) FROM sparse WHERE s = 99 GROUP BY k') line WHERE line ~ 'Sparse|Custom Scan';
SELECT trim(line) FROM explain_figures('SELECT b.name, count(*) FROM sparse a JOIN dims b ON a.k = b.k WHERE a.s = 99 GROUP BY b.name') line WHERE line ~ 'Sparse|Custom Scan';
SELECT trim(line) FROM explain_figures('SELECT count(*) FROM sparse a JOIN dims b ON a.k = b.k WHERE a.s = 99 AND 100 / a.id < 1') line WHERE line ~ 'Sparse|Custom Scan';
SELECT count(*) FROM sparse a JOIN dims b ON a.k = b.k WHERE a.s = 99;
DROP TABLE sparse, dims;
