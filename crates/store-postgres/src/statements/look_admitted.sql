-- Due slices of lanes with controls, by the rank that counts.
--
-- $1 lanes, and for each of them                          $5  now
-- $2 jobs that are wanted                                 $7  slices to pass over
-- $3 milliseconds after which its jobs age                $8  slices, at most
-- $4 milliseconds for a rank                              $9  whether the lanes take turns
-- $6 slices looked at in each rank                        $10 highest rank
--
-- A rank with as many slices as are looked at may have more of them. They come after the last one that was found, so no slice
-- of the lane after that one is given.
--
-- Each row also says whether its rank may have more, and whether fewer slices of its lane hold the jobs than were found.
WITH RECURSIVE lane AS MATERIALIZED (
    SELECT * FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $6::bigint[]) l (id, jobs, grace, step, slices)
), head (lane_id, jobs, grace, step, slices, rank) AS (
    SELECT l.id, l.jobs, l.grace, l.step, l.slices,
        (SELECT s.rank FROM gristmill.slice s WHERE s.lane_id = l.id AND s.rank <= $10::integer ORDER BY s.rank LIMIT 1)
    FROM lane l
    UNION ALL
    SELECT h.lane_id, h.jobs, h.grace, h.step, h.slices,
        (SELECT s.rank FROM gristmill.slice s WHERE s.lane_id = h.lane_id AND s.rank > h.rank AND s.rank <= $10::integer
        ORDER BY s.rank LIMIT 1)
    FROM head h WHERE h.rank IS NOT NULL
)
SELECT batch_id, id, lane_id, counting, run_at, first, count, job_bytes, found = slices,
    count(*) OVER (PARTITION BY lane_id) < found
FROM (
    SELECT s.*, count(*) FILTER (WHERE is_last_known) OVER (PARTITION BY lane_id ORDER BY counting, run_at, batch_id, first
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS ranks_unknown
    FROM (
        SELECT s.*, h.lane_id, h.jobs, h.slices, r.counting, count(*) OVER (PARTITION BY h.lane_id, h.rank) AS found,
            row_number() OVER (PARTITION BY h.lane_id, h.rank ORDER BY s.run_at, s.batch_id, s.first) = h.slices
                AS is_last_known,
            row_number() OVER line AS number, sum(s.count) OVER line - s.count AS jobs_before
        FROM head h
        CROSS JOIN LATERAL (
            SELECT s.batch_id, s.id, s.run_at, lower(s.positions) AS first, s.count, s.job_bytes FROM gristmill.slice s
            WHERE s.lane_id = h.lane_id AND s.rank = h.rank AND s.run_at <= $5 AND (s.expires_at IS NULL OR s.expires_at > $5)
                AND s.id <> ALL ($7::bigint[])
            ORDER BY s.run_at, s.batch_id, lower(s.positions) LIMIT h.slices
        ) s
        CROSS JOIN LATERAL (
            SELECT h.rank::bigint - CASE WHEN h.step IS NULL THEN 0 ELSE greatest($5 - s.run_at - h.grace, 0) / h.step END
        ) r (counting)
        WHERE h.rank IS NOT NULL
        WINDOW line AS (PARTITION BY h.lane_id ORDER BY r.counting, s.run_at, s.batch_id, s.first
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
    ) s
) s
WHERE jobs_before < jobs AND ranks_unknown = 0
ORDER BY CASE WHEN $9 THEN number END, counting, run_at, batch_id, first LIMIT $8
