//! The live output of running jobs, which a store keeps only while it has followers.
//!
//! A follower keeps a row of `following`. Workers on the store read these rows with their heartbeats. They write the
//! output of followed jobs four times a second, with a limit for each job and each write. A store keeps output only of
//! jobs that the worker holds. The rows are deleted after half a minute, and with the last follower.
//!
//! Agents learn of followers by their heartbeats, and sooner by the next answer to an exchange if the followed jobs
//! have changed. They send output to `server/src/endpoints/workers/output.rs`. Without followers, a worker sends
//! nothing, and an exchange makes no further query. `engine/src/live_logs.rs` follows one job, or up to 100 running
//! jobs of a filter.

use std::collections::BTreeSet;
use std::sync::Arc;

use gristmill_model::limits::{FOLLOWED_MAX, LIVE_OUTPUT_BYTES_PER_WRITE_MAX};
use gristmill_model::{BatchId, Followed, JobId, KeptOutput, Positions, Printed};

use crate::StoreError;

/// Packs the jobs that a follower follows, as they are stored.
pub fn pack_followed(followed: &[Followed]) -> Result<String, StoreError> {
    if followed.is_empty() || followed.len() > FOLLOWED_MAX {
        return Err(StoreError::InvalidInput(format!(
            "a follower names {} jobs, batches and kinds: give 1 to {FOLLOWED_MAX}, such as their kind alone",
            followed.len()
        )));
    }
    serde_json::to_string(followed).map_err(|error| StoreError::InvalidInput(error.to_string()))
}

/// Joins the jobs of several followers for a worker, up to the limit of one follower.
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

/// Replaces NUL characters, which PostgreSQL cannot store in a text.
pub fn check_printed(mut printed: Vec<Printed>) -> Result<Vec<Printed>, StoreError> {
    let bytes: usize = printed.iter().map(|piece| piece.text.len()).sum();
    if bytes > LIVE_OUTPUT_BYTES_PER_WRITE_MAX {
        return Err(StoreError::InvalidInput(format!(
            "one write has {bytes} bytes of output; the limit is {LIVE_OUTPUT_BYTES_PER_WRITE_MAX}"
        )));
    }
    for piece in printed.iter_mut().filter(|piece| piece.text.contains('\0')) {
        // One byte replaces one byte, so that offsets stay right.
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

/// The batches of these pieces, each once.
pub fn batches_of(printed: &[Printed]) -> Vec<i64> {
    let batches: BTreeSet<i64> = printed.iter().map(|piece| piece.job.batch.0).collect();
    batches.into_iter().collect()
}

/// Splits pieces by the jobs that a worker holds: returns their pieces, and the jobs of all other pieces, each once.
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

/// Pieces of output of followed jobs, and the place of the last piece that was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutputPage {
    /// The pieces, by place.
    pub pieces: Vec<KeptOutput>,
    /// The place of the last piece that was read.
    pub last: i64,
}

impl OutputPage {
    /// Makes an empty page after a place.
    pub fn after(after: i64) -> OutputPage {
        OutputPage {
            pieces: Vec::new(),
            last: after,
        }
    }

    /// Adds a piece, if a followed job printed it.
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
