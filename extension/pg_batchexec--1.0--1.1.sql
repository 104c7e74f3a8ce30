\echo Use "ALTER EXTENSION pg_batchexec UPDATE TO '1.1'" to load this file. \quit
-- What batched nodes have done, in all sessions. The library must be in shared_preload_libraries.
CREATE FUNCTION pg_stat_batchexec(
    OUT node text,
    OUT runs bigint,
    OUT original_runs bigint,
    OUT batches bigint,
    OUT rows bigint,
    OUT pages bigint,
    OUT irregular_pages bigint,
    OUT batches_by_row bigint,
    OUT rows_beyond_top bigint,
    OUT group_flushes bigint,
    OUT saved_cost double precision,
    OUT stats_reset timestamp with time zone)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW pg_stat_batchexec AS SELECT * FROM pg_stat_batchexec();
GRANT SELECT ON pg_stat_batchexec TO PUBLIC;

CREATE FUNCTION pg_stat_batchexec_reset() RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION pg_stat_batchexec_reset() FROM PUBLIC;
