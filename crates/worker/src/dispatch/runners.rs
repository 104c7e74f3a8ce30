//! The jobs that the runners of one kind hold.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{IDLE_FIRST_AFTER, RECALL_AGAIN_AFTER, STUCK_AFTER, overfull_from};

#[derive(Debug, Clone, Default)]
struct Runner {
    unanswered: u32,
    /// The runner has answered or returned jobs. Before that it may still be starting, and none of its jobs counts as begun.
    is_warm: bool,
    /// The time of the last answer, or of the first job.
    progress_at: Duration,
    /// The time to ask a runner again that was asked for its unbegun jobs.
    recall_again_at: Option<Duration>,
    recall_pause: Duration,
    /// The start of the idle time of an idle runner.
    idle_since: Duration,
    /// The runner can take no jobs.
    is_out: bool,
}

/// The runners of one kind, ordered by the number of jobs that they hold.
#[derive(Debug)]
pub(super) struct Runners {
    runners: Vec<Runner>,
    concurrency: u32,
    /// A runner that answers nothing for this long gives its window to free slots.
    stale_after: Duration,
    /// The runners that can take jobs: whether each is cold, its number of unanswered jobs, and its number.
    by_load: BTreeSet<(bool, u32, usize)>,
    /// The start of the idle time of each idle runner that can take jobs, with the runner's number.
    idle_since: BTreeSet<(Duration, usize)>,
    idle: usize,
    /// The number of runners with some but not all slots busy, and the number of their free slots.
    partly_free: usize,
    partly_free_slots: u64,
    warm_free_slots: u64,
    unbegun: u64,
    /// The number of runners that can take no jobs.
    out: usize,
}

/// The conditions under which a runner is stale.
#[derive(Debug)]
pub(super) struct Staleness {
    /// With a free slot: the latest time at which it gets jobs of other runners.
    pub fair_at: Option<Duration>,
    /// The number of jobs in a window now.
    pub window_jobs: u32,
    /// The time at which a runner with far more than a window is stale.
    pub overfull_at: Duration,
    /// Without a free slot: a runner that answers nothing for this long is stale.
    pub stuck_after: Duration,
}

/// The share of one runner in the sums over all runners.
struct Counts {
    idle: usize,
    partly_free: usize,
    partly_free_slots: u64,
    warm_free_slots: u64,
    unbegun: u64,
    out: usize,
}

impl Runners {
    pub fn new(count: usize, concurrency: u32, stale_after: Duration) -> Self {
        Runners {
            runners: vec![Runner::default(); count],
            concurrency,
            stale_after,
            by_load: (0..count).map(|runner| (true, 0, runner)).collect(),
            idle_since: (0..count).map(|runner| (Duration::ZERO, runner)).collect(),
            idle: count,
            partly_free: 0,
            partly_free_slots: 0,
            warm_free_slots: 0,
            unbegun: 0,
            out: 0,
        }
    }

    pub fn count(&self) -> usize {
        self.runners.len()
    }

    pub fn concurrency(&self) -> u32 {
        self.concurrency
    }

    /// Reports whether a runner can take jobs.
    pub fn can_run(&self) -> bool {
        self.out < self.runners.len()
    }

    /// Sets whether a runner can take jobs. A runner that cannot gives its unanswered jobs back.
    pub fn set_out(&mut self, number: usize, is_out: bool, now: Duration) {
        let is_known = |runner: &Runner| runner.is_out == is_out;
        if self.runners.get(number).is_none_or(is_known) {
            return;
        }
        self.idle_since.remove(&(self.runners[number].idle_since, number));
        self.change(number, |runner| {
            runner.is_out = is_out;
            // The process of the runner starts anew.
            runner.is_warm = false;
        });
        self.note_idle(number, now);
    }

    /// The number of held jobs that have not begun, as far as is known.
    pub fn unbegun(&self) -> u64 {
        self.unbegun
    }

    /// The number of free slots if at most `idle_max` idle runners may get jobs.
    pub fn free_slots(&self, idle_max: usize) -> u64 {
        self.partly_free_slots + self.idle.min(idle_max) as u64 * u64::from(self.concurrency)
    }

    /// The number of runners with a free slot.
    pub fn free_runners(&self, may_busy_another: bool) -> usize {
        self.partly_free + if may_busy_another { self.idle } else { 0 }
    }

    /// The runner with a free slot and the fewest jobs, and the number of its jobs. A runner with a long idle time
    /// comes first, and warm runners come before cold ones.
    pub fn freest(&self, may_busy_another: bool, now: Duration) -> Option<(usize, u32)> {
        if may_busy_another
            && let Some((since, runner)) = self.idle_since.first()
            && now.saturating_sub(*since) >= IDLE_FIRST_AFTER
        {
            return Some((*runner, 0));
        }
        let from = |is_cold| (is_cold, u32::from(!may_busy_another), 0)..(is_cold, self.concurrency, 0);
        let mut free = self
            .by_load
            .range(from(false))
            .chain(self.by_load.range(from(true)));
        let may_take = |runner: usize| self.runners[runner].recall_again_at.is_none();
        free.find(|(_, _, runner)| may_take(*runner))
            .map(|(_, unanswered, runner)| (*runner, *unanswered))
    }

    /// The warm runner with no free slot and the smallest window, of at most `window_jobs`. It makes progress.
    pub fn shortest_window(
        &self,
        window_jobs: u32,
        stuck_after: Duration,
        now: Duration,
    ) -> Option<(usize, u32)> {
        let most = self.concurrency.saturating_add(window_jobs);
        let mut candidates = self
            .by_load
            .range((false, self.concurrency, 0)..=(false, most, usize::MAX));
        let may_take = |runner: &Runner, unanswered: u32| {
            let is_first = unanswered == self.concurrency;
            runner.recall_again_at.is_none()
                && (is_first || now.saturating_sub(runner.progress_at) < self.stale_after * 2)
                && now.saturating_sub(runner.progress_at) < stuck_after
        };
        candidates
            .find(|(_, unanswered, runner)| may_take(&self.runners[*runner], *unanswered))
            .map(|(_, unanswered, runner)| (*runner, *unanswered))
    }

    /// The largest number of jobs that a warm runner holds beyond its slots.
    pub fn longest_window(&self) -> u32 {
        let longest = self.by_load.range(..(true, 0, 0)).next_back();
        let longest = longest.map_or(0, |(_, unanswered, _)| *unanswered);
        longest.saturating_sub(self.concurrency)
    }

    /// Notes that a runner got jobs. Returns whether it was idle.
    pub fn gave(&mut self, runner: usize, jobs: u32, now: Duration) -> bool {
        assert!(jobs > 0, "a runner gets at least one job");
        assert!(!self.runners[runner].is_out, "a runner that is out gets no jobs");
        let was_idle = self.runners[runner].unanswered == 0;
        if was_idle {
            let was_known = self.idle_since.remove(&(self.runners[runner].idle_since, runner));
            assert!(was_known, "an idle runner is listed with its idle time");
        }
        self.change(runner, |runner| {
            if runner.unanswered == 0 {
                runner.progress_at = now;
                runner.recall_pause = RECALL_AGAIN_AFTER;
            }
            runner.unanswered += jobs;
        });
        was_idle && jobs > 0
    }

    /// Notes answers of a runner. Returns whether it became idle.
    pub fn answered(&mut self, runner: usize, jobs: u32, now: Duration) -> bool {
        self.lose(runner, jobs, now, |runner| {
            runner.progress_at = now;
            runner.is_warm = true;
        })
    }

    /// Notes jobs that a runner returned. Returns whether it became idle.
    pub fn returned(&mut self, runner: usize, jobs: u32, now: Duration) -> bool {
        self.lose(runner, jobs, now, |_| ())
    }

    fn lose(&mut self, runner: usize, jobs: u32, now: Duration, also: impl FnOnce(&mut Runner)) -> bool {
        let before = self.runners[runner].unanswered;
        assert!(
            jobs <= before,
            "a runner that holds {before} jobs cannot answer {jobs}"
        );
        self.change(runner, |runner| {
            runner.unanswered -= jobs;
            runner.recall_again_at = None;
            runner.recall_pause = RECALL_AGAIN_AFTER;
            also(runner);
        });
        let became_idle = before > 0 && self.runners[runner].unanswered == 0;
        if became_idle {
            self.note_idle(runner, now);
        }
        became_idle
    }

    /// Notes the start of a runner's idle time, if it is idle and can take jobs.
    fn note_idle(&mut self, number: usize, now: Duration) {
        let runner = &mut self.runners[number];
        if runner.unanswered == 0 && !runner.is_out {
            runner.idle_since = now;
            let is_new = self.idle_since.insert((now, number));
            assert!(is_new, "a runner becomes idle only once");
        }
    }

    /// A runner whose unbegun jobs are more useful elsewhere. It was not asked for them yet, or not recently. It counts
    /// as asked now.
    pub fn take_stale(&mut self, staleness: &Staleness, now: Duration) -> Option<usize> {
        let is_due = |runner: &Runner| self.stale_at_of(runner, staleness).is_some_and(|at| at <= now);
        let found = self.runners.iter().position(is_due)?;
        let runner = &mut self.runners[found];
        runner.recall_again_at = Some(now + runner.recall_pause);
        runner.recall_pause = (runner.recall_pause * 2).min(STUCK_AFTER * 10);
        Some(found)
    }

    /// The time at which the next runner becomes stale.
    pub fn stale_at(&self, staleness: &Staleness) -> Option<Duration> {
        let stale_at = |runner| self.stale_at_of(runner, staleness);
        self.runners.iter().filter_map(stale_at).min()
    }

    fn stale_at_of(&self, runner: &Runner, staleness: &Staleness) -> Option<Duration> {
        let Staleness {
            fair_at,
            window_jobs,
            overfull_at,
            stuck_after,
        } = *staleness;
        let unbegun = self.unbegun_of(runner);
        if unbegun == 0 {
            return None;
        }
        let at = match (runner.is_warm, fair_at) {
            // The runner got these jobs when jobs were quicker.
            (true, Some(_)) if unbegun > window_jobs.saturating_mul(2) => Duration::ZERO,
            (true, Some(fair_at)) => fair_at.min(runner.progress_at + self.stale_after),
            (true, None) if unbegun > overfull_from(window_jobs) => {
                overfull_at.min(runner.progress_at + stuck_after)
            }
            (true, None) => runner.progress_at + stuck_after,
            // The jobs would begin no sooner in another runner that must start as well.
            (false, _) if self.warm_free_slots == 0 => return None,
            (false, _) => runner.progress_at + self.stale_after,
        };
        Some(runner.recall_again_at.unwrap_or(at))
    }

    fn unbegun_of(&self, runner: &Runner) -> u32 {
        if runner.is_out {
            0
        } else if runner.is_warm {
            runner.unanswered.saturating_sub(self.concurrency)
        } else {
            runner.unanswered
        }
    }

    fn change(&mut self, number: usize, change: impl FnOnce(&mut Runner)) {
        self.count_out(number);
        change(&mut self.runners[number]);
        self.count_in(number);
    }

    fn key(&self, number: usize) -> (bool, u32, usize) {
        let runner = &self.runners[number];
        (!runner.is_warm, runner.unanswered, number)
    }

    fn count_out(&mut self, number: usize) {
        let key = self.key(number);
        let was_listed = self.by_load.remove(&key);
        assert_eq!(
            was_listed, !self.runners[number].is_out,
            "exactly the runners that can take jobs are listed by load"
        );
        let counts = self.counts(number);
        self.idle -= counts.idle;
        self.partly_free -= counts.partly_free;
        self.partly_free_slots -= counts.partly_free_slots;
        self.warm_free_slots -= counts.warm_free_slots;
        self.unbegun -= counts.unbegun;
        self.out -= counts.out;
    }

    fn count_in(&mut self, number: usize) {
        if !self.runners[number].is_out {
            self.by_load.insert(self.key(number));
        }
        debug_assert!(
            self.by_load.len() + self.out <= self.runners.len() + 1,
            "each runner is listed once or is out"
        );
        let counts = self.counts(number);
        self.idle += counts.idle;
        assert!(self.idle <= self.runners.len(), "a runner is idle once");
        self.partly_free += counts.partly_free;
        self.partly_free_slots += counts.partly_free_slots;
        self.warm_free_slots += counts.warm_free_slots;
        self.unbegun += counts.unbegun;
        self.out += counts.out;
        assert!(self.idle + self.partly_free + self.out <= self.runners.len());
    }

    /// The share of one runner in the sums.
    fn counts(&self, number: usize) -> Counts {
        let runner = &self.runners[number];
        let free = if runner.is_out {
            0
        } else {
            u64::from(self.concurrency.saturating_sub(runner.unanswered))
        };
        let is_partly_free = runner.unanswered > 0 && free > 0;
        Counts {
            idle: usize::from(runner.unanswered == 0 && !runner.is_out),
            partly_free: usize::from(is_partly_free),
            partly_free_slots: if is_partly_free { free } else { 0 },
            warm_free_slots: if runner.is_warm { free } else { 0 },
            unbegun: u64::from(self.unbegun_of(runner)),
            out: usize::from(runner.is_out),
        }
    }
}
