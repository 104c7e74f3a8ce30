-- Events. Triggers write them, so that none is left out, whichever client changes the jobs. They write none while the table
-- `listening` is empty.
--
-- They run with the rights of the role that writes the row: a role that attaches one to a table of its own forges no event.

CREATE OR REPLACE FUNCTION gristmill.note_batch() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM gristmill.listening) THEN
        INSERT INTO gristmill.event (at, type, batch_id, positions)
        VALUES (NEW.submitted_at, 'submitted', NEW.id, int4multirange(int4range(0, NEW.count)));
    END IF;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER note AFTER INSERT ON gristmill.batch FOR EACH ROW EXECUTE FUNCTION gristmill.note_batch();

-- Tells the processes that await this batch, too. A NOTIFY takes a lock of the whole server at COMMIT, so only reports of awaited
-- batches send one.
CREATE OR REPLACE FUNCTION gristmill.note_report() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
CREATE OR REPLACE TRIGGER note AFTER INSERT ON gristmill.report FOR EACH ROW EXECUTE FUNCTION gristmill.note_report();

-- A statement adds many failures, where it adds few reports: hence one trigger a statement.
CREATE OR REPLACE FUNCTION gristmill.note_failures() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM gristmill.listening) THEN
        INSERT INTO gristmill.event (at, type, batch_id, attempt, run_at, positions)
        SELECT failed_at, 'retried', batch_id, attempt, retried_at, range_agg(int4range(position, position, '[]'))
        FROM added WHERE retried_at IS NOT NULL
        GROUP BY failed_at, batch_id, attempt, retried_at ORDER BY batch_id, attempt;
    END IF;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER note AFTER INSERT ON gristmill.failure REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION gristmill.note_failures();

CREATE OR REPLACE FUNCTION gristmill.note_progress() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM gristmill.listening) THEN
        INSERT INTO gristmill.event (at, type, worker_id, detail) VALUES (NEW.at, 'progress', NEW.worker_id, NEW.jobs);
    END IF;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER note AFTER INSERT OR UPDATE ON gristmill.progress FOR EACH ROW EXECUTE FUNCTION gristmill.note_progress();
