use proptest::prelude::*;

use super::*;

/// Slots of the worker in these tests.
const SLOTS: usize = 4;

fn ramp_up() -> RampUp {
    RampUp::new(RampUpSettings {
        hold_start: SLOTS,
        ..RampUpSettings::default()
    })
}

/// Runs a worker with jobs of one duration, and a source that always has jobs and returns them at once. The worker asks
/// before each micro-batch, which is a quarter of its buffer.
fn run_steadily(ramp_up: &mut RampUp, job_duration: Duration, runs: usize) {
    let mut buffered = 0;
    for _ in 0..runs {
        let want = ramp_up.want(buffered, 1);
        if want > 0 {
            ramp_up.claimed(want, want);
            buffered += want;
        }
        let jobs = buffered.div_ceil(4);
        buffered -= jobs;
        ramp_up.ran(jobs, job_duration * u32::try_from(jobs).unwrap());
    }
}

#[test]
fn asks_for_a_job_a_free_slot_and_grows_while_quick_jobs_run_dry() {
    let mut ramp_up = ramp_up();
    let mut wants = Vec::new();
    for _ in 0..8 {
        let want = ramp_up.want(0, SLOTS);
        wants.push(want);
        ramp_up.claimed(want, want);
        ramp_up.ran(want, Duration::from_nanos(100) * want as u32);
        // Several idle slots notice at the same time. The claim has grown once for all of them.
        ramp_up.ran_dry();
        ramp_up.ran_dry();
    }
    assert_eq!(wants, [4, 8, 20, 68, 260, 1_028, 4_100, 10_000]);
}

#[test]
fn holds_nothing_beyond_the_free_slots_while_no_job_has_ended() {
    let mut ramp_up = ramp_up();
    for (free_slots, expected) in [(4, 4), (0, 0), (1, 1)] {
        assert_eq!(ramp_up.want(0, free_slots), expected);
        ramp_up.claimed(expected, expected);
        ramp_up.ran_dry();
    }
}

#[test]
fn does_not_grow_when_the_source_had_no_more() {
    let mut ramp_up = ramp_up();
    ramp_up.claimed(16, 15);
    ramp_up.ran(15, Duration::from_micros(15));
    ramp_up.ran_dry();
    assert_eq!(ramp_up.want(0, SLOTS), SLOTS);
}

#[test]
fn starts_anew_after_a_claim_that_found_nothing() {
    let mut ramp_up = ramp_up();
    run_steadily(&mut ramp_up, Duration::from_micros(20), 100);
    assert_eq!(ramp_up.want(0, 0), 5_000);
    ramp_up.claimed(5_000, 0);
    assert_eq!(ramp_up.want(0, 0), SLOTS);
}

#[test]
fn wants_nothing_while_more_than_half_is_there() {
    let ramp_up = ramp_up();
    let wants: Vec<_> = [0, 7, 8, 9, 16, 1_000]
        .map(|buffered| ramp_up.want(buffered, 16))
        .into();
    assert_eq!(wants, [16, 9, 8, 0, 0, 0]);
}

#[test]
fn holds_the_buffer_target_of_jobs_of_any_duration_and_nothing_of_slow_ones() {
    for (job_duration, expected) in [
        (1, 10_000),
        (50, 2_000),
        (1_000, 100),
        (30_000, 3),
        (5_000_000, 0),
    ] {
        let mut ramp_up = ramp_up();
        run_steadily(&mut ramp_up, Duration::from_micros(job_duration), 200);
        assert!(
            ramp_up.want(0, 0).abs_diff(expected) <= 1,
            "{} jobs of {job_duration} us instead of {expected}",
            ramp_up.want(0, 0)
        );
    }
}

#[test]
fn shrinks_at_once_when_jobs_turn_out_slow_and_grows_back() {
    let mut ramp_up = ramp_up();
    run_steadily(&mut ramp_up, Duration::from_micros(20), 100);
    assert_eq!(ramp_up.want(0, 0), 5_000);
    // No job has ended within 5 s, and the worker learns of it before the first one ends.
    ramp_up.ran(0, Duration::from_secs(5));
    assert_eq!(ramp_up.want(0, 1), 1);
    run_steadily(&mut ramp_up, Duration::from_micros(20), 2_000);
    assert!(ramp_up.want(0, 0) > 4_900, "{}", ramp_up.want(0, 0));
    ramp_up.stalled();
    assert_eq!(ramp_up.want(0, 1), 1);
}

#[test]
fn holds_no_more_than_the_durations_of_jobs_allow() {
    let mut ramp_up = ramp_up();
    run_steadily(&mut ramp_up, Duration::from_micros(20), 100);
    ramp_up.fits(12.3);
    assert_eq!(ramp_up.want(0, 0), 12);
}

#[test]
fn holds_more_behind_a_slow_network() {
    let mut ramp_up = ramp_up();
    (0..100).for_each(|_| ramp_up.claim_took(Duration::from_millis(150)));
    assert!(ramp_up.hold_target().abs_diff(Duration::from_millis(400)) < Duration::from_millis(1));
    run_steadily(&mut ramp_up, Duration::from_millis(1), 400);
    assert!(ramp_up.want(0, 0).abs_diff(400) <= 4, "{}", ramp_up.want(0, 0));
}

#[test]
fn given_back_jobs_do_not_count_against_the_limit() {
    let mut ramp_up = RampUp::new(RampUpSettings {
        jobs_limit: Some(20),
        ..RampUpSettings::default()
    });
    ramp_up.claimed(16, 16);
    assert_eq!(ramp_up.want(0, 16), 4);
    ramp_up.claimed(4, 4);
    assert_eq!(ramp_up.want(0, 16), 0);
    ramp_up.given_back(3);
    assert_eq!(ramp_up.want(0, 16), 3);
}

#[derive(Debug, Clone)]
enum Step {
    Claim { buffered: usize, got_percent: usize },
    Ran { jobs: usize, elapsed: Duration },
    RanDry,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_usize..20_000, 0_usize..=100).prop_map(|(buffered, got_percent)| Step::Claim {
            buffered,
            got_percent
        }),
        (0_usize..20_000, 0_u64..20_000_000_000).prop_map(|(jobs, elapsed)| Step::Ran {
            jobs,
            elapsed: Duration::from_nanos(elapsed)
        }),
        Just(Step::RanDry),
    ]
}

proptest! {
    /// For any events: it never claims or holds more than `claim_max`, never exceeds the limit, and never gets stuck.
    #[test]
    fn stays_within_its_bounds(
        hold_start in 1_usize..100,
        claim_max in 1_usize..2_000,
        jobs_limit in prop::option::of(0_u64..5_000),
        buffer_target_us in 0_u64..1_000_000,
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let buffer_target = Duration::from_micros(buffer_target_us);
        let mut ramp_up = RampUp::new(RampUpSettings { buffer_target, hold_start, claim_max, jobs_limit });
        let mut claimed = 0;
        for step in steps {
            match step {
                Step::Claim { buffered, got_percent } => {
                    let want = ramp_up.want(buffered, 1);
                    prop_assert!(want == 0 || want + buffered <= claim_max);
                    let got = want * got_percent / 100;
                    ramp_up.claimed(want, got);
                    claimed += got as u64;
                }
                Step::Ran { jobs, elapsed } => ramp_up.ran(jobs, elapsed),
                Step::RanDry => ramp_up.ran_dry(),
            }
            prop_assert!(jobs_limit.is_none_or(|limit| claimed <= limit));
            let is_left = jobs_limit.is_none_or(|limit| claimed < limit);
            prop_assert_eq!(ramp_up.want(0, 1) > 0, is_left, "an idle worker asks exactly while something is left");
        }
    }

    /// Under a steady load it settles at the buffer target, and holds no more.
    #[test]
    fn settles_at_the_buffer_target(job_us in 20_u64..200_000, buffer_target_ms in 10_u64..1_000) {
        let settings = RampUpSettings {
            buffer_target: Duration::from_millis(buffer_target_ms),
            claim_max: usize::MAX,
            ..RampUpSettings::default()
        };
        let mut ramp_up = RampUp::new(settings);
        run_steadily(&mut ramp_up, Duration::from_micros(job_us), 300);
        let expected = (buffer_target_ms * 1_000).div_ceil(job_us) as usize;
        let want = ramp_up.want(0, 0);
        prop_assert!(want.abs_diff(expected) <= 1, "{want} instead of {expected}");
    }

    /// The division of measurements makes no great difference: the rate stays within the measured rates.
    #[test]
    fn the_rate_lies_within_those_measured(
        runs in prop::collection::vec((0_usize..10_000, 1_u64..1_000_000), 1..50),
    ) {
        let mut ramp_up = RampUp::new(RampUpSettings::default());
        let (mut lowest, mut highest) = (f64::INFINITY, 0.0_f64);
        for (jobs, elapsed_us) in runs {
            let elapsed = Duration::from_micros(elapsed_us);
            ramp_up.ran(jobs, elapsed);
            let rate = jobs as f64 / elapsed.as_secs_f64();
            (lowest, highest) = (lowest.min(rate), highest.max(rate));
            let rate = ramp_up.jobs_per_second().unwrap();
            prop_assert!(rate >= lowest * 0.999 && rate <= highest * 1.001, "{lowest} <= {rate} <= {highest}");
        }
    }
}
