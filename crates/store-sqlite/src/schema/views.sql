-- Reports and jobs, unpacked. Nothing newer than SQLite 3.38 is used, so that other programs can read the views.

-- Reports as workers sent them, compacted or not: `row_id` is the id of their row, `id` their own.
CREATE VIEW reported AS
SELECT r.id AS row_id, r.id, r.state, r.attempt, r.count, r.finished_at, r.worker, r.positions, r.durations, r.logs, r."values", r.sum
FROM report r WHERE r.parts IS NULL
UNION ALL
SELECT r.id, p.value ->> '$.id', r.state, p.value ->> '$.attempt', p.value ->> '$.count', p.value ->> '$.finished_at',
    p.value ->> '$.worker', p.value ->> '$.positions', r.bodies ->> ('$[' || p.key || '].durations'),
    r.bodies ->> ('$[' || p.key || '].logs'), r.bodies ->> ('$[' || p.key || '].values'), p.value ->> '$.sum'
FROM report r CROSS JOIN json_each(r.parts) p WHERE r.parts IS NOT NULL;

-- One row a job, for people. A condition on batch_id (and position) is fast; other conditions unpack the whole store. Each part of the
-- union walks from its batch to the rows of that batch, so the condition reaches all of them. A window puts the parts together (SQLite
-- hands a condition down through PARTITION BY, and not through GROUP BY); of these, the part with the payload is shown.
--
-- replace() makes a JSON array of ranges of positions such as 0-499,731, and a range becomes its positions as the keys of an array of
-- zeros of its length.
CREATE VIEW job AS
WITH piece AS (
    SELECT b.id AS batch_id, r.state, r.attempt, NULL AS run_at, r.finished_at, r.worker, NULL AS rank,
        r.positions
    FROM batch b CROSS JOIN report r ON r.id >= b.id << 14 AND r.id < (b.id + 1) << 14
    WHERE r.parts IS NULL
    UNION ALL
    SELECT b.id, r.state, p.value ->> '$.attempt', NULL, p.value ->> '$.finished_at', p.value ->> '$.worker', NULL,
        p.value ->> '$.positions'
    FROM batch b CROSS JOIN report r ON r.id >= b.id << 14 AND r.id < (b.id + 1) << 14
        CROSS JOIN json_each(r.parts) p
    UNION ALL
    SELECT b.id, iif(s.run_at <= (julianday('now') - 2440587.5) * 86400000, 'waiting', 'scheduled'), s.attempt, s.run_at, NULL, NULL,
        s.rank, s.positions
    FROM batch b CROSS JOIN slice s
        ON s.lane_id = b.lane_id AND s.rank = -b.priority AND s.run_at = b.run_at AND s.batch_id = b.id
    UNION ALL
    SELECT b.id, iif(s.run_at <= (julianday('now') - 2440587.5) * 86400000, 'waiting', 'scheduled'), s.attempt, s.run_at, NULL, NULL,
        s.rank, s.positions
    FROM batch b CROSS JOIN slice s ON s.strayed = 1 AND s.batch_id = b.id
    UNION ALL
    SELECT h.batch_id, 'running', h.attempt, NULL, NULL, w.name, h.rank, h.positions
    FROM held h LEFT JOIN worker w ON w.id = h.worker_id
    UNION ALL
    SELECT batch_id, iif(pauses IS NULL, 'blocked', 'paused'), attempt, NULL, NULL, NULL, rank, positions FROM blocked
),
value_range AS (
    SELECT batch_id, report_id, part, first, last,
        coalesce(sum(last - first + 1) OVER (
            PARTITION BY batch_id, report_id, part ORDER BY first ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS before
    FROM (
        SELECT b.id AS batch_id, r.id AS report_id, -1 AS part, CAST(g.value AS INTEGER) AS first,
            CAST(substr(g.value, instr(g.value, '-') + 1) AS INTEGER) AS last
        FROM batch b CROSS JOIN report r ON r.id >= b.id << 14 AND r.id < (b.id + 1) << 14
            CROSS JOIN json_each('["' || replace(r.positions, ',', '","') || '"]') g
        WHERE r."values" IS NOT NULL
        UNION ALL
        SELECT b.id, r.id, p.key, CAST(g.value AS INTEGER), CAST(substr(g.value, instr(g.value, '-') + 1) AS INTEGER)
        FROM batch b CROSS JOIN report r ON r.id >= b.id << 14 AND r.id < (b.id + 1) << 14
            CROSS JOIN json_each(r.parts) p
            CROSS JOIN json_each('["' || replace(p.value ->> '$.positions', ',', '","') || '"]') g
    )
),
part AS (
    SELECT b.id AS batch_id, p.key AS position,
        CASE p.type WHEN 'object' THEN p.value WHEN 'array' THEN p.value WHEN 'true' THEN 'true'
            WHEN 'false' THEN 'false' ELSE json_quote(p.value) END AS payload,
        NULL AS value, NULL AS state, NULL AS attempt, NULL AS run_at, NULL AS finished_at, NULL AS worker, NULL AS rank
    FROM batch b CROSS JOIN json_each(b.payloads) p
    UNION ALL
    SELECT v.batch_id, v.first + e.key - v.before, NULL,
        CASE e.type WHEN 'object' THEN e.value WHEN 'array' THEN e.value WHEN 'true' THEN 'true'
            WHEN 'false' THEN 'false' ELSE json_quote(e.value) END,
        NULL, NULL, NULL, NULL, NULL, NULL
    FROM value_range v CROSS JOIN report r ON r.id = v.report_id
        CROSS JOIN json_each(iif(v.part < 0, r."values", r.bodies ->> ('$[' || v.part || '].values'))) e
    WHERE e.key BETWEEN v.before AND v.before + v.last - v.first
    UNION ALL
    SELECT i.batch_id, CAST(g.value AS INTEGER) + n.key, NULL, NULL, i.state, i.attempt, i.run_at, i.finished_at,
        i.worker, i.rank
    FROM piece i CROSS JOIN json_each('["' || replace(i.positions, ',', '","') || '"]') g
        CROSS JOIN json_each('[' || substr(replace(hex(zeroblob(
            CAST(substr(g.value, instr(g.value, '-') + 1) AS INTEGER) - CAST(g.value AS INTEGER) + 1
        )), '00', ',0'), 2) || ']') n
),
whole AS (
    SELECT batch_id, position, payload, max(value) OVER job AS value, max(state) OVER job AS state,
        max(attempt) OVER job AS attempt, max(run_at) OVER job AS run_at, max(finished_at) OVER job AS finished_at,
        max(worker) OVER job AS worker, max(rank) OVER job AS rank
    FROM part WINDOW job AS (PARTITION BY batch_id, position)
)
SELECT w.batch_id || ':' || w.position AS id, w.batch_id, w.position, l.kind, l.queue, nullif(l.job_group, '') AS job_group,
    r.name AS run, w.state, w.attempt, coalesce(-w.rank, b.priority) AS priority, w.payload, w.value,
    CASE WHEN w.state <> 'completed' THEN (
        SELECT f.error ->> '$.message' FROM failure f WHERE f.batch_id = w.batch_id AND f.position = w.position
        ORDER BY f.failed_at DESC, f.attempt DESC, f.lease_id DESC LIMIT 1
    ) END AS error,
    b.submitted_at, max(w.run_at, b.submitted_at) AS run_at, w.finished_at, w.worker
FROM whole w JOIN batch b ON b.id = w.batch_id JOIN lane l ON l.id = b.lane_id LEFT JOIN run r ON r.id = b.run_id
WHERE w.payload IS NOT NULL;
