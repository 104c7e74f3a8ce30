-- Functions and operators by column: each next to the stock server's row by row.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
CREATE TABLE values_of (id int, small smallint, big bigint, real4 real, real8 float8, num numeric(12, 3),
                        wide numeric, word text, day date, moment timestamp, zoned timestamptz, flag bool);
INSERT INTO values_of
    SELECT i, i % 300 - 150, i::bigint * 3000007 - 1500000000, i / 7.0 - 200, i / 16.0 - 90.5, i / 8.0 - 150.0625, i * 1.00005 - 1000,
           CASE i % 6 WHEN 0 THEN 'Ab_c%d' || i WHEN 1 THEN '' WHEN 2 THEN 'straße ' || i WHEN 3 THEN repeat('aB', i % 9)
                      WHEN 4 THEN 'xaybxayb' || i % 10 ELSE '100% \ sure' END,
           '2000-02-29'::date + (i - 1200), '1999-12-31 22:30'::timestamp + i * interval '7 hours 13 minutes',
           '2001-05-05 12:00+00'::timestamptz + i * interval '3 hours', CASE i % 3 WHEN 0 THEN true WHEN 1 THEN false END
    FROM generate_series(1, 2400) i;
INSERT INTO values_of SELECT id + 2400 FROM values_of WHERE id % 40 = 0;
VACUUM (ANALYZE, FREEZE) values_of;
-- Compares an expression's values over all rows.
CREATE FUNCTION compare_values(expression text) RETURNS TABLE (nodes text, result text) LANGUAGE sql AS $$
    SELECT * FROM compare(format('SELECT count(*), count(v), left(min(v::text COLLATE "C"), 24), left(max(v::text COLLATE "C"), 24), md5(string_agg(coalesce(v::text, ''-''), '','' ORDER BY v::text COLLATE "C")) FROM (SELECT %s AS v, count(*) FROM values_of GROUP BY 1) q', expression))
$$;
SELECT e AS expression, r.nodes, r.result
FROM unnest(ARRAY[
    'nullif(small, 3)', 'nullif(word, '''')', 'nullif(num, 1.5)', 'nullif(id, big)', 'nullif(day, NULL)',
    'CASE small WHEN 1 THEN ''one'' WHEN 2 THEN ''two'' ELSE word END', 'CASE word WHEN '''' THEN id WHEN ''aB'' THEN -id END',
    'CASE small % 3 WHEN 0 THEN CASE id % 2 WHEN 0 THEN 1 ELSE 2 END ELSE 3 END',
    'flag IS TRUE', 'flag IS NOT TRUE', 'flag IS FALSE', 'flag IS NOT FALSE', 'flag IS UNKNOWN', 'flag IS NOT UNKNOWN',
    '(id % 7 = 2) IS NOT TRUE', 'small IS DISTINCT FROM 3', 'small IS NOT DISTINCT FROM big', 'word IS DISTINCT FROM ''aB''',
    'flag IS DISTINCT FROM NULL', 'num IS DISTINCT FROM 2.5',
    'round(real8)', 'trunc(real8)', 'ceil(real8)', 'floor(real8)', 'ceiling(real4::float8)',
    'round(num)', 'round(num, 1)', 'round(num, 5)', 'trunc(num, 1)', 'trunc(num)', 'ceil(num)', 'floor(num)', 'round(wide, 2)', 'trunc(-wide, 3)',
    'id::smallint', 'big::int', 'real8::int', 'real4::smallint', 'real8::bigint', 'num::int', 'num::bigint', 'wide::smallint',
    'num::float8', 'wide::float8', 'real8::real', 'id::real', 'big::real', '(id % 2)::bool', 'flag::int', 'moment::date',
    'substring(word, 2)', 'substring(word, 2, 3)', 'substr(word, 0, 3)', 'substring(word, -2, 5)', 'substring(word, small % 4 + 1, 2)', 'left(word, 4)',
    'left(word, 0)', 'upper(word)', 'lower(word)', 'upper(substring(word, 1, 2)) || ''-'' || lower(word)', 'word || word', 'word || nullif(word, word)',
    'word LIKE ''a_a%''', 'word LIKE ''%_b''', 'word LIKE ''x_y%b_''', 'word LIKE ''%stra_e%''', 'word LIKE ''100\% _ sure''', 'word LIKE ''%\\%''', 'word NOT LIKE ''%_a_b%''',
    'word LIKE ''______''', 'word LIKE ''_''', 'word LIKE ''%__''', 'word LIKE ''%a_b%y_''', 'word ILIKE ''AB%''', 'word NOT ILIKE ''%A_B%''', 'word ILIKE ''STRA_E%''',
    'day + 30', 'day - 1000', 'day - date ''1999-01-01''', 'day - moment::date', 'day + interval ''1 month''', 'day - interval ''1 year 1 month 3 days 2 hours''',
    'moment + interval ''13 months''', 'moment - interval ''1 month 31 days''', 'moment + interval ''36:00:01.5''', 'zoned + interval ''90 minutes''', 'zoned - interval ''1 day'''
]) WITH ORDINALITY AS expressions (e, number), compare_values(e) r ORDER BY number;
-- Errors of rows that are reached, and none of others.
SELECT * FROM compare('SELECT count(*) FROM values_of WHERE big::int > 0');
SELECT * FROM compare('SELECT sum((big * 1000)::int) FROM values_of');
SELECT * FROM compare('SELECT count(*) FROM values_of WHERE substring(word, 1, small) = ''a''');
SELECT * FROM compare('SELECT count(*) FROM values_of WHERE small >= 0 AND substring(word, 1, small) = ''a''');
SELECT * FROM compare('SELECT max(left(word, small)) FROM values_of');
SELECT * FROM compare('SELECT count(*) FROM values_of WHERE word LIKE ''a\''');
SELECT * FROM compare('SELECT max(day + 2147483000) FROM values_of');
SELECT * FROM compare('SELECT max(moment + interval ''290000 years'') FROM values_of');
SELECT * FROM compare('SELECT sum((real8 * 1e30)::real) FROM values_of');
SELECT * FROM compare('SELECT count(*) FROM values_of WHERE (wide * 1e15)::int > 4');
-- What is not finite, or not on the page.
INSERT INTO values_of (id, word, day, moment, num, real8) VALUES
    (-1, repeat('Ab', 5000), 'infinity', '-infinity', 'NaN', 'NaN'), (-2, repeat('xé', 3000), '-infinity', 'infinity', 1e8, '-infinity');
SELECT e AS expression, r.result
FROM unnest(ARRAY['upper(word)', 'substring(word, 9999, 3)', 'word || ''z''', 'word LIKE ''%A_A%''', 'day + 1', 'day + interval ''1 day''', 'moment - interval ''1 month''',
                  'round(num, 1)', 'ceil(real8)', 'num::float8', 'moment::date', 'real8::int', 'day - date ''2000-01-01''']) WITH ORDINALITY AS expressions (e, number),
     compare_values(e) r ORDER BY number;
-- A collation that maps letters in its own way.
SELECT * FROM compare('SELECT count(*) FROM values_of WHERE upper(word COLLATE "tr-x-icu") = ''AB''');
SELECT * FROM compare('SELECT max(lower(word COLLATE "de-x-icu") COLLATE "C"), count(*) FROM values_of WHERE word ILIKE ''STRASSE%'' COLLATE "de-x-icu" OR lower(word COLLATE "de-x-icu") LIKE ''stra_e%''');
