//! The fate of unsynced changes when the power fails.

use gristmill_model::{Rng, SplitMix64};

/// The part of `changes` unsynced changes that reached the disk.
#[derive(Debug, Clone, Copy)]
pub struct Fate {
    changes: usize,
    kind: FateKind,
    seed: u64,
}

#[derive(Debug, Clone, Copy)]
enum FateKind {
    /// No change reached the disk.
    Lost,
    /// All changes reached the disk.
    Kept,
    /// This many first changes reached the disk, and a part of the next one.
    UpTo(usize),
    /// Each part has its own version: the newest with this chance of 10, else any.
    Scattered(u64),
}

impl Fate {
    /// Draws the fate of this many changes.
    pub fn draw(changes: usize, rng: &mut SplitMix64) -> Fate {
        let kind = match rng.below(8) {
            0 => FateKind::Lost,
            1 => FateKind::Kept,
            2..5 => FateKind::UpTo(rng.below(changes as u64 + 1) as usize),
            _ => FateKind::Scattered([0, 5, 9][rng.below(3) as usize]),
        };
        Fate {
            changes,
            kind,
            seed: rng.next_u64(),
        }
    }

    /// The number of changes that the disk shows in one part. A part is a sector, the length or a name.
    pub fn version(&self, part: u64) -> usize {
        let mut rng = SplitMix64::new(self.seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        match self.kind {
            FateKind::Lost => 0,
            FateKind::Kept => self.changes,
            FateKind::UpTo(first) => (first + rng.below(2) as usize).min(self.changes),
            FateKind::Scattered(chance) if rng.below(10) < chance => self.changes,
            FateKind::Scattered(_) => rng.below(self.changes as u64 + 1) as usize,
        }
    }
}
