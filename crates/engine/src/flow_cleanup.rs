//! Begins to clean up after cancelled flows: by new instances, each of which has all steps of its flow and is told of the cancel.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use gristmill_model::positions::by_batch;
use gristmill_model::{BatchId, JobId, Positions};
use gristmill_store::{BatchPositions, CleanupBatch, DueCleanup, Store, StoreError};
use gristmill_worker::flow::{CannotFork, cleanup_memo};

use crate::events::EventHub;
use crate::flow_fork::{FlowRead, FlowsRead, Pending};
use crate::housekeeping::log;

/// The pause between two looks at the cancelled flows. A cleanup begins so much later than it could.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The rows of cancelled flows that one look finds. Each has up to a batch of them.
const ROWS_PER_LOOK: u32 = 100;

/// Begins the cleanups that are due until it is aborted. It logs an error, and the next round retries.
pub(crate) async fn keep(store: Arc<dyn Store>, events: EventHub, lease_lost_after_ms: i64) {
    loop {
        match begin(&*store, lease_lost_after_ms).await {
            Ok(0) => {}
            Ok(_) => events.wake(),
            // The housekeeping logs this error.
            Err(StoreError::Moved { .. }) => {}
            Err(error) => log(
                &error,
                "cleaning up after cancelled flows failed; trying again soon",
            ),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Begins the cleanups that are due. Returns how many. A worker learns of a cancel by its next heartbeat, and after `lease_lost_after_ms`
/// others have the jobs of a silent one: until then, no cleanup begins for a flow that ran, or whose step did.
pub(crate) async fn begin(store: &dyn Store, lease_lost_after_ms: i64) -> Result<u64, StoreError> {
    let mut begun = 0;
    loop {
        let ran_before = store.now().plus_ms(-lease_lost_after_ms);
        let due = store.cleanups_due(ran_before, ROWS_PER_LOOK).await?;
        // Flows of one batch are read together.
        let mut by_time: BTreeMap<u64, BTreeMap<BatchId, Positions>> = BTreeMap::new();
        for DueCleanup { flows, within_ms } in due {
            let of_time = by_time.entry(within_ms).or_default();
            let all = of_time.entry(flows.batch).or_default();
            *all = all.union(&flows.positions);
        }
        let mut round = Round::default();
        for (within_ms, flows) in by_time {
            let flows = flows.into_iter().map(BatchPositions::from);
            round.begin(store, flows.collect(), within_ms).await?;
        }
        begun += round.begun;
        // Another process begins the flows that are still due.
        if !round.is_over {
            return Ok(begun);
        }
    }
}

/// The effect of one round.
#[derive(Debug, Default)]
struct Round {
    /// Cleanups that it has begun.
    begun: u64,
    /// Whether it has ended the wait of some flows: another round can find others.
    is_over: bool,
}

impl Round {
    async fn begin(
        &mut self,
        store: &dyn Store,
        flows: VecDeque<BatchPositions>,
        within_ms: u64,
    ) -> Result<(), StoreError> {
        let mut flows = FlowsRead::of(store, flows);
        let mut pending = None;
        loop {
            let some = match flows.next().await {
                Ok(Some(some)) => some,
                Ok(None) => break,
                // One flow of the portion is damaged. Each is read by itself, so that it holds up no other flow.
                Err(error @ StoreError::Damaged { .. }) => {
                    if let Some(flow) = flows.split_last_read() {
                        self.give_up(store, flow, &error).await?;
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            for FlowRead {
                flow,
                details,
                suspensions,
                outcomes,
            } in some
            {
                let memos: Vec<&str> = suspensions.iter().map(|step| step.memo.as_str()).collect();
                match (cleanup_memo(flow, &memos, outcomes), details) {
                    (Ok(memo), Some(mut details)) => {
                        // It has a limit of its own.
                        details.options.complete_within_ms = None;
                        if let Some(full) = Pending::add(&mut pending, flow, &details, None, &memo)? {
                            self.store(store, full, within_ms).await?;
                        }
                    }
                    (memo, _) => {
                        let reason = memo.err().unwrap_or(CannotFork::Unknown);
                        self.give_up(store, flow, &reason).await?;
                    }
                }
            }
        }
        match pending {
            Some(rest) => self.store(store, rest, within_ms).await,
            None => Ok(()),
        }
    }

    async fn store(&mut self, store: &dyn Store, full: Pending, within_ms: u64) -> Result<(), StoreError> {
        let (batch, origins) = full.finish();
        let count = origins.len() as u64;
        let flows = by_batch(origins).into_iter().map(BatchPositions::from);
        let cleanup = CleanupBatch { batch, within_ms };
        if store.begin_cleanups(flows.collect(), Some(cleanup)).await? {
            self.begun += count;
            self.is_over = true;
        }
        Ok(())
    }

    /// Nothing can clean up after a flow. Others are not held up by it.
    async fn give_up(
        &mut self,
        store: &dyn Store,
        flow: JobId,
        reason: &(dyn std::fmt::Display + Sync),
    ) -> Result<(), StoreError> {
        tracing::error!(%flow, %reason, "nothing cleans up after this cancelled flow; fork or retry it, or clean up by hand");
        let only = by_batch([flow]).into_iter().map(BatchPositions::from);
        self.is_over |= store.begin_cleanups(only.collect(), None).await?;
        Ok(())
    }
}
