-- The triggers that write events, so that none is left out, whichever client changes the jobs. They exist only while somebody listens,
-- or did lately: even a trigger that does nothing takes 4 us an insert.
CREATE TRIGGER IF NOT EXISTS event_of_batch AFTER INSERT ON batch BEGIN
    INSERT INTO event (at, type, batch_id, positions)
    VALUES (NEW.submitted_at, 'submitted', NEW.id, iif(NEW.count = 1, '0', '0-' || (NEW.count - 1)));
END;

CREATE TRIGGER IF NOT EXISTS event_of_report AFTER INSERT ON report BEGIN
    INSERT INTO event (at, type, batch_id, attempt, positions)
    VALUES (NEW.finished_at, NEW.state, NEW.id >> 14, NEW.attempt, NEW.positions);
END;

CREATE TRIGGER IF NOT EXISTS event_of_failure AFTER INSERT ON failure WHEN NEW.retried_at IS NOT NULL BEGIN
    INSERT INTO event (at, type, batch_id, attempt, run_at, positions)
    VALUES (NEW.failed_at, 'retried', NEW.batch_id, NEW.attempt, NEW.retried_at, CAST(NEW.position AS TEXT));
END;

CREATE TRIGGER IF NOT EXISTS event_of_progress AFTER INSERT ON progress BEGIN
    INSERT INTO event (at, type, worker_id, detail) VALUES (NEW.at, 'progress', NEW.worker_id, NEW.jobs);
END;

CREATE TRIGGER IF NOT EXISTS event_of_further_progress AFTER UPDATE ON progress BEGIN
    INSERT INTO event (at, type, worker_id, detail) VALUES (NEW.at, 'progress', NEW.worker_id, NEW.jobs);
END;
