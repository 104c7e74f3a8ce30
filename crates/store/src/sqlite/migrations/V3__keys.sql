-- Who has a deduplication key: a job that is open, or whose period is not over.
CREATE TABLE job_key (
    scope    INTEGER NOT NULL, -- twice the first lane of a kind, or once more than twice that of a queue
    key      TEXT NOT NULL,
    batch_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    open     INTEGER NOT NULL, -- whether the job is not over
    until    INTEGER,          -- the end of its period
    rerun    TEXT,             -- JSON: what runs once more after the job has completed
    PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_key_over ON job_key (until) WHERE open = 0;

-- The keys of the batches that have some.
CREATE TABLE keyed (
    batch_id INTEGER PRIMARY KEY,
    scope    INTEGER NOT NULL,
    keys     TEXT NOT NULL -- a JSON array, a string or null a position
) STRICT;

-- Tags of jobs: a row for each pair of name and value and batch.
CREATE TABLE tag (
    name      TEXT NOT NULL,
    value     TEXT NOT NULL,
    batch_id  INTEGER NOT NULL,
    count     INTEGER NOT NULL, -- jobs
    positions TEXT,             -- NULL where all jobs of the batch have it
    PRIMARY KEY (name, value, batch_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX tag_batch ON tag (batch_id);
