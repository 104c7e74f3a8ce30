//! Who may do what.

use tokio_postgres::Client;

use crate::case::{Case, refusal, row, texts};

/// A new role without rights, and the connection as that role.
async fn connect_as_new_role(case: &Case) -> (String, Client) {
    let client = case.client().await;
    // Roles belong to the server, databases are a test's own.
    let role: String = row(&client, "SELECT 'client_of_' || current_database()", &[])
        .await
        .get(0);
    client
        .batch_execute(&format!("CREATE ROLE {role} LOGIN; SET ROLE {role}"))
        .await
        .unwrap();
    (role, client)
}

/// Without a grant, the schema cannot be reached; with the schema alone, nothing can be changed or read.
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
        "SELECT gristmill.cancel_jobs('{1}', '{\"{(,)}\"}', '{}', 0)",
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

/// The grants of the documentation: a role that submits, cancels and retries, and looks at jobs, and cannot touch the
/// tables.
#[tokio::test]
async fn the_documented_grants_suffice() {
    let case = Case::new().await;
    let (role, client) = connect_as_new_role(&case).await;
    let owner = case.client().await;
    owner
        .batch_execute(&format!(
            "GRANT USAGE ON SCHEMA gristmill TO {role};
             GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA gristmill TO {role};
             GRANT SELECT ON gristmill.job TO {role};"
        ))
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
        "INSERT INTO gristmill.lane VALUES (9, 'a', 'b')",
        "SELECT gristmill.cancel_jobs('{1}', '{\"{(,)}\"}', '{}', 0)",
        "SELECT gristmill.intern_lane('a', 'b', 'c', 10)",
        "TRUNCATE gristmill.slice",
    ] {
        let error = refusal(&client, sql).await;
        assert_eq!(error.code().code(), "42501", "{sql}: {error}");
    }
}

/// Who may only look sees every job, and changes none.
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

/// A caller's own functions and operators do not stand in for PostgreSQL's where the owner's rights are at work.
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
