-- Takes all due slices of some lanes under a lease, if they are few and no control, limit or new lane interferes.
--
-- $1 lanes                    $5 slices looked at, at most    $9  version of the controls that this process knows
-- $2 now                      $6 last lane it knows           $10 the lease
-- $3 highest rank             $7 jobs wanted                  $11 the writer, and
-- $4 bytes wanted             $8 the worker                   $12 its operation
--                                                             $13 bytes of payloads that come along, at most
--
-- Returns a row a slice, each with the id of a further lease; or one row without a slice. The macro `heads` puts `head` before it.
, registered AS MATERIALIZED (
    SELECT id FROM gristmill.worker WHERE id = $8 FOR KEY SHARE
), due AS MATERIALIZED (
    SELECT s.* FROM head h CROSS JOIN LATERAL (
        SELECT s.batch_id, s.id, s.count, s.job_bytes, s.family FROM gristmill.slice s
        WHERE s.lane_id = h.lane_id AND s.rank = h.rank AND s.run_at <= $2 AND (s.expires_at IS NULL OR s.expires_at > $2)
        ORDER BY s.run_at, s.batch_id, lower(s.positions) LIMIT $5
    ) s
    WHERE h.rank IS NOT NULL LIMIT $5
), verdict AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM registered) AS registered,
        count(*) < $5
        AND coalesce(sum(count) <= $7::bigint AND sum(count::bigint * job_bytes)::bigint <= $4::bigint AND bool_and(family IS NULL), true)
        AND NOT EXISTS (SELECT FROM gristmill.lane WHERE id > $6)
        AND NOT EXISTS (SELECT FROM gristmill.control_version WHERE version <> $9) AS fits
    FROM due
), taken AS MATERIALIZED (
    SELECT t.* FROM verdict v JOIN due d ON v.registered AND v.fits
    CROSS JOIN LATERAL (
        SELECT * FROM gristmill.slice s WHERE s.batch_id = d.batch_id AND s.id = d.id FOR UPDATE SKIP LOCKED
    ) t
), gone AS (
    DELETE FROM gristmill.slice s
    USING unnest(ARRAY(SELECT batch_id FROM taken), ARRAY(SELECT id FROM taken)) k (batch_id, id)
    WHERE s.batch_id = k.batch_id AND s.id = k.id
), held AS (
    INSERT INTO gristmill.held (lease_id, batch_id, attempt, first_position, worker_id, run_at, expires_at, rescues, count, lane_id,
        positions, awaited, rank, claimed_at, family)
    SELECT $10::bigint, batch_id, attempt, lower(positions), $8, run_at, expires_at, rescues, count, lane_id, positions, awaited,
        rank, $2, family FROM taken
), marked AS (
    INSERT INTO gristmill.writer (id, operation) VALUES ($11, $12)
    ON CONFLICT (id) DO UPDATE SET operation = excluded.operation, at = excluded.at
    RETURNING set_config('synchronous_commit', 'off', true)
)
SELECT v.registered, v.fits,
    CASE WHEN v.fits THEN (
        SELECT min(s.run_at) FROM head h CROSS JOIN LATERAL (
            SELECT s.run_at FROM gristmill.slice s
            WHERE s.lane_id = h.lane_id AND s.rank = h.rank AND s.run_at > $2 ORDER BY s.run_at LIMIT 1
        ) s WHERE h.rank IS NOT NULL
    ) END,
    t.batch_id, t.id, t.lane_id, t.rank, t.run_at, t.expires_at, t.attempt, t.rescues, t.job_bytes, t.positions, t.awaited, t.family,
    b.id, b.lane_id, b.priority, b.submitted_at, b.run_at, b.options,
    gristmill.batch_bytes(b.id, octet_length(b.payloads), b.options), b.count,
    CASE WHEN octet_length(b.payloads) <= $13 THEN b.payloads END,
    (SELECT nextval('gristmill.lease_id') WHERE EXISTS (SELECT FROM taken)), b.sum,
    -- Whether other transactions have locked some.
    v.fits AND (SELECT count(*) FROM taken) < (SELECT count(*) FROM due)
FROM marked CROSS JOIN verdict v
LEFT JOIN (taken t CROSS JOIN LATERAL (SELECT * FROM gristmill.batch WHERE id = t.batch_id OFFSET 0) b) ON true
ORDER BY t.rank, t.run_at, t.batch_id, lower(t.positions)
