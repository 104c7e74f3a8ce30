//! Dependencies: a batch can wait for other batches, or for some of their jobs.
//!
//! A waiting part of a batch is a row of `blocked`, which claims do not read, with one row of `edge` for each
//! prerequisite, regardless of the number of its jobs. A batch that others wait for is marked (`is_awaited`), so an
//! operation that ends jobs sees the mark in rows that it reads anyway, and settles the edges in its own transaction:
//! when all jobs of an edge have ended, the waiting jobs become claimable, or end without running, together with their
//! own dependents. Batches without dependents pay nothing.
//!
//! An edge leads from a later batch to an earlier one, or from a parent to its children, so there are no cycles.
//!
//! Retrying a prerequisite does not revive its failed dependents. Retrying those explicitly runs them immediately.

use std::collections::BTreeMap;

use gristmill_model::batch::InvalidBatch;
use gristmill_model::{BatchId, JobError, JobId, JobState, NewBatch, OnFailure, Positions, Prerequisite};

use crate::StoreError;

/// One thing that a batch waits for: jobs of a stored batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// The batch that is waited for.
    pub prerequisite: BatchId,
    /// The effect of a job of it that fails.
    pub on_failure: OnFailure,
    /// All positions, where `None`.
    pub positions: Option<Positions>,
}

/// Jobs of a batch that wait for more than the batch says: for what those waited for that they have replaced.
#[derive(Debug, Clone)]
pub struct WaitingJobs {
    /// The jobs that wait.
    pub positions: Positions,
    /// Their prerequisites beyond those of the batch.
    pub edges: Vec<Edge>,
}

/// What a batch waits for, an edge a prerequisite and policy. `ids` are those of the earlier batches of its submit.
pub fn edges(batch: &NewBatch, ids: &[BatchId]) -> Vec<Edge> {
    let edges = batch.after.iter().map(|after| Edge {
        prerequisite: match after.prerequisite {
            Prerequisite::Batch(batch) => batch,
            Prerequisite::Earlier(place) => ids[place],
        },
        on_failure: after.on_failure,
        positions: after.positions.clone(),
    });
    merged(edges)
}

/// An edge a prerequisite and policy.
pub fn merged(edges: impl IntoIterator<Item = Edge>) -> Vec<Edge> {
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

/// The stored batches that batches wait for, each with the last position that is named of it.
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

/// Refuses what no job stands for: a batch of `count` jobs (`None`: there is no such batch).
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

/// The error of a job that is dead because of another that it waited for.
pub fn prerequisite_failed(job: JobId, state: JobState) -> JobError {
    JobError::new(
        "prerequisite",
        format!("job {job}, which it waited for, ended as {state}"),
    )
    .permanent()
}
