//! Reports of jobs with fates.

use gristmill_model::{
    ChildBatch, JobId, LeasedSlice, PackedArray, Positions, Report, Siblings, Signal, Spawn, Suspended, Wake,
};

use crate::fixture::*;
use crate::machine::flows::EVENTS;
use crate::machine::step::{Await, Fate};
use crate::machine::{KINDS, Machine, policy};

/// How long an instance may clean up after some flows. The clock goes on by less than twice this at a time.
const CLEANUP_MS: u64 = 25;

/// Flows give up children with numbers below this one.
const GIVEN_UP_BELOW: usize = 5;

impl Machine<'_> {
    /// A report of a slice in which each position has its fate.
    pub(super) fn report_by(&mut self, slice: &LeasedSlice, fates: &[Fate]) -> Report {
        let mut report = report(slice);
        let (mut completed, mut suspended, mut siblings) = (Positions::new(), Vec::new(), Vec::new());
        for position in slice.positions.iter() {
            let only = Positions::from(position..position + 1);
            match fates[position as usize % fates.len()] {
                Fate::Completed => completed.insert(position),
                Fate::Failed => report.failed.extend(failed_at(slice, &only, &error()).failed),
                Fate::FailedForGood => {
                    let failed = failed_at(slice, &only, &error().permanent());
                    report.failed.extend(failed.failed);
                }
                Fate::Released => report.released.insert(position),
                Fate::NotYet => {}
                Fate::Suspended(count, _) if self.reference.is_flow(job(slice.batch, position)) => {
                    suspended.push(self.step_of(position, count, Wake::All, None));
                }
                Fate::Step(count, wake, awaits) => {
                    suspended.push(self.step_of(position, count, wake, awaits))
                }
                Fate::Suspended(count, on_failure) => {
                    let spawn = Spawn {
                        children: self.children(position, count),
                        on_failure,
                        ..Spawn::new()
                    };
                    let spawn = spawn.memo(&self.payloads).unwrap();
                    suspended.push(Suspended::one(position, spawn));
                }
                Fate::Spread(count) => {
                    completed.insert(position);
                    siblings.push(Siblings::one(position, self.children(position, count)));
                }
            }
        }
        if !completed.is_empty() {
            report.completed = completed_at(slice, &completed).completed;
        }
        report.suspended = Suspended::pack(suspended);
        for suspended in &mut report.suspended {
            self.count_seen(slice, suspended);
        }
        report.siblings = Siblings::pack(siblings);
        report
    }

    /// This many children of the job at a position. Some jobs have two batches of them.
    fn children(&mut self, position: u32, count: u32) -> Vec<ChildBatch> {
        let mut children = Vec::new();
        for (kind, count) in KINDS.iter().zip([count.div_ceil(2), count / 2]) {
            let payloads: Vec<u32> = (0..count).map(|_| self.new_payload()).collect();
            children.extend(ChildBatch::of(kind, payloads).unwrap());
        }
        if position.is_multiple_of(2) {
            children.reverse();
        }
        for batch in &mut children {
            batch.options.retry = policy(2);
            batch.together = self.payloads.is_multiple_of(3);
        }
        children
    }

    /// A payload that no other job of the sequence has.
    pub(super) fn new_payload(&mut self) -> u32 {
        self.payloads += 1;
        1_000 + self.payloads
    }

    /// A step of the flow at a position.
    fn step_of(&mut self, position: u32, count: u32, wake: Wake, awaits: Option<Await>) -> Suspended {
        // A flow that begins anew waits for nothing.
        let (count, awaits) = match wake {
            Wake::Anew => (0, None),
            Wake::All | Wake::Any => (count, awaits),
        };
        let mut children = self.children(position, count);
        if let Some(awaits) = awaits {
            let mut child = match awaits {
                Await::Event(name, expires_in_ms) => {
                    ChildBatch::of_signal(Signal::Event(EVENTS[name].to_owned()), expires_in_ms)
                }
                Await::Sleep(for_ms) => ChildBatch::of_signal(Signal::Time, Some(for_ms)),
            };
            child.payloads = PackedArray::parse(&format!("[{}]", self.new_payload())).unwrap();
            children.push(child);
        }
        let spawn = Spawn {
            children,
            cleanup_ms: position
                .is_multiple_of(2)
                .then_some(CLEANUP_MS + u64::from(position)),
            ..Spawn::new().flow(wake)
        };
        Suspended::one(position, spawn.memo(&self.payloads).unwrap())
    }

    /// Says how many ended children the flows have seen, as a worker does.
    fn count_seen(&self, slice: &LeasedSlice, suspended: &mut Suspended) {
        let seen = suspended
            .positions
            .iter()
            .map(|position| self.seen.get(&(slice.lease, job(slice.batch, position))).copied());
        let seen: Vec<Option<u32>> = seen.collect();
        if suspended.flow.is_some() && seen.iter().any(Option::is_some) {
            suspended.seen = seen.into_iter().map(|seen| seen.unwrap_or(u32::MAX)).collect();
            if self.payloads.is_multiple_of(3) {
                let jobs = suspended
                    .positions
                    .iter()
                    .map(|position| job(slice.batch, position));
                let children = jobs.map(|flow| self.reference.children_of_steps(flow));
                let chosen = children.map(|children| -> Vec<JobId> {
                    let number = self.payloads as usize % GIVEN_UP_BELOW;
                    // Some are given up again.
                    let chosen = match self.payloads.is_multiple_of(2) {
                        true => 0..number,
                        false => number..number + 1,
                    };
                    let chosen = children.iter().take(chosen.end).skip(chosen.start);
                    chosen.map(|(child, _)| *child).collect()
                });
                suspended.given_up = chosen.collect();
            }
        }
    }
}
