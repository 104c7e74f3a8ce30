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
-- CASE, COALESCE, abs, length and the fields of dates, a column at a time.
CREATE TABLE parts (k int, s smallint, b bigint, f double precision, r real, n numeric, m numeric(12,3), t text, c char(4), d date, flag bool);
INSERT INTO parts SELECT i, CASE WHEN i % 3 > 0 THEN i % 50 - 25 END, (i - 500) * 10000000000, CASE WHEN i % 7 > 0 THEN (i - 500) / 8.0 END,
    (500 - i) / 4.0, CASE WHEN i % 5 > 0 THEN ((i - 500)::numeric / 100)::numeric(10,2) ELSE i % 10 END, CASE WHEN i % 4 > 0 THEN i / 7.0 END,
    CASE WHEN i % 6 > 0 THEN 'text ' || i % 9 END, CASE WHEN i % 8 > 0 THEN 'c' || i % 3 END,
    CASE WHEN i % 9 > 0 THEN date '2001-01-01' + i END, CASE WHEN i % 11 > 0 THEN i % 2 = 0 END FROM generate_series(1, 2000) i;
VACUUM ANALYZE parts;
SELECT * FROM compare('SELECT sum(CASE WHEN s > 0 THEN b ELSE 0 END), sum(CASE WHEN s > 0 THEN f END), sum(CASE s > 0 WHEN true THEN 1 ELSE 0 END) FROM parts');
SELECT * FROM compare('SELECT sum(CASE WHEN t = ''text 1'' THEN n WHEN t LIKE ''%2'' THEN m ELSE 0 END), avg(CASE WHEN flag THEN n ELSE 1.50000 END) FROM parts');
SELECT * FROM compare('SELECT sum(CASE WHEN c = ''c1'' OR flag THEN 1 ELSE 0 END), sum(CASE WHEN c <> ''c1'' AND NOT flag THEN 1 ELSE 0 END) FROM parts');
SELECT * FROM compare('SELECT CASE WHEN s < 0 THEN ''below'' WHEN s > 0 THEN ''above'' ELSE t END, count(*), sum(k) FROM parts GROUP BY 1');
SELECT * FROM compare('SELECT CASE WHEN flag THEN n ELSE m END, count(*) FROM parts WHERE k < 40 GROUP BY 1');
SELECT * FROM compare('SELECT coalesce(s, -100), count(*), sum(coalesce(n, m, 0)), sum(coalesce(f, r)) FROM parts GROUP BY 1');
SELECT * FROM compare('SELECT k FROM parts WHERE coalesce(t, c, ''none'') = ''none''');
SELECT * FROM compare('SELECT count(*), min(coalesce(d, date ''1999-01-01'')), bool_or(coalesce(flag, k > 1990)) FROM parts');
SELECT * FROM compare('SELECT count(*) FROM parts WHERE CASE WHEN flag IS NULL THEN k > 100 WHEN flag THEN s > 0 ELSE d > ''2003-01-01'' END');
SELECT * FROM compare('SELECT sum(abs(s)), sum(abs(b)), sum(abs(f)), sum(abs(r)), sum(abs(n)), sum(@ m), count(*) FROM parts WHERE abs(k - 1000) > 3');
SELECT * FROM compare('SELECT abs(n), count(*) FROM parts WHERE abs(n) < 1 GROUP BY 1');
-- What is not chosen must not fail, and what is must.
SELECT * FROM compare('SELECT sum(CASE WHEN s <> 0 THEN 100 / s ELSE 0 END), sum(100 / CASE WHEN s = 0 THEN NULL ELSE s END) FROM parts');
SELECT * FROM compare('SELECT sum(CASE WHEN s < 0 THEN 100 / s ELSE 100 / s END) FROM parts');
SELECT * FROM compare('SELECT sum(coalesce(s, 1 / (k - k))) FROM parts');
SELECT * FROM compare('SELECT sum(coalesce(k, 1 / (k - k))) FROM parts');
INSERT INTO parts (k, s, b) VALUES (0, -32768, -9223372036854775808);
SELECT * FROM compare('SELECT sum(abs(s)) FROM parts');
SELECT * FROM compare('SELECT sum(abs(b)) FROM parts WHERE s > -32768');
SELECT * FROM compare('SELECT count(*) FROM parts WHERE abs(b) > 5');
INSERT INTO parts (k, f, n) VALUES (-1, '-0', 'nan'), (-2, '-inf', '-inf'), (-3, 'nan', 0.00000), (-4, -1e-310, -123456789012345678901234567890);
SELECT * FROM compare('SELECT k, abs(f), abs(n) FROM parts WHERE abs(f) >= 0 AND k < 0');
SELECT * FROM compare('SELECT CASE WHEN k < 0 THEN n ELSE 1 END, abs(f), count(*) FROM parts WHERE k < 0 GROUP BY 1, 2');
DROP TABLE parts;
-- Fields of dates and timestamps, and timestamps truncated to one.
CREATE TABLE times (k int, d date, at timestamp, t text, c char(6));
INSERT INTO times SELECT i, CASE WHEN i % 5 > 0 THEN date '1890-01-01' + i * 37 END,
    CASE WHEN i % 7 > 0 THEN timestamp '1900-01-01 00:00:00.25' + i * interval '29 hours 13 minutes 7.123456 seconds' END,
    CASE WHEN i % 3 > 0 THEN repeat('ä', i % 5) || i END, i::text FROM generate_series(1, 3000) i;
INSERT INTO times VALUES (-1, '0001-12-31 BC', '0001-12-31 23:59:59.999999 BC', '', ''), (-2, '4713-11-24 BC', '4713-11-24 BC', 'a', 'a'),
    (-3, '5874897-12-31', '294276-12-31 23:59:59.999999', '€', '€'), (-4, '0044-03-15 BC', '0044-03-15 12:00 BC', NULL, NULL);
VACUUM ANALYZE times;
SELECT f, q.* FROM unnest('{year,quarter,month,day,dow,isodow,doy,week}'::text[]) f,
    compare(format('SELECT md5(string_agg(g::text, '','' ORDER BY k)), count(*) FROM (SELECT k, extract(%1$s FROM d), extract(%1$s FROM at) FROM times OFFSET 0) g', f)) q;
SELECT f, q.* FROM unnest('{hour,minute,second,epoch}'::text[]) f,
    compare(format('SELECT extract(%s FROM at), count(*), sum(k) FROM times GROUP BY 1', f)) q;
SELECT f, q.* FROM unnest('{year,quarter,month,week,day}'::text[]) f,
    compare(format('SELECT extract(%s FROM d), count(*), sum(k) FROM times WHERE k > 0 GROUP BY 1', f)) q;
SELECT f, q.* FROM unnest('{year,quarter,month,week,day,hour,minute,second,decade}'::text[]) f,
    compare(format('SELECT date_trunc(%L, at), count(*), sum(k) FROM times WHERE k > -2 GROUP BY 1', f)) q;
SELECT * FROM compare('SELECT date_trunc(''week'', at), date_trunc(''year'', at) FROM times WHERE k = -2');
-- The message differs between servers.
SELECT nodes, left(result, 5) FROM compare('SELECT k FROM times WHERE extract(hour FROM d) = 1');
SELECT * FROM compare('SELECT count(*) FROM times WHERE extract(year FROM d) = 1995 AND extract(month FROM at) < 3.5');
SELECT * FROM compare('SELECT length(t), count(*), sum(length(t)), sum(char_length(c)) FROM times GROUP BY 1');
SELECT * FROM compare('SELECT k FROM times WHERE length(t) = 3 AND k < 30 AND k > -3');
INSERT INTO times VALUES (-5, 'infinity', 'infinity', repeat('ä', 30000)), (-6, '-infinity', '-infinity', NULL);
SELECT * FROM compare('SELECT k, extract(year FROM d), extract(day FROM at), date_trunc(''month'', at), length(t) FROM times WHERE k < 0');
SELECT * FROM compare('SELECT extract(year FROM d), date_trunc(''month'', at), max(length(t)) FROM times WHERE k < 0 GROUP BY 1, 2');
DROP TABLE times;
-- Several expressions of a row without a vector form are evaluated together, by row.
CREATE TABLE by_row (id int, a int, b numeric, t text, j jsonb);
INSERT INTO by_row SELECT i, nullif(i % 40, 7), i / 8.0, 'text ' || i % 60, jsonb_build_object('k', i % 5, 'v', i) FROM generate_series(1, 4000) i;
VACUUM (ANALYZE, FREEZE) by_row;
SELECT * FROM compare('SELECT sum(hashint4(id)), count(hashtext(t)), max((j->>''v'')::numeric), min(md5(t)), avg((j->>''k'')::int), bool_or(j ? ''w'') FROM by_row');
SELECT * FROM compare('SELECT a, sum(hashint4(id)), sum(hashint4(a)) FILTER (WHERE j->>''k'' = ''3''), max(md5(t)), corr(hashint4(a), hashint4(id)) FROM by_row GROUP BY a');
SELECT * FROM compare('SELECT count(*), sum(a) FROM by_row WHERE hashint4(id) % 3 = 0 AND j->>''k'' <> ''2'' AND md5(t) > ''4'' AND a > 3');
SELECT * FROM compare('SELECT id, t FROM by_row WHERE a > 3 AND hashint4(id) % 3 = 0 AND md5(t) > ''4''');
SELECT * FROM compare('SELECT sum(hashint4(id) % (SELECT max(a) FROM by_row r WHERE r.id < s.id % 3 + 2)), sum(hashint4(a)), max(md5(t)) FROM by_row s WHERE hashint4(id) <> 5 AND EXISTS (SELECT FROM by_row r WHERE r.id = s.a OFFSET 0)');
SELECT * FROM compare('SELECT r.t, sum(hashint4(s.id)), max(md5(r.t)), count(s.j->>''k'') FROM by_row s JOIN by_row r ON s.a = r.id GROUP BY r.t');
SELECT * FROM compare('SELECT sum(hashint4(id)), sum(100 / (hashint4(a) - hashint4(9))), sum(1 / (a - 12)) FROM by_row');
SELECT * FROM compare('SELECT count(*) FROM by_row WHERE hashint4(id) <> 0 AND 100 / (hashint4(a) - hashint4(9)) <> 4 AND 1 / (a - 12) <> 7');
SET work_mem = 64; SET hash_mem_multiplier = 1; SET enable_sort = off;
SELECT * FROM compare('SELECT id, sum(hashint4(a)), max(md5(t)), min((j->>''v'')::int) FROM by_row WHERE md5(t) > ''1'' AND hashint4(id) <> 8 GROUP BY id');
RESET work_mem; RESET hash_mem_multiplier; RESET enable_sort;
DROP TABLE by_row;
-- Columns of few texts: where a source has stored each text once, expressions of such a column alone are evaluated for these.
CREATE TABLE repeated (id int, word text, other text, mark char(6));
INSERT INTO repeated SELECT i, CASE WHEN i % 11 > 0 THEN 'Word ' || i % 7 END, 'w' || i % 3, 'm' || i % 4 FROM generate_series(1, 3000) i;
INSERT INTO repeated SELECT i, 'Word ' || i, NULL, NULL FROM generate_series(3001, 4200) i;
INSERT INTO repeated VALUES (4201, repeat('Word 3', 5000), repeat('w', 3000), 'm'), (4202, NULL, '', '');
VACUUM (ANALYZE, FREEZE) repeated;
SELECT * FROM compare('SELECT count(*), sum(id) FROM repeated WHERE word = ''Word 3'' OR upper(word) LIKE ''WORD 5%''');
SELECT * FROM compare('SELECT count(*), sum(id) FROM repeated WHERE upper(word) <> ''WORD 3'' AND upper(word) || other <> ''WORD 4w1'' AND length(upper(word) || mark) > 9');
SELECT * FROM compare('SELECT sum(length(word)), sum(CASE WHEN word LIKE ''%3'' THEN 1 WHEN word IS NULL THEN 10 ELSE 0 END), count(nullif(word IN (''Word 1'', ''Word 3100''), mark = ''m1'')) FROM repeated');
SELECT * FROM compare('SELECT word LIKE ''%5%'', mark = ''m1'', length(other), count(*), min(length(word)) FROM repeated GROUP BY 1, 2, 3');
SELECT * FROM compare('SELECT id FROM repeated WHERE word ILIKE ''%WORD 30_1'' AND id % 3 = 0');
SELECT * FROM compare('SELECT count(*) FROM repeated WHERE id > 3000 AND length(substring(word, 1, length(word) - 7)) > 1');
SELECT * FROM compare('SELECT count(*) FROM repeated WHERE id > 2900 AND length(substring(word, 1, length(word) - 7)) > 1');
SELECT * FROM compare('SELECT k, (SELECT count(*) FROM repeated WHERE word = ''Word '' || k OR word LIKE ''%00'') FROM generate_series(1, 3) k');
SELECT * FROM compare('SELECT count(*), sum(a.id) FROM repeated a JOIN repeated b ON a.id = b.id + 1 WHERE length(a.word) > 6 AND b.word LIKE ''%7'' AND coalesce(b.other, a.word) > ''W''');
SET batchexec.batch_rows = 5;
SELECT * FROM compare('SELECT count(*), sum(length(word)) FROM repeated WHERE word <> ''Word 3'' AND mark <> ''m2''');
RESET batchexec.batch_rows;
-- An operand that two parts of an expression read, or that a range test has read before, has values of rows, not of entries.
SELECT * FROM compare('SELECT count(*), sum(id) FROM repeated WHERE id > 3000 AND length(substring(word, 1, length(word) - 7)) IS DISTINCT FROM 2');
SELECT * FROM compare('SELECT count(*), sum(id) FROM repeated WHERE id > 3000 AND 10 / (length(word) - 6) IS DISTINCT FROM 3');
SELECT * FROM compare('SELECT count(*), sum(id) FROM repeated WHERE upper(word) IS DISTINCT FROM ''WORD 3'' AND coalesce(length(word), 0) IS DISTINCT FROM 6');
SELECT * FROM compare('SELECT count(*), sum(id), sum(id) FILTER (WHERE length(word) <> 5.5), sum(id) FILTER (WHERE length(word) > 6.5) FROM repeated WHERE length(word) <> 8.5');
SELECT * FROM compare('SELECT count(*), sum(id) FROM repeated WHERE length(word) * 0.1 <> 0.55');
SELECT * FROM compare('SELECT count(*), sum(id) FILTER (WHERE length(word) * 0.1 <> 0.55), sum(length(word)) FROM repeated WHERE length(word) BETWEEN 5.5 AND 9.5');
-- One entry fails, and no row that is asked for has it.  Entries come in another order than rows.
CREATE TABLE few (id int, word text);
INSERT INTO few SELECT i, CASE WHEN i % 50 = 0 THEN 'Word' WHEN i % 11 > 0 THEN 'Word ' || (7 + i / 4 % 7) END FROM generate_series(1, 3000) i;
VACUUM (ANALYZE, FREEZE) few;
SELECT * FROM compare('SELECT count(*), sum(id) FROM few WHERE id % 50 > 0 AND length(substring(word, 1, length(word) - 5)) IS DISTINCT FROM 2');
SELECT * FROM compare('SELECT count(*), sum(id) FROM few WHERE id % 50 > 0 AND 10 / (length(word) - 4) IS DISTINCT FROM 5');
SELECT * FROM compare('SELECT count(*), sum(id) FROM few WHERE 10 / (length(word) - 4) IS NOT DISTINCT FROM 5');
SELECT * FROM compare('SELECT coalesce(10 / (length(word) - 4), 0), count(*) FROM few WHERE id % 50 > 0 GROUP BY 1');
-- Entries that are too many bytes to be evaluated at once.
INSERT INTO few SELECT 3000 + i, repeat(md5(i % 40 || 'x'), 50 + i % 2) FROM generate_series(1, 2000) i;
ALTER TABLE few ALTER word SET STORAGE PLAIN;
INSERT INTO few SELECT 5000 + i, repeat('y', 7000) || i % 60 FROM generate_series(1, 600) i;
SELECT * FROM compare('SELECT count(*), sum(id) FROM few WHERE length(word) <> 1600.5 AND word IS DISTINCT FROM ''Word 8''');
SELECT * FROM compare('SELECT word, count(*), sum(id) FROM few GROUP BY word');
DROP TABLE repeated, few;
