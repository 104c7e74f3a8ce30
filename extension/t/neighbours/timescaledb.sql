CREATE TABLE readings (at timestamptz NOT NULL, device int, value double precision, kind text);
SELECT create_hypertable('readings', 'at', chunk_time_interval => interval '1 day');
INSERT INTO readings SELECT timestamptz '2024-01-01' + i * interval '1 minute', i % 20, i % 313 / 3.0, 'kind ' || i % 4 FROM
    generate_series(1, 20000) i;
CREATE INDEX ON readings (device, at DESC);
ANALYZE readings;
-- Queries
SELECT count(*), sum(value) FROM readings;
SELECT time_bucket('6 hours', at) AS bucket, count(*), max(value) FROM readings GROUP BY bucket;
SELECT device, avg(value), count(*) FROM readings WHERE at >= '2024-01-03' AND at < '2024-01-06' GROUP BY device;
SELECT kind, first(value, at), last(value, at) FROM readings GROUP BY kind;
SELECT at, value FROM readings WHERE device = 7 ORDER BY at DESC LIMIT 5;
SELECT kind, count(*) FROM readings WHERE at > timestamptz '2024-01-02' + interval '1 day' AND value > 50 GROUP BY kind;
SELECT date_trunc('day', at AT TIME ZONE 'UTC'), min(value) FROM readings GROUP BY 1;
SELECT o.state, count(*) FROM readings r JOIN orders o ON o.id = r.device WHERE r.value < 10 GROUP BY o.state;
SELECT time_bucket('1 day', at) AS bucket, avg(value) FROM readings WHERE device IN (1, 2, 3) GROUP BY bucket ORDER BY bucket LIMIT 3;
