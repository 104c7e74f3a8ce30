//! A server starts, keeps what was committed over a crash, and leaves nothing behind.

use gristmill_private_postgres::PrivatePostgres;

#[test]
fn what_was_committed_outlives_an_immediate_stop() {
    let server = PrivatePostgres::start(&[("application_name", "o'clock")]).unwrap();
    let url = server.create_database().unwrap();
    assert!(url.contains("/database_1?"), "{url}");
    server
        .psql("database_1", "CREATE TABLE kept AS SELECT 7 AS number")
        .unwrap();
    server.stop_immediately().unwrap();
    assert!(server.psql("database_1", "SELECT 1").is_err());
    server.start_again().unwrap();
    assert_eq!(
        server.psql("database_1", "SELECT number FROM kept").unwrap(),
        "7\n"
    );

    let directory = server.directory().to_owned();
    drop(server);
    assert!(!directory.exists(), "{} is still there", directory.display());
}

#[test]
fn an_error_of_sql_says_what_was_wrong() {
    let error = gristmill_private_postgres::shared()
        .psql("postgres", "SELECT absent")
        .unwrap_err();
    assert!(error.to_string().contains("absent"), "{error}");
}
