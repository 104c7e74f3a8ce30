-- Batches with tags say so in their options, so that a claim looks for tags only where there are some.
UPDATE gristmill.batch SET options = (coalesce(options::jsonb, '{}') || '{"tagged": true}')::text
WHERE id IN (SELECT batch_id FROM gristmill.tag);

-- As before, and says so.
CREATE OR REPLACE FUNCTION gristmill.insert_tags(batch_id bigint, jobs integer, first integer, tags jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF tags IS NULL THEN
        RETURN;
    ELSIF jsonb_typeof(tags) = 'object' THEN
        INSERT INTO gristmill.tag (batch_id, count, name, value)
        SELECT insert_tags.batch_id, jobs, t.key, t.value FROM jsonb_each_text(tags) t;
    ELSE
        INSERT INTO gristmill.tag (batch_id, count, name, value, positions)
        SELECT insert_tags.batch_id, count(*), t.key, t.value,
            CASE WHEN count(*) < jobs THEN range_agg(int4range((e.number - first)::integer, (e.number - first + 1)::integer)) END
        FROM jsonb_array_elements(tags) WITH ORDINALITY AS e (item, number)
        CROSS JOIN LATERAL jsonb_each_text(CASE jsonb_typeof(e.item) WHEN 'object' THEN e.item ELSE '{}' END) t
        WHERE e.number >= first AND e.number < first + jobs
        GROUP BY t.key, t.value;
    END IF;
    IF FOUND THEN
        UPDATE gristmill.batch b SET options = (coalesce(b.options::jsonb, '{}') || '{"tagged": true}')::text
        WHERE b.id = insert_tags.batch_id;
    END IF;
END
$$;
