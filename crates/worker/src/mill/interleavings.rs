//! Random interleavings of the threads that share state with a worker's loop: handlers that answer, recalls,
//! cancellations and progress. Only the loop owns the dispatcher and the report buffer. The other threads reach it
//! through one channel.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p gristmill-worker --lib --target host-tuple interleavings`
//!
//! Shuttle fails a schedule in which all threads wait forever, which means a lost wake-up.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gristmill_batching::BatchStats;
use gristmill_model::{
    BatchId, JobId, JobProgress, LeaseId, LeasedSlice, PackedArray, Positions, Progress, Report, RetryPolicy,
    Timestamp,
};
use gristmill_store::{ChildOutcome, Exchanged, Heartbeat, Revoked, Want};
use shuttle::future::{JoinHandle, block_on, spawn, yield_now};
use shuttle::thread;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::handler::Handler;
use crate::handler::function::{Job, job_handler};
use crate::handler::micro_batch::MicroBatch;
use crate::live_output::LiveOutputBoard;
use crate::mill::delivery::{Delivery, DeliveryEvent, DeliveryId, Shared};
use crate::mill::report_buffer::ReportBuffer;
use crate::progress::ProgressBoard;
use crate::source::{Source, SourceError};

/// The number of schedules in each test.
const SCHEDULES: usize = 20_000;

/// The number of preemptions in a schedule. A race needs two or three.
const PREEMPTIONS: usize = 3;

const LEASE: LeaseId = LeaseId(9);

/// The number of jobs in a delivery.
const JOBS: u32 = 3;

/// The source of a worker whose jobs have no children. It is never asked.
struct NoSource;

#[async_trait]
impl Source for NoSource {
    async fn register(&self) -> Result<(), SourceError> {
        unreachable!("a delivery does not register")
    }

    async fn exchange(&self, _: Vec<Report>, _: Option<Want>) -> Result<Exchanged, SourceError> {
        unreachable!("a delivery reports to its worker")
    }

    async fn heartbeat(
        &self,
        _: BatchStats,
        _: Vec<JobProgress>,
        _: Option<Want>,
    ) -> Result<Heartbeat, SourceError> {
        unreachable!("a delivery has no heartbeat")
    }

    async fn leave(&self, _: BatchStats) -> Result<(), SourceError> {
        unreachable!("a delivery does not leave")
    }

    async fn children(
        &self,
        _: LeaseId,
        _: BatchId,
        _: &Positions,
    ) -> Result<Vec<Vec<ChildOutcome>>, SourceError> {
        unreachable!("no job finalizes")
    }

    async fn wait_for_work(&self) {}
}

fn micro_batch(batch: i64) -> MicroBatch {
    let items: Vec<String> = (0..JOBS).map(|number| number.to_string()).collect();
    MicroBatch::new(vec![LeasedSlice {
        lease: LEASE,
        batch: BatchId(batch),
        kind: "count".into(),
        queue: "default".into(),
        group: None,
        payloads: PackedArray::parse(&format!("[{}]", items.join(","))).unwrap(),
        positions: Positions::from(0..JOBS),
        attempt: 1,
        rescues: 0,
        timeout_ms: None,
        priority: 0,
        retry: RetryPolicy::default(),
        submitted_at: Timestamp(0),
        memos: None,
        deadline: None,
        labels: None,
        traceparent: None,
    }])
}

/// The worker's side of its deliveries.
struct Owner {
    shared: Shared,
    events: UnboundedReceiver<DeliveryEvent>,
}

/// The events that the owner received from its deliveries.
#[derive(Default)]
struct Heard {
    reports: Vec<Report>,
    /// The jobs that were recalled before they began.
    returned: Vec<(DeliveryId, Positions)>,
}

impl Owner {
    fn new() -> Owner {
        let (sender, events) = unbounded_channel();
        let shared = Shared {
            draining: Arc::default(),
            board: ProgressBoard::default(),
            output: LiveOutputBoard::default(),
            cancel_grace: Duration::ZERO,
            events: sender,
        };
        Owner { shared, events }
    }

    /// Gives the micro-batch of this number to the only runner.
    fn deliver(&self, number: u64, handler: &Arc<dyn Handler>) -> (Arc<Delivery>, JoinHandle<()>) {
        let work = micro_batch(number.cast_signed());
        let delivery = Delivery::new(DeliveryId(number), 0, 0, work, &self.shared);
        let run = delivery.clone().run(handler.clone(), Arc::new(NoSource));
        (delivery, spawn(run))
    }

    /// Listens until this many deliveries have ended. An ended delivery sends nothing more.
    async fn listen(&mut self, deliveries: u64) -> Heard {
        let (mut heard, mut buffer, mut ended) = (Heard::default(), ReportBuffer::default(), Vec::new());
        while (ended.len() as u64) < deliveries {
            match self.events.recv().await.expect("the owner holds a sender") {
                DeliveryEvent::Ended { delivery, .. } => ended.push(delivery),
                DeliveryEvent::Answered {
                    delivery, outcomes, ..
                } => {
                    assert!(!ended.contains(&delivery), "{delivery:?} answers after its end");
                    if !outcomes.returned.is_empty() {
                        heard.returned.push((delivery, outcomes.returned.clone()));
                    }
                    buffer.add(LEASE, BatchId(delivery.0.cast_signed()), 1, 0, *outcomes);
                }
                DeliveryEvent::RunnerChanged { .. } => panic!("these handlers have no listener"),
            }
        }
        heard.reports = buffer.take();
        heard
    }
}

impl Heard {
    /// Checks that each job of a delivery has one answer.
    fn check(&self, delivery: u64) {
        let batch = BatchId(delivery.cast_signed());
        let reported = self.reports.iter().filter(|report| report.batch == batch);
        let returned = self.returned.iter().filter(|(of, _)| of.0 == delivery);
        let answers = reported
            .map(Report::positions)
            .chain(returned.map(|(_, positions)| positions.clone()));
        let mut answered: Vec<u32> = answers
            .flat_map(|positions| positions.iter().collect::<Vec<_>>())
            .collect();
        answered.sort_unstable();
        assert_eq!(
            answered,
            Vec::from_iter(0..JOBS),
            "{:?} {:?}",
            self.reports,
            self.returned
        );
    }
}

/// Tries random schedules, and schedules with few preemptions. The latter find races that need a long run of one thread.
fn explore(model: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(model.clone(), SCHEDULES);
    shuttle::check_pct(model, SCHEDULES, PREEMPTIONS);
}

/// A handler whose jobs complete at once or a little later.
fn completing() -> Arc<dyn Handler> {
    job_handler(|job: Job<u32>| async move {
        if job.payload % 2 == 1 {
            yield_now().await;
        }
        Ok(job.payload)
    })
}

/// A handler whose last jobs never end.
fn endless() -> Arc<dyn Handler> {
    job_handler(|job: Job<u32>| async move {
        if job.payload > 0 {
            std::future::pending::<()>().await;
        }
        Ok(job.payload)
    })
}

#[test]
fn each_job_has_one_answer_whenever_its_runner_is_recalled() {
    explore(|| {
        let mut owner = Owner::new();
        let handler = completing();
        let _deliveries = [owner.deliver(1, &handler), owner.deliver(2, &handler)];
        let recalling = thread::spawn(move || {
            handler.recall(0);
            handler.recall(0);
        });
        let heard = block_on(owner.listen(2));
        heard.check(1);
        heard.check(2);
        recalling.join().unwrap();
    });
}

#[test]
fn cancelled_jobs_that_continue_are_given_up() {
    explore(|| {
        let mut owner = Owner::new();
        let (delivery, _run) = owner.deliver(1, &endless());
        let revoking: Vec<_> = (0..JOBS)
            .map(|position| {
                let delivery = delivery.clone();
                thread::spawn(move || {
                    delivery.revoke(&Revoked {
                        lease: LEASE,
                        batch: BatchId(1),
                        positions: Positions::from(position..position + 1),
                    });
                })
            })
            .collect();
        block_on(owner.listen(1)).check(1);
        revoking.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn a_drain_gives_unbegun_jobs_back() {
    explore(|| {
        let mut owner = Owner::new();
        let (delivery, _run) = owner.deliver(1, &completing());
        let pausing = thread::spawn(move || delivery.pause());
        block_on(owner.listen(1)).check(1);
        pausing.join().unwrap();
    });
}

#[test]
fn the_last_progress_of_each_job_is_reported() {
    explore(|| {
        let board = ProgressBoard::default();
        let job = |position| JobId {
            batch: BatchId(1),
            position,
        };
        let saying: Vec<_> = (0..2)
            .map(|position| {
                let board = board.clone();
                thread::spawn(move || {
                    board.say(job(position), 1, Progress::of(1, 2));
                    board.say(job(position), 1, Progress::of(2, 2));
                })
            })
            .collect();
        block_on(async {
            let mut is_lost = true;
            loop {
                board.changed().await;
                let told = board.take().unwrap_or_default();
                // The first write fails and is repeated.
                if std::mem::take(&mut is_lost) {
                    board.give_back();
                    continue;
                }
                let done = told.iter().filter(|job| job.progress == Progress::of(2, 2));
                if done.count() == 2 {
                    return;
                }
            }
        });
        saying.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
