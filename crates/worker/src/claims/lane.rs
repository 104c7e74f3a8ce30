//! The jobs of one kind that wait in a worker for a runner.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use gristmill_batching::EndReason;
use gristmill_model::limits::FINALIZED_JOBS_MAX;
use gristmill_model::packed::PackedIndex;
use gristmill_model::{LeasedSlice, Positions};
use gristmill_store::Revoked;

use crate::claims::held_slice::HeldSlice;
use crate::handler::Handler;
use crate::handler::micro_batch::MicroBatch;
use crate::io::{IoCounter, IoOfKind, IoRate};
use crate::settings::WorkerSettings;

/// A slice that gives away its first jobs, a few at a time, without copying the rest.
#[derive(Debug)]
struct Queued {
    held: HeldSlice,
    /// The number of jobs that were taken. Their payloads are still here, but their positions are not.
    taken: u32,
    index: Option<PackedIndex>,
}

impl Queued {
    fn len(&self) -> u32 {
        self.held.len()
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
        }
    }
}

/// The handler of one kind, and the jobs that wait for it in this worker.
pub(crate) struct Lane {
    pub(crate) kind: Arc<str>,
    pub(crate) handler: Arc<dyn Handler>,
    queue: VecDeque<Queued>,
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
            arrivals: 0,
            waiting: 0,
            deliveries: 0,
        }
    }

    /// The number of waiting jobs.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Adds claimed jobs behind jobs of the same priority and before jobs of a lower one.
    pub(crate) fn push(&mut self, mut held: HeldSlice) {
        self.arrivals += 1;
        held.arrival = self.arrivals;
        let before = self
            .queue
            .iter()
            .rposition(|other| other.held.slice.priority >= held.slice.priority);
        self.insert(before.map_or(0, |index| index + 1), held);
    }

    /// Puts jobs back in their place: behind jobs of a higher priority, and behind earlier arrivals of the same priority.
    pub(crate) fn put_back(&mut self, held: HeldSlice) {
        let place = |held: &HeldSlice| {
            let slice = &held.slice;
            (Reverse(slice.priority), held.arrival, slice.positions.first())
        };
        let before = self
            .queue
            .iter()
            .position(|other| place(&other.held) > place(&held));
        self.insert(before.unwrap_or(self.queue.len()), held);
    }

    fn insert(&mut self, index: usize, held: HeldSlice) {
        let queue = &self.queue;
        let priority = held.slice.priority;
        debug_assert!(
            queue
                .iter()
                .take(index)
                .all(|before| before.held.slice.priority >= priority)
                && queue
                    .iter()
                    .skip(index)
                    .all(|after| after.held.slice.priority <= priority),
            "a lane keeps its jobs in the order of their priority"
        );
        if held.len() > 0 {
            self.waiting += u64::from(held.len());
            self.queue.insert(index, held.into());
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

    /// Takes the next micro-batch, of at most `jobs_max` jobs, with the reason for its size. Slices that are too small
    /// to fill a micro-batch share one. They stay whole, because the parts of a slice need separate commits.
    pub(crate) fn take_micro_batch(&mut self, jobs_max: u32) -> Option<(MicroBatch, EndReason)> {
        let front = self.queue.front_mut()?;
        let mut size = jobs_max.max(1);
        if front.held.slice.memos.is_some() {
            size = size.min(FINALIZED_JOBS_MAX);
        }
        let (slices, end_reason) = if front.len() > size {
            (vec![front.take_first(size)], EndReason::Full)
        } else {
            self.take_whole_slices(size)
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

    /// Takes the first slice, and the next ones that fit, have the same timeout, and also finalize or also do not.
    fn take_whole_slices(&mut self, size: u32) -> (Vec<HeldSlice>, EndReason) {
        let like = |queued: &Queued| {
            let slice = &queued.held.slice;
            (slice.timeout_ms, slice.memos.is_some())
        };
        let first = self.queue.front().map(like);
        let mut jobs = 0;
        let mut slices = Vec::new();
        while let Some(next) = self
            .queue
            .pop_front_if(|next| Some(like(next)) == first && jobs + next.len() <= size)
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
            self.insert(self.queue.len(), kept);
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
                self.insert(self.queue.len(), held.select(&kept));
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
