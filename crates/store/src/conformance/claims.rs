//! What is claimed, and in which order.

use gristmill_model::JobState;

use super::Database;
use super::fixture::*;

/// Submit, claim, report, read.
pub async fn a_batch_goes_through(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, batch(3)).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 10).await.unwrap();
    assert_eq!(lease.slices.len(), 1);
    let slice = &lease.slices[0];
    assert_eq!((slice.batch, &slice.positions), (id, &positions("0-2")));
    assert_eq!((slice.attempt, slice.rescues, &*slice.kind), (1, 0, KIND));
    assert_eq!(slice.payloads, payloads(3));
    assert!(!store.is_finished(id).await.unwrap());
    let exchanged = exchange(&*store, worker, vec![completed(slice)], Some(want(10))).await;
    assert_eq!(exchanged.receipts[0].accepted, positions("0-2"));
    assert!(exchanged.receipts[0].refused.is_empty() && exchanged.lease.is_none());
    assert!(store.is_finished(id).await.unwrap());
    let outcomes = store.outcomes(id).await.unwrap().unwrap();
    assert_eq!(outcomes.reports.len(), 1);
    let stored = &outcomes.reports[0];
    assert_eq!(stored.state, JobState::Completed);
    assert_eq!(stored.values, Some(payloads(3)));
    assert_eq!(stored.durations_us, [0, 1, 2]);
    assert_eq!(stored.worker.as_deref(), Some("tester"));
}
