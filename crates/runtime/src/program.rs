//! One process for each job: Bash scripts and any program.
//!
//! Standard input has the payload's JSON and a line feed. Standard output is the value: JSON, or a text if it is not
//! JSON. Empty output is `null`, and line feeds at the end do not count. Standard error is the log. An exit status
//! other than 0 fails the job with the end of standard error. The environment identifies the job: `GRISTMILL_JOB`
//! (`42:7`), `GRISTMILL_ATTEMPT`, `GRISTMILL_BATCH`, `GRISTMILL_KIND`, `GRISTMILL_QUEUE`, and, if the job has them,
//! `GRISTMILL_KEY`, `GRISTMILL_GROUP`, `GRISTMILL_TAGS` (a JSON object), `GRISTMILL_DEADLINE` (seconds since 1970) and
//! `TRACEPARENT`.

pub mod template;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_model::limits::VALUE_BYTES_MAX;
use gristmill_model::{Completed, FailedJob, JobError, JobLog, PackedArray, PackedBuilder, Positions};
use gristmill_worker::{JobContext, MicroBatchJob, Outcomes};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::capped::CappedLog;
use crate::child::{GroupChild, describe};
use crate::descriptors::{milliseconds_until, pipe, poll_ms, read_ready};
use crate::error::RuntimeError;
use crate::limits::CRASH_OUTPUT_BYTES_MAX;
use crate::pool::{MayStart, Pool, Told, Work};
use crate::process::Recipe;
use crate::slot::stop::is_part_of_stop;

const READ_BYTES: usize = 64 << 10;

/// A slot of the pool that runs one program at a time.
pub(crate) struct ProgramSlot {
    pool: Arc<Pool>,
    recipe: Arc<Recipe>,
    number: usize,
}

/// The result of one job.
enum Ended {
    Completed(PackedArray),
    Failed(JobError),
    /// The pool shuts down or the worker stops. The program was killed in the middle.
    Released,
    /// The program could not be started, and the job is not at fault.
    NotStarted(io::Error),
}

/// A running program and its output so far.
struct Running {
    child: GroupChild,
    input: Option<OwnedFd>,
    output: OwnedFd,
    errors: OwnedFd,
    value: Vec<u8>,
    log: CappedLog,
    output_open: bool,
    errors_open: bool,
}

impl ProgramSlot {
    pub fn new(pool: Arc<Pool>, recipe: Arc<Recipe>, number: usize) -> ProgramSlot {
        ProgramSlot { pool, recipe, number }
    }

    /// Runs until the pool shuts down.
    pub fn drive(self) {
        if self.number == 0 {
            self.pool.is_program();
        }
        while !self.pool.is_shutting_down() {
            let may_start = self.pool.may_start(self.number, true, Instant::now());
            match (self.pool.next(self.number), may_start) {
                (Some(work), MayStart::Now) => self.run(&work),
                (Some(work), MayStart::Later(_)) => work.return_whole(),
                (None, may_start) => {
                    let mut fds = [PollFd::new(self.pool.waker(self.number), PollFlags::IN)];
                    let again_ms = match may_start {
                        MayStart::Later(again_at) => again_at.map(milliseconds_until),
                        MayStart::Now => None,
                    };
                    if poll_ms(&mut fds, again_ms).is_err() {
                        return;
                    }
                    self.pool.acknowledge(self.number);
                }
            }
        }
    }

    fn run(&self, work: &Work) {
        // Recalled jobs that have not begun are cut off at the end.
        let end = Cell::new(work.micro_batch.jobs_count());
        for job in work.micro_batch.jobs() {
            if job.index >= end.get() {
                return;
            }
            let unwanted = work.signals.is_draining()
                || work.is_abandoned()
                || self.pool.is_shutting_down()
                || work.signals.cancelled().contains(job.index);
            let mut log = CappedLog::default();
            let began = Instant::now();
            let ended = if unwanted {
                Ended::Released
            } else {
                self.run_job(work, job, &end, &mut log)
            };
            if let Ended::NotStarted(error) = ended {
                let program = self.recipe.script.program_name();
                let error = RuntimeError::Spawn {
                    program,
                    source: error,
                };
                self.pool.start_failed(self.number, error);
                work.answer(Outcomes {
                    returned: Positions::from(job.index..end.get()),
                    ..Outcomes::default()
                });
                return;
            }
            let duration_us = u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX);
            work.answer(outcomes(job.index, ended, duration_us, log));
        }
    }

    /// Gives back the jobs from `first` on, if they were recalled.
    fn heed_recall(&self, work: &Work, first: u32, end: &Cell<u32>) {
        if self.pool.take_recall(self.number) && first < end.get() {
            work.answer(Outcomes {
                returned: Positions::from(first..end.get()),
                ..Outcomes::default()
            });
            end.set(first);
        }
    }

    fn run_job(&self, work: &Work, job: MicroBatchJob<'_>, end: &Cell<u32>, log: &mut CappedLog) -> Ended {
        let timeout_ms = work.micro_batch.timeout_ms();
        let mut running = match self.start(job) {
            Ok(running) => running,
            Err(error) if !is_of_job(&error) => return Ended::NotStarted(error),
            Err(error) => {
                let program = self.recipe.script.program_name();
                return Ended::Failed(JobError::new("spawn", format!("cannot start {program}: {error}")));
            }
        };
        let deadline =
            timeout_ms.and_then(|timeout_ms| Instant::now().checked_add(Duration::from_millis(timeout_ms)));
        self.pool.program_started(self.number);
        let ended = running.converse(self, work, job, end, deadline);
        self.pool.process_ended(self.number);
        *log = std::mem::take(&mut running.log);
        match ended {
            Ok(ended) => ended,
            Err(error) => Ended::Failed(JobError::new(
                "pipe",
                format!("cannot talk to the program: {error}"),
            )),
        }
        .with_timeout_of(timeout_ms)
    }

    fn start(&self, job: MicroBatchJob<'_>) -> io::Result<Running> {
        let (their_input, input) = pipe(false)?;
        let (output, their_output) = pipe(true)?;
        let (errors, their_errors) = pipe(true)?;
        let mut command = template::fill(self.recipe.script.command(), job.payload);
        for (name, value) in identity(job) {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .stdin(Stdio::from(their_input))
            .stdout(Stdio::from(their_output))
            .stderr(Stdio::from(their_errors));
        Ok(Running {
            child: GroupChild::spawn(&mut command, &self.recipe.guard)?,
            input: Some(input),
            output,
            errors,
            value: Vec::new(),
            log: CappedLog::default(),
            output_open: true,
            errors_open: true,
        })
    }
}

impl Running {
    /// Writes the payload and reads the output until the program has ended.
    fn converse(
        &mut self,
        slot: &ProgramSlot,
        work: &Work,
        job: MicroBatchJob<'_>,
        end: &Cell<u32>,
        deadline: Option<Instant>,
    ) -> io::Result<Ended> {
        let pool = &slot.pool;
        let mut payload = [job.payload.as_bytes(), b"\n"].concat();
        let mut grace_ends: Option<Instant> = None;
        let mut told_bytes = 0;
        loop {
            slot.heed_recall(work, job.index + 1, end);
            if grace_ends.is_none() && work.signals.cancelled().contains(job.index) {
                grace_ends = Instant::now().checked_add(slot.recipe.cancel_grace);
            }
            if work.is_abandoned() || grace_ends.is_some_and(|ends| Instant::now() >= ends) {
                self.child.end();
                self.read();
                let message = "it continued after it was cancelled, and was killed";
                return Ok(Ended::Failed(JobError::new("cancelled", message)));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                self.child.end();
                self.read();
                return Ok(Ended::Failed(JobError::new("timeout", "")));
            }
            if pool.is_shutting_down() {
                self.child.end();
                return Ok(Ended::Released);
            }
            let grace_left = grace_ends.map(|ends| ends.saturating_duration_since(Instant::now()));
            let left = left.into_iter().chain(grace_left).min();
            let left_ms = left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX - 1) + 1);
            let ended = self.wait(left_ms, pool.waker(slot.number))?;
            pool.acknowledge(slot.number);
            self.write(&mut payload);
            self.read();
            let kept = self.log.kept();
            if work.signals.is_followed() && kept.len() > told_bytes {
                work.tell(Told::Printed(job.index, kept[told_bytes..].to_vec()));
                told_bytes = kept.len();
            }
            if self.value.len() > VALUE_BYTES_MAX {
                self.child.end();
                let message = format!(
                    "the program wrote more than {VALUE_BYTES_MAX} bytes to standard output, the limit of a value \
                     (VALUE_BYTES_MAX): write a reference to it, and what is only a log to standard error"
                );
                return Ok(Ended::Failed(JobError::new("ValueTooLarge", message)));
            }
            if ended {
                // Kill the processes that it left running. This ends its output.
                let status = self.child.end();
                self.read_to_end();
                if status.success() {
                    return Ok(value(&self.value));
                }
                let is_draining = || work.signals.is_draining();
                return Ok(if is_part_of_stop(status, pool, slot.number, is_draining) {
                    Ended::Released
                } else {
                    self.failure(status)
                });
            }
        }
    }

    /// Waits for an event. Returns whether the program has ended.
    fn wait(&self, timeout_ms: Option<u64>, waker: &OwnedFd) -> io::Result<bool> {
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.child.exit_fd(), PollFlags::IN),
            PollFd::new(waker, PollFlags::IN),
        ];
        let streams = [(&self.output, self.output_open), (&self.errors, self.errors_open)];
        fds.extend(
            streams
                .iter()
                .filter(|(_, open)| *open)
                .map(|(fd, _)| PollFd::new(*fd, PollFlags::IN)),
        );
        if let Some(input) = &self.input {
            fds.push(PollFd::new(input, PollFlags::OUT));
        }
        poll_ms(&mut fds, timeout_ms)?;
        Ok(!fds[0].revents().is_empty())
    }

    fn write(&mut self, payload: &mut Vec<u8>) {
        let Some(input) = &self.input else { return };
        match rustix::io::write(input, payload) {
            Ok(bytes) => {
                payload.drain(..bytes);
            }
            Err(Errno::AGAIN | Errno::INTR) => return,
            // A program need not read its input.
            Err(_) => payload.clear(),
        }
        if payload.is_empty() {
            self.input = None;
        }
    }

    fn read(&mut self) {
        let mut buffer = [0; READ_BYTES];
        if self.output_open {
            match read_ready(self.output.as_fd(), &mut buffer) {
                Ok(Some(bytes)) => self.value.extend_from_slice(&buffer[..bytes]),
                Ok(None) | Err(_) => self.output_open = false,
            }
        }
        if self.errors_open {
            match read_ready(self.errors.as_fd(), &mut buffer) {
                Ok(Some(bytes)) => self.log.push(&buffer[..bytes]),
                Ok(None) | Err(_) => self.errors_open = false,
            }
        }
    }

    /// Reads the rest of the pipes of an ended program.
    fn read_to_end(&mut self) {
        let is_there = |fd: BorrowedFd<'_>| {
            let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
            poll_ms(&mut fds, Some(0)).is_ok_and(|ready| ready > 0)
        };
        // Reads at most the capacity of the pipes, because processes outside the group may still write.
        for _ in 0..4 * crate::limits::PIPE_BYTES / READ_BYTES {
            let output_left = self.output_open && is_there(self.output.as_fd());
            let errors_left = self.errors_open && is_there(self.errors.as_fd());
            if !output_left && !errors_left {
                return;
            }
            self.read();
        }
    }

    fn failure(&self, status: std::process::ExitStatus) -> Ended {
        let tail = self.log.tail(CRASH_OUTPUT_BYTES_MAX);
        let last_line = tail
            .lines()
            .last()
            .map(|line| format!(": {line}"))
            .unwrap_or_default();
        let error_type = if status.code().is_some() { "exit" } else { "crash" };
        let mut error = JobError::new(error_type, format!("the program {}{last_line}", describe(status)));
        if !tail.is_empty() {
            error = error.with_traceback(tail);
        }
        Ended::Failed(error)
    }
}

/// Reports whether a program cannot start because of the job's own item in its arguments: it is too long, or contains a NUL.
fn is_of_job(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput
    )
}

impl Ended {
    /// Adds the limit to a timeout's message.
    fn with_timeout_of(self, timeout_ms: Option<u64>) -> Ended {
        match self {
            Ended::Failed(error) if error.error_type == "timeout" => {
                let limit = timeout_ms.unwrap_or_default();
                let message = format!("still running after its timeout of {limit} ms; it was killed");
                Ended::Failed(JobError::new("timeout", message))
            }
            other => other,
        }
    }
}

/// The variables that identify the job. Variables that do not apply to it are removed, whatever the worker's own
/// environment has.
fn identity(job: MicroBatchJob<'_>) -> Vec<(&'static str, Option<String>)> {
    let context = JobContext::detached(&job);
    let tags = context.tags();
    let tags = (!tags.is_empty()).then(|| serde_json::to_string(&tags).unwrap_or_default());
    let deadline = context
        .deadline()
        .map(|deadline| (deadline.0 as f64 / 1_000.0).to_string());
    let variables = [
        ("GRISTMILL_JOB", Some(context.id().to_string())),
        ("GRISTMILL_ATTEMPT", Some(context.attempt().to_string())),
        ("GRISTMILL_KEY", context.key()),
        ("GRISTMILL_BATCH", Some(context.batch().to_string())),
        ("GRISTMILL_KIND", Some(context.kind().to_owned())),
        ("GRISTMILL_QUEUE", Some(context.queue().to_owned())),
        ("GRISTMILL_GROUP", context.group().map(str::to_owned)),
        ("GRISTMILL_TAGS", tags),
        ("GRISTMILL_DEADLINE", deadline),
        (
            "TRACEPARENT",
            context.traceparent().map(|parent| parent.to_string()),
        ),
    ];
    // Names, keys and tags contain no NUL, which an environment cannot have.
    variables.into()
}

/// The value from the output of a program.
fn value(written: &[u8]) -> Ended {
    let Ok(text) = std::str::from_utf8(written) else {
        return Ended::Failed(JobError::new(
            "NotUtf8",
            "the program's standard output is not UTF-8",
        ));
    };
    let text = text.trim_end_matches(['\n', '\r']);
    let mut value = PackedBuilder::with_item_bytes_max(VALUE_BYTES_MAX);
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    let pushed = match text {
        "" => value.push("null"),
        json if is_json => value.push(json),
        text => value.push_value(text),
    };
    match pushed {
        Ok(()) => Ended::Completed(value.finish()),
        Err(error) => Ended::Failed(JobError::new(
            "NotJson",
            format!("the program wrote a value that is not JSON: {error}"),
        )),
    }
}

fn outcomes(position: u32, ended: Ended, duration_us: u32, log: CappedLog) -> Outcomes {
    let positions = Positions::from(position..position + 1);
    let mut outcomes = Outcomes::default();
    match ended {
        Ended::Completed(values) => {
            outcomes.completed = Some(Completed {
                positions,
                values,
                durations_us: vec![duration_us],
            });
        }
        Ended::Failed(error) => outcomes.failed.push(FailedJob {
            position,
            error,
            duration_us,
        }),
        Ended::Released => {
            outcomes.released = positions;
            return outcomes;
        }
        Ended::NotStarted(_) => {
            outcomes.returned = positions;
            return outcomes;
        }
    }
    if !log.is_empty() {
        outcomes.logs.push(JobLog {
            position,
            text: log.into_text(),
        });
    }
    outcomes
}
