-- Due slices of some lanes, in the order of claims. Those that others hold come with their id alone. Each row also says how many slices
-- were looked at.
--
-- $1 lanes          $4 bytes wanted                       $7 jobs wanted
-- $2 now            $5 slices looked at, at most
-- $3 highest rank   $6 slices to pass over
--
-- `head` comes before this: see heads.
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
SELECT l.id, t.batch_id, t.id, t.lane_id, t.rank, t.run_at, t.expires_at, t.attempt, t.rescues, t.job_bytes, t.positions, t.awaited,
    t.family, (SELECT count(*) FROM line)
FROM line l
LEFT JOIN LATERAL (
    SELECT * FROM gristmill.slice s WHERE s.batch_id = l.batch_id AND s.id = l.id FOR UPDATE SKIP LOCKED
) t ON true
WHERE l.jobs_before < $7 AND l.bytes_before < $4
