//! One process at a time holds a name, even across lost connections.

use std::time::Duration;

use futures::FutureExt;
use gristmill_postgres_link::NameLock;
use gristmill_private_postgres::{PrivatePostgres, Silence, shared};
use gristmill_store::StoreError;

const HOLDERS: &str = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 1196576078 AND granted \
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

fn database(url: &str) -> String {
    url.split(['/', '?']).nth(3).unwrap().to_owned()
}

/// The server process that holds the only name of a database, as soon as it is not `other`.
async fn holder(server: &PrivatePostgres, database: &str, other: &str) -> String {
    loop {
        let holder = server.psql(database, HOLDERS).unwrap().trim().to_owned();
        if !holder.is_empty() && holder != other {
            return holder;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn one_process_holds_a_name_until_it_lets_go() {
    let url = shared().create_database().unwrap();
    let held = NameLock::try_take(&url, "x").await.unwrap().unwrap();
    assert!(NameLock::try_take(&url, "x").await.unwrap().is_none());
    assert!(NameLock::try_take(&url, "y").await.unwrap().is_some());
    let elsewhere = shared().create_database().unwrap();
    assert!(NameLock::try_take(&elsewhere, "x").await.unwrap().is_some());
    drop(held);
    // The server releases the lock after it has seen the end of the connection.
    while NameLock::try_take(&url, "x").await.unwrap().is_none() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_takes_the_name_again() {
    let url = shared().create_database().unwrap();
    let database = database(&url);
    let held = NameLock::try_take(&url, "x").await.unwrap().unwrap();
    let before = holder(shared(), &database, "").await;
    shared()
        .psql(&database, &format!("SELECT pg_terminate_backend({before})"))
        .unwrap();
    holder(shared(), &database, &before).await;
    assert!(NameLock::try_take(&url, "x").await.unwrap().is_none());
    drop(held);
}

/// The server does not notice that its client is gone, and keeps the lock. Its process is ended, and the name is not lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_is_given_up_and_the_name_taken_again() {
    let url = shared().create_database().unwrap();
    let database = database(&url);
    let proxy = shared().proxy(1).unwrap();
    let silence_max = Duration::from_millis(50);
    let held = NameLock::try_take_by_silence(&proxy.url(&database), "x", silence_max).await;
    let held = held.unwrap().unwrap();
    let before = holder(shared(), &database, "").await;
    proxy.silence_connections(Silence::Both);
    holder(shared(), &database, &before).await;
    assert!(NameLock::try_take(&url, "x").await.unwrap().is_none());
    assert!(held.lost().now_or_never().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_another_took_meanwhile_is_lost() {
    let url = shared().create_database().unwrap();
    let database = database(&url);
    let held = NameLock::try_take(&url, "x").await.unwrap().unwrap();
    let before = holder(shared(), &database, "").await;
    // The waiter gets the lock as soon as its holder ends, and keeps it until the test has seen the loss.
    let waiter = {
        let database = database.clone();
        std::thread::spawn(move || {
            let wait = "SET lock_timeout = 0; SELECT pg_advisory_lock(1196576078, hashtext('x')); \
                        SELECT pg_advisory_lock(1196576078, hashtext('the test ends'))";
            shared().psql(&database, wait).unwrap();
        })
    };
    let end = NameLock::try_take(&url, "the test ends").await.unwrap().unwrap();
    let waits = "SELECT count(*) FROM pg_locks WHERE classid = 1196576078 AND NOT granted \
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    while shared().psql(&database, waits).unwrap().trim() != "1" {
        tokio::task::yield_now().await;
    }
    shared()
        .psql(&database, &format!("SELECT pg_terminate_backend({before})"))
        .unwrap();
    held.lost().await;
    drop(end);
    waiter.join().unwrap();
}

#[tokio::test]
async fn an_unreachable_database_is_reported() {
    let error = NameLock::try_take("postgresql:///none?host=/nowhere", "x")
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("/nowhere") && !text.contains(" ms"), "{text}");
}
