//! The jobs of the next claim, before it.

use gristmill_model::limits::NEXT_JOBS_MAX;
use gristmill_model::{Clock, Control, Effect, JobId, Scope};
use gristmill_store::rules::lanes::LOOK_LANES_MAX;
use gristmill_store::{ControlFilter, Store, Want};

use crate::Database;
use crate::fixture::*;

async fn next(store: &dyn Store, want: &Want) -> Vec<JobId> {
    let rows = store.next_jobs(want).await.unwrap();
    rows.into_iter().map(|row| row.job).collect()
}

/// Claims, and compares the claim with what was foretold.
async fn claims_as_foretold(store: &dyn Store, worker: gristmill_model::WorkerId, want: &Want) -> Vec<JobId> {
    let foretold = next(store, want).await;
    let lease = exchange(store, worker, Vec::new(), Some(want.clone()))
        .await
        .lease;
    let slices = lease.iter().flat_map(|lease| &lease.slices);
    let claimed = slices.flat_map(|slice| slice.positions.iter().map(|position| job(slice.batch, position)));
    let claimed: Vec<JobId> = claimed.collect();
    assert_eq!(foretold, claimed, "the next jobs are those of the claim");
    claimed
}

/// Priorities, times, kinds, queues, groups, attempts and parts of slices are those of the claim.
pub async fn the_next_jobs_are_those_of_the_next_claim(database: &dyn Database) {
    let store = database.open().await;
    let now = database.clock().now();
    let empty = Want {
        queues: Vec::new(),
        ..want(10)
    };
    assert_eq!(next(&*store, &empty).await, []);
    let mut ids = Vec::new();
    for (kind, queue, group, priority, run_at, count) in [
        ("work", "default", None, 0, -5, 3),
        ("work", "default", Some("acme"), 2, 0, 2),
        ("mail", "default", None, 0, -9, 2),
        ("work", "far", None, 9, 0, 1),
        ("work", "default", None, 7, 50, 1),
    ] {
        let mut new = batch_of(kind, count);
        new.queue = queue.to_owned();
        new.options.group = group.map(str::to_owned);
        new.options.priority = priority;
        new.options.run_at = Some(now.plus_ms(run_at));
        ids.push(submit(&*store, new).await);
    }
    let [first, grouped, mail, far, later] = ids[..] else {
        panic!("five batches")
    };
    let everywhere = next(&*store, &empty).await;
    let expected = [
        job(far, 0),
        job(grouped, 0),
        job(grouped, 1),
        job(mail, 0),
        job(mail, 1),
        job(first, 0),
        job(first, 1),
        job(first, 2),
    ];
    assert_eq!(everywhere, expected, "of all queues, and only due ones");
    let rows = store.next_jobs(&empty).await.unwrap();
    assert_eq!((rows[1].priority, rows[1].group.as_deref()), (2, Some("acme")));
    assert_eq!(
        (rows[1].attempt, &*rows[1].kind, rows[3].run_at),
        (1, "work", Some(now)),
        "a moment before the submit counts for the place alone"
    );
    let only_mail = Want {
        kinds: vec!["mail".into()],
        ..want(10)
    };
    assert_eq!(next(&*store, &only_mail).await, [job(mail, 0), job(mail, 1)]);
    let urgent = Want {
        priority_min: Some(1),
        ..want(10)
    };
    assert_eq!(next(&*store, &urgent).await, [job(grouped, 0), job(grouped, 1)]);
    assert_eq!(store.next_jobs(&want(NEXT_JOBS_MAX + 1)).await.unwrap().len(), 7);

    let worker = worker(&*store).await;
    assert_eq!(claims_as_foretold(&*store, worker, &want(3)).await.len(), 3);
    let slice = only(claim(&*store, worker, 1).await);
    let failed = failed_at(&slice, &slice.positions, &error());
    exchange(&*store, worker, vec![failed], None).await;
    database.clock().advance_ms(60_000);
    let retried = store.next_jobs(&want(10)).await.unwrap();
    let again = retried
        .iter()
        .find(|row| row.attempt == 2)
        .expect("it runs again");
    assert_eq!(again.error.as_deref(), Some(error().message.as_str()));
    assert_eq!(retried[0].job, job(later, 0), "it is due now");
    assert_eq!(claims_as_foretold(&*store, worker, &want(10)).await.len(), 5);
    assert_eq!(next(&*store, &want(10)).await, []);
}

/// Pauses, limits of running jobs, rates and aging count as in a claim, in many lanes too.
pub async fn the_next_jobs_respect_controls(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    for group in 0..20 {
        let mut new = batch(3);
        new.options.group = Some(format!("group {group:02}"));
        new.options.priority = group % 3;
        submit(&*store, new).await;
        database.clock().advance_ms(1);
    }
    submit(&*store, batch_of("mail", 5)).await;
    assert_eq!(claims_as_foretold(&*store, worker, &want(7)).await.len(), 7);
    let control = |kind: &str, group: Option<&str>, each_group, effect| Control {
        scope: Scope {
            kind: Some(kind.to_owned()),
            group: group.map(str::to_owned),
            each_group,
            ..Scope::default()
        },
        effect,
    };
    let pause = Effect::Pause {
        reason: "stocktaking".to_owned(),
        until: None,
    };
    let rate = Effect::Rate {
        jobs: 2,
        period_ms: 1_000,
        burst: 2,
    };
    let controls = vec![
        control("work", None, true, Effect::Concurrency { jobs_max: 2 }),
        control("work", Some("group 09"), false, pause),
        control("mail", None, false, rate),
    ];
    store.put_controls(controls).await.unwrap();
    let foretold = next(&*store, &want(100)).await;
    let again = next(&*store, &want(100)).await;
    assert_eq!(foretold, again, "a look takes no tokens");
    let claimed = claims_as_foretold(&*store, worker, &want(10)).await;
    assert_eq!(claimed, foretold[..10]);
    claims_as_foretold(&*store, worker, &want(100)).await;
    assert_eq!(next(&*store, &want(100)).await, [], "all groups are full");
    database.clock().advance_ms(1_000);
    assert_eq!(claims_as_foretold(&*store, worker, &want(100)).await.len(), 2);
    let aging = Effect::Aging {
        grace_ms: 0,
        step_ms: 1,
    };
    store.delete_controls(ControlFilter::default()).await.unwrap();
    let scope = Scope::default();
    store
        .put_controls(vec![Control { scope, effect: aging }])
        .await
        .unwrap();
    // 60 and 5 jobs, without 7, and without those that the limits have admitted.
    let left = next(&*store, &want(100)).await.len();
    assert_eq!(claims_as_foretold(&*store, worker, &want(5)).await.len(), 5);
    let rest = claims_as_foretold(&*store, worker, &want(100)).await;
    assert_eq!(rest.len(), left - 5, "all others");
    assert!(left > 20, "{left} jobs are few");
}

/// A claim looks into a part of the lanes at a time, if they are many. The next jobs may lie behind a whole part without due jobs.
pub async fn the_next_jobs_are_found_behind_many_lanes(database: &dyn Database) {
    /// The number of batches in one submit.
    const SUBMITTED_AT_ONCE: usize = 1_000;
    let store = database.open().await;
    let later = database.clock().now().plus_ms(50_000);
    for first in (0..LOOK_LANES_MAX).step_by(SUBMITTED_AT_ONCE) {
        let lanes = first..first + SUBMITTED_AT_ONCE;
        let news = lanes.map(|lane| {
            let mut new = batch(1);
            new.options.group = Some(format!("tenant {lane}"));
            new.options.run_at = Some(later);
            new
        });
        store.submit(news.collect(), None).await.unwrap();
    }
    let due = submit(&*store, batch_of("last", 1)).await;
    let last = Want {
        kinds: vec!["last".into()],
        ..want(10)
    };
    assert_eq!(next(&*store, &last).await, [job(due, 0)], "of one kind");
    assert_eq!(next(&*store, &want(10)).await, [job(due, 0)], "of all kinds");
}
