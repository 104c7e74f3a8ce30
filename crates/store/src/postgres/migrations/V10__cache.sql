-- Values of jobs that have completed, for others with the same payload.
CREATE TABLE gristmill.cached (
    digest    text COLLATE "C" PRIMARY KEY, -- of the kind and the payload, in hexadecimal
    stored_at bigint NOT NULL,
    until     bigint NOT NULL,              -- when it is forgotten
    value     text NOT NULL                 -- JSON
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX cached_until ON gristmill.cached (until);
