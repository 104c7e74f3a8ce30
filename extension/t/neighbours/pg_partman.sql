CREATE SCHEMA partman;
CREATE EXTENSION pg_partman SCHEMA partman;
CREATE TABLE events (id int NOT NULL, at timestamptz NOT NULL, kind text, amount numeric) PARTITION BY RANGE (at);
SELECT partman.create_parent('public.events', 'at', '1 day', p_start_partition := (now() - interval '9 days')::date::text);
INSERT INTO events SELECT i, now() - i * interval '1 minute', 'kind ' || i % 3, i / 8.0 FROM generate_series(1, 12000) i;
ANALYZE events;
-- Queries
SELECT count(*), sum(amount) FROM events;
SELECT kind, count(*), avg(amount) FROM events GROUP BY kind;
SELECT kind, max(amount) FROM events WHERE at < (SELECT max(at) FROM events) - interval '3 days' GROUP BY kind;
SELECT count(*) FROM events WHERE at BETWEEN (SELECT min(at) FROM events) AND (SELECT min(at) + interval '1 day' FROM events);
SELECT e.kind, count(*) FROM events e JOIN orders o ON o.id = e.id GROUP BY e.kind;
SELECT DISTINCT kind FROM events;
SELECT id FROM events WHERE amount > 1498;
SELECT kind, count(DISTINCT id % 10) FROM events GROUP BY kind;
