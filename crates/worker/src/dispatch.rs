//! Which runner gets which jobs, as a state machine without clock or I/O.
//!
//! Three things are apart. The *transport* is the micro-batch: jobs that travel to a runner together. The *window* is what
//! a runner holds beyond the jobs that it can run now. The *concurrency* is how many jobs it runs at once; it never
//! shrinks.
//!
//! An execution slot is one job that can run now: runners times concurrency. No slot is idle for more than 20 ms while
//! the worker holds a job of its kind that has not begun:
//!
//! * Jobs that wait in the worker go to free slots first, and only then into windows.
//! * A window holds about 10 ms of work. It grows by doubling from one job, as durations become known.
//! * Where a slot is free, nothing waits in the worker, and a runner has answered nothing for [`STALE_AFTER`] or holds more
//!   than a window, the dispatcher recalls what that runner has not begun. A job that has begun is never moved.
//! * A runner that is *out*, since its process cannot start, gets nothing, and counts neither as idle nor as free.
//! * Where no slot is free, a runner that answers nothing for about as long as a job takes gives its window back, so that jobs
//!   begin in about their order.

mod runners;
#[cfg(test)]
mod simulation;
mod window;

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::handler::Capacity;
use runners::{Runners, Staleness};
use window::Window;

/// A runner that answers nothing for so long, and for half as long again as it gathers outcomes, gives its window to slots
/// that are free.
pub const STALE_AFTER: Duration = Duration::from_millis(4);

/// A runner that has had nothing for so long comes before those that are quicker to begin. A slot that has been free for so
/// long beside windows gets what they hold, however steadily these are worked off.
const IDLE_FIRST_AFTER: Duration = Duration::from_millis(8);

/// A runner that answers nothing for so long gives its window back to the worker, free slots or not: another worker may have
/// some.
const STUCK_AFTER: Duration = Duration::from_millis(100);

/// Beside other runners it does so when it answers nothing for as long as a job takes, within these limits: they begin jobs
/// that came later.
const OUT_OF_ORDER_AFTER: RangeInclusive<Duration> = Duration::from_millis(15)..=Duration::from_millis(50);

/// A runner that holds far more than a window for so long gives it back to the worker, free slots or not: another worker may
/// have some. One slow job among quick ones is over by then.
const OVERFULL_AFTER: Duration = Duration::from_millis(20);

/// The pause before a runner that gave nothing back is asked again; it doubles up to ten times [`STUCK_AFTER`].
const RECALL_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// What bounds a [`Dispatcher`].
#[derive(Debug, Clone, Copy)]
pub struct DispatchSettings {
    /// Runners that have work at once, over all kinds; at least 1.
    pub busy_runners_max: usize,
    /// How much work a window holds.
    pub window_target: Duration,
    /// Jobs in one micro-batch at most; at least 1. Where it is 1, there are no windows.
    pub micro_batch_jobs_max: u32,
}

/// Jobs of one kind to give to a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// The runner's number.
    pub runner: usize,
    /// Jobs at most; at least 1.
    pub jobs_max: u32,
}

#[derive(Debug)]
struct Kind {
    runners: Runners,
    window: Window,
    whole_batches: bool,
    /// Since when a slot has been free while others hold more than they run.
    unfair_since: Option<Duration>,
    /// Since when a runner has held far more than a window.
    overfull_since: Option<Duration>,
}

/// Decides what goes where. It is told what is given, answered and returned, and the time since some fixed moment.
#[derive(Debug)]
pub struct Dispatcher {
    settings: DispatchSettings,
    kinds: Vec<Kind>,
    busy_runners: usize,
}

impl Dispatcher {
    /// A dispatcher over kinds, which are numbered in this order.
    pub fn new(settings: DispatchSettings, capacities: &[Capacity]) -> Self {
        let kind = |capacity: &Capacity| Kind {
            runners: Runners::new(
                capacity.runners.unwrap_or(settings.busy_runners_max).max(1),
                capacity.concurrency.max(1),
                STALE_AFTER.max(capacity.gathers_for * 3 / 2),
            ),
            window: Window::new(&settings, capacity),
            whole_batches: capacity.whole_batches,
            unfair_since: None,
            overfull_since: None,
        };
        Dispatcher {
            kinds: capacities.iter().map(kind).collect(),
            busy_runners: 0,
            settings,
        }
    }

    /// Jobs of a kind that could begin now if there were any.
    pub fn free_slots(&self, kind: usize) -> u64 {
        let idle_max = self.settings.busy_runners_max.saturating_sub(self.busy_runners);
        self.kinds[kind].runners.free_slots(idle_max)
    }

    /// Jobs that could begin now if there were any, over all kinds.
    pub fn free_slots_of_all(&self) -> u64 {
        let all = (0..self.kinds.len()).map(|kind| self.free_slots(kind));
        all.fold(0, u64::saturating_add)
    }

    /// Typical jobs that all runners of all kinds end within `time`, as far as their durations are known; 0 where none are.
    pub fn jobs_within(&self, time: Duration) -> f64 {
        let of_kind = |kind: &Kind| {
            let slots = (kind.runners.count() as f64) * f64::from(kind.runners.concurrency());
            Some(kind.window.jobs_per_slot_within(time)? * slots)
        };
        self.kinds.iter().filter_map(of_kind).sum()
    }

    /// What to give to a runner next, where `waiting` jobs of a kind wait; [`Dispatcher::gave`] follows.
    pub fn next(&self, kind: usize, waiting: u64, now: Duration) -> Option<Delivery> {
        if waiting == 0 {
            return None;
        }
        let may_busy_another = self.busy_runners < self.settings.busy_runners_max;
        let Kind {
            runners,
            window,
            whole_batches,
            ..
        } = &self.kinds[kind];
        let concurrency = runners.concurrency();
        if let Some((runner, unanswered)) = runners.freest(may_busy_another, now) {
            let free_runners = runners.free_runners(may_busy_another).max(1);
            let share = waiting.div_ceil(free_runners as u64);
            let room = match whole_batches {
                true => window.batch_jobs(),
                false => concurrency - unanswered + window.jobs(),
            };
            // Splitting what is quick further does not pay.
            let least = (room / 4).max(1);
            return Some(Delivery {
                runner,
                jobs_max: self.cut(room, share, least),
            });
        }
        if *whole_batches || window.jobs() == 0 {
            return None;
        }
        let (runner, unanswered) =
            runners.shortest_window(window.jobs() / 2, stuck_after(runners, window), now)?;
        let room = concurrency + window.jobs() - unanswered;
        let share = waiting.div_ceil(runners.count() as u64);
        let least = (window.jobs() / 4).max(1);
        Some(Delivery {
            runner,
            jobs_max: self.cut(room, share, least),
        })
    }

    fn cut(&self, room: u32, share: u64, least: u32) -> u32 {
        let share = u32::try_from(share).unwrap_or(u32::MAX).max(least);
        room.min(share).min(self.settings.micro_batch_jobs_max).max(1)
    }

    /// Jobs of a kind were given to a runner.
    pub fn gave(&mut self, kind: usize, runner: usize, jobs: u32, now: Duration) {
        let became_busy = self.kinds[kind].runners.gave(runner, jobs, now);
        self.busy_runners += usize::from(became_busy);
    }

    /// A runner answered jobs for good: they completed, failed or went back to the store. Of those that ran, `durations_us`
    /// has microseconds.
    pub fn answered(
        &mut self,
        kind: usize,
        runner: usize,
        jobs: u32,
        durations_us: impl IntoIterator<Item = u32>,
        now: Duration,
    ) {
        let Kind {
            runners,
            window,
            whole_batches,
            ..
        } = &mut self.kinds[kind];
        if !*whole_batches {
            window.learn(durations_us);
        }
        let became_idle = runners.answered(runner, jobs, now);
        self.busy_runners -= usize::from(became_idle);
    }

    /// A runner gave recalled jobs back.
    pub fn returned(&mut self, kind: usize, runner: usize, jobs: u32, now: Duration) {
        let became_idle = self.kinds[kind].runners.returned(runner, jobs, now);
        self.busy_runners -= usize::from(became_idle);
    }

    /// A micro-batch of a handler of whole batches ended after `elapsed`.
    pub fn batch_ended(&mut self, kind: usize, jobs: u32, elapsed: Duration) {
        let kind = &mut self.kinds[kind];
        if kind.whole_batches && jobs > 0 {
            kind.window.learn_batch(jobs, elapsed);
        }
    }

    /// A runner can take no jobs until it is [`back`](Dispatcher::back). What it has not answered, it gives back.
    pub fn out(&mut self, kind: usize, runner: usize, now: Duration) {
        self.kinds[kind].runners.set_out(runner, true, now);
    }

    /// A runner can take jobs again.
    pub fn back(&mut self, kind: usize, runner: usize, now: Duration) {
        self.kinds[kind].runners.set_out(runner, false, now);
    }

    /// Whether a kind has a runner that can take jobs.
    pub fn can_run(&self, kind: usize) -> bool {
        self.kinds[kind].runners.can_run()
    }

    /// A runner whose unbegun jobs should be recalled now, where `waiting` jobs of its kind wait in the worker; it counts as
    /// asked.
    pub fn recall(&mut self, kind: usize, waiting: u64, now: Duration) -> Option<usize> {
        let has_free_slot = self.may_recall(kind, waiting);
        let Kind {
            runners,
            window,
            unfair_since,
            overfull_since,
            ..
        } = &mut self.kinds[kind];
        let is_unfair = has_free_slot == Some(true);
        *unfair_since = is_unfair.then(|| unfair_since.unwrap_or(now));
        let is_overfull = runners.longest_window() > overfull_from(window.jobs());
        *overfull_since = is_overfull.then(|| overfull_since.unwrap_or(now));
        let staleness = staleness(runners, window, *unfair_since, *overfull_since, has_free_slot?);
        runners.take_stale(&staleness, now)
    }

    /// When [`Dispatcher::recall`] is to be asked again at the latest, where `waiting` jobs of a kind wait in the worker.
    pub fn look_at(&self, kind: usize, waiting: u64) -> Option<Duration> {
        let has_free_slot = self.may_recall(kind, waiting)?;
        let Kind {
            runners,
            window,
            unfair_since,
            overfull_since,
            ..
        } = &self.kinds[kind];
        runners.stale_at(&staleness(
            runners,
            window,
            *unfair_since,
            *overfull_since,
            has_free_slot,
        ))
    }

    /// Whether a slot is free for what is recalled. `None` where there is nothing to recall.
    fn may_recall(&self, kind: usize, waiting: u64) -> Option<bool> {
        let Kind {
            runners,
            whole_batches,
            ..
        } = &self.kinds[kind];
        let may = !whole_batches && runners.unbegun() > 0;
        may.then(|| waiting == 0 && self.free_slots(kind) > 0)
    }
}

fn staleness(
    runners: &Runners,
    window: &Window,
    unfair_since: Option<Duration>,
    overfull_since: Option<Duration>,
    has_free_slot: bool,
) -> Staleness {
    let fair_at = unfair_since.map_or(Duration::MAX, |since| since + IDLE_FIRST_AFTER);
    let overfull_at = overfull_since.map_or(Duration::MAX, |since| since + OVERFULL_AFTER);
    Staleness {
        fair_at: has_free_slot.then_some(fair_at),
        window_jobs: window.jobs(),
        overfull_at,
        stuck_after: stuck_after(runners, window),
    }
}

/// A runner that answers nothing for so long gives its window back.
fn stuck_after(runners: &Runners, window: &Window) -> Duration {
    match runners.count() {
        1 => STUCK_AFTER,
        _ => window
            .duration()
            .clamp(*OUT_OF_ORDER_AFTER.start(), *OUT_OF_ORDER_AFTER.end()),
    }
}

/// A runner that holds more jobs beyond its slots holds far more than a window.
fn overfull_from(window_jobs: u32) -> u32 {
    window_jobs.saturating_mul(4).max(4)
}
