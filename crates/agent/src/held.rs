//! The jobs that a worker holds, from the view of its source.

use std::collections::BTreeMap;

use gristmill_model::{BatchId, Lease, LeaseId, Positions, Receipt, Report};
use gristmill_store::Revoked;

/// Claimed positions without a receipt.
#[derive(Debug, Default)]
pub(crate) struct Held(BTreeMap<(LeaseId, BatchId), Positions>);

impl Held {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn claimed(&mut self, lease: &Lease) {
        for slice in &lease.slices {
            let held = self.0.entry((lease.id, slice.batch)).or_default();
            debug_assert!(held.is_disjoint(&slice.positions), "a lease claims a job once");
            *held = held.union(&slice.positions);
        }
    }

    pub fn reported(&mut self, report: &Report, receipt: &Receipt) {
        debug_assert!(
            receipt.accepted.is_disjoint(&receipt.refused),
            "an outcome is either accepted or refused"
        );
        self.remove(
            report.lease,
            report.batch,
            &receipt.accepted.union(&receipt.refused),
        );
    }

    pub fn revoked(&mut self, revoked: &Revoked) {
        self.remove(revoked.lease, revoked.batch, &revoked.positions);
    }

    fn remove(&mut self, lease: LeaseId, batch: BatchId, positions: &Positions) {
        if let Some(held) = self.0.get_mut(&(lease, batch)) {
            *held = held.difference(positions);
            if held.is_empty() {
                self.0.remove(&(lease, batch));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gristmill_model::{LeasedSlice, PackedArray, Timestamp};

    use super::*;

    #[test]
    fn claimed_jobs_are_held_until_they_are_reported_or_revoked() {
        let slice = |positions: &str| LeasedSlice {
            lease: LeaseId(1),
            batch: BatchId(2),
            kind: "k".into(),
            queue: "default".into(),
            group: None,
            positions: positions.parse().unwrap(),
            payloads: PackedArray::parse("[]").unwrap(),
            attempt: 1,
            rescues: 0,
            timeout_ms: None,
            priority: 0,
            retry: gristmill_model::RetryPolicy::default(),
            submitted_at: Timestamp(0),
            memos: None,
            deadline: None,
            labels: None,
            traceparent: None,
        };
        let mut held = Held::default();
        held.claimed(&Lease {
            id: LeaseId(1),
            slices: vec![slice("0-4"), slice("7-9")],
        });
        let report = Report::new(LeaseId(1), BatchId(2), 1);
        let receipt = Receipt {
            accepted: "0-3,7".parse().unwrap(),
            refused: "4".parse().unwrap(),
            ..Receipt::default()
        };
        held.reported(&report, &receipt);
        assert!(!held.is_empty());
        held.revoked(&Revoked {
            lease: LeaseId(1),
            batch: BatchId(2),
            positions: "8-9".parse().unwrap(),
        });
        assert!(held.is_empty());
    }
}
