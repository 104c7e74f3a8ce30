-- LIMIT over ORDER BY: rows that the Sort can't return stay in the scan.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
CREATE TABLE ranked (id int, v int, d double precision, s smallint, b bigint, day date, t text, flag bool);
INSERT INTO ranked
    SELECT k, CASE WHEN k % 11 <> 0 THEN k * 7919 % 1000 END,
           CASE k % 500 WHEN 1 THEN 'NaN' WHEN 2 THEN '-0' WHEN 3 THEN 'Infinity' WHEN 4 THEN '-Infinity' ELSE sin(k) END,
           k % 50 - 25, (k * 7919 % 3000 - 1500) * 3000000000, date '2020-01-01' + k % 100, 'text ' || k, k % 2 = 0
    FROM generate_series(1, 5000) k;
INSERT INTO ranked (id, v, b) VALUES (5001, -2147483648, -9223372036854775808), (5002, 2147483647, 9223372036854775807);
VACUUM (ANALYZE, FREEZE) ranked;
SELECT * FROM compare('SELECT id, v FROM ranked ORDER BY v LIMIT 7');
SELECT * FROM compare('SELECT id, v FROM ranked ORDER BY v DESC NULLS LAST, id LIMIT 5');
SELECT * FROM compare('SELECT id, v FROM ranked ORDER BY v NULLS FIRST, id DESC LIMIT 4');
SELECT * FROM compare('SELECT * FROM (SELECT id, v, t FROM ranked ORDER BY v DESC LIMIT 3 OFFSET 460) q');
SELECT * FROM compare('SELECT id, d FROM ranked ORDER BY d, id LIMIT 30');
SELECT * FROM compare('SELECT id, d FROM ranked ORDER BY d DESC NULLS LAST, id LIMIT 30');
SELECT * FROM compare('SELECT id, b FROM ranked ORDER BY b, id LIMIT 3');
SELECT * FROM compare('SELECT id, b FROM ranked ORDER BY b DESC NULLS FIRST, id LIMIT 3');
SELECT * FROM compare('SELECT * FROM ranked WHERE v > 20 AND flag ORDER BY day DESC, s, id LIMIT 6');
SELECT * FROM compare('SELECT id FROM ranked WHERE t LIKE ''%7'' AND v % 3 = 1 ORDER BY s, v LIMIT 6');
SELECT * FROM compare('SELECT id FROM ranked ORDER BY flag, id DESC LIMIT 2');
SELECT * FROM compare('SELECT id FROM ranked ORDER BY v LIMIT 0');
SELECT * FROM compare('SELECT id, v FROM ranked ORDER BY v, t LIMIT 20000');
-- The same of equal rows as stock, in the same order.
SELECT * FROM compare('SELECT array_agg(id) FROM (SELECT id FROM ranked ORDER BY s LIMIT 8) q');
SELECT * FROM compare('SELECT array_agg(id) FROM (SELECT id FROM ranked WHERE v IS NOT NULL ORDER BY day DESC LIMIT 60) q');
-- A row that is left out may fail in an expression, so none is.
SELECT * FROM compare('SELECT 1 / (id - 4000) FROM ranked ORDER BY id LIMIT 2');
-- Anew for each outer row, with other bounds.
SELECT * FROM compare('SELECT g, (SELECT sum(id) FROM (SELECT id FROM ranked WHERE s > g ORDER BY v, id LIMIT g) q) FROM generate_series(0, 6) g');
SELECT * FROM compare('SELECT g, q.id FROM generate_series(1, 3) g, LATERAL (SELECT id FROM ranked WHERE s = g ORDER BY b DESC, id LIMIT g) q');
PREPARE top (int) AS SELECT id, v FROM ranked ORDER BY v, id LIMIT $1;
SET plan_cache_mode = force_generic_plan;
EXECUTE top (3);
EXECUTE top (1);
EXECUTE top (NULL) \g /dev/null
DEALLOCATE top;
RESET plan_cache_mode;
-- Few of the rows reach the Sort.
SET batchexec.mode = prefer;
SET batchexec.explain = on;
SELECT explain_figures('SELECT id FROM ranked ORDER BY b DESC, id LIMIT 3');
SELECT explain_figures('SELECT id FROM ranked ORDER BY t LIMIT 3');
SET batchexec.explain = off;
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
SELECT * FROM compare('SELECT id, v FROM ranked ORDER BY v, id LIMIT 4');
DROP TABLE ranked;
