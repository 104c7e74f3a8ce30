//! One limiter for all model calls of a run. It limits the calls at a time, and the requests and tokens a minute, and
//! it decides on pauses.

mod answer_length;
mod bucket;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as Turnstile, Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use answer_length::AnswerLength;
use bucket::Bucket;
pub use bucket::RateHeaders;

tokio::task_local! {
    /// Whether the extraction of this task has begun a model call.
    pub(crate) static HAS_CALLED: Arc<AtomicBool>;
}

/// The longest pause, whatever a service asks for.
const PAUSE_MAX: Duration = Duration::from_secs(120);

/// A service rejects at once and answers late. So a call that still runs after this many times the latency of a
/// rejection counts as admitted.
const LET_IN_AFTER: u32 = 4;

/// The shortest such time. A shorter one depends on the network and the scheduler only.
const LET_IN_AFTER_MIN: Duration = Duration::from_millis(50);

/// The factor of the trust in pauses, once a pause turned out not to be meant for all calls.
const TRUST_LOST: f64 = 0.5;

/// The factor of the trust in pauses, once a pause passed and nothing spoke against it.
const TRUST_GAINED: f64 = 1.5;

/// The smallest trust: the part of a pause that other calls wait at least.
const TRUST_MIN: f64 = 1.0 / 16.0;

/// The known limits of a service. Rate-limit headers add the unknown ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LimiterSettings {
    /// Maximum number of calls at a time.
    pub concurrency: usize,
    /// Maximum tokens a minute, sent and received.
    pub tokens_per_minute: Option<f64>,
    /// Maximum requests a minute.
    pub requests_per_minute: Option<f64>,
}

impl Default for LimiterSettings {
    fn default() -> Self {
        LimiterSettings {
            concurrency: 20,
            tokens_per_minute: None,
            requests_per_minute: None,
        }
    }
}

/// Lets calls begin within the limits. Clones are one limiter.
///
/// Calls begin in the order in which they came: a turnstile lets one call at a time wait for the end of a pause, for
/// tokens and for a slot. Retried calls have a turnstile of their own, because they have waited already, and the last
/// of them decides when the work ends. Only a running call holds a slot, never a waiting one.
#[derive(Debug, Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    concurrency: usize,
    slots: Arc<Semaphore>,
    turnstile_first: Turnstile<()>,
    turnstile_again: Turnstile<()>,
    state: Mutex<State>,
    /// Notified when a pause ends early.
    lifted: Notify,
}

#[derive(Debug)]
struct State {
    /// The present number of slots.
    slots: usize,
    /// Number of calls that have begun.
    calls: u64,
    /// The times at which the running calls began, by their numbers.
    under_way: BTreeMap<u64, Instant>,
    pause: Option<Pause>,
    /// The part of a pause that calls wait which were not rejected themselves. A service that rejects some calls and
    /// admits others at the same moment does not mean all calls.
    trust: f64,
    tokens: Option<Bucket>,
    requests: Option<Bucket>,
    answer_length: AnswerLength,
    rejected: u64,
}

/// No call begins before `until`, unless a call that began after the first rejected one was admitted. Then the
/// rejections were not meant for all calls.
#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Instant,
    /// The number of the first call that was rejected.
    rejected_call: u64,
    /// The time after which a call that was not rejected counts as admitted.
    let_in_after: Duration,
}

/// The right of a running call to its slot.
#[derive(Debug)]
pub struct Permit {
    slot: Option<OwnedSemaphorePermit>,
    shared: Arc<Shared>,
    call: u64,
    begun_at: Instant,
    estimated_tokens: f64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shared.state().under_way.remove(&self.call);
    }
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Limiter {
    /// Makes a limiter.
    pub fn new(settings: LimiterSettings) -> Limiter {
        let concurrency = settings.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        let now = Instant::now();
        Limiter {
            shared: Arc::new(Shared {
                concurrency,
                slots: Arc::new(Semaphore::new(concurrency)),
                turnstile_first: Turnstile::new(()),
                turnstile_again: Turnstile::new(()),
                state: Mutex::new(State {
                    slots: concurrency,
                    calls: 0,
                    under_way: BTreeMap::new(),
                    pause: None,
                    trust: 1.0,
                    tokens: settings.tokens_per_minute.map(|limit| Bucket::new(limit, now)),
                    requests: settings.requests_per_minute.map(|limit| Bucket::new(limit, now)),
                    answer_length: AnswerLength::new(),
                    rejected: 0,
                }),
                lifted: Notify::new(),
            }),
        }
    }

    /// Maximum number of calls at a time.
    pub fn concurrency(&self) -> usize {
        self.shared.concurrency
    }

    /// Number of rejected calls so far.
    pub fn rejected(&self) -> u64 {
        self.shared.state().rejected
    }

    /// Waits until a call with a prompt of this many tokens may begin.
    pub async fn acquire(&self, prompt_tokens: u64) -> Permit {
        let permit = self.pass(&self.shared.turnstile_first, prompt_tokens).await;
        // Outside of a job, the flag does not exist.
        let _ = HAS_CALLED.try_with(|has_called| has_called.store(true, Ordering::Relaxed));
        permit
    }

    /// Waits until a rejected or failed call may begin again. It precedes calls that have not begun yet.
    pub async fn acquire_again(&self, prompt_tokens: u64) -> Permit {
        self.pass(&self.shared.turnstile_again, prompt_tokens).await
    }

    async fn pass(&self, turnstile: &Turnstile<()>, prompt_tokens: u64) -> Permit {
        let _turn = turnstile.lock().await;
        loop {
            let lifted = self.shared.lifted.notified();
            let wait = self.shared.state().wait_for(prompt_tokens, Instant::now());
            if let Some(until) = wait {
                tokio::select! {
                    () = tokio::time::sleep_until(until) => {}
                    () = lifted => {}
                }
                continue;
            }
            // The semaphore is never closed.
            let Ok(slot) = self.shared.slots.clone().acquire_owned().await else {
                continue;
            };
            // During the wait for the slot, a pause may have begun.
            if let Some(permit) = self.begin(slot, prompt_tokens) {
                return permit;
            }
        }
    }

    /// Records an answered call with its tokens.
    pub fn succeeded(&self, permit: Permit, input_tokens: u64, output_tokens: u64) {
        let mut state = self.shared.state();
        if input_tokens > 0 {
            state
                .answer_length
                .learn(input_tokens as f64, output_tokens as f64);
            if let Some(tokens) = &mut state.tokens {
                tokens.take((input_tokens + output_tokens) as f64 - permit.estimated_tokens);
            }
        }
        if state.pause.is_some_and(|pause| permit.call > pause.rejected_call) {
            state.end_pause(TRUST_LOST);
            self.shared.lifted.notify_waiters();
        }
        // Each success restores one slot.
        if state.slots < self.shared.concurrency {
            state.slots += 1;
            assert!(
                state.slots <= self.shared.concurrency,
                "no more slots than the settings allow"
            );
            self.shared.slots.add_permits(1);
        }
    }

    /// Records a call that was rejected, or that failed so that more calls would make it worse. All calls pause, and
    /// there is one slot fewer until calls succeed again. The call itself waits for the whole pause in any case.
    pub fn rejected_for(&self, mut permit: Permit, pause: Duration) {
        let now = Instant::now();
        let mut state = self.shared.state();
        state.rejected += 1;
        let new = Pause {
            until: now + pause.min(PAUSE_MAX).mul_f64(state.trust),
            rejected_call: permit.call,
            let_in_after: ((now - permit.begun_at) * LET_IN_AFTER).max(LET_IN_AFTER_MIN),
        };
        state.pause = Some(match state.pause {
            Some(known) => Pause {
                until: known.until.max(new.until),
                rejected_call: known.rejected_call.min(new.rejected_call),
                let_in_after: known.let_in_after.max(new.let_in_after),
            },
            None => new,
        });
        state.under_way.remove(&permit.call);
        if let Some(tokens) = &mut state.tokens {
            tokens.take(-permit.estimated_tokens);
        }
        assert!(state.slots >= 1, "at least one slot is left");
        if state.slots > 1 && state.slots * 2 > self.shared.concurrency {
            state.slots -= 1;
            if let Some(slot) = permit.slot.take() {
                slot.forget();
            }
        }
    }

    /// Applies the limits in an answer's headers, except for limits from the settings.
    pub fn heed(&self, tokens: RateHeaders, requests: RateHeaders) {
        let now = Instant::now();
        let mut state = self.shared.state();
        Bucket::heed(&mut state.tokens, tokens, now);
        Bucket::heed(&mut state.requests, requests, now);
    }

    /// Begins a call, unless it has to wait.
    fn begin(&self, slot: OwnedSemaphorePermit, prompt_tokens: u64) -> Option<Permit> {
        let now = Instant::now();
        let mut state = self.shared.state();
        if state.wait_for(prompt_tokens, now).is_some() {
            return None;
        }
        let estimated_tokens = state.estimate(prompt_tokens);
        if let Some(tokens) = &mut state.tokens {
            tokens.take(estimated_tokens);
        }
        if let Some(requests) = &mut state.requests {
            requests.take(1.0);
        }
        state.calls += 1;
        let call = state.calls;
        let before = state.under_way.insert(call, now);
        assert!(before.is_none(), "each call has a number of its own");
        assert!(
            state.under_way.len() <= self.shared.concurrency,
            "running calls do not exceed the slots"
        );
        Some(Permit {
            slot: Some(slot),
            shared: self.shared.clone(),
            call,
            begun_at: now,
            estimated_tokens,
        })
    }
}

impl State {
    fn estimate(&self, prompt_tokens: u64) -> f64 {
        let prompt_tokens = prompt_tokens as f64;
        prompt_tokens + self.answer_length.expected(prompt_tokens)
    }

    fn end_pause(&mut self, trust_factor: f64) {
        self.pause = None;
        self.trust = (self.trust * trust_factor).clamp(TRUST_MIN, 1.0);
    }

    /// The time until which a call has to wait; `None` if it may begin.
    fn wait_for(&mut self, prompt_tokens: u64, now: Instant) -> Option<Instant> {
        if let Some(pause) = self.pause {
            let later = self.under_way.range(pause.rejected_call + 1..).next();
            let let_in_at = later.map(|(_, &begun_at)| begun_at + pause.let_in_after);
            match let_in_at {
                Some(at) if at <= now => self.end_pause(TRUST_LOST),
                _ if pause.until <= now => self.end_pause(TRUST_GAINED),
                _ => return Some(let_in_at.map_or(pause.until, |at| at.min(pause.until))),
            }
        }
        let estimated = self.estimate(prompt_tokens);
        let tokens = self
            .tokens
            .as_mut()
            .and_then(|bucket| bucket.full_at(estimated, now));
        let requests = self.requests.as_mut().and_then(|bucket| bucket.full_at(1.0, now));
        tokens.max(requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(concurrency: usize, tokens_per_minute: Option<f64>) -> Limiter {
        Limiter::new(LimiterSettings {
            concurrency,
            tokens_per_minute,
            requests_per_minute: None,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_limited_number_of_calls_runs_at_a_time() {
        let limiter = limiter(2, None);
        let first = limiter.acquire(1).await;
        let _second = limiter.acquire(1).await;
        let third = tokio::time::timeout(Duration::from_secs(1), limiter.acquire(1)).await;
        assert!(third.is_err());
        limiter.succeeded(first, 1, 1);
        limiter.acquire(1).await;
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_to_the_tokens_of_a_minute() {
        let limiter = limiter(100, Some(60_000.0));
        let begun = Instant::now();
        for _ in 0..100 {
            let permit = limiter.acquire(100).await;
            limiter.succeeded(permit, 100, 300);
        }
        // The 100 calls use 40,000 tokens. The service gives 1,500 tokens at once, and then 1,000 a second.
        let seconds = begun.elapsed().as_secs_f64();
        assert!((38.0..41.0).contains(&seconds), "{seconds}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_rejection_pauses_all_calls() {
        let limiter = limiter(10, None);
        let begun = Instant::now();
        let early = limiter.acquire(1).await;
        tokio::time::advance(Duration::from_millis(10)).await;
        let rejected = limiter.acquire(1).await;
        limiter.rejected_for(rejected, Duration::from_secs(5));
        // This call began before the rejected one, so its success proves nothing.
        limiter.succeeded(early, 1, 1);
        limiter.acquire(1).await;
        assert!(begun.elapsed() >= Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_success_lifts_the_pause() {
        let limiter = limiter(10, None);
        let begun = Instant::now();
        let rejected = limiter.acquire(1).await;
        tokio::time::advance(Duration::from_millis(10)).await;
        let later = limiter.acquire(1).await;
        limiter.rejected_for(rejected, Duration::from_secs(5));
        let waiting = limiter.acquire(1);
        let lifting = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            limiter.succeeded(later, 1, 1);
        };
        tokio::join!(waiting, lifting);
        assert!(begun.elapsed() < Duration::from_secs(1));
        assert_eq!(limiter.rejected(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_call_that_is_not_rejected_lifts_the_pause() {
        let limiter = limiter(10, None);
        let begun = Instant::now();
        let rejected = limiter.acquire(1).await;
        let later = limiter.acquire(1).await;
        tokio::time::advance(Duration::from_millis(20)).await;
        limiter.rejected_for(rejected, Duration::from_secs(5));
        let next = limiter.acquire(1).await;
        let waited = begun.elapsed().as_millis();
        assert!((80..90).contains(&waited), "four times 20 ms: {waited}");
        limiter.succeeded(later, 1, 1);
        // No call began after this one, so nothing speaks against the pause. But the last pause was not meant for all calls.
        limiter.rejected_for(next, Duration::from_secs(4));
        let again = limiter.acquire(1).await;
        let waited = begun.elapsed().as_millis() - waited;
        assert!((2_000..2_010).contains(&waited), "half of it: {waited}");
        // This pause was meant for all calls.
        limiter.rejected_for(again, Duration::from_secs(4));
        limiter.acquire(1).await;
        let waited = begun.elapsed().as_millis() - 2_000;
        assert!(waited >= 3_000, "three quarters of it: {waited}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_retried_call_goes_first() {
        let limiter = limiter(1, None);
        let only = limiter.acquire(1).await;
        let order = Mutex::new(Vec::new());
        let first = |name: &'static str| {
            let (limiter, order) = (&limiter, &order);
            async move {
                let permit = limiter.acquire(1).await;
                order.lock().expect("order").push(name);
                limiter.succeeded(permit, 1, 1);
            }
        };
        let again = async {
            let permit = limiter.acquire_again(1).await;
            order.lock().expect("order").push("again");
            limiter.succeeded(permit, 1, 1);
        };
        let release = async { limiter.succeeded(only, 1, 1) };
        tokio::join!(first("first"), first("second"), first("third"), again, release);
        assert_eq!(
            *order.lock().expect("order"),
            ["first", "again", "second", "third"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn heeds_headers() {
        let limiter = limiter(10, None);
        limiter.heed(
            RateHeaders {
                limit_per_minute: Some(6_000.0),
                remaining: Some(0.0),
            },
            RateHeaders::default(),
        );
        let begun = Instant::now();
        limiter.acquire(25).await;
        assert!(begun.elapsed() >= Duration::from_millis(490));
    }
}
