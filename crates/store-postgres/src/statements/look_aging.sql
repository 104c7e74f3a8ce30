-- `line` for lanes whose jobs age: as in look.sql, but in the order of the aged ranks.
--
-- $8 milliseconds after which the jobs of each lane age    $9 milliseconds for a rank
--
-- The macro `heads` puts `head` before it.
, line AS MATERIALIZED (
    SELECT s.*, coalesce(sum(s.count) OVER before, 0) AS jobs_before,
        coalesce(sum(s.count::bigint * s.job_bytes) OVER before, 0)::bigint AS bytes_before
    FROM (
        SELECT s.*,
            h.rank::bigint - CASE WHEN l.step IS NULL THEN 0 ELSE greatest($2 - s.run_at - l.grace, 0) / l.step END AS counting
        FROM head h JOIN unnest($1::integer[], $8::bigint[], $9::bigint[]) l (id, grace, step) ON l.id = h.lane_id
        CROSS JOIN LATERAL (
            SELECT s.run_at, s.batch_id, s.id, lower(s.positions) AS first, s.count, s.job_bytes FROM gristmill.slice s
            WHERE s.lane_id = h.lane_id AND s.rank = h.rank AND s.run_at <= $2 AND (s.expires_at IS NULL OR s.expires_at > $2)
                AND s.id <> ALL ($6::bigint[])
            ORDER BY s.run_at, s.batch_id, lower(s.positions) LIMIT $5
        ) s
        WHERE h.rank IS NOT NULL ORDER BY counting, s.run_at, s.batch_id, s.first LIMIT $5
    ) s
    WINDOW before AS (ORDER BY s.counting, s.run_at, s.batch_id, s.first ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
