-- Plain aggregates.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
CREATE TABLE plain (s smallint, i int, b bigint, f real, d double precision, n numeric(12,2), x numeric, t text COLLATE "C", flag bool, day date, at timestamp);
INSERT INTO plain
    SELECT k % 100 - 50, k, k::bigint * 10000000000, k / 7.0, sqrt(k), k / 100.0, k / (k % 9 + 1.0), 'text ' || k % 37,
           k % 3 <> 0, date '2020-01-01' + k, timestamp '2020-01-01' + k * interval '1 hour'
    FROM generate_series(1, 2000) k;
VACUUM (ANALYZE, FREEZE) plain;
-- Aggregates that keep all values, in the order of the rows.
SELECT * FROM compare('SELECT md5(array_agg(i)::text), md5(array_agg(t)::text), md5(string_agg(t, '', '')) FROM plain');
SELECT * FROM compare('SELECT s % 4 AS k, md5(array_agg(n)::text), md5(array_agg(x)::text), array_length(array_agg(x), 1) FROM plain GROUP BY 1');
SELECT * FROM compare('SELECT flag, md5(array_agg(f)::text), md5(array_agg(d)::text), md5(array_agg(day)::text), md5(array_agg(at)::text), md5(array_agg(flag)::text) FROM plain GROUP BY 1');
SELECT * FROM compare('SELECT array_agg(nullif(i % 5, 2)) FILTER (WHERE i < 12), string_agg(nullif(t, ''text 3''), ''|'') FILTER (WHERE i < 7), string_agg(t, ''-'') FILTER (WHERE i < 3) FROM plain');
SELECT * FROM compare('SELECT flag, array_agg(upper(t)), string_agg(left(t, 3), ''-'') FROM plain WHERE i < 8 GROUP BY 1');
SELECT * FROM compare('SELECT array_agg(i), string_agg(t, '','') FROM plain WHERE i > 99999');
SELECT * FROM compare('SELECT array_agg(q.i) FROM (SELECT i FROM plain WHERE i < 4 UNION ALL SELECT -i FROM plain WHERE i < 3) q');
-- In stock nodes: other types, a delimiter that varies, an ORDER BY, DISTINCT, a join.
SELECT * FROM compare('SELECT array_agg(i::text::name) FROM plain WHERE i < 3');
SELECT * FROM compare('SELECT string_agg(t, t) FROM plain WHERE i < 3');
SELECT * FROM compare('SELECT string_agg(t, NULL) FROM plain WHERE i < 3');
SELECT * FROM compare('SELECT string_agg(t, '','' ORDER BY i DESC) FROM plain WHERE i < 3');
SELECT * FROM compare('SELECT string_agg(DISTINCT t, '','') FROM plain WHERE i < 3');
SELECT * FROM compare('SELECT md5(string_agg(p.t, '','')) FROM plain p JOIN plain q USING (i)');
-- What the groups keep exceeds the memory for a hash table: rows of other groups would wait in files.
SET work_mem = '64kB';
SET hash_mem_multiplier = 1;
SELECT * FROM compare('SELECT flag, md5(string_agg(repeat(t, 20), '','')), md5(array_agg(t)::text) FROM plain GROUP BY 1');
SET batchexec.explain = on;
SELECT line FROM explain_figures('SELECT flag, string_agg(repeat(t, 20), '','') FROM plain GROUP BY 1') line WHERE line ~ 'BatchAgg|Batched';
SET batchexec.explain = off;
RESET work_mem;
RESET hash_mem_multiplier;
SELECT * FROM compare('SELECT count(*) FROM plain');
SELECT * FROM compare('SELECT count(*), count(t), sum(s), sum(i), sum(b) FROM plain');
SELECT * FROM compare('SELECT avg(s), avg(i), avg(b), min(s), max(i), min(b) FROM plain');
SELECT * FROM compare('SELECT sum(f), sum(d), avg(f), avg(d), min(f), max(d) FROM plain');
SELECT * FROM compare('SELECT sum(n), avg(n), sum(x), avg(x), min(n), max(x) FROM plain');
SELECT * FROM compare('SELECT min(t), max(t), bool_and(flag), bool_or(flag), every(i > 0) FROM plain');
SELECT * FROM compare('SELECT min(day), max(day), min(at), max(at) FROM plain');
SELECT * FROM compare('SELECT sum(i) FILTER (WHERE s > 0), count(*) FILTER (WHERE t = ''text 1''), sum(n) FILTER (WHERE flag) FROM plain');
SELECT * FROM compare('SELECT sum(i * 2), sum(n * (1 - x)), sum(n + i), avg(d * f), sum(i % 7), sum(-n) FROM plain');
SELECT * FROM compare('SELECT sum(length(t)), sum(n / 3), sum(case when flag then 1 else 0 end), max(lower(t) COLLATE "C") FROM plain');
SELECT * FROM compare('SELECT count(*), sum(i) FROM plain WHERE i > 10 AND i < 100');
SELECT * FROM compare('SELECT count(*), sum(i), avg(n), min(t), max(d), bool_or(flag) FROM plain WHERE i < 0');
SELECT * FROM compare('SELECT count(*) FROM plain WHERE day >= timestamp ''2021-01-01'' AND at < date ''2020-03-01''');
SELECT * FROM compare('SELECT count(*) FROM plain WHERE n BETWEEN 1.5 AND 3.25 AND x > 2');
SELECT * FROM compare('SELECT sum(i) + 1, avg(i) * 2 FROM plain HAVING count(*) > 5');
SELECT * FROM compare('SELECT sum(i) FROM plain HAVING count(*) > 5000');
SELECT * FROM compare('SELECT var_pop(s), var_samp(i), variance(f), stddev_pop(d), stddev_samp(i), stddev(f) FROM plain');
SELECT * FROM compare('SELECT var_pop(i), stddev(s) FILTER (WHERE flag), variance(i % 3), stddev_pop(i + s), var_samp(d) FILTER (WHERE i > 5) FROM plain');
SELECT * FROM compare('SELECT var_pop(i), var_samp(i), stddev_pop(d), stddev_samp(d), variance(7), stddev(0.5::real) FROM plain WHERE i = 3');
SELECT * FROM compare('SELECT flag, s % 4, var_pop(i), stddev(d), variance(f), stddev_pop(s) FROM plain GROUP BY 1, 2');
SELECT * FROM compare('SELECT corr(d, i), covar_pop(f, d), covar_samp(i, d), regr_avgx(i, d), regr_avgy(i, d) FROM plain');
SELECT * FROM compare('SELECT regr_intercept(d, i), regr_r2(d, i), regr_slope(d, i), regr_sxx(d, i), regr_sxy(d, i), regr_syy(d, i) FROM plain');
SELECT * FROM compare('SELECT flag, corr(d, i + s) FILTER (WHERE s > 3), corr(n, x), covar_pop(1, i) FROM plain GROUP BY 1');
SELECT * FROM compare('SELECT corr(d, i), covar_samp(d, i), regr_slope(d, 1) FROM plain WHERE i < 2');
SELECT * FROM compare('SELECT stddev(2147483647 - i * 3), var_pop(-2147483648 + i) FROM plain');
-- Errors are raised as stock raises them.
SELECT * FROM compare('SELECT sum(100 / (i - 1000)) FROM plain');
SELECT * FROM compare('SELECT sum(i * 2000000) FROM plain');
SELECT * FROM compare('SELECT sum(100 / (i - 1000)) FROM plain WHERE i <> 1000');
SELECT * FROM compare('SELECT sum(100 / (i - 1000)) FILTER (WHERE i <> 1000) FROM plain');
SELECT * FROM compare('SELECT sum(d * 1e308) FROM plain');
SELECT * FROM compare('SELECT stddev(d * 1e300) FROM plain');
SELECT * FROM compare('SELECT corr(d * 1e300, i) FROM plain');
SELECT * FROM compare('SELECT covar_pop(100 / (i - 1000), 100 / (i - 10)) FROM plain');
SELECT * FROM compare('SELECT covar_pop(i * 2000000, 100 / (i - 1500)) FROM plain');
-- Not ours: stock aggregates over batched scans.
SELECT * FROM compare('SELECT bit_and(i), count(DISTINCT s) FROM plain');
SELECT * FROM compare('SELECT string_agg(t, '','' ORDER BY i) FROM plain WHERE i < 5');
SELECT * FROM compare('SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY i) FROM plain');
-- NULLs, an empty table.
UPDATE plain SET i = NULL, n = NULL, t = NULL, d = NULL WHERE s % 5 = 0;
SELECT * FROM compare('SELECT count(*), count(i), sum(i), avg(n), min(t), sum(d), sum(i + s), count(n) FROM plain');
SELECT * FROM compare('SELECT var_pop(i), stddev_samp(i), var_samp(d), stddev_pop(d), stddev(i + s) FROM plain');
SELECT * FROM compare('SELECT corr(d, i), covar_pop(i, f), regr_sxy(f, d), regr_sxx(s, i) FROM plain');
SELECT * FROM compare('SELECT count(*) FROM plain WHERE i IS NULL OR d > 40');
SELECT * FROM compare('SELECT count(*) FROM plain WHERE NOT (i > 100 AND d < 40)');
SELECT * FROM compare('SELECT count(*) FROM plain WHERE (i > 100) IS NULL');
TRUNCATE plain;
SELECT * FROM compare('SELECT count(*), count(i), sum(i), avg(n), min(t), sum(d), bool_and(flag) FROM plain');
SELECT * FROM compare('SELECT var_pop(i), stddev(i), variance(d), stddev_pop(f), corr(d, i), regr_r2(f, d) FROM plain');
SET batchexec.mode = prefer;
SET batchexec.explain = on;
EXPLAIN (VERBOSE, COSTS OFF) SELECT sum(i) + 1, count(*) FILTER (WHERE flag) FROM plain WHERE s > 3 HAVING count(*) > 0;
SET batchexec.explain = off;
DROP TABLE plain;
-- Of two errors, the one of the earlier row.
CREATE TABLE failing (n numeric, i int);
INSERT INTO failing VALUES (0, 1), ('-Infinity', 2), (5, 0);
SELECT * FROM compare('SELECT every((n / n) > n) FROM failing WHERE NOT (n::int8 > 2.5)');
SELECT * FROM compare('SELECT sum(2147483647 * i), sum(1 / i) FROM failing');
SELECT * FROM compare('SELECT 1 / i, sum(2147483647 * i) FROM failing GROUP BY 1');
DROP TABLE failing;
-- Pairs of special values, first and last.
CREATE TABLE pairs (k int, y double precision, x double precision);
INSERT INTO pairs VALUES (1, 'NaN', 1), (1, 2, 3), (2, 1, 'Infinity'), (2, 3, 4), (3, 1, 2), (3, 2, '-Infinity'),
    (4, 1, 2), (4, 'NaN', 3), (5, NULL, 'NaN'), (5, 1, 2), (5, 3, 5), (5, 4, NULL);
SELECT * FROM compare('SELECT k, corr(y, x), covar_pop(y, x), regr_sxx(y, x), regr_syy(y, x), regr_avgx(y, x) FROM pairs GROUP BY k');
DROP TABLE pairs;
-- Functions that the user may not execute.
BEGIN;
CREATE TABLE guarded AS SELECT i FROM generate_series(1, 10) i;
CREATE ROLE regress_batchexec_reader;
GRANT SELECT ON guarded TO regress_batchexec_reader;
REVOKE EXECUTE ON FUNCTION int4lt(int, int), sum(int) FROM PUBLIC;
SET LOCAL ROLE regress_batchexec_reader;
SET LOCAL batchexec.mode = 'require';
SELECT outcome('SELECT count(*) FROM guarded WHERE i < 3'), outcome('SELECT sum(i) FROM guarded'), outcome('SELECT max(i) FROM guarded WHERE i > 3');
SET LOCAL batchexec.mode = 'forbid';
SELECT outcome('SELECT count(*) FROM guarded WHERE i < 3'), outcome('SELECT sum(i) FROM guarded'), outcome('SELECT max(i) FROM guarded WHERE i > 3');
ROLLBACK;
