//! A process that ends while it has jobs.

use std::process::ExitStatus;
use std::time::Instant;

use gristmill_model::JobError;

use super::{Culprit, Slot, stop};
use crate::child::describe;
use crate::in_flight::InFlight;
use crate::limits::{CRASH_OUTPUT_BYTES_MAX, EXIT_MS_MAX};

impl Slot {
    /// Handles the end of a process with jobs: a job caused it, or the worker stops.
    pub(super) fn crash(&mut self) {
        let Some(process) = &mut self.process else { return };
        let is_late = self.exits_by.is_some_and(|at| Instant::now() >= at);
        let status = process.end();
        if self.is_part_of_stop(status) {
            drop(self.take_process());
            return self.forget_process();
        }
        let status = match describe(status) {
            _ if is_late => format!("said that it exits, did not within {EXIT_MS_MAX} ms, and was killed"),
            status => status,
        };
        if self.has_begun_nothing() {
            return self.died_before_work(status);
        }
        let Some(process) = &mut self.process else { return };
        let mut error = JobError::new("crash", format!("the process {status} while it ran this job"));
        let printed = process.output.unclaimed.tail(CRASH_OUTPUT_BYTES_MAX);
        if !printed.is_empty() {
            error = error.with_traceback(printed);
        }
        self.replace(Culprit::Suspected(error));
    }

    /// Reports whether a process with jobs ended because the worker stops. The jobs are then released.
    fn is_part_of_stop(&self, status: ExitStatus) -> bool {
        let with_jobs = || {
            self.in_flight
                .iter()
                .filter(|micro_batch| micro_batch.sent_count > 0)
        };
        let is_draining = || with_jobs().all(InFlight::is_draining);
        !self.stream.is_empty() && stop::is_part_of_stop(status, &self.pool, self.number, is_draining)
    }
}
