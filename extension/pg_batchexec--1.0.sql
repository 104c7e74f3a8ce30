\echo Use "CREATE EXTENSION pg_batchexec" to load this file. \quit
-- The library works without this extension in a database: LOAD it, or list it
-- in shared_preload_libraries or session_preload_libraries.
