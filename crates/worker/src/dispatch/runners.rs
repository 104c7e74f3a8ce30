//! What the runners of one kind hold.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{IDLE_FIRST_AFTER, RECALL_AGAIN_AFTER, STUCK_AFTER, overfull_from};

#[derive(Debug, Clone, Default)]
struct Runner {
    unanswered: u32,
    /// Whether it has answered or returned anything: until then it may still be starting, and nothing that it holds
    /// counts as begun.
    is_warm: bool,
    /// When it last answered, or was given its first job.
    progress_at: Duration,
    /// When it is asked again for what it has not begun, where it was asked.
    recall_again_at: Option<Duration>,
    recall_pause: Duration,
    /// Since when it has had nothing, where it has nothing.
    idle_since: Duration,
    /// Whether it can take no jobs.
    is_out: bool,
}

/// The runners of one kind, ordered by what they hold.
#[derive(Debug)]
pub(super) struct Runners {
    runners: Vec<Runner>,
    concurrency: u32,
    /// A runner that answers nothing for so long gives its window to slots that are free.
    stale_after: Duration,
    /// Of those that can take jobs: whether it is cold, its unanswered jobs, and its number.
    by_load: BTreeSet<(bool, u32, usize)>,
    /// Since when idle runners that can take jobs have been idle, and their numbers.
    idle_since: BTreeSet<(Duration, usize)>,
    idle: usize,
    /// Runners that have some but not all of their slots busy, and the free slots of these.
    partly_free: usize,
    partly_free_slots: u64,
    warm_free_slots: u64,
    unbegun: u64,
    /// Runners that can take no jobs.
    out: usize,
}

/// What makes a runner stale.
#[derive(Debug)]
pub(super) struct Staleness {
    /// Where a slot is free: when it gets what others hold at the latest.
    pub fair_at: Option<Duration>,
    /// What a window holds now.
    pub window_jobs: u32,
    /// When a runner that holds far more than a window is stale.
    pub overfull_at: Duration,
    /// Where no slot is free: a runner that answers nothing for so long is stale.
    pub stuck_after: Duration,
}

/// What one runner adds to the sums over all.
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

    /// Whether one of them can take jobs.
    pub fn can_run(&self) -> bool {
        self.out < self.runners.len()
    }

    /// From now on, a runner can take no jobs, or can again. What it has not answered, it gives back.
    pub fn set_out(&mut self, number: usize, is_out: bool, now: Duration) {
        let is_known = |runner: &Runner| runner.is_out == is_out;
        if self.runners.get(number).is_none_or(is_known) {
            return;
        }
        self.idle_since.remove(&(self.runners[number].idle_since, number));
        self.change(number, |runner| {
            runner.is_out = is_out;
            // Its process begins anew.
            runner.is_warm = false;
        });
        self.note_idle(number, now);
    }

    /// Jobs that are held and have not begun, as far as is known.
    pub fn unbegun(&self) -> u64 {
        self.unbegun
    }

    /// Free slots, where so many idle runners may get work.
    pub fn free_slots(&self, idle_max: usize) -> u64 {
        self.partly_free_slots + self.idle.min(idle_max) as u64 * u64::from(self.concurrency)
    }

    /// Runners with a free slot.
    pub fn free_runners(&self, may_busy_another: bool) -> usize {
        self.partly_free + if may_busy_another { self.idle } else { 0 }
    }

    /// The runner with a free slot that holds the least, and what it holds: first one that has been idle for long, then warm
    /// ones.
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

    /// The warm runner with all slots busy whose window holds the least, at most `window_jobs`, and that makes progress.
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

    /// The most jobs that a warm runner holds beyond its slots.
    pub fn longest_window(&self) -> u32 {
        let longest = self.by_load.range(..(true, 0, 0)).next_back();
        let longest = longest.map_or(0, |(_, unanswered, _)| *unanswered);
        longest.saturating_sub(self.concurrency)
    }

    /// Whether that made an idle runner busy.
    pub fn gave(&mut self, runner: usize, jobs: u32, now: Duration) -> bool {
        let was_idle = self.runners[runner].unanswered == 0;
        if was_idle {
            self.idle_since.remove(&(self.runners[runner].idle_since, runner));
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

    /// Whether that made the runner idle.
    pub fn answered(&mut self, runner: usize, jobs: u32, now: Duration) -> bool {
        self.lose(runner, jobs, now, |runner| {
            runner.progress_at = now;
            runner.is_warm = true;
        })
    }

    /// Whether that made the runner idle.
    pub fn returned(&mut self, runner: usize, jobs: u32, now: Duration) -> bool {
        self.lose(runner, jobs, now, |_| ())
    }

    fn lose(&mut self, runner: usize, jobs: u32, now: Duration, also: impl FnOnce(&mut Runner)) -> bool {
        let before = self.runners[runner].unanswered;
        debug_assert!(jobs <= before, "more jobs answered than given");
        self.change(runner, |runner| {
            runner.unanswered = runner.unanswered.saturating_sub(jobs);
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

    /// Notes since when a runner has been idle, where it is and can take jobs.
    fn note_idle(&mut self, number: usize, now: Duration) {
        let runner = &mut self.runners[number];
        if runner.unanswered == 0 && !runner.is_out {
            runner.idle_since = now;
            self.idle_since.insert((now, number));
        }
    }

    /// A runner with unbegun jobs that are of more use elsewhere, and that was not asked for them yet or not lately. It
    /// counts as asked now.
    pub fn take_stale(&mut self, staleness: &Staleness, now: Duration) -> Option<usize> {
        let is_due = |runner: &Runner| self.stale_at_of(runner, staleness).is_some_and(|at| at <= now);
        let found = self.runners.iter().position(is_due)?;
        let runner = &mut self.runners[found];
        runner.recall_again_at = Some(now + runner.recall_pause);
        runner.recall_pause = (runner.recall_pause * 2).min(STUCK_AFTER * 10);
        Some(found)
    }

    /// When the next runner is stale.
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
            // Given while jobs were quicker than they are now.
            (true, Some(_)) if unbegun > window_jobs.saturating_mul(2) => Duration::ZERO,
            (true, Some(fair_at)) => fair_at.min(runner.progress_at + self.stale_after),
            (true, None) if unbegun > overfull_from(window_jobs) => {
                overfull_at.min(runner.progress_at + stuck_after)
            }
            (true, None) => runner.progress_at + stuck_after,
            // Nothing that it holds can begin sooner in another one that has to start, too.
            (false, _) if self.warm_free_slots == 0 => return None,
            (false, _) => runner.progress_at + self.stale_after,
        };
        Some(runner.recall_again_at.unwrap_or(at))
    }

    fn unbegun_of(&self, runner: &Runner) -> u32 {
        match runner.is_warm {
            _ if runner.is_out => 0,
            true => runner.unanswered.saturating_sub(self.concurrency),
            false => runner.unanswered,
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
        self.by_load.remove(&key);
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
        let counts = self.counts(number);
        self.idle += counts.idle;
        self.partly_free += counts.partly_free;
        self.partly_free_slots += counts.partly_free_slots;
        self.warm_free_slots += counts.warm_free_slots;
        self.unbegun += counts.unbegun;
        self.out += counts.out;
    }

    /// What one runner adds to the sums.
    fn counts(&self, number: usize) -> Counts {
        let runner = &self.runners[number];
        let free = match runner.is_out {
            true => 0,
            false => u64::from(self.concurrency.saturating_sub(runner.unanswered)),
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
