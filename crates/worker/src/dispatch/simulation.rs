//! A simulation of workers and runners over a source in virtual time. Random workloads are compared with the greedy bound.

mod model;

use std::time::Duration;

use gristmill_model::{Rng, SplitMix64};
use model::{JobModel, Outcome, Simulation, Workload};

/// The number of workloads without `SIMULATION_WORKLOADS`.
const WORKLOADS: u64 = 300;

/// The longest idle time of a slot while its worker holds a job that has not begun.
const IDLE_MAX: Duration = Duration::from_millis(20);

fn milliseconds(count: f64) -> Duration {
    Duration::from_secs_f64(count / 1e3)
}

/// The end of the last job if each job goes, in order, to the slot that is free first.
fn greedy_bound(jobs: &[JobModel], slots: usize) -> Duration {
    let mut free_at = std::collections::BinaryHeap::from(vec![std::cmp::Reverse(Duration::ZERO); slots]);
    let mut end = Duration::ZERO;
    for job in jobs {
        let std::cmp::Reverse(at) = free_at.pop().unwrap();
        let ends_at = at + job.takes();
        end = end.max(ends_at);
        free_at.push(std::cmp::Reverse(ends_at));
    }
    end
}

fn uniform(rng: &mut SplitMix64, from: f64, to: f64) -> f64 {
    from + (to - from) * (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn below(rng: &mut SplitMix64, count: u64) -> u64 {
    rng.next_u64() % count
}

/// A normal variable: the sum of twelve uniform ones.
fn normal(rng: &mut SplitMix64) -> f64 {
    (0..12).map(|_| uniform(rng, 0.0, 1.0)).sum::<f64>() - 6.0
}

/// A duration from the workload's family, in milliseconds, between 1 µs and 10 s.
fn duration_ms(rng: &mut SplitMix64, family: u64, scale_ms: f64) -> f64 {
    let drawn = match family {
        0 => scale_ms,
        1 => uniform(rng, 0.0, 2.0 * scale_ms),
        2 => scale_ms * (1.8 * normal(rng)).exp(),
        // Most jobs are quick, and a few are very slow.
        3 if below(rng, 100) == 0 => scale_ms * uniform(rng, 100.0, 1_000.0),
        3 => scale_ms,
        // Quick jobs come first, then slow ones.
        _ => scale_ms * if below(rng, 2) == 0 { 0.01 } else { 1.0 },
    };
    drawn.clamp(0.001, 10_000.0)
}

fn workload(seed: u64) -> Workload {
    let mut rng = SplitMix64::new(seed);
    let family = below(&mut rng, 5);
    let scale_ms = 10f64.powf(uniform(&mut rng, -3.0, 3.3));
    let concurrency = [1, 1, 1, 4, 32][below(&mut rng, 5) as usize];
    let workers = if below(&mut rng, 5) == 0 { 2 } else { 1 };
    let runners = 1 + below(&mut rng, 12) as usize;
    let magnitude = 2 + below(&mut rng, 3) as u32;
    let count = 1 + below(&mut rng, 10u64.pow(magnitude)) as usize;
    let timeout = (below(&mut rng, 4) == 0).then(|| milliseconds(scale_ms * 20.0 + 5.0));
    let crashes = below(&mut rng, 4) == 0;
    let mut jobs: Vec<JobModel> = (0..count)
        .map(|_| JobModel {
            duration: milliseconds(duration_ms(&mut rng, family, scale_ms)),
            timeout,
            crashes: crashes && below(&mut rng, 50) == 0,
        })
        .collect();
    if family == 4 {
        jobs.sort_by_key(|job| job.duration);
    }
    let bound = greedy_bound(&jobs, runners * workers * concurrency as usize);
    Workload {
        seed,
        drain_after: (below(&mut rng, 10) == 0).then(|| bound.mul_f64(uniform(&mut rng, 0.0, 1.0))),
        claim_takes: milliseconds(uniform(&mut rng, 0.3, 6.0)),
        answer_takes: milliseconds(uniform(&mut rng, 0.02, 2.0)),
        recall_takes: milliseconds(uniform(&mut rng, 0.1, 4.0)),
        start_takes: milliseconds([0.0, 0.0, 20.0][below(&mut rng, 3) as usize]),
        start_failures: [0, 0, 0, 1, 5][below(&mut rng, 5) as usize],
        jobs,
        workers,
        runners,
        concurrency,
    }
}

fn describe(workload: &Workload) -> String {
    let Workload {
        seed,
        jobs,
        workers,
        runners,
        concurrency,
        start_takes,
        start_failures,
        ..
    } = workload;
    let longest = jobs.iter().map(JobModel::takes).max().unwrap_or_default();
    let crashes = jobs.iter().filter(|job| job.crashes).count();
    format!(
        "{seed} ({} jobs of {longest:?} at most, {crashes} that crash, {workers} workers of {runners} runners of \
         {concurrency} slots that start in {start_takes:?}, {start_failures} of 10 starts in vain)",
        jobs.len()
    )
}

fn check(workload: &Workload) {
    let slots = workload.workers * workload.runners * workload.concurrency as usize;
    let bound = greedy_bound(&workload.jobs, slots);
    let Outcome {
        makespan,
        lost,
        idle_longest,
        crashes,
        out,
    } = Simulation::run(workload);
    let seed = describe(workload);
    assert!(
        idle_longest <= IDLE_MAX,
        "seed {seed}: a slot was idle for {idle_longest:?}"
    );
    if workload.drain_after.is_some() {
        return;
    }
    // No worker knows the jobs of the others. A worker gives back jobs that it cannot begin soon only after a while.
    let (factor, more) = match workload.workers {
        1 => (1.05, 50.0),
        _ => (1.1, 250.0),
    };
    // A replaced process starts again, its worker learns of it later, and the runs that the crash ended are lost.
    let restarts = (workload.start_takes + workload.answer_takes) * crashes;
    // With failing starts, all jobs may have waited for the runner that was out the longest.
    let allowed = bound.mul_f64(factor)
        + milliseconds(more)
        + workload.start_takes
        + restarts
        + lost
        + out.mul_f64(factor);
    assert!(
        makespan <= allowed,
        "seed {seed}: the jobs took {makespan:?}; the greedy bound is {bound:?}, and {allowed:?} are allowed"
    );
}

#[test]
fn random_workloads_keep_every_slot_busy() {
    let workloads = std::env::var("SIMULATION_WORKLOADS").ok();
    let workloads = workloads
        .and_then(|count| count.parse().ok())
        .unwrap_or(WORKLOADS);
    let from: u64 = std::env::var("SIMULATION_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let mut failed = 0;
    for seed in from..from + workloads {
        let tried = std::panic::catch_unwind(|| check(&workload(seed)));
        failed += u64::from(tried.is_err());
    }
    println!("dispatch: tried {workloads} workloads, {failed} failed (seeds from {from})");
    assert_eq!(failed, 0);
}

fn exactly(durations_ms: Vec<f64>, runners: usize, concurrency: u32, workers: usize) -> Workload {
    let job = |duration_ms| JobModel {
        duration: milliseconds(duration_ms),
        timeout: None,
        crashes: false,
    };
    Workload {
        seed: 0,
        jobs: durations_ms.into_iter().map(job).collect(),
        workers,
        runners,
        concurrency,
        drain_after: None,
        claim_takes: milliseconds(1.0),
        answer_takes: milliseconds(1.0),
        recall_takes: milliseconds(3.0),
        start_takes: Duration::ZERO,
        start_failures: 0,
    }
}

#[test]
fn slow_jobs_run_in_parallel_wherever_they_stand() {
    let among_quick = |slow: &[(usize, f64)], count: usize| {
        let mut durations = vec![0.002; count];
        slow.iter().for_each(|(at, duration)| durations[*at] = *duration);
        durations
    };
    let four = [(100, 2_000.0), (101, 2_000.0), (102, 2_000.0), (103, 2_000.0)];
    for workload in [
        exactly(vec![1_000.0; 4], 4, 1, 1),
        exactly(vec![100.0; 32], 8, 1, 1),
        exactly(vec![20.0; 1_600], 16, 1, 1),
        exactly(among_quick(&four, 3_000), 2, 1, 1),
        exactly(among_quick(&[(1_000, 4_000.0)], 4_000), 2, 1, 1),
        exactly(vec![250.0; 200], 1, 32, 1),
        exactly(vec![1_000.0; 40], 4, 1, 2),
    ] {
        check(&workload);
    }
}
