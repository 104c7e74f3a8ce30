//! Acknowledged operations take effect exactly once, whatever happens to the server and the connections; and many
//! handles work on one database without interfering with each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gristmill_model::{
    After, BatchId, Completed, JobError, JobId, JobLog, LeasedSlice, NewBatch, PackedArray, Positions,
    Report, WorkerId,
};
use gristmill_private_postgres::PrivatePostgres;
use gristmill_store::{JobFilter, NewWorker, Store, StoreError, Want};
use gristmill_store_postgres::{PostgresOptions, PostgresStore};
use tokio::sync::watch;

/// The number of cycles, each of which breaks something.
const CYCLES: u64 = 20;
/// Answers to exchanges and submits between two faults.
const ANSWERS_PER_CYCLE: u64 = 40;

async fn open(url: &str) -> Arc<PostgresStore> {
    Arc::new(
        PostgresStore::open(url, PostgresOptions::default())
            .await
            .unwrap(),
    )
}

async fn register(store: &dyn Store) -> WorkerId {
    let worker = NewWorker {
        name: "tester".to_owned(),
        host: "here".to_owned(),
        process_id: 1,
        process_started: "boot:1".to_owned(),
        queues: Vec::new(),
        kinds: Vec::new(),
    };
    store.register_worker(worker).await.unwrap()
}

fn want(jobs_max: u32) -> Want {
    Want {
        jobs_max,
        queues: vec![Arc::from("default")],
        kinds: Vec::new(),
        priority_min: None,
    }
}

fn numbers(range: std::ops::Range<u64>) -> PackedArray {
    let items: Vec<String> = range.map(|number| number.to_string()).collect();
    PackedArray::parse(&format!("[{}]", items.join(","))).unwrap()
}

/// Completes every job with its payload as its value.
fn completed(slice: &LeasedSlice) -> Report {
    Report {
        completed: Some(Completed {
            positions: slice.positions.clone(),
            values: slice.payloads.clone(),
            durations_us: vec![1; slice.len() as usize],
        }),
        ..Report::new(slice.lease, slice.batch, slice.attempt)
    }
}

/// The state that submitters and workers share.
struct Load {
    next_number: AtomicU64,
    stopping: AtomicBool,
    /// Whether all submits are over.
    submitted: AtomicBool,
    answers: watch::Sender<u64>,
}

impl Load {
    fn answered(&self) {
        self.answers.send_modify(|answers| *answers += 1);
    }
}

/// Submits numbers, one by one and in batches, each number once. Returns the acknowledged job of each.
async fn submit(load: Arc<Load>, store: Arc<PostgresStore>, jobs: u64) -> BTreeMap<u64, JobId> {
    let mut acknowledged = BTreeMap::new();
    while !load.stopping.load(Ordering::SeqCst) {
        let first = load.next_number.fetch_add(jobs, Ordering::SeqCst);
        let new = NewBatch::new("work", numbers(first..first + jobs));
        if jobs == 1 {
            acknowledged.insert(first, store.submit_one(new).await.unwrap());
        } else {
            let batch = store.submit(vec![new], None).await.unwrap()[0];
            let positions = (first..first + jobs).zip(0..);
            acknowledged.extend(positions.map(|(number, position)| (number, JobId { batch, position })));
        }
        load.answered();
    }
    acknowledged
}

/// Claims and reports until everything has ended, concurrently or, if `apart`, one after the other. Returns the
/// accepted jobs, once for each time.
async fn work(load: Arc<Load>, store: Arc<PostgresStore>, jobs_max: u32, apart: bool) -> Vec<JobId> {
    let worker = register(&*store).await;
    let mut accepted = Vec::new();
    let mut reports: Vec<Report> = Vec::new();
    loop {
        let sent = std::mem::take(&mut reports);
        let wanted = Some(want(jobs_max)).filter(|_| !apart || sent.is_empty());
        let exchanged = store.exchange(worker, sent.clone(), wanted).await.unwrap();
        for (report, receipt) in sent.iter().zip(&exchanged.receipts) {
            let batch = report.batch;
            accepted.extend(receipt.accepted.iter().map(|position| JobId { batch, position }));
        }
        load.answered();
        match exchanged.lease {
            Some(lease) => reports.extend(lease.slices.iter().map(completed)),
            None if load.submitted.load(Ordering::SeqCst) && sent.is_empty() => {
                let counts = store.counts(&JobFilter::default()).await.unwrap();
                if counts.ended() == counts.total() {
                    return accepted;
                }
            }
            None => {}
        }
    }
}

/// Runs submitters and workers, with a fault in each cycle, and checks the store afterwards.
async fn survive(url: &str, fault: impl Fn() + Send + Sync + 'static) {
    let load = Arc::new(Load {
        next_number: AtomicU64::new(0),
        stopping: AtomicBool::new(false),
        submitted: AtomicBool::new(false),
        answers: watch::Sender::new(0),
    });
    let (left, right) = (open(url).await, open(url).await);
    let submits = [(&left, 1), (&left, 1), (&right, 1), (&right, 50), (&left, 7)]
        .map(|(store, jobs)| tokio::spawn(submit(load.clone(), store.clone(), jobs)));
    let works = [
        (&left, 100, false),
        (&right, 30, false),
        (&right, 500, true),
        (&left, 50, true),
    ]
    .map(|(store, jobs, apart)| tokio::spawn(work(load.clone(), store.clone(), jobs, apart)));

    let fault = Arc::new(fault);
    let mut answers = load.answers.subscribe();
    for _ in 0..CYCLES {
        let goal = *answers.borrow() + ANSWERS_PER_CYCLE;
        answers.wait_for(|answers| *answers >= goal).await.unwrap();
        let fault = fault.clone();
        tokio::task::spawn_blocking(move || fault()).await.unwrap();
    }
    load.stopping.store(true, Ordering::SeqCst);
    let mut acknowledged = BTreeMap::new();
    for submit in submits {
        acknowledged.extend(submit.await.unwrap());
    }
    load.submitted.store(true, Ordering::SeqCst);
    let mut accepted = Vec::new();
    for work in works {
        accepted.extend(work.await.unwrap());
    }
    check(&*left, &acknowledged, &accepted).await;
    left.close().await.unwrap();
    right.close().await.unwrap();
}

/// Every acknowledged job is stored once, under its id, and has one outcome, which one worker got acknowledged.
async fn check(store: &dyn Store, acknowledged: &BTreeMap<u64, JobId>, accepted: &[JobId]) {
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!(
        counts.total(),
        acknowledged.len() as u64,
        "nothing is stored that was not acknowledged"
    );
    assert_eq!(counts.completed, counts.total());
    let told: BTreeSet<&JobId> = accepted.iter().collect();
    assert_eq!(told.len(), accepted.len(), "no outcome is accepted twice");
    assert_eq!(
        told.len(),
        acknowledged.len(),
        "every outcome was accepted of somebody"
    );
    let batches: BTreeSet<BatchId> = acknowledged.values().map(|job| job.batch).collect();
    let mut values = BTreeMap::new();
    for batch in batches {
        let outcomes = store.outcomes(batch).await.unwrap().unwrap();
        for report in &outcomes.reports {
            let items = report.values.as_ref().unwrap();
            for (position, value) in report.positions.iter().zip(items.items()) {
                let before = values.insert(value.parse::<u64>().unwrap(), JobId { batch, position });
                assert_eq!(before, None, "{value} has two outcomes");
            }
        }
    }
    assert_eq!(&values, acknowledged);
    println!("{} jobs in {} answers", values.len(), accepted.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_of_the_server_lose_nothing() {
    let server = PrivatePostgres::start(&[]).unwrap();
    let url = server.create_database().unwrap();
    survive(&url, move || {
        server.stop_immediately().unwrap();
        server.start_again().unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminated_connections_lose_nothing() {
    let server = gristmill_private_postgres::shared();
    let url = server.create_database().unwrap();
    let database = url.split(['/', '?']).nth(3).unwrap().to_owned();
    survive(&url, move || {
        // Concurrent tests keep the connections to their own databases.
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE datname = current_database() AND application_name LIKE 'gristmill%'";
        server.psql(&database, sql).unwrap();
    })
    .await;
}

/// A deadlock while the ends of jobs are settled is met by a retry, although the claim behind it fails first: its statements are
/// new to the connection.
#[tokio::test]
async fn a_deadlock_of_a_settlement_is_retried() {
    let server = gristmill_private_postgres::shared();
    let url = server.create_database().unwrap();
    let store = open(&url).await;
    let worker = register(&*store).await;
    let mut chains = Vec::new();
    for _ in 0..2 {
        let after = NewBatch {
            after: vec![After::earlier(0)],
            ..NewBatch::new("work", numbers(0..1))
        };
        let chain = vec![NewBatch::new("work", numbers(0..1)), after];
        chains.push(store.submit(chain, None).await.unwrap());
    }
    let claimed = store.exchange(worker, Vec::new(), Some(want(2))).await.unwrap();
    let slices = claimed.lease.unwrap().slices;
    let exchange = async |slice: &LeasedSlice| {
        let exchanged = store.exchange(worker, vec![completed(slice)], Some(want(1)));
        exchanged.await.unwrap().lease.unwrap().slices[0].batch
    };
    // The store learns that jobs wait for others.
    assert_eq!(exchange(&slices[0]).await, chains[0][1]);
    let database = url.split(['/', '?']).nth(3).unwrap();
    let fails_once = "CREATE SEQUENCE public.settlement; \
         CREATE FUNCTION public.fail_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF nextval('public.settlement') = 1 THEN RAISE EXCEPTION 'as in a deadlock' USING ERRCODE = 'deadlock_detected'; END IF; \
         RETURN NULL; END $$; \
         CREATE TRIGGER fail_once AFTER UPDATE OR DELETE ON gristmill.blocked FOR EACH STATEMENT EXECUTE FUNCTION public.fail_once()";
    server.psql(database, fails_once).unwrap();
    // The store's next connection has prepared nothing yet.
    let terminate = "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity \
         WHERE datname = current_database() AND application_name LIKE 'gristmill%'";
    server.psql(database, terminate).unwrap();
    assert_eq!(exchange(&slices[1]).await, chains[1][1]);
    let attempts = server
        .psql(database, "SELECT last_value FROM public.settlement")
        .unwrap();
    assert!(attempts.trim().parse::<u32>().unwrap() > 1, "{attempts}");
}

/// A worker whose process was stopped in the middle of an operation loses its jobs like others, and blocks nobody.
#[tokio::test]
async fn a_worker_that_is_stuck_in_an_operation_is_rescued() {
    let server = gristmill_private_postgres::shared();
    let url = server.create_database().unwrap();
    let store = open(&url).await;
    store
        .submit(vec![NewBatch::new("work", numbers(0..20))], None)
        .await
        .unwrap();
    let (stuck, silent) = (register(&*store).await, register(&*store).await);
    for worker in [stuck, silent] {
        let exchanged = store.exchange(worker, Vec::new(), Some(want(10))).await.unwrap();
        assert_eq!(exchanged.lease.unwrap().slices[0].len(), 10);
    }
    // A stopped process leaves this on the server; the connection does not have the store's own time limit.
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    client
        .batch_execute(&format!(
            "SET application_name = 'gristmill of-a-stopped-process'; BEGIN; \
             SELECT FROM gristmill.worker WHERE id = {} FOR KEY SHARE; SELECT FROM gristmill.slice FOR UPDATE",
            stuck.0
        ))
        .await
        .unwrap();
    let all_are_silent = store.now().plus_ms(60_000);
    let rescued = store.rescue(all_are_silent, Vec::new()).await.unwrap();
    assert_eq!(rescued.workers, [silent]);
    let rescued = loop {
        let rescued = store.rescue(all_are_silent, Vec::new()).await.unwrap();
        if !rescued.workers.is_empty() {
            break rescued;
        }
    };
    assert_eq!((rescued.workers, rescued.jobs), (vec![stuck], 10));
    connection.await.unwrap().unwrap_err();
    let worker = register(&*store).await;
    let exchanged = store.exchange(worker, Vec::new(), Some(want(100))).await.unwrap();
    let jobs: u32 = exchanged.lease.unwrap().slices.iter().map(LeasedSlice::len).sum();
    assert_eq!(jobs, 20);
}

/// Eight workers on four handles claim all jobs, each job once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_workers_claim_apart() {
    const BATCHES: u32 = 60;
    const JOBS: u64 = 500;
    let url = gristmill_private_postgres::shared().create_database().unwrap();
    let stores = [
        open(&url).await,
        open(&url).await,
        open(&url).await,
        open(&url).await,
    ];
    for number in 0..u64::from(BATCHES) {
        let payloads = numbers(number * JOBS..(number + 1) * JOBS);
        stores[0]
            .submit(vec![NewBatch::new("work", payloads)], None)
            .await
            .unwrap();
    }
    let workers = (0..8).map(|number| {
        let store = stores[number % 4].clone();
        tokio::spawn(async move {
            let worker = register(&*store).await;
            let mut claimed = Vec::new();
            loop {
                let exchanged = store.exchange(worker, Vec::new(), Some(want(37))).await.unwrap();
                let Some(lease) = exchanged.lease else { break };
                for slice in &lease.slices {
                    claimed.extend(slice.payloads.items().map(|item| item.parse::<u64>().unwrap()));
                }
            }
            claimed
        })
    });
    let mut all = Vec::new();
    for claimed in futures::future::join_all(workers).await {
        all.extend(claimed.unwrap());
    }
    all.sort_unstable();
    assert!(all.into_iter().eq(0..u64::from(BATCHES) * JOBS));
}

/// PostgreSQL's texts hold no NUL; output and messages of jobs may have one, and nobody else is affected.
#[tokio::test]
async fn a_nul_harms_nobody() {
    let url = gristmill_private_postgres::shared().create_database().unwrap();
    let store = open(&url).await;
    let payloads = PackedArray::parse(r#"["a\u0000b", 1, 2]"#).unwrap();
    let batch = store
        .submit(vec![NewBatch::new("work", payloads)], None)
        .await
        .unwrap()[0];
    let raw = NewBatch::new("work", PackedArray::from_stored("[\"a\0b\"]"));
    let beside = store.submit(vec![NewBatch::new("work", numbers(0..1))], None);
    let (refused, stored) = futures::join!(store.submit(vec![raw.clone()], None), beside);
    assert!(
        matches!(&refused, Err(StoreError::InvalidInput(text)) if text.contains("NUL")),
        "{refused:?}"
    );
    stored.unwrap();
    store.submit_one(raw).await.unwrap_err();

    let worker = register(&*store).await;
    let lease = store
        .exchange(worker, Vec::new(), Some(want(3)))
        .await
        .unwrap()
        .lease
        .unwrap();
    let slice = &lease.slices[0];
    assert_eq!(slice.payloads.get(0), Some(r#""a\u0000b""#));
    let mut report = Report::new(slice.lease, slice.batch, slice.attempt);
    report.completed = Some(Completed {
        positions: Positions::from(0..1),
        values: PackedArray::parse(r#"["c\u0000d"]"#).unwrap(),
        durations_us: vec![5],
    });
    report.failed.push(gristmill_model::FailedJob {
        position: 1,
        error: JobError::new("ValueError", "e\0f").permanent(),
        duration_us: 6,
    });
    report.logs.push(JobLog {
        position: 1,
        text: "g\0h".to_owned(),
    });
    let receipts = store.exchange(worker, vec![report], None).await.unwrap().receipts;
    assert_eq!(receipts[0].accepted, Positions::from(0..2));
    let value = store
        .job(JobId { batch, position: 0 })
        .await
        .unwrap()
        .unwrap()
        .value
        .unwrap();
    assert_eq!(value.get(), r#""c\u0000d""#);
    let failures = store
        .job(JobId { batch, position: 1 })
        .await
        .unwrap()
        .unwrap()
        .failures;
    assert_eq!(failures[0].error.message, "e\u{fffd}f");
    assert_eq!(failures[0].log.as_deref(), Some("g\u{fffd}h"));
}

#[tokio::test]
async fn what_cannot_be_opened_is_named() {
    let server = gristmill_private_postgres::shared();
    let missing = server.url("nowhere").replace("?user=", "?password=secret&user=");
    let error = PostgresStore::open(&missing, PostgresOptions::default())
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, StoreError::Open { .. }), "{error:?}");
    assert!(text.contains("nowhere") && !text.contains("secret"), "{text}");

    let url = server.create_database().unwrap();
    open(&url).await.close().await.unwrap();
    let database = url.split(['/', '?']).nth(3).unwrap();
    let newer = "UPDATE gristmill.layout SET version = 999";
    server.psql(database, newer).unwrap();
    let error = PostgresStore::open(&url, PostgresOptions::default())
        .await
        .unwrap_err();
    assert!(
        matches!(error, StoreError::NewerSchema { found: 999, .. }),
        "{error:?}"
    );
}

/// Several processes may open a new store at the same moment.
#[tokio::test]
async fn stores_are_made_once() {
    let url = gristmill_private_postgres::shared().create_database().unwrap();
    let stores = futures::future::join_all((0..6).map(|_| open(&url))).await;
    let submits = stores
        .iter()
        .map(|store| store.submit_one(NewBatch::new("work", numbers(0..1))));
    for submitted in futures::future::join_all(submits).await {
        submitted.unwrap();
    }
    let counts = stores[0].counts(&JobFilter::default()).await.unwrap();
    // The clocks of handles differ by a few milliseconds, so the job of another handle may not be due yet.
    assert_eq!(counts.waiting + counts.scheduled, 6, "{counts:?}");
}
