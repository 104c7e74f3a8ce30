-- How far the jobs of a worker are, as it told last: one row, however many jobs.
CREATE TABLE gristmill.progress (
    worker_id bigint PRIMARY KEY,
    at        bigint NOT NULL,
    jobs      text NOT NULL -- a JSON array
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

ALTER TABLE gristmill.held ADD COLUMN claimed_at bigint;
