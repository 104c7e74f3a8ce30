-- Jobs that are submitted again and again.
CREATE TABLE schedule (
    name          TEXT PRIMARY KEY,
    next_at       INTEGER,          -- NULL where it is not due any more
    since         INTEGER NOT NULL,
    last_at       INTEGER,
    last_batch_id INTEGER,
    last_position INTEGER,
    fired         INTEGER NOT NULL,
    paused_until  INTEGER,
    definition    TEXT NOT NULL     -- JSON: rule, kind, queue, payload, options, policies
) STRICT, WITHOUT ROWID;
CREATE INDEX schedule_due ON schedule (next_at) WHERE next_at IS NOT NULL;
