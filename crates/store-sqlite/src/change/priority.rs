//! Changes of priorities after a submit.

use gristmill_model::{BatchId, JobState, Positions};
use gristmill_store::{Changed, Selection};

use crate::change::{OPEN, is_meant, meant_of};
use crate::failure::Result;
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Gives open jobs another priority.
    pub fn prioritise(&mut self, selection: &Selection, priority: i16) -> Result<Changed> {
        let meant = self.meant(selection, OPEN)?;
        let rank = -i32::from(priority);
        let mut changed = 0;
        for (batch, positions) in &meant.batches {
            changed += self.prioritise_in(*batch, positions.as_ref(), &meant.states, rank)?;
        }
        Ok(meant.changed(changed))
    }

    /// Gives the open jobs among these positions of a batch (all, if `None`), in one of these states, another rank.
    /// Returns their number.
    fn prioritise_in(
        &mut self,
        batch: BatchId,
        positions: Option<&Positions>,
        states: &[JobState],
        rank: i32,
    ) -> Result<u64> {
        let mut changed = 0;
        for slice in self.slices_of(batch)? {
            let taken = meant_of(&slice.positions, positions);
            if taken.is_empty() || !is_meant(slice.state(self.now), states) {
                continue;
            }
            changed += u64::from(taken.len());
            if slice.rank != i64::from(rank) {
                self.shorten(&slice, &slice.positions.difference(&taken))?;
                self.insert_ranked(&slice, i64::from(rank), &taken)?;
            }
        }
        for blocked in self.blocked_of(batch)? {
            let taken = meant_of(&blocked.positions, positions);
            if taken.is_empty() || !is_meant(blocked.state(), states) {
                continue;
            }
            changed += u64::from(taken.len());
            if blocked.rank != Some(rank) {
                let split = self.split_blocked(&blocked, &taken)?;
                self.rank_blocked(&split, rank)?;
            }
        }
        for held in self.held_of(batch)? {
            let taken = meant_of(&held.positions, positions);
            if taken.is_empty() || !is_meant(JobState::Running, states) {
                continue;
            }
            changed += u64::from(taken.len());
            if held.rank != Some(rank) {
                let split = self.split_held(&held, &taken)?;
                self.rank_held(&split, rank)?;
            }
        }
        Ok(changed)
    }

    /// Raises the priority of the waiting jobs among these positions of a batch, if it is higher.
    pub fn raise(&mut self, batch: BatchId, positions: &Positions, priority: i16) -> Result<()> {
        let rank = -i64::from(priority);
        for slice in self.slices_of(batch)? {
            let raised = slice.positions.intersection(positions);
            if rank < slice.rank && !raised.is_empty() {
                self.shorten(&slice, &slice.positions.difference(&raised))?;
                self.insert_ranked(&slice, rank, &raised)?;
            }
        }
        Ok(())
    }
}
