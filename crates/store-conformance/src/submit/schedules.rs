//! Jobs of schedules.

use std::collections::{BTreeMap, BTreeSet};

use gristmill_model::{
    BatchOptions, Clock, Hooks, JobId, JobState, KeyedBatch, OnDuplicate, PackedArray, PackedBuilder,
    RecurrenceRule, Unique,
};
use gristmill_store::{
    CatchUp, JobFilter, NewSchedule, Overlap, Schedule, ScheduleChange, Store, StoreError,
};

use crate::Database;
use crate::fixture::*;

/// The interval of the schedules in milliseconds.
const INTERVAL_MS: i64 = 60_000;

/// A schedule of the kind in these checks. Its payload is its name.
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
        key: None,
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

/// The first caller fires the due schedules in packed form. No other caller fires them again.
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
        "one kind becomes one batch"
    );
    assert_eq!(first.next_at, Some(due_at), "more schedules are due");
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

/// The jobs of a schedule have its options. Jobs with different options do not share a batch.
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
        "the due time stays"
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
        "a new rule starts anew"
    );
}

/// Jobs have the tags of their schedules, packed with others or alone.
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

/// Missed times are made up for by the rule of each schedule.
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
    // Four times pass. The last one is too long ago to count as met.
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
    assert_eq!(fire(&*store).await, 3, "all schedules keep their old rhythm");
}

/// A schedule whose last job has not ended follows its own rule.
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
    assert_eq!(fire(&*store).await, 2, "the schedule that skips misses a time");
    assert_eq!(
        store.job(first).await.unwrap().unwrap().row.state,
        JobState::Cancelled
    );

    let reports = lease.slices.iter().map(completed).collect();
    exchange(&*store, worker, reports, None).await;
    database.clock().advance_ms(INTERVAL_MS);
    assert_eq!(
        fire(&*store).await,
        3,
        "the schedule continues after the end of its job"
    );
}

/// A dead job does not end its schedule.
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
    assert_eq!(fire(&*store).await, 1, "one of the two schedules is paused");
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
        "the schedule is triggered, and still paused"
    );

    store
        .change_schedules(names(&["one"]), ScheduleChange::Resume)
        .await
        .unwrap();
    let row = store.schedule("one").await.unwrap().unwrap();
    assert_eq!(row.next_at, Some(database.clock().now()), "the old rhythm stays");
    assert_eq!(row.paused_until, None);
    assert_eq!(fire(&*store).await, 1, "times during the pause are skipped");

    let until = database.clock().now().plus_ms(INTERVAL_MS * 2 + 1);
    let pause = ScheduleChange::Pause { until: Some(until) };
    store.change_schedules(names(&["one"]), pause).await.unwrap();
    database.clock().advance_ms(INTERVAL_MS * 2);
    assert_eq!(fire(&*store).await, 1, "only the other schedule fires");
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

/// Invalid schedules are refused, together with all schedules of the same call.
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

/// A listing continues at the end of the last page.
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

/// A schedule whose jobs have the key `k`.
fn keyed(name: &str, on_duplicate: OnDuplicate) -> NewSchedule {
    NewSchedule {
        key: Some("k".to_owned()),
        options: BatchOptions {
            unique: Some(Unique {
                on_duplicate,
                ..Unique::default()
            }),
            ..BatchOptions::default()
        },
        ..schedule(name)
    }
}

async fn row(store: &dyn Store, name: &str) -> Schedule {
    store.schedule(name).await.unwrap().unwrap()
}

async fn trigger(store: &dyn Store, name: &str) -> JobId {
    let changed = store.change_schedules(names(&[name]), ScheduleChange::Trigger);
    assert_eq!(changed.await.unwrap(), 1);
    row(store, name).await.last_job.unwrap()
}

/// The key of a schedule is unique among all jobs of its kind, scheduled or not.
pub async fn jobs_of_schedules_have_keys(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let mut keys = PackedBuilder::new();
    keys.push_value("k").unwrap();
    let own = KeyedBatch::new(batch(1), keys.finish(), Unique::default());
    let first = store.submit_keyed(vec![own]).await.unwrap()[0].jobs[0];
    put(&*store, keyed("skip", OnDuplicate::Skip)).await;
    put(&*store, schedule("plain")).await;
    database.clock().advance_ms(INTERVAL_MS);
    assert_eq!(fire(&*store).await, 1, "only the schedule without a key fires");
    let skip = row(&*store, "skip").await;
    assert_eq!((skip.fired, skip.last_job), (0, Some(first)));
    assert_eq!(skip.last_at, Some(database.clock().now()));

    let lease = claim(&*store, worker, 10).await.unwrap();
    let reports = lease.slices.iter().map(completed).collect();
    exchange(&*store, worker, reports, None).await;
    database.clock().advance_ms(INTERVAL_MS);
    assert_eq!(fire(&*store).await, 2);
    let skip = row(&*store, "skip").await;
    let second = skip.last_job.unwrap();
    assert_eq!((skip.fired, second == first), (1, false));
    let details = store.job(second).await.unwrap().unwrap();
    assert_eq!(
        (details.row.state, details.key.as_deref()),
        (JobState::Waiting, Some("k"))
    );

    put(&*store, keyed("replace", OnDuplicate::Replace)).await;
    let third = trigger(&*store, "replace").await;
    assert_eq!(states(&*store, second.batch).await, [JobState::Cancelled]);
    assert_eq!(states(&*store, third.batch).await, [JobState::Waiting]);
    assert_eq!(trigger(&*store, "skip").await, third);

    // The later one of two in a batch is kept.
    put(&*store, keyed("also", OnDuplicate::Replace)).await;
    let both = store.change_schedules(names(&["also", "replace"]), ScheduleChange::Trigger);
    assert_eq!(both.await.unwrap(), 2);
    let also = row(&*store, "also").await.last_job.unwrap();
    assert_eq!(row(&*store, "replace").await.last_job, Some(also));
    assert_eq!(states(&*store, also.batch).await, [JobState::Waiting]);
    assert_eq!(states(&*store, third.batch).await, [JobState::Cancelled]);
}

/// Keys that a schedule cannot have are refused when the schedule is put, not when it is due.
pub async fn keys_of_schedules_are_checked(database: &dyn Database) {
    let store = database.open().await;
    let mut without = keyed("without", OnDuplicate::Skip);
    without.key = None;
    let mut hooked = keyed("hooked", OnDuplicate::Skip);
    hooked.options.hooks = Hooks::of(Some("done".parse().unwrap()), None);
    let mut empty = keyed("empty", OnDuplicate::Skip);
    empty.key = Some(String::new());
    let overlapping = NewSchedule {
        overlap: Overlap::Skip,
        ..keyed("overlapping", OnDuplicate::Skip)
    };
    for (wrong, says) in [
        (keyed("reject", OnDuplicate::Reject), "`reject`"),
        (without, "no key"),
        (hooked, "hook"),
        (empty, "key"),
        (overlapping, "`overlap`"),
    ] {
        let refused = store.put_schedules(vec![wrong]).await.unwrap_err().to_string();
        assert!(refused.contains(says), "{refused} does not mention {says}");
    }
    assert!(store.schedules(None, 10).await.unwrap().is_empty());
    // A key without rules has the default rules.
    let mut plain = keyed("plain", OnDuplicate::Skip);
    plain.options.unique = None;
    put(&*store, plain).await;
    let first = trigger(&*store, "plain").await;
    assert_eq!(trigger(&*store, "plain").await, first);
}

/// The jobs of a schedule get the cached values of their payload, and their hooks learn of it.
pub async fn jobs_of_schedules_have_cached_values(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let cached = NewSchedule {
        options: BatchOptions {
            cached_ms: Some(3_600_000),
            hooks: Hooks::of(Some("done".parse().unwrap()), None),
            ..BatchOptions::default()
        },
        ..schedule("cached")
    };
    put(&*store, cached).await;
    let first = trigger(&*store, "cached").await;
    let lease = claim(&*store, worker, 10).await.unwrap();
    exchange(&*store, worker, vec![completed(&lease.slices[0])], None).await;
    let second = trigger(&*store, "cached").await;
    assert!(second != first);
    let [first, second] = [store.job(first).await, store.job(second).await].map(|job| job.unwrap().unwrap());
    assert_eq!(second.row.state, JobState::Completed);
    assert_eq!(
        second.value.map(|value| value.get().to_owned()),
        first.value.map(|value| value.get().to_owned())
    );
    let hooks = JobFilter {
        kind: Some("done".to_owned()),
        ..JobFilter::default()
    };
    assert_eq!(store.counts(&hooks).await.unwrap().total(), 2);
}
