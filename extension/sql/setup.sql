-- Runs queries with batching required and forbidden, and compares.
LOAD 'pg_batchexec';
SET batchexec.explain = off;
SET max_parallel_workers_per_gather = 0;

-- The sorted rows of a query, or its error.
CREATE FUNCTION outcome(query text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    lines text[];
BEGIN
    EXECUTE format('SELECT array_agg(q::text ORDER BY q::text) FROM (%s OFFSET 0) q', query) INTO lines;
    RETURN coalesce(lines, ARRAY['(no rows)']);
EXCEPTION WHEN OTHERS THEN
    RETURN ARRAY[SQLSTATE || ' ' || SQLERRM];
END $$;

-- The batched nodes of a query's plan, outermost first.
CREATE FUNCTION batched_nodes(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    line text;
    nodes text := '';
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
        IF line LIKE '%Custom Scan (Batch%' THEN
            nodes := nodes || ' ' || substring(line FROM 'Batch[A-Z][a-z]+');
        END IF;
    END LOOP;
    RETURN coalesce(nullif(trim(nodes), ''), 'none');
END $$;

CREATE FUNCTION compare(query text) RETURNS TABLE (nodes text, result text) LANGUAGE plpgsql AS $$
DECLARE
    batched text[];
    stock text[];
BEGIN
    PERFORM set_config('batchexec.mode', 'require', true);
    nodes := batched_nodes(query);
    batched := outcome(query);
    PERFORM set_config('batchexec.mode', 'forbid', true);
    stock := outcome(query);
    PERFORM set_config('batchexec.mode', 'allow', true);
    IF batched IS DISTINCT FROM stock THEN
        RAISE EXCEPTION E'results differ: %\nbatched: %\nstock: %', query, batched[1:20], stock[1:20];
    END IF;
    FOREACH result IN ARRAY batched[1:8] LOOP
        RETURN NEXT;
        nodes := '';
    END LOOP;
    IF cardinality(batched) > 8 THEN
        result := format('... %s rows, md5 %s', cardinality(batched), md5(array_to_string(batched, E'\n')));
        RETURN NEXT;
    END IF;
END $$;

-- EXPLAIN (ANALYZE) as all versions print it.
CREATE FUNCTION explain_figures(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) ' || query LOOP
        RETURN NEXT regexp_replace(line, 'actual rows=(\d+)(\.00)? loops', 'actual rows=\1 loops');
    END LOOP;
END $$;
