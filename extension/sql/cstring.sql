-- A type that is stored as a C string: the columns behind it are at another place in each row.
\set VERBOSITY terse
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;
SET client_min_messages = warning;
CREATE TYPE word;
CREATE FUNCTION word_in(cstring) RETURNS word LANGUAGE internal IMMUTABLE STRICT AS 'cstring_in';
CREATE FUNCTION word_out(word) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'cstring_out';
CREATE TYPE word (INTERNALLENGTH = -2, INPUT = word_in, OUTPUT = word_out, ALIGNMENT = char);
CREATE TABLE words (a int, w word, b int, c bigint);
INSERT INTO words SELECT n, repeat('x', n % 9)::word, n, CASE WHEN n % 3 = 0 THEN n END FROM generate_series(1, 2000) n;
VACUUM (ANALYZE, FREEZE) words;
SELECT * FROM compare('SELECT sum(a), sum(b), sum(c), count(w) FROM words');
DROP TABLE words;
DROP TYPE word CASCADE;
RESET client_min_messages;
