//! Retries without delay: a failed job runs again in the same worker, in any free slot, ahead of waiting jobs.
//!
//! Such a retry needs no trip to the store. The report that ends the job carries all attempts (`repeats` and `earlier`
//! in `model::report`). If the worker crashes before, the job is rescued on its claimed attempt.

use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_model::limits::{EARLIER_FAILURES_BYTES_MAX, REPEATS_MAX};
use gristmill_model::{EarlierFailure, FailedJob, JobLog, Positions};

use crate::claims::held_slice::{EarlierFailures, HeldSlice};
use crate::handler::Outcomes;
use crate::handler::micro_batch::Part;

/// Keeps the failures of jobs that run again without a trip to the source, until their last report.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    bytes: usize,
}

impl Repeats {
    /// Reports whether no failure is kept.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Takes failures out of `outcomes` whose jobs run again at once, and returns these jobs.
    pub fn keep(
        &mut self,
        part: &Part,
        outcomes: &mut Outcomes,
        is_cancelled: impl Fn(u32) -> bool,
    ) -> Option<HeldSlice> {
        if outcomes.failed.is_empty() || part.held.repeats >= REPEATS_MAX {
            return None;
        }
        let attempt = part.last_attempt();
        let (mut again, mut earlier) = (Positions::new(), EarlierFailures::new());
        let mut logs: BTreeMap<u32, String> = BTreeMap::new();
        for failed in std::mem::take(&mut outcomes.failed) {
            let position = failed.position;
            let repeats = self.bytes < EARLIER_FAILURES_BYTES_MAX
                && part.retry().repeats_at_once(attempt, &failed.error)
                && !is_cancelled(position);
            if !repeats {
                outcomes.failed.push(failed);
                continue;
            }
            if logs.is_empty() && !outcomes.logs.is_empty() {
                let all = std::mem::take(&mut outcomes.logs);
                logs = all.into_iter().map(|log| (log.position, log.text)).collect();
            }
            let failure = EarlierFailure {
                position,
                attempt,
                error: failed.error,
                duration_us: failed.duration_us,
                log: logs.remove(&position),
            };
            self.bytes += failure.weight_bytes();
            let mut failures = part.held.earlier.get(&position).cloned().unwrap_or_default();
            failures.push(failure);
            assert_eq!(failures.len(), part.held.repeats as usize + 1, "one a repeat");
            earlier.insert(position, failures);
            again.insert(position);
        }
        debug_assert!(
            earlier.keys().copied().eq(again.iter()),
            "exactly the jobs that run again have earlier failures"
        );
        debug_assert!(part.positions().contains_all(&again), "in its slice");
        let left = logs.into_iter();
        outcomes
            .logs
            .extend(left.map(|(position, text)| JobLog { position, text }));
        (!again.is_empty()).then(|| HeldSlice {
            repeats: part.held.repeats + 1,
            earlier: Arc::new(earlier),
            ..part.held.select(&again)
        })
    }

    /// Adds the earlier failures of jobs to their outcomes.
    pub fn add_earlier(&mut self, part: &Part, outcomes: &mut Outcomes) {
        if part.held.earlier.is_empty() {
            return;
        }
        for position in outcomes.positions().iter() {
            let failures = part.held.earlier.get(&position).into_iter().flatten();
            outcomes.earlier.extend(failures.cloned());
        }
        self.forget(&outcomes.earlier);
    }

    /// The last run of jobs that failed before and do not run again, with its failures. `None` for jobs without a local
    /// repeat.
    pub fn last_failures(&mut self, held: &HeldSlice) -> Option<(HeldSlice, Outcomes)> {
        let failed = HeldSlice {
            repeats: held.repeats.checked_sub(1)?,
            ..held.clone()
        };
        let mut outcomes = Outcomes::default();
        for position in held.slice.positions.iter() {
            let mut failures = held.earlier.get(&position).cloned().unwrap_or_default();
            self.forget(&failures);
            let Some(last) = failures.pop() else { continue };
            outcomes.earlier.extend(failures);
            outcomes
                .logs
                .extend(last.log.map(|text| JobLog { position, text }));
            outcomes.failed.push(FailedJob {
                position,
                error: last.error,
                duration_us: last.duration_us,
            });
        }
        Some((failed, outcomes))
    }

    /// Forgets the failures of dropped jobs.
    pub fn forget_held(&mut self, held: &HeldSlice) {
        for position in held.slice.positions.iter() {
            if let Some(failures) = held.earlier.get(&position) {
                self.forget(failures);
            }
        }
    }

    fn forget(&mut self, failures: &[EarlierFailure]) {
        let bytes: usize = failures.iter().map(EarlierFailure::weight_bytes).sum();
        assert!(
            bytes <= self.bytes,
            "{bytes} bytes of failures are forgotten, but only {} are kept",
            self.bytes
        );
        self.bytes -= bytes;
    }
}
