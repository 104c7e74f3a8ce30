//! The jobs of one kind that wait in a worker for a runner.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use gristmill_batching::EndReason;
use gristmill_model::limits::FINALIZED_JOBS_MAX;
use gristmill_model::packed::PackedIndex;
use gristmill_model::{BatchId, LeasedSlice, Positions};
use gristmill_store::Revoked;

use crate::claims::held_slice::HeldSlice;
use crate::claims::keepers::Keepers;
use crate::handler::Handler;
use crate::handler::micro_batch::MicroBatch;
use crate::io::{IoCounter, IoOfKind, IoRate};
use crate::settings::WorkerSettings;

/// Slices at the front of a lane among which a runner finds its own.
const LOOK_SLICES_MAX: usize = 100;

/// How often the first slice of a lane is passed over before any runner takes it.
const PASSED_OVER_MAX: u32 = 8;

/// A slice that gives away its first jobs, a few at a time, without copying the rest.
#[derive(Debug)]
struct Queued {
    held: HeldSlice,
    /// The number of jobs that were taken. Their payloads are still here, but their positions are not.
    taken: u32,
    index: Option<PackedIndex>,
    /// The runner that may keep the jobs in memory.
    keeper: Option<usize>,
}

impl Queued {
    fn len(&self) -> u32 {
        self.held.len()
    }

    /// The order of slices, but for their arrival: jobs that go on come before jobs that begin.
    fn class(&self) -> (Reverse<i16>, bool) {
        let slice = &self.held.slice;
        (Reverse(slice.priority), slice.memos.is_none())
    }

    /// Reports whether a runner takes the jobs before those of other runners.
    fn is_for(&self, runner: usize) -> bool {
        self.keeper.is_none_or(|keeper| keeper == runner)
    }

    /// Takes all remaining jobs.
    fn take_all(mut self) -> HeldSlice {
        let left = self.held.len();
        match self.taken {
            0 => self.held,
            _ => self.take_first(left),
        }
    }

    fn take_first(&mut self, count: u32) -> HeldSlice {
        assert!(
            count <= self.held.len(),
            "a slice of {} jobs cannot give away {count}",
            self.held.len()
        );
        let slice = &mut self.held.slice;
        let places = Positions::from(self.taken..self.taken + count);
        let index = self.index.get_or_insert_with(|| slice.payloads.index());
        let taken = HeldSlice {
            slice: LeasedSlice {
                positions: slice.positions.take_first(count),
                payloads: slice.payloads.select_indexed(&places, index),
                memos: slice.memos.as_ref().map(|memos| memos.select(&places)),
                ..slice.clone()
            },
            repeats: self.held.repeats,
            earlier: self.held.earlier.clone(),
            arrival: self.held.arrival,
        };
        self.taken += count;
        taken
    }
}

impl From<HeldSlice> for Queued {
    fn from(held: HeldSlice) -> Self {
        Queued {
            held,
            taken: 0,
            index: None,
            keeper: None,
        }
    }
}

/// The handler of one kind, and the jobs that wait for it in this worker.
pub(crate) struct Lane {
    pub(crate) kind: Arc<str>,
    pub(crate) handler: Arc<dyn Handler>,
    queue: VecDeque<Queued>,
    keepers: Keepers,
    /// How often a runner has passed over the first slice, which another one may keep in memory.
    passed_over: u32,
    arrivals: u64,
    waiting: u64,
    deliveries: usize,
    io: IoOfKind,
    is_pausable: bool,
}

impl Lane {
    pub(crate) fn new(kind: Arc<str>, handler: Arc<dyn Handler>, settings: &WorkerSettings) -> Self {
        Lane {
            is_pausable: handler.is_pausable() || settings.pausable.contains(&kind),
            io: IoOfKind::declared(settings.io_rates.get(&kind).copied().unwrap_or_default()),
            kind,
            handler,
            queue: VecDeque::new(),
            keepers: Keepers::default(),
            passed_over: 0,
            arrivals: 0,
            waiting: 0,
            deliveries: 0,
        }
    }

    /// The number of waiting jobs.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Adds claimed jobs behind jobs of the same priority and before jobs of a lower one. Jobs that go on come before jobs of
    /// their priority that begin, so that few jobs are between their steps at a time.
    pub(crate) fn push(&mut self, mut held: HeldSlice) {
        self.arrivals += 1;
        held.arrival = self.arrivals;
        if held.slice.memos.is_none() || !self.handler.keeps_waiting() {
            self.insert_last(held.into());
            return;
        }
        let shared_out = self.keepers.take(held.slice.batch, &held.slice.positions);
        let is_whole = shared_out.len() == 1;
        for (keeper, positions) in shared_out {
            let own = if is_whole {
                held.clone()
            } else {
                held.select(&positions)
            };
            self.insert_last(Queued { keeper, ..own.into() });
        }
    }

    fn insert_last(&mut self, queued: Queued) {
        let class = queued.class();
        let place = self.queue.partition_point(|other| other.class() <= class);
        self.insert(place, queued);
    }

    /// Notes that a runner has run jobs which now wait for their children, and may keep them in memory.
    pub(crate) fn wait(&mut self, runner: usize, batch: BatchId, positions: &Positions) {
        if self.handler.keeps_waiting() {
            self.keepers.add(batch, runner, positions);
        }
    }

    /// Puts jobs back in their place: behind those that come before them, and behind earlier arrivals among their like.
    pub(crate) fn put_back(&mut self, held: HeldSlice) {
        let queued = Queued::from(held);
        let place = |queued: &Queued| {
            let held = &queued.held;
            (queued.class(), held.arrival, held.slice.positions.first())
        };
        let before = self.queue.iter().position(|other| place(other) > place(&queued));
        self.insert(before.unwrap_or(self.queue.len()), queued);
    }

    fn insert(&mut self, index: usize, queued: Queued) {
        let class = queued.class();
        debug_assert!(
            self.queue
                .iter()
                .take(index)
                .all(|before| before.class() <= class)
                && self.queue.iter().skip(index).all(|after| after.class() >= class),
            "a lane keeps its jobs in their order"
        );
        if queued.len() > 0 {
            self.waiting += u64::from(queued.len());
            self.queue.insert(index, queued);
        }
    }

    /// Reports whether the running jobs can be paused.
    pub(crate) fn is_pausable(&self) -> bool {
        self.is_pausable
    }

    /// The highest priority of the waiting jobs.
    pub(crate) fn urgency(&self) -> Option<i16> {
        self.queue.front().map(|queued| queued.held.slice.priority)
    }

    /// Takes the next micro-batch for a runner, of at most `jobs_max` jobs, with the reason for its size. Slices that are too
    /// small to fill a micro-batch share one. They stay whole, because the parts of a slice need separate commits.
    pub(crate) fn take_micro_batch(
        &mut self,
        runner: usize,
        jobs_max: u32,
    ) -> Option<(MicroBatch, EndReason)> {
        let place = self.next_for(runner);
        let next = self.queue.get_mut(place)?;
        let mut size = jobs_max.max(1);
        if next.held.slice.memos.is_some() {
            size = size.min(FINALIZED_JOBS_MAX);
        }
        let (slices, end_reason) = if next.len() > size {
            (vec![next.take_first(size)], EndReason::Full)
        } else {
            self.take_whole_slices(place, size)
        };
        let micro_batch = MicroBatch::of(slices);
        let jobs = micro_batch.jobs_count();
        assert!(
            jobs <= size && u64::from(jobs) <= self.waiting,
            "a micro-batch of {jobs} jobs fits its limit of {size} and the {} waiting jobs",
            self.waiting
        );
        self.waiting -= u64::from(jobs);
        self.deliveries += 1;
        Some((micro_batch, end_reason))
    }

    /// The place of the next slice for a runner: the first one of the highest priority that no other runner may keep in
    /// memory.
    fn next_for(&mut self, runner: usize) -> usize {
        let priority = self.urgency();
        let near = self.queue.iter().take(LOOK_SLICES_MAX);
        let mut near = near.take_while(|queued| Some(queued.held.slice.priority) == priority);
        let place = near.position(|queued| queued.is_for(runner)).unwrap_or(0);
        if place == 0 || self.passed_over >= PASSED_OVER_MAX {
            self.passed_over = 0;
            return 0;
        }
        self.passed_over += 1;
        place
    }

    /// Takes the slice in this place, and the next ones that fit, have the same timeout and keeper, and also finalize or
    /// also do not.
    fn take_whole_slices(&mut self, place: usize, size: u32) -> (Vec<HeldSlice>, EndReason) {
        let like = |queued: &Queued| {
            let slice = &queued.held.slice;
            (slice.timeout_ms, slice.memos.is_some(), queued.keeper)
        };
        let first = self.queue.get(place).map(like);
        let mut jobs = 0;
        let mut slices = Vec::new();
        while let Some(next) = self.queue.get(place)
            && Some(like(next)) == first
            && jobs + next.len() <= size
            && let Some(next) = self.queue.remove(place)
        {
            jobs += next.len();
            slices.push(next.take_all());
        }
        let end_reason = if jobs == size {
            EndReason::Full
        } else {
            EndReason::Drained
        };
        (slices, end_reason)
    }

    /// The bytes that the running micro-batches move.
    pub(crate) fn io_in_use(&self) -> IoRate {
        self.io.of(self.deliveries)
    }

    /// The bytes that one more micro-batch would move.
    pub(crate) fn io_rate(&self) -> IoRate {
        self.io.rate()
    }

    /// Notes the end of a micro-batch.
    pub(crate) fn ended(&mut self, elapsed: std::time::Duration, io: &IoCounter) {
        assert!(self.deliveries > 0, "only a micro-batch that was taken can end");
        self.deliveries -= 1;
        self.io.ended(io, elapsed);
    }

    /// Drops waiting jobs that were cancelled, and returns them.
    pub(crate) fn revoke(&mut self, revoked: &Revoked) -> Vec<HeldSlice> {
        let concerns =
            |held: &HeldSlice| held.slice.lease == revoked.lease && held.slice.batch == revoked.batch;
        if !self.queue.iter().any(|queued| concerns(&queued.held)) {
            return Vec::new();
        }
        let mut dropped = Vec::new();
        for held in self.take_all() {
            let kept = if concerns(&held) {
                dropped.push(held.select(&held.slice.positions.intersection(&revoked.positions)));
                held.select(&held.slice.positions.difference(&revoked.positions))
            } else {
                held
            };
            self.insert(self.queue.len(), kept.into());
        }
        dropped
    }

    /// Takes this many jobs, the last ones first.
    pub(crate) fn take_last(&mut self, jobs: u64) -> Vec<HeldSlice> {
        let mut left = u32::try_from(jobs).unwrap_or(u32::MAX);
        let mut taken = Vec::new();
        while left > 0
            && let Some(last) = self.queue.pop_back()
        {
            self.waiting -= u64::from(last.len());
            let mut held = last.take_all();
            if held.len() > left {
                let mut last_positions = held.slice.positions.clone();
                let kept = last_positions.take_first(held.len() - left);
                self.insert(self.queue.len(), held.select(&kept).into());
                held = held.select(&last_positions);
            }
            assert!(
                held.len() <= left,
                "a lane gives back no more jobs than it was asked for"
            );
            left -= held.len();
            taken.push(held);
        }
        debug_assert_eq!(
            self.waiting,
            self.queue
                .iter()
                .map(|queued| u64::from(queued.len()))
                .sum::<u64>(),
            "a lane counts each of its waiting jobs"
        );
        taken
    }

    /// Takes all jobs.
    pub(crate) fn take_all(&mut self) -> Vec<HeldSlice> {
        self.waiting = 0;
        let queue = std::mem::take(&mut self.queue);
        queue.into_iter().map(Queued::take_all).collect()
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use gristmill_model::{LeaseId, PackedArray, RetryPolicy, Timestamp};

    use super::*;
    use crate::handler::OutcomeSink;

    struct Keeping(bool);

    #[async_trait]
    impl Handler for Keeping {
        async fn run(&self, _: usize, _: MicroBatch, _: &dyn OutcomeSink) {}

        fn keeps_waiting(&self) -> bool {
            self.0
        }
    }

    fn lane(keeps_waiting: bool) -> Lane {
        Lane::new(
            "flow".into(),
            Arc::new(Keeping(keeps_waiting)),
            &WorkerSettings::default(),
        )
    }

    /// Jobs at these positions of a batch. Those that go on have a memo.
    fn held(batch: i64, positions: &str, goes_on: bool, priority: i16) -> HeldSlice {
        let positions: Positions = positions.parse().unwrap();
        let packed = |values: Vec<u32>| PackedArray::parse(&serde_json::to_string(&values).unwrap()).unwrap();
        HeldSlice::from(LeasedSlice {
            lease: LeaseId(1),
            batch: BatchId(batch),
            kind: "flow".into(),
            queue: "default".into(),
            group: None,
            payloads: packed(positions.iter().collect()),
            memos: goes_on.then(|| packed(positions.iter().map(|position| position + 1_000).collect())),
            positions,
            attempt: 1,
            rescues: 0,
            timeout_ms: None,
            priority,
            retry: RetryPolicy::default(),
            submitted_at: Timestamp(0),
            deadline: None,
            labels: None,
            traceparent: None,
        })
    }

    /// The parts of the next micro-batch of a runner: batch and positions.
    fn taken(lane: &mut Lane, runner: usize, jobs_max: u32) -> Vec<String> {
        let (micro_batch, _) = lane.take_micro_batch(runner, jobs_max).unwrap();
        for job in micro_batch.jobs() {
            let position = job.id.position;
            assert_eq!(job.payload, position.to_string());
            assert!(job.memo.is_none_or(|memo| memo == (position + 1_000).to_string()));
        }
        let parts = micro_batch.parts().iter();
        parts
            .map(|part| format!("{}:{}", part.batch().0, part.positions()))
            .collect()
    }

    #[test]
    fn jobs_that_go_on_come_before_jobs_that_begin() {
        let mut lane = lane(false);
        lane.push(held(1, "0-3", false, 0));
        lane.push(held(2, "0-3", false, 5));
        lane.push(held(3, "0-1", true, 0));
        lane.push(held(4, "0-1", true, 0));
        lane.push(held(5, "0-3", false, 0));
        assert_eq!(taken(&mut lane, 0, 4), ["2:0-3"]);
        assert_eq!(taken(&mut lane, 0, 3), ["3:0-1"]);
        assert_eq!(taken(&mut lane, 0, 3), ["4:0-1"]);
        let mut again = held(3, "0-1", true, 0);
        again.arrival = 3;
        lane.put_back(again);
        assert_eq!(taken(&mut lane, 0, 3), ["3:0-1"]);
        assert_eq!(taken(&mut lane, 0, 8), ["1:0-3", "5:0-3"]);
        assert!(lane.take_micro_batch(0, 8).is_none());
    }

    #[test]
    fn a_runner_goes_on_with_its_own_jobs_first() {
        let mut lane = lane(true);
        lane.wait(0, BatchId(1), &"0-3".parse().unwrap());
        lane.wait(1, BatchId(1), &"4-7".parse().unwrap());
        lane.push(held(1, "2-9", true, 0));
        lane.push(held(2, "0-1", false, 0));
        assert_eq!(lane.waiting(), 10);
        assert_eq!(taken(&mut lane, 1, 3), ["1:4-6"]);
        assert_eq!(taken(&mut lane, 1, 3), ["1:7"]);
        // What nobody keeps, and what begins, comes before jobs that another runner keeps.
        assert_eq!(taken(&mut lane, 1, 3), ["1:8-9"]);
        assert_eq!(taken(&mut lane, 1, 3), ["2:0-1"]);
        assert_eq!(taken(&mut lane, 1, 3), ["1:2-3"]);
        assert_eq!(lane.waiting(), 0);
    }

    #[test]
    fn jobs_of_a_busy_runner_do_not_wait_for_it_for_ever() {
        let mut lane = lane(true);
        lane.wait(0, BatchId(1), &"0".parse().unwrap());
        lane.push(held(1, "0", true, 0));
        lane.push(held(2, "0-99", false, 0));
        for position in 0..PASSED_OVER_MAX {
            assert_eq!(taken(&mut lane, 1, 1), [format!("2:{position}")]);
        }
        assert_eq!(taken(&mut lane, 1, 1), ["1:0"]);
        // Jobs of a lower priority do not pass either.
        lane.wait(0, BatchId(3), &"0".parse().unwrap());
        lane.push(held(3, "0", true, 1));
        assert_eq!(taken(&mut lane, 1, 1), ["3:0"]);
    }
}
