-- Reports and jobs, unpacked.

-- Reports as workers sent them, compacted or not. `row_finished_at` is when the last report of the same row ended.
CREATE OR REPLACE VIEW gristmill.reported AS
SELECT batch_id, first_position, attempt, finished_at, count, state, worker, positions, durations, logs, "values",
    durations_sum_us, duration_buckets, finished_at AS row_finished_at, sum
FROM gristmill.report WHERE parts IS NULL
UNION ALL
SELECT r.batch_id, p.first_position, p.attempt, p.finished_at, p.count, r.state, p.worker, p.positions::int4multirange,
    (r.bodies::json -> p.number) ->> 'durations', (r.bodies::json -> p.number) ->> 'logs', (r.bodies::json -> p.number) ->> 'values',
    p.sum_us, p.buckets, r.finished_at, p.sum
FROM gristmill.report r CROSS JOIN LATERAL json_to_recordset(r.parts::json) AS p (
    number integer, first_position integer, attempt integer, finished_at bigint, count integer, worker text, positions text,
    sum_us bigint, buckets text, sum bigint)
WHERE r.parts IS NOT NULL;

-- One row a job, for people. A condition on batch_id, or a join by it, is fast: it leads to the batch's rows of each table, and
-- unpacks those alone. Other conditions unpack the whole store. (The LATERAL lets PostgreSQL hand a join down; a union of parts under
-- GROUP BY takes constants only.) A query without the column parent_id looks up no parent.
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
        FROM gristmill.reported t
        CROSS JOIN LATERAL ROWS FROM (gristmill.unpacked(t.positions), gristmill.unpacked(t."values")) AS u (position, value)
        WHERE t.batch_id = b.id
        UNION ALL
        SELECT u.position, NULL, CASE WHEN s.run_at <= extract(epoch FROM now()) * 1000 THEN 'waiting' ELSE 'scheduled' END,
            s.attempt, greatest(s.run_at, b.submitted_at), NULL, NULL, s.rank
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

-- Compacts the small reports of completed jobs of those of these batches that have ended and hold more than `rows_min` such reports, of
-- at most `row_bytes_max` bytes each and `bytes_max` together. Skips batches that another transaction changes. Returns how many rows
-- it removed.
CREATE OR REPLACE FUNCTION gristmill.compact(batch_ids bigint[], rows_min bigint, row_bytes_max bigint, bytes_max bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended bigint[];
    gone bigint;
BEGIN
    SELECT coalesce(array_agg(l.id), '{}') INTO ended FROM (
        SELECT b.id FROM gristmill.batch b WHERE b.id = ANY (batch_ids) ORDER BY b.id FOR UPDATE SKIP LOCKED
    ) l
    WHERE NOT EXISTS (SELECT FROM gristmill.slice WHERE batch_id = l.id)
        AND NOT EXISTS (SELECT FROM gristmill.held WHERE batch_id = l.id)
        AND NOT EXISTS (SELECT FROM gristmill.blocked WHERE batch_id = l.id);
    WITH small AS MATERIALIZED (
        SELECT r.*, coalesce(octet_length(r.durations), 0) + coalesce(octet_length(r.logs), 0)
            + coalesce(octet_length(r."values"), 0) AS bytes,
            row_number() OVER (PARTITION BY r.batch_id ORDER BY r.first_position) - 1 AS number
        FROM gristmill.report r
        WHERE r.batch_id = ANY (ended) AND r.state = 'completed' AND r.parts IS NULL
            AND coalesce(octet_length(r.durations), 0) + coalesce(octet_length(r.logs), 0)
            + coalesce(octet_length(r."values"), 0) <= row_bytes_max
    ), merged AS MATERIALIZED (
        SELECT s.batch_id, min(s.first_position) AS first_position, max(s.attempt) AS attempt, max(s.finished_at) AS finished_at,
            sum(s.count)::integer AS count, sum(s.durations_sum_us)::bigint AS sum_us,
            json_agg(json_build_object('number', s.number, 'first_position', s.first_position, 'attempt', s.attempt,
                'finished_at', s.finished_at, 'count', s.count, 'worker', s.worker, 'positions', s.positions::text,
                'sum_us', s.durations_sum_us, 'buckets', s.duration_buckets, 'sum', s.sum) ORDER BY s.number)::text AS parts,
            json_agg(json_build_object('durations', s.durations, 'logs', s.logs, 'values', s."values")
                ORDER BY s.number)::text AS bodies
        FROM small s GROUP BY s.batch_id HAVING count(*) > rows_min AND sum(s.bytes) <= bytes_max
    ), taken AS (
        DELETE FROM gristmill.report r USING small s JOIN merged m ON m.batch_id = s.batch_id
        WHERE r.batch_id = s.batch_id AND r.first_position = s.first_position AND r.first_position <> m.first_position
        RETURNING 1
    ), changed AS (
        UPDATE gristmill.report r SET attempt = m.attempt, finished_at = m.finished_at, count = m.count, worker = NULL,
            positions = (SELECT range_agg(u.one) FROM small s CROSS JOIN LATERAL unnest(s.positions) AS u (one)
                WHERE s.batch_id = m.batch_id),
            durations = NULL, logs = NULL, "values" = NULL, durations_sum_us = m.sum_us, duration_buckets = NULL, sum = NULL,
            parts = m.parts, bodies = m.bodies
        FROM merged m WHERE r.batch_id = m.batch_id AND r.first_position = m.first_position
    )
    SELECT count(*) INTO gone FROM taken;
    RETURN gone;
END
$$;
