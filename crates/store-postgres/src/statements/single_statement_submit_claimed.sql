-- Stores a batch as single_statement_submit.sql does, but under a lease of a worker, where that is registered, nothing is
-- due in its lanes, and this process knows all lanes and controls. Says which lease that is, and when the next slice of these lanes is due.
--
-- $1 to $13 are those of single_statement_submit.sql. The macro `heads` puts `head` before it.
--
-- $14 the worker    $15 its lanes    $16 highest rank    $17 last lane known    $18 version of the controls known
, registered AS MATERIALIZED (
    SELECT id FROM gristmill.worker WHERE id = $14 FOR KEY SHARE
), verdict AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM registered)
        AND NOT EXISTS (SELECT FROM gristmill.lane WHERE id > $17)
        AND NOT EXISTS (SELECT FROM gristmill.control_version WHERE version <> $18)
        AND NOT EXISTS (
            SELECT FROM head h CROSS JOIN LATERAL (
                SELECT FROM gristmill.slice s WHERE s.lane_id = h.lane_id AND s.rank = h.rank AND s.run_at <= $2
                    AND (s.expires_at IS NULL OR s.expires_at > $2) LIMIT 1
            ) s WHERE h.rank IS NOT NULL
        ) AS taken
), stored AS (
    INSERT INTO gristmill.batch (id, submitted_at, run_at, lane_id, count, priority, options, payloads, sum)
    SELECT nextval('gristmill.batch_id'), $2::bigint, $3::bigint, l.id, $5::integer, $6::smallint, $7::text, $8::text,
        $13::bigint
    FROM verdict, gristmill.lane l WHERE l.id = $4 AND NOT l.retired RETURNING id
), sliced AS (
    INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, positions)
    SELECT id, $3, $9::bigint, $4, 1, 0, $5, $10::integer, $11::integer, $12::int4multirange FROM stored, verdict
    WHERE NOT taken
), held AS (
    INSERT INTO gristmill.held (lease_id, batch_id, attempt, first_position, worker_id, run_at, expires_at, rescues, count, lane_id,
        positions, awaited, rank, claimed_at)
    SELECT nextval('gristmill.lease_id'), id, 1, 0, $14::bigint, $3, $9, 0, $5, $4, $12, false, $11, $2 FROM stored, verdict
    WHERE taken RETURNING lease_id
)
INSERT INTO gristmill.writer (id, operation) SELECT $1, -id FROM stored
ON CONFLICT (id) DO UPDATE SET operation = excluded.operation, at = excluded.at
RETURNING operation, (SELECT lease_id FROM held), (
    SELECT min(s.run_at) FROM head h CROSS JOIN LATERAL (
        SELECT s.run_at FROM gristmill.slice s
        WHERE s.lane_id = h.lane_id AND s.rank = h.rank AND s.run_at > $2 ORDER BY s.run_at LIMIT 1
    ) s WHERE h.rank IS NOT NULL)
