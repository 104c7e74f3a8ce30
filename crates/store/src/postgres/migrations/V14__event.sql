-- When the job is tried again; NULL where it is not.
ALTER TABLE gristmill.failure ADD COLUMN retried_at bigint;

-- At most one row: somebody listens to events, or did within the last hour. Without it none is kept.
CREATE TABLE gristmill.listening (
    id             integer PRIMARY KEY CHECK (id = 1),
    until          bigint NOT NULL,
    kept_after_xid bigint NOT NULL, -- all events of later transactions are there
    kept_after_id  bigint NOT NULL
);

-- What happened. Transactions are not committed in the order of their numbers: whoever reads the events stops before
-- the oldest that is still open.
CREATE TABLE gristmill.event (
    xid       xid8 NOT NULL DEFAULT pg_current_xact_id(),
    id        bigint GENERATED ALWAYS AS IDENTITY,
    at        bigint NOT NULL,
    type      text NOT NULL,
    batch_id  bigint,
    attempt   integer,
    run_at    bigint,
    worker_id bigint,
    positions int4multirange, -- of a batch's submission, all
    detail    text,
    PRIMARY KEY (xid, id)
);

CREATE FUNCTION gristmill.note_batch() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM gristmill.listening) THEN
        INSERT INTO gristmill.event (at, type, batch_id, positions)
        VALUES (NEW.submitted_at, 'submitted', NEW.id, int4multirange(int4range(0, NEW.count)));
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER note AFTER INSERT ON gristmill.batch FOR EACH ROW EXECUTE FUNCTION gristmill.note_batch();

CREATE FUNCTION gristmill.note_report() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM gristmill.listening) THEN
        INSERT INTO gristmill.event (at, type, batch_id, attempt, positions)
        VALUES (NEW.finished_at, NEW.state, NEW.batch_id, NEW.attempt, NEW.positions);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER note AFTER INSERT ON gristmill.report FOR EACH ROW EXECUTE FUNCTION gristmill.note_report();

-- Failures are many in one statement, where reports are few.
CREATE FUNCTION gristmill.note_failures() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
CREATE TRIGGER note AFTER INSERT ON gristmill.failure REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION gristmill.note_failures();

CREATE FUNCTION gristmill.note_progress() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM gristmill.listening) THEN
        INSERT INTO gristmill.event (at, type, worker_id, detail) VALUES (NEW.at, 'progress', NEW.worker_id, NEW.jobs);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER note AFTER INSERT OR UPDATE ON gristmill.progress FOR EACH ROW EXECUTE FUNCTION gristmill.note_progress();

REVOKE EXECUTE ON FUNCTION gristmill.note_batch(), gristmill.note_report(), gristmill.note_failures(),
    gristmill.note_progress() FROM PUBLIC;
