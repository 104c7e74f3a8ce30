//! Wakes workers of one process that wait for jobs.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// The number of wake-ups that one caller has seen. Each waiter has its own, so that none takes a wake-up from another.
#[derive(Debug, Default)]
pub struct WorkSeen(AtomicU64);

/// Counts the arrivals of work.
#[derive(Debug, Default)]
pub struct WorkCounter(watch::Sender<u64>);

impl WorkCounter {
    /// Records that work has arrived, and wakes all waiters.
    pub fn add(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    /// Whether there are waiters.
    pub fn is_awaited(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Resolves when work has arrived that the caller has not seen.
    pub async fn wait(&self, seen: &WorkSeen) {
        let mut count = self.0.subscribe();
        let before = seen.0.load(Ordering::Acquire);
        // The sender is in `self`, so it exists.
        if let Ok(now) = count.wait_for(|now| *now != before).await {
            seen.0.store(*now, Ordering::Release);
        }
    }
}
