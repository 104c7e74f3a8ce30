//! Operations while somebody holds an old snapshot, so that vacuum removes nothing.

use gristmill_store::{JobFilter, Store};
use gristmill_store_conformance::fixture::*;

use super::case::{Case, row, texts};

/// A connection changes the row of its writer, so that the versions of one row do not pile up.
#[tokio::test]
async fn a_writer_gets_another_row_after_many_operations() {
    const SUBMITS: u64 = 100;
    const ROUNDS: u64 = 60;
    let case = Case::new().await;
    let store = &case.store;
    let client = case.client().await;
    let rows = "SELECT id FROM gristmill.writer";
    let unused = "SELECT count(*) FROM gristmill.writer w WHERE NOT EXISTS (SELECT FROM pg_stat_activity a \
         WHERE a.datname = current_database() AND starts_with(a.application_name, 'gristmill ' || w.id))";
    submit(store, batch(1)).await;
    let first = texts(&client, rows, &[]).await;
    let unused_first: i64 = row(&client, unused, &[]).await.get(0);
    let mut rounds = 0;
    loop {
        let now = texts(&client, rows, &[]).await;
        if first.iter().any(|id| !now.contains(id)) {
            break;
        }
        rounds += 1;
        assert!(rounds <= ROUNDS, "the writers keep the rows {first:?}");
        for _ in 0..SUBMITS {
            submit(store, batch(1)).await;
        }
    }
    // The connection goes by the name of its new row.
    let unused_now: i64 = row(&client, unused, &[]).await.get(0);
    assert_eq!(unused_now, unused_first);
    let jobs = store.counts(&JobFilter::default()).await.unwrap().total();
    assert_eq!(jobs, 1 + rounds * SUBMITS);
}
