//! Rights of roles.

use gristmill_store::Store;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::Client;

use super::case::{Case, refusal, row, texts};

/// Makes a new role without rights, and connects as that role.
async fn connect_as_new_role(case: &Case) -> (String, Client) {
    let client = case.client().await;
    // Roles belong to the server, but databases belong to one test.
    let role: String = row(&client, "SELECT 'client_of_' || current_database()", &[])
        .await
        .get(0);
    client
        .batch_execute(&format!("CREATE ROLE {role} LOGIN; SET ROLE {role}"))
        .await
        .unwrap();
    (role, client)
}

/// Without a grant, a role cannot reach the schema; with only the schema, it can change and read nothing.
#[tokio::test]
async fn nothing_is_allowed_that_is_not_granted() {
    let case = Case::new().await;
    let (role, client) = connect_as_new_role(&case).await;
    let error = refusal(&client, "SELECT gristmill.submit('work', '1')").await;
    assert!(
        error.message().contains("permission denied for schema gristmill"),
        "{error}"
    );
    let owner = case.client().await;
    owner
        .batch_execute(&format!("GRANT USAGE ON SCHEMA gristmill TO {role}"))
        .await
        .unwrap();
    for sql in [
        "SELECT gristmill.submit('work', '1')",
        "SELECT gristmill.submit('work', '1'::json)",
        "SELECT gristmill.submit('work', '1'::jsonb)",
        "SELECT gristmill.submit('work', ARRAY['1']::json[])",
        "SELECT gristmill.submit('work', ARRAY['1']::jsonb[])",
        "SELECT gristmill.cancel('1:1')",
        "SELECT gristmill.cancel(ARRAY['1:1'])",
        "SELECT gristmill.retry('1:1')",
        "SELECT gristmill.retry(ARRAY['1:1'])",
        "SELECT gristmill.prioritise('1:1', 1)",
        "SELECT gristmill.prioritise(ARRAY['1:1'], 1)",
        "SELECT gristmill.discard('1:1')",
        "SELECT gristmill.discard(ARRAY['1:1'])",
        "SELECT gristmill.send_event('1:1', 'approve')",
        "SELECT gristmill.cancel_open('{1}', '{\"{(,)}\"}', '{}', 0)",
        "SELECT gristmill.insert_batch(1, ARRAY['1'], 0, NULL, NULL, 0, NULL)",
        "SELECT gristmill.wake()",
        "SELECT gristmill.compact('{1}', 1, 1, 1)",
        "SELECT * FROM gristmill.job",
        "SELECT payloads FROM gristmill.batch",
        "DELETE FROM gristmill.report",
    ] {
        let error = refusal(&client, sql).await;
        assert_eq!(error.code().code(), "42501", "{sql}: {error}");
    }
}

/// Makes the grants of docs/sql.md.
async fn grant_functions(owner: &Client, role: &str) {
    owner
        .batch_execute(&format!(
            "GRANT USAGE ON SCHEMA gristmill TO {role};
             DO $$
             DECLARE
                 granted regprocedure;
             BEGIN
                 FOR granted IN SELECT oid::regprocedure FROM pg_proc
                     WHERE pronamespace = 'gristmill'::regnamespace
                         AND proname IN ('submit', 'cancel', 'retry', 'discard', 'prioritise', 'pause', 'resume', 'send_event')
                 LOOP
                     EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO {role}', granted);
                 END LOOP;
             END
             $$;"
        ))
        .await
        .unwrap();
}

/// A role that attaches the store's triggers to its own tables cannot write events: neither with the documented grants,
/// nor with a grant on all functions.
#[tokio::test]
async fn trigger_functions_forge_no_events() {
    let case = Case::new().await;
    let (role, client) = connect_as_new_role(&case).await;
    let owner = case.client().await;
    // Without a listener there would be no events to forge.
    case.store.listen().await.unwrap();
    grant_functions(&owner, &role).await;
    owner
        .batch_execute(&format!("CREATE SCHEMA own_{role} AUTHORIZATION {role}"))
        .await
        .unwrap();
    client
        .batch_execute(&format!(
            "SET search_path = own_{role};
             CREATE TABLE batch (id bigint, submitted_at bigint, count integer);
             CREATE TABLE report (batch_id bigint, finished_at bigint, state text, attempt integer, positions int4multirange);
             CREATE TABLE failure (failed_at bigint, batch_id bigint, attempt integer, retried_at bigint, position integer);
             CREATE TABLE progress (worker_id bigint, at bigint, jobs text);"
        ))
        .await
        .unwrap();
    let triggers = [
        (
            "batch FOR EACH ROW EXECUTE FUNCTION gristmill.note_batch()",
            "INSERT INTO batch VALUES (7, 0, 1)",
        ),
        (
            "report FOR EACH ROW EXECUTE FUNCTION gristmill.note_report()",
            "INSERT INTO report VALUES (7, 0, 'completed', 1, '{[0,1)}')",
        ),
        (
            "failure REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION gristmill.note_failures()",
            "INSERT INTO failure VALUES (0, 7, 1, 0, 0)",
        ),
        (
            "progress FOR EACH ROW EXECUTE FUNCTION gristmill.note_progress()",
            "INSERT INTO progress VALUES (7, 0, '[]')",
        ),
    ];
    for (trigger, _) in triggers {
        let error = refusal(&client, &format!("CREATE TRIGGER note AFTER INSERT ON {trigger}")).await;
        assert_eq!(error.code().code(), "42501", "{trigger}: {error}");
    }
    // Earlier documentation named this grant.
    owner
        .batch_execute(&format!(
            "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA gristmill TO {role}"
        ))
        .await
        .unwrap();
    for (trigger, insert) in triggers {
        client
            .batch_execute(&format!("CREATE TRIGGER note AFTER INSERT ON {trigger}"))
            .await
            .unwrap();
        let error = refusal(&client, insert).await;
        assert_eq!(error.code().code(), "42501", "{insert}: {error}");
    }
    let events: i64 = row(&owner, "SELECT count(*) FROM gristmill.event", &[])
        .await
        .get(0);
    assert_eq!(events, 0);
}

/// Replacing the code revokes a grant on a trigger function.
#[tokio::test]
async fn grants_on_trigger_functions_are_taken_back() {
    let case = Case::new().await;
    let (role, _client) = connect_as_new_role(&case).await;
    let owner = case.client().await;
    owner
        .batch_execute(&format!(
            "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA gristmill TO {role};
             UPDATE gristmill.layout SET code = 'of another program'"
        ))
        .await
        .unwrap();
    case.store.close().await.unwrap();
    let options = PostgresOptions::new(case.clock.clone(), 8);
    PostgresStore::open(&case.url, options).await.unwrap();
    let granted = texts(
        &owner,
        "SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = 'gristmill'::regnamespace \
         AND p.prorettype = 'trigger'::regtype AND has_function_privilege($1::text::name, p.oid, 'EXECUTE')",
        &[&role],
    )
    .await;
    assert_eq!(granted, [""; 0]);
    let kept: bool = row(
        &owner,
        "SELECT has_function_privilege($1::text::name, 'gristmill.cancel(text[])', 'EXECUTE')",
        &[&role],
    )
    .await
    .get(0);
    assert!(kept, "other grants stay");
}

/// With the documented grants, a role can submit, cancel and retry, and look at jobs, but cannot touch the tables.
#[tokio::test]
async fn the_documented_grants_suffice() {
    let case = Case::new().await;
    let (role, client) = connect_as_new_role(&case).await;
    let owner = case.client().await;
    grant_functions(&owner, &role).await;
    owner
        .batch_execute(&format!("GRANT SELECT ON gristmill.job TO {role}"))
        .await
        .unwrap();
    let ids = texts(
        &client,
        "SELECT gristmill.submit('work', ARRAY['1', '2']::json[])",
        &[],
    )
    .await;
    let single = texts(&client, "SELECT gristmill.submit('work', jsonb '3')", &[]).await;
    let changed = row(
        &client,
        "SELECT gristmill.cancel($1::text[]), gristmill.retry($2::text)",
        &[&ids, &ids[1]],
    )
    .await;
    assert_eq!((changed.get::<_, i64>(0), changed.get::<_, bool>(1)), (2, true));
    let sent = texts(
        &client,
        "SELECT gristmill.send_event($1, 'approve')",
        &[&single[0]],
    )
    .await;
    assert_eq!(sent, ["kept"]);
    let states = texts(
        &client,
        "SELECT id || ' ' || state FROM gristmill.job ORDER BY batch_id, position",
        &[],
    )
    .await;
    assert_eq!(
        states,
        [
            format!("{} cancelled", ids[0]),
            format!("{} waiting", ids[1]),
            format!("{} waiting", single[0])
        ]
    );
    for sql in [
        "SELECT payloads FROM gristmill.batch",
        "INSERT INTO gristmill.lane (id, queue, kind, job_group) VALUES (9, 'a', 'b', '')",
        "SELECT gristmill.cancel_open('{1}', '{\"{(,)}\"}', '{}', 0)",
        "SELECT gristmill.intern_lane('a', 'b', 'c', 10)",
        "TRUNCATE gristmill.slice",
    ] {
        let error = refusal(&client, sql).await;
        assert_eq!(error.code().code(), "42501", "{sql}: {error}");
    }
}

/// A role that may only read sees every job, and changes none.
#[tokio::test]
async fn looking_needs_the_view_alone() {
    let case = Case::new().await;
    let owner = case.client().await;
    texts(&owner, "SELECT gristmill.submit('work', '1')", &[]).await;
    let (role, client) = connect_as_new_role(&case).await;
    owner
        .batch_execute(&format!(
            "GRANT USAGE ON SCHEMA gristmill TO {role}; GRANT SELECT ON gristmill.job TO {role};"
        ))
        .await
        .unwrap();
    let shown = texts(
        &client,
        "SELECT state || ' ' || payload || ' ' || (run_at <= now()) FROM gristmill.job",
        &[],
    )
    .await;
    assert_eq!(shown, ["waiting 1 true"]);
    let error = refusal(
        &client,
        "SELECT gristmill.cancel(array_agg(id)) FROM gristmill.job",
    )
    .await;
    assert_eq!(error.code().code(), "42501", "{error}");
}

/// A caller's own functions and operators do not replace those of PostgreSQL in code that runs with the owner's rights.
#[tokio::test]
async fn the_search_path_of_the_caller_does_not_count() {
    let case = Case::new().await;
    let client = case.client().await;
    client
        .batch_execute(
            "CREATE SCHEMA evil;
             CREATE FUNCTION evil.caught() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'caught'; END $$;
             CREATE FUNCTION evil.octet_length(text) RETURNS integer LANGUAGE sql AS 'SELECT evil.caught()::integer';
             CREATE FUNCTION evil.lower(int4range) RETURNS integer LANGUAGE sql AS 'SELECT evil.caught()::integer';
             CREATE FUNCTION evil.equal(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT evil.caught()';
             CREATE FUNCTION evil.minus(int4multirange, int4multirange) RETURNS int4multirange LANGUAGE sql
                 AS 'SELECT evil.caught()::text::int4multirange';
             CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.equal);
             CREATE OPERATOR evil.- (LEFTARG = int4multirange, RIGHTARG = int4multirange, FUNCTION = evil.minus);
             SET search_path = evil, pg_catalog",
        )
        .await
        .unwrap();
    let caught = refusal(&client, "SELECT 'a'::text = 'b'::text").await;
    assert_eq!(caught.message(), "caught");
    let ids = texts(
        &client,
        "SELECT gristmill.submit('work', ARRAY['1', '2']::json[])",
        &[],
    )
    .await;
    texts(
        &client,
        "SELECT gristmill.submit('work', '\"\\ud83d\\ude00\"', options => '{\"retry\": {}}')",
        &[],
    )
    .await;
    row(&client, "SELECT gristmill.cancel($1::text[])", &[&ids]).await;
    row(&client, "SELECT gristmill.retry($1::text[])", &[&ids]).await;
    let rows = texts(&client, "SELECT id FROM gristmill.job", &[]).await;
    assert_eq!(rows.len(), 3);
}
