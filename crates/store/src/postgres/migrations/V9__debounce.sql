-- Payloads that were added to jobs of debounced batches after these were submitted.
CREATE TABLE gristmill.debounced (
    batch_id bigint NOT NULL,
    position integer NOT NULL,
    number   integer NOT NULL, -- their order; always 0 where the last one holds
    count    integer NOT NULL, -- payloads
    payloads text NOT NULL,    -- JSON, with commas between them
    PRIMARY KEY (batch_id, position, number)
);

-- Lets those of these positions of these batches that have not started be claimed from these moments on. Returns which
-- those are.
CREATE FUNCTION gristmill.postpone_jobs(batch_ids bigint[], meant int4multirange[], run_ats bigint[])
RETURNS TABLE (batch_id bigint, positions int4multirange)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM gristmill.cut_open(batch_ids, meant);
    RETURN QUERY
    WITH wanted AS MATERIALIZED (
        SELECT m.batch_id, m.positions, m.run_at FROM unnest(batch_ids, meant, run_ats) AS m (batch_id, positions, run_at)
    ), waiting AS (
        UPDATE gristmill.slice s SET run_at = m.run_at FROM wanted m
        WHERE s.batch_id = m.batch_id AND m.positions @> s.positions AND s.attempt = 1 AND s.rescues = 0
        RETURNING s.batch_id, s.positions
    ), blocked AS (
        UPDATE gristmill.blocked w SET run_at = m.run_at FROM wanted m
        WHERE w.batch_id = m.batch_id AND m.positions @> w.positions AND w.attempt = 1 AND w.rescues = 0
        RETURNING w.batch_id, w.positions
    )
    SELECT w.batch_id, w.positions FROM waiting w UNION ALL SELECT b.batch_id, b.positions FROM blocked b;
END
$$;
REVOKE EXECUTE ON FUNCTION gristmill.postpone_jobs FROM PUBLIC;
