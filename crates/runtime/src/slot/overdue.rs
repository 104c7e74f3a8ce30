//! Decides which of the jobs that run past their timeouts is charged.
//!
//! If jobs run concurrently, the one whose time is over first need not be at fault: another one may keep the event loop
//! from turning. The process is asked. If it does not know, the running jobs run again, alone.

use std::time::{Duration, Instant};

use gristmill_model::JobError;

use super::{Culprit, Slot};
use crate::limits::{ANSWER_MS_MAX, GIVE_UP_GRACE_MS, TIMEOUT_SLACK_FLUSHES};
use crate::process::{Begun, WarmProcess};

/// A question to the process: which job keeps another one beyond its timeout.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    /// The time when the question is asked again, or counts as unanswered.
    ends_at: Instant,
    is_answered: bool,
}

impl Slot {
    /// The time after its timeout in which a job may still be answered. A shim with several jobs at once ends an
    /// overdue one by itself.
    fn late_ms(&self) -> u64 {
        let started = self.process.as_ref().and_then(WarmProcess::ready);
        let slack_ms = self.recipe.flush_every_ms * TIMEOUT_SLACK_FLUSHES;
        if started.is_some_and(|started| started.is_async) {
            slack_ms + GIVE_UP_GRACE_MS
        } else {
            slack_ms
        }
    }

    /// The time of the next action about a job past its timeout.
    pub(super) fn overdue_at(&self) -> Option<Instant> {
        let (deadline, _) = self.stream.first_deadline(self.late_ms())?;
        Some(deadline.max(self.question.map_or(deadline, |question| question.ends_at)))
    }

    /// The running job, if jobs run one at a time and the process wrote it down. Unanswered jobs before it have ended,
    /// and only their outcomes have not arrived yet.
    pub(super) fn running(&self) -> Option<u32> {
        match self.process.as_ref()?.begun() {
            Begun::Last(end) => end.checked_sub(1).filter(|number| self.stream.expects(*number)),
            _ => None,
        }
    }

    /// Ends the process if a job is past its timeout and the culprit is known, or nobody knows it.
    pub(super) fn end_overdue(&mut self) {
        let now = Instant::now();
        let Some((deadline, number)) = self.stream.first_deadline(self.late_ms()) else {
            self.question = None;
            return;
        };
        if now < deadline || self.question.is_some_and(|question| now < question.ends_at) {
            return;
        }
        let started = self.process.as_ref().and_then(WarmProcess::ready);
        let concurrency = started.map(|started| self.recipe.concurrency_of(started));
        if concurrency == Some(1) {
            let running = self.running().unwrap_or(number);
            if self.timeout_of(running).is_none() {
                // The running job has no limit. It delays the outcome of the job that seemed late.
                self.stream.note_begun(running + 1, now);
                return;
            }
            self.charge_timeout(running);
            return;
        }
        // Whatever the process says, a job ends when it has used its time twice.
        let has_had_enough = self
            .timeout_of(number)
            .is_some_and(|timeout| now.duration_since(deadline) >= timeout);
        match self.question {
            Some(question) if !question.is_answered || has_had_enough => self.suspect_running(number),
            _ => {
                if let Some(process) = &mut self.process {
                    process.ask_for_culprit(number);
                }
                self.question = Some(Question {
                    ends_at: now + Duration::from_millis(ANSWER_MS_MAX),
                    is_answered: false,
                });
            }
        }
    }

    /// Handles the process's answer. A job is charged when its own time is over.
    pub(super) fn take_culprit(&mut self, culprit: Option<u32>) {
        let Some(question) = &mut self.question else {
            return;
        };
        question.is_answered = true;
        let Some(number) = culprit.filter(|number| self.stream.expects(*number)) else {
            return;
        };
        let piece = self
            .stream
            .piece_of(number)
            .map(|piece| &self.stream.pieces[piece]);
        let deadline = piece.and_then(|piece| self.stream.deadline_of(piece, number, self.late_ms()));
        if deadline.is_none_or(|deadline| Instant::now() >= deadline) {
            self.charge_timeout(number);
        }
    }

    fn timeout_of(&self, number: u32) -> Option<Duration> {
        let piece = &self.stream.pieces[self.stream.piece_of(number)?];
        piece.timeout_ms.map(Duration::from_millis)
    }

    fn charge_timeout(&mut self, number: u32) {
        let message = match self.timeout_of(number) {
            Some(timeout) => format!(
                "still running after its timeout of {} ms; its process was killed",
                timeout.as_millis()
            ),
            None => {
                "it kept other jobs of its process beyond their timeouts; its process was killed".to_owned()
            }
        };
        self.replace(Culprit::Known(number, JobError::new("timeout", message)));
    }

    /// Searches for the culprit among the running jobs.
    fn suspect_running(&mut self, number: u32) {
        let begun = match self.process.as_ref().map(WarmProcess::begun) {
            Some(Begun::To(end)) => end,
            _ => self.stream.begun_to(),
        };
        let running = self.stream.unanswered_below(begun);
        match running.len() {
            0 | 1 => self.charge_timeout(number),
            _ => self.replace(Culprit::Among(running)),
        }
    }
}
