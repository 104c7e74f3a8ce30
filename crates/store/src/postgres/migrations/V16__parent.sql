-- As before, with the job that spawned each. Nothing is looked up for whom the column is not asked.
CREATE OR REPLACE VIEW gristmill.job AS
SELECT b.id || ':' || j.position AS id, b.id AS batch_id, j.position, l.kind, l.queue, r.name AS run, j.state, j.attempt,
    coalesce(-j.rank, b.priority)::smallint AS priority, j.payload, j.value,
    CASE WHEN j.state <> 'completed' THEN (
        SELECT f.error::json ->> 'message' FROM gristmill.failure f
        WHERE f.batch_id = b.id AND f.position = j.position ORDER BY f.lease_id DESC, f.attempt DESC LIMIT 1
    ) END AS error,
    gristmill.moment(b.submitted_at) AS submitted_at, gristmill.moment(j.run_at) AS run_at,
    gristmill.moment(j.finished_at) AS finished_at, j.worker,
    nullif(l.job_group, '') AS job_group,
    (SELECT c.parent_id || ':' || (coalesce(c.parents, s.parents))[width_bucket(j.position, c.bounds)]
        FROM gristmill.child_batch c JOIN gristmill.suspension s ON s.batch_id = c.parent_id AND s.family = c.family
        WHERE c.batch_id = b.id) AS parent_id
FROM gristmill.batch b
JOIN gristmill.lane l ON l.id = b.lane_id
LEFT JOIN gristmill.run r ON r.id = b.run_id
CROSS JOIN LATERAL (
    SELECT (p.number - 1)::integer AS position, p.payload, e.value, e.state, e.attempt, e.run_at, e.finished_at, e.worker, e.rank
    FROM gristmill.unpacked(b.payloads) WITH ORDINALITY AS p (payload, number)
    LEFT JOIN (
        SELECT u.position, u.value, t.state, t.attempt, NULL::bigint AS run_at, t.finished_at, t.worker, NULL::integer AS rank
        FROM gristmill.report t
        CROSS JOIN LATERAL ROWS FROM (gristmill.unpacked(t.positions), gristmill.unpacked(t."values")) AS u (position, value)
        WHERE t.batch_id = b.id
        UNION ALL
        SELECT u.position, NULL, CASE WHEN s.run_at <= extract(epoch FROM now()) * 1000 THEN 'waiting' ELSE 'scheduled' END,
            s.attempt, s.run_at, NULL, NULL, s.rank
        FROM gristmill.slice s CROSS JOIN LATERAL gristmill.unpacked(s.positions) AS u (position)
        WHERE s.batch_id = b.id
        UNION ALL
        SELECT u.position, NULL, 'running', h.attempt, NULL, NULL, w.name, h.rank
        FROM gristmill.held h LEFT JOIN gristmill.worker w ON w.id = h.worker_id
        CROSS JOIN LATERAL gristmill.unpacked(h.positions) AS u (position)
        WHERE h.batch_id = b.id
        UNION ALL
        SELECT u.position, NULL, CASE WHEN w.pauses IS NULL THEN 'blocked' ELSE 'paused' END, w.attempt, NULL, NULL, NULL, w.rank
        FROM gristmill.blocked w CROSS JOIN LATERAL gristmill.unpacked(w.positions) AS u (position)
        WHERE w.batch_id = b.id
    ) e ON e.position = p.number - 1
) j;
