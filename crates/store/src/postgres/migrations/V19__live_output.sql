-- Who follows what running jobs print, and until when. Without a row no output is kept.
CREATE TABLE gristmill.following (
    id       text PRIMARY KEY,
    until    bigint NOT NULL,
    followed text NOT NULL -- a JSON array
);

-- What followed jobs printed within the last moments.
CREATE TABLE gristmill.live_output (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       bigint NOT NULL,
    batch_id bigint NOT NULL,
    position integer NOT NULL,
    kind     text NOT NULL,
    attempt  integer NOT NULL,
    start    bigint NOT NULL,
    text     text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
