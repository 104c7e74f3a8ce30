//! The live output of running jobs, which a store keeps only while it has followers.
//!
//! A follower keeps a row of `following`. Workers on the store read these rows with their heartbeats, and write the
//! output of followed jobs four times a second, bounded for each job and each write. A store keeps output only of jobs
//! that the worker holds. The rows are deleted after half a minute, and with the last follower.
//!
//! Agents learn of followers by their heartbeats, and sooner by the next answer to an exchange if the followed jobs
//! have changed; they send output to `server/src/endpoints/workers/output.rs`. Without followers, a worker sends
//! nothing, and an exchange makes no further query. `engine/src/live_logs.rs` follows one job, or up to 100 running
//! jobs of a filter.

use std::collections::BTreeSet;
use std::sync::Arc;

use gristmill_model::limits::{FOLLOWED_MAX, LIVE_OUTPUT_BYTES_PER_WRITE_MAX};
use gristmill_model::{BatchId, Followed, JobId, KeptOutput, Positions, Printed};

use crate::StoreError;

/// What a follower follows, as it is stored.
pub fn pack_followed(followed: &[Followed]) -> Result<String, StoreError> {
    if followed.is_empty() || followed.len() > FOLLOWED_MAX {
        return Err(StoreError::InvalidInput(format!(
            "a follower names {} jobs, batches and kinds: give 1 to {FOLLOWED_MAX}, such as their kind alone",
            followed.len()
        )));
    }
    serde_json::to_string(followed).map_err(|error| StoreError::InvalidInput(error.to_string()))
}

/// What several followers follow together, as a worker is told: at most as much as one may follow.
pub fn all_followed<'p>(packed: impl Iterator<Item = &'p str>) -> serde_json::Result<Vec<Followed>> {
    let mut all: Vec<Followed> = Vec::new();
    for packed in packed {
        for followed in serde_json::from_str::<Vec<Followed>>(packed)? {
            if all.len() < FOLLOWED_MAX && !all.contains(&followed) {
                all.push(followed);
            }
        }
    }
    Ok(all)
}

/// Pieces without NUL characters, which PostgreSQL keeps in no text.
pub fn check_printed(mut printed: Vec<Printed>) -> Result<Vec<Printed>, StoreError> {
    let bytes: usize = printed.iter().map(|piece| piece.text.len()).sum();
    if bytes > LIVE_OUTPUT_BYTES_PER_WRITE_MAX {
        return Err(StoreError::InvalidInput(format!(
            "one write has {bytes} bytes of output; the limit is {LIVE_OUTPUT_BYTES_PER_WRITE_MAX}"
        )));
    }
    for piece in printed.iter_mut().filter(|piece| piece.text.contains('\0')) {
        // One byte for one byte, so that offsets stay true.
        piece.text = piece.text.replace('\0', " ");
    }
    Ok(printed)
}

/// Jobs of one batch that a worker holds.
pub struct HeldJobs {
    /// The batch.
    pub batch: BatchId,
    /// Its kind.
    pub kind: Arc<str>,
    /// The jobs.
    pub positions: Positions,
}

/// The batches that pieces are of, each once.
pub fn batches_of(printed: &[Printed]) -> Vec<i64> {
    let batches: BTreeSet<i64> = printed.iter().map(|piece| piece.job.batch.0).collect();
    batches.into_iter().collect()
}

/// The pieces of jobs that a worker holds, and the jobs of the others, each once.
pub fn only_held<'p>(held: &[HeldJobs], printed: &'p [Printed]) -> (Vec<&'p Printed>, Vec<JobId>) {
    let is_held = |piece: &&Printed| {
        held.iter().any(|held| {
            held.batch == piece.job.batch
                && held.kind == piece.kind
                && held.positions.contains(piece.job.position)
        })
    };
    let (kept, refused): (Vec<&Printed>, Vec<&Printed>) = printed.iter().partition(is_held);
    let refused: BTreeSet<JobId> = refused.into_iter().map(|piece| piece.job).collect();
    (kept, refused.into_iter().collect())
}

/// The pieces of followed jobs, and the place of the last one that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutputPage {
    /// The pieces, by place.
    pub pieces: Vec<KeptOutput>,
    /// The last place that was looked at.
    pub last: i64,
}

impl OutputPage {
    /// An empty page behind a place.
    pub fn after(after: i64) -> OutputPage {
        OutputPage {
            pieces: Vec::new(),
            last: after,
        }
    }

    /// Adds a piece, if one of the followed jobs printed it.
    pub fn add(&mut self, piece: KeptOutput, followed: &[Followed]) {
        self.last = self.last.max(piece.id);
        let printed = &piece.printed;
        if followed
            .iter()
            .any(|followed| followed.includes(printed.job, &printed.kind))
        {
            self.pieces.push(piece);
        }
    }
}
