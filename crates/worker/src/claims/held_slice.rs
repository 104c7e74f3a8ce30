//! The jobs of one slice that a worker holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_model::{EarlierFailure, LeasedSlice, Positions};

/// The failed attempts that were repeated at once, by position in the batch, oldest first.
pub(crate) type EarlierFailures = BTreeMap<u32, Vec<EarlierFailure>>;

/// The jobs of one slice that a worker holds.
#[derive(Debug, Clone)]
pub(crate) struct HeldSlice {
    pub slice: LeasedSlice,
    /// The number of local repeats since the claim.
    pub repeats: u32,
    pub earlier: Arc<EarlierFailures>,
    /// The order of the slice's arrival. Returned jobs go back to this place.
    pub arrival: u64,
}

impl From<LeasedSlice> for HeldSlice {
    fn from(slice: LeasedSlice) -> Self {
        HeldSlice {
            slice,
            repeats: 0,
            earlier: Arc::default(),
            arrival: 0,
        }
    }
}

impl HeldSlice {
    pub fn len(&self) -> u32 {
        self.slice.len()
    }

    /// Selects some of the jobs by their positions in the batch.
    pub fn select(&self, positions: &Positions) -> HeldSlice {
        let places = self.slice.positions.indexes_of(positions);
        let mut selected = self.clone();
        selected.slice.positions = self.slice.positions.intersection(positions);
        selected.slice.payloads = self.slice.payloads.select(&places);
        selected.slice.memos = self.slice.memos.as_ref().map(|memos| memos.select(&places));
        assert_eq!(
            selected.slice.positions.len(),
            places.len(),
            "each selected job has one place in its slice"
        );
        selected
    }
}
