//! Packing single submits that have gathered: those of one kind and queue with equal options become one batch.

use gristmill_model::limits::{BATCH_BYTES_TARGET, BATCH_JOBS_MAX};
use gristmill_model::{NewBatch, PackedArray};

/// Single submits with different options that are packed at the same time.
const OPEN_MERGES_MAX: usize = 32;

/// Single jobs that become one batch, and their callers, in the same order. At least one.
#[derive(Debug)]
pub struct Merge<Waiting> {
    /// The jobs.
    pub singles: Vec<NewBatch>,
    /// Their callers, in the same order.
    pub waiting: Vec<Waiting>,
    bytes: usize,
}

/// Adds a single job to the batch that it fits into, or begins one.
pub fn merge<Waiting>(merges: &mut Vec<Merge<Waiting>>, single: NewBatch, waiting: Waiting) {
    let bytes = single.payloads.as_str().len();
    // Only the latest are looked at, so that many different options do not make this quadratic.
    let open = merges.iter_mut().rev().take(OPEN_MERGES_MAX);
    match open.into_iter().find(|merge| merge.admits(&single, bytes)) {
        Some(merge) => {
            merge.bytes += bytes;
            merge.singles.push(single);
            merge.waiting.push(waiting);
        }
        None => merges.push(Merge {
            singles: vec![single],
            waiting: vec![waiting],
            bytes,
        }),
    }
}

impl<Waiting> Merge<Waiting> {
    fn admits(&self, single: &NewBatch, bytes: usize) -> bool {
        let first = &self.singles[0];
        first.kind == single.kind
            && first.queue == single.queue
            && first.options == single.options
            && single.options.hooks.is_none()
            && first.after == single.after
            && first.tags == single.tags
            && single.tags.iter().all(|tag| tag.positions.is_none())
            && first.rejected.is_empty()
            && single.rejected.is_empty()
            && self.singles.len() < BATCH_JOBS_MAX as usize
            && self.bytes + bytes <= BATCH_BYTES_TARGET
    }
}

/// The payloads of single jobs as one pack.
pub fn packed(singles: &[NewBatch]) -> PackedArray {
    match singles {
        [single] => single.payloads.clone(),
        _ => PackedArray::concat(singles.iter().map(|single| &single.payloads)),
    }
}
