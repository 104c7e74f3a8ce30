//! The starts of a handler's processes: what becomes of the jobs when they fail, and when the next one is tried.
//!
//! A start fails where the interpreter cannot be started, where the script cannot be imported, or where the process dies before
//! its first job begins. No job has begun then, so none is charged: they go back to the worker, and the runner is *out*. Until
//! a start succeeds, all runners without a process are out, and one of them after the other tries again, each after a longer
//! pause. Runners with a process go on.

pub(crate) mod code;
pub(crate) mod imports;
pub(crate) mod reload;
pub(crate) mod words;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::RuntimeError;
use crate::limits::{SAID_AGAIN_MS, SAID_OF_ANOTHER_ERROR_MS, START_AGAIN_MS, START_AGAIN_MS_MAX};

/// Hears, in words, what becomes of the processes of a script while jobs run: starts that fail, and changes of its code.
#[derive(Clone)]
pub struct ProcessListener(Arc<dyn Fn(&str) + Send + Sync>);

impl ProcessListener {
    /// Calls `listener`, which must not block for long. The words may have several lines, and text of the script.
    pub fn new(listener: impl Fn(&str) + Send + Sync + 'static) -> Self {
        ProcessListener(Arc::new(listener))
    }

    pub(crate) fn tell(&self, words: &str) {
        (self.0)(words);
    }
}

impl Default for ProcessListener {
    /// Writes errors to the log.
    fn default() -> Self {
        ProcessListener::new(|words| tracing::error!("{words}"))
    }
}

impl std::fmt::Debug for ProcessListener {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ProcessListener(…)")
    }
}

/// A time in which starts fail.
#[derive(Debug)]
struct Failing {
    since: Instant,
    failures: u32,
    pause: Duration,
    again_at: Instant,
    /// The slot that tries again.
    trying: Option<usize>,
    is_told: bool,
}

/// How the starts of all slots go.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    failing: Option<Failing>,
    /// The error that was told last, and when.
    told: Option<(String, Instant)>,
}

/// A failed start, as it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FailedStart {
    /// Whether it is worth telling: not each of many alike is.
    pub is_news: bool,
    /// When the next one is tried, from now on.
    pub again_after: Duration,
    /// Since when starts have failed.
    pub lasted: Duration,
    pub failures: u32,
}

impl Starts {
    /// Whether starts fail, so that slots wait with theirs.
    pub fn are_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// When a slot may look again whether it may start a process. `None` where it is woken then.
    pub fn again_at(&self) -> Option<Instant> {
        self.failing
            .as_ref()
            .filter(|failing| failing.trying.is_none())
            .map(|failing| failing.again_at)
    }

    /// Whether a slot may start a process now: one at a time where starts fail, after a pause.
    pub fn may_start(&mut self, slot: usize, now: Instant) -> bool {
        let Some(failing) = &mut self.failing else {
            return true;
        };
        if failing.trying.is_none() && failing.again_at <= now {
            failing.trying = Some(slot);
        }
        failing.trying == Some(slot)
    }

    /// A start of a slot has failed with an error that reads so.
    pub fn failed(&mut self, slot: usize, error: &RuntimeError, now: Instant) -> FailedStart {
        let first = Duration::from_millis(START_AGAIN_MS);
        let failing = self.failing.get_or_insert_with(|| Failing {
            since: now,
            failures: 0,
            pause: first,
            again_at: now + first,
            trying: None,
            is_told: false,
        });
        failing.failures += 1;
        // Of starts that were under way together, the first one counts.
        if failing.trying == Some(slot) {
            failing.trying = None;
            failing.pause = (failing.pause * 2).min(Duration::from_millis(START_AGAIN_MS_MAX));
            failing.again_at = now + failing.pause;
        }
        let text = error.to_string();
        let silent_ms = match &self.told {
            Some((told, _)) if *told == text => SAID_AGAIN_MS,
            _ => SAID_OF_ANOTHER_ERROR_MS,
        };
        let silent = Duration::from_millis(silent_ms);
        let is_news = self
            .told
            .as_ref()
            .is_none_or(|(_, at)| now.duration_since(*at) >= silent);
        if is_news {
            self.told = Some((text, now));
            failing.is_told = true;
        }
        FailedStart {
            is_news,
            again_after: failing.again_at.saturating_duration_since(now),
            lasted: now.duration_since(failing.since),
            failures: failing.failures,
        }
    }

    /// A start has succeeded: how many had failed before it, and for how long, where that was told.
    pub fn succeeded(&mut self, now: Instant) -> Option<(u32, Duration)> {
        let failing = self.failing.take()?;
        failing
            .is_told
            .then(|| (failing.failures, now.duration_since(failing.since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> RuntimeError {
        RuntimeError::Plumbing(std::io::Error::other(text.to_owned()))
    }

    #[test]
    fn one_slot_after_the_other_tries_again_after_longer_pauses() {
        let begin = Instant::now();
        let at = |milliseconds: u64| begin + Duration::from_millis(milliseconds);
        let mut starts = Starts::default();
        assert!(starts.may_start(0, at(0)) && starts.may_start(1, at(0)));
        // Both were under way: that is one failure as for the pause.
        assert!(starts.failed(0, &error("a"), at(10)).is_news);
        let second = starts.failed(1, &error("a"), at(11));
        assert!(!second.is_news);
        assert_eq!(second.again_after, Duration::from_millis(START_AGAIN_MS - 1));
        assert!(!starts.may_start(0, at(500)), "it waits");
        assert!(starts.may_start(1, at(510)));
        assert!(!starts.may_start(0, at(520)), "another one tries");
        assert_eq!(starts.again_at(), None, "it is woken");
        let mut again_after = starts.failed(1, &error("a"), at(600)).again_after;
        assert_eq!(again_after, Duration::from_millis(2 * START_AGAIN_MS));
        let mut now = at(600);
        for _ in 0..20 {
            now += again_after;
            assert!(starts.may_start(0, now));
            again_after = starts.failed(0, &error("a"), now).again_after;
        }
        assert_eq!(again_after, Duration::from_millis(START_AGAIN_MS_MAX));
        now += again_after;
        assert!(starts.may_start(0, now));
        assert_eq!(starts.succeeded(now).map(|(failures, _)| failures), Some(23));
        assert!(starts.may_start(1, now) && !starts.are_failing());
    }

    #[test]
    fn the_same_error_is_told_once_a_minute_and_another_one_sooner() {
        let begin = Instant::now();
        let mut starts = Starts::default();
        let mut told = Vec::new();
        for second in 0..100 {
            let now = begin + Duration::from_secs(second);
            let text = if second < 80 { "a" } else { "b" };
            starts.may_start(0, now);
            if starts.failed(0, &error(text), now).is_news {
                told.push(second);
            }
        }
        assert_eq!(told, [0, 60, 80]);
    }
}
