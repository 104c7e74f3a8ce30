//! Expiry: jobs end at their moments. These are jobs that nobody starts in time, and the sleeps and events of flows.

use std::sync::Arc;
use std::time::Duration;

use gristmill_store::{Store, StoreError};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::events::EventHub;
use crate::housekeeping::log;

/// The pause between two looks at the next moment, and between two rounds. A flow wakes so much too late.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Ends jobs at their moments until it is aborted. Without a moment, it looks again after `every`, or when this process
/// changes something. It logs an error, and the next round retries.
pub(crate) async fn keep(store: Arc<dyn Store>, events: EventHub, every: Duration) {
    let mut changes = events.changes();
    loop {
        let looked_until = Instant::now() + every;
        match store.expire().await {
            Ok(0) => {}
            Ok(_) => events.wake(),
            // The housekeeping logs this error.
            Err(StoreError::Moved { .. }) => {}
            Err(error) => log(&error, "expiring jobs failed; trying again soon"),
        }
        // However many moments are due, they share a round.
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        wait_until_due(&*store, &mut changes, looked_until).await;
    }
}

/// Waits until a job expires, or up to `at_latest`.
async fn wait_until_due(store: &dyn Store, changes: &mut watch::Receiver<u64>, at_latest: Instant) {
    loop {
        changes.mark_unchanged();
        let left = left_until_next(store).await.unwrap_or_else(|error| {
            log(&error, "looking for jobs that expire failed; trying again soon");
            None
        });
        let rest = at_latest.saturating_duration_since(Instant::now());
        let left = left.map_or(rest, |left| left.min(rest));
        if left.is_zero() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(left) => return,
            // A new job may expire before all others.
            _ = changes.changed() => tokio::time::sleep(LOOK_AGAIN_AFTER.min(left)).await,
        }
    }
}

/// The time until the next job expires.
async fn left_until_next(store: &dyn Store) -> Result<Option<Duration>, StoreError> {
    let next = store.next_expiry().await?;
    let left = next.map(|next| next.since_ms(store.now()).max(0).unsigned_abs());
    Ok(left.map(Duration::from_millis))
}
