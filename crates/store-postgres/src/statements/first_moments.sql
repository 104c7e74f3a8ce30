-- The first moments of some lanes: of all their slices, and of those that are not due yet.
--
-- $1 lanes    $2 now
WITH RECURSIVE head (lane_id, rank) AS (
    SELECT l.id, (SELECT s.rank FROM gristmill.slice s WHERE s.lane_id = l.id ORDER BY s.rank LIMIT 1)
    FROM unnest($1::integer[]) l (id)
    UNION ALL
    SELECT h.lane_id, (SELECT s.rank FROM gristmill.slice s WHERE s.lane_id = h.lane_id AND s.rank > h.rank ORDER BY s.rank LIMIT 1)
    FROM head h WHERE h.rank IS NOT NULL
)
SELECT h.lane_id, min(f.run_at), min(n.run_at)
FROM head h
CROSS JOIN LATERAL (
    SELECT s.run_at FROM gristmill.slice s WHERE s.lane_id = h.lane_id AND s.rank = h.rank ORDER BY s.run_at LIMIT 1
) f
LEFT JOIN LATERAL (
    SELECT s.run_at FROM gristmill.slice s WHERE s.lane_id = h.lane_id AND s.rank = h.rank AND s.run_at > $2
    ORDER BY s.run_at LIMIT 1
) n ON true
WHERE h.rank IS NOT NULL GROUP BY h.lane_id
