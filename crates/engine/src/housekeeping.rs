//! Background work: rescue, compaction, retention.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_model::WorkerId;
use gristmill_model::limits::REPORTS_LEFT_MAX;
use gristmill_store::{PruneOptions, Rescued, Store, StoreError};

use gristmill_worker::HopRecorder;

use crate::process;
use crate::settings::EngineSettings;

/// The number of rounds in the time after which a silent worker's leases are lost. The jobs of a dead worker wait for
/// that time and one round: 17.5 s with the usual 15 s.
const ROUNDS_PER_LEASE: u64 = 6;

/// The interval of compacting the small reports of ended batches.
const COMPACT_EVERY: Duration = Duration::from_secs(20);

/// The interval of pruning old batches.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// Makes the jobs of dead or silent workers claimable again.
pub(crate) async fn rescue(store: &dyn Store, settings: &EngineSettings) -> Result<Rescued, StoreError> {
    let silent_before = store.now().plus_ms(-settings.lease_lost_after_ms);
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

/// The time between two rounds.
pub(crate) fn round(settings: &EngineSettings) -> Duration {
    let every_ms = settings.lease_lost_after_ms.unsigned_abs() / ROUNDS_PER_LEASE;
    Duration::from_millis(every_ms.max(1))
}

/// Runs housekeeping until it is aborted. It logs an error, and the next round retries.
pub(crate) async fn keep(store: Arc<dyn Store>, settings: EngineSettings, hops: HopRecorder) {
    let mut ticks = tokio::time::interval(round(&settings));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut pruned_at: Option<Instant> = None;
    let mut compacted_at = Instant::now();
    loop {
        ticks.tick().await;
        if let Err(error) = rescue(&*store, &settings).await {
            if matches!(error, StoreError::Moved { .. }) {
                tracing::error!(%error);
                continue;
            }
            log(&error, "rescuing dead workers' jobs failed; trying again soon");
        }
        let moved = hops.take();
        if let Err(error) = store.record(moved.clone()).await {
            hops.give_back(&moved);
            log(&error, "the batch statistics were not stored; trying again soon");
        }
        if compacted_at.elapsed() >= COMPACT_EVERY {
            compacted_at = Instant::now();
            if let Err(error) = store.compact(REPORTS_LEFT_MAX).await {
                log(&error, "compacting reports failed; trying again later");
            }
        }
        let is_due = pruned_at.is_none_or(|at| at.elapsed() >= PRUNE_EVERY);
        if let Some(retention) = settings.retention.filter(|_| is_due) {
            pruned_at = Some(Instant::now());
            let options = PruneOptions {
                finished_before: settings.clock.now().plus_ms(-retention.age_ms),
                keep_batches: retention.keep_batches,
                dead_too: false,
                dry_run: false,
            };
            if let Err(error) = store.prune(options).await {
                log(&error, "pruning failed; trying again later");
            }
        }
    }
}

/// Logs an error of background work. For a read-only store, such as a dashboard's, the error is expected.
pub(crate) fn log(error: &StoreError, what: &str) {
    if error.is_read_only() {
        tracing::debug!(%error, "{what}")
    } else {
        tracing::warn!(%error, "{what}")
    }
}
