//! How much was tried.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// How many are tried until a line says so.
const SEQUENCES_PER_LINE: u32 = 1_000;

/// What several threads have tried.
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
