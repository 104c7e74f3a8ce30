//! Wakes workers that wait for jobs in one process.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// How much of the work that came one caller has heard of: each that waits keeps its own, so that none takes the news
/// from another.
#[derive(Debug, Default)]
pub struct WorkSeen(AtomicU64);

/// Counts how often work has come.
#[derive(Debug, Default)]
pub struct WorkCounter(watch::Sender<u64>);

impl WorkCounter {
    /// Work has come: wakes all waiters.
    pub fn add(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    /// Whether anybody waits.
    pub fn is_awaited(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Resolves when work has come that the caller has not heard of.
    pub async fn wait(&self, seen: &WorkSeen) {
        let mut count = self.0.subscribe();
        let before = seen.0.load(Ordering::Acquire);
        // The sender is in `self`, so it is not gone.
        if let Ok(now) = count.wait_for(|now| *now != before).await {
            seen.0.store(*now, Ordering::Release);
        }
    }
}
