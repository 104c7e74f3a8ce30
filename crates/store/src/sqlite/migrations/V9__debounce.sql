-- Payloads that were added to jobs of debounced batches after these were submitted.
CREATE TABLE debounced (
    batch_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    number   INTEGER NOT NULL, -- their order; always 0 where the last one holds
    count    INTEGER NOT NULL, -- payloads
    payloads TEXT NOT NULL,    -- JSON, with commas between them
    PRIMARY KEY (batch_id, position, number)
) STRICT, WITHOUT ROWID;
