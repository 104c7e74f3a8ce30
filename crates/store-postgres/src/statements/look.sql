-- `line`: due slices of some lanes, in the order of claims. take_line.sql follows.
--
-- $1 lanes          $4 bytes wanted                       $7 jobs wanted
-- $2 now            $5 slices looked at, at most
-- $3 highest rank   $6 slices to pass over
--
-- The macro `heads` puts `head` before it.
, line AS MATERIALIZED (
    SELECT s.*, coalesce(sum(s.count) OVER before, 0) AS jobs_before,
        coalesce(sum(s.count::bigint * s.job_bytes) OVER before, 0)::bigint AS bytes_before
    FROM (
        SELECT s.* FROM head h CROSS JOIN LATERAL (
            SELECT s.rank, s.run_at, s.batch_id, s.id, lower(s.positions) AS first, s.count, s.job_bytes FROM gristmill.slice s
            WHERE s.lane_id = h.lane_id AND s.rank = h.rank AND s.run_at <= $2 AND (s.expires_at IS NULL OR s.expires_at > $2)
                AND s.id <> ALL ($6::bigint[])
            ORDER BY s.run_at, s.batch_id, lower(s.positions) LIMIT $5
        ) s
        WHERE h.rank IS NOT NULL ORDER BY s.rank, s.run_at, s.batch_id, s.first LIMIT $5
    ) s
    WINDOW before AS (ORDER BY s.rank, s.run_at, s.batch_id, s.first ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
