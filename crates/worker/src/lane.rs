//! What a worker keeps of one kind.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use gristmill_batching::EndReason;
use gristmill_model::limits::FINALIZED_JOBS_MAX;
use gristmill_model::{LeasedSlice, Positions};
use gristmill_store::Revoked;

use crate::handler::Handler;
use crate::io::{IoCounter, IoOfKind, IoRate};
use crate::micro_batch::MicroBatch;
use crate::micro_batch_sizer::MicroBatchSizer;
use crate::settings::WorkerSettings;

/// One kind's handler and the jobs that are claimed for it and not begun.
pub(crate) struct Lane {
    pub(crate) handler: Arc<dyn Handler>,
    sizer: MicroBatchSizer,
    buffer: VecDeque<LeasedSlice>,
    buffered: u64,
    running: usize,
    io: IoOfKind,
    is_pausable: bool,
}

impl Lane {
    pub(crate) fn new(kind: &str, handler: Arc<dyn Handler>, settings: &WorkerSettings) -> Self {
        let sizer = MicroBatchSizer::new(settings.micro_batch_target, settings.micro_batch_jobs_max);
        Lane {
            is_pausable: handler.is_pausable() || settings.pausable.contains(kind),
            handler,
            sizer,
            buffer: VecDeque::new(),
            buffered: 0,
            running: 0,
            io: IoOfKind::declared(settings.io_rates.get(kind).copied().unwrap_or_default()),
        }
    }

    /// Jobs that wait here.
    pub(crate) fn buffered(&self) -> u64 {
        self.buffered
    }

    /// Keeps what was claimed: behind what is as urgent, before what is less.
    pub(crate) fn push(&mut self, slice: LeasedSlice) {
        self.buffered += u64::from(slice.len());
        let before = self
            .buffer
            .iter()
            .rposition(|other| other.priority >= slice.priority);
        self.buffer.insert(before.map_or(0, |index| index + 1), slice);
    }

    /// Whether what runs can be paused.
    pub(crate) fn is_pausable(&self) -> bool {
        self.is_pausable
    }

    /// The priority of what waits and could begin if there were a slot.
    pub(crate) fn urgency(&self) -> Option<i16> {
        let has_room = self.handler.capacity().runners.is_none_or(|most| self.running < most);
        self.buffer
            .front()
            .filter(|_| has_room)
            .map(|slice| slice.priority)
    }

    /// The next micro-batch, if the handler has room for one more, and why it is no larger. Slices that are
    /// too small to fill one share it, each as a whole: what is cut up is committed in more pieces.
    pub(crate) fn take_micro_batch(&mut self, free_slots: usize) -> Option<(MicroBatch, EndReason)> {
        let own = self
            .handler
            .capacity()
            .runners
            .map_or(usize::MAX, |most| most.saturating_sub(self.running));
        let free = own.min(free_slots);
        if free == 0 {
            return None;
        }
        let front = self.buffer.front_mut()?;
        let mut size = self.sizer.next(self.buffered, free);
        if front.memos.is_some() {
            size = size.min(FINALIZED_JOBS_MAX);
        }
        let (slices, end_reason) = if front.len() > size {
            (vec![front.take_first(size)], EndReason::Full)
        } else {
            self.take_whole_slices(size)
        };
        let micro_batch = MicroBatch::new(slices);
        self.buffered -= u64::from(micro_batch.jobs_count());
        self.running += 1;
        Some((micro_batch, end_reason))
    }

    /// The first slice, and those after it that fit, have its timeout, and finalize if it does.
    fn take_whole_slices(&mut self, size: u32) -> (Vec<LeasedSlice>, EndReason) {
        let mut slices: Vec<LeasedSlice> = self.buffer.pop_front().into_iter().collect();
        let mut jobs: u32 = slices.iter().map(LeasedSlice::len).sum();
        let like = |slice: &LeasedSlice| (slice.timeout_ms, slice.memos.is_some());
        let first = slices.first().map(like);
        while let Some(next) = self
            .buffer
            .pop_front_if(|next| Some(like(next)) == first && jobs + next.len() <= size)
        {
            jobs += next.len();
            slices.push(next);
        }
        let end_reason = if jobs == size {
            EndReason::Full
        } else {
            EndReason::Drained
        };
        (slices, end_reason)
    }

    /// What its micro-batches that run move.
    pub(crate) fn io_in_use(&self) -> IoRate {
        self.io.of(self.running)
    }

    /// What one more would move.
    pub(crate) fn io_rate(&self) -> IoRate {
        self.io.rate()
    }

    /// A micro-batch of `jobs` took `elapsed`.
    pub(crate) fn ended(&mut self, jobs: u32, elapsed: Duration, io: &IoCounter) {
        self.running -= 1;
        self.io.ended(io, elapsed);
        self.sizer.ran(jobs, elapsed);
    }

    /// Forgets jobs that were cancelled while they waited here.
    pub(crate) fn revoke(&mut self, revoked: &Revoked) {
        for slice in &mut self.buffer {
            if slice.lease == revoked.lease && slice.batch == revoked.batch {
                remove(slice, &revoked.positions);
            }
        }
        self.buffer.retain(|slice| !slice.is_empty());
        self.buffered = self.buffer.iter().map(|slice| u64::from(slice.len())).sum();
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.take_all();
    }

    /// Takes everything out.
    pub(crate) fn take_all(&mut self) -> VecDeque<LeasedSlice> {
        self.buffered = 0;
        std::mem::take(&mut self.buffer)
    }
}

/// Takes `positions` and their payloads out of a slice.
fn remove(slice: &mut LeasedSlice, positions: &Positions) {
    let kept = slice.positions.difference(positions);
    if !kept.is_empty() {
        let places = slice.positions.indexes_of(&kept);
        slice.payloads = slice.payloads.select(&places);
        slice.memos = slice.memos.as_ref().map(|memos| memos.select(&places));
    }
    slice.positions = kept;
}
