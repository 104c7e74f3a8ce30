//! What is done in the background: rescue, expiry, retention.

use std::sync::Arc;
use std::time::Duration;

use gristmill_model::limits::LEASE_LOST_AFTER_MS;
use gristmill_model::{Clock, WorkerId};
use gristmill_store::{PruneOptions, Rescued, Store, StoreError};

use gristmill_worker::HopRecorder;

use crate::engine::Retention;
use crate::process;

/// How often the house is kept. With [`LEASE_LOST_AFTER_MS`] it bounds how long a dead worker's jobs wait.
const EVERY: Duration = Duration::from_secs(4);

/// Every so many rounds, old batches are pruned.
const PRUNE_EVERY_ROUNDS: u32 = 15;

/// Makes the jobs of workers that are dead or silent claimable again.
pub(crate) async fn rescue(store: &dyn Store, clock: &dyn Clock) -> Result<Rescued, StoreError> {
    let silent_before = clock.now().plus_ms(-LEASE_LOST_AFTER_MS);
    let workers = store.workers().await?;
    let dead: Vec<WorkerId> = workers
        .iter()
        .filter(|row| process::has_ended(row))
        .map(|row| row.id)
        .collect();
    if dead.is_empty() && workers.iter().all(|row| row.heartbeat_at >= silent_before) {
        return Ok(Rescued::default());
    }
    let rescued = store.rescue(silent_before, dead).await?;
    if !rescued.workers.is_empty() {
        tracing::info!(
            workers = rescued.workers.len(),
            jobs = rescued.jobs,
            dead = rescued.dead,
            "rescued the jobs of workers that ended"
        );
    }
    Ok(rescued)
}

/// Keeps the house until it is aborted. An error is told and the next round tries again.
pub(crate) async fn keep(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    retention: Option<Retention>,
    hops: HopRecorder,
) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut round = 0u32;
    loop {
        ticks.tick().await;
        if let Err(error) = rescue(&*store, &*clock).await {
            tracing::warn!(%error, "rescuing dead workers' jobs failed; trying again soon");
        }
        if let Err(error) = store.expire().await {
            tracing::warn!(%error, "expiring jobs failed; trying again soon");
        }
        let moved = hops.take();
        if let Err(error) = store.record(moved.clone()).await {
            hops.give_back(&moved);
            tracing::warn!(%error, "the batch statistics were not stored; trying again soon");
        }
        if let Some(retention) = retention.filter(|_| round.is_multiple_of(PRUNE_EVERY_ROUNDS)) {
            let options = PruneOptions {
                finished_before: clock.now().plus_ms(-retention.age_ms),
                keep_batches: retention.keep_batches,
                dead_too: false,
                dry_run: false,
            };
            if let Err(error) = store.prune(options).await {
                tracing::warn!(%error, "pruning failed; trying again later");
            }
        }
        round = round.wrapping_add(1);
    }
}
