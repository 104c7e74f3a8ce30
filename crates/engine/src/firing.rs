//! Firing: submits the jobs of due schedules.

use std::sync::Arc;
use std::time::Duration;

use gristmill_batching::EndReason;
use gristmill_model::Clock;
use gristmill_model::limits::SCHEDULES_FIRED_MAX;
use gristmill_store::{Fired, Store, StoreError};
use gristmill_worker::HopRecorder;

use crate::events::EventHub;
use crate::housekeeping::log;

/// The longest time between two looks at the schedules, because another process may have put one that is due soon.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Submits the jobs of due schedules.
pub(crate) async fn fire(
    store: &dyn Store,
    events: &EventHub,
    hops: &HopRecorder,
) -> Result<Fired, StoreError> {
    let fired = store.fire_schedules(SCHEDULES_FIRED_MAX).await?;
    if fired.jobs > 0 {
        let full = fired.schedules >= u64::from(SCHEDULES_FIRED_MAX);
        hops.record(
            "schedule",
            fired.jobs,
            if full { EndReason::Full } else { EndReason::Drained },
        );
        events.wake();
    }
    Ok(fired)
}

/// Fires due schedules until it is aborted. It logs an error, and the next round retries.
pub(crate) async fn keep(store: Arc<dyn Store>, clock: Arc<dyn Clock>, events: EventHub, hops: HopRecorder) {
    loop {
        let wait = match fire(&*store, &events, &hops).await {
            Ok(fired) => fired.next_at.map_or(LOOK_EVERY, |next_at| {
                Duration::from_millis(next_at.since_ms(clock.now()).max(0).unsigned_abs()).min(LOOK_EVERY)
            }),
            Err(error) => {
                log(&error, "firing schedules failed; trying again soon");
                LOOK_EVERY
            }
        };
        tokio::time::sleep(wait).await;
    }
}
