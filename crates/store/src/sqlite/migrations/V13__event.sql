-- When the job is tried again; NULL where it is not.
ALTER TABLE failure ADD COLUMN retried_at INTEGER;

-- At most one row: somebody listens to events, or did within the last hour. Without it there are no triggers that keep any.
CREATE TABLE listening (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    until      INTEGER NOT NULL,
    kept_after INTEGER NOT NULL -- all events with higher ids are there
) STRICT;

-- What happened, in the order in which it was committed. Ids are never given twice.
CREATE TABLE event (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    at        INTEGER NOT NULL,
    type      TEXT NOT NULL,
    batch_id  INTEGER,
    attempt   INTEGER,
    run_at    INTEGER,
    worker_id INTEGER,
    positions TEXT, -- of a batch's submission, all
    detail    TEXT
) STRICT;
