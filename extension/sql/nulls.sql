-- NULLs, and columns that were added later: pages are read a column at a time as well.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
-- NULLs in each kind of column, so that what lies behind is aligned anew in each row.
CREATE TABLE gaps (b1 bool, s2 smallint, i4 int, i8 bigint, f8 double precision, n numeric(10,2), t text,
    c "char", i4b int, u uuid, i8b bigint, t2 varchar, d date, last int);
INSERT INTO gaps SELECT
    CASE WHEN k % 3 > 0 THEN k % 2 = 0 END, CASE WHEN k % 5 > 0 THEN k % 1000 END, CASE WHEN k % 7 > 0 THEN k END,
    CASE WHEN k % 2 > 0 THEN k * 10000000000 END, CASE WHEN k % 11 > 0 THEN k / 8.0 END,
    CASE WHEN k % 4 > 0 THEN k / 100.0 END, CASE WHEN k % 6 > 0 THEN repeat('t', k % 200) END,
    CASE WHEN k % 10 > 0 THEN 'c'::"char" END, CASE WHEN k % 13 > 0 THEN -k END,
    CASE WHEN k % 3 = 0 THEN md5(k::text)::uuid END, CASE WHEN k % 17 > 0 THEN -k END,
    CASE WHEN k % 19 > 5 THEN 'v' || k % 5 END, CASE WHEN k % 23 > 0 THEN date '2000-01-01' + k END,
    CASE WHEN k % 29 > 0 THEN k END FROM generate_series(1, 3000) k;
VACUUM gaps;
SELECT * FROM compare('SELECT count(b1), count(s2), count(i4), count(i8), count(f8), count(n), count(t), count(c), count(u), count(t2), count(d), count(last) FROM gaps');
SELECT * FROM compare('SELECT sum(s2), sum(i4), sum(i8), sum(f8), sum(n), sum(i4b), sum(i8b), sum(last) FROM gaps');
SELECT * FROM compare('SELECT min(t COLLATE "C"), max(t2 COLLATE "C"), min(d), max(d), min(n), max(f8), bool_and(b1), bool_or(b1) FROM gaps');
SELECT * FROM compare('SELECT sum(last), avg(i8b) FROM gaps WHERE i4 > 100 AND i4 < 2000 AND n < 20');
SELECT * FROM compare('SELECT count(*), sum(i8b) FROM gaps WHERE i8 IS NULL AND t IS NOT NULL AND u IS NULL');
SELECT * FROM compare('SELECT t2, count(*), sum(i4b), max(d) FROM gaps GROUP BY t2');
SELECT * FROM compare('SELECT b1, s2 % 3, count(last), sum(n) FROM gaps GROUP BY 1, 2');
SELECT * FROM compare('SELECT i4, t2, d, u FROM gaps WHERE last % 100 = 7 OR (n IS NULL AND i4b < -2900)');
SELECT * FROM compare('SELECT count(*) FROM gaps WHERE n <> 5.00 OR i8b = -17 OR t2 IN (''v1'', ''v3'')');
-- One page holds no NULL of a column, another holds nothing else.
CREATE TABLE halves (a int, b text, c bigint, d int);
INSERT INTO halves SELECT k, 'b' || k, k, k FROM generate_series(1, 1000) k;
INSERT INTO halves SELECT k, NULL, NULL, k FROM generate_series(1001, 2000) k;
INSERT INTO halves SELECT NULL, 'x', k, NULL FROM generate_series(2001, 3000) k;
INSERT INTO halves SELECT NULL, NULL, NULL, NULL FROM generate_series(1, 500) k;
SELECT * FROM compare('SELECT count(a), count(b), count(c), count(d), sum(a), sum(c), sum(d), max(b COLLATE "C") FROM halves');
SELECT * FROM compare('SELECT d, b, c FROM halves WHERE c % 500 = 0 OR d = 1500 OR (a IS NULL AND c = 2500)');
-- Columns added with and without a default, before and after which there are rows.
CREATE TABLE grown (a int, b text);
INSERT INTO grown SELECT k, CASE WHEN k % 2 = 0 THEN 'b' || k END FROM generate_series(1, 300) k;
ALTER TABLE grown ADD COLUMN c int DEFAULT 7;
INSERT INTO grown SELECT k, 'b', CASE WHEN k % 3 > 0 THEN k END FROM generate_series(301, 600) k;
ALTER TABLE grown ADD COLUMN d text DEFAULT 'default of d', ADD COLUMN e bigint, ADD COLUMN n numeric DEFAULT 1.50;
INSERT INTO grown SELECT k, NULL, k, CASE WHEN k % 5 > 0 THEN 'd' || k END, k, NULL FROM generate_series(601, 900) k;
ALTER TABLE grown ADD COLUMN f float4 DEFAULT 0.25;
SELECT * FROM compare('SELECT sum(c), count(c), count(d), sum(e), sum(n), avg(f), min(d COLLATE "C"), max(d COLLATE "C") FROM grown');
SELECT * FROM compare('SELECT d, count(*), sum(c), sum(n) FROM grown GROUP BY d');
SELECT * FROM compare('SELECT a, c, d, e, n, f FROM grown WHERE c = 7 AND a % 50 = 1 OR e = 800 OR n IS NULL AND a % 100 = 0');
ALTER TABLE grown DROP COLUMN c;
SELECT * FROM compare('SELECT sum(e), sum(n), count(d), sum(f) FROM grown WHERE f = 0.25');
-- A bitmap of NULLs of one byte, of eight and of more, at the end of a page as well.
CREATE FUNCTION make_wide(name text, columns int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE %I (%s)', name, (SELECT string_agg('c' || i || ' int', ', ') FROM generate_series(1, columns) i));
    EXECUTE format('INSERT INTO %I SELECT %s FROM generate_series(1, 400) k', name,
        (SELECT string_agg(format('CASE WHEN (k * %s) %% %s > 0 THEN k + %s END', i, 3 + i % 5, i), ', ') FROM generate_series(1, columns) i));
    EXECUTE format('INSERT INTO %I (c1) SELECT NULL FROM generate_series(1, 400)', name);
END $$;
SELECT make_wide('wide_' || n, n) FROM unnest(ARRAY[8, 9, 64, 65, 72, 73, 130]) n;
SELECT n, same.* FROM unnest(ARRAY[8, 9, 64, 65, 72, 73, 130]) n,
    compare(format('SELECT count(*), sum(c1), sum(c%s), count(c%s), sum(c%s), sum(c7) FROM wide_%s WHERE c2 > 3 OR c%s IS NULL', n, n, n - 1, n, n - 2)) same;
SELECT * FROM compare('SELECT sum(c63), sum(c64), sum(c65), sum(c66), sum(c128), sum(c129), sum(c130) FROM wide_130');
DROP TABLE gaps, halves, grown, wide_8, wide_9, wide_64, wide_65, wide_72, wide_73, wide_130;
DROP FUNCTION make_wide;
-- First attributes of all widths, each of them NULL in some rows, and others behind them.
CREATE TABLE widths (a bool, b bigint, c smallint, d int, e "char", f double precision, g int, h smallint, i bigint, j text, k int, l bool);
INSERT INTO widths
    SELECT CASE WHEN n % 2 = 0 THEN n % 4 = 0 END, CASE WHEN n % 3 = 0 THEN n * 10000000000 END,
           CASE WHEN n % 5 <> 0 THEN n % 1000 END, CASE WHEN n % 7 < 4 THEN n END, CASE WHEN n % 11 < 6 THEN chr(65 + n % 26)::"char" END,
           CASE WHEN n % 13 < 9 THEN n / 8.0 END, CASE WHEN n % 17 < 9 THEN -n END, CASE WHEN n % 19 < 9 THEN n % 100 END,
           CASE WHEN n % 23 < 11 THEN -n * 10000000000 END, CASE WHEN n % 29 < 15 THEN 'text ' || n END,
           CASE WHEN n % 31 < 17 THEN n END, CASE WHEN n % 37 < 20 THEN n % 2 = 0 END
    FROM generate_series(1, 5000) n;
VACUUM (ANALYZE, FREEZE) widths;
SELECT * FROM compare('SELECT count(a), sum(b), sum(c), sum(d), max(f), sum(g), sum(h), sum(i), max(length(j)), sum(k), count(l) FROM widths');
SELECT * FROM compare('SELECT sum(c), sum(g) FROM widths');
SELECT * FROM compare('SELECT sum(h), bool_or(l) FROM widths WHERE d > 100');
SELECT * FROM compare('SELECT sum(i) FROM widths WHERE a');
SELECT * FROM compare('SELECT sum(k), count(j) FROM widths WHERE h < 50 AND f > 3');
SELECT * FROM compare('SELECT a, count(*), sum(g), avg(i) FROM widths WHERE b IS NOT NULL GROUP BY a');
SELECT * FROM compare('SELECT * FROM widths WHERE h = 7 AND k > 10');
ALTER TABLE widths ADD COLUMN m int DEFAULT 7;
ALTER TABLE widths ADD COLUMN o smallint;
INSERT INTO widths (d, m, o) SELECT n, n, n % 10 FROM generate_series(1, 500) n;
SELECT * FROM compare('SELECT sum(d), sum(m), sum(o), count(*), sum(h), count(l) FROM widths');
SELECT * FROM compare('SELECT o, m, sum(d) FROM widths WHERE g IS NULL GROUP BY o, m');
DROP TABLE widths;
CREATE TABLE few (a smallint, b int);
INSERT INTO few SELECT CASE WHEN n % 3 = 0 THEN n END, CASE WHEN n % 2 = 0 THEN n END FROM generate_series(1, 2000) n;
ALTER TABLE few ADD COLUMN c bigint DEFAULT 5;
INSERT INTO few SELECT CASE WHEN n % 3 = 0 THEN n END, CASE WHEN n % 2 = 0 THEN n END, n FROM generate_series(1, 2000) n;
VACUUM (ANALYZE, FREEZE) few;
SELECT * FROM compare('SELECT sum(a), sum(b), sum(c), count(*) FROM few');
SELECT * FROM compare('SELECT sum(c) FROM few WHERE b > 100');
DROP TABLE few;
