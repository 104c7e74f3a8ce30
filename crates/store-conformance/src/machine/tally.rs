//! The count of tried sequences.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The number of sequences between two lines of progress.
const SEQUENCES_PER_LINE: u32 = 1_000;

/// The counts of several threads.
pub(super) struct Tally {
    pub sequences: u32,
    pub tried: AtomicU32,
    pub operations: AtomicUsize,
}

impl Tally {
    pub fn add(&self, operations: usize) {
        self.operations.fetch_add(operations, Ordering::Relaxed);
        let tried = self.tried.fetch_add(1, Ordering::Relaxed) + 1;
        if tried.is_multiple_of(SEQUENCES_PER_LINE) {
            println!("{tried} of {} sequences", self.sequences);
        }
    }
}
