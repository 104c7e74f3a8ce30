//! The thread that drives one warm process: it starts it, feeds it micro-batches, hands outcomes on,
//! and replaces it when a job kills it or runs too long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_model::JobError;

use crate::child::describe;
use crate::error::RuntimeError;
use crate::in_flight::{Culprit, InFlight};
use crate::limits::{
    CRASH_OUTPUT_BYTES_MAX, MICRO_BATCHES_PER_PROCESS_MAX, PREFETCH_BELOW_MS, TIMEOUT_SLACK_MS,
};
use crate::pool::{Pool, Readiness};
use crate::process::{Arrived, Recipe, WarmProcess};
use crate::protocol::{OutcomesFrame, ProtocolError, RunFlags};

/// A slot of the pool, with at most one process.
pub(crate) struct Slot {
    pool: Arc<Pool>,
    recipe: Arc<Recipe>,
    number: usize,
    process: Option<WarmProcess>,
    /// In the order in which the process was given them.
    in_flight: Vec<InFlight>,
    /// Mean microseconds a job, over the last ones.
    job_us_mean: f64,
}

impl Slot {
    pub fn new(pool: Arc<Pool>, recipe: Arc<Recipe>, number: usize) -> Slot {
        Slot {
            pool,
            recipe,
            number,
            process: None,
            in_flight: Vec::new(),
            job_us_mean: 0.0,
        }
    }

    /// Runs until the pool shuts down. The first slot starts its process at once, so that a script
    /// that cannot be imported is known before there is work.
    pub fn drive(mut self) {
        if self.number == 0 {
            self.start_process();
        }
        while !self.pool.is_shutting_down() {
            self.take_work();
            self.heed_signals();
            self.end_abandoned();
            self.feed();
            // What ended without the process, by a drain or a failed start, must not be waited for.
            if !self.forget_done()
                && let Err(error) = self.wait()
            {
                self.fail_all(&error);
            }
            self.forget_done();
        }
        for micro_batch in &mut self.in_flight {
            micro_batch.release_all();
        }
        // A process in the middle of something is not waited for.
        match self.process.take() {
            Some(process) if self.in_flight.is_empty() && self.pool.is_graceful() => process.shut_down(),
            _ => {}
        }
    }

    fn take_work(&mut self) {
        loop {
            let readiness = match (self.in_flight.len(), &self.process) {
                (0, Some(_)) => Readiness::Warm,
                (0, None) => Readiness::Cold,
                (count, _) if count < MICRO_BATCHES_PER_PROCESS_MAX && self.is_free_soon() => Readiness::Soon,
                _ => Readiness::Busy,
            };
            match self.pool.next(self.number, readiness) {
                Some(work) => self.in_flight.push(InFlight::new(work)),
                None => return,
            }
        }
    }

    /// Drops the micro-batches that are done, which tells the worker; whether there were any.
    fn forget_done(&mut self) -> bool {
        let before = self.in_flight.len();
        self.in_flight.retain(|micro_batch| !micro_batch.is_done());
        self.in_flight.len() < before
    }

    fn is_free_soon(&self) -> bool {
        let unanswered: usize = self.in_flight.iter().map(InFlight::unanswered_count).sum();
        let left_us = self.job_us_mean * unanswered as f64;
        left_us > 0.0 && left_us < (PREFETCH_BELOW_MS * 1_000) as f64
    }

    fn heed_signals(&mut self) {
        for micro_batch in &mut self.in_flight {
            if let (Some(sequence), Some(process)) = (micro_batch.heed_signals(), &self.process) {
                process.stop(sequence);
            }
        }
    }

    /// Ends the process where it runs what was given up: cancelled jobs whose grace is over.
    fn end_abandoned(&mut self) {
        if self
            .head()
            .is_some_and(|head| self.in_flight[head].is_abandoned())
        {
            self.end_cancelled();
        }
    }

    fn end_cancelled(&mut self) {
        let message = "it went on after it was cancelled; its process was killed";
        self.replace(Culprit::Known(JobError::new("cancelled", message)));
    }

    fn start_process(&mut self) -> bool {
        let pool = Arc::clone(&self.pool);
        let interrupted = || {
            pool.acknowledge(self.number);
            pool.is_shutting_down()
        };
        match WarmProcess::start(&self.recipe, self.pool.waker(self.number), &interrupted) {
            Ok(process) => {
                self.process = Some(process);
                self.pool.report_start(Ok(()));
                true
            }
            Err(RuntimeError::ShutDown) => false,
            Err(error) => {
                self.fail_all(&error);
                self.pool.report_start(Err(Arc::new(error)));
                false
            }
        }
    }

    fn feed(&mut self) {
        if self.process.is_none() && (self.in_flight.is_empty() || !self.start_process()) {
            return;
        }
        let Some(process) = &mut self.process else { return };
        let now = Instant::now();
        for micro_batch in &mut self.in_flight {
            if let Some((payloads, careful, positions)) = micro_batch.next_piece() {
                let flags = RunFlags {
                    careful,
                    finalizing: micro_batch.is_finalizing(),
                };
                let sequence = process.run(&payloads, flags);
                micro_batch.mark_sent(sequence, careful, &positions, now);
            }
        }
    }

    /// The micro-batch that the process runs: of those that were sent, the one sent first.
    fn head(&self) -> Option<usize> {
        let sent = |micro_batch: &InFlight| micro_batch.sent.as_ref().map(|sent| sent.sequence);
        let sequences = self
            .in_flight
            .iter()
            .enumerate()
            .filter_map(|(index, one)| Some((sent(one)?, index)));
        sequences.min().map(|(_, index)| index)
    }

    /// When the grace of the running job is over, where it was cancelled.
    fn grace_ends(&mut self) -> Option<Instant> {
        let head = self.head()?;
        let since = self.in_flight[head].cancelled_since(Instant::now())?;
        since.checked_add(self.recipe.cancel_grace)
    }

    /// When the running job's time is over.
    fn deadline(&self) -> Option<Instant> {
        let head = &self.in_flight[self.head()?];
        let allowed = Duration::from_millis(head.timeout_ms()?.saturating_add(TIMEOUT_SLACK_MS));
        head.running_since()?.checked_add(allowed)
    }

    fn wait(&mut self) -> Result<(), RuntimeError> {
        let grace_ends = self.grace_ends();
        let deadline = self.deadline().into_iter().chain(grace_ends).min();
        let left_ms = deadline.map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            u64::try_from(left.as_millis()).unwrap_or(u64::MAX - 1) + 1
        });
        let waker = self.pool.waker(self.number);
        let Some(process) = &mut self.process else {
            let mut fds = [rustix::event::PollFd::new(waker, rustix::event::PollFlags::IN)];
            // Without a process nothing is under way: only new work or the end can come.
            crate::child::poll_ms(&mut fds, None).map_err(RuntimeError::Plumbing)?;
            self.pool.acknowledge(self.number);
            return Ok(());
        };
        let arrived = process.wait(left_ms, waker)?;
        self.pool.acknowledge(self.number);
        let quiet = arrived.frames.is_empty();
        self.handle(arrived);
        if quiet && self.process.is_some() && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            match grace_ends.is_some_and(|ends| Instant::now() >= ends) {
                true => self.end_cancelled(),
                false => self.time_out(),
            }
        }
        Ok(())
    }

    fn handle(&mut self, arrived: Arrived) {
        let mut broken = arrived.broken;
        for frame in arrived.frames {
            if let Err(error) = self.take_frame(frame) {
                broken = Some(error);
                break;
            }
        }
        if let Some(broken) = broken {
            let error = JobError::new(
                "protocol",
                format!(
                    "the script's process sent {broken} where Gristmill reads answers; something in it writes to \
                     file descriptors that it did not open"
                ),
            );
            self.replace(Culprit::Suspected(error));
        } else if arrived.ended {
            self.crash();
        } else if self.in_flight.is_empty()
            && let Some(process) = &mut self.process
            && !process.output.unclaimed.is_empty()
        {
            let output = process.output.take_unclaimed().into_text();
            tracing::debug!(output, "printed between jobs");
        }
    }

    fn take_frame(&mut self, frame: OutcomesFrame) -> Result<(), ProtocolError> {
        let now = Instant::now();
        let addressed = |micro_batch: &InFlight| {
            micro_batch
                .sent
                .as_ref()
                .is_some_and(|sent| sent.sequence == frame.sequence)
        };
        let index = self
            .in_flight
            .iter()
            .position(addressed)
            .ok_or(ProtocolError::UnknownJob)?;
        if let Some(last) = frame.durations_us.last() {
            let mean = frame.durations_us.iter().map(|us| f64::from(*us)).sum::<f64>()
                / frame.durations_us.len() as f64;
            // The last job weighs as much as the mean: what turns slow is known at once.
            self.job_us_mean = (mean.max(1.0) + f64::from(*last).max(1.0)) / 2.0;
        }
        if let Some(process) = &mut self.process {
            self.in_flight[index].take(frame, &mut process.output, now)?;
        }
        if self.in_flight[index].sent.is_none()
            && let Some(head) = self.head()
        {
            self.in_flight[head].is_next(now);
        }
        Ok(())
    }

    fn time_out(&mut self) {
        let allowed = self
            .head()
            .and_then(|head| self.in_flight[head].timeout_ms())
            .unwrap_or_default();
        let message = format!("still running after its timeout of {allowed} ms; its process was killed");
        self.replace(Culprit::Known(JobError::new("timeout", message)));
    }

    fn crash(&mut self) {
        let Some(process) = &mut self.process else { return };
        let status = describe(process.end());
        let mut error = JobError::new("crash", format!("the process {status} while it ran this job"));
        let printed = process.output.unclaimed.tail(CRASH_OUTPUT_BYTES_MAX);
        if !printed.is_empty() {
            error = error.with_traceback(printed);
        }
        self.replace(Culprit::Suspected(error));
    }

    /// Ends the process, and has its micro-batches run again in a new one as the culprit demands.
    fn replace(&mut self, culprit: Culprit) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        process.end();
        let running = process.running();
        let addressed = |(sequence, _): (u32, u32)| {
            let is_this = |one: &InFlight| one.sent.as_ref().is_some_and(|sent| sent.sequence == sequence);
            self.in_flight.iter().position(is_this)
        };
        let suspect = running.and_then(addressed).or_else(|| self.head());
        let index = running
            .filter(|running| addressed(*running).is_some())
            .map(|(_, index)| index);
        let now = Instant::now();
        let mut culprit = Some(culprit);
        for (number, micro_batch) in self.in_flight.iter_mut().enumerate() {
            match culprit.take_if(|_| suspect == Some(number)) {
                Some(culprit) => micro_batch.blame(culprit, index, process.output.take_unclaimed(), now),
                None => micro_batch.rewind(),
            }
        }
        if let Some(Culprit::Known(error) | Culprit::Suspected(error)) = culprit {
            tracing::warn!(
                error = error.message,
                "an idle script process ended; it is replaced when there is work"
            );
        }
    }

    /// Fails all that is under way: no process can be had for it.
    fn fail_all(&mut self, error: &RuntimeError) {
        self.process = None;
        let error = JobError::new(
            "startup",
            format!("the script's process could not be started again: {error}"),
        );
        for micro_batch in &mut self.in_flight {
            micro_batch.fail_all(&error);
        }
        self.in_flight.clear();
    }
}
