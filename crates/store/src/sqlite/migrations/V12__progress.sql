-- How far the jobs of a worker are, as it told last: one row, however many jobs.
CREATE TABLE progress (
    worker_id INTEGER PRIMARY KEY,
    at        INTEGER NOT NULL,
    jobs      TEXT NOT NULL -- a JSON array
) STRICT;

ALTER TABLE held ADD COLUMN claimed_at INTEGER;
