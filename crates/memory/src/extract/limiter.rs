//! One limiter for all model calls of a run: how many at once, how many requests and tokens a minute, and when to
//! pause.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as Turnstile, Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// The part of a minute's tokens or requests that may be used at once.
const BURST_SECONDS: f64 = 1.0;

/// No pause is longer than this, whatever a service says.
const PAUSE_MAX: Duration = Duration::from_secs(120);

/// Tokens of answers for each token of text, before the first answer: knowledge in JSON is longer than its text.
const OUTPUT_SHARE_FIRST: f64 = 3.0;

/// How much the latest answer counts in the estimate of the next one's tokens.
const OUTPUT_SHARE_WEIGHT: f64 = 0.05;

/// What a service allows, as far as it is known beforehand. Rate-limit headers tell the rest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LimiterSettings {
    /// Calls at once at most.
    pub concurrency: usize,
    /// Tokens a minute, both ways.
    pub tokens_per_minute: Option<f64>,
    /// Requests a minute.
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

/// Lets calls through. Cheap to clone; all clones are one.
///
/// Calls pass in the order in which they came: a turnstile lets one at a time wait for the pause to end, for tokens
/// and for a slot. A slot is held by a call alone, never by one that waits.
#[derive(Debug, Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    concurrency: usize,
    slots: Arc<Semaphore>,
    turnstile: Turnstile<()>,
    state: Mutex<State>,
    /// The pause was lifted.
    lifted: Notify,
}

#[derive(Debug)]
struct State {
    /// Slots that there are at present.
    slots: usize,
    pause: Option<Pause>,
    tokens: Option<Bucket>,
    requests: Option<Bucket>,
    output_share: f64,
    rejected: u64,
}

/// Nobody begins a call before `until`, unless one that was begun after the first rejected one succeeds: then the
/// rejections were not meant for all.
#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Instant,
    rejected_begun_at: Instant,
}

/// A slot, while a call is under way.
#[derive(Debug)]
pub struct Permit {
    slot: OwnedSemaphorePermit,
    begun_at: Instant,
    estimated_tokens: f64,
}

/// What the headers of an answer tell about one kind of limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RateHeaders {
    /// How many a minute.
    pub limit_per_minute: Option<f64>,
    /// How many are left now.
    pub remaining: Option<f64>,
}

impl Limiter {
    /// A limiter that has let nothing through yet.
    pub fn new(settings: LimiterSettings) -> Limiter {
        let concurrency = settings.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        let now = Instant::now();
        Limiter {
            shared: Arc::new(Shared {
                concurrency,
                slots: Arc::new(Semaphore::new(concurrency)),
                turnstile: Turnstile::new(()),
                state: Mutex::new(State {
                    slots: concurrency,
                    pause: None,
                    tokens: settings.tokens_per_minute.map(|limit| Bucket::new(limit, now)),
                    requests: settings.requests_per_minute.map(|limit| Bucket::new(limit, now)),
                    output_share: OUTPUT_SHARE_FIRST,
                    rejected: 0,
                }),
                lifted: Notify::new(),
            }),
        }
    }

    /// Calls at once at most.
    pub fn concurrency(&self) -> usize {
        self.shared.concurrency
    }

    /// Calls that were rejected so far.
    pub fn rejected(&self) -> u64 {
        self.state().rejected
    }

    /// Waits until a call with a prompt of so many tokens may begin.
    pub async fn acquire(&self, prompt_tokens: u64) -> Permit {
        let _turn = self.shared.turnstile.lock().await;
        loop {
            let lifted = self.shared.lifted.notified();
            match self.wait_for(prompt_tokens) {
                Some(Wait::Pause(until)) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(until) => {}
                        () = lifted => {}
                    }
                    continue;
                }
                Some(Wait::Tokens(until)) => {
                    tokio::time::sleep_until(until).await;
                    continue;
                }
                None => {}
            }
            // The semaphore is never closed.
            let Ok(slot) = self.shared.slots.clone().acquire_owned().await else {
                continue;
            };
            // While it waited for the slot, others may have been told to pause.
            if self.wait_for(prompt_tokens).is_none() {
                return self.begin(slot, prompt_tokens);
            }
        }
    }

    /// The call was answered, with this many tokens both ways.
    pub fn succeeded(&self, permit: Permit, input_tokens: u64, output_tokens: u64) {
        let mut state = self.state();
        if input_tokens > 0 {
            let share = output_tokens as f64 / input_tokens as f64;
            state.output_share += OUTPUT_SHARE_WEIGHT * (share - state.output_share);
            if let Some(tokens) = &mut state.tokens {
                tokens.take((input_tokens + output_tokens) as f64 - permit.estimated_tokens);
            }
        }
        if state
            .pause
            .is_some_and(|pause| permit.begun_at > pause.rejected_begun_at)
        {
            state.pause = None;
            self.shared.lifted.notify_waiters();
        }
        // Back to as many slots as there were, one with every success.
        if state.slots < self.shared.concurrency {
            state.slots += 1;
            self.shared.slots.add_permits(1);
        }
        drop(permit.slot);
    }

    /// The call was rejected, or failed in a way that more of the same would make worse: everybody pauses, and there
    /// is one slot fewer until calls succeed again.
    pub fn rejected_for(&self, permit: Permit, pause: Duration) {
        let mut state = self.state();
        state.rejected += 1;
        let until = Instant::now() + pause.min(PAUSE_MAX);
        state.pause = Some(match state.pause {
            Some(known) => Pause {
                until: known.until.max(until),
                rejected_begun_at: known.rejected_begun_at.min(permit.begun_at),
            },
            None => Pause {
                until,
                rejected_begun_at: permit.begun_at,
            },
        });
        if let Some(tokens) = &mut state.tokens {
            tokens.take(-permit.estimated_tokens);
        }
        if state.slots > 1 && state.slots * 2 > self.shared.concurrency {
            state.slots -= 1;
            permit.slot.forget();
        }
    }

    /// Takes what an answer's headers tell. Limits from the settings are kept.
    pub fn heed(&self, tokens: RateHeaders, requests: RateHeaders) {
        let mut state = self.state();
        Bucket::heed(&mut state.tokens, tokens);
        Bucket::heed(&mut state.requests, requests);
    }

    fn begin(&self, slot: OwnedSemaphorePermit, prompt_tokens: u64) -> Permit {
        let mut state = self.state();
        let estimated_tokens = state.estimate(prompt_tokens);
        if let Some(tokens) = &mut state.tokens {
            tokens.take(estimated_tokens);
        }
        if let Some(requests) = &mut state.requests {
            requests.take(1.0);
        }
        Permit {
            slot,
            begun_at: Instant::now(),
            estimated_tokens,
        }
    }

    /// What a call has to wait for.
    fn wait_for(&self, prompt_tokens: u64) -> Option<Wait> {
        let mut state = self.state();
        let now = Instant::now();
        if let Some(pause) = state.pause {
            if pause.until > now {
                return Some(Wait::Pause(pause.until));
            }
            state.pause = None;
        }
        let estimated = state.estimate(prompt_tokens);
        let tokens = state
            .tokens
            .as_mut()
            .and_then(|bucket| bucket.full_at(estimated, now));
        let requests = state
            .requests
            .as_mut()
            .and_then(|bucket| bucket.full_at(1.0, now));
        tokens.max(requests).map(Wait::Tokens)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn estimate(&self, prompt_tokens: u64) -> f64 {
        prompt_tokens as f64 * (1.0 + self.output_share)
    }
}

enum Wait {
    Pause(Instant),
    Tokens(Instant),
}

/// A token bucket.
#[derive(Debug)]
struct Bucket {
    per_second: f64,
    level: f64,
    at: Instant,
}

impl Bucket {
    fn new(per_minute: f64, now: Instant) -> Bucket {
        let per_second = (per_minute / 60.0).max(1e-3);
        Bucket {
            per_second,
            level: per_second * BURST_SECONDS,
            at: now,
        }
    }

    fn fill(&mut self, now: Instant) {
        let filled = self.level + (now - self.at).as_secs_f64() * self.per_second;
        self.level = filled.min(self.per_second * BURST_SECONDS);
        self.at = now;
    }

    fn take(&mut self, amount: f64) {
        self.level -= amount;
    }

    /// When there will be `amount`, or the bucket full where that is less; `None` for now.
    fn full_at(&mut self, amount: f64, now: Instant) -> Option<Instant> {
        self.fill(now);
        let missing = amount.min(self.per_second * BURST_SECONDS) - self.level;
        (missing > 1e-9).then(|| now + Duration::from_secs_f64((missing / self.per_second).min(3_600.0)))
    }

    fn heed(bucket: &mut Option<Bucket>, headers: RateHeaders) {
        let now = Instant::now();
        if bucket.is_none() {
            *bucket = headers
                .limit_per_minute
                .filter(|limit| *limit > 0.0)
                .map(|limit| Bucket::new(limit, now));
        }
        if let (Some(bucket), Some(remaining)) = (bucket, headers.remaining) {
            bucket.fill(now);
            bucket.level = bucket.level.min(remaining);
        }
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
    async fn lets_so_many_through_at_once() {
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
        // 100 calls of 400 tokens at 1,000 a second, of which one second's worth is there at once.
        let seconds = begun.elapsed().as_secs_f64();
        assert!((38.0..41.0).contains(&seconds), "{seconds}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_rejection_pauses_everybody() {
        let limiter = limiter(10, None);
        let begun = Instant::now();
        let early = limiter.acquire(1).await;
        tokio::time::advance(Duration::from_millis(10)).await;
        let rejected = limiter.acquire(1).await;
        limiter.rejected_for(rejected, Duration::from_secs(5));
        // It began before the rejected one: it tells nothing about now.
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
