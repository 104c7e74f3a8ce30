//! The engine: a store and the operations of a program on it.

use std::path::Path;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use gristmill_batching::EndReason;
use gristmill_model::limits::{BATCH_BYTES_TARGET, SUBMIT_BATCH_JOBS};
use gristmill_model::{
    After, BatchId, BatchLimits, BatchOptions, Clock, JobId, JobState, KeyedBatch, NewBatch, PackedArray,
    PackedCutter, Unique,
};
use gristmill_store::{
    Change, Changed, EventCursor, FlowEvent, FlowEventReceipt, JobDetails, JobFilter, Rescued, RunAdvance,
    Selection, Store, StoreError, SubmittedJobs,
};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};
use gristmill_worker::HopRecorder;
use gristmill_worker::spans::SubmitSpans;
use tokio::task::JoinHandle;

use crate::error::EngineError;
use crate::events::{EventHub, Events};
use crate::expiry;
use crate::firing;
use crate::flow_cleanup;
use crate::housekeeping;
use crate::kind::{Kind, packed, refused};
use crate::portions::Portions;
use crate::settings::EngineSettings;
use crate::work::WorkerBuilder;

/// The embedded job engine. It is cheap to clone. All clones are one engine.
#[derive(Debug, Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    settings: EngineSettings,
    events: EventHub,
    hops: HopRecorder,
    housekeeping: Vec<JoinHandle<()>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.housekeeping.iter().for_each(JoinHandle::abort);
    }
}

impl Engine {
    /// Opens the SQLite store at `path`, or makes it, with every acknowledged write on disk.
    pub async fn open(path: &Path) -> Result<Engine, EngineError> {
        let store = SqliteStore::open(path, SqliteOptions::default())?;
        Engine::new(Arc::new(store), EngineSettings::default()).await
    }

    /// An engine over a store. Jobs of workers of this machine that have died are claimable again at once.
    /// Must be called within a tokio runtime.
    pub async fn new(store: Arc<dyn Store>, settings: EngineSettings) -> Result<Engine, EngineError> {
        let hops = HopRecorder::default();
        let events = EventHub::new();
        let mut housekeeping = Vec::new();
        if settings.housekeeping {
            match housekeeping::rescue(&*store, &settings).await {
                // Other processes do the housekeeping of a store that is read-only here.
                Err(error) if !error.is_read_only() => return Err(error.into()),
                _ => {}
            }
            let kept = housekeeping::keep(store.clone(), settings.clone(), hops.clone());
            housekeeping.push(tokio::spawn(kept));
            let kept = expiry::keep(store.clone(), events.clone(), housekeeping::round(&settings));
            housekeeping.push(tokio::spawn(kept));
            let kept = flow_cleanup::keep(store.clone(), events.clone(), settings.lease_lost_after_ms);
            housekeeping.push(tokio::spawn(kept));
            let (clock, events) = (settings.clock.clone(), events.clone());
            let kept = firing::keep(store.clone(), clock, events, hops.clone());
            housekeeping.push(tokio::spawn(kept));
        }
        Ok(Engine {
            shared: Arc::new(Shared {
                store,
                settings,
                events,
                hops,
                housekeeping,
            }),
        })
    }

    /// The engine's store, for queries and runs.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// The engine's clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.settings.clock
    }

    /// The time without a heartbeat after which the store releases a worker's jobs. Milliseconds.
    pub fn lease_lost_after_ms(&self) -> i64 {
        self.shared.settings.lease_lost_after_ms
    }

    /// Begins to clean up after cancelled flows. Housekeeping also does this by itself. Returns how many instances it has begun.
    ///
    /// # Errors
    ///
    /// The store fails.
    pub async fn begin_cleanups(&self) -> Result<u64, EngineError> {
        let begun = flow_cleanup::begin(&**self.store(), self.lease_lost_after_ms()).await?;
        if begun > 0 {
            self.shared.events.wake();
        }
        Ok(begun)
    }

    pub(crate) fn event_hub(&self) -> &EventHub {
        &self.shared.events
    }

    pub(crate) fn hops(&self) -> &HopRecorder {
        &self.shared.hops
    }

    // --- submitting ---

    /// Submits one job with its kind's options. Concurrent calls are packed into one batch.
    pub async fn submit<K: Kind>(&self, payload: &K::Payload) -> Result<JobId, EngineError> {
        self.submit_with::<K>(payload, K::options()).await
    }

    /// Submits one job with options of its own.
    pub async fn submit_with<K: Kind>(
        &self,
        payload: &K::Payload,
        options: BatchOptions,
    ) -> Result<JobId, EngineError> {
        let job = single::<K>(payload)?;
        self.submit_one(NewBatch { options, ..job }).await
    }

    /// Submits one job that cannot be claimed before others have ended.
    pub async fn submit_after<K: Kind>(
        &self,
        payload: &K::Payload,
        after: Vec<After>,
    ) -> Result<JobId, EngineError> {
        let job = single::<K>(payload)?;
        self.submit_one(NewBatch { after, ..job }).await
    }

    /// Submits one untyped job: a batch of one.
    pub async fn submit_one(&self, mut job: NewBatch) -> Result<JobId, EngineError> {
        let spans = SubmitSpans::begin(std::slice::from_mut(&mut job));
        let id = self.shared.store.submit_one(job).await?;
        spans.end([Some(id.batch)]);
        self.shared.events.wake();
        Ok(id)
    }

    /// Submits many jobs, all or none, in batches of up to 1,000, and returns their ids in order.
    pub async fn submit_many<'a, K>(
        &self,
        payloads: impl IntoIterator<Item = &'a K::Payload>,
    ) -> Result<Vec<JobId>, EngineError>
    where
        K: Kind,
        K::Payload: 'a,
    {
        let payloads = PackedCutter::cut_values(BatchLimits::default(), payloads).map_err(refused::<K>)?;
        let batches: Vec<NewBatch> = payloads.into_iter().map(batch::<K>).collect();
        let counts: Vec<u32> = batches.iter().map(|batch| batch.payloads.count()).collect();
        let ids = self.submit_batches(batches).await?;
        Ok(ids
            .into_iter()
            .zip(counts)
            .flat_map(|(batch, count)| job_ids(batch, count))
            .collect())
    }

    /// Submits the payloads of a stream, one batch at a time, and returns the number of jobs. Only one batch is in
    /// memory. If it fails, the earlier batches are submitted.
    pub async fn submit_stream<K: Kind>(
        &self,
        payloads: impl Stream<Item = K::Payload>,
    ) -> Result<u64, EngineError> {
        let mut payloads = std::pin::pin!(payloads);
        let mut cutter = PackedCutter::new(BatchLimits::default());
        let mut submitted = 0;
        loop {
            let next = payloads.next().await;
            let full = match &next {
                Some(payload) => cutter.push_value(payload).map_err(refused::<K>)?,
                None => cutter.rest(),
            };
            if let Some(full) = full {
                submitted += u64::from(full.count());
                self.submit_batches(vec![batch::<K>(full)]).await?;
            }
            if next.is_none() {
                return Ok(submitted);
            }
        }
    }

    /// Submits untyped batches, all or none.
    pub async fn submit_batches(&self, batches: Vec<NewBatch>) -> Result<Vec<BatchId>, EngineError> {
        let with_end = |batch: NewBatch| {
            let end = end_reason(&batch.payloads);
            (batch, end)
        };
        self.submit_step(batches.into_iter().map(with_end).collect(), None)
            .await
    }

    /// Submits untyped batches, all or none, each with the reason why it is no larger, and moves a run's position in its input
    /// with them.
    pub async fn submit_step(
        &self,
        batches: Vec<(NewBatch, EndReason)>,
        advance: Option<RunAdvance>,
    ) -> Result<Vec<BatchId>, EngineError> {
        let ends: Vec<(u32, EndReason)> = batches
            .iter()
            .map(|(batch, end)| (batch.payloads.count(), *end))
            .collect();
        let mut batches: Vec<NewBatch> = batches.into_iter().map(|(batch, _)| batch).collect();
        let spans = SubmitSpans::begin(&mut batches);
        let ids = self.shared.store.submit(batches, advance).await?;
        assert_eq!(ids.len(), ends.len(), "each batch has an id");
        spans.end(ids.iter().copied().map(Some));
        for (jobs, end_reason) in ends {
            self.shared.hops.record("submit", u64::from(jobs), end_reason);
        }
        self.shared.events.wake();
        Ok(ids)
    }

    /// Submits one job with a deduplication key, and its kind's options. Returns its id, or the id of the job that
    /// stands for it.
    pub async fn submit_unique<K: Kind>(
        &self,
        payload: &K::Payload,
        key: &str,
        unique: Unique,
    ) -> Result<JobId, EngineError> {
        let batch = KeyedBatch::with_keys(single::<K>(payload)?, [key].into_iter(), unique)?;
        let submitted = self.submit_keyed(vec![batch]).await?;
        let job = submitted.first().and_then(|submitted| submitted.jobs.first());
        job.copied()
            .ok_or_else(|| StoreError::Database("a submit was left without an answer".to_owned()).into())
    }

    /// Submits batches whose jobs have deduplication keys, all or none.
    pub async fn submit_keyed(
        &self,
        mut batches: Vec<KeyedBatch>,
    ) -> Result<Vec<SubmittedJobs>, EngineError> {
        let ends: Vec<EndReason> = batches
            .iter()
            .map(|batch| end_reason(&batch.batch.payloads))
            .collect();
        let spans = SubmitSpans::begin(&mut batches);
        let submitted = self.shared.store.submit_keyed(batches).await?;
        assert_eq!(submitted.len(), ends.len(), "each batch has an answer");
        spans.end(submitted.iter().map(|submitted| submitted.batch));
        for (submitted, end_reason) in submitted.iter().zip(ends) {
            if submitted.batch.is_some() {
                let jobs = u64::from(submitted.count);
                self.shared.hops.record("submit", jobs, end_reason);
            }
        }
        self.shared.events.wake();
        Ok(submitted)
    }

    /// Sends events to flows, in one transaction. Returns one receipt for each event, in the same order.
    pub async fn send_events(&self, events: Vec<FlowEvent>) -> Result<Vec<FlowEventReceipt>, EngineError> {
        let sent = events.len();
        let receipts = self.shared.store.send_events(events).await?;
        assert_eq!(receipts.len(), sent, "each event has a receipt");
        self.shared.events.wake();
        Ok(receipts)
    }

    // --- running ---

    /// A worker on this engine's store, without handlers yet.
    pub fn worker(&self) -> WorkerBuilder {
        WorkerBuilder::new(
            self.shared.store.clone(),
            self.clock().clone(),
            self.shared.events.clone(),
            self.lease_lost_after_ms(),
        )
    }

    // --- changing and asking ---

    /// Changes jobs. Jobs by id are changed in one transaction, and jobs of a filter in [portions](Portions).
    pub async fn change(&self, selection: Selection, change: Change) -> Result<Changed, EngineError> {
        let changed = match selection {
            Selection::Filter(filter) => Changed {
                changed: self.portions(filter, change).await?.change_all().await?,
                unchanged: 0,
            },
            selection => self.shared.store.change(selection, change).await?,
        };
        self.shared.events.wake();
        Ok(changed)
    }

    /// Starts a change of all matching jobs, for a caller that shows its progress or ends it early.
    pub async fn portions(&self, filter: JobFilter, change: Change) -> Result<Portions, EngineError> {
        Ok(Portions::of(self.shared.store.clone(), filter, change).await?)
    }

    /// All data of one job.
    pub async fn job(&self, id: JobId) -> Result<Option<JobDetails>, EngineError> {
        Ok(self.shared.store.job(id).await?)
    }

    /// The value of a completed job. `None` if the job has not completed, or is unknown.
    pub async fn value<K: Kind>(&self, id: JobId) -> Result<Option<K::Value>, EngineError> {
        let Some(details) = self.job(id).await? else {
            return Ok(None);
        };
        match (details.row.state, &details.value) {
            (JobState::Completed, Some(value)) => {
                serde_json::from_str(value.get())
                    .map(Some)
                    .map_err(|error| EngineError::Type {
                        what: "value",
                        kind: K::NAME,
                        reason: error.to_string(),
                    })
            }
            (state, _) if state.is_final() => Err(EngineError::NotCompleted {
                job: id,
                state,
                error: details.failures.into_iter().last().map(|failure| failure.error),
            }),
            _ => Ok(None),
        }
    }

    /// Events after a cursor, or from now on, of all processes that use the store, in commit order. Events are kept for
    /// an hour after the last listener. A listener with an older cursor first gets
    /// [`Missed`](gristmill_store::Event::Missed).
    pub async fn events(&self, after: Option<EventCursor>) -> Result<Events, EngineError> {
        self.shared.events.listen(self.shared.store.clone(), after).await
    }

    /// Wakes listeners for events, because something changed the store without this engine.
    pub fn wake_listeners(&self) {
        self.shared.events.wake();
    }

    /// Makes the jobs of dead or silent workers claimable again now. Housekeeping also does this by itself.
    pub async fn rescue(&self) -> Result<Rescued, EngineError> {
        Ok(housekeeping::rescue(&*self.shared.store, &self.shared.settings).await?)
    }

    /// Closes the store. Workers must have been stopped.
    pub async fn close(&self) -> Result<(), EngineError> {
        self.shared.housekeeping.iter().for_each(JoinHandle::abort);
        match self.shared.store.record(self.shared.hops.take()).await {
            Err(error) if !error.is_read_only() => Err(error.into()),
            _ => Ok(self.shared.store.close().await?),
        }
    }
}

/// Returns why a batch of the default size is no larger.
pub fn end_reason(payloads: &PackedArray) -> EndReason {
    if payloads.as_str().len() >= BATCH_BYTES_TARGET {
        EndReason::Bytes
    } else if payloads.count() >= SUBMIT_BATCH_JOBS {
        EndReason::Full
    } else {
        EndReason::Drained
    }
}

/// Jobs of a kind with its options.
fn batch<K: Kind>(payloads: PackedArray) -> NewBatch {
    NewBatch {
        queue: K::QUEUE.to_owned(),
        options: K::options(),
        ..NewBatch::new(K::NAME, payloads)
    }
}

/// One job of a kind with its options.
fn single<K: Kind>(payload: &K::Payload) -> Result<NewBatch, EngineError> {
    packed::<K>(payload).map(batch::<K>)
}

fn job_ids(batch: BatchId, count: u32) -> impl Iterator<Item = JobId> {
    (0..count).map(move |position| JobId { batch, position })
}
