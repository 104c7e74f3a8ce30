-- Every type, with its edges.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
CREATE TABLE edges (k int, s smallint, b bigint, o oid, f real, d double precision, n numeric, day date, at timestamp, tz timestamptz, clock time, flag bool, t text, c char(3), vc varchar(8), ch "char");
INSERT INTO edges VALUES
    (1, 32767, 9223372036854775807, 4294967295, 'inf', 'inf', 'inf', 'infinity', 'infinity', 'infinity', '24:00', true, 'a', 'a', 'a', 'a'),
    (2, -32768, -9223372036854775808, 0, '-inf', '-inf', '-inf', '-infinity', '-infinity', '-infinity', '0:00', false, '', '', '', ''),
    (3, 0, 0, 1, 'nan', 'nan', 'nan', '2000-01-01', '2000-01-01', '2000-01-01', '12:00', NULL, NULL, NULL, NULL, NULL),
    (4, -1, -1, 2147483648, '-0', '-0', '-0.000', '5874897-12-31', '294276-12-31', '294276-12-31', '1:00', true, 'A', 'a  ', 'a ', 'z'),
    (5, 1, 1, 2147483647, 1e-40, 1e-310, 1e-30, '4713-01-01 BC', '4713-01-01 BC', '4713-01-02 BC', '2:00', false, 'ä', 'ab', 'ab', E'\\200'),
    (6, NULL, NULL, NULL, NULL, NULL, 123456789012345678901234567890.123456789, NULL, NULL, NULL, NULL, NULL, 'aa', 'b', 'b', NULL);
SELECT c, q.* FROM unnest('{s,b,o,f,d,n,day,at,tz,clock}'::text[]) c,
    compare(format('SELECT count(*), count(%1$I), min(%1$I), max(%1$I) FROM edges', c)) q;
SELECT c, op, k, string_agg(q.nodes, ''), string_agg(q.result, ' ' ORDER BY q.result)
    FROM unnest('{s,b,o,f,d,n,day,at,tz,clock,flag,t,c,vc}'::text[]) WITH ORDINALITY column_names (c, at),
        unnest('{=,<>,<,<=,>,>=}'::text[]) WITH ORDINALITY operators (op, op_at), unnest('{1,3,4}'::int[]) k,
        compare(format('SELECT k FROM edges WHERE %1$I %2$s (SELECT %1$I FROM edges WHERE k = %3$s)', c, op, k)) q
    GROUP BY c, at, op, op_at, k ORDER BY at, op_at, k;
SELECT * FROM compare('SELECT k FROM edges WHERE day < at OR day >= at');
SELECT * FROM compare('SELECT k FROM edges WHERE day > timestamp ''294276-12-31''');
SELECT op, moment, string_agg(q.result, ' ' ORDER BY q.result)
    FROM unnest('{<,<=,>,>=,=}'::text[]) WITH ORDINALITY operators (op, op_at),
        unnest('{2000-01-01 00:00,1999-12-31 12:00,2000-01-01 00:00:01,4713-01-01 BC,infinity}'::timestamp[]) moment,
        compare(format('SELECT k FROM edges WHERE timestamp %L %s day', moment, op)) q
    GROUP BY op, op_at, moment ORDER BY op_at, moment;
SELECT * FROM compare('SELECT k FROM edges WHERE ch = ''a'' OR c = ''a'' OR vc = ''ab''');
SELECT * FROM compare('SELECT sum(s), avg(s), sum(b), avg(b) FROM edges');
SELECT * FROM compare('SELECT sum(n), avg(n) FROM edges WHERE k > 3');
SELECT * FROM compare('SELECT sum(n), avg(n) FROM edges WHERE k < 3');
SELECT * FROM compare('SELECT sum(n), avg(n), sum(f), avg(d) FROM edges');
SELECT * FROM compare('SELECT sum(f), avg(f), sum(d), avg(d) FROM edges WHERE k > 3');
SELECT * FROM compare('SELECT sum(b) FROM edges WHERE k = 1 OR k = 5');
SELECT * FROM compare('SELECT k FROM edges WHERE -b > 0');
SELECT * FROM compare('SELECT k FROM edges WHERE k <> 2 AND -b > 0');
SELECT * FROM compare('SELECT k FROM edges WHERE b / s > 0 AND k = 2');
SELECT * FROM compare('SELECT k FROM edges WHERE k > 4 AND f * 2 > 0 AND d * 0.5 >= 0');
SELECT * FROM compare('SELECT sum(x) FROM (SELECT n * 10 AS x FROM edges WHERE k > 3) q');
SELECT * FROM compare('SELECT count(*) FROM edges GROUP BY ch, c');
DROP TABLE edges;
-- Scales: fixed, mixed, wide.
CREATE TABLE scales (k int, fixed numeric(15,2), mixed numeric, wide numeric);
INSERT INTO scales SELECT k, k / 3.0, (k::numeric / 8)::text::numeric, k * 1e20 + k / 7.0 FROM generate_series(1, 500) k;
UPDATE scales SET mixed = trim_scale(mixed) WHERE k % 2 = 0;
VACUUM (ANALYZE, FREEZE) scales;
SELECT * FROM compare('SELECT sum(fixed), sum(mixed), sum(wide), avg(fixed), avg(mixed), avg(wide) FROM scales');
SELECT * FROM compare('SELECT sum(fixed * mixed), sum(fixed + mixed), sum(fixed - mixed * fixed), sum(mixed * mixed * mixed) FROM scales');
SELECT * FROM compare('SELECT sum(mixed), avg(mixed) FROM scales WHERE mixed > 20 AND k % 4 = 0');
SELECT * FROM compare('SELECT sum(mixed) FILTER (WHERE k % 8 = 0), sum(mixed) FROM scales');
SELECT * FROM compare('SELECT k % 3, sum(mixed), sum(fixed), avg(wide), min(mixed), max(mixed) FROM scales GROUP BY 1');
SELECT * FROM compare('SELECT mixed, count(*) FROM scales WHERE k < 30 GROUP BY mixed');
SELECT * FROM compare('SELECT sum(fixed * k), sum(fixed * 1e15 * 1e15) FROM scales');
SELECT * FROM compare('SELECT count(*) FROM scales WHERE fixed = 10 OR mixed < 1.125 OR wide > 4e22');
-- Bounds with more decimals than the values have, as averages: none is evaluated by row, and each row falls on its side.
UPDATE scales SET fixed = -fixed WHERE k % 3 = 1;
VACUUM (FREEZE) scales;
SELECT * FROM compare('SELECT count(*), sum(fixed) FROM scales WHERE fixed > (SELECT avg(fixed) FROM scales)');
SELECT * FROM compare('SELECT count(*), sum(fixed) FROM scales WHERE mixed <= (SELECT avg(mixed) FROM scales) AND fixed + mixed < (SELECT avg(fixed + mixed) FROM scales)');
CREATE FUNCTION bounds(query text) RETURNS TABLE (bound text, result text) LANGUAGE plpgsql AS $$
DECLARE
    bounded text;
BEGIN
    FOREACH bound IN ARRAY ARRAY['0', '1', '-1', '1.33', '-1.33', '1.33000000000000000001', '-1.33000000000000000001', '1.3299999999999999999999', '-1.3299999999999999999999',
            '0.000000000000000000000001', '-0.000000000000000000000001', '5003.6857652151101784', '92233720368547758.07', '92233720368547758.08', '-92233720368547758.08', '-92233720368547758.080001',
            '1e30', '-1e30', '123456789012345678901234567890.5', 'NaN', 'Infinity', '-Infinity', '7.12500000000000000000', '7.1250000000000000001'] LOOP
        bounded := format(query, bound);
        PERFORM set_config('batchexec.mode', 'require', true);
        result := outcome(bounded);
        PERFORM set_config('batchexec.mode', 'forbid', true);
        IF outcome(bounded) IS DISTINCT FROM result::text[] THEN
            RAISE EXCEPTION E'results differ: %\nbatched: %\nstock: %', bounded, result, outcome(bounded);
        END IF;
        PERFORM set_config('batchexec.mode', 'allow', true);
        RETURN NEXT;
    END LOOP;
END $$;
SELECT * FROM bounds($$SELECT count(*) FILTER (WHERE fixed < (SELECT '%1$s'::numeric)), count(*) FILTER (WHERE fixed <= (SELECT '%1$s'::numeric)),
    count(*) FILTER (WHERE fixed = (SELECT '%1$s'::numeric)), count(*) FILTER (WHERE fixed >= (SELECT '%1$s'::numeric)),
    count(*) FILTER (WHERE fixed > (SELECT '%1$s'::numeric)), count(*) FILTER (WHERE fixed <> (SELECT '%1$s'::numeric)),
    count(*) FILTER (WHERE mixed < (SELECT '%1$s'::numeric)), count(*) FILTER (WHERE mixed >= (SELECT '%1$s'::numeric)) FROM scales$$);
SELECT count(DISTINCT result) FROM bounds('SELECT count(*) FROM scales WHERE fixed < (SELECT ''%s''::numeric)');
SELECT count(DISTINCT result) FROM bounds('SELECT count(*) FROM scales WHERE fixed >= (SELECT ''%s''::numeric)');
SELECT count(DISTINCT result) FROM bounds('SELECT count(*) FROM scales WHERE (SELECT ''%s''::numeric) < mixed AND fixed < 100');
SELECT count(DISTINCT result) FROM bounds('SELECT count(*) FROM scales WHERE mixed <= (SELECT ''%s''::numeric) OR fixed = (SELECT ''%1$s''::numeric)');
SET batchexec.explain = on;
SELECT line FROM explain_figures('SELECT k FROM scales WHERE fixed > (SELECT avg(fixed) / 3 FROM scales) AND (mixed < (SELECT avg(mixed) / 3 FROM scales) OR k = 7)') line WHERE line ~ 'Custom Scan|by Row';
SET batchexec.explain = off;
DROP FUNCTION bounds;
DROP TABLE scales;
-- A scale that 128 bits can't hold beside a large value.
CREATE TABLE deep (n numeric);
INSERT INTO deep VALUES (('0.' || repeat('0', 50) || '1')::numeric), (4.28), (17.1), (('0.' || repeat('0', 50) || '1')::numeric), (123456.789);
SELECT * FROM compare('SELECT sum(n), avg(n) FROM deep');
INSERT INTO deep SELECT 9e17 + i FROM generate_series(1, 20) i;
SELECT * FROM compare('SELECT sum(n), avg(n), sum(n) FILTER (WHERE n > 100) FROM deep');
DROP TABLE deep;
