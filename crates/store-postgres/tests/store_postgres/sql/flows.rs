//! `gristmill.send_event`, and flows beside open transactions of SQL clients.

use std::sync::Arc;

use gristmill_model::{ChildBatch, LeasedSlice, Report, Signal, Spawn, Wake, WorkerId};
use gristmill_store_conformance::fixture::*;
use gristmill_store_postgres::PostgresStore;

use super::case::{Case, refusal, texts};
use super::locks::{PATIENT_MS, open, until_waiting};

/// A step that waits for an event.
fn approval() -> Spawn {
    let event = Signal::Event("approve".to_owned());
    Spawn::new()
        .batch(ChildBatch::of_signal(event, None))
        .flow(Wake::Any)
}

async fn one(store: &PostgresStore, worker: WorkerId) -> LeasedSlice {
    only(claim(store, worker, 10).await)
}

async fn report(store: &PostgresStore, worker: WorkerId, report: Report) {
    let receipts = exchange(store, worker, vec![report], None).await.receipts;
    assert!(receipts[0].refused.is_empty());
}

/// An event that SQL sends belongs to its transaction.
#[tokio::test]
async fn events_commit_with_their_transaction() {
    let case = Case::new().await;
    let client = case.client().await;
    let id = submit(&case.store, batch(2)).await;
    let worker = worker(&case.store).await;
    let flows = one(&case.store, worker).await;
    let step = suspended_at(&flows, &positions("0"), |_| approval());
    report(&case.store, worker, step).await;
    let send = format!("SELECT gristmill.send_event('{id}:0', 'approve', '{{\"by\": 7}}')");
    for end in ["ROLLBACK", "COMMIT"] {
        assert_eq!(held(&claim(&case.store, worker, 10).await), [""; 0]);
        client.batch_execute("BEGIN").await.unwrap();
        assert_eq!(texts(&client, &send, &[]).await, ["delivered"]);
        client.batch_execute(end).await.unwrap();
    }
    assert_eq!(one(&case.store, worker).await.positions, positions("0"));
    let told = gristmill_store::family::child_outcomes(&case.store, id, &positions("0"))
        .await
        .unwrap();
    assert_eq!(told[0][0].value.as_ref().unwrap().get(), "{\"by\": 7}");
    let receipts = "SELECT gristmill.send_event(id, 'approve') FROM unnest($1::text[]) id";
    let ids: Vec<String> = [(id.0, 0), (id.0, 1), (id.0, 2), (id.0 + 9, 0)]
        .map(|(batch, position)| format!("{batch}:{position}"))
        .to_vec();
    assert_eq!(
        texts(&client, receipts, &[&ids]).await,
        ["kept", "kept", "unknown", "unknown"]
    );
    for (wrong, named) in [
        (
            "gristmill.send_event('1', 'approve')",
            "'1' is not the id of a job",
        ),
        (
            "gristmill.send_event('1:0', '')",
            "the name of a event has 1 to 200 bytes",
        ),
        ("gristmill.send_event('1:0', NULL)", "the event is NULL"),
        (
            "gristmill.send_event(NULL, 'approve')",
            "NULL is not the id of a job",
        ),
    ] {
        let error = refusal(&client, &format!("SELECT {wrong}")).await;
        assert!(error.message().contains(named), "{wrong}: {error}");
    }
    report(&case.store, worker, completed_at(&flows, &positions("1"))).await;
    let ended = format!("SELECT gristmill.send_event('{id}:1', 'approve')");
    assert_eq!(texts(&client, &ended, &[]).await, ["ended"]);
}

/// A flow begins to wait for an event while the event is being sent. It gets the event.
#[tokio::test]
async fn no_event_is_missed() {
    let case = Case::new().await;
    let store = open(&case, PATIENT_MS).await;
    let client = case.client().await;
    let id = submit(&*store, batch(1)).await;
    let worker = worker(&*store).await;
    let flow = one(&store, worker).await;
    client.batch_execute("BEGIN").await.unwrap();
    let send = format!("SELECT gristmill.send_event('{id}:0', 'approve')");
    assert_eq!(texts(&client, &send, &[]).await, ["kept"]);
    let suspending = tokio::spawn(suspend(store.clone(), worker, flow, None, approval()));
    until_waiting(&store, 1).await;
    client.batch_execute("COMMIT").await.unwrap();
    suspending.await.unwrap();
    assert_eq!(one(&store, worker).await.batch, id);
}

/// A child ends while its flow begins to wait for it. The flow runs again.
#[tokio::test]
async fn no_end_of_a_child_is_missed() {
    let case = Case::new().await;
    let store = open(&case, PATIENT_MS).await;
    let client = case.client().await;
    let id = submit(&*store, batch(1)).await;
    let worker = worker(&*store).await;
    let flow = one(&store, worker).await;
    let step = Spawn::new().children("child", [0, 1]).unwrap().flow(Wake::Any);
    suspend(store.clone(), worker, flow, None, step).await;
    let children = one(&store, worker).await;
    report(&store, worker, completed_at(&children, &positions("0"))).await;
    let flow = one(&store, worker).await;
    client.batch_execute("BEGIN").await.unwrap();
    let cancel = format!("SELECT gristmill.cancel('{}:1')::text", children.batch);
    assert_eq!(texts(&client, &cancel, &[]).await, ["true"]);
    let step = Spawn::new().flow(Wake::Any);
    let suspending = tokio::spawn(suspend(store.clone(), worker, flow, Some(1), step));
    until_waiting(&store, 1).await;
    client.batch_execute("COMMIT").await.unwrap();
    suspending.await.unwrap();
    assert_eq!(one(&store, worker).await.batch, id);
}

async fn suspend(
    store: Arc<PostgresStore>,
    worker: WorkerId,
    flow: LeasedSlice,
    seen: Option<u32>,
    step: Spawn,
) {
    let mut suspended = suspended_at(&flow, &flow.positions, |_| step.clone());
    suspended.suspended[0].seen = seen.into_iter().collect();
    report(&store, worker, suspended).await;
}
