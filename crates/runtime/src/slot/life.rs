//! The life of a slot's process: its start, which can fail, and its replacement.

use std::time::Instant;

use super::Slot;
use crate::error::RuntimeError;
use crate::in_flight::InFlight;
use crate::interpreter::Runtime;
use crate::limits::CRASH_OUTPUT_BYTES_MAX;
use crate::pool::MayStart;
use crate::process::{Begun, WarmProcess};
use crate::stream::Stream;

impl Slot {
    pub(super) fn start_process(&mut self) {
        self.stream = Stream::new(Instant::now());
        self.recalling = None;
        self.is_retiring = false;
        (self.question, self.exits_by) = (None, None);
        self.code_before = self.pool.look_at_code();
        match WarmProcess::start(&self.recipe) {
            Ok(process) => self.process = Some(process),
            Err(error) => self.start_failed(error),
        }
    }

    /// Gives waiting jobs back without charge, because no process can start now.
    pub(super) fn start_failed(&mut self, error: RuntimeError) {
        self.process = None;
        self.forget_process();
        self.pool.start_failed(self.number, error);
        self.give_back_all();
    }

    fn give_back_all(&mut self) {
        let (_, mut waiting) = self.pool.take(self.number);
        for work in waiting.drain(..) {
            self.in_flight.push(InFlight::new(self.next_id, work));
            self.next_id += 1;
        }
        for micro_batch in &mut self.in_flight {
            micro_batch.give_back_waiting();
        }
    }

    /// Starts a process if there is work for it, or if this slot tries for all whether one can start again. If others
    /// have just failed, gives its jobs back.
    pub(super) fn start_if_wanted(&mut self) {
        let has_work = !self.in_flight.is_empty() || self.pool.has_next(self.number);
        self.start_again_at = None;
        if !has_work && !self.pool.are_starts_failing() {
            self.pool.may_start(self.number, false, Instant::now());
            return;
        }
        match self.pool.may_start(self.number, false, Instant::now()) {
            MayStart::Now => self.start_process(),
            MayStart::Later(again_at) => {
                self.start_again_at = again_at;
                self.give_back_all();
            }
        }
    }

    /// Replaces a process with outdated code after its running jobs have ended.
    pub(super) fn retire_outdated(&mut self) {
        if self.is_ready() && !self.is_retiring && self.generation < self.pool.generation() {
            self.is_retiring = true;
            self.recall();
        }
    }

    /// Ends a process that has run its share of jobs, or whose slots are full of abandoned jobs.
    pub(super) fn retire(&mut self) {
        let is_outdated = self.generation < self.pool.generation();
        if let Some(mut process) = self.take_process() {
            tracing::debug!("a script process is replaced by a new one");
            if is_outdated || self.stream.next_number() >= self.recipe.jobs_per_process_max {
                process.shut_down(self.recipe.script.path());
            } else {
                process.end();
            }
        }
        self.is_retiring = false;
    }

    /// Reports whether no job has begun in a process with jobs, as far as the process reports it. JavaScript does not
    /// report it in time.
    pub(super) fn has_begun_nothing(&self) -> bool {
        let Some(process) = &self.process else {
            return false;
        };
        !self.stream.is_empty()
            && match process.begun() {
                Begun::To(end) | Begun::Last(end) => end == 0,
                Begun::Unknown => self.recipe.script.runtime() == Runtime::Python,
            }
    }

    /// Handles the end of a process as a failed start: no job is charged, and the next process waits.
    pub(super) fn died_before_work(&mut self, status: String) {
        let Some(mut process) = self.take_process() else {
            return;
        };
        process.end();
        let error = RuntimeError::DiedBeforeWork {
            script: self.recipe.script.path().to_owned(),
            status,
            output: process.output.unclaimed.tail(CRASH_OUTPUT_BYTES_MAX),
        };
        self.start_failed(error);
    }

    pub(super) fn take_process(&mut self) -> Option<WarmProcess> {
        let process = self.process.take()?;
        self.pool.process_ended(self.number);
        Some(process)
    }
}
