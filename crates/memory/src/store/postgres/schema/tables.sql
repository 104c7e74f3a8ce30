-- The tables of a knowledge base in PostgreSQL: version 1 of its layout. Sources, their messages, the knowledge from them, and the
-- indexes over both. They are in a schema of their own, `gristmill_memory`, which every connection searches first.
--
-- Long values are found by a digest (16 bytes of SHA-256), since entries of an index have at most 2,700 bytes. Text in columns of its
-- own has no NUL, which PostgreSQL cannot keep; JSON writes one as \u0000.

CREATE TABLE source (
    id           bigint  PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name_digest  bytea   NOT NULL UNIQUE,
    name         text    NOT NULL COLLATE "C",
    format       text    NOT NULL,
    digest       text    NOT NULL,          -- of its bytes: an unchanged source is skipped
    settings     text    NOT NULL,          -- how it was cut and by which extractor it was read
    complete     boolean NOT NULL,          -- false while messages are still to come
    messages     bigint  NOT NULL,          -- committed so far
    zone_minutes smallint,
    ingested_at  bigint  NOT NULL,          -- milliseconds since 1970-01-01T00:00:00Z
    stamp        text                       -- of its file: size, time of its last change, number; a file with the same is unchanged
);

CREATE TABLE message (
    ordinal  bigint   PRIMARY KEY,
    source   bigint   NOT NULL REFERENCES source (id),
    position bigint   NOT NULL,             -- in its source, from 0
    body     text     NOT NULL,             -- JSON
    chunks   integer  NOT NULL,             -- how many its text has
    at       bigint,                        -- milliseconds since 1970-01-01T00:00:00Z
    words    integer  NOT NULL,             -- how many its text has
    thread_number bigint NOT NULL,          -- a digest of its thread; 0 if it has none
    UNIQUE (source, position)
);

-- The messages in which a word stands, in segments as those of `posting`; a message stands there as often as the word in it.
CREATE TABLE word (
    word          text    NOT NULL COLLATE "C", -- its stem; after an @, a word of the speaker's name
    first_message bigint  NOT NULL,
    last_message  bigint  NOT NULL,
    count         integer NOT NULL,
    messages      bytea   NOT NULL,
    PRIMARY KEY (word, first_message)
);

-- Consecutive refs of one chunk, packed: one row, whatever their number.
CREATE TABLE knowledge (
    first_ref bigint  PRIMARY KEY,
    message   bigint  NOT NULL REFERENCES message (ordinal),
    chunk     bigint  NOT NULL,
    kinds     text    NOT NULL,             -- a letter each: entity, action, topic, taG
    items     text    NOT NULL              -- JSON array, one item each
);
CREATE INDEX knowledge_message ON knowledge (message);

CREATE TABLE term (
    id     bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    digest bytea  NOT NULL UNIQUE,
    text   text   NOT NULL COLLATE "C"      -- in lower case
);
CREATE INDEX term_prefix ON term (left(text, 200) COLLATE "C");
-- The refs of a term in a role, in segments of ascending refs: the first is in the key, of the others the
-- differences are in `refs` as LEB128 numbers.
CREATE TABLE posting (
    term      bigint   NOT NULL,
    property  smallint NOT NULL,
    first_ref bigint   NOT NULL,
    last_ref  bigint   NOT NULL,
    count     integer  NOT NULL,
    refs      bytea    NOT NULL,
    PRIMARY KEY (term, property, first_ref)
);
-- The words of terms, stemmed; terms of few words first, which are nearest to what is looked for.
CREATE TABLE stem (
    stem  text    NOT NULL COLLATE "C",
    words integer NOT NULL,
    term  bigint  NOT NULL,
    PRIMARY KEY (stem, words, term)
);
CREATE TABLE alias (
    term_digest    bytea NOT NULL,
    related_digest bytea NOT NULL,
    term           text  NOT NULL COLLATE "C",
    related        text  NOT NULL COLLATE "C",
    weight         double precision,
    PRIMARY KEY (term_digest, related_digest)
);

-- Chunks whose extraction failed. Their messages are kept.
CREATE TABLE failure (
    message bigint NOT NULL REFERENCES message (ordinal),
    chunk   bigint NOT NULL,
    error   text   NOT NULL,
    at      bigint NOT NULL,
    PRIMARY KEY (message, chunk)
);

-- Sources that could not be read. An earlier version of one may be there.
CREATE TABLE source_failure (
    source_digest bytea  PRIMARY KEY,
    source        text   NOT NULL COLLATE "C",
    error         text   NOT NULL,
    at            bigint NOT NULL
);

-- Messages of sources that could not be read. All others of the source are there.
CREATE TABLE unread (
    source_digest bytea  NOT NULL,
    number        bigint NOT NULL,          -- in reading order, from 0
    source        text   NOT NULL COLLATE "C",
    place         text   NOT NULL,          -- in the source, as a person counts there
    error         text   NOT NULL,
    at            bigint NOT NULL,
    PRIMARY KEY (source_digest, number)
);

-- The model that made all vectors: those of two models cannot be compared.
CREATE TABLE embedder (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    model      text    NOT NULL COLLATE "C",
    dimensions bigint  NOT NULL
);
-- Vectors of terms and of messages' chunks: 32-bit floats, little endian, of length 1; empty for a text without meaning.
CREATE TABLE term_vector (
    term   bigint PRIMARY KEY,
    vector bytea  NOT NULL
);
CREATE TABLE chunk_vector (
    message bigint NOT NULL,
    chunk   bigint NOT NULL,
    vector  bytea  NOT NULL,
    PRIMARY KEY (message, chunk)
);
-- Where there are many, the vectors of the messages below `next_message` stand in lists, too: a list has the entries nearest to its
-- centre.
CREATE TABLE vector_centres (
    one          boolean PRIMARY KEY DEFAULT true CHECK (one),
    next_message bigint  NOT NULL,
    centres      bytea   NOT NULL           -- 32-bit floats, little endian, of one centre after the other
);
CREATE TABLE vector_list (
    list    bigint PRIMARY KEY,
    entries bytea  NOT NULL                 -- of each: its message, a factor, and its numbers in a byte each
);

-- The next numbers, how often something was deleted, and the languages of the messages, one bit each. Its one row is the lock of
-- those that write.
CREATE TABLE counter (
    one          boolean PRIMARY KEY DEFAULT true CHECK (one),
    next_message bigint NOT NULL,
    next_ref     bigint NOT NULL,
    rewrites     bigint NOT NULL,
    languages    bigint NOT NULL
);
INSERT INTO counter (next_message, next_ref, rewrites, languages) VALUES (0, 0, 0, 0);
