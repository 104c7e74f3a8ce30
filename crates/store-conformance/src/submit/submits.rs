//! A submit is stored as a whole or not at all.

use std::collections::BTreeSet;

use gristmill_model::{JobError, JobState, NewBatch, PackedArray, Rejected, RetryPolicy, RunId, Timestamp};
use gristmill_store::run::RunProgress;
use gristmill_store::{Change, JobCounts, JobFilter, NewRun, RunAdvance, RunState, Store, StoreError};

use crate::Database;
use crate::fixture::*;

async fn counts(store: &dyn Store) -> JobCounts {
    store.counts(&JobFilter::default()).await.unwrap()
}

/// Ids ascend in the order of the batches.
pub async fn ids_count_upwards(database: &dyn Database) {
    let store = database.open().await;
    let first = store
        .submit(vec![batch(1), batch(2), batch(3)], None)
        .await
        .unwrap();
    assert!(first.is_sorted() && first[0].0 >= 1);
    assert!(submit(&*store, batch(1)).await > first[2]);
    for (id, count) in first.iter().zip(1..) {
        assert_eq!(store.outcomes(*id).await.unwrap().unwrap().count, count);
    }
    assert!(store.submit(Vec::new(), None).await.unwrap().is_empty());
}

/// One invalid batch refuses its whole submit. Later submits are stored.
pub async fn a_submit_holds_as_a_whole_or_not_at_all(database: &dyn Database) {
    let store = database.open().await;
    let empty = NewBatch::new(KIND, PackedArray::parse("[]").unwrap());
    let refused = store.submit(vec![batch(2), empty], None).await;
    assert!(matches!(refused, Err(StoreError::InvalidBatch(_))), "{refused:?}");
    let advance = RunAdvance {
        run: RunId(99),
        progress: RunProgress::default(),
        state: RunState::Submitting,
    };
    let refused = store.submit(vec![batch(2)], Some(advance)).await;
    assert!(
        matches!(refused, Err(StoreError::RunUnknown(RunId(99)))),
        "{refused:?}"
    );
    assert_eq!(counts(&*store).await.total(), 0);
    // Another handle can write, because no transaction was left open.
    submit(&*database.open().await, batch(2)).await;
    submit(&*store, batch(2)).await;
    assert_eq!(counts(&*store).await.waiting, 4);
}

/// Invalid input has its own error, and nothing is stored.
pub async fn wrong_batches_are_refused(database: &dyn Database) {
    let store = database.open().await;
    let mut nameless = batch(1);
    nameless.kind = String::new();
    let mut long = batch(1);
    long.queue = "q".repeat(201);
    let mut no_attempts = batch(1);
    no_attempts.options.retry.attempts_max = 0;
    let mut ancient = batch(1);
    ancient.options.run_at = Some(Timestamp(-1));
    let rejected = |positions: &[u32]| NewBatch {
        rejected: positions
            .iter()
            .map(|position| Rejected {
                position: *position,
                error: error(),
            })
            .collect(),
        ..batch(2)
    };
    for wrong in [
        nameless,
        long,
        no_attempts,
        ancient,
        rejected(&[2]),
        rejected(&[1, 0]),
        rejected(&[0, 0]),
    ] {
        let refused = store.submit(vec![wrong.clone()], None).await.unwrap_err();
        assert!(
            matches!(refused, StoreError::InvalidBatch(_) | StoreError::InvalidInput(_)),
            "{refused:?}"
        );
        if wrong.payloads.count() == 1 {
            store.submit_one(wrong).await.unwrap_err();
        }
    }
    let refused = store.submit_one(batch(2)).await.unwrap_err();
    assert!(matches!(refused, StoreError::InvalidInput(_)), "{refused:?}");
    assert_eq!(counts(&*store).await.total(), 0);
    assert_eq!(store.stats().await.unwrap().batches, 0);
}

/// Concurrent single submits become few batches. Each caller gets the id of its own job.
pub async fn single_submits_are_packed(database: &dyn Database) {
    const CALLERS: u32 = 400;
    let store = database.open().await;
    let submits = (0..CALLERS).map(|number| {
        let mut single = NewBatch::new(KIND, PackedArray::parse(&format!("[{number}]")).unwrap());
        single.options.priority = (number % 2) as i16;
        store.submit_one(single)
    });
    let jobs = futures::future::join_all(submits).await;
    let jobs: Vec<_> = jobs.into_iter().map(Result::unwrap).collect();
    assert_eq!(jobs.iter().collect::<BTreeSet<_>>().len(), CALLERS as usize);
    for (number, job) in jobs.iter().enumerate() {
        let details = store.job(*job).await.unwrap().unwrap();
        assert_eq!(details.payload.get(), number.to_string());
        assert_eq!(
            details.row.priority,
            (number % 2) as i16,
            "jobs with different options are not mixed"
        );
    }
    let batches = store.stats().await.unwrap().batches;
    assert!(
        batches < u64::from(CALLERS) / 2,
        "{batches} batches for {CALLERS} jobs"
    );
}

/// A lone single submit is a batch of one job.
pub async fn a_single_submit_is_a_batch_of_one(database: &dyn Database) {
    let store = database.open().await;
    let id = store.submit_one(batch(1)).await.unwrap();
    assert_eq!(id.position, 0);
    assert_eq!(store.outcomes(id.batch).await.unwrap().unwrap().count, 1);
    let worker = worker(&*store).await;
    assert_eq!(
        held(&claim(&*store, worker, 10).await),
        [format!("{}:0", id.batch)]
    );
}

/// Rejected jobs are dead from the start, with their error. The other jobs run, and a retry changes nothing.
pub async fn rejected_jobs_are_dead_from_the_start(database: &dyn Database) {
    let store = database.open().await;
    let reject = |position| Rejected {
        position,
        error: JobError::new("NotJson", format!("line {position}")),
    };
    let id = submit(
        &*store,
        NewBatch {
            rejected: vec![reject(1), reject(3)],
            ..batch(4)
        },
    )
    .await;
    let all = submit(
        &*store,
        NewBatch {
            rejected: vec![reject(0)],
            ..batch(1)
        },
    )
    .await;
    assert!(store.is_finished(all).await.unwrap());
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 10).await;
    assert_eq!(held(&lease), [format!("{id}:0,2")]);
    assert_eq!(lease.unwrap().slices[0].payloads.as_str(), "[0\n,2]");
    let outcomes = store.outcomes(id).await.unwrap().unwrap();
    assert_eq!(outcomes.ended(), 2);
    assert_eq!(outcomes.reports[0].state, JobState::Dead);
    assert_eq!((outcomes.reports[0].attempt, outcomes.errors.len()), (0, 2));
    assert_eq!(outcomes.errors[1].error.message, "line 3");
    let selection = gristmill_store::Selection::Jobs(vec![job(id, 1)]);
    assert_eq!(change(&*store, selection, Change::Retry).await.unchanged, 1);
}

/// The options of a batch hold for its jobs and are shown with them.
pub async fn options_are_kept(database: &dyn Database) {
    let store = database.open().await;
    let mut new = batch(2);
    new.queue = "slow".to_owned();
    new.options.priority = -7;
    new.options.timeout_ms = Some(1_234);
    new.options.retry = RetryPolicy::NEVER;
    new.options.expires_at = Some(Timestamp(9_000_000));
    let id = submit(&*store, new.clone()).await;
    let details = store.job(job(id, 1)).await.unwrap().unwrap();
    assert_eq!(details.options, new.options);
    assert_eq!((&*details.row.queue, details.row.priority), ("slow", -7));
    assert_eq!(details.payload.get(), "1");
}

/// The progress of a run moves with its batches.
pub async fn a_run_advances_with_its_batches(database: &dyn Database) {
    let store = database.open().await;
    let new = NewRun {
        name: "nightly".to_owned(),
        description: "{}".to_owned(),
    };
    let run = store.create_run(new).await.unwrap();
    let progress = RunProgress {
        jobs: 5,
        bytes: 10,
        lines: 6,
        crc32: u32::MAX,
    };
    let advance = RunAdvance {
        run: run.id,
        progress,
        state: RunState::Submitted,
    };
    let ids = store
        .submit(vec![batch(2), batch(3)], Some(advance))
        .await
        .unwrap();
    submit(&*store, batch(1)).await;
    let stored = store.run("nightly").await.unwrap().unwrap();
    assert_eq!((stored.progress, stored.state), (progress, RunState::Submitted));
    let batches = store.run_batches(run.id, None, 10).await.unwrap();
    assert_eq!(
        batches
            .iter()
            .map(|row| (row.batch, row.count))
            .collect::<Vec<_>>(),
        [(ids[0], 2), (ids[1], 3)]
    );
    let second = store.run_batches(run.id, Some(ids[0]), 1).await.unwrap();
    assert_eq!(second.iter().map(|row| row.batch).collect::<Vec<_>>(), [ids[1]]);
    // A refused submit moves nothing.
    let empty = NewBatch::new(KIND, PackedArray::parse("[]").unwrap());
    let further = RunAdvance {
        progress: RunProgress { jobs: 99, ..progress },
        ..advance
    };
    store.submit(vec![empty], Some(further)).await.unwrap_err();
    assert_eq!(store.run("nightly").await.unwrap().unwrap().progress, progress);
}
