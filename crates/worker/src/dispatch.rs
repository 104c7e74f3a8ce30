//! The dispatcher: a state machine without clock or I/O that decides which runner gets which jobs.
//!
//! It distinguishes three amounts. The *transport* is the micro-batch: the jobs that travel to a runner together. The
//! *window* is the number of jobs that a runner holds beyond the jobs that it runs now. The *concurrency* is the number
//! of jobs that a runner runs at once; it never shrinks.
//!
//! A slot is a place for one running job. The number of slots is the number of runners times the concurrency. No slot
//! is idle for more than 20 ms while the worker holds a job of its kind that has not begun:
//!
//! * Jobs that wait in the worker go to free slots first, and only then into windows.
//! * A window holds about 10 ms of work. It grows from one job by doubling, as durations become known.
//! * If a slot is free and nothing waits in the worker, the dispatcher recalls jobs that have not begun. It recalls them from a runner
//!   that answers nothing for [`STALE_AFTER`] or holds more than a window. A job that has begun never moves.
//! * A runner is *out* while its process cannot start. It gets no jobs, and counts neither as idle nor as free.
//! * If no slot is free, a runner that answers nothing for about the duration of a job gives its window back. Jobs thus begin in about
//!   their order.

mod runners;
#[cfg(test)]
mod simulation;
mod window;

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::handler::Capacity;
use runners::{Runners, Staleness};
use window::Window;

/// A runner that answers nothing for this long gives its window to free slots. A handler that gathers outcomes has half
/// as long again as it gathers.
pub const STALE_AFTER: Duration = Duration::from_millis(4);

/// A runner that is idle for this long gets jobs before runners that begin sooner. A slot that is free for this long
/// gets jobs from the windows of other runners, even if these make steady progress.
const IDLE_FIRST_AFTER: Duration = Duration::from_millis(8);

/// A runner that answers nothing for this long gives its window back to the worker, even without a free slot: another
/// worker may have one.
const STUCK_AFTER: Duration = Duration::from_millis(100);

/// With other runners beside it, a runner gives its window back when it answers nothing for the duration of a job,
/// within these limits. The other runners already begin later jobs.
const OUT_OF_ORDER_AFTER: RangeInclusive<Duration> = Duration::from_millis(15)..=Duration::from_millis(50);

/// A runner that holds far more than a window for this long gives it back to the worker, even without a free slot:
/// another worker may have one. A single slow job among quick ones ends before.
const OVERFULL_AFTER: Duration = Duration::from_millis(20);

/// The pause before a runner that gave nothing back is asked again. It doubles up to ten times [`STUCK_AFTER`].
const RECALL_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The limits of a [`Dispatcher`].
#[derive(Debug, Clone, Copy)]
pub struct DispatchSettings {
    /// The largest number of busy runners over all kinds, at least 1.
    pub busy_runners_max: usize,
    /// The amount of work in a window, as the time to run it.
    pub window_target: Duration,
    /// The largest number of jobs in a micro-batch, at least 1. With 1 there are no windows.
    pub micro_batch_jobs_max: u32,
}

/// A decision to give jobs of one kind to a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// The number of the runner.
    pub runner: usize,
    /// The largest number of jobs to give, at least 1.
    pub jobs_max: u32,
}

#[derive(Debug)]
struct Kind {
    runners: Runners,
    window: Window,
    whole_batches: bool,
    /// The start of the time during which a slot is free while other runners hold more jobs than they run.
    unfair_since: Option<Duration>,
    /// The start of the time during which a runner holds far more than a window.
    overfull_since: Option<Duration>,
}

/// The dispatcher. Its owner reports each gift, answer and return, with the time since a fixed moment.
#[derive(Debug)]
pub struct Dispatcher {
    settings: DispatchSettings,
    kinds: Vec<Kind>,
    busy_runners: usize,
}

impl Dispatcher {
    /// A dispatcher for kinds. A kind's number is its place in this list.
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

    /// The number of jobs of a kind that could begin now.
    pub fn free_slots(&self, kind: usize) -> u64 {
        let idle_max = self.settings.busy_runners_max.saturating_sub(self.busy_runners);
        self.kinds[kind].runners.free_slots(idle_max)
    }

    /// The number of jobs that could begin now, over all kinds.
    pub fn free_slots_of_all(&self) -> u64 {
        let all = (0..self.kinds.len()).map(|kind| self.free_slots(kind));
        all.fold(0, u64::saturating_add)
    }

    /// The number of typical jobs that all runners of all kinds end within `time`. Kinds without known durations do not
    /// count.
    pub fn jobs_within(&self, time: Duration) -> f64 {
        let of_kind = |kind: &Kind| {
            let slots = (kind.runners.count() as f64) * f64::from(kind.runners.concurrency());
            Some(kind.window.jobs_per_slot_within(time)? * slots)
        };
        self.kinds.iter().filter_map(of_kind).sum()
    }

    /// The next gift to a runner, while `waiting` jobs of a kind wait. A call of [`Dispatcher::gave`] must follow.
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
            let room = if *whole_batches {
                window.batch_jobs()
            } else {
                concurrency - unanswered + window.jobs()
            };
            // A smaller share of quick jobs would not pay.
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
        let jobs = room.min(share).min(self.settings.micro_batch_jobs_max).max(1);
        assert!(
            jobs <= self.settings.micro_batch_jobs_max.max(1),
            "a runner gets at most a micro-batch at a time"
        );
        jobs
    }

    /// Notes that jobs of a kind went to a runner.
    pub fn gave(&mut self, kind: usize, runner: usize, jobs: u32, now: Duration) {
        let became_busy = self.kinds[kind].runners.gave(runner, jobs, now);
        self.busy_runners += usize::from(became_busy);
        assert!(
            self.busy_runners <= self.settings.busy_runners_max,
            "{} runners are busy, but only {} may be",
            self.busy_runners,
            self.settings.busy_runners_max
        );
    }

    /// Notes final answers of a runner: the jobs completed, failed or went back to the store. `durations_us` has the
    /// durations of the jobs that ran, in microseconds.
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
        assert!(
            self.busy_runners >= usize::from(became_idle),
            "only a busy runner can become idle"
        );
        self.busy_runners -= usize::from(became_idle);
    }

    /// Notes that a runner gave recalled jobs back.
    pub fn returned(&mut self, kind: usize, runner: usize, jobs: u32, now: Duration) {
        let became_idle = self.kinds[kind].runners.returned(runner, jobs, now);
        assert!(
            self.busy_runners >= usize::from(became_idle),
            "only a busy runner can become idle"
        );
        self.busy_runners -= usize::from(became_idle);
    }

    /// Notes the end of a micro-batch of a handler of whole batches.
    pub fn batch_ended(&mut self, kind: usize, jobs: u32, elapsed: Duration) {
        let kind = &mut self.kinds[kind];
        if kind.whole_batches && jobs > 0 {
            kind.window.learn_batch(jobs, elapsed);
        }
    }

    /// Notes that a runner can take no jobs until it is [`back`](Dispatcher::back). It gives its unanswered jobs back.
    pub fn out(&mut self, kind: usize, runner: usize, now: Duration) {
        self.kinds[kind].runners.set_out(runner, true, now);
    }

    /// Notes that a runner can take jobs again.
    pub fn back(&mut self, kind: usize, runner: usize, now: Duration) {
        self.kinds[kind].runners.set_out(runner, false, now);
    }

    /// Reports whether a kind has a runner that can take jobs.
    pub fn can_run(&self, kind: usize) -> bool {
        self.kinds[kind].runners.can_run()
    }

    /// A runner to recall unbegun jobs from now, while `waiting` jobs of its kind wait in the worker. The runner counts
    /// as asked.
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

    /// The latest time to call [`Dispatcher::recall`] again, while `waiting` jobs of a kind wait in the worker.
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

    /// Reports whether a slot is free for recalled jobs. `None` if there are no jobs to recall.
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

/// The time without an answer after which a runner gives its window back.
fn stuck_after(runners: &Runners, window: &Window) -> Duration {
    match runners.count() {
        1 => STUCK_AFTER,
        _ => window
            .duration()
            .clamp(*OUT_OF_ORDER_AFTER.start(), *OUT_OF_ORDER_AFTER.end()),
    }
}

/// The number of jobs beyond its slots above which a runner holds far more than a window.
fn overfull_from(window_jobs: u32) -> u32 {
    window_jobs.saturating_mul(4).max(4)
}
