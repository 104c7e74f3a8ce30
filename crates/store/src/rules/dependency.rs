//! Dependencies: a batch can wait for other batches, or for some of their jobs.
//!
//! A waiting part of a batch is a row of `blocked`, which claims do not read. It has one row of `edge` for each
//! prerequisite, whatever the number of its jobs. A batch with dependents is marked (`is_awaited`), so that an
//! operation that ends jobs sees the mark in rows that it reads anyway, and settles the edges in its own transaction.
//! When all jobs of an edge have ended, the waiting jobs become claimable, or end without running, together with their
//! own dependents. Batches without dependents cost nothing extra.
//!
//! An edge leads from a later batch to an earlier one, or from a parent to its children, so there are no cycles.
//!
//! Retrying a prerequisite does not revive its failed dependents. Retrying those explicitly runs them immediately.

use std::collections::BTreeMap;

use gristmill_model::batch::InvalidBatch;
use gristmill_model::{BatchId, JobError, JobId, JobState, NewBatch, OnFailure, Positions, Prerequisite};

use crate::StoreError;
use crate::rules::family::flow::BEGINNING;
use crate::rules::open::Blocked;

/// A prerequisite of a batch: jobs of a stored batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// The batch with the jobs.
    pub prerequisite: BatchId,
    /// The action if one of the jobs fails.
    pub on_failure: OnFailure,
    /// The positions of the jobs; all jobs if `None`.
    pub positions: Option<Positions>,
}

/// Jobs of a batch with more prerequisites than the batch: those of the jobs that they have replaced.
#[derive(Debug, Clone)]
pub struct WaitingJobs {
    /// The jobs that wait.
    pub positions: Positions,
    /// Their prerequisites beyond those of the batch.
    pub edges: Vec<Edge>,
}

/// The part of a batch whose jobs wait for what the batch says. Others wait for more.
const WHOLE: u32 = 0;

/// How the open jobs of a new batch begin.
#[derive(Debug)]
pub struct Beginning {
    /// The jobs that wait, by part, and the prerequisites of each part.
    pub blocked: Vec<(Blocked, Vec<Edge>)>,
    /// The jobs that can be claimed; `None` where all wait.
    pub claimable: Option<Positions>,
}

impl Beginning {
    /// Plans the beginning of the jobs of a batch that have not ended. `earlier` are the ids of the batches before it in its
    /// submit; `waiting` are jobs of it that wait for more than it says.
    pub fn of(
        id: BatchId,
        batch: &NewBatch,
        earlier: &[BatchId],
        waiting: &[WaitingJobs],
        mut open: Positions,
    ) -> Self {
        let own = edges(batch, earlier);
        let part = |part, positions| Blocked {
            batch: id,
            part,
            attempt: 1,
            rescues: 0,
            expires_at: batch.options.expires_at,
            rank: None,
            run_at: None,
            pauses: None,
            family: batch.memos.as_ref().map(|_| BEGINNING),
            positions,
        };
        let jobs = open.len();
        let mut blocked = Vec::with_capacity(waiting.len() + 1);
        for (number, waiting) in (WHOLE + 1..).zip(waiting) {
            let here = open.intersection(&waiting.positions);
            open = open.difference(&here);
            debug_assert!(open.is_disjoint(&here));
            let edges = own.iter().chain(&waiting.edges).cloned();
            blocked.push((part(number, here), merged(edges)));
        }
        let claimable = if batch.options.signal.is_some() {
            blocked.push((part(WHOLE, open), own));
            None
        } else if own.is_empty() {
            Some(open)
        } else {
            blocked.push((part(WHOLE, open), own));
            None
        };
        assert!(blocked.iter().all(|(part, _)| part.batch == id));
        let waits = blocked.iter().map(|(part, _)| part.positions.len());
        assert_eq!(
            waits.sum::<u32>() + claimable.as_ref().map_or(0, Positions::len),
            jobs,
            "each open job waits in one part or can be claimed"
        );
        Beginning { blocked, claimable }
    }
}

/// The edges of a batch, one for each prerequisite and policy. `ids` has the ids of the earlier batches in its submit.
fn edges(batch: &NewBatch, ids: &[BatchId]) -> Vec<Edge> {
    let edges = batch.after.iter().map(|after| Edge {
        prerequisite: match after.prerequisite {
            Prerequisite::Batch(batch) => batch,
            Prerequisite::Earlier(place) => {
                assert!(
                    place < ids.len(),
                    "a prerequisite is stored before its dependents"
                );
                ids[place]
            }
        },
        on_failure: after.on_failure,
        positions: after.positions.clone(),
    });
    merged(edges)
}

/// Merges edges with the same prerequisite and policy.
fn merged(edges: impl IntoIterator<Item = Edge>) -> Vec<Edge> {
    let mut merged: BTreeMap<(BatchId, OnFailure), Option<Positions>> = BTreeMap::new();
    for edge in edges {
        let key = (edge.prerequisite, edge.on_failure);
        match (merged.get_mut(&key), edge.positions) {
            (Some(Some(positions)), Some(more)) => *positions = positions.union(&more),
            (Some(whole), _) => *whole = None,
            (None, positions) => {
                merged.insert(key, positions);
            }
        }
    }
    let edges = merged
        .into_iter()
        .map(|((prerequisite, on_failure), positions)| Edge {
            prerequisite,
            on_failure,
            positions,
        });
    edges.collect()
}

/// The stored batches for which batches wait, each with the last named position.
pub fn stored_prerequisites<'a>(
    batches: impl IntoIterator<Item = &'a NewBatch>,
) -> BTreeMap<BatchId, Option<u32>> {
    let mut stored: BTreeMap<BatchId, Option<u32>> = BTreeMap::new();
    for after in batches.into_iter().flat_map(|batch| &batch.after) {
        if let Prerequisite::Batch(batch) = after.prerequisite {
            let last = stored.entry(batch).or_default();
            *last = (*last).max(after.positions.as_ref().and_then(Positions::last));
        }
    }
    stored
}

/// Refuses positions without jobs. The batch has `count` jobs; `None` if it does not exist.
pub fn check_stored(
    batch: BatchId,
    count: Option<u32>,
    last_position: Option<u32>,
) -> Result<(), StoreError> {
    let Some(count) = count else {
        return Err(StoreError::PrerequisiteUnknown(batch));
    };
    match last_position.filter(|last| *last >= count) {
        None => Ok(()),
        Some(position) => Err(InvalidBatch::UnknownPosition {
            prerequisite: format!("batch {batch}"),
            count,
            position,
        }
        .into()),
    }
}

/// Makes the error of a job that is dead because its prerequisite failed.
pub fn prerequisite_failed(job: JobId, state: JobState) -> JobError {
    JobError::new(
        "prerequisite",
        format!("job {job}, which it waited for, ended as {state}"),
    )
    .permanent()
}
