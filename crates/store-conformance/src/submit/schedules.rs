//! Jobs that are submitted again and again.

use std::collections::{BTreeMap, BTreeSet};

use gristmill_model::{BatchOptions, Clock, JobState, PackedArray, RecurrenceRule};
use gristmill_store::{CatchUp, NewSchedule, Overlap, ScheduleChange, Store, StoreError};

use crate::Database;
use crate::fixture::*;

/// The interval of the schedules here. Milliseconds.
const INTERVAL_MS: i64 = 60_000;

/// A schedule of the kind that checks submit, whose payload is its name.
fn schedule(name: &str) -> NewSchedule {
    NewSchedule {
        name: name.to_owned(),
        rule: RecurrenceRule::Every {
            interval_ms: INTERVAL_MS as u64,
        },
        kind: KIND.to_owned(),
        queue: "default".to_owned(),
        payload: PackedArray::parse(&format!("[\"{name}\"]")).unwrap(),
        options: BatchOptions::default(),
        expires_after_ms: None,
        tags: BTreeMap::new(),
        catch_up: CatchUp::One,
        overlap: Overlap::Allow,
    }
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn put(store: &dyn Store, schedule: NewSchedule) {
    store.put_schedules(vec![schedule]).await.unwrap();
}

async fn fire(store: &dyn Store) -> u64 {
    store.fire_schedules(100).await.unwrap().jobs
}

/// Whoever looks first fires what is due, packed, and nobody fires it again.
pub async fn due_schedules_fire_once(database: &dyn Database) {
    let (one, other) = (database.open().await, database.open().await);
    let mut names: Vec<String> = (0..30).map(|number| format!("s{number:02}")).collect();
    one.put_schedules(names.iter().map(|name| schedule(name)).collect())
        .await
        .unwrap();
    let due_at = database.clock().now().plus_ms(INTERVAL_MS);
    let early = one.fire_schedules(100).await.unwrap();
    assert_eq!((early.jobs, early.next_at), (0, Some(due_at)));

    database.clock().advance_ms(INTERVAL_MS);
    let first = one.fire_schedules(20).await.unwrap();
    assert_eq!(
        (first.schedules, first.jobs, first.batches.len()),
        (20, 20, 1),
        "one kind, one batch"
    );
    assert_eq!(first.next_at, Some(due_at), "there are more");
    let (a, b) = tokio::join!(one.fire_schedules(100), other.fire_schedules(100));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!(a.jobs + b.jobs, 10);
    assert_eq!(fire(&*other).await, 0);
    let next_at = other.fire_schedules(100).await.unwrap().next_at;
    assert_eq!(next_at, Some(due_at.plus_ms(INTERVAL_MS)));

    let worker = worker(&*one).await;
    let mut fired = Vec::new();
    while let Some(lease) = claim(&*one, worker, 100).await {
        for slice in lease.slices {
            fired.extend(
                slice
                    .payloads
                    .items()
                    .map(|item| item.trim_matches('"').to_owned()),
            );
        }
    }
    fired.sort();
    names.sort();
    assert_eq!(fired, names);
    let row = one.schedule("s07").await.unwrap().unwrap();
    assert_eq!((row.fired, row.last_at), (1, Some(due_at)));
    let job = one.job(row.last_job.unwrap()).await.unwrap().unwrap();
    assert_eq!(job.payload.get(), "\"s07\"", "a schedule knows its last job");
}

/// What holds for a schedule's jobs is what it says, and different ones do not mix.
pub async fn jobs_of_schedules_have_their_options(database: &dyn Database) {
    let store = database.open().await;
    let mut urgent = schedule("urgent");
    urgent.options.priority = 7;
    urgent.expires_after_ms = Some(5_000);
    let mut elsewhere = schedule("elsewhere");
    elsewhere.queue = "other".to_owned();
    store
        .put_schedules(vec![urgent, elsewhere, schedule("plain")])
        .await
        .unwrap();
    database.clock().advance_ms(INTERVAL_MS);
    assert_eq!(store.fire_schedules(100).await.unwrap().batches.len(), 3);
    let row = store.schedule("urgent").await.unwrap().unwrap();
    let job = store.job(row.last_job.unwrap()).await.unwrap().unwrap();
    assert_eq!(job.row.priority, 7);
    assert_eq!(
        job.options.expires_at,
        Some(database.clock().now().plus_ms(5_000))
    );
    let row = store.schedule("elsewhere").await.unwrap().unwrap();
    assert_eq!(
        &*store.job(row.last_job.unwrap()).await.unwrap().unwrap().row.queue,
        "other"
    );
}

/// A program that puts its schedules at each start disturbs none of them.
pub async fn a_schedule_can_be_put_again(database: &dyn Database) {
    let store = database.open().await;
    put(&*store, schedule("report")).await;
    let due_at = database.clock().now().plus_ms(INTERVAL_MS);
    database.clock().advance_ms(INTERVAL_MS / 2);
    let mut changed = schedule("report");
    changed.payload = PackedArray::parse("[\"changed\"]").unwrap();
    put(&*store, changed.clone()).await;
    let row = store.schedule("report").await.unwrap().unwrap();
    assert_eq!(
        (row.next_at, row.schedule),
        (Some(due_at), changed),
        "it stays due as it was"
    );

    let mut hourly = schedule("report");
    hourly.rule = RecurrenceRule::Every {
        interval_ms: 3_600_000,
    };
    put(&*store, hourly).await;
    let row = store.schedule("report").await.unwrap().unwrap();
    assert_eq!(
        row.next_at,
        Some(database.clock().now().plus_ms(3_600_000)),
        "a new rule begins anew"
    );
}

/// Jobs have the tags of their schedules, whether they are packed with others or not.
pub async fn scheduled_jobs_are_tagged(database: &dyn Database) {
    let store = database.open().await;
    for (name, region) in [("one", "eu"), ("two", "eu"), ("three", "us")] {
        let tags = BTreeMap::from([("region".to_owned(), region.to_owned())]);
        put(
            &*store,
            NewSchedule {
                tags,
                ..schedule(name)
            },
        )
        .await;
    }
    put(&*store, schedule("none")).await;
    database.clock().advance_ms(INTERVAL_MS);
    assert_eq!(fire(&*store).await, 4);
    for (name, region) in [
        ("one", Some("eu")),
        ("two", Some("eu")),
        ("three", Some("us")),
        ("none", None),
    ] {
        let row = store.schedule(name).await.unwrap().unwrap();
        let details = store.job(row.last_job.unwrap()).await.unwrap().unwrap();
        assert_eq!(details.tags.get("region").map(String::as_str), region, "{name}");
    }
}

/// Moments that nobody saw are made up for as each schedule says.
pub async fn missed_moments_are_caught_up_with(database: &dyn Database) {
    let store = database.open().await;
    for (name, catch_up) in [
        ("skip", CatchUp::Skip),
        ("one", CatchUp::One),
        ("all", CatchUp::All),
    ] {
        put(
            &*store,
            NewSchedule {
                catch_up,
                ..schedule(name)
            },
        )
        .await;
    }
    // Four moments pass, the last of them too long ago to count as met.
    database.clock().advance_ms(INTERVAL_MS * 4 + 45_000);
    assert_eq!(fire(&*store).await, 5);
    for (name, fired) in [("skip", 0), ("one", 1), ("all", 4)] {
        assert_eq!(
            store.schedule(name).await.unwrap().unwrap().fired,
            fired,
            "{name}"
        );
    }
    database.clock().advance_ms(15_000);
    assert_eq!(fire(&*store).await, 3, "all go on in their old rhythm");
}

/// A schedule whose last job is not over does as it says.
pub async fn overlapping_jobs_are_handled(database: &dyn Database) {
    let store = database.open().await;
    for (name, overlap) in [
        ("allow", Overlap::Allow),
        ("skip", Overlap::Skip),
        ("replace", Overlap::Replace),
    ] {
        put(
            &*store,
            NewSchedule {
                overlap,
                ..schedule(name)
            },
        )
        .await;
    }
    database.clock().advance_ms(INTERVAL_MS);
    assert_eq!(fire(&*store).await, 3);
    let first = store
        .schedule("replace")
        .await
        .unwrap()
        .unwrap()
        .last_job
        .unwrap();
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 100).await.unwrap();
    database.clock().advance_ms(INTERVAL_MS);
    assert_eq!(fire(&*store).await, 2, "the one that skips leaves a moment out");
    assert_eq!(
        store.job(first).await.unwrap().unwrap().row.state,
        JobState::Cancelled
    );

    let reports = lease.slices.iter().map(completed).collect();
    exchange(&*store, worker, reports, None).await;
    database.clock().advance_ms(INTERVAL_MS);
    assert_eq!(fire(&*store).await, 3, "once its job is over it goes on");
}

/// A job that fails for good does not end its schedule.
pub async fn a_dead_job_does_not_end_its_schedule(database: &dyn Database) {
    let store = database.open().await;
    put(
        &*store,
        NewSchedule {
            overlap: Overlap::Skip,
            ..schedule("report")
        },
    )
    .await;
    let worker = worker(&*store).await;
    for round in 1..=3 {
        database.clock().advance_ms(INTERVAL_MS);
        assert_eq!(fire(&*store).await, 1, "round {round}");
        let lease = claim(&*store, worker, 1).await.unwrap();
        let slice = &lease.slices[0];
        let failed = failed_at(slice, &slice.positions, &error().permanent());
        exchange(&*store, worker, vec![failed], None).await;
    }
}

/// Schedules are paused, resumed, triggered and deleted.
pub async fn schedules_are_changed(database: &dyn Database) {
    let store = database.open().await;
    store
        .put_schedules(vec![schedule("one"), schedule("two")])
        .await
        .unwrap();
    let pause = ScheduleChange::Pause { until: None };
    assert_eq!(
        store
            .change_schedules(names(&["one", "absent"]), pause)
            .await
            .unwrap(),
        1
    );
    database.clock().advance_ms(INTERVAL_MS * 3);
    assert_eq!(fire(&*store).await, 1, "one of the two is paused");
    assert_eq!(
        store
            .change_schedules(names(&["one", "two"]), ScheduleChange::Trigger)
            .await
            .unwrap(),
        2
    );
    let row = store.schedule("one").await.unwrap().unwrap();
    assert_eq!(
        (row.fired, row.next_at, row.paused_until.is_some()),
        (1, None, true),
        "triggered, and still paused"
    );

    store
        .change_schedules(names(&["one"]), ScheduleChange::Resume)
        .await
        .unwrap();
    let row = store.schedule("one").await.unwrap().unwrap();
    assert_eq!(row.next_at, Some(database.clock().now()), "in the old rhythm");
    assert_eq!(row.paused_until, None);
    assert_eq!(fire(&*store).await, 1, "what passed during the pause is left out");

    let until = database.clock().now().plus_ms(INTERVAL_MS * 2 + 1);
    let pause = ScheduleChange::Pause { until: Some(until) };
    store.change_schedules(names(&["one"]), pause).await.unwrap();
    database.clock().advance_ms(INTERVAL_MS * 2);
    assert_eq!(fire(&*store).await, 1, "only the other one");
    database.clock().advance_ms(INTERVAL_MS);
    assert_eq!(fire(&*store).await, 2, "the pause has ended by itself");
    assert_eq!(store.schedule("one").await.unwrap().unwrap().paused_until, None);

    assert_eq!(
        store
            .change_schedules(names(&["one"]), ScheduleChange::Delete)
            .await
            .unwrap(),
        1
    );
    assert!(store.schedule("one").await.unwrap().is_none());
    database.clock().advance_ms(INTERVAL_MS);
    assert_eq!(fire(&*store).await, 1);
}

/// Wrong schedules are refused, and those beside them too.
pub async fn wrong_schedules_are_refused(database: &dyn Database) {
    let store = database.open().await;
    let cron = |expression: &str, time_zone: &str| NewSchedule {
        rule: RecurrenceRule::Cron {
            expression: expression.to_owned(),
            time_zone: time_zone.to_owned(),
        },
        ..schedule("wrong")
    };
    let mut two_payloads = schedule("wrong");
    two_payloads.payload = payloads(2);
    for wrong in [
        cron("no", "UTC"),
        cron("@daily", "Nowhere"),
        two_payloads,
        schedule(""),
    ] {
        let refused = store.put_schedules(vec![schedule("right"), wrong]).await;
        assert!(
            matches!(
                refused,
                Err(StoreError::InvalidInput(_) | StoreError::InvalidBatch(_))
            ),
            "{refused:?}"
        );
    }
    assert!(store.schedules(None, 10).await.unwrap().is_empty());
}

/// A listing goes on where the last page ended.
pub async fn schedules_are_listed_in_pages(database: &dyn Database) {
    let store = database.open().await;
    store
        .put_schedules(["c", "a", "b"].map(schedule).to_vec())
        .await
        .unwrap();
    let listed = |rows: Vec<gristmill_store::Schedule>| {
        rows.into_iter().map(|row| row.schedule.name).collect::<Vec<_>>()
    };
    assert_eq!(listed(store.schedules(None, 2).await.unwrap()), ["a", "b"]);
    assert_eq!(listed(store.schedules(Some("b"), 2).await.unwrap()), ["c"]);
    assert!(store.schedule("d").await.unwrap().is_none());
}
