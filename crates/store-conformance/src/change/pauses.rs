//! Pauses of single jobs.

use gristmill_model::{
    After, BatchId, Clock, Control, Effect, JobId, JobState, NewBatch, RetryPolicy, Scope, Tag, TagCondition,
    Timestamp,
};
use gristmill_store::{Change, Changed, JobFilter, JobPause, Selection, Store, StoreError};

use crate::Database;
use crate::fixture::*;

fn of(count: u32) -> NewBatch {
    let mut new = batch(count);
    new.options.retry = RetryPolicy {
        delay_ms: 0,
        delay_ms_max: 0,
        ..RetryPolicy::default()
    };
    new
}

fn jobs(batch: BatchId, at: &str) -> Selection {
    Selection::Jobs(
        positions(at)
            .iter()
            .map(|position| job(batch, position))
            .collect(),
    )
}

fn all() -> Selection {
    Selection::Filter(JobFilter::default())
}

async fn pause(store: &dyn Store, selection: Selection, reason: &str) -> u64 {
    change(store, selection, pausing(reason, None)).await.changed
}

async fn resume(store: &dyn Store, selection: Selection, reason: Option<&str>) -> u64 {
    change(store, selection, resuming(reason)).await.changed
}

async fn state(store: &dyn Store, id: JobId) -> JobState {
    store.job(id).await.unwrap().unwrap().row.state
}

async fn reasons(store: &dyn Store, id: JobId) -> Vec<String> {
    let details = store.job(id).await.unwrap().unwrap();
    details.pauses.into_iter().map(|pause| pause.reason).collect()
}

/// Claims skip a paused job until its last pause ends. It then has its old place.
pub async fn paused_jobs_wait(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, of(6)).await;
    let later = submit(&*store, of(1)).await;
    let changed = change(&*store, jobs(id, "0,2-3,9"), pausing("deploy", None)).await;
    assert_eq!((changed.changed, changed.unchanged), (3, 1));
    assert_eq!(pause(&*store, jobs(id, "3"), "quota").await, 1);
    assert_eq!(state(&*store, job(id, 2)).await, JobState::Paused);
    assert_eq!(reasons(&*store, job(id, 3)).await, ["deploy", "quota"]);
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.paused, counts.waiting, counts.total()), (3, 4, 7));
    let paused = JobFilter {
        states: vec![JobState::Paused],
        ..JobFilter::default()
    };
    let ids = store.job_ids(&paused, None, 9).await.unwrap();
    assert_eq!(ids[0].positions, positions("0,2-3"));
    assert!(!store.is_finished(id).await.unwrap());

    // Another process does it, after a restart.
    store.close().await.unwrap();
    let store = database.open().await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 1).await;
    assert_eq!(held(&lease), [format!("{id}:1")]);
    assert_eq!(resume(&*store, jobs(id, "2-3"), Some("deploy")).await, 2);
    assert_eq!(resume(&*store, jobs(id, "2-3"), Some("deploy")).await, 0);
    assert_eq!(state(&*store, job(id, 2)).await, JobState::Waiting);
    assert_eq!(state(&*store, job(id, 3)).await, JobState::Paused);
    let mut order = held(&claim(&*store, worker, 9).await);
    assert_eq!(order.pop().unwrap(), format!("{later}:0"));
    order.sort();
    assert_eq!(order, [format!("{id}:2"), format!("{id}:4-5")]);
    assert_eq!(resume(&*store, all(), None).await, 2);
    let mut rest = held(&claim(&*store, worker, 9).await);
    rest.sort();
    assert_eq!(rest, [format!("{id}:0"), format!("{id}:3")]);
}

/// A pause of a tag holds for a time, and for the jobs that exist at its start.
pub async fn tags_are_paused_until(database: &dyn Database) {
    let store = database.open().await;
    let tagged = || {
        let mut new = of(3);
        new.tags = vec![Tag {
            positions: Some(positions("1-2")),
            ..Tag::all("customer", "7")
        }];
        new
    };
    let id = submit(&*store, tagged()).await;
    let customer = || {
        Selection::Filter(JobFilter {
            tags: vec![TagCondition::parse("customer=7")],
            ..JobFilter::default()
        })
    };
    let until = database.clock().now().plus_ms(100);
    let paused = change(&*store, customer(), pausing("quota", Some(until))).await;
    assert_eq!(paused.changed, 2);
    assert_eq!(pause(&*store, jobs(id, "2"), "other").await, 1);
    let new = submit(&*store, tagged()).await;
    let worker = worker(&*store).await;
    assert_eq!(
        held(&claim(&*store, worker, 9).await),
        [format!("{id}:0"), format!("{new}:0-2")]
    );
    let details = store.job(job(id, 1)).await.unwrap().unwrap();
    let expected = JobPause {
        reason: "quota".to_owned(),
        until: Some(until),
        scope: None,
    };
    assert_eq!(details.pauses, [expected]);
    database.clock().advance_ms(99);
    store.expire().await.unwrap();
    assert_eq!(state(&*store, job(id, 1)).await, JobState::Paused);
    database.clock().advance_ms(1);
    assert_eq!(store.expire().await.unwrap(), 0);
    assert_eq!(held(&claim(&*store, worker, 9).await), [format!("{id}:1")]);
    assert_eq!(reasons(&*store, job(id, 2)).await, ["other"]);
    assert_eq!(resume(&*store, customer(), Some("other")).await, 1);
    assert_eq!(held(&claim(&*store, worker, 9).await), [format!("{id}:2")]);
}

/// A running job continues despite a pause. It is paused when it is tried again, given back or rescued.
pub async fn running_jobs_are_paused_when_they_come_back(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, of(8)).await;
    let first = worker(&*store).await;
    let lease = claim(&*store, first, 6).await.unwrap();
    assert_eq!(
        change(&*store, jobs(id, "0"), Change::Prioritise(5))
            .await
            .changed,
        1
    );
    assert_eq!(pause(&*store, jobs(id, "0-4"), "deploy").await, 5);
    assert_eq!(state(&*store, job(id, 0)).await, JobState::Running);
    assert_eq!(reasons(&*store, job(id, 0)).await, ["deploy"]);
    let mut report = failed_at(&lease.slices[0], &positions("0,5"), &error());
    report.released = positions("1");
    report.completed = completed_at(&lease.slices[0], &positions("2")).completed;
    let receipts = exchange(&*store, first, vec![report], None).await.receipts;
    assert_eq!(receipts[0].accepted, positions("0-2,5"));
    assert_eq!(resume(&*store, jobs(id, "4"), None).await, 1);
    store.rescue(Timestamp(0), vec![first]).await.unwrap();
    let states: Vec<JobState> = {
        let mut states = Vec::new();
        for position in 0..6 {
            states.push(state(&*store, job(id, position)).await);
        }
        states
    };
    assert_eq!(
        states,
        [
            JobState::Paused,
            JobState::Paused,
            JobState::Completed,
            JobState::Paused,
            JobState::Waiting,
            JobState::Waiting
        ]
    );
    let second = worker(&*store).await;
    let mut others = held(&claim(&*store, second, 9).await);
    others.sort();
    assert_eq!(
        others,
        [format!("{id}:4"), format!("{id}:5"), format!("{id}:6-7")]
    );
    assert_eq!(resume(&*store, jobs(id, "0-7"), None).await, 3);
    let lease = claim(&*store, second, 9).await.unwrap();
    let again: Vec<(u32, u32, u32)> = lease
        .slices
        .iter()
        .map(|slice| (slice.positions.first().unwrap(), slice.attempt, slice.rescues))
        .collect();
    // The job with the higher priority comes first.
    assert_eq!(again[0], (0, 2, 0));
    let mut rest = again[1..].to_vec();
    rest.sort_unstable();
    assert_eq!(rest, [(1, 1, 0), (3, 1, 1)]);
}

/// A paused job that waits for others waits for both ends, in any order. It can be cancelled, and it expires.
pub async fn blocked_jobs_are_paused(database: &dyn Database) {
    let store = database.open().await;
    let prerequisite = submit(&*store, of(2)).await;
    let after = |count| {
        let mut new = of(count);
        new.after = vec![After::batch(prerequisite)];
        new
    };
    let blocked = submit(&*store, after(4)).await;
    let mut short = after(1);
    short.options.expires_at = Some(database.clock().now().plus_ms(50));
    let short = submit(&*store, short).await;
    assert_eq!(pause(&*store, jobs(blocked, "1-3"), "deploy").await, 3);
    assert_eq!(pause(&*store, jobs(short, "0"), "deploy").await, 1);
    assert_eq!(state(&*store, job(blocked, 0)).await, JobState::Blocked);
    assert_eq!(state(&*store, job(blocked, 1)).await, JobState::Paused);
    // The pause ends before the prerequisite.
    assert_eq!(resume(&*store, jobs(blocked, "3"), None).await, 1);
    assert_eq!(state(&*store, job(blocked, 3)).await, JobState::Blocked);
    assert_eq!(
        change(&*store, jobs(blocked, "2"), Change::Cancel).await.changed,
        1
    );
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 9).await.unwrap();
    let done = completed(&lease.slices[0]);
    let next = exchange(&*store, worker, vec![done], Some(want(9))).await;
    let mut freed = held(&next.lease);
    freed.sort();
    assert_eq!(freed, [format!("{blocked}:0"), format!("{blocked}:3")]);
    assert_eq!(state(&*store, job(blocked, 1)).await, JobState::Paused);
    database.clock().advance_ms(50);
    assert_eq!(store.expire().await.unwrap(), 1);
    assert_eq!(state(&*store, job(short, 0)).await, JobState::Expired);
    assert_eq!(resume(&*store, all(), Some("deploy")).await, 1);
    assert_eq!(held(&claim(&*store, worker, 9).await), [format!("{blocked}:1")]);
}

/// A job that waits for a paused job keeps waiting. A pause follows the states of its filter, and skips ended jobs.
pub async fn pauses_follow_the_states_of_a_filter(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, of(3)).await;
    let mut waiting = of(1);
    waiting.after = vec![After::job(job(id, 0))];
    let waiting = submit(&*store, waiting).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 2).await.unwrap();
    let only = Selection::Filter(JobFilter {
        states: vec![JobState::Waiting],
        ..JobFilter::default()
    });
    assert_eq!(pause(&*store, only, "deploy").await, 1);
    assert_eq!(reasons(&*store, job(id, 1)).await, [""; 0]);
    let failed = failed_at(&lease.slices[0], &positions("0"), &error());
    exchange(&*store, worker, vec![failed], None).await;
    assert_eq!(pause(&*store, jobs(id, "0"), "deploy").await, 1);
    assert_eq!(state(&*store, job(waiting, 0)).await, JobState::Blocked);
    let cancelled = Selection::Filter(JobFilter {
        states: vec![JobState::Paused],
        ..JobFilter::default()
    });
    assert_eq!(change(&*store, cancelled, Change::Cancel).await.changed, 2);
    assert_eq!(state(&*store, job(waiting, 0)).await, JobState::Cancelled);
    assert_eq!(pause(&*store, jobs(id, "0"), "deploy").await, 0);
    let refused = store.change(all(), pausing("", None)).await.unwrap_err();
    assert!(matches!(refused, StoreError::InvalidBatch(_)), "{refused}");
    for number in 0..gristmill_model::limits::PAUSES_PER_JOB_MAX {
        pause(&*store, jobs(id, "1"), &number.to_string()).await;
    }
    let refused = store
        .change(jobs(id, "1"), pausing("more", None))
        .await
        .unwrap_err();
    assert!(matches!(refused, StoreError::InvalidInput(_)), "{refused}");
    assert_eq!(
        change(&*store, jobs(id, "0"), resuming(None)).await,
        Changed {
            changed: 0,
            unchanged: 1
        }
    );
}

/// A job also shows the pauses of its queue, kind and group.
pub async fn a_job_shows_the_pauses_of_its_lane(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, of(1)).await;
    let scope = Scope {
        kind: Some(KIND.to_owned()),
        ..Scope::default()
    };
    let other = Scope {
        kind: Some("other".to_owned()),
        ..Scope::default()
    };
    let until = database.clock().now().plus_ms(10);
    let controls = [(&scope, None), (&Scope::default(), Some(until)), (&other, None)];
    let controls = controls.map(|(scope, until)| Control {
        scope: scope.clone(),
        effect: Effect::Pause {
            reason: "incident".to_owned(),
            until,
        },
    });
    store.put_controls(controls.to_vec()).await.unwrap();
    let told = store.job(job(id, 0)).await.unwrap().unwrap();
    assert_eq!(told.row.state, JobState::Waiting);
    let scopes: Vec<Option<Scope>> = told.pauses.into_iter().map(|pause| pause.scope).collect();
    assert_eq!(scopes, [Some(scope.clone()), Some(Scope::default())]);
    database.clock().advance_ms(10);
    let told = store.job(job(id, 0)).await.unwrap().unwrap();
    assert_eq!(told.pauses.len(), 1);
}
