//! The building blocks of the checks.

use std::sync::Arc;

use gristmill_model::{
    BatchId, Completed, EarlierFailure, FailedJob, JobError, JobId, JobState, Lease, LeasedSlice, NewBatch,
    PackedArray, PackedBuilder, Positions, Report, ReportWrite, RetryPolicy, Siblings, Spawn, Suspended,
    Timestamp, WorkerId,
};
use gristmill_store::{
    Change, Changed, CheckPlace, Exchanged, Finding, JobFilter, NewWorker, Page, Selection, Store, Want,
};

/// The kind of jobs in checks where the kind does not matter.
pub const KIND: &str = "work";

/// The payloads `0`, `1`, … of `count` jobs.
pub fn payloads(count: u32) -> PackedArray {
    let mut builder = PackedBuilder::new();
    for number in 0..count {
        builder.push(&number.to_string()).unwrap();
    }
    builder.finish()
}

/// A batch of `count` jobs.
pub fn batch(count: u32) -> NewBatch {
    NewBatch::new(KIND, payloads(count))
}

/// A batch of a kind.
pub fn batch_of(kind: &str, count: u32) -> NewBatch {
    NewBatch::new(kind, payloads(count))
}

/// Positions from their text.
pub fn positions(text: &str) -> Positions {
    text.parse().unwrap()
}

/// The id of a job.
pub fn job(batch: BatchId, position: u32) -> JobId {
    JobId { batch, position }
}

/// Submits one batch.
pub async fn submit(store: &dyn Store, batch: NewBatch) -> BatchId {
    store.submit(vec![batch], None).await.unwrap()[0]
}

/// Changes jobs, and returns the numbers of changed and unchanged ones.
pub async fn change(store: &dyn Store, selection: impl Into<Selection>, change: Change) -> Changed {
    store.change(selection.into(), change).await.unwrap()
}

/// A pause of jobs.
pub fn pausing(reason: &str, until: Option<Timestamp>) -> Change {
    let reason = reason.to_owned();
    Change::Pause { reason, until }
}

/// The end of the pauses with a reason, or of all.
pub fn resuming(reason: Option<&str>) -> Change {
    let reason = reason.map(str::to_owned);
    Change::Resume { reason }
}

/// Registers a worker.
pub async fn worker(store: &dyn Store) -> WorkerId {
    let worker = NewWorker {
        name: "tester".to_owned(),
        host: "here".to_owned(),
        process_id: 1,
        process_started: "boot:1".to_owned(),
        queues: vec!["default".into()],
        kinds: vec!["add".into(), "mail, \"all\"".into()],
    };
    store.register_worker(worker).await.unwrap()
}

/// A claim for jobs of any kind on the default queue.
pub fn want(jobs_max: u32) -> Want {
    Want {
        jobs_max,
        queues: vec![Arc::from("default")],
        kinds: Vec::new(),
        priority_min: None,
    }
}

/// Claims without reports.
pub async fn claim(store: &dyn Store, worker: WorkerId, jobs_max: u32) -> Option<Lease> {
    exchange(store, worker, Vec::new(), Some(want(jobs_max)))
        .await
        .lease
}

/// An exchange that must succeed.
pub async fn exchange(
    store: &dyn Store,
    worker: WorkerId,
    reports: Vec<Report>,
    want: Option<Want>,
) -> Exchanged {
    store.exchange(worker, reports, want).await.unwrap()
}

/// The jobs of a lease, as `batch:positions` texts in order.
pub fn held(lease: &Option<Lease>) -> Vec<String> {
    let slices = lease.iter().flat_map(|lease| &lease.slices);
    slices
        .map(|slice| format!("{}:{}", slice.batch, slice.positions))
        .collect()
}

/// The findings of a check of the store.
pub async fn findings(store: &dyn Store) -> Vec<Finding> {
    let (mut place, mut all) = (Some(CheckPlace::default()), Vec::new());
    while let Some(next) = place {
        let page = store.check(next).await.unwrap();
        all.extend(page.findings);
        place = page.next;
    }
    all
}

/// Checks the store, and requires that there is no finding.
pub async fn no_damage(store: &dyn Store) {
    assert_eq!(findings(store).await, []);
}

/// Makes four undamaged batches of three jobs. The first one has ended, a worker holds the second one, and the others wait.
pub async fn four_batches(store: &dyn Store) {
    for _ in 0..4 {
        submit(store, batch(3)).await;
    }
    let worker = worker(store).await;
    let slice = only(claim(store, worker, 3).await);
    exchange(store, worker, vec![completed(&slice)], None).await;
    claim(store, worker, 3).await.unwrap();
    no_damage(store).await;
}

/// Checks the findings about damaged rows of [`four_batches`]: the report of the first batch is gone, the worker of the
/// second is unknown, the row of the third is gone, and the slice of the fourth has one job too many. Returns all
/// findings as text.
pub async fn check_contradictions(store: &dyn Store) -> Vec<String> {
    let findings = findings(store).await;
    let text = |finding: &Finding| {
        let batch = finding.batch.map_or(0, |batch| batch.0);
        format!("{batch} {}: {}", finding.table, finding.what)
    };
    let told: Vec<String> = findings.iter().map(text).collect();
    for wrong in [
        "1 batch: jobs 0-2 of 3 wait nowhere, run nowhere and have no outcome",
        "2 held: a lease is held by a worker that is not registered",
        "3 slice: there are rows of it, and the batch does not exist",
        "4 batch: there are rows of jobs 3, and it has 3 jobs",
    ] {
        assert!(told.iter().any(|told| told == wrong), "{wrong}: {told:#?}");
    }
    told
}

/// An empty report of a slice.
pub fn report(slice: &LeasedSlice) -> Report {
    Report::new(slice.lease, slice.batch, slice.attempt)
}

/// A report that all jobs of a slice completed. The value of each is its payload.
pub fn completed(slice: &LeasedSlice) -> Report {
    completed_at(slice, &slice.positions)
}

/// A report that these jobs of a slice completed. The value of each is its payload, and the duration of each is its position.
pub fn completed_at(slice: &LeasedSlice, positions: &Positions) -> Report {
    let indexes = slice.positions.iter().enumerate();
    let indexes = indexes
        .filter(|(_, position)| positions.contains(*position))
        .map(|(index, _)| index as u32);
    Report {
        completed: Some(Completed {
            positions: positions.clone(),
            values: slice.payloads.select(&indexes.collect()),
            durations_us: positions.iter().collect(),
        }),
        ..report(slice)
    }
}

/// A report that these jobs of a slice failed with this error.
pub fn failed_at(slice: &LeasedSlice, positions: &Positions, error: &JobError) -> Report {
    Report {
        failed: positions
            .iter()
            .map(|position| FailedJob {
                position,
                error: error.clone(),
                duration_us: position,
            })
            .collect(),
        ..report(slice)
    }
}

/// The report of an attempt that is this many repeats after the claimed one.
pub fn repeated(report: Report, repeats: u32) -> Report {
    let attempts = report.attempt..report.attempt + repeats;
    let positions = report.positions();
    let earlier = positions.iter().flat_map(|position| {
        attempts.clone().map(move |attempt| EarlierFailure {
            position,
            attempt,
            error: JobError::new("Earlier", format!("attempt {attempt}")),
            duration_us: attempt,
            log: Some(format!("tried {attempt}")),
        })
    });
    Report {
        repeats,
        earlier: earlier.collect(),
        ..report
    }
}

/// The same report with an item of each completed job for a statement.
pub fn with_writes(report: Report, sql: &str, item: impl Fn(u32) -> String) -> Report {
    let sql: Arc<str> = sql.into();
    let completed = report
        .completed
        .iter()
        .flat_map(|completed| completed.positions.iter());
    let writes = completed.map(|position| ReportWrite {
        position,
        sql: sql.clone(),
        item: item(position),
    });
    Report {
        writes: writes.collect(),
        ..report
    }
}

/// Checks that statements run with their reports. `insert` takes objects with an `id` and a `size`, which must not be
/// null. `ids` returns the existing ids. The stores' own tests make the table and call this.
pub async fn writes_go_with_their_reports(store: &dyn Store, insert: &str, ids: impl AsyncFn() -> Vec<i64>) {
    let id = submit(store, batch(6)).await;
    let worker = worker(store).await;
    let lease = claim(store, worker, 6).await.unwrap();
    let slice = &lease.slices[0];
    change(store, job(id, 1), Change::Cancel).await;
    let sized = |position: u32| match position {
        3 => format!("{{\"id\":{position}}}"),
        _ => format!("{{\"id\":{position},\"size\":1}}"),
    };
    let reports = vec![
        with_writes(completed_at(slice, &positions("0-1")), insert, sized),
        with_writes(completed_at(slice, &positions("2-4")), insert, sized),
        completed_at(slice, &positions("5")),
    ];
    let receipts = exchange(store, worker, reports.clone(), None).await.receipts;
    assert_eq!(
        (&receipts[0].accepted, &receipts[0].refused),
        (&positions("0"), &positions("1"))
    );
    assert!(receipts[0].failed.is_empty());
    assert_eq!(receipts[1].accepted, positions("2-4"));
    assert_eq!(receipts[1].failed, positions("3"), "its size is missing");
    assert_eq!(ids().await, [0, 2, 4], "a cancelled or failed job writes nothing");
    // The same reports change nothing a second time.
    let again = exchange(store, worker, reports, None).await.receipts;
    assert!(
        again
            .iter()
            .all(|receipt| receipt.accepted.is_empty() && receipt.failed.is_empty())
    );
    assert_eq!(ids().await, [0, 2, 4]);
    let shown = store.job(job(id, 3)).await.unwrap().unwrap();
    assert_eq!(
        (shown.row.state.is_final(), shown.failures.len()),
        (false, 1),
        "the job is tried again"
    );
    assert_eq!(store.outcomes(id).await.unwrap().unwrap().ended(), 5);
    change(store, job(id, 3), Change::Cancel).await;
}

/// A report that releases these jobs of a slice.
pub fn released_at(slice: &LeasedSlice, positions: &Positions) -> Report {
    Report {
        released: positions.clone(),
        ..report(slice)
    }
}

/// A report that these jobs of a slice wait for the children that `spawn` returns.
pub fn suspended_at(slice: &LeasedSlice, positions: &Positions, spawn: impl Fn(u32) -> Spawn) -> Report {
    let all = positions.iter();
    Report {
        suspended: Suspended::pack(
            all.map(|position| Suspended::one(position, spawn(position)))
                .collect(),
        ),
        ..report(slice)
    }
}

/// A report that these jobs of a slice completed with the siblings that `spawn` returns.
pub fn spreading_at(slice: &LeasedSlice, positions: &Positions, spawn: impl Fn(u32) -> Spawn) -> Report {
    let all = positions.iter();
    Report {
        siblings: Siblings::pack(
            all.map(|position| Siblings::one(position, spawn(position).children))
                .collect(),
        ),
        ..completed_at(slice, positions)
    }
}

/// The only slice of a lease.
pub fn only(lease: Option<Lease>) -> LeasedSlice {
    let mut lease = lease.expect("the claim got jobs");
    assert_eq!(lease.slices.len(), 1, "{lease:?}");
    lease.slices.remove(0)
}

/// An arbitrary error.
pub fn error() -> JobError {
    JobError::new("ValueError", "no")
}

/// A batch of `count` jobs with a single attempt.
pub fn once(count: u32) -> NewBatch {
    let mut new = batch(count);
    new.options.retry = RetryPolicy::NEVER;
    new
}

/// The states of a batch's jobs, by position.
pub async fn states(store: &dyn Store, batch: BatchId) -> Vec<JobState> {
    let filter = JobFilter {
        batch: Some(batch),
        ..JobFilter::default()
    };
    let page = Page {
        after: None,
        limit: 10_000,
    };
    let rows = store.jobs(&filter, page).await.unwrap();
    rows.iter().map(|row| row.state).collect()
}
