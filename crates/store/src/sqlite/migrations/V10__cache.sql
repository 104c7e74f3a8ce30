-- Values of jobs that have completed, for others with the same payload.
CREATE TABLE cached (
    digest    TEXT NOT NULL UNIQUE, -- of the kind and the payload, in hexadecimal
    stored_at INTEGER NOT NULL,
    until     INTEGER NOT NULL,     -- when it is forgotten
    value     TEXT NOT NULL         -- JSON
) STRICT;
CREATE INDEX cached_until ON cached (until);
