//! Flows over a real SQLite store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gristmill_engine::flow_fork::{Fork, Forked, Forks, flows_to_fork};
use gristmill_engine::flow_steps::steps;
use gristmill_engine::{
    CannotFork, Engine, EngineSettings, Flow, FlowEvent, FlowEventReceipt, FlowSteps, Job, JobError, JobId,
    Kind, StepAt,
};
use gristmill_model::{BatchOptions, JobState, Positions, TraceParent};
use gristmill_store::{JobFilter, Selection};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};

use crate::support::{Square, square};

/// A flow that adds up squares.
struct Total;

impl Kind for Total {
    const NAME: &'static str = "total";
    type Payload = i64;
    type Value = i64;
}

async fn fixture() -> (Engine, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(folder.path().join("jobs.db"), SqliteOptions::default());
    let settings = EngineSettings {
        housekeeping: false,
        ..EngineSettings::default()
    };
    let engine = Engine::new(Arc::new(store.expect("the store opens")), settings).await;
    (engine.expect("the engine starts"), folder)
}

/// Runs the flow `function` over these payloads until nothing is left, and returns the values.
async fn run<F, R>(engine: &Engine, jobs: &[JobId], function: F) -> Vec<Result<i64, String>>
where
    F: Fn(Flow, Job<i64>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<i64, JobError>> + Send + 'static,
{
    let mut worker = engine.worker();
    worker.handle_flow::<Total, _, _>(function);
    worker.handle::<Square, _, _>(square);
    worker.until_empty().run().await.unwrap();
    let mut values = Vec::new();
    for job in jobs {
        let details = engine.store().job(*job).await.unwrap().unwrap();
        values.push(match details.row.state {
            JobState::Completed => Ok(details.value.unwrap().get().parse().unwrap()),
            _ => Err(details
                .failures
                .last()
                .map_or_else(String::new, |failure| failure.error.message.clone())),
        });
    }
    values
}

#[tokio::test]
async fn steps_run_one_after_the_other_and_together() {
    let (engine, _folder) = fixture().await;
    let jobs = engine.submit_many::<Total>(&[2, 3]).await.unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let values = run(&engine, &jobs, move |flow, job| {
        let runs = counted.clone();
        async move {
            runs.fetch_add(1, Ordering::SeqCst);
            let first = flow.step::<Square>(&job.payload).await?;
            let (left, right) = futures::join!(
                flow.step::<Square>(&first),
                flow.keyed_step::<Square>("right", &1)
            );
            let all = flow.map::<Square>(&[1, 2, 3]).await?;
            let none: Vec<i64> = flow.map::<Square>(&[]).await?;
            assert_eq!(none, [0; 0]);
            Ok(left? + right? + all.iter().sum::<i64>())
        }
    })
    .await;
    assert_eq!(values, [Ok(16 + 1 + 14), Ok(81 + 1 + 14)]);
    assert!(
        runs.load(Ordering::SeqCst) >= 8,
        "each flow ran once for each wait"
    );
}

/// More of them than a flow may have batches of children at once.
#[tokio::test]
async fn steps_that_begin_together_are_one_batch() {
    let (engine, _folder) = fixture().await;
    let jobs = engine.submit_many::<Total>(&[1_200, 3]).await.unwrap();
    let values = run(&engine, &jobs, |flow, job| async move {
        let numbers: Vec<i64> = (0..job.payload).collect();
        let steps = numbers.iter().map(|number| flow.step::<Square>(number));
        let squares = futures::future::try_join_all(steps).await?;
        assert_eq!(
            squares,
            numbers.iter().map(|number| number * number).collect::<Vec<_>>()
        );
        Ok(squares.iter().sum())
    })
    .await;
    let sum_of_squares = (0..1_200).map(|number: i64| number * number).sum();
    assert_eq!(values, [Ok(sum_of_squares), Ok(5)]);
    let flows = Positions::from(0..2);
    let children = engine.store().children(jobs[0].batch, &flows).await.unwrap();
    let batches = children.iter().flat_map(|children| &children.jobs);
    let batches: std::collections::BTreeSet<_> = batches.map(|jobs| jobs.batch).collect();
    assert_eq!(batches.len(), 1, "the steps of both flows travel together");
}

#[tokio::test]
async fn steps_belong_to_the_trace_of_their_flow() {
    let (engine, _folder) = fixture().await;
    let trace = TraceParent {
        trace_id: 7,
        span_id: 8,
    };
    let options = BatchOptions {
        traceparent: Some(trace),
        ..BatchOptions::default()
    };
    let flow = engine.submit_with::<Total>(&2, options).await.unwrap();
    let values = run(&engine, &[flow], |flow, job| async move {
        Ok(flow.step::<Square>(&job.payload).await?)
    })
    .await;
    assert_eq!(values, [Ok(4)]);
    let filter = JobFilter {
        parent: Some(flow),
        ..JobFilter::default()
    };
    let steps = engine.store().newest_jobs(&filter, 1).await.unwrap();
    let step = engine.store().job(steps[0].job).await.unwrap().unwrap();
    assert_eq!(step.options.traceparent, Some(trace));
}

#[tokio::test]
async fn a_local_value_is_kept_and_the_first_of_a_race_is_remembered() {
    let (engine, _folder) = fixture().await;
    let jobs = engine.submit_many::<Total>(&[5]).await.unwrap();
    let locals = Arc::new(AtomicU32::new(0));
    let counted = locals.clone();
    let values = run(&engine, &jobs, move |flow, job| {
        let locals = counted.clone();
        async move {
            let local = flow.local("drawn", || async {
                tokio::task::yield_now().await;
                Ok(locals.fetch_add(1, Ordering::SeqCst) as i64 + 100)
            });
            let drawn = local.await?;
            let never = Box::pin(flow.event::<i64>("never", Some(Duration::from_secs(3_600))));
            let step = Box::pin(flow.step::<Square>(&job.payload));
            let winner = match futures::future::select(never, step).await {
                futures::future::Either::Left(_) => return Err(JobError::new("race", "the event won")),
                futures::future::Either::Right((squared, _)) => squared?,
            };
            let last = flow.keyed_step::<Square>("last", &winner).await?;
            Ok(drawn + last)
        }
    })
    .await;
    assert_eq!(values, [Ok(100 + 625)]);
    assert_eq!(
        locals.load(Ordering::SeqCst),
        1,
        "the value is kept once the flow has waited"
    );
    let counts = engine.store().counts(&Default::default()).await.unwrap();
    assert_eq!(
        (counts.blocked, counts.cancelled),
        (0, 1),
        "the event that nobody awaits ends with its flow"
    );
}

#[tokio::test]
async fn events_continue_a_flow() {
    let (engine, _folder) = fixture().await;
    let jobs = engine.submit_many::<Total>(&[1, 2]).await.unwrap();
    let flow = |flow: Flow, job: Job<i64>| async move {
        let approved: Option<i64> = flow.event("approve", None).await?;
        Ok(job.payload + approved.unwrap_or(-1))
    };
    let send = |job, value| {
        let engine = engine.clone();
        async move {
            engine
                .send_events(vec![FlowEvent::new(job, "approve", value).unwrap()])
                .await
                .unwrap()
        }
    };
    assert_eq!(send(jobs[1], "20").await, [FlowEventReceipt::Kept]);
    let values = run(&engine, &jobs, flow).await;
    assert_eq!(values, [Err(String::new()), Ok(22)]);
    assert_eq!(send(jobs[0], "10").await, [FlowEventReceipt::Delivered]);
    assert_eq!(run(&engine, &jobs, flow).await, [Ok(11), Ok(22)]);
    assert_eq!(send(jobs[0], "1").await, [FlowEventReceipt::Ended]);
}

#[tokio::test]
async fn failures_are_told() {
    let (engine, _folder) = fixture().await;
    let jobs = engine.submit_many::<Total>(&[1]).await.unwrap();
    let values = run(&engine, &jobs, |_, _| async {
        futures::future::pending::<()>().await;
        Ok(0)
    })
    .await;
    let message = values[0].as_ref().unwrap_err();
    assert!(
        message.contains("waits for nothing that will ever end"),
        "{message}"
    );

    let jobs = engine.submit_many::<Total>(&[1]).await.unwrap();
    let runs = AtomicU32::new(0);
    let values = run(&engine, &jobs, move |flow, _| {
        let run = i64::from(runs.fetch_add(1, Ordering::SeqCst));
        async move { Ok(flow.step::<Square>(&run).await?) }
    })
    .await;
    let message = values[0].as_ref().unwrap_err();
    assert!(
        message.contains("step square had arguments of the hash"),
        "{message}"
    );
}

/// A loop that begins anew keeps its job, its events and its key, and neither its steps nor what they waited for.
#[tokio::test]
async fn a_flow_continues_with_a_state() {
    let (engine, _folder) = fixture().await;
    let jobs = engine.submit_many::<Total>(&[3, 5]).await.unwrap();
    let sent = jobs
        .iter()
        .map(|job| FlowEvent::new(*job, "late", "100").unwrap());
    engine.send_events(sent.collect()).await.unwrap();
    let values = run(&engine, &jobs, |flow, job| async move {
        let never = Box::pin(flow.event::<i64>("never", None));
        let step = Box::pin(flow.step::<Square>(&job.payload));
        if matches!(
            futures::future::select(never, step).await,
            futures::future::Either::Left(_)
        ) {
            return Err(JobError::new("race", "the event won"));
        }
        if job.payload > 1 {
            return flow.continue_with(&(job.payload - 1)).await;
        }
        let late: Option<i64> = flow.event("late", None).await?;
        Ok(flow.continued() as i64 + late.unwrap_or(0))
    })
    .await;
    assert_eq!(values, [Ok(2 + 100), Ok(4 + 100)]);
    for job in jobs {
        let only = Positions::from(job.position..job.position + 1);
        let suspensions = engine.store().suspensions(job.batch, &only).await.unwrap();
        assert_eq!(suspensions[0].len(), 3, "the last round is kept: {suspensions:?}");
    }
}

/// Its second version.
struct Second;

impl Kind for Second {
    const NAME: &'static str = "total@2";
    type Payload = i64;
    type Value = i64;
}

/// A fork has the steps before the chosen one, and runs the others again. Forks of one selection are one batch.
#[tokio::test]
async fn ended_flows_are_forked() {
    let (engine, _folder) = fixture().await;
    let jobs = engine.submit_many::<Total>(&[2, 3]).await.unwrap();
    let flow = |flow: Flow, job: Job<i64>| async move {
        let first = flow.step::<Square>(&job.payload).await?;
        let drawn = flow.local("drawn", || async { Ok(1_000) }).await?;
        Ok(drawn + flow.keyed_step::<Square>("second", &first).await?)
    };
    let store = engine.store().clone();
    let fork = |jobs: Vec<JobId>, from: StepAt| {
        let store = store.clone();
        async move {
            let flows = flows_to_fork(&*store, Selection::Jobs(jobs)).await.unwrap();
            let version = Some("2".to_owned());
            let mut forks = Forks::of(&*store, flows, Fork { from, version }).unwrap();
            let mut all = Vec::new();
            while let Some(more) = forks.next().await.unwrap() {
                all.extend(more);
            }
            all
        }
    };
    let second = || StepAt::Named {
        name: "square".to_owned(),
        key: Some("second".to_owned()),
    };
    let open = fork(jobs.clone(), second()).await;
    let state = gristmill_model::JobState::Waiting;
    assert!(
        open.iter().all(|one| one.fork == Err(CannotFork::Open(state))),
        "{open:?}"
    );
    assert_eq!(run(&engine, &jobs, flow).await, [Ok(1_016), Ok(1_081)]);

    let mut named = jobs.clone();
    named.push("99:0".parse().unwrap());
    let forked = fork(named, second()).await;
    let (forks, refused): (Vec<Forked>, Vec<Forked>) = forked.into_iter().partition(|one| one.fork.is_ok());
    assert_eq!(refused[0].fork, Err(CannotFork::Unknown));
    let forks: Vec<JobId> = forks.into_iter().map(|one| one.fork.unwrap()).collect();
    assert_eq!((forks.len(), forks[0].batch), (2, forks[1].batch));
    // Another version runs them: it gives what it kept, and does the rest its own way.
    let mut worker = engine.worker();
    worker.handle_flow::<Second, _, _>(|flow, job| async move {
        let first = flow.step::<Square>(&job.payload).await?;
        let drawn = flow.local("drawn", || async { Ok(2_000) }).await?;
        Ok(drawn + flow.keyed_step::<Square>("second", &(first + 1)).await?)
    });
    worker.handle::<Square, _, _>(square);
    worker.until_empty().run().await.unwrap();
    let value = |job: JobId| {
        let store = store.clone();
        async move { store.job(job).await.unwrap().unwrap().value.unwrap().to_string() }
    };
    assert_eq!(
        (value(forks[0]).await, value(forks[1]).await),
        ("1025".to_owned(), "1100".to_owned())
    );
    let squares = JobFilter {
        kind: Some("square".to_owned()),
        ..JobFilter::default()
    };
    assert_eq!(
        store.counts(&squares).await.unwrap().completed,
        6,
        "a fork ran one step each"
    );

    let shown = steps(&*store, forks[1], 0, 10).await.unwrap();
    assert_eq!((shown.origin, shown.total), (Some(jobs[1].to_string()), 2));
    let described = shown
        .steps
        .iter()
        .map(|step| (step.number, step.key.as_deref(), step.job.batch));
    let described: Vec<_> = described.collect();
    assert_eq!(described[0].1, None);
    assert_eq!((described[1].0, described[1].1), (1, Some("second")));
    assert!(
        described[0].2 < forks[1].batch && described[1].2 > forks[1].batch,
        "{described:?}"
    );
    assert_eq!(steps(&*store, forks[1], 1, 10).await.unwrap().steps.len(), 1);

    let missing = fork(vec![forks[0]], StepAt::Number(7)).await;
    assert_eq!(
        missing[0].fork.as_ref().unwrap_err().to_string(),
        "it has no step number 7; its steps are square, square (key second)"
    );
}
