//! What jobs read of the batches and jobs for which they waited.

use gristmill_model::limits::PREREQUISITES_BYTES_MAX;
use gristmill_model::{
    After, BatchId, Clock, JobId, JobLog, JobState, LeasedSlice, OnFailure, PackedArray, Report,
};
use gristmill_store::family::{ChildReader, UnreadPrerequisites};
use gristmill_store::{ChildOutcome, OutcomesRead, OutcomesWanted, PruneOptions};

use crate::Database;
use crate::fixture::*;
use crate::graph::dependencies::{state, waiting};

/// A job reads the outcomes of its prerequisites, in the order in which its submit named them, once they have ended.
pub async fn the_outcomes_of_prerequisites_are_read(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let first = submit(&*store, once(3)).await;
    let after = [
        After::earlier(0).on_failure(OnFailure::Ignore),
        After::job(job(first, 2)),
        After::job(job(first, 0)),
    ];
    let ids = store
        .submit(vec![once(2), waiting(2, after)], None)
        .await
        .unwrap();
    let lease = claim(&*store, worker, 5).await.unwrap();
    for slice in &lease.slices {
        let report = if slice.batch == ids[0] {
            failed_at(slice, &positions("1"), &error())
        } else {
            completed(slice)
        };
        exchange(&*store, worker, vec![report], None).await;
    }
    let reader = ChildReader::default();
    let read = async |asking: JobId| reader.prerequisites(&*store, asking).await.unwrap();
    let told = |outcomes: Vec<ChildOutcome>| -> Vec<(JobId, JobState, bool, bool)> {
        let told = outcomes
            .iter()
            .map(|one| (one.job, one.state, one.value.is_some(), one.error.is_some()));
        told.collect()
    };
    // The open job is not among them.
    let dead = (job(ids[0], 1), JobState::Dead, false, true);
    let completed_of = |batch, position| (job(batch, position), JobState::Completed, true, false);
    let of_first = [completed_of(first, 0), completed_of(first, 2)];
    let expected: Vec<_> = [dead].into_iter().chain(of_first).collect();
    assert_eq!(told(read(job(ids[1], 0)).await.unwrap()), expected);
    let rest = lease.slices.iter().find(|slice| slice.batch == ids[0]).unwrap();
    let rest = completed_at(rest, &positions("0"));
    exchange(&*store, worker, vec![rest], None).await;
    assert_eq!(state(&*store, ids[1]).await, JobState::Waiting);
    let expected: Vec<_> = [completed_of(ids[0], 0), dead]
        .into_iter()
        .chain(of_first)
        .collect();
    assert_eq!(told(read(job(ids[1], 1)).await.unwrap()), expected);
    // A fork or a retry of the job has them, too; a job without prerequisites has none.
    let kept = store
        .job(job(ids[1], 0))
        .await
        .unwrap()
        .unwrap()
        .options
        .prerequisites;
    assert_eq!(
        kept.iter().map(|kept| kept.batch).collect::<Vec<_>>(),
        [ids[0], first]
    );
    assert_eq!(told(read(job(first, 0)).await.unwrap()), []);
    database.clock().advance_ms(100);
    let all = PruneOptions {
        finished_before: database.clock().now(),
        keep_batches: 0,
        dead_too: true,
        dry_run: false,
    };
    assert_eq!(store.prune(all).await.unwrap().batches, 2);
    let deleted = read(job(ids[1], 0)).await;
    assert!(matches!(deleted, Err(UnreadPrerequisites::Deleted(batch)) if batch == ids[0]));
}

/// Completes these jobs of a slice with values of this many bytes.
fn completed_with(slice: &LeasedSlice, text: &str, value_bytes: usize) -> Report {
    let mut report = completed_at(slice, &positions(text));
    if let Some(completed) = &mut report.completed {
        let value = format!("\"{}\"", "v".repeat(value_bytes - 2));
        completed.values = PackedArray::repeat(&value, completed.positions.len()).unwrap();
    }
    report
}

/// Outcomes are read as far as a limit of bytes goes: only the values of wanted jobs count, and errors.
pub async fn outcomes_are_read_within_a_limit(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, once(12)).await;
    let slice = only(claim(&*store, worker, 12).await);
    let reports = vec![
        completed_with(&slice, "0", 10),
        completed_with(&slice, "1-9", 50_000),
        failed_at(&slice, &positions("10"), &error()),
    ];
    for report in reports {
        exchange(&*store, worker, vec![report], None).await;
    }
    let read = async |of: Option<&str>, bytes_max: usize| {
        let positions = of.map(positions);
        let wanted = OutcomesWanted {
            batch: id,
            positions,
            bytes_max,
            whole_bytes_max: 0,
        };
        store.outcomes_of(&wanted).await.unwrap()
    };
    let mut all = store.outcomes(id).await.unwrap().unwrap();
    assert_eq!((all.ended(), all.errors.len()), (11, 1));
    all.errors[0].log = None;
    assert_eq!(read(None, usize::MAX).await, OutcomesRead::ReadWhole(all.clone()));
    assert_eq!(read(None, 400_000).await, OutcomesRead::TooLarge);
    assert_eq!(read(Some("1-9"), 400_000).await, OutcomesRead::TooLarge);
    // The rest of a report counts for nothing.
    for (of, bytes_max, count) in [("0,11", 1_000, 1), ("0,9", 60_000, 2), ("4-5,10", 110_000, 3)] {
        let OutcomesRead::Read(some) = read(Some(of), bytes_max).await else {
            panic!("{of} has less than {bytes_max} bytes");
        };
        assert_eq!((some.ended(), some.count), (count, 12), "{of}");
        for job in some.jobs() {
            let jobs = all.jobs();
            let same = jobs.iter().find(|same| same.position == job.position).unwrap();
            assert_eq!(
                (job.value, job.duration_us, job.failure, job.report.state),
                (same.value, same.duration_us, same.failure, same.report.state),
                "{of}"
            );
        }
        assert_eq!(read(Some(of), 20).await, OutcomesRead::TooLarge, "{of}");
    }
    // An error counts, too.
    let of_job = OutcomesWanted::bytes_of(1, 0);
    assert_eq!(read(Some("10"), of_job + 3).await, OutcomesRead::TooLarge);
    // All are read where they are small together, in the same look.
    let small = |whole_bytes_max| OutcomesWanted {
        batch: id,
        positions: Some(positions("0")),
        bytes_max: 1_000,
        whole_bytes_max,
    };
    let whole = store.outcomes_of(&small(500_000)).await.unwrap();
    assert_eq!(whole, OutcomesRead::ReadWhole(all.clone()));
    let values: usize = all.reports.iter().map(OutcomesWanted::bytes_of_report).sum();
    for large in [400_000, values, values + 3] {
        let OutcomesRead::Read(some) = store.outcomes_of(&small(large)).await.unwrap() else {
            panic!("the outcomes and errors have more than {large} bytes");
        };
        assert_eq!((some.ended(), some.count), (1, 12), "{large}");
    }
    let unknown = OutcomesWanted {
        batch: BatchId(id.0 + 1),
        positions: None,
        bytes_max: 1,
        whole_bytes_max: 0,
    };
    assert_eq!(store.outcomes_of(&unknown).await.unwrap(), OutcomesRead::Unknown);
}

/// Logs and durations are no outcomes: they take nothing of the limit, even where they are larger than it.
pub async fn logs_take_nothing_of_the_limit_of_outcomes(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, once(4)).await;
    let slice = only(claim(&*store, worker, 4).await);
    for position in 0..4 {
        let mut report = completed_with(&slice, &position.to_string(), 10);
        let text = "l".repeat(20_000);
        report.logs = vec![JobLog { position, text }];
        exchange(&*store, worker, vec![report], None).await;
    }
    let all = store.outcomes(id).await.unwrap().unwrap();
    for whole_bytes_max in [0, 30_000, 1_000_000] {
        for bytes_max in [2_000, 50_000] {
            let wanted = |of: Option<&str>| OutcomesWanted {
                batch: id,
                positions: of.map(positions),
                bytes_max,
                whole_bytes_max,
            };
            let whole = store.outcomes_of(&wanted(None)).await.unwrap();
            assert_eq!(whole, OutcomesRead::ReadWhole(all.clone()));
            match store.outcomes_of(&wanted(Some("1-2"))).await.unwrap() {
                OutcomesRead::ReadWhole(whole) => assert_eq!(whole, all),
                OutcomesRead::Read(some) => assert_eq!(some.reports, all.reports[1..3]),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A job reads one small prerequisite of a batch with more values than a job may read, and is refused the whole batch.
pub async fn a_small_prerequisite_in_a_large_batch_is_read(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let large = submit(&*store, once(5)).await;
    let slice = only(claim(&*store, worker, 5).await);
    for report in [
        completed_with(&slice, "0", 10),
        completed_with(&slice, "1-4", PREREQUISITES_BYTES_MAX / 4),
    ] {
        exchange(&*store, worker, vec![report], None).await;
    }
    let after = [
        waiting(1, [After::job(job(large, 0))]),
        waiting(1, [After::job(job(large, 3))]),
        waiting(1, [After::batch(large)]),
    ];
    let ids = store.submit(after.to_vec(), None).await.unwrap();
    let reader = ChildReader::default();
    for (asking, position) in [(ids[0], 0), (ids[1], 3)] {
        let read = reader.prerequisites(&*store, job(asking, 0)).await.unwrap();
        let jobs: Vec<JobId> = read.unwrap().iter().map(|read| read.job).collect();
        assert_eq!(jobs, [job(large, position)]);
    }
    let refused = reader.prerequisites(&*store, job(ids[2], 0)).await.unwrap();
    assert_eq!(refused.unwrap_err(), UnreadPrerequisites::TooLarge);
}
