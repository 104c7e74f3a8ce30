//! Claims and operations while somebody holds an old snapshot, so that vacuum removes nothing.

use gristmill_model::Clock;
use gristmill_store::{JobFilter, Store};
use gristmill_store_conformance::fixture::*;

use tokio_postgres::IsolationLevel;

use super::case::{Case, row, texts};

/// Dead slices of a lane, from long ago, and the wait until the server counts them.
const PILE_UP: &str = "
INSERT INTO gristmill.slice (batch_id, run_at, lane_id, attempt, rescues, count, job_bytes, rank, positions)
SELECT 1000000 + n, n, (SELECT min(id) FROM gristmill.lane), 1, 0, 1, 1, 0, '{[0,1)}' FROM generate_series(1, 12000) n;
DELETE FROM gristmill.slice WHERE batch_id > 1000000;
SELECT pg_stat_force_next_flush();
SELECT 1;
";

/// With many dead slices, a claim begins where the last one found jobs. Jobs that come back before that place wait for the claim that
/// looks at everything, and the worker is told when that is.
#[tokio::test]
async fn claims_pass_by_dead_slices() {
    let case = Case::new().await;
    let store = &case.store;
    let old = submit(store, batch(1)).await;
    let worker = worker(store).await;
    let held_slice = only(claim(store, worker, 1).await);
    let mut holder = case.client().await;
    let snapshot = holder
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .start()
        .await
        .unwrap();
    snapshot
        .query("SELECT count(*) FROM gristmill.slice", &[])
        .await
        .unwrap();
    let client = case.client().await;
    client.batch_execute(PILE_UP).await.unwrap();
    store.heartbeat(worker, Default::default()).await.unwrap();
    case.clock.advance_ms(10_000);

    // The first claim looks at everything, and the next ones from the slices on that it found.
    submit(store, batch(1)).await;
    let found = only(claim(store, worker, 1).await);
    assert_ne!(found.batch, old);
    let released = released_at(&held_slice, &held_slice.positions);
    exchange(store, worker, vec![released], None).await;
    submit(store, batch(1)).await;
    let exchanged = exchange(store, worker, Vec::new(), Some(want(5))).await;
    let claimed = held(&exchanged.lease);
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    assert!(!claimed[0].starts_with(&format!("{old}:")), "{claimed:?}");
    let next_at = exchanged.next_run_at.unwrap();
    assert!(next_at > case.clock.now() && next_at <= case.clock.now().plus_ms(2_000));
    case.clock.advance_ms(next_at.since_ms(case.clock.now()));
    let exchanged = exchange(store, worker, Vec::new(), Some(want(5))).await;
    assert_eq!(held(&exchanged.lease), [format!("{old}:0")]);

    // Jobs of other priorities are found at once, above the floor and below it.
    for priority in [5, 0, -5] {
        let mut other = batch(1);
        other.options.priority = priority;
        let id = submit(store, other).await;
        let exchanged = exchange(store, worker, Vec::new(), Some(want(5))).await;
        assert_eq!(held(&exchanged.lease), [format!("{id}:0")], "priority {priority}");
    }
    snapshot.commit().await.unwrap();
}

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
