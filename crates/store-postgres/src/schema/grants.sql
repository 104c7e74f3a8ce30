-- Rights. A role that can reach the schema reads the tables and views that it is granted, and changes nothing until it is granted the
-- functions that do.
--
-- A function that changes something runs with its owner's rights (SECURITY DEFINER) where SQL clients may be granted it, and with a
-- pinned search_path. A function that only computes runs with its caller's rights, and anybody may call it; it has a parsed body
-- (BEGIN ATOMIC) or a pinned search_path. So no caller's objects stand in for PostgreSQL's own.
--
-- A trigger function runs with the rights of the role that writes to its table, and nobody but the owner may attach one: a grant on all
-- functions of the schema is taken back from these.
--
-- This file runs last whenever the functions are replaced. Functions that existed before keep the rights that they were granted.
DO $$
DECLARE
    changing regprocedure;
    grantee text;
BEGIN
    FOR changing IN SELECT p.oid::regprocedure FROM pg_proc p
        WHERE p.pronamespace = 'gristmill'::regnamespace AND p.provolatile = 'v'
            AND p.oid <> ALL (current_setting('gristmill.functions_before')::oid[])
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', changing);
    END LOOP;
    FOR changing, grantee IN
        SELECT p.oid::regprocedure, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
        FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a
        WHERE p.pronamespace = 'gristmill'::regnamespace AND p.prorettype = 'trigger'::regtype AND a.grantee <> p.proowner
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %s CASCADE', changing, grantee);
    END LOOP;
END
$$;
