//! One suite for all sources, over the store and over HTTP: the guarantees that a worker may rely on.

mod waiting;

use std::sync::Arc;

use gristmill_batching::BatchStats;
use gristmill_engine::Engine;
use gristmill_engine::process::this_worker;
use gristmill_model::{
    ChildBatch, Completed, Control, Effect, FailedJob, JobError, JobLog, JobState, KeyedBatch, Lease,
    PackedArray, PackedBuilder, Positions, Report, Scope, Spawn, Tag, Timestamp, Unique,
};
use gristmill_store::{Change, Selection, Store};
use gristmill_worker::{
    Finalizing, Job, Source, SourceErrorKind, Step, StoreSource, WorkerSettings, job_handler, parent_handler,
};
use waiting::{
    a_drain_runs_what_waits_under_a_limit, delayed_jobs_are_announced,
    jobs_under_a_limit_are_announced_while_waiting, the_end_of_a_drain_is_known_without_a_pause,
    waiting_ends_when_there_is_work, waiting_may_be_left_and_taken_up_again,
};

use crate::support::worker::doubling;
use crate::support::{PATIENCE, Server, batch, engine_on, rows, states, submit, values, want};

/// An engine, with a server over it if the sources use HTTP.
struct Fixture {
    engine: Engine,
    server: Option<Server>,
    _folder: Arc<tempfile::TempDir>,
}

impl Fixture {
    async fn new(over_http: bool) -> Fixture {
        if over_http {
            let server = Server::start().await;
            return Fixture {
                engine: server.engine.clone(),
                _folder: server.folder(),
                server: Some(server),
            };
        }
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Fixture {
            engine: engine_on(&folder).await,
            _folder: folder,
            server: None,
        }
    }

    fn source(&self) -> Arc<dyn Source> {
        match &self.server {
            Some(server) => Arc::new(server.source()),
            None => Arc::new(StoreSource::new(
                self.engine.store().clone(),
                this_worker("worker"),
                self.engine.lease_lost_after_ms(),
            )),
        }
    }

    async fn registered(&self) -> Arc<dyn Source> {
        let source = self.source();
        source.register().await.unwrap();
        source
    }

    fn store(&self) -> &dyn Store {
        &**self.engine.store()
    }
}

/// A report that completes `positions` of a lease's first slice with their own numbers, doubled.
fn doubled(lease: &Lease, positions: &str) -> Report {
    let slice = &lease.slices[0];
    let positions: Positions = positions.parse().unwrap();
    let mut values = PackedBuilder::new();
    positions
        .iter()
        .for_each(|position| values.push_value(&(2 * position)).unwrap());
    let mut report = Report::new(lease.id, slice.batch, slice.attempt);
    report.completed = Some(Completed {
        durations_us: vec![7; positions.len() as usize],
        positions,
        values: values.finish(),
    });
    report
}

fn failed(position: u32, error: JobError) -> FailedJob {
    FailedJob {
        position,
        error,
        duration_us: 3,
    }
}

macro_rules! suite {
    ($($name:ident),* $(,)?) => {
        mod store {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(super::Fixture::new(false).await).await;
            })*
        }
        mod http {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(super::Fixture::new(true).await).await;
            })*
        }
    };
}

suite!(
    claims_and_commits,
    commits_and_claims_in_one_exchange,
    another_workers_lease_is_refused_item_by_item,
    a_second_report_is_refused,
    failures_are_retried_and_then_dead,
    logs_and_tracebacks_arrive,
    a_cancel_revokes_once_and_refuses_the_report,
    leaving_gives_back_uncharged,
    a_heartbeat_asks_to_drain,
    a_heartbeat_tells_what_holds_jobs_back,
    a_lost_worker_registers_again_and_its_late_report_is_refused,
    nothing_can_be_done_before_registering,
    waiting_ends_when_there_is_work,
    waiting_may_be_left_and_taken_up_again,
    delayed_jobs_are_announced,
    jobs_under_a_limit_are_announced_while_waiting,
    a_drain_runs_what_waits_under_a_limit,
    the_end_of_a_drain_is_known_without_a_pause,
    a_worker_registers_with_what_it_serves,
    parents_and_children_go_through,
    siblings_go_through,
    siblings_keep_their_options,
    jobs_tell_what_is_known_of_them,
    large_reports_are_committed_whole,
    a_worker_drains_everything_once,
    a_worker_that_is_stopped_gives_the_rest_back,
);

async fn claims_and_commits(fixture: Fixture) {
    let id = submit(&fixture.engine, batch("double", 10)).await;
    let source = fixture.registered().await;
    let lease = source.exchange(vec![], want(4)).await.unwrap().lease.unwrap();
    assert_eq!(lease.jobs(), 4);
    let slice = &lease.slices[0];
    assert_eq!(
        (slice.batch, &*slice.kind, slice.attempt, slice.rescues),
        (id, "double", 1, 0)
    );
    assert_eq!(slice.payloads.items().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    let done = source
        .exchange(vec![doubled(&lease, "0,2-3")], None)
        .await
        .unwrap();
    assert_eq!(done.receipts[0].accepted.to_string(), "0,2-3");
    assert!(done.receipts[0].refused.is_empty() && done.lease.is_none());
    let expected: Vec<(u32, String)> = [0, 2, 3]
        .map(|position| (position, (2 * position).to_string()))
        .into();
    assert_eq!(values(fixture.store(), id).await, expected);
    let outcomes = fixture.store().outcomes(id).await.unwrap().unwrap();
    assert!(
        outcomes
            .reports
            .iter()
            .all(|report| report.durations_us.iter().all(|us| *us == 7))
    );
}

async fn commits_and_claims_in_one_exchange(fixture: Fixture) {
    submit(&fixture.engine, batch("double", 10)).await;
    let source = fixture.registered().await;
    let first = source.exchange(vec![], want(5)).await.unwrap().lease.unwrap();
    let both = source
        .exchange(vec![doubled(&first, "0-4")], want(100))
        .await
        .unwrap();
    assert_eq!(both.receipts[0].accepted.len(), 5);
    assert_eq!(both.lease.unwrap().slices[0].positions.to_string(), "5-9");
    let nothing = source.exchange(vec![], want(100)).await.unwrap();
    assert_eq!((nothing.lease, nothing.next_run_at), (None, None));
}

async fn another_workers_lease_is_refused_item_by_item(fixture: Fixture) {
    let id = submit(&fixture.engine, batch("double", 10)).await;
    let (mine, other) = (fixture.registered().await, fixture.registered().await);
    let my_lease = mine.exchange(vec![], want(5)).await.unwrap().lease.unwrap();
    let other_lease = other.exchange(vec![], want(5)).await.unwrap().lease.unwrap();
    let reports = vec![doubled(&other_lease, "5-9"), doubled(&my_lease, "0-6")];
    let answer = mine.exchange(reports, None).await.unwrap();
    assert_eq!(answer.receipts[0].refused.to_string(), "5-9");
    assert_eq!(answer.receipts[1].accepted.to_string(), "0-4");
    assert_eq!(answer.receipts[1].refused.to_string(), "5-6");
    assert_eq!(states(fixture.store(), id).await.iter().flatten().count(), 5);
}

async fn a_second_report_is_refused(fixture: Fixture) {
    submit(&fixture.engine, batch("double", 4)).await;
    let source = fixture.registered().await;
    let lease = source.exchange(vec![], want(4)).await.unwrap().lease.unwrap();
    source.exchange(vec![doubled(&lease, "0-2")], None).await.unwrap();
    let again = source.exchange(vec![doubled(&lease, "1-3")], None).await.unwrap();
    assert_eq!(again.receipts[0].accepted.to_string(), "3");
    assert_eq!(again.receipts[0].refused.to_string(), "1-2");
}

async fn failures_are_retried_and_then_dead(fixture: Fixture) {
    let id = submit(&fixture.engine, batch("double", 3)).await;
    let source = fixture.registered().await;
    let lease = source.exchange(vec![], want(3)).await.unwrap().lease.unwrap();
    let mut report = Report::new(lease.id, id, 1);
    report.failed = vec![
        failed(0, JobError::new("E", "again")),
        failed(1, JobError::new("E", "no").permanent()),
    ];
    report.released = "2".parse().unwrap();
    let answer = source.exchange(vec![report], want(3)).await.unwrap();
    assert_eq!(answer.receipts[0].dead.to_string(), "1");
    let mut attempts: Vec<(String, u32)> = answer
        .lease
        .unwrap()
        .slices
        .iter()
        .map(|slice| (slice.positions.to_string(), slice.attempt))
        .collect();
    attempts.sort();
    assert_eq!(attempts, [("0".to_owned(), 2), ("2".to_owned(), 1)]);
    assert_eq!(
        states(fixture.store(), id).await,
        [None, Some(JobState::Dead), None]
    );
}

async fn logs_and_tracebacks_arrive(fixture: Fixture) {
    let id = submit(&fixture.engine, batch("double", 2)).await;
    let source = fixture.registered().await;
    let lease = source.exchange(vec![], want(2)).await.unwrap().lease.unwrap();
    let mut report = doubled(&lease, "0");
    report.failed = vec![failed(
        1,
        JobError::new("ValueError", "no")
            .with_traceback("line 1")
            .permanent(),
    )];
    report.logs = vec![
        JobLog {
            position: 0,
            text: "zero\n".to_owned(),
        },
        JobLog {
            position: 1,
            text: "é\n".to_owned(),
        },
    ];
    source.exchange(vec![report], None).await.unwrap();
    let job = |position| gristmill_model::JobId { batch: id, position };
    let zero = fixture.store().job(job(0)).await.unwrap().unwrap();
    assert_eq!(zero.log.as_deref(), Some("zero\n"));
    let one = fixture.store().job(job(1)).await.unwrap().unwrap();
    assert_eq!(one.failures[0].log.as_deref(), Some("é\n"));
    assert_eq!(one.failures[0].error.traceback.as_deref(), Some("line 1"));
}

async fn a_cancel_revokes_once_and_refuses_the_report(fixture: Fixture) {
    let id = submit(&fixture.engine, batch("double", 4)).await;
    let source = fixture.registered().await;
    let lease = source.exchange(vec![], want(4)).await.unwrap().lease.unwrap();
    let job = gristmill_model::JobId {
        batch: id,
        position: 2,
    };
    fixture
        .store()
        .change(Selection::Jobs(vec![job]), Change::Cancel)
        .await
        .unwrap();
    let heartbeat = source
        .heartbeat(BatchStats::default(), Vec::new(), None)
        .await
        .unwrap();
    assert!(heartbeat.known);
    assert_eq!(
        (
            heartbeat.revoked[0].lease,
            heartbeat.revoked[0].positions.to_string()
        ),
        (lease.id, "2".to_owned())
    );
    assert!(
        source
            .heartbeat(BatchStats::default(), Vec::new(), None)
            .await
            .unwrap()
            .revoked
            .is_empty()
    );
    let answer = source.exchange(vec![doubled(&lease, "0-3")], None).await.unwrap();
    assert_eq!(answer.receipts[0].refused.to_string(), "2");
    assert_eq!(states(fixture.store(), id).await[2], Some(JobState::Cancelled));
}

async fn a_heartbeat_tells_what_holds_jobs_back(fixture: Fixture) {
    let source = fixture.registered().await;
    let told = async || {
        let heartbeat = source
            .heartbeat(BatchStats::default(), Vec::new(), want(1))
            .await
            .unwrap();
        assert!(heartbeat.known);
        heartbeat.held_back
    };
    assert_eq!(told().await, None);
    let mut due = batch("double", 1);
    due.options.run_at = Some(Timestamp(1));
    submit(&fixture.engine, due).await;
    let pause = Control {
        scope: Scope::default(),
        effect: Effect::Pause {
            reason: "stocktaking".to_owned(),
            until: None,
        },
    };
    fixture.store().put_controls(vec![pause]).await.unwrap();
    let text = told().await.unwrap();
    assert!(
        text.ends_with("a pause of all jobs holds them (stocktaking, until it is resumed)"),
        "{text}"
    );
}

async fn a_heartbeat_asks_to_drain(fixture: Fixture) {
    let source = fixture.registered().await;
    let asked = async || {
        let heartbeat = source
            .heartbeat(BatchStats::default(), Vec::new(), None)
            .await
            .unwrap();
        assert!(heartbeat.known);
        heartbeat.drain
    };
    assert!(!asked().await);
    let workers = fixture.store().workers().await.unwrap();
    assert!(fixture.store().drain_worker(workers[0].id).await.unwrap());
    assert!(asked().await);
}

async fn leaving_gives_back_uncharged(fixture: Fixture) {
    submit(&fixture.engine, batch("double", 4)).await;
    let (first, second) = (fixture.registered().await, fixture.registered().await);
    let lease = first.exchange(vec![], want(4)).await.unwrap().lease.unwrap();
    first.exchange(vec![doubled(&lease, "0")], None).await.unwrap();
    first.leave(BatchStats::default()).await.unwrap();
    let lease = second.exchange(vec![], want(4)).await.unwrap().lease.unwrap();
    assert_eq!(
        (lease.slices[0].positions.to_string(), lease.slices[0].attempt),
        ("1-3".to_owned(), 1)
    );
    assert_eq!(fixture.store().workers().await.unwrap().len(), 1);
}

async fn a_lost_worker_registers_again_and_its_late_report_is_refused(fixture: Fixture) {
    let id = submit(&fixture.engine, batch("double", 4)).await;
    let source = fixture.registered().await;
    let lease = source.exchange(vec![], want(2)).await.unwrap().lease.unwrap();
    let rows = fixture.store().workers().await.unwrap();
    fixture
        .store()
        .rescue(rows[0].heartbeat_at.plus_ms(1), vec![])
        .await
        .unwrap();
    assert!(
        !source
            .heartbeat(BatchStats::default(), Vec::new(), None)
            .await
            .unwrap()
            .known
    );
    let error = source.exchange(vec![], want(2)).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Unregistered);
    source.register().await.unwrap();
    let answer = source
        .exchange(vec![doubled(&lease, "0-1")], want(4))
        .await
        .unwrap();
    assert_eq!(answer.receipts[0].refused.to_string(), "0-1");
    assert_eq!(answer.lease.unwrap().jobs(), 4);
    assert_eq!(states(fixture.store(), id).await, vec![None; 4]);
}

async fn nothing_can_be_done_before_registering(fixture: Fixture) {
    let source = fixture.source();
    let error = source.exchange(vec![], want(1)).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Unregistered);
}

async fn large_reports_are_committed_whole(fixture: Fixture) {
    const JOBS: u32 = 600;
    let id = submit(&fixture.engine, batch("double", JOBS)).await;
    let source = fixture.registered().await;
    let lease = source.exchange(vec![], want(JOBS)).await.unwrap().lease.unwrap();
    // 60 MB: more than one request holds.
    let mut values_of = PackedBuilder::new();
    (0..JOBS).for_each(|position| {
        values_of
            .push_value(&format!("{position}").repeat(100_000 / 3))
            .unwrap()
    });
    let mut report = Report::new(lease.id, id, 1);
    report.completed = Some(Completed {
        positions: Positions::all(JOBS),
        values: values_of.finish(),
        durations_us: vec![1; JOBS as usize],
    });
    let answer = source.exchange(vec![report], want(1)).await.unwrap();
    assert_eq!(answer.receipts.len(), 1);
    assert_eq!(answer.receipts[0].accepted, Positions::all(JOBS));
    let values = values(fixture.store(), id).await;
    assert!((0..).zip(&values).all(|(index, (position, value))| {
        *position == index && value.starts_with(&format!("\"{index}{index}"))
    }));
    assert_eq!(values.len(), JOBS as usize);
}

async fn a_worker_drains_everything_once(fixture: Fixture) {
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(submit(&fixture.engine, batch("double", 1_000)).await);
    }
    let settings = WorkerSettings {
        until_empty: true,
        ..WorkerSettings::default()
    };
    let running = doubling(fixture.source(), settings).run();
    let summary = tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();
    assert_eq!(
        (summary.completed, summary.failed, summary.refused),
        (4_500, 1_000, 0)
    );
    for id in ids {
        for (position, state) in states(fixture.store(), id).await.into_iter().enumerate() {
            let expected = if position % 10 == 7 {
                JobState::Dead
            } else {
                JobState::Completed
            };
            assert_eq!(state, Some(expected), "{id}:{position}");
        }
        let values = values(fixture.store(), id).await;
        assert!(
            values
                .iter()
                .all(|(position, value)| *value == (2 * position).to_string())
        );
    }
    assert!(fixture.store().workers().await.unwrap().is_empty());
}

async fn a_worker_registers_with_what_it_serves(fixture: Fixture) {
    let id = submit(&fixture.engine, batch("look", 1)).await;
    let settings = WorkerSettings {
        until_empty: true,
        ..WorkerSettings::default()
    };
    let mut worker = doubling(fixture.source(), settings);
    let store = fixture.engine.store().clone();
    let look = move |_: Job<u32>| {
        let store = store.clone();
        async move {
            let rows = store.workers().await.expect("the store lists them");
            let served = rows.into_iter().map(|row| (row.worker.queues, row.worker.kinds));
            Ok::<_, JobError>(served.collect::<Vec<_>>())
        }
    };
    worker.handle("look", job_handler(look));
    tokio::time::timeout(PATIENCE, worker.run())
        .await
        .unwrap()
        .unwrap();
    let expected = r#"[[["default"],["double","look"]]]"#;
    assert_eq!(values(fixture.store(), id).await, [(0, expected.to_owned())]);
}

async fn parents_and_children_go_through(fixture: Fixture) {
    let id = submit(&fixture.engine, batch("family", 20)).await;
    let settings = WorkerSettings {
        until_empty: true,
        ..WorkerSettings::default()
    };
    let mut worker = doubling(fixture.source(), settings);
    let run = |job: Job<u32>| async move {
        let numbers = (0..3).map(|child| 10 * job.payload + child);
        let spawn = Spawn::new().children("double", numbers).unwrap();
        Ok::<_, JobError>(Step::Wait(spawn.memo(&job.payload).unwrap()))
    };
    let finalize = |finalizing: Finalizing<u32, u32>| async move {
        let doubled: Vec<u32> = finalizing.values()?;
        Ok(Step::Done(doubled.iter().sum::<u32>() + finalizing.memo))
    };
    worker.handle("family", parent_handler(run, finalize));
    tokio::time::timeout(PATIENCE, worker.run())
        .await
        .unwrap()
        .unwrap();
    let mut values = values(fixture.store(), id).await;
    values.sort_unstable();
    let expected: Vec<(u32, String)> = (0..20)
        .map(|parent| (parent, (61 * parent + 6).to_string()))
        .collect();
    assert_eq!(values, expected);
}

async fn jobs_tell_what_is_known_of_them(fixture: Fixture) {
    let mut jobs = batch("told", 4);
    jobs.options.group = Some("acme".to_owned());
    jobs.options.complete_within_ms = Some(3_600_000);
    jobs.tags = vec![
        Tag::all("tenant", "7"),
        Tag {
            positions: Some("1,3".parse().unwrap()),
            ..Tag::all("page", "a")
        },
    ];
    let keys = PackedArray::parse(r#"["zero",null,null,"three"]"#).unwrap();
    let keyed = KeyedBatch::new(jobs, keys, Unique::default());
    let submitted = fixture.store().submit_keyed(vec![keyed]).await.unwrap();
    let id = submitted[0].jobs[0].batch;
    let plain = submit(&fixture.engine, batch("told", 1)).await;
    let settings = WorkerSettings {
        until_empty: true,
        ..WorkerSettings::default()
    };
    let mut worker = doubling(fixture.source(), settings);
    let told = |job: Job<u32>| async move {
        if job.attempt() == 1 && job.payload == 3 {
            return Err(JobError::new("Three", "once more"));
        }
        let (key, tags) = (job.key().unwrap_or_default(), job.tags());
        let tags: Vec<String> = tags
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!((job.id(), job.batch()), (job.id, job.id.batch));
        let (kind, queue, group) = (job.kind(), job.queue(), job.group().unwrap_or_default());
        let deadline = job.deadline().is_some();
        let attempt = job.attempt();
        Ok(format!(
            "{attempt} {key} {kind} {queue} {group} {} {deadline}",
            tags.join(",")
        ))
    };
    worker.handle("told", job_handler(told));
    tokio::time::timeout(PATIENCE, worker.run())
        .await
        .unwrap()
        .unwrap();
    let mut values_of = values(fixture.store(), id).await;
    values_of.sort_unstable();
    let values_of: Vec<&str> = values_of.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(
        values_of,
        [
            r#""1 zero told default acme tenant=7 true""#,
            r#""1  told default acme page=a,tenant=7 true""#,
            r#""1  told default acme tenant=7 true""#,
            r#""2 three told default acme page=a,tenant=7 true""#,
        ]
    );
    let value = &values(fixture.store(), plain).await[0].1;
    assert_eq!(value, r#""1  told default   false""#);
}

async fn siblings_go_through(fixture: Fixture) {
    let id = submit(&fixture.engine, batch("family", 20)).await;
    let settings = WorkerSettings {
        until_empty: true,
        ..WorkerSettings::default()
    };
    let mut worker = doubling(fixture.source(), settings);
    let run = |job: Job<u32>| async move {
        let spawn = Spawn::new().children("countdown", [4, job.payload % 4]).unwrap();
        Ok::<_, JobError>(Step::Wait(spawn))
    };
    let finalize = |finalizing: Finalizing<u32, ()>| async move {
        let numbers: Vec<u32> = finalizing.values()?;
        Ok(Step::Done(numbers.iter().sum::<u32>()))
    };
    worker.handle("family", parent_handler(run, finalize));
    // Every child but the last spawns the next one beside itself.
    worker.handle(
        "countdown",
        job_handler(|job: Job<u32>| async move {
            if job.payload > 0 {
                job.context.spawn_siblings("countdown", [job.payload - 1])?;
            }
            Ok::<_, JobError>(job.payload)
        }),
    );
    tokio::time::timeout(PATIENCE, worker.run())
        .await
        .unwrap()
        .unwrap();
    let mut values = values(fixture.store(), id).await;
    values.sort_unstable();
    let sum = |from: u32| (0..=from).sum::<u32>();
    let expected: Vec<(u32, String)> = (0..20)
        .map(|parent| (parent, (sum(4) + sum(parent % 4)).to_string()))
        .collect();
    assert_eq!(values, expected);
}

async fn siblings_keep_their_options(fixture: Fixture) {
    let id = submit(&fixture.engine, batch("family", 1)).await;
    let settings = WorkerSettings {
        until_empty: true,
        ..WorkerSettings::default()
    };
    let mut worker = doubling(fixture.source(), settings);
    let run = |_: Job<u32>| async {
        let spawn = Spawn::new().children("child", [0]).unwrap();
        Ok::<_, JobError>(Step::Wait(spawn))
    };
    let finalize = |finalizing: Finalizing<u32, ()>| async move {
        let mut told: Vec<String> = finalizing.values()?;
        told.sort_unstable();
        Ok(Step::Done(told))
    };
    worker.handle("family", parent_handler(run, finalize));
    worker.handle(
        "child",
        job_handler(|job: Job<u32>| async move {
            let mut siblings = ChildBatch::new("sibling", PackedArray::parse("[7,8]").unwrap());
            siblings.options.complete_within_ms = Some(600_000);
            siblings.tags.insert("page".to_owned(), "a".to_owned());
            job.context.spawn_sibling_batch(siblings)?;
            Ok::<_, JobError>("child".to_owned())
        }),
    );
    worker.handle(
        "sibling",
        job_handler(|job: Job<u32>| async move {
            let page = job.tags().remove("page").unwrap_or_default();
            Ok::<_, JobError>(format!("{} {page} {}", job.payload, job.deadline().is_some()))
        }),
    );
    tokio::time::timeout(PATIENCE, worker.run())
        .await
        .unwrap()
        .unwrap();
    let expected = r#"["7 a true","8 a true","child"]"#.to_owned();
    assert_eq!(values(fixture.store(), id).await, [(0, expected)]);
}

async fn a_worker_that_is_stopped_gives_the_rest_back(fixture: Fixture) {
    let id = submit(&fixture.engine, batch("double", 1_000)).await;
    let mut worker = doubling(fixture.source(), WorkerSettings::default());
    let begun = Arc::new(tokio::sync::Notify::new());
    let hold = begun.clone();
    worker.handle(
        "double",
        job_handler(move |job: Job<u32>| {
            let hold = hold.clone();
            async move {
                hold.notify_one();
                tokio::task::yield_now().await;
                Ok::<_, JobError>(job.payload)
            }
        }),
    );
    let stopper = worker.stopper();
    let running = tokio::spawn(worker.run());
    tokio::time::timeout(PATIENCE, begun.notified()).await.unwrap();
    stopper.stop();
    let summary = tokio::time::timeout(PATIENCE, running)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let rows = rows(fixture.store(), id).await;
    let of = |state| rows.iter().filter(|row| row.state == state).count() as u64;
    assert_eq!(of(JobState::Completed), summary.completed);
    assert_eq!(of(JobState::Waiting) + summary.completed, 1_000);
    assert!(rows.iter().all(|row| row.attempt == 1));
}
