-- A job may fail more than once under a lease: where its retries have no delay, it runs again in the same slot. The view
-- `job` goes on naming the table while it is replaced.
PRAGMA legacy_alter_table = ON;
ALTER TABLE failure RENAME TO failure_before;
CREATE TABLE failure (
    batch_id    INTEGER NOT NULL,
    position    INTEGER NOT NULL,
    lease_id    INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    failed_at   INTEGER NOT NULL,
    worker      TEXT,
    error       TEXT NOT NULL, -- JSON
    log         TEXT,
    PRIMARY KEY (batch_id, position, lease_id, attempt)
) STRICT, WITHOUT ROWID;
INSERT INTO failure (batch_id, position, lease_id, attempt, duration_us, failed_at, worker, error, log)
    SELECT batch_id, position, lease_id, attempt, duration_us, failed_at, worker, error, log FROM failure_before;
DROP TABLE failure_before;
PRAGMA legacy_alter_table = OFF;
