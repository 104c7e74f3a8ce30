-- Stores a batch and its slice. The writer's row gets the batch's id, negated, for its operation: a lost answer is looked up by that.
--
-- $1 the writer     $4 lane      $7 options         $10 mean bytes of a job
-- $2 now            $5 count     $8 payloads        $11 rank
-- $3 run_at         $6 priority  $9 expires_at      $12 positions     $13 sum
WITH stored AS (
    INSERT INTO gristmill.batch (id, submitted_at, run_at, lane_id, count, priority, options, payloads, sum)
    VALUES (nextval('gristmill.batch_id'), $2, $3, $4, $5, $6, $7, $8, $13) RETURNING id
), sliced AS (
    INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, positions)
    SELECT id, $3, $9, $4, 1, 0, $5, $10, $11, $12 FROM stored
)
INSERT INTO gristmill.writer (id, operation) SELECT $1, -id FROM stored
ON CONFLICT (id) DO UPDATE SET operation = excluded.operation, at = excluded.at RETURNING operation
