//! Changes of priority after the submit, and discarded dead jobs.

use gristmill_model::{
    After, BatchId, JobId, JobState, NewBatch, PackedArray, Rejected, RetryPolicy, Tag, Timestamp,
};
use gristmill_store::{Change, Changed, JobFilter, Page, PruneOptions, Selection, Store};

use crate::Database;
use crate::fixture::*;

fn of(priority: i16, count: u32) -> NewBatch {
    let mut new = batch(count);
    new.options.priority = priority;
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

async fn prioritise(store: &dyn Store, selection: Selection, priority: i16) -> Changed {
    change(store, selection, Change::Prioritise(priority)).await
}

/// The state and the priority of a job.
async fn stands(store: &dyn Store, id: JobId) -> (JobState, i16) {
    let row = store.job(id).await.unwrap().unwrap().row;
    (row.state, row.priority)
}

/// Waiting jobs move to the place of their new priority: single jobs, all jobs of a tag, and all jobs of a kind.
pub async fn waiting_jobs_are_prioritised(database: &dyn Database) {
    let store = database.open().await;
    let first = submit(&*store, of(0, 6)).await;
    let second = submit(&*store, of(0, 2)).await;
    let mut tagged = of(0, 2);
    tagged.tags = vec![Tag {
        positions: Some(positions("1")),
        ..Tag::all("customer", "7")
    }];
    let tagged = submit(&*store, tagged).await;
    let other = submit(&*store, batch_of("other", 1)).await;
    let changed = prioritise(&*store, jobs(first, "2-3,9"), 10).await;
    assert_eq!((changed.changed, changed.unchanged), (2, 1));
    let tag = JobFilter {
        tags: vec![gristmill_model::TagCondition::parse("customer=7")],
        ..JobFilter::default()
    };
    assert_eq!(prioritise(&*store, Selection::Filter(tag), 20).await.changed, 1);
    let kind = JobFilter {
        kind: Some("other".to_owned()),
        ..JobFilter::default()
    };
    assert_eq!(
        prioritise(&*store, Selection::Filter(kind), i16::MAX)
            .await
            .changed,
        1
    );
    assert_eq!(prioritise(&*store, jobs(second, "0"), i16::MIN).await.changed, 1);
    assert_eq!(stands(&*store, job(first, 2)).await, (JobState::Waiting, 10));
    assert_eq!(stands(&*store, job(first, 1)).await, (JobState::Waiting, 0));
    // Another process claims.
    let second_handle = database.open().await;
    let worker = worker(&*second_handle).await;
    let mut order = Vec::new();
    while let Some(lease) = claim(&*second_handle, worker, 3).await {
        order.extend(held(&Some(lease)));
    }
    assert_eq!(
        order,
        [
            format!("{other}:0"),
            format!("{tagged}:1"),
            format!("{first}:2"),
            format!("{first}:3"),
            format!("{first}:0-1"),
            format!("{first}:4-5"),
            format!("{second}:1"),
            format!("{tagged}:0"),
            format!("{second}:0"),
        ]
    );
}

/// A delayed job keeps its time. A change follows the states of its filter.
pub async fn scheduled_jobs_are_prioritised(database: &dyn Database) {
    let store = database.open().await;
    let mut delayed = of(0, 2);
    delayed.options.run_at = Some(gristmill_model::Clock::now(database.clock()).plus_ms(100));
    let delayed = submit(&*store, delayed).await;
    let due = submit(&*store, of(5, 1)).await;
    let scheduled = JobFilter {
        states: vec![JobState::Scheduled],
        ..JobFilter::default()
    };
    assert_eq!(
        prioritise(&*store, Selection::Filter(scheduled), 6).await.changed,
        2
    );
    assert_eq!(stands(&*store, job(delayed, 1)).await, (JobState::Scheduled, 6));
    assert_eq!(stands(&*store, job(due, 0)).await, (JobState::Waiting, 5));
    database.clock().advance_ms(100);
    let worker = worker(&*store).await;
    assert_eq!(
        held(&claim(&*store, worker, 9).await),
        [format!("{delayed}:0-1"), format!("{due}:0")]
    );
}

/// A running job keeps its new priority when it is tried again, given back or rescued. Ended jobs do not change.
pub async fn running_jobs_keep_their_new_priority(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, of(0, 8)).await;
    let between = submit(&*store, of(5, 1)).await;
    let first = worker(&*store).await;
    // The batch's jobs are claimed before the other batch has its turn.
    change(&*store, jobs(between, "0"), Change::Cancel).await;
    let lease = claim(&*store, first, 6).await.unwrap();
    let done = completed_at(&lease.slices[0], &positions("5"));
    exchange(&*store, first, vec![done], None).await;
    let changed = prioritise(&*store, jobs(id, "0-2,5"), 10).await;
    assert_eq!((changed.changed, changed.unchanged), (3, 1));
    assert_eq!(stands(&*store, job(id, 0)).await, (JobState::Running, 10));
    assert_eq!(stands(&*store, job(id, 3)).await, (JobState::Running, 0));
    // A waiting job gets a higher priority, and is claimed and rescued with it.
    assert_eq!(prioritise(&*store, jobs(id, "7"), 7).await.changed, 1);
    let second = worker(&*store).await;
    let raised = claim(&*store, second, 1).await;
    assert_eq!(held(&raised), [format!("{id}:7")]);

    let mut report = failed_at(&lease.slices[0], &positions("0,3"), &error());
    report.released = positions("1,4");
    let receipts = exchange(&*store, first, vec![report], None).await.receipts;
    assert_eq!(receipts[0].accepted, positions("0-1,3-4"));
    assert_eq!(stands(&*store, job(id, 0)).await, (JobState::Waiting, 10));
    assert_eq!(stands(&*store, job(id, 1)).await, (JobState::Waiting, 10));
    assert_eq!(stands(&*store, job(id, 3)).await, (JobState::Waiting, 0));
    assert_eq!(stands(&*store, job(id, 4)).await, (JobState::Waiting, 0));
    store.leave(first, Default::default()).await.unwrap();
    assert_eq!(stands(&*store, job(id, 2)).await, (JobState::Waiting, 10));
    store.rescue(Timestamp(0), vec![second]).await.unwrap();
    assert_eq!(stands(&*store, job(id, 7)).await, (JobState::Waiting, 7));

    let third = worker(&*store).await;
    let order = held(&claim(&*store, third, 9).await);
    let mut raised: Vec<String> = order[..3].to_vec();
    raised.sort();
    assert_eq!(raised, [format!("{id}:0"), format!("{id}:1"), format!("{id}:2")]);
    assert_eq!(order[3], format!("{id}:7"));
    // A retry by hand restores the first priority.
    change(&*store, jobs(id, "7"), Change::Cancel).await;
    change(&*store, jobs(id, "7"), Change::Retry).await;
    assert_eq!(stands(&*store, job(id, 7)).await, (JobState::Waiting, 0));
}

/// A blocked job has its new priority when it becomes claimable, even if its batch is split.
pub async fn blocked_jobs_are_prioritised(database: &dyn Database) {
    let store = database.open().await;
    let prerequisite = submit(&*store, of(0, 1)).await;
    let mut new = of(0, 6);
    new.after = vec![After::batch(prerequisite)];
    let blocked = submit(&*store, new).await;
    assert_eq!(prioritise(&*store, jobs(blocked, "2-3"), 10).await.changed, 2);
    assert_eq!(prioritise(&*store, jobs(blocked, "3"), -10).await.changed, 1);
    assert_eq!(stands(&*store, job(blocked, 2)).await, (JobState::Blocked, 10));
    assert_eq!(stands(&*store, job(blocked, 3)).await, (JobState::Blocked, -10));
    assert_eq!(stands(&*store, job(blocked, 4)).await, (JobState::Blocked, 0));
    assert_eq!(
        change(&*store, jobs(blocked, "5"), Change::Cancel).await.changed,
        1
    );
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 9).await;
    assert_eq!(held(&lease), [format!("{prerequisite}:0")]);
    let done = completed(&lease.unwrap().slices[0]);
    let next = exchange(&*store, worker, vec![done], Some(want(9))).await;
    assert_eq!(
        held(&next.lease),
        [
            format!("{blocked}:2"),
            format!("{blocked}:0-1,4"),
            format!("{blocked}:3")
        ]
    );
}

/// Discarded jobs are no longer dead. Nothing else about them changes.
pub async fn dead_jobs_are_discarded(database: &dyn Database) {
    let store = database.open().await;
    let mut new = NewBatch::new(KIND, PackedArray::parse("[0,1,2,3,\"?\",\"?\"]").unwrap());
    new.options.retry = RetryPolicy::NEVER;
    new.rejected = [4, 5]
        .into_iter()
        .map(|position| Rejected {
            position,
            error: error(),
        })
        .collect();
    let id = submit(&*store, new).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 4).await.unwrap();
    let mut report = failed_at(&lease.slices[0], &positions("0-2"), &error());
    report.completed = completed_at(&lease.slices[0], &positions("3")).completed;
    exchange(&*store, worker, vec![report], None).await;

    let changed = change(&*store, jobs(id, "1,3-4"), Change::Discard).await;
    assert_eq!((changed.changed, changed.unchanged), (2, 1));
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.dead, counts.cancelled, counts.completed), (3, 2, 1));
    let discarded = store.job(job(id, 1)).await.unwrap().unwrap();
    assert_eq!(
        (discarded.row.state, discarded.row.attempt),
        (JobState::Cancelled, 1)
    );
    assert_eq!(discarded.failures.len(), 1);
    assert_eq!(discarded.row.error.as_deref(), Some("no"));
    let dead = JobFilter {
        states: vec![JobState::Dead],
        ..JobFilter::default()
    };
    let page = Page {
        after: None,
        limit: 9,
    };
    let listed = store.jobs(&dead, page).await.unwrap();
    let listed: Vec<u32> = listed.iter().map(|row| row.job.position).collect();
    assert_eq!(listed, [0, 2, 5]);

    // A rejected job still cannot run.
    let again = change(&*store, jobs(id, "1,4"), Change::Retry).await;
    assert_eq!((again.changed, again.unchanged), (1, 1));
    let lease = claim(&*store, worker, 9).await;
    assert_eq!(held(&lease), [format!("{id}:1")]);
    exchange(&*store, worker, vec![completed(&lease.unwrap().slices[0])], None).await;

    let options = PruneOptions {
        finished_before: Timestamp(i64::MAX),
        keep_batches: 0,
        dead_too: false,
        dry_run: false,
    };
    assert_eq!(store.prune(options).await.unwrap().batches, 0);
    let others = JobFilter {
        states: vec![JobState::Completed],
        ..JobFilter::default()
    };
    assert_eq!(change(&*store, others, Change::Discard).await, Changed::default());
    assert_eq!(change(&*store, dead, Change::Discard).await.changed, 3);
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().dead, 0);
    assert_eq!(store.prune(options).await.unwrap().batches, 1);
}
