//! Queries, runs, pruning and closing.

use gristmill_model::{BatchId, Clock, JobId, JobState, NewBatch, Rejected, RunId};
use gristmill_store::run::RunProgress;
use gristmill_store::{
    Change, JobFilter, NewRun, Page, PruneOptions, Pruned, RunAdvance, RunState, Store, StoreError,
};

use crate::Database;
use crate::fixture::*;

fn page(after: Option<JobId>, limit: u32) -> Page {
    Page { after, limit }
}

async fn ids(store: &dyn Store, filter: &JobFilter, page: Page) -> Vec<String> {
    let rows = store.jobs(filter, page).await.unwrap();
    rows.iter().map(|row| row.job.to_string()).collect()
}

/// Pages follow one another by id, whatever the state.
pub async fn jobs_are_listed_in_pages(database: &dyn Database) {
    let store = database.open().await;
    let first = submit(&*store, batch(5)).await;
    let second = submit(&*store, batch_of("other", 3)).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 4).await.unwrap();
    let done = completed_at(&lease.slices[0], &positions("1,3"));
    exchange(&*store, worker, vec![done], None).await;
    let all = JobFilter::default();
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let rows = store.jobs(&all, page(after, 3)).await.unwrap();
        let Some(last) = rows.last() else { break };
        after = Some(last.job);
        seen.extend(rows.into_iter().map(|row| (row.job, row.state)));
    }
    use JobState::{Completed, Running, Waiting};
    let states = [
        Running, Completed, Running, Completed, Waiting, Waiting, Waiting, Waiting,
    ];
    let jobs = (0..5).map(|position| job(first, position));
    let jobs = jobs.chain((0..3).map(|position| job(second, position)));
    assert_eq!(seen, jobs.zip(states).collect::<Vec<_>>());

    let of = |states: &[JobState]| JobFilter {
        states: states.to_vec(),
        ..JobFilter::default()
    };
    assert_eq!(
        ids(&*store, &of(&[Completed]), page(None, 9)).await,
        [format!("{first}:1"), format!("{first}:3")]
    );
    assert_eq!(
        ids(&*store, &of(&[Running, Waiting]), page(Some(job(first, 2)), 2)).await,
        [format!("{first}:4"), format!("{second}:0")]
    );
    assert!(
        ids(&*store, &of(&[JobState::Dead, JobState::Expired]), page(None, 9))
            .await
            .is_empty()
    );
    let kind = JobFilter {
        kind: Some("other".to_owned()),
        queue: Some("default".to_owned()),
        ..JobFilter::default()
    };
    assert_eq!(
        ids(&*store, &kind, page(None, 2)).await,
        [format!("{second}:0"), format!("{second}:1")]
    );
    let nowhere = JobFilter {
        queue: Some("nowhere".to_owned()),
        ..JobFilter::default()
    };
    assert!(ids(&*store, &nowhere, page(None, 2)).await.is_empty());
    assert!(ids(&*store, &all, page(None, 0)).await.is_empty());
}

/// Pages of dead jobs continue over batches with no, one or several dead jobs, also with another state or condition.
pub async fn dead_jobs_are_listed_in_pages(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let mut dead = Vec::new();
    for number in 0..12 {
        let kind = if number % 4 == 3 { "other" } else { KIND };
        let id = submit(
            &*store,
            NewBatch {
                kind: kind.to_owned(),
                ..once(3)
            },
        )
        .await;
        let slice = only(claim(&*store, worker, 3).await);
        let (failed, completed) = match number % 3 {
            0 => ("", "0-2"),
            1 => ("1", "0,2"),
            _ => ("0,2", "1"),
        };
        if !failed.is_empty() {
            let report = failed_at(&slice, &positions(failed), &error());
            exchange(&*store, worker, vec![report], None).await;
            dead.extend(positions(failed).iter().map(|position| (kind, job(id, position))));
        }
        exchange(
            &*store,
            worker,
            vec![completed_at(&slice, &positions(completed))],
            None,
        )
        .await;
    }
    let waiting = submit(&*store, batch(1)).await;
    for (kind, states) in [
        (None, vec![JobState::Dead]),
        (Some("other"), vec![JobState::Dead]),
        (None, vec![JobState::Dead, JobState::Waiting]),
        (
            Some(KIND),
            vec![JobState::Cancelled, JobState::Waiting, JobState::Dead],
        ),
    ] {
        let mut expected: Vec<JobId> = dead
            .iter()
            .filter(|(of, _)| kind.is_none_or(|kind| kind == *of))
            .map(|(_, job)| *job)
            .collect();
        expected.extend(states.contains(&JobState::Waiting).then(|| job(waiting, 0)));
        let filter = JobFilter {
            kind: kind.map(str::to_owned),
            states,
            ..JobFilter::default()
        };
        for limit in [1, 2, 5, 50] {
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let rows = store.jobs(&filter, page(after, limit)).await.unwrap();
                let Some(last) = rows.last() else { break };
                after = Some(last.job);
                seen.extend(rows.into_iter().map(|row| row.job));
            }
            assert_eq!(seen, expected, "{filter:?} {limit}");
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let found = store.job_ids(&filter, after, limit).await.unwrap();
                let Some(last) = found.last() else { break };
                after = Some(last.batch);
                for jobs in found {
                    seen.extend(jobs.positions.iter().map(|position| job(jobs.batch, position)));
                }
            }
            assert_eq!(seen, expected, "{filter:?} {limit}");
        }
    }
}

/// The summary of a batch has the same counts as separate queries.
pub async fn batches_are_summarized(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let ended = submit(&*store, once(4)).await;
    let slice = only(claim(&*store, worker, 4).await);
    let failed = failed_at(&slice, &positions("1"), &error());
    exchange(
        &*store,
        worker,
        vec![failed, completed_at(&slice, &positions("0,3"))],
        None,
    )
    .await;
    let mut grouped = batch_of("other", 2);
    grouped.options.group = Some("acme".to_owned());
    grouped.options.run_at = Some(database.clock().now().plus_ms(60_000));
    let grouped = submit(&*store, grouped).await;
    let blocked = NewBatch {
        after: vec![gristmill_model::After::batch(grouped)],
        ..batch(3)
    };
    let blocked = submit(&*store, blocked).await;
    let asked = [blocked, BatchId(blocked.0 + 50), ended, grouped, ended];
    let found = store.batch_summaries(&asked).await.unwrap();
    let ids: Vec<BatchId> = found.iter().map(|summary| summary.batch).collect();
    assert_eq!(ids, [ended, grouped, blocked]);
    for summary in &found {
        let alone = JobFilter {
            batch: Some(summary.batch),
            ..JobFilter::default()
        };
        assert_eq!(summary.counts, store.counts(&alone).await.unwrap());
        assert_eq!(summary.submitted_at, database.clock().now());
    }
    let counts = &found[0].counts;
    assert_eq!((counts.completed, counts.dead, counts.running), (2, 1, 1));
    assert_eq!((found[1].counts.scheduled, found[2].counts.blocked), (2, 3));
    assert_eq!((&*found[1].kind, &*found[1].queue), ("other", "default"));
    assert_eq!(
        (found[0].group.as_deref(), found[1].group.as_deref()),
        (None, Some("acme"))
    );
    assert!(store.batch_summaries(&[]).await.unwrap().is_empty());
}

/// Jobs are found by the time of their submit. The newest ones come first.
pub async fn jobs_are_listed_by_time(database: &dyn Database) {
    let store = database.open().await;
    for (kind, count) in [(KIND, 3), ("other", 1), (KIND, 2), ("other", 2), (KIND, 5)] {
        submit(&*store, batch_of(kind, count)).await;
    }
    for kind in [None, Some(KIND), Some("other"), Some("none")] {
        let all = JobFilter {
            kind: kind.map(str::to_owned),
            ..JobFilter::default()
        };
        let mut rows = store.jobs(&all, page(None, 99)).await.unwrap();
        for at in rows.iter().map(|row| row.submitted_at) {
            for at in [at, at.plus_ms(1)] {
                let since = JobFilter {
                    submitted_since: Some(at),
                    ..all.clone()
                };
                let until = JobFilter {
                    submitted_until: Some(at),
                    ..all.clone()
                };
                for (filter, is_later) in [(since, true), (until, false)] {
                    let expected: Vec<_> = rows
                        .iter()
                        .filter(|row| (row.submitted_at >= at) == is_later)
                        .map(|row| row.job.to_string())
                        .collect();
                    assert_eq!(ids(&*store, &filter, page(None, 99)).await, expected);
                    assert_eq!(
                        store.counts(&filter).await.unwrap().total(),
                        expected.len() as u64
                    );
                }
            }
        }
        rows.reverse();
        for limit in 1..=rows.len() + 1 {
            let newest = store.newest_jobs(&all, limit as u32).await.unwrap();
            let expected: Vec<_> = rows.iter().take(limit).map(|row| row.job).collect();
            assert_eq!(newest.iter().map(|row| row.job).collect::<Vec<_>>(), expected);
        }
    }
}

/// Jobs are counted by state, within a filter.
pub async fn jobs_are_counted(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, once(6)).await;
    let mut delayed = batch_of("later", 2);
    delayed.options.run_at = Some(database.clock().now().plus_ms(10));
    let later = submit(&*store, delayed).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 4).await.unwrap();
    let mut report = failed_at(&lease.slices[0], &positions("0"), &error());
    report.completed = completed_at(&lease.slices[0], &positions("1-2")).completed;
    exchange(&*store, worker, vec![report], None).await;
    change(&*store, job(id, 5), Change::Cancel).await;

    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!(
        (counts.waiting, counts.scheduled, counts.running, counts.completed),
        (1, 2, 1, 2)
    );
    assert_eq!(
        (counts.dead, counts.cancelled, counts.expired, counts.total()),
        (1, 1, 0, 8)
    );
    let of_batch = JobFilter {
        batch: Some(later),
        ..JobFilter::default()
    };
    let counts = store.counts(&of_batch).await.unwrap();
    assert_eq!((counts.scheduled, counts.total()), (2, 2));
    let dead = JobFilter {
        states: vec![JobState::Dead],
        kind: Some(KIND.to_owned()),
        ..JobFilter::default()
    };
    let counts = store.counts(&dead).await.unwrap();
    assert_eq!((counts.dead, counts.total()), (1, 1));
    let stats = store.stats().await.unwrap();
    assert_eq!(
        (
            stats.batches,
            stats.slices,
            stats.leases,
            stats.reports,
            stats.failures
        ),
        (2, 2, 1, 3, 1)
    );
    assert_eq!(stats.workers, 1);
    assert_eq!(stats.kinds.len(), 2);
    assert!(stats.size_bytes > 0);
    assert_eq!(stats.kinds.iter().map(|kind| kind.counts.total()).sum::<u64>(), 8);
    assert_eq!(store.kind_counts(false).await.unwrap(), stats.kinds);
}

/// A job's row shows its details in each state.
pub async fn a_job_is_shown(database: &dyn Database) {
    let store = database.open().await;
    let submitted_at = database.clock().now();
    let id = submit(&*store, batch(2)).await;
    let waiting = store.job(job(id, 1)).await.unwrap().unwrap();
    assert_eq!(
        (waiting.row.state, waiting.row.attempt, waiting.row.run_at),
        (JobState::Waiting, 1, Some(submitted_at))
    );
    assert_eq!(
        (waiting.payload.get(), waiting.row.submitted_at),
        ("1", submitted_at)
    );
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 2).await.unwrap();
    let running = store.job(job(id, 1)).await.unwrap().unwrap();
    assert_eq!(
        (running.row.state, running.worker.as_deref(), running.row.run_at),
        (JobState::Running, Some("tester"), None)
    );
    database.clock().advance_ms(9);
    exchange(&*store, worker, vec![completed(&lease.slices[0])], None).await;
    let done = store.job(job(id, 1)).await.unwrap().unwrap();
    assert_eq!(
        (done.row.state, done.row.finished_at),
        (JobState::Completed, Some(submitted_at.plus_ms(9)))
    );
    assert_eq!(
        (
            done.value.unwrap().get(),
            done.duration_us,
            done.worker.as_deref()
        ),
        ("1", Some(1), Some("tester"))
    );
    for unknown in [
        job(id, 2),
        JobId {
            batch: gristmill_model::BatchId(999),
            position: 0,
        },
    ] {
        assert!(store.job(unknown).await.unwrap().is_none());
    }
    assert_eq!(store.outcomes(gristmill_model::BatchId(999)).await.unwrap(), None);
    assert!(store.is_finished(gristmill_model::BatchId(999)).await.unwrap());
}

fn new_run(name: &str) -> NewRun {
    NewRun {
        name: name.to_owned(),
        description: format!("{{\"of\":\"{name}\"}}"),
    }
}

async fn submit_to(store: &dyn Store, run: RunId, batches: Vec<NewBatch>) -> Vec<gristmill_model::BatchId> {
    let advance = RunAdvance {
        run,
        progress: RunProgress::default(),
        state: RunState::Submitting,
    };
    store.submit(batches, Some(advance)).await.unwrap()
}

/// Runs are created, changed and listed. A name is used once.
pub async fn runs_are_kept(database: &dyn Database) {
    let store = database.open().await;
    assert_eq!(store.run("a").await.unwrap(), None);
    let a = store.create_run(new_run("a")).await.unwrap();
    let b = store.create_run(new_run("b")).await.unwrap();
    assert_eq!(
        (a.state, a.progress, a.created_at),
        (
            RunState::Submitting,
            RunProgress::default(),
            database.clock().now()
        )
    );
    let taken = store.create_run(new_run("a")).await;
    assert!(
        matches!(taken, Err(StoreError::RunExists(ref name)) if name == "a"),
        "{taken:?}"
    );
    let names: Vec<_> = store
        .runs()
        .await
        .unwrap()
        .into_iter()
        .map(|run| run.name)
        .collect();
    assert_eq!(names, ["b", "a"]);
    let changed = NewRun {
        description: "{}".to_owned(),
        ..new_run("a")
    };
    store.update_run(a.id, changed, RunState::Finished).await.unwrap();
    let stored = store.run("a").await.unwrap().unwrap();
    assert_eq!(
        (stored.description.as_str(), stored.state),
        ("{}", RunState::Finished)
    );
    let taken = store.update_run(b.id, new_run("a"), RunState::Finished).await;
    assert!(matches!(taken, Err(StoreError::RunExists(_))), "{taken:?}");
    let unknown = store
        .update_run(RunId(99), new_run("c"), RunState::Finished)
        .await;
    assert!(
        matches!(unknown, Err(StoreError::RunUnknown(RunId(99)))),
        "{unknown:?}"
    );
    let unknown = store.delete_run(RunId(99)).await;
    assert!(
        matches!(unknown, Err(StoreError::RunUnknown(RunId(99)))),
        "{unknown:?}"
    );
}

/// The deletion of a run deletes exactly its batches, whatever their state. Ids are never reused.
pub async fn a_run_is_deleted_with_its_batches(database: &dyn Database) {
    let store = database.open().await;
    let other = submit(&*store, batch(1)).await;
    let run = store.create_run(new_run("a")).await.unwrap();
    let batches = submit_to(&*store, run.id, vec![batch(4), batch(2)]).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 4).await.unwrap();
    assert_eq!(
        held(&Some(lease.clone())),
        [format!("{other}:0"), format!("{}:0-2", batches[0])]
    );
    let failed = failed_at(&lease.slices[1], &positions("1"), &error());
    exchange(&*store, worker, vec![failed], None).await;
    store.delete_run(run.id).await.unwrap();
    assert_eq!(store.run("a").await.unwrap(), None);
    for batch in &batches {
        assert_eq!(store.outcomes(*batch).await.unwrap(), None);
    }
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().total(), 1);
    let revoked = store.heartbeat(worker, Default::default()).await.unwrap().revoked;
    assert_eq!(
        (revoked.len(), revoked[0].batch, &revoked[0].positions),
        (1, batches[0], &positions("0,2"))
    );
    let reports = lease.slices.iter().map(completed).collect();
    let exchanged = exchange(&*store, worker, reports, Some(want(9))).await;
    assert_eq!(exchanged.receipts[0].accepted, positions("0"));
    assert_eq!(exchanged.receipts[1].refused, positions("0-2"));
    assert_eq!(exchanged.lease, None);
    assert!(submit(&*store, batch(1)).await > batches[1]);
    assert!(store.create_run(new_run("a")).await.unwrap().id > run.id);
}

/// Jobs are found by their run.
pub async fn jobs_of_a_run_are_found(database: &dyn Database) {
    let store = database.open().await;
    submit(&*store, batch(2)).await;
    let run = store.create_run(new_run("a")).await.unwrap();
    let batches = submit_to(&*store, run.id, vec![batch(2), batch(1)]).await;
    let filter = JobFilter {
        run: Some(run.id),
        ..JobFilter::default()
    };
    assert_eq!(
        ids(&*store, &filter, page(None, 9)).await,
        [
            format!("{}:0", batches[0]),
            format!("{}:1", batches[0]),
            format!("{}:0", batches[1])
        ]
    );
    assert_eq!(store.counts(&filter).await.unwrap().waiting, 3);
    assert_eq!(change(&*store, filter, Change::Cancel).await.changed, 3);
}

/// Whole batches that ended long enough ago are pruned. Dead jobs, open jobs and the latest batch are kept.
pub async fn ended_batches_are_pruned(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let old = submit(&*store, batch(3)).await;
    let dead = submit(
        &*store,
        NewBatch {
            rejected: vec![Rejected {
                position: 0,
                error: error(),
            }],
            ..batch(1)
        },
    )
    .await;
    let lease = claim(&*store, worker, 9).await.unwrap();
    exchange(&*store, worker, vec![completed(&lease.slices[0])], None).await;
    let open = submit(&*store, batch(2)).await;
    let lease = claim(&*store, worker, 9).await.unwrap();
    exchange(
        &*store,
        worker,
        vec![completed_at(&lease.slices[0], &positions("0"))],
        None,
    )
    .await;
    let run = store.create_run(new_run("a")).await.unwrap();
    let unread = submit_to(&*store, run.id, vec![batch(1)]).await[0];
    change(&*store, job(unread, 0), Change::Cancel).await;
    database.clock().advance_ms(100);
    let young = submit(&*store, batch(2)).await;
    let lease = claim(&*store, worker, 9).await.unwrap();
    exchange(&*store, worker, vec![completed(&lease.slices[0])], None).await;

    let options = PruneOptions {
        finished_before: database.clock().now(),
        keep_batches: 0,
        dead_too: false,
        dry_run: true,
    };
    let one = Pruned { batches: 1, jobs: 3 };
    assert_eq!(store.prune(options).await.unwrap(), one);
    assert!(
        store.outcomes(old).await.unwrap().is_some(),
        "a dry run deletes nothing"
    );
    let keep_all = PruneOptions {
        keep_batches: 3,
        dry_run: false,
        ..options
    };
    assert_eq!(store.prune(keep_all).await.unwrap(), Pruned::default());
    let now = PruneOptions {
        dry_run: false,
        ..options
    };
    assert_eq!(store.prune(now).await.unwrap(), one);
    assert_eq!(store.outcomes(old).await.unwrap(), None);
    for kept in [dead, open, unread, young] {
        assert!(store.outcomes(kept).await.unwrap().is_some(), "{kept}");
    }
    let dead_too = PruneOptions {
        dead_too: true,
        ..now
    };
    assert_eq!(
        store.prune(dead_too).await.unwrap(),
        Pruned { batches: 1, jobs: 1 }
    );
    store
        .update_run(run.id, new_run("a"), RunState::Finished)
        .await
        .unwrap();
    assert_eq!(store.prune(now).await.unwrap(), Pruned { batches: 1, jobs: 1 });
    let stats = store.stats().await.unwrap();
    assert_eq!((stats.batches, stats.failures), (2, 0));
}

/// Ids continue from the last one, however much is pruned.
pub async fn ids_are_never_reused(database: &dyn Database) {
    let store = database.open().await;
    let all = PruneOptions {
        finished_before: database.clock().now().plus_ms(1),
        keep_batches: 0,
        dead_too: true,
        dry_run: false,
    };
    let mut last = submit(&*store, batch(1)).await;
    let mut lease_last = None;
    for _ in 0..3 {
        let worker = worker(&*store).await;
        let lease = claim(&*store, worker, 1).await.unwrap();
        assert!(Some(lease.id) > lease_last);
        lease_last = Some(lease.id);
        exchange(&*store, worker, vec![completed(&lease.slices[0])], None).await;
        store.leave(worker, Default::default()).await.unwrap();
        assert_eq!(store.prune(all).await.unwrap().batches, 1);
        // Another handle also continues from there.
        let next = submit(&*database.open().await, batch(1)).await;
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}

/// A closed store refuses every operation.
pub async fn a_closed_store_refuses_every_operation(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, batch(1)).await;
    store.close().await.unwrap();
    store.close().await.unwrap();
    assert!(matches!(
        store.submit(vec![batch(1)], None).await,
        Err(StoreError::Closed)
    ));
    assert!(matches!(
        store.submit_one(batch(1)).await,
        Err(StoreError::Closed)
    ));
    assert!(matches!(store.outcomes(id).await, Err(StoreError::Closed)));
    let again = database.open().await;
    assert_eq!(again.outcomes(id).await.unwrap().unwrap().count, 1);
}
