-- Who follows what running jobs print, and until when. Without a row no output is kept.
CREATE TABLE following (
    id       TEXT PRIMARY KEY,
    until    INTEGER NOT NULL,
    followed TEXT NOT NULL -- a JSON array
) STRICT;

-- What followed jobs printed within the last moments.
CREATE TABLE live_output (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    at       INTEGER NOT NULL,
    batch_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    attempt  INTEGER NOT NULL,
    start    INTEGER NOT NULL,
    text     TEXT NOT NULL
) STRICT;
