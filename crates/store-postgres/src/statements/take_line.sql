-- Locks the slices of `line` (look.sql or look_aging.sql) up to the wanted jobs `$7` and bytes `$4`. A slice that another transaction
-- holds comes with its id alone. The last columns have the number of slices in `line`, and whether this transaction has made or
-- changed the slice.
SELECT l.id, t.batch_id, t.id, t.lane_id, t.rank, t.run_at, t.expires_at, t.attempt, t.rescues, t.job_bytes, t.positions, t.awaited,
    t.family, (SELECT count(*) FROM line), t.is_new
FROM line l
LEFT JOIN LATERAL (
    SELECT s.*, s.xmin = pg_current_xact_id()::xid AS is_new FROM gristmill.slice s
    WHERE s.batch_id = l.batch_id AND s.id = l.id FOR UPDATE SKIP LOCKED
) t ON true
WHERE l.jobs_before < $7 AND l.bytes_before < $4
