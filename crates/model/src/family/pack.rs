//! Packing: similar children of many parents share batches.

use crate::limits::{BATCH_BYTES_TARGET, BATCH_JOBS_MAX};
use crate::packed::PackedArray;
use crate::positions::Positions;
use crate::spawn::{ChildBatch, Suspended};

impl Suspended {
    /// Packs the children of jobs in one batch. Similar children of many parents share batches.
    pub fn pack(mut all: Vec<Suspended>) -> Vec<Suspended> {
        all.sort_by_key(|suspended| suspended.positions.first());
        let mut packs: Vec<Pack> = Vec::new();
        for suspended in all {
            // Only the latest packs are tried, so that many different ones do not take quadratic time.
            let open = packs.iter_mut().rev().take(OPEN_PACKS_MAX);
            match open.into_iter().find(|pack| pack.admits(&suspended)) {
                Some(pack) => pack.push(suspended),
                None => packs.push(Pack::new(suspended)),
            }
        }
        packs.into_iter().map(Pack::finish).collect()
    }
}

/// Maximum number of packs that are tried for a job.
const OPEN_PACKS_MAX: usize = 32;

/// Jobs that spawned similar children, in ascending order of position. At least one.
struct Pack {
    parts: Vec<Suspended>,
    /// Number of children in each batch.
    jobs: Vec<u32>,
    bytes: usize,
}

impl Pack {
    fn new(first: Suspended) -> Self {
        Pack {
            jobs: first
                .children
                .iter()
                .map(|children| children.payloads.count())
                .collect(),
            bytes: first.weight_bytes(),
            parts: vec![first],
        }
    }

    fn admits(&self, next: &Suspended) -> bool {
        let first = &self.parts[0];
        let last = self.parts[self.parts.len() - 1].positions.last();
        let jobs = self.jobs.iter().zip(&next.children);
        first.on_failure == next.on_failure
            && first.flow == next.flow
            && first.cleanup_ms == next.cleanup_ms
            && first.seen.is_empty() == next.seen.is_empty()
            && first.given_up.is_empty() == next.given_up.is_empty()
            && last < next.positions.first()
            && first.children.len() == next.children.len()
            && first
                .children
                .iter()
                .zip(&next.children)
                .all(|(children, others)| children.is_like(others))
            && jobs
                .into_iter()
                .all(|(jobs, more)| jobs + more.payloads.count() <= BATCH_JOBS_MAX)
            && self.bytes + next.weight_bytes() <= BATCH_BYTES_TARGET
    }

    fn push(&mut self, next: Suspended) {
        for (jobs, children) in self.jobs.iter_mut().zip(&next.children) {
            *jobs += children.payloads.count();
        }
        self.bytes += next.weight_bytes();
        self.parts.push(next);
    }

    fn finish(mut self) -> Suspended {
        if self.parts.len() == 1 {
            return self.parts.remove(0);
        }
        let parts = &self.parts;
        let first = &parts[0];
        let children = |place: usize, like: &ChildBatch| {
            let payloads = PackedArray::concat(parts.iter().map(|part| &part.children[place].payloads));
            assert_eq!(
                payloads.count(),
                self.jobs[place],
                "a pack holds the children of all its jobs"
            );
            ChildBatch {
                payloads,
                shares: parts
                    .iter()
                    .flat_map(|part| part.children[place].shares.iter().copied())
                    .collect(),
                ..like.clone()
            }
        };
        let packed = Suspended {
            positions: parts
                .iter()
                .fold(Positions::new(), |all, part| all.union(&part.positions)),
            memos: PackedArray::concat(parts.iter().map(|part| &part.memos)),
            on_failure: first.on_failure,
            flow: first.flow,
            seen: parts.iter().flat_map(|part| part.seen.iter().copied()).collect(),
            given_up: parts.iter().flat_map(|part| part.given_up.clone()).collect(),
            cleanup_ms: first.cleanup_ms,
            children: first
                .children
                .iter()
                .enumerate()
                .map(|(place, like)| children(place, like))
                .collect(),
        };
        let jobs = packed.positions.len();
        assert_eq!(packed.memos.count(), jobs, "each suspended job has a memo");
        assert!(packed.seen.is_empty() || packed.seen.len() == jobs as usize);
        packed
    }
}
