//! Forks of flows: new instances that have the steps of ended ones up to a step, and go on from there.
//!
//! The forks of many flows are stored as packed batches, in portions: what was stored before an error or an end stays.

use std::collections::{BTreeMap, VecDeque};

use futures::{StreamExt, TryStreamExt};
use gristmill_model::batch::check_name;
use gristmill_model::limits::{BATCH_BYTES_TARGET, BATCH_JOBS_MAX, VALUE_BYTES_MAX};
use gristmill_model::positions::by_batch;
use gristmill_model::{BatchOptions, JobId, JobState, NewBatch, PackedBuilder, Positions, Tag};
use gristmill_store::family::ChildReader;
use gristmill_store::{
    BatchPositions, ChildOutcome, JobDetails, JobFilter, Selection, Store, StoreError, Suspension,
};
use gristmill_worker::flow::{CannotFork, StepAt, fork_memo};

use crate::flow_steps::name_and_version;

/// Flows whose steps are read at a time, at most.
const READ_FLOWS_MAX: u32 = 500;

/// Flows whose steps are read first. After that, as many are read at a time as have [`READ_BYTES_TARGET`] by the bytes of the last.
const READ_FLOWS_FIRST: u32 = 16;

/// Bytes of memos and outcomes that are read at a time, about.
const READ_BYTES_TARGET: usize = 16 << 20;

/// Jobs that are read at the same time.
const READS_MAX: usize = 16;

/// Batches whose jobs one query finds.
const BATCHES_PER_QUERY: u32 = 1_000;

/// The place from which a fork goes on, and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// The step that runs again, with all that follow.
    pub from: StepAt,
    /// The version of the new instances; that of each flow itself if `None`.
    pub version: Option<String>,
}

/// The fork of one flow, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forked {
    /// The flow.
    pub origin: JobId,
    /// The new instance.
    pub fork: Result<JobId, CannotFork>,
}

/// The flows of a selection, by batch. A filter selects flows that have ended. All are found before the first fork, so that no
/// fork is among them.
///
/// # Errors
///
/// The store fails.
pub async fn flows_to_fork(
    store: &dyn Store,
    selection: Selection,
) -> Result<VecDeque<BatchPositions>, StoreError> {
    let mut found = VecDeque::new();
    match selection {
        Selection::Jobs(jobs) => {
            found.extend(by_batch(jobs).into_iter().map(BatchPositions::from));
        }
        Selection::Packed { jobs, .. } => found.extend(jobs),
        Selection::Filter(filter) => {
            let is_meant = |state: &JobState| filter.states.is_empty() || filter.states.contains(state);
            let states = JobState::ALL.into_iter();
            let states: Vec<JobState> = states
                .filter(|state| state.is_final() && is_meant(state))
                .collect();
            if states.is_empty() {
                return Ok(found);
            }
            let filter = JobFilter {
                states,
                no_steps: true,
                ..filter
            };
            let mut after = None;
            loop {
                let page = store.job_ids(&filter, after, BATCHES_PER_QUERY).await?;
                let Some(last) = page.last() else { break };
                after = Some(last.batch);
                found.extend(page);
            }
        }
    }
    Ok(found)
}

/// Flows that are being forked.
#[derive(Debug)]
pub struct Forks<'s> {
    fork: Fork,
    flows: FlowsRead<'s>,
    pending: Option<Pending>,
}

/// The flows of batches, read in portions.
#[derive(Debug)]
pub(crate) struct FlowsRead<'s> {
    store: &'s dyn Store,
    left: VecDeque<BatchPositions>,
    /// Flows of several portions share batches of children.
    outcomes: ChildReader,
    /// Flows of the next portion.
    portion: u32,
    /// The flows of the last portion.
    last: Option<BatchPositions>,
}

/// A flow with all that it keeps.
#[derive(Debug)]
pub(crate) struct FlowRead {
    pub flow: JobId,
    /// `None` if there is no such job.
    pub details: Option<JobDetails>,
    pub suspensions: Vec<Suspension>,
    pub outcomes: Vec<ChildOutcome>,
}

/// New instances that are not stored yet. They make one batch.
#[derive(Debug)]
pub(crate) struct Pending {
    kind: String,
    queue: String,
    options: BatchOptions,
    tags: BTreeMap<(String, String), Positions>,
    payloads: PackedBuilder,
    memos: PackedBuilder,
    origins: Vec<JobId>,
}

impl<'s> Forks<'s> {
    /// Begins to fork these flows.
    ///
    /// # Errors
    ///
    /// The version cannot be one.
    pub fn of(store: &'s dyn Store, flows: VecDeque<BatchPositions>, fork: Fork) -> Result<Self, StoreError> {
        if let Some(version) = &fork.version {
            check_name("version", version)?;
            if version.contains('@') {
                return Err(StoreError::InvalidInput(format!(
                    "the version {version:?} has an @ in it: give the version without the name of the flow"
                )));
            }
        }
        Ok(Forks {
            fork,
            flows: FlowsRead::of(store, flows),
            pending: None,
        })
    }

    /// Forks some more flows. `None` once all are forked.
    ///
    /// # Errors
    ///
    /// The store fails. Forks that were returned before are stored.
    pub async fn next(&mut self) -> Result<Option<Vec<Forked>>, StoreError> {
        let store = self.flows.store;
        let Some(flows) = self.flows.next().await? else {
            return match self.pending.take() {
                Some(pending) => Ok(Some(pending.store(store).await?)),
                None => Ok(None),
            };
        };
        let mut told = Vec::new();
        for FlowRead {
            flow: origin,
            details,
            suspensions,
            outcomes,
        } in flows
        {
            let is_flow = suspensions.iter().all(|suspension| suspension.flow.is_some());
            let memos: Vec<&str> = suspensions.iter().map(|step| step.memo.as_str()).collect();
            let memo = match &details {
                None => Err(CannotFork::Unknown),
                Some(details) if !details.row.state.is_final() => Err(CannotFork::Open(details.row.state)),
                Some(_) if !is_flow => Err(CannotFork::NotAFlow),
                Some(_) => fork_memo(origin, &memos, outcomes, &self.fork.from),
            };
            match (memo, details) {
                (Ok(memo), Some(details)) => {
                    let version = self.fork.version.as_deref();
                    if let Some(full) = Pending::add(&mut self.pending, origin, &details, version, &memo)? {
                        told.extend(full.store(store).await?);
                    }
                }
                (memo, _) => told.push(Forked {
                    origin,
                    fork: Err(memo.err().unwrap_or(CannotFork::Unknown)),
                }),
            }
        }
        Ok(Some(told))
    }
}

impl<'s> FlowsRead<'s> {
    pub fn of(store: &'s dyn Store, flows: VecDeque<BatchPositions>) -> Self {
        FlowsRead {
            store,
            left: flows,
            outcomes: ChildReader::default(),
            portion: READ_FLOWS_FIRST,
            last: None,
        }
    }

    /// After an error: the flow that could not be read, if it was read alone. If not, each of those that were read together is read
    /// alone next.
    pub fn split_last_read(&mut self) -> Option<JobId> {
        let BatchPositions { batch, positions } = self.last.take()?;
        if positions.len() == 1 {
            let position = positions.first()?;
            return Some(JobId { batch, position });
        }
        let alone: Vec<u32> = positions.iter().collect();
        for position in alone.into_iter().rev() {
            let positions = Positions::from_iter([position]);
            self.left.push_front(BatchPositions { batch, positions });
        }
        None
    }

    /// Reads some more flows. `None` once all are read.
    pub async fn next(&mut self) -> Result<Option<Vec<FlowRead>>, StoreError> {
        let Some(first) = self.left.front_mut() else {
            return Ok(None);
        };
        let (batch, positions) = (first.batch, first.positions.take_first(self.portion));
        if first.positions.is_empty() {
            self.left.pop_front();
        }
        self.last = Some(BatchPositions {
            batch,
            positions: positions.clone(),
        });
        let store = self.store;
        let suspensions = store.suspensions(batch, &positions).await?;
        let outcomes = self.outcomes.outcomes(store, batch, &positions).await?;
        self.portion = next_portion(positions.len(), bytes_of(&suspensions, &outcomes));
        let jobs: Vec<JobId> = positions
            .iter()
            .map(|position| JobId { batch, position })
            .collect();
        let details = futures::stream::iter(jobs)
            .map(|job| async move { Ok::<_, StoreError>((job, store.job(job).await?)) });
        let mut details = details.buffered(READS_MAX);
        let mut steps = suspensions.into_iter().zip(outcomes);
        let mut flows = Vec::new();
        while let Some((flow, details)) = details.try_next().await? {
            let (suspensions, outcomes) = steps.next().unwrap_or_default();
            flows.push(FlowRead {
                flow,
                details,
                suspensions,
                outcomes,
            });
        }
        Ok(Some(flows))
    }
}

/// The bytes of what some flows keep.
fn bytes_of(suspensions: &[Vec<Suspension>], outcomes: &[Vec<ChildOutcome>]) -> usize {
    let memos = suspensions.iter().flatten().map(|step| step.memo.len());
    let outcomes = outcomes.iter().flatten();
    memos.sum::<usize>() + outcomes.map(ChildOutcome::weight_bytes).sum::<usize>()
}

/// The number of flows to read, after this many had so many bytes.
fn next_portion(flows: u32, bytes: usize) -> u32 {
    let bytes_each = bytes / flows.max(1) as usize;
    let next = READ_BYTES_TARGET / bytes_each.max(1);
    u32::try_from(next).unwrap_or(u32::MAX).clamp(1, READ_FLOWS_MAX)
}

impl Pending {
    /// Adds an instance that begins with a memo, of another version than its origin if one is given. Returns what has to be stored
    /// before it, because the batch is full or of another sort.
    pub fn add(
        all: &mut Option<Pending>,
        origin: JobId,
        details: &JobDetails,
        version: Option<&str>,
        memo: &str,
    ) -> Result<Option<Pending>, StoreError> {
        let (name, _) = name_and_version(&details.row.kind);
        let kind = version.map_or_else(
            || details.row.kind.to_string(),
            |version| format!("{name}@{version}"),
        );
        let options = BatchOptions {
            run_at: None,
            expires_at: None,
            unique: None,
            group: details.row.group.as_deref().map(str::to_owned),
            hooks: None,
            cached_ms: None,
            traceparent: None,
            ..details.options.clone()
        };
        let own_bytes = details.payload.get().len() + memo.len();
        let full = all.take_if(|pending| {
            let bytes = pending.payloads.bytes() + pending.memos.bytes() + own_bytes;
            let is_like =
                pending.kind == kind && *pending.queue == *details.row.queue && pending.options == options;
            !is_like || pending.origins.len() >= BATCH_JOBS_MAX as usize || bytes > BATCH_BYTES_TARGET
        });
        let pending = all.get_or_insert_with(|| Pending {
            kind,
            queue: details.row.queue.to_string(),
            options,
            tags: BTreeMap::new(),
            payloads: PackedBuilder::with_item_bytes_max(VALUE_BYTES_MAX),
            memos: PackedBuilder::with_item_bytes_max(VALUE_BYTES_MAX),
            origins: Vec::new(),
        });
        pending.payloads.push(details.payload.get())?;
        pending.memos.push(memo)?;
        let position = pending.origins.len() as u32;
        for (name, value) in &details.tags {
            let tagged = pending.tags.entry((name.clone(), value.clone())).or_default();
            tagged.insert(position);
        }
        pending.origins.push(origin);
        Ok(full)
    }

    /// The batch, and the origins of its jobs.
    pub fn finish(self) -> (NewBatch, Vec<JobId>) {
        let count = self.origins.len() as u32;
        let tags = self.tags.into_iter().map(|((name, value), positions)| Tag {
            positions: Some(positions).filter(|positions| positions.len() < count),
            ..Tag::all(name, value)
        });
        let batch = NewBatch {
            queue: self.queue,
            options: self.options,
            tags: tags.collect(),
            memos: Some(self.memos.finish()),
            ..NewBatch::new(self.kind, self.payloads.finish())
        };
        (batch, self.origins)
    }

    async fn store(self, store: &dyn Store) -> Result<Vec<Forked>, StoreError> {
        let (batch, origins) = self.finish();
        let ids = store.submit(vec![batch], None).await?;
        let id = ids.into_iter().next();
        let id = id.ok_or_else(|| StoreError::Database("the store gave a batch no id".to_owned()))?;
        let forked = (0..).zip(origins).map(|(position, origin)| Forked {
            origin,
            fork: Ok(JobId { batch: id, position }),
        });
        Ok(forked.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_follow_the_bytes_of_flows() {
        assert_eq!(next_portion(16, 0), READ_FLOWS_MAX);
        assert_eq!(next_portion(16, 16 << 10), READ_FLOWS_MAX);
        assert_eq!(next_portion(16, 16 << 20), 16);
        assert_eq!(next_portion(1, 1 << 30), 1);
    }
}
