//! Each job has exactly one outcome, whatever happens to networks, agents and servers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_agent::{HttpSource, HttpSourceOptions, ServerListener, ServerNews};
use gristmill_batching::BatchStats;
use gristmill_model::{
    BatchId, Completed, JobProgress, JobState, Lease, LeaseId, PackedBuilder, Positions, Report, SystemClock,
};
use gristmill_server::ServeOptions;
use gristmill_store::{ChildOutcome, Exchanged, Heartbeat, Want};
use gristmill_test_tools::lossy_proxy::lossy_proxy;
use gristmill_worker::{Job, NoObserver, Source, SourceError, Worker, WorkerSettings, job_handler};

use crate::support::held_answer::holding_proxy;
use crate::support::worker::doubling;
use crate::support::{
    PATIENCE, Server, batch, check_doubled, options_for, rows, source, states, submit, want,
};

fn until_empty() -> WorkerSettings {
    WorkerSettings {
        until_empty: true,
        ..WorkerSettings::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_drops_delays_and_repeats_changes_no_outcome() {
    for seed in 0..3 {
        run_on_a_bad_network(1, seed).await;
    }
}

/// Each request, and each of its attempts, may reach another server of the same store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_network_with_several_servers_changes_no_outcome() {
    for seed in 10..13 {
        run_on_a_bad_network(3, seed).await;
    }
}

async fn run_on_a_bad_network(servers: usize, seed: u64) {
    let server = Server::start().await;
    let mut others = Vec::new();
    for _ in 1..servers {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = ServeOptions {
            listen,
            ..ServeOptions::default()
        };
        others.push(Server::start_on(server.folder(), options).await);
    }
    let addresses: Vec<SocketAddr> = std::iter::once(&server)
        .chain(&others)
        .map(|server| server.address)
        .collect();
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(submit(&server.engine, batch("double", 500)).await);
    }
    let mut workers = Vec::new();
    for number in 0..3 {
        let url = lossy_proxy(&addresses, 10 * seed + number).await;
        let settings = WorkerSettings {
            micro_batch_jobs_max: 20,
            ..until_empty()
        };
        workers.push(tokio::spawn(
            doubling(Arc::new(source(options_for(&url))), settings).run(),
        ));
    }
    let (mut completed, mut refused) = (0, 0);
    for worker in workers {
        let summary = tokio::time::timeout(PATIENCE, worker)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        completed += summary.completed;
        refused += summary.refused;
    }
    // An unknown claim would have been released without an attempt when its worker ended. Only second attempts may be
    // left, because they may become claimable after a worker's last look. With several servers, workers register again
    // more often. If the message that one has left is lost, the store misses its heartbeats.
    let missed = server.engine.clock().now().plus_ms(1);
    server.store().rescue(missed, Vec::new()).await.unwrap();
    for id in ids.iter().filter(|_| servers == 1) {
        let left = rows(&**server.store(), *id)
            .await
            .into_iter()
            .filter(|row| !row.state.is_final());
        left.for_each(|row| assert_eq!(row.attempt, 2, "{} of seed {seed}", row.job));
    }
    let rest = doubling(Arc::new(server.source()), until_empty()).run();
    completed += tokio::time::timeout(PATIENCE, rest)
        .await
        .unwrap()
        .unwrap()
        .completed;
    // A report that was taken twice, or a lost receipt, would show in the counts.
    check_doubled(&**server.store(), &ids).await;
    assert_eq!((completed, refused), (6 * 450, 0), "seed {seed}");
    for other in others {
        other.stop().await;
    }
    server.stop().await;
}

/// Claims until there is a job.
async fn claim(source: &dyn Source) -> Lease {
    loop {
        if let Some(lease) = source.exchange(vec![], want(1)).await.unwrap().lease {
            return lease;
        }
        source.wait_for_work().await;
    }
}

/// The server keeps few answers. If a lost answer to a claim is requested too late, the jobs belong only to a worker
/// that keeps sending heartbeats, so that nobody rescues them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_given_back_whose_answer_is_lost_and_forgotten() {
    let server = Server::start().await;
    let (url, held) = holding_proxy(server.address).await;
    let source: Arc<dyn Source> = Arc::new(source(options_for(&url)));
    source.register().await.unwrap();
    submit(&server.engine, batch("double", 1)).await;
    let first = source.exchange(vec![], want(1)).await.unwrap().lease.unwrap();
    assert!(source.exchange(vec![], want(1)).await.unwrap().lease.is_none());
    let waiting = {
        let source = source.clone();
        tokio::spawn(async move { source.wait_for_work().await })
    };
    let second = submit(&server.engine, batch("double", 1)).await;
    tokio::time::timeout(PATIENCE, held.claimed.notified())
        .await
        .unwrap();
    let mut report = Report::new(first.id, first.slices[0].batch, 1);
    let mut values = PackedBuilder::new();
    values.push_value(&0).unwrap();
    report.completed = Some(Completed {
        positions: "0".parse().unwrap(),
        values: values.finish(),
        durations_us: vec![1],
    });
    for _ in 0..8 {
        source.exchange(vec![report.clone()], None).await.unwrap();
    }
    held.lose.notify_one();
    tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    let lease = tokio::time::timeout(PATIENCE, claim(&*source))
        .await
        .expect("the job is claimed again");
    assert_eq!(lease.slices[0].batch, second);
    source.leave(BatchStats::default()).await.unwrap();
    server.stop().await;
}

/// A claim that waits at the server may be sent before a report is committed. If it finds nothing, this says nothing
/// about the jobs that the report makes claimable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_before_a_commit_says_nothing_about_what_the_commit_makes_claimable() {
    let server = Server::start().await;
    let (url, held) = holding_proxy(server.address).await;
    let options = HttpSourceOptions {
        wait: Duration::from_millis(10),
        ..options_for(&url)
    };
    let source: Arc<dyn Source> = Arc::new(source(options));
    source.register().await.unwrap();
    submit(&server.engine, batch("double", 1)).await;
    let lease = source.exchange(vec![], want(1)).await.unwrap().lease.unwrap();
    assert!(source.exchange(vec![], want(1)).await.unwrap().lease.is_none());
    held.holds_reports.send_replace(true);
    let mut report = Report::new(lease.id, lease.slices[0].batch, 1);
    report.released = "0".parse().unwrap();
    let reporting = {
        let source = source.clone();
        tokio::spawn(async move { source.exchange(vec![report], None).await })
    };
    tokio::time::timeout(PATIENCE, held.reported.notified())
        .await
        .unwrap();
    let waiting = {
        let source = source.clone();
        tokio::spawn(async move { source.wait_for_work().await })
    };
    // The first claim has found nothing when the second one is sent.
    let mut waits = held.waiting.subscribe();
    tokio::time::timeout(PATIENCE, waits.wait_for(|waits| *waits >= 2))
        .await
        .unwrap()
        .unwrap();
    held.holds_reports.send_replace(false);
    tokio::time::timeout(PATIENCE, reporting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let answer = source.exchange(vec![], want(1)).await.unwrap();
    assert!(
        answer.lease.is_some() || answer.limited,
        "there is a job: {answer:?}"
    );
    waiting.abort();
    held.lose.notify_one();
    source.leave(BatchStats::default()).await.unwrap();
    server.stop().await;
}

/// An agent requests a lost answer for a limited time. The claim that it then gives up also belongs to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_given_back_whose_answer_is_given_up() {
    let server = Server::start().await;
    let (url, held) = holding_proxy(server.address).await;
    let options = HttpSourceOptions {
        give_up_after: Some(Duration::ZERO),
        ..options_for(&url)
    };
    let source: Arc<dyn Source> = Arc::new(source(options));
    source.register().await.unwrap();
    assert!(source.exchange(vec![], want(1)).await.unwrap().lease.is_none());
    let waiting = {
        let source = source.clone();
        tokio::spawn(async move { source.wait_for_work().await })
    };
    let batch = submit(&server.engine, batch("double", 1)).await;
    tokio::time::timeout(PATIENCE, held.claimed.notified())
        .await
        .unwrap();
    held.lose.notify_one();
    tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    let lease = tokio::time::timeout(PATIENCE, claim(&*source))
        .await
        .expect("the job is claimed again");
    assert_eq!(lease.slices[0].batch, batch);
    source.leave(BatchStats::default()).await.unwrap();
    server.stop().await;
}

/// A heartbeat of a former registration may be answered after the worker has registered again. If the worker then
/// dropped its jobs, the server would regard them as held by a living worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_called_unknown_runs_its_jobs_all_the_same() {
    let server = Server::start().await;
    let id = submit(&server.engine, batch("double", 3_000)).await;
    let source = Arc::new(Forgetful {
        inner: server.source(),
        is_running: AtomicBool::new(false),
        is_told: AtomicBool::new(false),
    });
    // By the thousandth job, a claim holds many jobs, which wait behind the running one.
    let settings = WorkerSettings {
        concurrency: 1,
        micro_batch_jobs_max: 1,
        ..until_empty()
    };
    let mut worker = Worker::new(
        source.clone(),
        settings,
        Arc::new(NoObserver),
        Arc::new(SystemClock),
    );
    worker.handle(
        "double",
        job_handler(move |job: Job<u32>| {
            let source = source.clone();
            async move {
                if job.payload >= 1_000 && !source.is_told.load(Ordering::Relaxed) {
                    source.is_running.store(true, Ordering::Relaxed);
                    job.context.cancelled().await;
                }
                Ok(2 * job.payload)
            }
        }),
    );
    tokio::time::timeout(PATIENCE, worker.run())
        .await
        .unwrap()
        .unwrap();
    let states = states(&**server.store(), id).await;
    let completed = states.iter().filter(|state| **state == Some(JobState::Completed));
    assert_eq!(completed.count(), 3_000);
    server.stop().await;
}

/// A source that reports once, while jobs run, that it does not know the worker.
struct Forgetful {
    inner: HttpSource,
    is_running: AtomicBool,
    is_told: AtomicBool,
}

#[async_trait]
impl Source for Forgetful {
    async fn register(&self) -> Result<(), SourceError> {
        self.inner.register().await
    }

    async fn exchange(&self, reports: Vec<Report>, want: Option<Want>) -> Result<Exchanged, SourceError> {
        self.inner.exchange(reports, want).await
    }

    async fn heartbeat(
        &self,
        stats: BatchStats,
        progress: Vec<JobProgress>,
        idle: Option<Want>,
    ) -> Result<Heartbeat, SourceError> {
        let mut answer = self.inner.heartbeat(stats, progress, idle).await?;
        if self.is_running.load(Ordering::Relaxed) && !self.is_told.swap(true, Ordering::Relaxed) {
            answer.known = false;
        }
        Ok(answer)
    }

    async fn leave(&self, stats: BatchStats) -> Result<(), SourceError> {
        self.inner.leave(stats).await
    }

    async fn children(
        &self,
        lease: LeaseId,
        batch: BatchId,
        parents: &Positions,
    ) -> Result<Vec<Vec<ChildOutcome>>, SourceError> {
        self.inner.children(lease, batch, parents).await
    }

    async fn wait_for_work(&self) {
        self.inner.wait_for_work().await;
    }

    fn heartbeat_every(&self) -> Option<Duration> {
        Some(Duration::from_millis(20))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_are_killed_cost_no_job_its_outcome() {
    let server = Server::start().await;
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(submit(&server.engine, batch("double", 1_000)).await);
    }
    for cycle in 0..20 {
        let settings = WorkerSettings {
            micro_batch_jobs_max: 25,
            ..WorkerSettings::default()
        };
        let running = tokio::spawn(doubling(Arc::new(server.source()), settings).run());
        // The process is killed between its registration and the end of its work, later in each cycle.
        for _ in 0..cycle * 20 {
            tokio::task::yield_now().await;
        }
        running.abort();
        let _ = running.await;
        let silent_before = server.engine.clock().now().plus_ms(1);
        server.store().rescue(silent_before, Vec::new()).await.unwrap();
    }
    let running = doubling(Arc::new(server.source()), until_empty()).run();
    tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();
    check_doubled(&**server.store(), &ids).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_started_again_loses_no_report_and_no_claim() {
    let server = Server::start().await;
    let id = submit(&server.engine, batch("double", 100)).await;
    let source = Arc::new(server.source());
    source.register().await.unwrap();
    let lease = source.exchange(vec![], want(10)).await.unwrap().lease.unwrap();
    // A claim whose answer never arrived, because the server that knows of it is gone.
    let worker = server.store().workers().await.unwrap()[0].id;
    let lost = server
        .store()
        .exchange(worker, vec![], want(20))
        .await
        .unwrap()
        .lease
        .unwrap();
    let (address, folder) = server.kill().await;

    let report = |positions: &str| {
        let mut report = Report::new(lease.id, id, 1);
        let positions: gristmill_model::Positions = positions.parse().unwrap();
        let mut values = PackedBuilder::new();
        positions
            .iter()
            .for_each(|position| values.push_value(&(2 * position)).unwrap());
        report.completed = Some(Completed {
            durations_us: vec![1; positions.len() as usize],
            positions,
            values: values.finish(),
        });
        report
    };
    // A request arrives somewhere, and the connection ends without an answer: nobody knows whether it was carried out.
    let trap = loop {
        match tokio::net::TcpListener::bind(address).await {
            Ok(trap) => break trap,
            // The socket of the killed server is closing.
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let sending = {
        let (source, report) = (source.clone(), report("0-4"));
        tokio::spawn(async move { source.exchange(vec![report], want(10)).await })
    };
    let (mut connection, _) = trap.accept().await.unwrap();
    tokio::io::AsyncReadExt::read_u8(&mut connection).await.unwrap();
    drop((connection, trap));
    let options = ServeOptions {
        listen: address,
        ..ServeOptions::default()
    };
    let server = Server::start_on(folder, options).await;
    let answer = tokio::time::timeout(PATIENCE, sending)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(answer.receipts[0].accepted.to_string(), "0-4");

    // Held jobs can still be reported. Then the agent registers again, and the lost claim is released.
    let answer = source.exchange(vec![report("5-9")], None).await.unwrap();
    assert_eq!(answer.receipts[0].accepted.to_string(), "5-9");
    let mut claimed = 0;
    while claimed < 90 {
        let answer = source.exchange(vec![], want(100)).await.unwrap();
        claimed += answer.lease.map_or(0, |lease| lease.jobs());
    }
    assert_eq!(lost.jobs(), 20);
    let done = states(&**server.store(), id).await.iter().flatten().count();
    assert_eq!(done, 10);
    assert!(
        rows(&**server.store(), id)
            .await
            .iter()
            .all(|row| row.attempt == 1),
        "nobody is charged an attempt"
    );
    source.leave(BatchStats::default()).await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_waits_ends_its_wait_with_the_server_and_goes_on_with_the_next() {
    let server = Server::start().await;
    let source = Arc::new(server.source());
    let running = {
        let settings = WorkerSettings {
            poll_every: std::time::Duration::from_secs(30),
            ..WorkerSettings::default()
        };
        let worker = doubling(source.clone(), settings);
        let stopper = worker.stopper();
        (tokio::spawn(worker.run()), stopper)
    };
    let first = submit(&server.engine, batch("double", 10)).await;
    finished(&server, first).await;
    let (address, folder) = (server.address, server.folder());
    server.stop().await;
    let options = ServeOptions {
        listen: address,
        ..ServeOptions::default()
    };
    let server = Server::start_on(folder, options).await;
    let second = submit(&server.engine, batch("double", 10)).await;
    finished(&server, second).await;
    running.1.stop();
    tokio::time::timeout(PATIENCE, running.0)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    check_doubled(&**server.store(), &[first, second]).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_goes_on_with_the_next_server_and_says_so_once() {
    let first = Server::start().await;
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let second = ServeOptions {
        listen,
        ..ServeOptions::default()
    };
    let second = Server::start_on(first.folder(), second).await;
    let (said, mut news) = tokio::sync::mpsc::unbounded_channel();
    let mut options = first.options();
    options.base_urls.push(format!("http://{}", second.address));
    options.listener = Some(ServerListener::new(move |news| {
        let _ = said.send(news.clone());
    }));
    let source = Arc::new(source(options));
    let worker = doubling(source.clone(), WorkerSettings::default());
    let stopper = worker.stopper();
    let running = tokio::spawn(worker.run());
    let before = submit(&second.engine, batch("double", 500)).await;
    finished(&second, before).await;
    assert!(news.is_empty(), "all is well");

    let first_url = format!("http://{}", first.address);
    let (address, folder) = first.kill().await;
    let after = submit(&second.engine, batch("double", 500)).await;
    finished(&second, after).await;
    let lost = tokio::time::timeout(PATIENCE, news.recv())
        .await
        .unwrap()
        .unwrap();
    assert!(
        matches!(&lost, ServerNews::Unreachable { base_url, next: Some(_), .. } if *base_url == first_url),
        "{lost:?}"
    );
    let again = ServeOptions {
        listen: address,
        ..ServeOptions::default()
    };
    let first = Server::start_on(folder, again).await;
    // The other server is still used. A heartbeat looks back.
    source
        .heartbeat(BatchStats::default(), Vec::new(), None)
        .await
        .unwrap();
    let back = tokio::time::timeout(PATIENCE, news.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(back, ServerNews::Back { base_url: first_url });
    stopper.stop();
    tokio::time::timeout(PATIENCE, running)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(news.is_empty(), "each is said once");
    check_doubled(&**second.store(), &[before, after]).await;
    first.stop().await;
    second.stop().await;
}

/// The server never answers. It gives up by itself after a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_without_work_that_no_server_answers_ends_when_it_is_asked_to() {
    let server = Server::start().await;
    let (said, mut news) = tokio::sync::mpsc::unbounded_channel();
    let mut options = server.options();
    options.listener = Some(ServerListener::new(move |news| {
        let _ = said.send(news.clone());
    }));
    let begin = |options: &gristmill_agent::HttpSourceOptions| {
        let worker = doubling(Arc::new(source(options.clone())), WorkerSettings::default());
        let stopper = worker.stopper();
        (tokio::spawn(worker.run()), stopper)
    };
    let (running, stopper) = begin(&options);
    let id = submit(&server.engine, batch("double", 10)).await;
    finished(&server, id).await;
    server.kill().await;
    // The news comes during the wait for work.
    tokio::time::timeout(PATIENCE, news.recv())
        .await
        .unwrap()
        .unwrap();
    let (never_registered, its_stopper) = begin(&options);
    let asked = std::time::Instant::now();
    stopper.stop();
    its_stopper.stop();
    let ended = tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();
    assert_eq!(ended.unwrap().completed, 9);
    let ended = tokio::time::timeout(PATIENCE, never_registered)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(ended.unwrap().completed, 0);
    assert!(asked.elapsed().as_secs() < 10, "{:?}", asked.elapsed());
}

/// Waits for the end of a batch, which the server's own operation reports.
async fn finished(server: &Server, batch: gristmill_model::BatchId) {
    let url = format!(
        "http://{}/api/v1/results?batches={batch}&wait_ms=30000",
        server.address
    );
    reqwest::get(url).await.unwrap().bytes().await.unwrap();
    assert!(server.store().is_finished(batch).await.unwrap());
}
