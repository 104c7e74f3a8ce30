-- Stores a batch and its slice, unless its lane is deleted or about to be: then there is no row. The writer's row gets the batch's id,
-- negated, for its operation: a lost answer is looked up by that.
--
-- $1 the writer     $4 lane      $7 options         $10 mean bytes of a job
-- $2 now            $5 count     $8 payloads        $11 rank
-- $3 run_at         $6 priority  $9 expires_at      $12 positions     $13 sum
WITH stored AS (
    INSERT INTO gristmill.batch (id, submitted_at, run_at, lane_id, count, priority, options, payloads, sum)
    SELECT nextval('gristmill.batch_id'), $2::bigint, $3::bigint, l.id, $5::integer, $6::smallint, $7::text, $8::text, $13::bigint
    FROM gristmill.lane l WHERE l.id = $4 AND NOT l.retired RETURNING id
), sliced AS (
    INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, positions)
    SELECT id, $3, $9::bigint, $4, 1, 0, $5, $10::integer, $11::integer, $12::int4multirange FROM stored
)
INSERT INTO gristmill.writer (id, operation) SELECT $1, -id FROM stored
ON CONFLICT (id) DO UPDATE SET operation = excluded.operation, at = excluded.at RETURNING operation
