-- The tables of a knowledge base in SQLite: version 1 of its layout. Sources, their messages, the knowledge from them, and the indexes
-- over both.

-- The header of the file says that it is a knowledge base ("GRMK").
PRAGMA application_id = 1196576075;

-- What was ingested. A source is replaced or deleted as a whole.
CREATE TABLE source (
    id           INTEGER PRIMARY KEY,
    name         TEXT    NOT NULL UNIQUE,
    format       TEXT    NOT NULL,
    digest       TEXT    NOT NULL,          -- of its bytes: an unchanged source is skipped
    settings     TEXT    NOT NULL,          -- how it was cut and by which extractor it was read
    complete     INTEGER NOT NULL,          -- 0 while messages are still to come
    messages     INTEGER NOT NULL,          -- committed so far
    zone_minutes INTEGER,
    ingested_at  INTEGER NOT NULL,          -- milliseconds since 1970-01-01T00:00:00Z
    stamp        TEXT                       -- of its file: size, time of its last change, number; a file with the same is unchanged
);

CREATE TABLE message (
    ordinal      INTEGER PRIMARY KEY,
    source       INTEGER NOT NULL REFERENCES source (id),
    position     INTEGER NOT NULL,          -- in its source, from 0
    text_chunks  TEXT    NOT NULL,          -- JSON array
    speaker      TEXT,
    recipients   TEXT,                      -- JSON array; NULL where empty, as the others
    subject      TEXT,
    tags         TEXT,
    at           INTEGER,                   -- milliseconds since 1970-01-01T00:00:00Z
    zone_minutes INTEGER,
    id           TEXT,                      -- from its own program: a Message-ID, the id of a chat message
    thread       TEXT,                      -- the id of the message that began its thread, or its subject
    place        TEXT,                      -- in its source, as a person counts there
    words        INTEGER NOT NULL,          -- how many its text has
    thread_number INTEGER NOT NULL,         -- a digest of its thread; 0 if it has none
    UNIQUE (source, position)
);
-- Covers what recall needs of every message, without the texts.
CREATE INDEX message_columns ON message (at, source, words, thread_number);

-- The messages in which a word stands, in segments as those of `posting`; a message stands there as often as the word in it.
CREATE TABLE word (
    word          TEXT    NOT NULL,         -- its stem; after an @, a word of the speaker's name
    first_message INTEGER NOT NULL,
    last_message  INTEGER NOT NULL,
    count         INTEGER NOT NULL,
    messages      BLOB    NOT NULL,
    PRIMARY KEY (word, first_message)
) WITHOUT ROWID;

-- Consecutive refs of one chunk, packed: one row, whatever their number.
CREATE TABLE knowledge (
    first_ref INTEGER PRIMARY KEY,
    message   INTEGER NOT NULL REFERENCES message (ordinal),
    chunk     INTEGER NOT NULL,
    kinds     TEXT    NOT NULL,             -- a letter each: entity, action, topic, taG
    items     TEXT    NOT NULL              -- JSON array, one item each
);
-- Covers what recall needs of every ref, without the items.
CREATE INDEX knowledge_columns ON knowledge (message, kinds);

CREATE TABLE term (
    id   INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE               -- in lower case
);
-- The refs of a term in a role, in segments of ascending refs: the first is in the key, of the others the
-- differences are in `refs` as LEB128 numbers.
CREATE TABLE posting (
    term      INTEGER NOT NULL,
    property  INTEGER NOT NULL,
    first_ref INTEGER NOT NULL,
    last_ref  INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    refs      BLOB    NOT NULL,
    PRIMARY KEY (term, property, first_ref)
) WITHOUT ROWID;
-- The words of terms, stemmed; terms of few words first, which are nearest to what is looked for.
CREATE TABLE stem (
    stem  TEXT    NOT NULL,
    words INTEGER NOT NULL,
    term  INTEGER NOT NULL,
    PRIMARY KEY (stem, words, term)
) WITHOUT ROWID;
CREATE TABLE alias (
    term    TEXT NOT NULL,
    related TEXT NOT NULL,
    weight  REAL,
    PRIMARY KEY (term, related)
) WITHOUT ROWID;

-- Chunks whose extraction failed. Their messages are kept.
CREATE TABLE failure (
    message INTEGER NOT NULL REFERENCES message (ordinal),
    chunk   INTEGER NOT NULL,
    error   TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (message, chunk)
) WITHOUT ROWID;

-- Sources that could not be read. An earlier version of one may be there.
CREATE TABLE source_failure (
    source TEXT    PRIMARY KEY,
    error  TEXT    NOT NULL,
    at     INTEGER NOT NULL
) WITHOUT ROWID;

-- Messages of sources that could not be read. All others of the source are there.
CREATE TABLE unread (
    source TEXT    NOT NULL,
    number INTEGER NOT NULL,                -- in reading order, from 0
    place  TEXT    NOT NULL,                -- in the source, as a person counts there
    error  TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (source, number)
) WITHOUT ROWID;

-- The model that made all vectors: those of two models cannot be compared.
CREATE TABLE embedder (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    model      TEXT    NOT NULL,
    dimensions INTEGER NOT NULL
);
-- Vectors of terms and of messages' chunks: 32-bit floats, little endian, of length 1; empty for a text without meaning.
CREATE TABLE term_vector (
    term   INTEGER PRIMARY KEY,
    vector BLOB    NOT NULL
);
CREATE TABLE chunk_vector (
    message INTEGER NOT NULL,
    chunk   INTEGER NOT NULL,
    vector  BLOB    NOT NULL,
    PRIMARY KEY (message, chunk)
);
-- Where there are many, the vectors of the messages below `next_message` stand in lists, too: a list has the entries nearest to its
-- centre.
CREATE TABLE vector_centres (
    one          INTEGER PRIMARY KEY CHECK (one = 1),
    next_message INTEGER NOT NULL,
    centres      BLOB    NOT NULL           -- 32-bit floats, little endian, of one centre after the other
);
CREATE TABLE vector_list (
    list    INTEGER PRIMARY KEY,
    entries BLOB    NOT NULL                -- of each: its message, a factor, and its numbers in a byte each
);

-- `next_message`, `next_ref`: the next numbers. `rewrites`: how often something was deleted. `languages`: those of the
-- messages, one bit each.
CREATE TABLE counter (
    name  TEXT    PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO counter (name, value) VALUES ('next_message', 0), ('next_ref', 0), ('rewrites', 0), ('languages', 0);
