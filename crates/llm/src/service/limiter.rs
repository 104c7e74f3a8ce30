//! One limiter for all model calls of a run. It limits the calls at a time, and the requests and tokens a minute, and
//! it decides on pauses.

mod answer_length;
mod bucket;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as Turnstile, Notify, watch};
use tokio::time::Instant;

use answer_length::AnswerLength;
use bucket::Bucket;
pub use bucket::RateHeaders;

tokio::task_local! {
    /// Whether a model call of this task's job runs.
    pub static CALLING: Arc<Calling>;
}

/// Whether a model call runs for a job.
#[derive(Debug, Default)]
pub struct Calling {
    runs: watch::Sender<bool>,
    /// The jobs for which a call of this one counts.
    others: Mutex<Vec<Arc<Calling>>>,
}

impl Calling {
    /// Resolves when no call runs.
    pub async fn rests(&self) {
        // The sender is here, so the wait has an end only in this.
        let _ = self.runs.subscribe().wait_for(|runs| !*runs).await;
    }

    /// Resolves when a call runs.
    pub(crate) async fn begins(&self) {
        let _ = self.runs.subscribe().wait_for(|runs| *runs).await;
    }

    /// Lets the next call count for others as well.
    pub fn counts_for(&self, others: Vec<Arc<Calling>>) {
        *self.others.lock().unwrap_or_else(PoisonError::into_inner) = others;
    }

    /// Notes for the job of this task that its call has ended, and that it waits.
    pub(crate) fn waits() {
        Calling::note(false);
    }

    fn set(&self, runs: bool) {
        self.runs.send_replace(runs);
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        for other in &*others {
            other.runs.send_replace(runs);
        }
    }

    /// Notes for the job of this task whether a call runs. Outside of a job, nobody asks.
    fn note(runs: bool) {
        let _ = CALLING.try_with(|calling| calling.set(runs));
    }
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

/// The factor of the number of slots after a rejection.
const SLOTS_LOST: f64 = 0.5;

/// How many times more slowly slots are added again where the service rejected a call before.
const PROBED_SLOWER: f64 = 4.0;

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
    turnstile_first: Turnstile<()>,
    turnstile_again: Turnstile<()>,
    state: Mutex<State>,
    /// Notified when a pause ends early, a call ends, or there is one slot more.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    /// The present number of slots, with the fraction that successes have added. Additive increase, multiplicative
    /// decrease: a success adds a part of a slot, and a rejection halves them, to one at least.
    slots: f64,
    /// The slots at the last rejection.
    rejected_slots: f64,
    /// The last call that had begun when slots were taken away. Rejections of calls up to it are one event.
    decreased_at: u64,
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
    answered: u64,
}

/// No call begins before `until`, unless a call that began after the first rejected one was admitted. Then the
/// rejections were not meant for all calls.
#[derive(Debug, Clone)]
struct Pause {
    /// The service's words.
    reason: Arc<str>,
    until: Instant,
    /// The number of the first call that was rejected.
    rejected_call: u64,
    /// The time after which a call that was not rejected counts as admitted.
    let_in_after: Duration,
}

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Until(Instant),
    Slot,
}

/// The right of a running call to its slot.
#[derive(Debug)]
pub struct Permit {
    shared: Arc<Shared>,
    call: u64,
    begun_at: Instant,
    estimated_tokens: f64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shared.state().under_way.remove(&self.call);
        self.shared.changed.notify_waiters();
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
        let concurrency = settings.concurrency.max(1);
        let now = Instant::now();
        Limiter {
            shared: Arc::new(Shared {
                concurrency,
                turnstile_first: Turnstile::new(()),
                turnstile_again: Turnstile::new(()),
                state: Mutex::new(State {
                    slots: concurrency as f64,
                    rejected_slots: f64::INFINITY,
                    decreased_at: 0,
                    calls: 0,
                    under_way: BTreeMap::new(),
                    pause: None,
                    trust: 1.0,
                    tokens: settings.tokens_per_minute.map(|limit| Bucket::new(limit, now)),
                    requests: settings.requests_per_minute.map(|limit| Bucket::new(limit, now)),
                    answer_length: AnswerLength::new(),
                    rejected: 0,
                    answered: 0,
                }),
                changed: Notify::new(),
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

    /// Number of answered calls so far.
    pub fn answered(&self) -> u64 {
        self.shared.state().answered
    }

    /// The pause that holds all calls back: for how long, and the service's reason.
    pub fn pause(&self) -> Option<(Duration, Arc<str>)> {
        let state = self.shared.state();
        let pause = state.pause.as_ref().filter(|_| state.under_way.is_empty())?;
        let left = pause.until.checked_duration_since(Instant::now())?;
        Some((left, pause.reason.clone()))
    }

    /// Waits until a call with a prompt of this many tokens may begin.
    pub async fn acquire(&self, prompt_tokens: u64) -> Permit {
        let permit = self.pass(&self.shared.turnstile_first, prompt_tokens).await;
        Calling::note(true);
        permit
    }

    /// Waits until a rejected or failed call may begin again. It precedes calls that have not begun yet.
    pub async fn acquire_again(&self, prompt_tokens: u64) -> Permit {
        let permit = self.pass(&self.shared.turnstile_again, prompt_tokens).await;
        Calling::note(true);
        permit
    }

    async fn pass(&self, turnstile: &Turnstile<()>, prompt_tokens: u64) -> Permit {
        let _turn = turnstile.lock().await;
        loop {
            let changed = self.shared.changed.notified();
            let until = match self.begin(prompt_tokens) {
                Ok(permit) => return permit,
                Err(Wait::Until(at)) => Some(at),
                Err(Wait::Slot) => None,
            };
            match until {
                Some(until) => tokio::select! {
                    () = tokio::time::sleep_until(until) => {}
                    () = changed => {}
                },
                None => changed.await,
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
        state.answered += 1;
        if state
            .pause
            .as_ref()
            .is_some_and(|pause| permit.call > pause.rejected_call)
        {
            state.end_pause(TRUST_LOST);
        }
        let slower = if state.slots + 1.0 > state.rejected_slots {
            PROBED_SLOWER
        } else {
            1.0
        };
        state.slots = (state.slots + 1.0 / (state.slots * slower)).min(self.shared.concurrency as f64);
        drop(state);
        self.shared.changed.notify_waiters();
    }

    /// Records a call that was refused for itself, so that it says nothing about others.
    pub fn refused(&self, permit: Permit) {
        let mut state = self.shared.state();
        if let Some(tokens) = &mut state.tokens {
            tokens.take(-permit.estimated_tokens);
        }
    }

    /// Records a call that was rejected, or that failed so that more calls would make it worse. All calls pause, and
    /// there are half as many slots until calls succeed again. The call itself waits for the whole pause in any case.
    pub fn rejected_for(&self, permit: Permit, pause: Duration, reason: &str) {
        Calling::note(false);
        let now = Instant::now();
        let mut state = self.shared.state();
        state.rejected += 1;
        let new = Pause {
            reason: reason.into(),
            until: now + pause.min(PAUSE_MAX).mul_f64(state.trust),
            rejected_call: permit.call,
            let_in_after: ((now - permit.begun_at) * LET_IN_AFTER).max(LET_IN_AFTER_MIN),
        };
        state.pause = Some(match state.pause.take() {
            Some(known) => Pause {
                reason: new.reason,
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
        if permit.call > state.decreased_at {
            state.rejected_slots = state.slots.floor();
            state.slots = (state.slots * SLOTS_LOST).max(1.0);
            state.decreased_at = state.calls;
        }
    }

    /// Applies the limits in an answer's headers, except for limits from the settings.
    pub fn heed(&self, tokens: RateHeaders, requests: RateHeaders) {
        let now = Instant::now();
        let mut state = self.shared.state();
        Bucket::heed(&mut state.tokens, tokens, now);
        Bucket::heed(&mut state.requests, requests, now);
    }

    /// Begins a call, or says what it has to wait for.
    fn begin(&self, prompt_tokens: u64) -> Result<Permit, Wait> {
        let now = Instant::now();
        let mut state = self.shared.state();
        if let Some(until) = state.wait_for(prompt_tokens, now) {
            return Err(Wait::Until(until));
        }
        if state.under_way.len() >= state.slots as usize {
            return Err(Wait::Slot);
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
        Ok(Permit {
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
        if let Some(pause) = self.pause.clone() {
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
    use std::sync::atomic::Ordering;

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
        limiter.rejected_for(rejected, Duration::from_secs(5), "busy");
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
        limiter.rejected_for(rejected, Duration::from_secs(5), "busy");
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
        limiter.rejected_for(rejected, Duration::from_secs(5), "busy");
        let next = limiter.acquire(1).await;
        let waited = begun.elapsed().as_millis();
        assert!((80..90).contains(&waited), "four times 20 ms: {waited}");
        limiter.succeeded(later, 1, 1);
        // No call began after this one, so nothing speaks against the pause. But the last pause was not meant for all calls.
        limiter.rejected_for(next, Duration::from_secs(4), "busy");
        let again = limiter.acquire(1).await;
        let waited = begun.elapsed().as_millis() - waited;
        assert!((2_000..2_010).contains(&waited), "half of it: {waited}");
        // This pause was meant for all calls.
        limiter.rejected_for(again, Duration::from_secs(4), "busy");
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
        let order = order.into_inner().expect("order");
        // The first call waits already when the retried one comes.
        assert!(order[..2].contains(&"again"), "{order:?}");
        assert_eq!(order[2..], ["second", "third"]);
    }

    #[tokio::test(start_paused = true)]
    async fn slots_fall_to_what_a_service_lets_run() {
        const ADMITTED: usize = 2;
        const CALLS: usize = 100;
        let limiter = limiter(20, None);
        let running = std::sync::atomic::AtomicUsize::new(0);
        let calls = (0..CALLS).map(|_| {
            let (limiter, running) = (&limiter, &running);
            async move {
                let mut permit = limiter.acquire(1).await;
                while running.fetch_add(1, Ordering::SeqCst) >= ADMITTED {
                    running.fetch_sub(1, Ordering::SeqCst);
                    let pause = Duration::from_millis(500);
                    limiter.rejected_for(permit, pause, "busy");
                    tokio::time::sleep(pause).await;
                    permit = limiter.acquire_again(1).await;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                limiter.succeeded(permit, 1, 1);
            }
        });
        futures::future::join_all(calls).await;
        assert_eq!(limiter.answered(), CALLS as u64);
        assert!(limiter.rejected() <= 80, "{}", limiter.rejected());
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
