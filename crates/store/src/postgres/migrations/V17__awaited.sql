-- Batches whose outcomes a process awaits: a row for each batch and each connection that listens on `gristmill_ended`.
-- The rows of connections that are gone stay until the next listener deletes them; a NOTIFY that nobody hears is harmless.
-- After a crash of the server there are no connections, and so no rows.
CREATE UNLOGGED TABLE gristmill.awaited (
    batch_id bigint,
    listener integer, -- the process id of the connection
    PRIMARY KEY (batch_id, listener)
);

-- As before. A NOTIFY takes a lock of the whole server at COMMIT, so only reports of awaited batches are told.
CREATE OR REPLACE FUNCTION gristmill.note_report() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM gristmill.awaited WHERE batch_id = NEW.batch_id) THEN
        PERFORM pg_notify('gristmill_ended', NEW.batch_id::text);
    END IF;
    IF EXISTS (SELECT FROM gristmill.listening) THEN
        INSERT INTO gristmill.event (at, type, batch_id, attempt, positions)
        VALUES (NEW.finished_at, NEW.state, NEW.batch_id, NEW.attempt, NEW.positions);
    END IF;
    RETURN NULL;
END
$$;
