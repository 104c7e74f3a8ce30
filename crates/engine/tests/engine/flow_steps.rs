//! Flows: their steps as people see them, and their moments.
#![cfg(feature = "testing")]

use std::sync::Arc;
use std::time::Duration;

use gristmill_engine::flow_steps::{self, FlowStep, KeyedFlow};
use gristmill_engine::testing::TestEngine;
use gristmill_engine::{
    ChildBatch, Engine, EngineSettings, Finalizing, FlowEvent, FlowEventReceipt, Job, JobError, JobId,
    KeyedBatch, Kind, Signal, Spawn, Step, Unique, Wake, WorkerBuilder,
};
use gristmill_model::{NewBatch, PackedArray};
use gristmill_store::{Change, JobFilter, Selection};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};
use serde_json::{Value, json};

/// A flow in steps: fetches, embeds a map while it awaits an approval, and sleeps.
struct Document;

impl Kind for Document {
    const NAME: &'static str = "document@3";
    type Payload = String;
    type Value = String;
}

/// What a step keeps of the flow: the names of its children.
fn waits(spawn: Spawn, wake: Wake, steps: &Value) -> Result<Step<String>, JobError> {
    let spawn = spawn.memo(&json!({"steps": steps}));
    let spawn = spawn.map_err(|error| JobError::new("spawn", error.to_string()))?;
    Ok(Step::Wait(spawn.flow(wake)))
}

fn children(kind: &str, count: u32) -> Spawn {
    Spawn::new()
        .children(kind, 0..count)
        .expect("numbers are payloads")
}

async fn fetch(_: Job<String>) -> Result<Step<String>, JobError> {
    waits(children("fetch", 1), Wake::All, &json!([["fetch", 1]]))
}

async fn go_on(flow: Finalizing<String, Vec<Value>>) -> Result<Step<String>, JobError> {
    match flow.memo.len() {
        1 => {
            let approve = ChildBatch::of_signal(Signal::Event("approve".to_owned()), Some(60_000));
            let names = json!([["embed", 2, "pages", 3], ["@approve", 0]]);
            waits(children("embed", 3).batch(approve), Wake::All, &names)
        }
        2 => {
            let sleep = ChildBatch::of_signal(Signal::Time, Some(5_000));
            waits(Spawn::new().batch(sleep), Wake::All, &json!([["@sleep", 0]]))
        }
        _ => Ok(Step::Done("saved".to_owned())),
    }
}

fn worker(engine: &Engine) -> WorkerBuilder {
    struct Fetch;
    impl Kind for Fetch {
        const NAME: &'static str = "fetch";
        type Payload = u32;
        type Value = u32;
    }
    let mut worker = engine.worker();
    worker.handle_parent::<Document, Vec<Value>, _, _, _, _>(fetch, go_on);
    worker.handle::<Fetch, _, _>(|job: Job<u32>| async move { Ok::<_, JobError>(job.payload) });
    worker
}

fn told(steps: &[FlowStep]) -> Vec<String> {
    let told = steps.iter().map(|step| {
        let name = step.name.as_deref().unwrap_or("-");
        let key = step
            .key
            .as_deref()
            .map(|key| format!(" {key}"))
            .unwrap_or_default();
        let state = step.state.map_or("gone".to_owned(), |state| state.to_string());
        let jobs = step.jobs.map(|jobs| format!(" of {jobs}")).unwrap_or_default();
        let event = step
            .event
            .as_deref()
            .map(|event| format!(" for {event}"))
            .unwrap_or_default();
        let until = step.until.map(|_| " until").unwrap_or_default();
        format!("{} {name}{key} {state}{jobs}{event}{until}", step.number)
    });
    told.collect()
}

async fn steps(engine: &Engine, flow: JobId) -> Vec<String> {
    told(
        &flow_steps::steps(&**engine.store(), flow, 0, 100)
            .await
            .unwrap()
            .steps,
    )
}

#[tokio::test]
async fn the_steps_of_a_flow_are_its_named_children() {
    let engine = TestEngine::new().await;
    let flow = engine.submit::<Document>(&"url".to_owned()).await.unwrap();
    assert!(steps(&engine, flow).await.is_empty(), "it has not begun");
    engine.drain(&mut worker(&engine)).await;
    assert_eq!(
        steps(&engine, flow).await,
        [
            "0 fetch completed",
            "1 embed pages waiting of 3",
            "2 @approve blocked for approve until"
        ]
    );
    let awaited = flow_steps::awaited(&**engine.store(), flow).await.unwrap();
    assert_eq!(
        told(&awaited),
        [
            "1 embed pages waiting of 3",
            "2 @approve blocked for approve until"
        ]
    );
    let store = &**engine.store();
    let page = flow_steps::steps(store, flow, 1, 1).await.unwrap();
    assert_eq!(
        (page.total, told(&page.steps)),
        (3, vec!["1 embed pages waiting of 3".to_owned()])
    );
    assert_eq!(flow_steps::steps(store, flow, 7, 1).await.unwrap().steps, []);

    let kinds = flow_steps::flow_kinds(store, Some("document")).await.unwrap();
    let [kind] = kinds.as_slice() else {
        panic!("{kinds:?}")
    };
    assert_eq!(
        (kind.name.as_str(), kind.version.as_deref()),
        ("document", Some("3"))
    );
    assert_eq!((kind.counts.blocked, kind.counts.total()), (1, 1));
    assert!(!kind.has_worker, "the worker has left");
    assert_eq!(flow_steps::flow_kinds(store, Some("other")).await.unwrap(), []);

    let filter = JobFilter {
        kind: Some("embed".to_owned()),
        ..JobFilter::default()
    };
    let embed = gristmill_store::Selection::Filter(filter);
    engine.store().change(embed, Change::Cancel).await.unwrap();
    let event = FlowEvent::new(flow, "approve", "true").unwrap();
    assert_eq!(
        engine.send_events(vec![event]).await.unwrap(),
        [FlowEventReceipt::Delivered]
    );
    engine.drain(&mut worker(&engine)).await;
    assert_eq!(
        steps(&engine, flow).await[1..],
        [
            "1 embed pages cancelled of 3",
            "2 @approve completed for approve",
            "3 @sleep blocked until"
        ]
    );
    engine.advance(Duration::from_secs(5)).await;
    engine.drain(&mut worker(&engine)).await;
    assert_eq!(steps(&engine, flow).await[3], "3 @sleep expired");
    assert_eq!(
        engine.value::<Document>(flow).await.unwrap().as_deref(),
        Some("saved")
    );
    assert_eq!(flow_steps::awaited(store, flow).await.unwrap(), []);
}

#[tokio::test]
async fn a_flow_is_found_by_its_key() {
    let engine = TestEngine::new().await;
    let submit = async |kind: &str, key: &str| {
        let batch = NewBatch::new(kind, PackedArray::parse("[1]").unwrap());
        let batch = KeyedBatch::with_keys(batch, [key].into_iter(), Unique::default()).unwrap();
        engine.submit_keyed(vec![batch]).await.unwrap()[0].jobs[0]
    };
    let store = &**engine.store();
    let find = async |key: &str, kind: Option<&str>| {
        let filter = JobFilter {
            kind: kind.map(str::to_owned),
            ..JobFilter::default()
        };
        flow_steps::with_key(store, key, filter).await.unwrap()
    };
    let first = submit("a", "order").await;
    assert_eq!(find("order", None).await, KeyedFlow::Open(first));
    let second = submit("b", "order").await;
    assert_eq!(find("order", None).await, KeyedFlow::Ambiguous);
    assert_eq!(find("order", Some("b")).await, KeyedFlow::Open(second));
    assert_eq!(find("other", None).await, KeyedFlow::Unknown);
    let selection = gristmill_store::Selection::Jobs(vec![first, second]);
    store.change(selection, Change::Cancel).await.unwrap();
    assert_eq!(find("order", None).await, KeyedFlow::Ended(second));
}

/// The next round of the housekeeping is minutes away: the flow goes on since its moment is known.
#[tokio::test]
async fn a_sleep_ends_at_its_moment_and_not_with_the_next_round() {
    struct Nap;
    impl Kind for Nap {
        const NAME: &'static str = "nap";
        type Payload = u64;
        type Value = ();
    }
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("jobs.db"), SqliteOptions::default()).unwrap();
    let settings = EngineSettings {
        lease_lost_after_ms: 3_600_000,
        ..EngineSettings::default()
    };
    let engine = Engine::new(Arc::new(store), settings).await.unwrap();
    let flow = engine.submit::<Nap>(&200).await.unwrap();
    let mut worker = engine.worker();
    worker.handle_parent::<Nap, Vec<Value>, _, _, _, _>(
        |job: Job<u64>| async move {
            let sleep = ChildBatch::of_signal(Signal::Time, Some(job.payload));
            let spawn = Spawn::new().batch(sleep).flow(Wake::All);
            Ok(Step::Wait(spawn.memo(&1).expect("a number is a memo")))
        },
        |_| async { Ok(Step::Done(())) },
    );
    let running = worker.start();
    let completes = async {
        let mut watch = engine.store().watch_outcomes(flow.batch);
        while engine.value::<Nap>(flow).await.unwrap().is_none() {
            watch.changed().await;
        }
    };
    let completed = tokio::time::timeout(Duration::from_secs(60), completes).await;
    completed.expect("the flow wakes long before the next round");
    running.stop().await.unwrap();
    engine.close().await.unwrap();
}

/// A worker can be drained again after its flows have waited, and a filter cancels what they wait for.
#[tokio::test]
async fn one_worker_is_drained_again_and_again() {
    let engine = TestEngine::new().await;
    let flows = engine
        .submit_many::<Document>(&["one".to_owned(), "two".to_owned()])
        .await
        .unwrap();
    let mut worker = worker(&engine);
    engine.drain(&mut worker).await;
    engine.drain(&mut worker).await;
    let filter = JobFilter {
        kind: Some("embed".to_owned()),
        ..JobFilter::default()
    };
    let cancelled = engine
        .change(Selection::Filter(filter), gristmill_store::Change::Cancel)
        .await
        .unwrap();
    assert_eq!(cancelled.changed, 6);
    engine.drain(&mut worker).await;
    for flow in &flows {
        let event = FlowEvent::new(*flow, "approve", "true").unwrap();
        assert_eq!(
            engine.send_events(vec![event]).await.unwrap(),
            [FlowEventReceipt::Delivered]
        );
    }
    engine.drain(&mut worker).await;
    engine.advance(Duration::from_secs(6)).await;
    engine.drain(&mut worker).await;
    assert_eq!(engine.values::<Document>().await, ["saved", "saved"]);
}
