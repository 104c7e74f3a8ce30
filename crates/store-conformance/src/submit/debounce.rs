//! Debounced jobs.

use gristmill_model::{
    BatchId, Clock, Debounce, DebouncedPayloads, JobId, JobState, KeyedBatch, Lease, NewBatch, PackedArray,
    PackedBuilder, RetryPolicy, Unique,
};
use gristmill_store::{Change, JobFilter, PruneOptions, Selection, Store, StoreError, SubmittedJobs};

use crate::Database;
use crate::fixture::*;

fn debounce(payloads: DebouncedPayloads) -> Debounce {
    Debounce {
        delay_ms: 100,
        wait_ms_max: Some(250),
        payloads,
    }
}

fn debounced(payloads: &str, keys: &[&str], debounce: Debounce) -> KeyedBatch {
    let mut jobs = NewBatch::new(KIND, PackedArray::parse(payloads).unwrap());
    jobs.options.retry = RetryPolicy {
        delay_ms: 0,
        delay_ms_max: 0,
        ..RetryPolicy::default()
    };
    let mut packed = PackedBuilder::new();
    for key in keys {
        packed.push_value(key).unwrap();
    }
    let unique = Unique {
        debounce: Some(debounce),
        ..Unique::default()
    };
    KeyedBatch::new(jobs, packed.finish(), unique)
}

async fn submit_keyed(store: &dyn Store, batch: KeyedBatch) -> SubmittedJobs {
    store.submit_keyed(vec![batch]).await.unwrap().remove(0)
}

/// The jobs of a lease, each with its payload.
fn payloads_of(lease: &Option<Lease>) -> Vec<(BatchId, u32, String)> {
    let slices = lease.iter().flat_map(|lease| &lease.slices);
    let jobs = slices.flat_map(|slice| {
        let payloads = slice.payloads.items().map(str::to_owned);
        let jobs = slice.positions.iter().zip(payloads);
        jobs.map(|(position, payload)| (slice.batch, position, payload))
    });
    let mut jobs: Vec<_> = jobs.collect();
    jobs.sort();
    jobs
}

async fn payload(store: &dyn Store, id: JobId) -> String {
    let details = store.job(id).await.unwrap().unwrap();
    details.payload.get().to_owned()
}

/// Jobs with one key become one job. It has the last payload, and waits until no further one comes for a while, within
/// a limit.
pub async fn the_last_payload_stays(database: &dyn Database) {
    let store = database.open().await;
    let last = debounce(DebouncedPayloads::Last);
    let clock = database.clock();
    let first = submit_keyed(&*store, debounced("[1,2]", &["a", "b"], last)).await;
    let id = first.batch.unwrap();
    assert_eq!(first.jobs, [job(id, 0), job(id, 1)]);
    // Another process submits, and a submit has the key twice.
    let second = database.open().await;
    for (after_ms, payloads) in [(60, "[11,12]"), (60, "[21,22]"), (60, "[31,32]")] {
        clock.advance_ms(after_ms);
        let more = submit_keyed(&*second, debounced(payloads, &["a", "a"], last)).await;
        assert_eq!((more.batch, more.count), (None, 0));
        assert_eq!(more.jobs, [job(id, 0), job(id, 0)]);
    }
    assert_eq!(payload(&*store, job(id, 0)).await, "32");
    assert_eq!(payload(&*store, job(id, 1)).await, "2");
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 9).await;
    assert_eq!(payloads_of(&lease), [(id, 1, "2".to_owned())]);
    // 180 ms have passed since the first payload, and the last one is new. The longest wait is 250 ms.
    clock.advance_ms(69);
    assert_eq!(claim(&*store, worker, 9).await, None);
    let row = store.job(job(id, 0)).await.unwrap().unwrap().row;
    assert_eq!(
        (row.state, row.run_at),
        (JobState::Scheduled, Some(clock.now().plus_ms(1)))
    );
    clock.advance_ms(1);
    let lease = claim(&*second, worker, 9).await;
    assert_eq!(payloads_of(&lease), [(id, 0, "32".to_owned())]);
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().total(), 2);
}

/// Merged payloads are one array in their order. A failed attempt does not change it.
pub async fn payloads_are_merged(database: &dyn Database) {
    let store = database.open().await;
    let merged = Debounce {
        wait_ms_max: None,
        ..debounce(DebouncedPayloads::Merged)
    };
    let first = submit_keyed(&*store, debounced(r#"[{"n":1},2,3]"#, &["a", "b", "a"], merged)).await;
    let id = first.batch.unwrap();
    assert_eq!(first.jobs, [job(id, 1), job(id, 0), job(id, 1)]);
    database.clock().advance_ms(50);
    for payloads in [r#"["x"]"#, "[[4]]"] {
        submit_keyed(&*store, debounced(payloads, &["a"], merged)).await;
    }
    submit_keyed(&*store, debounced("[5,6]", &["a", "c"], merged)).await;
    assert_eq!(payload(&*store, job(id, 1)).await, r#"[{"n":1},3,"x",[4],5]"#);
    assert_eq!(payload(&*store, job(id, 0)).await, "[2]");
    database.clock().advance_ms(100);
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 9).await;
    let all: Vec<String> = payloads_of(&lease)
        .into_iter()
        .map(|(_, _, payload)| payload)
        .collect();
    assert_eq!(all, ["[2]", r#"[{"n":1},3,"x",[4],5]"#, "[6]"]);
    let slices = &lease.as_ref().unwrap().slices;
    let of_first = slices
        .iter()
        .find(|slice| slice.batch == id && slice.positions.contains(1));
    let failed = failed_at(of_first.unwrap(), &positions("1"), &error());
    let next = exchange(&*store, worker, vec![failed], Some(want(9))).await;
    assert_eq!(
        payloads_of(&next.lease),
        [(id, 1, r#"[{"n":1},3,"x",[4],5]"#.to_owned())]
    );
}

/// Payloads wait behind a started job, and become its successor when it completes.
pub async fn payloads_wait_behind_a_started_job(database: &dyn Database) {
    let store = database.open().await;
    let last = debounce(DebouncedPayloads::Last);
    let first = submit_keyed(&*store, debounced("[1]", &["a"], last)).await;
    database.clock().advance_ms(100);
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 9).await.unwrap();
    for payloads in ["[2]", "[3]"] {
        let more = submit_keyed(&*store, debounced(payloads, &["a"], last)).await;
        assert_eq!((more.batch, &more.jobs), (None, &first.jobs));
    }
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!(
        (counts.running, counts.total()),
        (1, 1),
        "one open job has the key"
    );
    // A job that is given back or tried again takes no payloads either, because its successor would be older.
    exchange(
        &*store,
        worker,
        vec![released_at(&lease.slices[0], &positions("0"))],
        None,
    )
    .await;
    let more = submit_keyed(&*store, debounced("[4]", &["a"], last)).await;
    assert_eq!(more.jobs, first.jobs);
    let lease = claim(&*store, worker, 9).await;
    assert_eq!(payloads_of(&lease), [(first.batch.unwrap(), 0, "1".to_owned())]);
    database.clock().advance_ms(30);
    exchange(&*store, worker, vec![completed(&lease.unwrap().slices[0])], None).await;
    let successor = submit_keyed(&*store, debounced("[5]", &["a"], last)).await;
    assert_eq!(
        (successor.batch, successor.jobs[0] == first.jobs[0]),
        (None, false)
    );
    assert_eq!(claim(&*store, worker, 9).await, None);
    database.clock().advance_ms(100);
    let lease = claim(&*store, worker, 9).await;
    assert_eq!(
        payloads_of(&lease),
        [(successor.jobs[0].batch, 0, "5".to_owned())]
    );
}

/// Payloads that wait behind a job that dies are submitted by the next expiry. Payloads behind a cancelled job are dropped.
pub async fn payloads_outlive_a_dead_job(database: &dyn Database) {
    let store = database.open().await;
    let merged = debounce(DebouncedPayloads::Merged);
    let first = submit_keyed(&*store, debounced("[1,2]", &["a", "b"], merged)).await;
    database.clock().advance_ms(100);
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 9).await.unwrap();
    submit_keyed(&*store, debounced("[3,4,5]", &["a", "b", "a"], merged)).await;
    change(&*store, first.jobs[1], Change::Cancel).await;
    let dead = failed_at(&lease.slices[0], &positions("0"), &error().permanent());
    exchange(&*store, worker, vec![dead], None).await;
    // No payload is lost, whatever happens before the expiry.
    let more = submit_keyed(&*store, debounced("[6]", &["a"], merged)).await;
    assert_eq!((more.batch, more.jobs[0]), (None, first.jobs[0]));
    store.expire().await.unwrap();
    database.clock().advance_ms(100);
    let lease = claim(&*store, worker, 9).await;
    let payloads: Vec<String> = payloads_of(&lease)
        .into_iter()
        .map(|(_, _, payload)| payload)
        .collect();
    assert_eq!(payloads, ["[3,5,6]"]);
    let free = submit_keyed(&*store, debounced("[7]", &["b"], merged)).await;
    assert!(free.batch.is_some());
}

/// A debounced job waits behind a job with its key that is not debounced.
pub async fn payloads_wait_behind_other_jobs(database: &dyn Database) {
    let store = database.open().await;
    let last = debounce(DebouncedPayloads::Last);
    let mut plain = debounced("[1]", &["a"], last);
    plain.batch.options.unique = Some(Unique::default());
    let first = submit_keyed(&*store, plain).await;
    let more = submit_keyed(&*store, debounced("[2]", &["a"], last)).await;
    assert_eq!((more.batch, &more.jobs), (None, &first.jobs));
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 9).await.unwrap();
    exchange(&*store, worker, vec![completed(&lease.slices[0])], None).await;
    database.clock().advance_ms(100);
    let lease = claim(&*store, worker, 9).await;
    let payloads: Vec<String> = payloads_of(&lease)
        .into_iter()
        .map(|(_, _, payload)| payload)
        .collect();
    assert_eq!(payloads, ["2"]);
}

/// A paused debounced job takes payloads. A cancelled one releases its key. A prune leaves nothing.
pub async fn debounced_jobs_are_changed(database: &dyn Database) {
    let store = database.open().await;
    let last = debounce(DebouncedPayloads::Last);
    let first = submit_keyed(&*store, debounced("[1,2]", &["a", "b"], last)).await;
    let id = first.batch.unwrap();
    let one = Selection::Jobs(vec![job(id, 0)]);
    change(&*store, one.clone(), pausing("deploy", None)).await;
    let more = submit_keyed(&*store, debounced("[3,4]", &["a", "b"], last)).await;
    assert_eq!(more.jobs, first.jobs);
    change(&*store, one.clone(), resuming(None)).await;
    assert_eq!(payload(&*store, job(id, 0)).await, "3");
    change(&*store, one, Change::Cancel).await;
    let again = submit_keyed(&*store, debounced("[5]", &["a"], last)).await;
    assert!(again.batch.is_some() && again.batch != first.batch);
    change(&*store, JobFilter::default(), Change::Cancel).await;
    let options = PruneOptions {
        finished_before: gristmill_model::Timestamp(i64::MAX),
        keep_batches: 0,
        dead_too: false,
        dry_run: false,
    };
    assert_eq!(store.prune(options).await.unwrap().batches, 2);
    assert!(store.job(job(id, 1)).await.unwrap().is_none());
    let wrong = Debounce { delay_ms: 0, ..last };
    let refused = store.submit_keyed(vec![debounced("[1]", &["a"], wrong)]).await;
    assert!(
        matches!(
            refused,
            Err(StoreError::InvalidBatch(_) | StoreError::InvalidInput(_))
        ),
        "{refused:?}"
    );
}

/// A job takes a limited number of payloads. The next ones wait behind it, up to the same number.
pub async fn payloads_wait_behind_a_full_job(database: &dyn Database) {
    let store = database.open().await;
    let merged = debounce(DebouncedPayloads::Merged);
    let large = format!(
        "[\"{}\"]",
        "x".repeat(gristmill_model::limits::DEBOUNCED_BYTES_MAX / 2)
    );
    let first = submit_keyed(&*store, debounced("[0]", &["a"], merged)).await;
    for payloads in [&large, &large, "[1]"] {
        let more = submit_keyed(&*store, debounced(payloads, &["a"], merged)).await;
        assert_eq!((more.batch, &more.jobs), (None, &first.jobs));
    }
    let full = store.submit_keyed(vec![debounced(&large, &["a"], merged)]).await;
    assert!(
        matches!(&full, Err(StoreError::KeyFull { key, owner }) if key == "a" && *owner == first.jobs[0]),
        "{full:?}"
    );
    database.clock().advance_ms(100);
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 9).await.unwrap();
    exchange(&*store, worker, vec![completed(&lease.slices[0])], None).await;
    database.clock().advance_ms(100);
    let lease = claim(&*store, worker, 9).await;
    assert!(payloads_of(&lease)[0].2.ends_with("x\",1]"));
}
