//! The starts of a handler's processes: the handling of jobs when they fail, and the time of the next try.
//!
//! A start fails if the interpreter cannot start, if the script cannot be imported, or if the process dies before its
//! first job begins. No job has begun then, so none is charged: they go back to the worker, and the runner is *out*.
//! Until a start succeeds, all runners without a process are out. They try again one after the other, each after a
//! longer pause. Runners with a process continue.

pub(crate) mod code;
pub(crate) mod imports;
pub(crate) mod reload;
pub(crate) mod words;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::RuntimeError;
use crate::limits::{SAID_AGAIN_MS, SAID_OF_ANOTHER_ERROR_MS, START_AGAIN_MS, START_AGAIN_MS_MAX};

/// Receives messages about the processes of a script while jobs run: failed starts, and changes of its code.
#[derive(Clone)]
pub struct ProcessListener(Arc<dyn Fn(&str) + Send + Sync>);

impl ProcessListener {
    /// Calls `listener`, which must not block for long. A message may have several lines, and text of the script.
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

/// A period in which starts fail.
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

/// The state of the starts of all slots.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    failing: Option<Failing>,
    /// The error in the last message, and the message's time.
    told: Option<(String, Instant)>,
}

/// The data of a message about a failed start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FailedStart {
    /// True if it is worth a message. Not each of many similar failures is.
    pub is_news: bool,
    /// The time until the next try.
    pub again_after: Duration,
    /// The time since which starts have failed.
    pub lasted: Duration,
    pub failures: u32,
}

impl Starts {
    /// Reports whether starts fail, so that slots wait with theirs.
    pub fn are_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// The time when a slot may ask again whether it may start a process. `None` if it is woken instead.
    pub fn again_at(&self) -> Option<Instant> {
        self.failing
            .as_ref()
            .filter(|failing| failing.trying.is_none())
            .map(|failing| failing.again_at)
    }

    /// Reports whether a slot may start a process now. While starts fail, one slot at a time may, after a pause.
    pub fn may_start(&mut self, slot: usize, now: Instant) -> bool {
        let Some(failing) = &mut self.failing else {
            return true;
        };
        if failing.trying.is_none() && failing.again_at <= now {
            failing.trying = Some(slot);
        }
        failing.trying == Some(slot)
    }

    /// Notes that a start of a slot has failed with this error.
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
        // Of several starts at the same time, only the first failure counts.
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

    /// Notes a successful start. Returns the number of failures before it and their period, if they were reported.
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
    fn slots_try_again_one_after_the_other_after_longer_pauses() {
        let begin = Instant::now();
        let at = |milliseconds: u64| begin + Duration::from_millis(milliseconds);
        let mut starts = Starts::default();
        assert!(starts.may_start(0, at(0)) && starts.may_start(1, at(0)));
        // Both starts ran at the same time, which counts as one failure for the pause.
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
    fn the_same_error_is_reported_once_a_minute_and_another_one_sooner() {
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
