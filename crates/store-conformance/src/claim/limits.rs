//! Pauses, limits, shares and aging.

use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_batching::BatchStats;
use gristmill_model::{
    BatchId, Clock, Control, Effect, Lease, LeasedSlice, NewBatch, Rng, Scope, SplitMix64, Timestamp,
    WorkerId,
};
use gristmill_store::{Change, ControlFilter, JobFilter, Store, StoreError, Want, WorkSeen};

use crate::Database;
use crate::fixture::*;

/// A batch of a group.
fn of(group: &str, count: u32) -> NewBatch {
    let mut new = batch(count);
    new.options.group = (!group.is_empty()).then(|| group.to_owned());
    new
}

fn on_queue(queue: &str) -> Scope {
    Scope {
        queue: Some(queue.to_owned()),
        ..Scope::default()
    }
}

fn of_kind(kind: &str) -> Scope {
    Scope {
        kind: Some(kind.to_owned()),
        ..Scope::default()
    }
}

fn of_group(group: &str) -> Scope {
    Scope {
        group: Some(group.to_owned()),
        ..Scope::default()
    }
}

/// The scope of each group of a kind.
fn of_each_group(kind: &str) -> Scope {
    Scope {
        each_group: true,
        ..of_kind(kind)
    }
}

fn pause(scope: Scope, reason: &str, until: Option<Timestamp>) -> Control {
    let effect = Effect::Pause {
        reason: reason.to_owned(),
        until,
    };
    Control { scope, effect }
}

fn limit(scope: Scope, jobs_max: u32) -> Control {
    let effect = Effect::Concurrency { jobs_max };
    Control { scope, effect }
}

fn rate(scope: Scope, jobs: u32, period_ms: u64, burst: u32) -> Control {
    let effect = Effect::Rate {
        jobs,
        period_ms,
        burst,
    };
    Control { scope, effect }
}

fn share(scope: Scope, weight: u32, jobs_min: u32) -> Control {
    let effect = Effect::Share { weight, jobs_min };
    Control { scope, effect }
}

async fn put(store: &dyn Store, controls: &[Control]) {
    store.put_controls(controls.to_vec()).await.unwrap();
}

async fn lift(store: &dyn Store, effect: &'static str) -> u64 {
    let filter = ControlFilter {
        effects: vec![effect],
        ..ControlFilter::default()
    };
    store.delete_controls(filter).await.unwrap()
}

async fn resume(store: &dyn Store, reason: &str) -> u64 {
    let filter = ControlFilter {
        reason: Some(reason.to_owned()),
        ..ControlFilter::default()
    };
    store.delete_controls(filter).await.unwrap()
}

/// The number of jobs in a lease, by batch.
fn jobs(lease: &Option<Lease>) -> BTreeMap<BatchId, u32> {
    let mut jobs = BTreeMap::new();
    for slice in lease.iter().flat_map(|lease| &lease.slices) {
        *jobs.entry(slice.batch).or_default() += slice.len();
    }
    jobs
}

fn total(lease: &Option<Lease>) -> u32 {
    lease.as_ref().map_or(0, Lease::jobs)
}

/// Reports all jobs of a lease as completed.
async fn finish(store: &dyn Store, worker: WorkerId, lease: &Option<Lease>) {
    let slices = lease.iter().flat_map(|lease| &lease.slices);
    exchange(store, worker, slices.map(completed).collect(), None).await;
}

/// A lane with a limit is claimed in order, even with many small batches before or after large ones.
pub async fn small_batches_of_a_limited_lane_keep_their_order(database: &dyn Database) {
    let store = database.open().await;
    put(&*store, &[limit(of_group("acme"), 10_000)]).await;
    let worker = worker(&*store).await;
    submit(&*store, of("acme", 1_000)).await;
    assert_eq!(total(&claim(&*store, worker, 1_000).await), 1_000);
    let (mut later, mut of_no_group) = (of("acme", 10), of("", 10));
    later.options.priority -= 1;
    of_no_group.options.priority -= 1;
    let first = (0..12).map(|_| of("acme", 1));
    let ids = store
        .submit([later, of_no_group].into_iter().chain(first).collect(), None)
        .await
        .unwrap();
    let lease = claim(&*store, worker, 11).await;
    assert_eq!(jobs(&lease), ids[2..13].iter().map(|id| (*id, 1)).collect());
    let lease = claim(&*store, worker, 5).await;
    assert_eq!(jobs(&lease), [(ids[13], 1), (ids[0], 4)].into());
}

/// Paused jobs keep their place until their last pause ends. All other jobs run.
pub async fn paused_lanes_wait(database: &dyn Database) {
    let store = database.open().await;
    let now = database.clock().now();
    let mut other = batch_of("other", 1);
    other.queue = "slow".to_owned();
    let ids = store
        .submit(vec![of("acme", 2), of("", 2), other], None)
        .await
        .unwrap();
    let everywhere = || Want {
        queues: vec![Arc::from("default"), Arc::from("slow")],
        ..want(10)
    };
    // Another process does it.
    let second = database.open().await;
    let worker = worker(&*store).await;
    for (scope, left) in [
        (of_group("acme"), vec![(ids[1], 2), (ids[2], 1)]),
        (on_queue("slow"), vec![(ids[0], 2), (ids[1], 2)]),
        (of_kind(KIND), vec![(ids[2], 1)]),
        (Scope::default(), vec![]),
    ] {
        put(&*second, &[pause(scope.clone(), "deploy", None)]).await;
        put(&*second, &[pause(scope.clone(), "deploy", None)]).await;
        let claimed = exchange(&*store, worker, Vec::new(), Some(everywhere())).await;
        assert_eq!(
            jobs(&claimed.lease),
            left.into_iter().collect::<BTreeMap<_, _>>(),
            "{scope:?}"
        );
        assert_eq!(claimed.next_run_at, None);
        assert!(!claimed.limited);
        let back: Vec<_> = claimed.lease.iter().flat_map(|lease| &lease.slices).collect();
        let back = back.iter().map(|slice| released_at(slice, &slice.positions));
        exchange(&*store, worker, back.collect(), None).await;
        assert_eq!(resume(&*second, "deploy").await, 1);
    }
    // Pauses with different reasons add up. A pause with an end shows it.
    let until = now.plus_ms(5_000);
    let scopes = [
        pause(of_kind(KIND), "a", None),
        pause(on_queue("default"), "b", Some(until)),
    ];
    put(&*store, &scopes).await;
    assert_eq!(store.controls().await.unwrap(), scopes);
    let wanted = || Some(want(10));
    assert_eq!(
        exchange(&*store, worker, Vec::new(), wanted()).await.next_run_at,
        None
    );
    assert_eq!(resume(&*second, "a").await, 1);
    assert_eq!(resume(&*second, "a").await, 0);
    let claimed = exchange(&*store, worker, Vec::new(), wanted()).await;
    assert_eq!((total(&claimed.lease), claimed.next_run_at), (0, Some(until)));
    database.clock().advance_ms(5_000);
    assert_eq!(store.controls().await.unwrap(), []);
    let lease = claim(&*store, worker, 10).await;
    assert_eq!(total(&lease), 4);
}

/// No more jobs run than a limit allows, whoever claims them and however they end.
pub async fn limits_hold_across_handles(database: &dyn Database) {
    let (store, second) = (database.open().await, database.open().await);
    let id = submit(&*store, batch(10)).await;
    put(&*store, &[limit(of_kind(KIND), 3)]).await;
    let (here, there) = (worker(&*store).await, worker(&*second).await);
    let first = claim(&*second, there, 2).await;
    assert_eq!(held(&first), [format!("{id}:0-1")]);
    let claimed = exchange(&*store, here, Vec::new(), Some(want(10))).await;
    assert_eq!(held(&claimed.lease), [format!("{id}:2")]);
    assert!(claimed.limited && claimed.next_run_at.is_none());
    let full = exchange(&*second, there, Vec::new(), Some(want(10))).await;
    assert!(full.lease.is_none() && full.limited);
    // One job completes, one fails and is tried again, and one is given back.
    let slice = &first.as_ref().unwrap().slices[0];
    let reports = vec![
        completed_at(slice, &positions("0")),
        failed_at(slice, &positions("1"), &error()),
    ];
    let claimed = exchange(&*second, there, reports, Some(want(10))).await;
    assert_eq!(total(&claimed.lease), 2);
    assert_eq!(total(&claim(&*store, here, 10).await), 0);
    let slice = &claimed.lease.as_ref().unwrap().slices[0];
    let back = vec![released_at(slice, &slice.positions)];
    assert_eq!(
        total(&exchange(&*store, here, Vec::new(), Some(want(10))).await.lease),
        0
    );
    let claimed = exchange(&*second, there, back, Some(want(1))).await;
    assert_eq!(total(&claimed.lease), 1);
    assert_eq!(total(&claim(&*store, here, 10).await), 1);
    // A cancelled job frees its slot. So does a worker that leaves or stays silent for too long.
    let slice = &claimed.lease.as_ref().unwrap().slices[0];
    let one = job(id, slice.positions.first().unwrap());
    change(&*store, one, Change::Cancel).await;
    assert_eq!(total(&claim(&*store, here, 10).await), 1);
    store.leave(here, BatchStats::default()).await.unwrap();
    let lease = claim(&*second, there, 10).await;
    assert_eq!(total(&lease), 3);
    store.rescue(Timestamp(0), vec![there]).await.unwrap();
    let here = worker(&*store).await;
    // A changed limit holds from the next claim. Running jobs continue.
    put(&*second, &[limit(of_kind(KIND), 1)]).await;
    let lease = claim(&*store, here, 10).await;
    assert_eq!(total(&lease), 1);
    put(&*second, &[limit(of_kind(KIND), 4)]).await;
    assert_eq!(total(&claim(&*store, here, 10).await), 3);
    put(&*second, &[limit(of_kind(KIND), 2)]).await;
    finish(&*store, here, &lease).await;
    assert_eq!(total(&claim(&*store, here, 10).await), 0);
    assert_eq!(lift(&*second, "concurrency").await, 1);
    assert!(total(&claim(&*store, here, 10).await) > 0);
}

/// A full group delays no other group, however early and urgent its jobs are.
pub async fn a_full_group_blocks_nobody(database: &dyn Database) {
    let store = database.open().await;
    let mut urgent = of("acme", 1_000);
    urgent.options.priority = 9;
    let (acme, other) = (
        submit(&*store, urgent).await,
        submit(&*store, of("other", 3)).await,
    );
    let none = submit(&*store, of("", 4)).await;
    put(&*store, &[limit(of_each_group(KIND), 2)]).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 100).await;
    let expected = BTreeMap::from([(acme, 2), (other, 2), (none, 4)]);
    assert_eq!(jobs(&lease), expected);
    assert_eq!(total(&claim(&*store, worker, 100).await), 0);
    // A limit of the whole queue also holds for its groups.
    put(&*store, &[limit(on_queue("default"), 9)]).await;
    let third = submit(&*store, of("third", 5)).await;
    assert_eq!(
        jobs(&claim(&*store, worker, 100).await),
        BTreeMap::from([(third, 1)])
    );
    finish(&*store, worker, &lease).await;
    let lease = claim(&*store, worker, 100).await;
    assert_eq!(jobs(&lease), BTreeMap::from([(acme, 2), (other, 1), (third, 1)]));
}

/// A freed slot wakes a worker that waits for it.
pub async fn freed_slots_wake_waiting_workers(database: &dyn Database) {
    let store = database.open().await;
    submit(&*store, batch(2)).await;
    put(&*store, &[limit(of_kind(KIND), 1)]).await;
    let (first, second) = (worker(&*store).await, worker(&*store).await);
    let lease = claim(&*store, first, 10).await;
    assert_eq!(total(&lease), 1);
    let seen = WorkSeen::default();
    // This call takes note of the earlier news.
    store.wait_for_work(&seen).await;
    assert_eq!(total(&claim(&*store, second, 10).await), 0);
    finish(&*store, first, &lease).await;
    store.wait_for_work(&seen).await;
    assert_eq!(total(&claim(&*store, second, 10).await), 1);
}

/// A bucket gives its burst at once, then one token after the other, and names the time of the next.
pub async fn rates_are_kept(database: &dyn Database) {
    let (store, second) = (database.open().await, database.open().await);
    let id = submit(&*store, batch(1_000)).await;
    put(&*store, &[rate(of_kind(KIND), 200, 1_000, 10)]).await;
    let (here, there) = (worker(&*store).await, worker(&*second).await);
    let lease = claim(&*store, here, 4).await;
    assert_eq!(held(&lease), [format!("{id}:0-3")]);
    let claimed = exchange(&*second, there, Vec::new(), Some(want(100))).await;
    assert_eq!(held(&claimed.lease), [format!("{id}:4-9")]);
    let now = database.clock().now();
    // Five tokens take 25 ms. A worker is not woken for each of them.
    assert_eq!(claimed.next_run_at, Some(now.plus_ms(25)));
    finish(&*store, here, &lease).await;
    let dry = exchange(&*store, here, Vec::new(), Some(want(100))).await;
    assert_eq!((total(&dry.lease), dry.next_run_at), (0, Some(now.plus_ms(25))));
    assert!(!dry.limited);
    let mut taken = 0;
    for step in 0..200 {
        database.clock().advance_ms(5 * (step % 4));
        let (store, worker) = if step % 2 == 0 {
            (&*store, here)
        } else {
            (&*second, there)
        };
        taken += total(&claim(store, worker, 100).await);
    }
    // The 200 steps take 1,500 ms.
    assert_eq!(taken, 300);
    // Without jobs, nobody is woken for tokens.
    change(
        &*store,
        JobFilter {
            states: vec![gristmill_model::JobState::Waiting],
            ..JobFilter::default()
        },
        Change::Cancel,
    )
    .await;
    let dry = exchange(&*store, here, Vec::new(), Some(want(100))).await;
    assert_eq!(dry.next_run_at, None);
}

/// Each group of a kind has its own bucket.
pub async fn each_group_has_its_rate(database: &dyn Database) {
    let store = database.open().await;
    let mut ids = Vec::new();
    for group in ["a", "b", ""] {
        ids.push(submit(&*store, of(group, 10)).await);
    }
    put(&*store, &[rate(of_each_group(KIND), 1, 1_000, 2)]).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 100).await;
    assert_eq!(
        jobs(&lease),
        BTreeMap::from([(ids[0], 2), (ids[1], 2), (ids[2], 10)])
    );
    database.clock().advance_ms(1_000);
    let lease = claim(&*store, worker, 1).await;
    assert_eq!(jobs(&lease), BTreeMap::from([(ids[0], 1)]));
    let lease = claim(&*store, worker, 10).await;
    assert_eq!(jobs(&lease), BTreeMap::from([(ids[1], 1)]));
}

/// A claim is divided by weight. A group with few jobs leaves its share to the others.
pub async fn claims_are_shared_by_weight(database: &dyn Database) {
    let store = database.open().await;
    let mut ids = Vec::new();
    for (group, count) in [("a", 1_000), ("b", 1_000), ("c", 5)] {
        ids.push(submit(&*store, of(group, count)).await);
    }
    put(&*store, &[share(of_group("b"), 3, 0)]).await;
    let worker = worker(&*store).await;
    let first = claim(&*store, worker, 85).await;
    assert_eq!(
        jobs(&first),
        BTreeMap::from([(ids[0], 20), (ids[1], 60), (ids[2], 5)])
    );
    // Running jobs count: a group that got too many before waits.
    lift(&*store, "share").await;
    put(&*store, &[share(of_group("a"), 1, 0)]).await;
    let lease = claim(&*store, worker, 50).await;
    assert_eq!(jobs(&lease), BTreeMap::from([(ids[0], 45), (ids[1], 5)]));
    finish(&*store, worker, &first).await;
    finish(&*store, worker, &lease).await;
    // A worker that takes one job at a time serves the groups in turn.
    let mut turns = BTreeMap::new();
    for _ in 0..20 {
        let lease = claim(&*store, worker, 1).await;
        *turns.entry(*jobs(&lease).keys().next().unwrap()).or_insert(0) += 1;
        finish(&*store, worker, &lease).await;
    }
    assert_eq!(turns, BTreeMap::from([(ids[0], 10), (ids[1], 10)]));
    // A group that runs fewer jobs than its minimum comes first.
    put(&*store, &[share(of_group("b"), 1, 30)]).await;
    let lease = claim(&*store, worker, 20).await;
    assert_eq!(jobs(&lease), BTreeMap::from([(ids[1], 20)]));
    let lease = claim(&*store, worker, 20).await;
    assert_eq!(jobs(&lease), BTreeMap::from([(ids[0], 10), (ids[1], 10)]));
}

/// Queues share like groups.
pub async fn queues_share_by_weight(database: &dyn Database) {
    let store = database.open().await;
    let mut ids = Vec::new();
    for queue in ["p", "q"] {
        let mut new = batch(100);
        new.queue = queue.to_owned();
        ids.push(submit(&*store, new).await);
    }
    put(&*store, &[share(on_queue("q"), 4, 0)]).await;
    let worker = worker(&*store).await;
    let both = Want {
        queues: vec![Arc::from("p"), Arc::from("q")],
        ..want(50)
    };
    let claimed = exchange(&*store, worker, Vec::new(), Some(both)).await;
    assert_eq!(jobs(&claimed.lease), BTreeMap::from([(ids[0], 10), (ids[1], 40)]));
}

/// Jobs that waited for a long time come before more urgent ones. Without a control, aging is off.
pub async fn old_jobs_age(database: &dyn Database) {
    let store = database.open().await;
    let with = |priority: i16| {
        let mut new = batch(1);
        new.options.priority = priority;
        new
    };
    let old = submit(&*store, with(0)).await;
    database.clock().advance_ms(10_000);
    let middle = submit(&*store, with(3)).await;
    database.clock().advance_ms(3_000);
    let new = submit(&*store, with(5)).await;
    let worker = worker(&*store).await;
    let effect = |grace_ms| Effect::Aging {
        grace_ms,
        step_ms: 1_000,
    };
    let aging = |grace_ms| Control {
        scope: Scope::default(),
        effect: effect(grace_ms),
    };
    let mut orders = Vec::new();
    for controls in [vec![], vec![aging(0)], vec![aging(9_000)], vec![aging(60_000)]] {
        put(&*store, &controls).await;
        let lease = claim(&*store, worker, 3).await;
        let slices: Vec<LeasedSlice> = lease.iter().flat_map(|lease| lease.slices.clone()).collect();
        orders.push(slices.iter().map(|slice| slice.batch).collect::<Vec<_>>());
        let back = slices.iter().map(|slice| released_at(slice, &slice.positions));
        exchange(&*store, worker, back.collect(), None).await;
    }
    // After 13 s with one point per second, 13 comes before 3 + 3 and 5. With a grace of 9 s, 4 comes before 3 and behind 5.
    assert_eq!(orders[0], [new, middle, old]);
    assert_eq!(orders[1], [old, middle, new]);
    assert_eq!(orders[2], [new, old, middle]);
    assert_eq!(orders[3], [new, middle, old]);
}

/// Invalid controls are refused, together with all controls of the same call.
pub async fn wrong_controls_are_refused(database: &dyn Database) {
    let store = database.open().await;
    let right = limit(of_kind(KIND), 1);
    for wrong in [
        rate(of_kind(KIND), 0, 1_000, 1),
        share(of_kind(KIND), 1, 0),
        pause(of_kind(""), "x", None),
        pause(of_each_group(KIND), "x", None),
    ] {
        let error = store.put_controls(vec![right.clone(), wrong]).await.unwrap_err();
        assert!(matches!(error, StoreError::InvalidInput(_)), "{error}");
    }
    assert_eq!(store.controls().await.unwrap(), []);
    let controls = [
        right,
        pause(of_group("ö\"\\"), "b/c", None),
        rate(of_kind(KIND), 5, 60_000, 2),
    ];
    put(&*store, &controls).await;
    assert_eq!(store.controls().await.unwrap(), controls);
    let filter = ControlFilter {
        scope: Some(of_kind(KIND)),
        ..ControlFilter::default()
    };
    assert_eq!(store.delete_controls(filter).await.unwrap(), 2);
    assert_eq!(store.controls().await.unwrap(), controls[1..2]);
    assert_eq!(store.delete_controls(ControlFilter::default()).await.unwrap(), 1);
}

/// A report that is refused in part frees the slots of its other jobs for the claim of the same exchange.
pub async fn a_report_refused_in_part_frees_slots(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, batch(5)).await;
    put(&*store, &[limit(of_kind(KIND), 3)]).await;
    let worker = worker(&*store).await;
    let slice = only(claim(&*store, worker, 3).await);
    let first = change(&*store, job(id, 0), Change::Cancel).await;
    assert_eq!(first.changed, 1);
    let answer = exchange(&*store, worker, vec![completed(&slice)], Some(want(2))).await;
    assert_eq!(answer.receipts[0].refused.to_string(), "0");
    assert_eq!(held(&answer.lease), [format!("{id}:3-4")]);
}

/// A claim from many groups takes each group's share, and finds the groups with jobs.
pub async fn many_groups_are_served(database: &dyn Database) {
    let store = database.open().await;
    let mut news = Vec::new();
    for group in 0..150 {
        news.push(of(&format!("group {group}"), 3));
    }
    let ids = store.submit(news, None).await.unwrap();
    let worker = worker(&*store).await;
    put(&*store, &[limit(of_each_group(KIND), 1)]).await;
    let lease = claim(&*store, worker, 1_000).await;
    assert_eq!(jobs(&lease), ids.iter().map(|id| (*id, 1)).collect());
    assert_eq!(total(&claim(&*store, worker, 1_000).await), 0);
    lift(&*store, "concurrency").await;
    assert_eq!(total(&claim(&*store, worker, 1_000).await), 300);
}

/// Whatever happens, no group runs more jobs than its limit, and no slot stays free while the group's jobs wait.
pub async fn limits_hold_under_random_operations(database: &dyn Database) {
    const GROUPS: [(&str, u32); 3] = [("a", 1), ("b", 4), ("c", 9)];
    const JOBS: u32 = 60;
    let stores = [database.open().await, database.open().await];
    let mut group_of = BTreeMap::new();
    for (group, limit_jobs) in GROUPS {
        let mut new = of(group, JOBS);
        new.options.retry.attempts_max = 2;
        new.options.retry.delay_ms = 0;
        group_of.insert(submit(&*stores[0], new).await, group);
        put(&*stores[0], &[limit(of_group(group), limit_jobs)]).await;
    }
    let mut rng = SplitMix64::new(7);
    let mut workers = [worker(&*stores[0]).await, worker(&*stores[1]).await];
    let mut leased: [Vec<LeasedSlice>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..300 {
        let at = (rng.next_u64() % 2) as usize;
        let store = &*stores[at];
        let mut reports = Vec::new();
        match rng.next_u64() % 8 {
            0 => {
                store.leave(workers[at], BatchStats::default()).await.unwrap();
                workers[at] = worker(store).await;
                leased[at].clear();
            }
            1 => {
                store.rescue(Timestamp(0), vec![workers[at]]).await.unwrap();
                workers[at] = worker(store).await;
                leased[at].clear();
            }
            number => {
                if !leased[at].is_empty() {
                    let slice = leased[at].swap_remove(rng.next_u64() as usize % leased[at].len());
                    reports.push(match number {
                        2 => failed_at(&slice, &slice.positions, &error()),
                        3 => released_at(&slice, &slice.positions),
                        _ => completed(&slice),
                    });
                }
            }
        }
        let jobs_max = 1 + (rng.next_u64() % 20) as u32;
        let exchanged = exchange(store, workers[at], reports, Some(want(jobs_max))).await;
        let got = total(&exchanged.lease);
        leased[at].extend(exchanged.lease.into_iter().flat_map(|lease| lease.slices));
        let mut running: BTreeMap<&str, u32> = BTreeMap::new();
        for slice in leased.iter().flatten() {
            *running.entry(group_of[&slice.batch]).or_default() += slice.len();
        }
        for (group, limit_jobs) in GROUPS {
            let runs = running.get(group).copied().unwrap_or(0);
            assert!(runs <= limit_jobs, "{runs} jobs of {group} run");
            let waiting = JobFilter {
                group: Some(group.to_owned()),
                states: vec![gristmill_model::JobState::Waiting],
                ..JobFilter::default()
            };
            let waits = store.counts(&waiting).await.unwrap().waiting > 0;
            assert!(
                got == jobs_max || runs == limit_jobs || !waits,
                "{group} runs {runs} jobs while others wait"
            );
        }
    }
}

/// A limit does not add a query for each group or job. The number of a claim's statements grows with the jobs that it
/// takes. A claim that finds every group full, or all tokens spent, sends as few statements as for one group.
pub async fn limits_cost_few_statements(database: &dyn Database) {
    const GROUPS: u32 = 200;
    const STATEMENTS_MAX: u64 = 20;
    const STATEMENTS_A_SLICE_MAX: u64 = 6;
    database.count_statements();
    let store = database.open().await;
    let news = (0..GROUPS).map(|group| of(&format!("group {group}"), 50));
    store.submit(news.collect(), None).await.unwrap();
    let worker = worker(&*store).await;
    let cost = async || {
        let before = database.statements();
        let claimed = exchange(&*store, worker, Vec::new(), Some(want(1_000))).await;
        (total(&claimed.lease), claimed, database.statements() - before)
    };
    for control in [
        limit(of_each_group(KIND), 1),
        rate(of_each_group(KIND), 1, 3_600_000, 1),
        limit(of_kind(KIND), 2 * GROUPS),
        pause(of_kind(KIND), "deploy", None),
    ] {
        put(&*store, std::slice::from_ref(&control)).await;
        // The first two controls allow one job in each group.
        let (taken, _, statements) = cost().await;
        let expected = match control.effect {
            Effect::Rate { .. } | Effect::Concurrency { jobs_max: 1 } => GROUPS,
            _ => 0,
        };
        assert_eq!(taken, expected, "{control:?}");
        let most = STATEMENTS_MAX + u64::from(taken) * STATEMENTS_A_SLICE_MAX;
        assert!(
            statements > 0 && statements <= most,
            "{statements} statements for {control:?}"
        );
        let (taken, claimed, statements) = cost().await;
        assert_eq!(taken, 0, "{control:?}");
        assert!(
            statements > 0 && statements <= STATEMENTS_MAX,
            "{statements} statements for an empty claim with {control:?}"
        );
        let is_rate = matches!(control.effect, Effect::Rate { .. });
        assert_eq!(claimed.next_run_at.is_some(), is_rate, "{control:?}");
        if matches!(control.effect, Effect::Concurrency { jobs_max: 1 }) {
            assert!(claimed.limited);
            assert_eq!(lift(&*store, "concurrency").await, 1);
        }
    }
}
