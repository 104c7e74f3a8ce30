//! The answers of handlers made of async functions: the result of a job's step, and the results that are answered together.

use std::time::{Duration, Instant};

use gristmill_model::limits::VALUE_BYTES_MAX;
use gristmill_model::{Completed, FailedJob, JobError, PackedBuilder, Positions, Spawn, Suspended};
use serde::Serialize;

use crate::handler::{OutcomeSink, Outcomes};
use crate::mill::delivery::micros;

/// The longest time between two answers with completed jobs, so that slow jobs are committed one by one.
const ANSWER_EVERY: Duration = Duration::from_millis(2);

/// The result of one step of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<V> {
    /// The job is done, with this value.
    Done(V),
    /// The job waits for these children without holding a slot. It finalizes after they have ended.
    Wait(Spawn),
}

/// Gathers outcomes, and answers them together at short intervals.
pub(crate) struct Answers<'a> {
    sink: &'a dyn OutcomeSink,
    sent_at: Instant,
    indexes: Positions,
    values: PackedBuilder,
    durations_us: Vec<u32>,
    failed: Vec<FailedJob>,
    released: Positions,
    returned: Positions,
    suspended: Vec<Suspended>,
    suspended_us: Vec<u32>,
}

impl<'a> Answers<'a> {
    pub(crate) fn new(sink: &'a dyn OutcomeSink) -> Self {
        Answers {
            sink,
            sent_at: Instant::now(),
            indexes: Positions::new(),
            values: PackedBuilder::with_item_bytes_max(VALUE_BYTES_MAX),
            durations_us: Vec::new(),
            failed: Vec::new(),
            released: Positions::new(),
            returned: Positions::new(),
            suspended: Vec::new(),
            suspended_us: Vec::new(),
        }
    }

    pub(crate) fn push<V: Serialize>(&mut self, index: u32, outcome: Result<V, JobError>, begun: Instant) {
        let now = Instant::now();
        let duration_us = micros(now - begun);
        let stored = outcome.and_then(|value| {
            self.values.push_value(&value).map_err(|error| {
                JobError::new("value", format!("the value cannot be stored: {error}")).permanent()
            })
        });
        match stored {
            Ok(()) => {
                self.indexes.insert(index);
                self.durations_us.push(duration_us);
            }
            Err(error) => self.failed.push(FailedJob {
                position: index,
                error,
                duration_us,
            }),
        }
        if now - self.sent_at >= ANSWER_EVERY {
            self.send();
            self.sent_at = now;
        }
    }

    pub(crate) fn release(&mut self, index: u32) {
        self.released.insert(index);
    }

    /// Adds jobs that were recalled before they began.
    pub(crate) fn give_back(&mut self, indexes: Positions) {
        assert!(
            self.returned.is_empty(),
            "a runner gives the rest of a micro-batch back once"
        );
        self.returned = indexes;
    }

    /// Adds a job that waits for children. If the children are invalid, the job fails.
    pub(crate) fn suspend(&mut self, index: u32, spawn: Spawn, begun: Instant) {
        let suspended = Suspended::one(index, spawn);
        match suspended.check() {
            Ok(()) => {
                self.suspended.push(suspended);
                self.suspended_us.push(micros(begun.elapsed()));
            }
            Err(error) => {
                let error = JobError::new("children", error.to_string()).permanent();
                self.push(index, Err::<(), _>(error), begun);
            }
        }
    }

    pub(crate) fn send(&mut self) {
        if self.indexes.is_empty()
            && self.failed.is_empty()
            && self.released.is_empty()
            && self.returned.is_empty()
            && self.suspended.is_empty()
        {
            return;
        }
        let values = std::mem::replace(
            &mut self.values,
            PackedBuilder::with_item_bytes_max(VALUE_BYTES_MAX),
        );
        let positions = std::mem::take(&mut self.indexes);
        let durations_us = std::mem::take(&mut self.durations_us);
        assert_eq!(
            positions.len() as usize,
            durations_us.len(),
            "each completed job has a duration"
        );
        let completed = (!positions.is_empty()).then(|| Completed {
            positions,
            values: values.finish(),
            durations_us,
        });
        self.sink.answer(Outcomes {
            completed,
            failed: std::mem::take(&mut self.failed),
            released: std::mem::take(&mut self.released),
            returned: std::mem::take(&mut self.returned),
            suspended: std::mem::take(&mut self.suspended),
            suspended_us: std::mem::take(&mut self.suspended_us),
            ..Outcomes::default()
        });
    }
}
