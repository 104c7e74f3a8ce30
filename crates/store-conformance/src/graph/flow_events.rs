//! Flows that wait for events and moments.

use gristmill_model::{BatchId, ChildBatch, JobId, JobState, LeasedSlice, Signal, Spawn, Wake, WorkerId};
use gristmill_store::family::{child_outcomes, seen_of};
use gristmill_store::{Change, FlowEvent, FlowEventReceipt, JobFilter, Selection, Store};

use crate::Database;
use crate::fixture::*;
use crate::graph::families::{CHILD, told};
use crate::graph::flows::{nothing, one, prune_ended, step, suspend, suspensions};

/// A step that waits for a signal.
fn signal(number: u32, signal: Signal, expires_in_ms: Option<u64>) -> Spawn {
    step(number, CHILD, 0, Wake::Any).batch(ChildBatch::of_signal(signal, expires_in_ms))
}

async fn states_of_kind(store: &dyn Store, kind: &str) -> Vec<(JobState, u64)> {
    let filter = JobFilter {
        kind: Some(kind.to_owned()),
        ..JobFilter::default()
    };
    let mut counts = store.counts(&filter).await.unwrap();
    let states = JobState::ALL
        .into_iter()
        .map(|state| (state, *counts.get_mut(state)));
    states.filter(|(_, count)| *count > 0).collect()
}

/// The outcomes of a flow's children after the first, as the flow is told them.
async fn waits_of(store: &dyn Store, batch: BatchId, flow: u32) -> Vec<String> {
    told(store, batch, flow).await.split_off(1)
}

fn event(batch: BatchId, position: u32, name: &str, value: &str) -> FlowEvent {
    FlowEvent::new(job(batch, position), name, value).unwrap()
}

/// An event completes the job that waits for it. One that is sent before is kept until it is awaited.
pub async fn events_are_delivered_or_kept(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, batch(3)).await;
    let early = vec![
        event(id, 2, "approve", "\"early\""),
        event(id, 2, "other", "0"),
        event(id, 2, "approve", "\"second\""),
    ];
    assert_eq!(
        store.send_events(early).await.unwrap(),
        [FlowEventReceipt::Kept; 3]
    );
    let flows = one(&*store, worker).await;
    let approve = || Signal::Event("approve".to_owned());
    suspend(&*store, worker, &flows, None, |_| signal(1, approve(), None)).await;
    let woken = one(&*store, worker).await;
    assert_eq!(woken.positions.to_string(), "2", "the event was there before");
    assert_eq!(told(&*store, id, 2).await, ["2 completed \"early\""]);
    nothing(&*store, worker).await;
    let filter = JobFilter {
        kind: Some(gristmill_model::signal::EVENT_KIND.to_owned()),
        ..JobFilter::default()
    };
    let waiting = store.newest_jobs(&filter, 10).await.unwrap();
    assert_eq!(waiting.len(), 3);
    assert_eq!(
        waiting
            .iter()
            .filter(|row| row.state == JobState::Blocked)
            .count(),
        2
    );

    let sent = vec![
        event(id, 0, "other", "1"),
        event(id, 1, "approve", "{\"by\":\"me\"}"),
        event(id, 3, "approve", "1"),
        event(BatchId(id.0 + 1_000), 0, "approve", "1"),
    ];
    assert_eq!(
        store.send_events(sent).await.unwrap(),
        [
            FlowEventReceipt::Kept,
            FlowEventReceipt::Delivered,
            FlowEventReceipt::Unknown,
            FlowEventReceipt::Unknown
        ]
    );
    let second = one(&*store, worker).await;
    assert_eq!(second.positions.to_string(), "1");
    assert_eq!(told(&*store, id, 1).await, ["1 completed {\"by\":\"me\"}"]);
    // The next wait for the event gets the next kept event.
    suspend(&*store, worker, &woken, None, |_| signal(2, approve(), None)).await;
    let woken = one(&*store, worker).await;
    assert_eq!(
        told(&*store, id, 2).await,
        ["2 completed \"early\"", "0 completed \"second\""]
    );
    exchange(&*store, worker, vec![completed(&woken), completed(&second)], None).await;
    let late = store
        .send_events(vec![event(id, 2, "approve", "1")])
        .await
        .unwrap();
    assert_eq!(late, [FlowEventReceipt::Ended]);
    assert_eq!(change(&*store, job(id, 0), Change::Cancel).await.changed, 1);
    assert_eq!(
        states_of_kind(&*store, gristmill_model::signal::EVENT_KIND).await,
        [(JobState::Completed, 3), (JobState::Cancelled, 1)]
    );
    prune_ended(&*store).await;
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().total(), 0);
}

/// An event that a wait got, and that its flow gives up before it has read it, goes to the next wait for it.
pub async fn unread_events_go_back(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, batch(2)).await;
    let approve = |number| signal(number, Signal::Event("approve".to_owned()), None);
    let first = one(&*store, worker).await;
    // Two waits for the same event, beside a job.
    suspend(&*store, worker, &first, None, |_| {
        let event = Signal::Event("approve".to_owned());
        let other = ChildBatch::of_signal(event, None);
        step(1, CHILD, 1, Wake::Any).batch(other.clone()).batch(other)
    })
    .await;
    let jobs = one(&*store, worker).await;
    let waits = [BatchId(jobs.batch.0 + 1), BatchId(jobs.batch.0 + 2)];
    exchange(&*store, worker, vec![completed(&jobs)], None).await;
    let woken = one(&*store, worker).await;
    // While the flows run, their older waits get events, and events of another name are kept.
    let sent = vec![
        event(id, 0, "approve", "\"first\""),
        event(id, 1, "approve", "\"first\""),
        event(id, 1, "deny", "0"),
    ];
    assert_eq!(
        store.send_events(sent).await.unwrap(),
        [
            FlowEventReceipt::Delivered,
            FlowEventReceipt::Delivered,
            FlowEventReceipt::Kept
        ]
    );
    // The younger wait of the first flow gets its event; that of the second flow is given up, too.
    let mut report = suspended_at(&woken, &positions("0-1"), |_| step(2, CHILD, 0, Wake::Any));
    report.suspended[0].seen = vec![1, 1];
    report.suspended[0].given_up = vec![vec![job(waits[0], 0)], vec![job(waits[0], 1), job(waits[1], 1)]];
    exchange(&*store, worker, vec![report], None).await;
    let again = one(&*store, worker).await;
    assert_eq!(again.positions.to_string(), "0-1", "there is news for both");
    assert_eq!(
        waits_of(&*store, id, 0).await,
        ["0 completed \"first\"", "0 completed \"first\""]
    );
    assert_eq!(
        waits_of(&*store, id, 1).await,
        ["1 completed \"first\"", "1 cancelled "]
    );
    assert_eq!(
        store
            .send_events(vec![event(id, 1, "approve", "\"second\"")])
            .await
            .unwrap(),
        [FlowEventReceipt::Kept]
    );
    // Kept events come in the order in which they were sent.
    suspend(&*store, worker, &again, None, approve).await;
    let again = one(&*store, worker).await;
    assert_eq!(again.positions.to_string(), "1");
    assert_eq!(waits_of(&*store, id, 1).await[2..], ["1 completed \"first\""]);
    exchange(&*store, worker, vec![completed(&again)], None).await;
    assert_eq!(
        states(&*store, id).await,
        [JobState::Blocked, JobState::Completed]
    );
    no_damage(&*store).await;
}

fn go() -> Signal {
    Signal::Event("go".to_owned())
}

/// A flow that runs because one of its steps has ended, while its wait for the event `go` has got this value; and that wait.
async fn running_with_event(store: &dyn Store, worker: WorkerId, value: &str) -> (LeasedSlice, JobId) {
    let id = submit(store, batch(1)).await;
    let flow = one(store, worker).await;
    suspend(store, worker, &flow, None, |_| {
        step(1, CHILD, 1, Wake::Any).batch(ChildBatch::of_signal(go(), None))
    })
    .await;
    let child = one(store, worker).await;
    exchange(store, worker, vec![completed(&child)], None).await;
    let woken = one(store, worker).await;
    let sent = vec![event(id, 0, "go", value)];
    assert_eq!(
        store.send_events(sent).await.unwrap(),
        [FlowEventReceipt::Delivered]
    );
    let wait = suspensions(store, id, 0).await.remove(0).children[1].batch;
    (woken, job(wait, 0))
}

/// An event that a wait gets while its flow runs and begins anew goes to the next wait for it.
pub async fn events_outlast_a_new_beginning(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let (again, wait) = running_with_event(&*store, worker, "\"now\"").await;
    let id = again.batch;
    let mut report = suspended_at(&again, &positions("0"), |_| {
        Spawn::new().flow(Wake::Anew).memo(&7).unwrap()
    });
    report.suspended[0].seen = vec![1];
    report.suspended[0].given_up = vec![vec![wait]];
    exchange(&*store, worker, vec![report], None).await;
    let anew = one(&*store, worker).await;
    assert_eq!(told(&*store, id, 0).await, [""; 0]);
    suspend(&*store, worker, &anew, None, |_| signal(2, go(), None)).await;
    let woken = one(&*store, worker).await;
    assert_eq!(told(&*store, id, 0).await, ["0 completed \"now\""]);
    exchange(&*store, worker, vec![completed(&woken)], None).await;
    assert_eq!(states(&*store, id).await, [JobState::Completed]);
    no_damage(&*store).await;
}

/// A flow may give up a wait again and again: the event that it got goes back once, also where the flow begins anew.
pub async fn events_go_back_once(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let (woken, wait) = running_with_event(&*store, worker, "\"once\"").await;
    let id = woken.batch;
    // It is kept, and the flow has not seen that its wait has ended.
    let mut report = suspended_at(&woken, &positions("0"), |_| step(2, CHILD, 0, Wake::Any));
    (report.suspended[0].seen, report.suspended[0].given_up) = (vec![1], vec![vec![wait]]);
    exchange(&*store, worker, vec![report], None).await;
    let again = one(&*store, worker).await;
    // The next wait takes it, and the one after that gets nothing.
    let mut report = suspended_at(&again, &positions("0"), |_| signal(3, go(), None));
    (report.suspended[0].seen, report.suspended[0].given_up) = (vec![2], vec![vec![wait]]);
    exchange(&*store, worker, vec![report], None).await;
    let woken = one(&*store, worker).await;
    assert_eq!(
        waits_of(&*store, id, 0).await,
        ["0 completed \"once\"", "0 completed \"once\""]
    );
    let mut report = suspended_at(&woken, &positions("0"), |_| {
        Spawn::new().flow(Wake::Anew).memo(&7).unwrap()
    });
    (report.suspended[0].seen, report.suspended[0].given_up) = (vec![3], vec![vec![wait]]);
    exchange(&*store, worker, vec![report], None).await;
    let anew = one(&*store, worker).await;
    suspend(&*store, worker, &anew, None, |_| signal(4, go(), None)).await;
    nothing(&*store, worker).await;
    let sent = vec![event(id, 0, "go", "\"next\"")];
    assert_eq!(
        store.send_events(sent).await.unwrap(),
        [FlowEventReceipt::Delivered]
    );
    let woken = one(&*store, worker).await;
    assert_eq!(told(&*store, id, 0).await, ["0 completed \"next\""]);
    exchange(&*store, worker, vec![completed(&woken)], None).await;
    no_damage(&*store).await;
    prune_ended(&*store).await;
    no_damage(&*store).await;
}

/// A wait for a moment, or for an event until a moment, ends when the moment has come. No worker runs it, and nobody
/// makes it run by hand.
pub async fn moments_come(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    assert_eq!(store.next_expiry().await.unwrap(), None);
    let id = submit(&*store, batch(2)).await;
    let flows = one(&*store, worker).await;
    assert_eq!(store.flow_kinds().await.unwrap().len(), 0, "none has suspended");
    suspend(&*store, worker, &flows, None, |flow| {
        let event = Signal::Event("approve".to_owned());
        let wait = if flow == 0 { Signal::Time } else { event };
        signal(1, wait, Some(1_000))
    })
    .await;
    nothing(&*store, worker).await;
    let moment = store.now().plus_ms(1_000);
    assert_eq!(store.next_expiry().await.unwrap(), Some(moment));
    assert_eq!(*store.flow_kinds().await.unwrap(), [KIND.into()]);
    database.clock().advance_ms(999);
    assert_eq!(store.expire().await.unwrap(), 0);
    let all = || Selection::Filter(JobFilter::default());
    change(&*store, all(), pausing("later", None)).await;
    change(&*store, all(), resuming(None)).await;
    nothing(&*store, worker).await;
    database.clock().advance_ms(1);
    assert_eq!(store.expire().await.unwrap(), 2);
    assert_eq!(store.next_expiry().await.unwrap(), None);
    let mut woken = held(&claim(&*store, worker, 10).await);
    woken.sort();
    assert_eq!(woken, [format!("{id}:0"), format!("{id}:1")]);
    assert_eq!(told(&*store, id, 0).await, ["0 expired "]);
    assert_eq!(told(&*store, id, 1).await, ["0 expired "]);
    let expired = JobFilter {
        states: vec![JobState::Expired],
        ..JobFilter::default()
    };
    assert_eq!(change(&*store, expired, Change::Retry).await.changed, 0);
    nothing(&*store, worker).await;
}

/// Children that are together wake their flow once, when the last of them has ended: while it waits, and while it runs.
pub async fn children_that_are_together_wake_their_flow_once(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, batch(2)).await;
    let first = one(&*store, worker).await;
    suspend(&*store, worker, &first, None, |_| {
        let mut spawn = signal(1, Signal::Event("approve".to_owned()), None);
        let mapped = ChildBatch::of(CHILD, 0..3).unwrap();
        spawn
            .children
            .extend(mapped.into_iter().map(|children| ChildBatch {
                together: true,
                ..children
            }));
        spawn
    })
    .await;
    let mapped = one(&*store, worker).await;
    let end = |which: &str| completed_at(&mapped, &positions(which));
    exchange(&*store, worker, vec![end("0-1,3")], None).await;
    nothing(&*store, worker).await;
    let outcomes = child_outcomes(&*store, id, &positions("0-1")).await.unwrap();
    let seen: Vec<Option<u32>> = outcomes.iter().map(|all| seen_of(all)).collect();
    assert_eq!(seen, [Some(0); 2]);
    exchange(&*store, worker, vec![end("2")], None).await;
    let woken = one(&*store, worker).await;
    assert_eq!(woken.positions.to_string(), "0");
    exchange(&*store, worker, vec![completed(&woken)], None).await;
    // The other one runs for its event, and its step goes on meanwhile: that is no news, and its end is.
    let sent = vec![event(id, 1, "approve", "1")];
    store.send_events(sent).await.unwrap();
    let woken = one(&*store, worker).await;
    let outcomes = child_outcomes(&*store, id, &positions("1")).await.unwrap();
    assert_eq!(seen_of(&outcomes[0]), Some(1));
    exchange(&*store, worker, vec![end("4")], None).await;
    suspend(&*store, worker, &woken, Some(1), |_| step(2, CHILD, 0, Wake::Any)).await;
    nothing(&*store, worker).await;
    exchange(&*store, worker, vec![end("5")], None).await;
    let woken = one(&*store, worker).await;
    let outcomes = child_outcomes(&*store, id, &positions("1")).await.unwrap();
    assert_eq!(seen_of(&outcomes[0]), None);
    suspend(&*store, worker, &woken, Some(1), |_| step(3, CHILD, 0, Wake::Any)).await;
    let again = one(&*store, worker).await;
    assert_eq!(again.batch, id, "what ended meanwhile is news");
}
