//! The progress of running jobs.

use gristmill_model::limits::PROGRESS_JOBS_MAX;
use gristmill_model::{Clock, JobId, JobProgress, Progress, ShownProgress};
use gristmill_store::{Change, JobFilter, Page, Selection, Store, StoreError};

use crate::Database;
use crate::fixture::*;

fn told(job: JobId, attempt: u32, progress: Progress, rate_per_s: Option<f64>) -> JobProgress {
    JobProgress {
        job,
        attempt,
        progress,
        rate_per_s,
    }
}

async fn shown(store: &dyn Store, job: JobId) -> Option<ShownProgress> {
    store.job(job).await.unwrap().unwrap().row.progress
}

async fn listed(store: &dyn Store) -> Vec<Option<f64>> {
    let page = Page {
        after: None,
        limit: 100,
    };
    let rows = store.jobs(&JobFilter::default(), page).await.unwrap();
    let fraction = |shown: ShownProgress| shown.progress.fraction;
    rows.into_iter()
        .map(|row| row.progress.and_then(fraction))
        .collect()
}

/// Jobs of one slice that are shown separately, here because of a priority, have the same claim time.
pub async fn running_jobs_stay_claimed_since_the_same_moment(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, batch(3)).await;
    let worker = worker(&*store).await;
    let claimed_at = database.clock().now();
    claim(&*store, worker, 3).await.unwrap();
    database.clock().advance_ms(10);
    for position in [0, 1] {
        let one = Selection::Jobs(vec![job(id, position)]);
        change(&*store, one, Change::Prioritise(5)).await;
    }
    for position in 0..3 {
        let details = store.job(job(id, position)).await.unwrap().unwrap();
        assert_eq!(details.row.claimed_at, Some(claimed_at), "job {position}");
    }
}

/// The progress of a job is shown only while its worker holds it.
pub async fn progress_is_shown_while_a_job_runs(database: &dyn Database) {
    let store = database.open().await;
    let other = database.open().await;
    let id = submit(&*store, batch(3)).await;
    let (first, second) = (worker(&*store).await, worker(&*store).await);
    let lease = claim(&*store, first, 2).await.unwrap();
    let details = store.job(job(id, 0)).await.unwrap().unwrap();
    assert_eq!(details.row.claimed_at, Some(database.clock().now()));
    assert_eq!(details.row.progress, None, "there is no progress yet");
    database.clock().advance_ms(10);
    let half = Progress::of(5, 10).message("half\0way");
    let jobs = vec![
        told(job(id, 0), 1, half, Some(0.5)),
        told(job(id, 1), 1, Progress::fraction(7.0), None),
        told(job(id, 2), 1, Progress::fraction(0.9), None),
    ];
    store.put_progress(first, jobs).await.unwrap();
    database.clock().advance_ms(2_000);
    let of_first = shown(&*other, job(id, 0)).await.unwrap();
    assert_eq!(of_first.progress.fraction, Some(0.5));
    assert_eq!(of_first.progress.message.as_deref(), Some("half\u{fffd}way"));
    assert_eq!((of_first.rate_per_s, of_first.left_ms), (Some(0.5), Some(8_000)));
    assert!(!of_first.estimated);
    assert_eq!(
        listed(&*other).await,
        [Some(0.5), Some(1.0), None],
        "the third job waits"
    );

    // New progress replaces the old one. An ended job shows no progress.
    let next = vec![told(job(id, 1), 1, Progress::of(1, 4), None)];
    store.put_progress(first, next).await.unwrap();
    assert_eq!(listed(&*store).await, [None, Some(0.25), None]);
    exchange(&*store, first, vec![completed(&lease.slices[0])], None).await;
    assert_eq!(listed(&*store).await, [None, None, None]);
    assert_eq!(shown(&*store, job(id, 1)).await, None);

    // The progress of an ended attempt, or of a worker that has gone, is not shown.
    claim(&*store, second, 1).await.unwrap();
    let stale = vec![told(job(id, 2), 0, Progress::of(1, 4), None)];
    store.put_progress(second, stale).await.unwrap();
    assert_eq!(listed(&*store).await, [None, None, None]);
    store.leave(second, Default::default()).await.unwrap();
    let late = vec![told(job(id, 2), 1, Progress::of(1, 4), None)];
    store.put_progress(second, late).await.unwrap();
    claim(&*store, first, 1).await.unwrap();
    assert_eq!(listed(&*store).await, [None, None, None]);

    let one = told(job(id, 2), 1, Progress::of(1, 4), None);
    let too_many = vec![one; PROGRESS_JOBS_MAX + 1];
    let refused = store.put_progress(first, too_many).await;
    assert!(matches!(refused, Err(StoreError::InvalidInput(_))), "{refused:?}");
}

/// The duration of a job without progress is predicted from other jobs of its kind.
pub async fn other_jobs_of_the_kind_predict_the_duration(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let ended = submit(&*store, batch(2)).await;
    let lease = claim(&*store, worker, 2).await.unwrap();
    let mut report = completed(&lease.slices[0]);
    if let Some(completed) = &mut report.completed {
        completed.durations_us = vec![3_000_000, 5_000_000];
    }
    exchange(&*store, worker, vec![report], None).await;
    submit(&*store, batch_of("other", 1)).await;
    let id = submit(&*store, batch(1)).await;
    claim(&*store, worker, 2).await.unwrap();
    database.clock().advance_ms(1_000);
    let expected = shown(&*store, job(id, 0)).await.unwrap();
    assert!(expected.estimated);
    assert_eq!(
        (expected.progress.fraction, expected.left_ms),
        (Some(0.25), Some(3_000))
    );
    let alone = gristmill_model::BatchId(id.0 - 1);
    assert_eq!(
        shown(&*store, job(alone, 0)).await,
        None,
        "there is no other job of the kind"
    );
    assert_eq!(shown(&*store, job(ended, 0)).await, None, "the job has ended");
    let said = vec![told(job(id, 0), 1, Progress::fraction(0.75), None)];
    store.put_progress(worker, said).await.unwrap();
    let said = shown(&*store, job(id, 0)).await.unwrap();
    assert_eq!((said.progress.fraction, said.estimated), (Some(0.75), false));
}
