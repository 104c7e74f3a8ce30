//! One warm script process: started once, imports the script once, then runs a stream of jobs.

mod ending;

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt, FdMapping};
use gristmill_model::PackedArray;
use gristmill_model::limits::{ERROR_TRACEBACK_BYTES_MAX, LOG_BYTES_MAX, VALUE_BYTES_MAX};
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;

use crate::child::guard::Guard;
use crate::child::{GroupChild, describe};
use crate::descriptors::{SHIM_FD, memory_file, pipe, poll_ms, read_ready};
use crate::error::RuntimeError;
use crate::fork_server::ForkServer;
use crate::interpreter::Runtime;
use crate::limits::{
    CRASH_OUTPUT_BYTES_MAX, END_MS_MAX, EXIT_MS_MAX, OUTPUT_READ_AT_ONCE_BYTES, OUTPUT_READ_EVERY_MS,
};
use crate::output::{Output, PrintListener};
use crate::pool::Started;
use crate::pool::question_pipes::{JobAnswer, JobQuestion, QuestionPipes};
use crate::protocol::{
    self, Failure, Frame, Hello, OutcomesFrame, ProtocolError, Run, hello_frame, read_frame, run_frame_head,
};
use crate::script::Script;

/// The file descriptors of a shim.
const REQUESTS_FD: i32 = 3;
const OUTCOMES_FD: i32 = 4;
const CONTROL_FD: i32 = 5;
const BELL_FD: i32 = 7;
const QUESTIONS_FD: i32 = 9;
const ANSWERS_FD: i32 = 10;

/// The size of the page of words that we share with the shim, and the positions of the words.
const CONTROL_BYTES: usize = 64;
const LIMIT_AT: u64 = 0;
const QUESTIONS_AT: u64 = 4;
const OVERDUE_AT: u64 = 8;
const BEGUN_AT: u64 = 12;
/// Bytes read at a time.
const READ_BYTES: usize = 256 << 10;
/// The number of reads of a stream that never runs dry before the other streams get their turn.
const READS_IN_A_ROW_MAX: usize = 16;

/// Everything that is needed to start a process.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub script: Script,
    /// The number of concurrent asynchronous jobs in one process.
    pub concurrency: u32,
    /// The number of concurrent synchronous Python jobs in one process.
    pub threads: u32,
    pub jobs_per_process_max: u32,
    pub start_ms_max: u64,
    pub cancel_grace: Duration,
    pub guard: Guard,
    pub fork_server: Option<Arc<ForkServer>>,
    /// The time after which a finished job's outcome leaves its process.
    pub flush_every_ms: u64,
    /// Receives the output of processes.
    pub prints: Option<PrintListener>,
}

impl Recipe {
    /// The number of concurrent jobs in one process.
    pub fn concurrency_of(&self, started: Started) -> u32 {
        match (started.is_async, self.script.runtime()) {
            (true, _) => self.concurrency,
            (false, Runtime::Python) => self.threads,
            (false, _) => 1,
        }
    }
}

/// A process that is importing its script, or has imported it.
#[derive(Debug)]
pub(crate) struct WarmProcess {
    child: GroupChild,
    /// The requests. They are closed to end the process.
    requests: Option<OwnedFd>,
    outcomes: OwnedFd,
    printed: OwnedFd,
    printed_ended: bool,
    /// The time of the next read of its output, unless that is at once.
    read_printed_at: Option<Instant>,
    control: OwnedFd,
    bell: OwnedFd,
    /// The questions of jobs about themselves, and the answers.
    question_pipes: QuestionPipes,
    questions: u32,
    nonce: u64,
    /// The deadline of the import, and after the import the script's properties.
    start_deadline: Instant,
    ready: Option<Started>,
    outgoing: VecDeque<Outgoing>,
    incoming: Vec<u8>,
    /// The buffer for reads.
    scratch: Box<[u8]>,
    /// Output on file descriptors 1 and 2.
    pub output: Output,
}

#[derive(Debug)]
struct Outgoing {
    bytes: OutgoingBytes,
    written: usize,
}

#[derive(Debug)]
enum OutgoingBytes {
    Head(Vec<u8>),
    Payloads(Arc<str>),
}

impl Outgoing {
    fn rest(&self) -> &[u8] {
        let bytes = match &self.bytes {
            OutgoingBytes::Head(bytes) => bytes.as_slice(),
            OutgoingBytes::Payloads(text) => text.as_bytes(),
        };
        &bytes[self.written..]
    }
}

/// The reason why [`WarmProcess::wait`] returned.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    pub frames: Vec<OutcomesFrame>,
    /// The questions of jobs about themselves.
    pub questions: Vec<JobQuestion>,
    /// A frame was invalid, or the process closed its answers.
    pub broken: Option<ProtocolError>,
    pub ended: bool,
    /// The script has been imported.
    pub became_ready: bool,
    /// The files of the imported modules, as far as the process reports them.
    pub files: Vec<PathBuf>,
    /// The script cannot be imported.
    refused: Option<Failure>,
}

/// The progress of jobs in a process, as the process wrote it down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    /// The process does not report it.
    Unknown,
    /// Jobs have begun up to this number. Some of them ran.
    To(u32),
    /// Jobs have begun up to this number. The last one ran.
    Last(u32),
}

impl WarmProcess {
    /// Starts a process. It is ready after it has imported its script.
    pub fn start(recipe: &Recipe) -> Result<WarmProcess, RuntimeError> {
        let mut process = WarmProcess::spawn(recipe).map_err(|source| RuntimeError::Spawn {
            program: recipe.script.program_name(),
            source,
        })?;
        let script = recipe.script.path().to_string_lossy();
        let hello = Hello {
            protocol: protocol::VERSION,
            nonce: process.nonce.to_string(),
            script: &script,
            value_bytes_max: VALUE_BYTES_MAX,
            log_bytes_max: LOG_BYTES_MAX,
            traceback_bytes_max: ERROR_TRACEBACK_BYTES_MAX,
            concurrency: recipe.concurrency,
            threads: recipe.threads,
            flush_every_ms: recipe.flush_every_ms,
            end_ms_max: END_MS_MAX,
        };
        process.outgoing.push_back(Outgoing {
            bytes: OutgoingBytes::Head(hello_frame(&hello, process.nonce)),
            written: 0,
        });
        Ok(process)
    }

    /// The script's properties, after the import.
    pub fn ready(&self) -> Option<Started> {
        self.ready
    }

    /// The time by which it must have imported its script, until it has.
    pub fn start_deadline(&self) -> Option<Instant> {
        self.ready.is_none().then_some(self.start_deadline)
    }

    /// The reason why a process will never be ready, if there is one.
    pub fn start_failure(&mut self, recipe: &Recipe, arrived: &mut Arrived) -> Option<RuntimeError> {
        if self.ready.is_some() {
            return None;
        }
        let script = recipe.script.path().to_owned();
        if let Some(failure) = arrived.refused.take() {
            let error = Box::new(failure.into());
            return Some(RuntimeError::ScriptRefused { script, error });
        }
        if arrived.ended || arrived.broken.is_some() {
            let status = describe(self.end());
            return Some(RuntimeError::DiedAtStart {
                script,
                status: arrived
                    .broken
                    .take()
                    .map_or(status, |broken| format!("sent {broken}")),
                output: self.output.unclaimed.tail(CRASH_OUTPUT_BYTES_MAX),
            });
        }
        (Instant::now() >= self.start_deadline).then_some(RuntimeError::StartTimedOut {
            script,
            milliseconds: recipe.start_ms_max,
        })
    }

    fn spawn(recipe: &Recipe) -> io::Result<WarmProcess> {
        let (their_requests, requests) = pipe(false)?;
        let (outcomes, their_outcomes) = pipe(true)?;
        let (printed, their_printed) = pipe(true)?;
        let control = memory_file("gristmill-control", &[0; CONTROL_BYTES])?;
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        let (question_pipes, their_questions, their_answers) = QuestionPipes::new()?;
        let forked = recipe.fork_server.as_ref().and_then(|server| {
            let theirs = [
                &their_printed,
                &their_requests,
                &their_outcomes,
                &control,
                &bell,
                &their_questions,
                &their_answers,
            ];
            let child = server.fork(theirs.map(AsFd::as_fd))?;
            Some((server, child))
        });
        let child = match forked {
            Some((server, child)) => GroupChild::forked(server.clone(), child, &recipe.guard)?,
            None => {
                let shim = memory_file("gristmill-shim", recipe.script.shim().as_bytes())?;
                let map = |parent_fd, child_fd| FdMapping { parent_fd, child_fd };
                let mut command: Command = recipe.script.command();
                command
                    .stdin(Stdio::null())
                    .stdout(their_printed.try_clone()?)
                    .stderr(their_printed)
                    .fd_mappings(vec![
                        map(their_requests, REQUESTS_FD),
                        map(their_outcomes, OUTCOMES_FD),
                        map(control.try_clone()?, CONTROL_FD),
                        map(shim, SHIM_FD),
                        map(bell.try_clone()?, BELL_FD),
                        map(their_questions, QUESTIONS_FD),
                        map(their_answers, ANSWERS_FD),
                    ])
                    .map_err(io::Error::other)?;
                GroupChild::spawn(&mut command, &recipe.guard)?
            }
        };
        // Every `RandomState` has new keys from the operating system.
        let nonce = RandomState::new().build_hasher().finish();
        Ok(WarmProcess {
            child,
            requests: Some(requests),
            outcomes,
            printed,
            printed_ended: false,
            read_printed_at: None,
            control,
            bell,
            question_pipes,
            questions: 0,
            nonce,
            start_deadline: Instant::now() + Duration::from_millis(recipe.start_ms_max),
            ready: None,
            outgoing: VecDeque::new(),
            incoming: Vec::new(),
            scratch: vec![0; READ_BYTES].into_boxed_slice(),
            output: Output::new(nonce, recipe.prints.clone()),
        })
    }

    /// Adds jobs to the process's stream.
    pub fn run(&mut self, run: &Run<'_>, payloads: &PackedArray) {
        let head = run_frame_head(self.nonce, run, payloads.as_str());
        let text = Arc::clone(payloads.text());
        for bytes in [OutgoingBytes::Head(head), OutgoingBytes::Payloads(text)] {
            self.outgoing.push_back(Outgoing { bytes, written: 0 });
        }
    }

    /// Tells the process to begin no more jobs below this number.
    pub fn limit(&self, number: u32) {
        // The page and the bell are ours, and writing to them cannot fail: the bell's counter is far from full.
        let _ = rustix::io::pwrite(&self.control, &number.to_le_bytes(), LIMIT_AT);
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Asks the process which job keeps this overdue job from ending.
    pub fn ask_for_culprit(&mut self, overdue: u32) {
        self.questions = self.questions.wrapping_add(1);
        let _ = rustix::io::pwrite(&self.control, &overdue.to_le_bytes(), OVERDUE_AT);
        let _ = rustix::io::pwrite(&self.control, &self.questions.to_le_bytes(), QUESTIONS_AT);
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Answers the question of a job, if this process asked it.
    pub fn answer_question(&mut self, answer: &JobAnswer) {
        if answer.nonce == self.nonce {
            self.question_pipes.answer(answer);
        }
    }

    /// The progress of jobs, also at the process's death.
    pub fn begun(&self) -> Begun {
        let mut words = [0; 8];
        if rustix::io::pread(&self.control, &mut words, BEGUN_AT) != Ok(words.len()) {
            return Begun::Unknown;
        }
        let [number, manner] = [0, 4].map(|at| {
            let bytes = [words[at], words[at + 1], words[at + 2], words[at + 3]];
            u32::from_le_bytes(bytes)
        });
        match manner {
            1 => Begun::To(number),
            2 => Begun::Last(number),
            _ => Begun::Unknown,
        }
    }

    /// Writes and reads without blocking, after it has waited at most `timeout_ms` for the process or for `interrupt`.
    pub fn wait(
        &mut self,
        mut timeout_ms: Option<u64>,
        interrupt: &OwnedFd,
    ) -> Result<Arrived, RuntimeError> {
        self.write().map_err(RuntimeError::Plumbing)?;
        let read_again_after = self
            .read_printed_at
            .map(|at| at.saturating_duration_since(Instant::now()));
        let pause_ms = read_again_after.map_or(0, |after| after.as_micros().div_ceil(1_000) as u64);
        if pause_ms > 0 {
            timeout_ms = Some(timeout_ms.map_or(pause_ms, |timeout_ms| timeout_ms.min(pause_ms)));
        }
        let mut fds = vec![
            PollFd::new(interrupt, PollFlags::IN),
            PollFd::from_borrowed_fd(self.child.exit_fd(), PollFlags::IN),
            PollFd::new(&self.outcomes, PollFlags::IN),
        ];
        fds.extend(self.question_pipes.poll_fd());
        if !self.printed_ended && pause_ms == 0 {
            fds.push(PollFd::new(&self.printed, PollFlags::IN));
        }
        if let Some(requests) = self.requests.as_ref().filter(|_| !self.outgoing.is_empty()) {
            fds.push(PollFd::new(requests, PollFlags::OUT));
        }
        poll_ms(&mut fds, timeout_ms).map_err(RuntimeError::Plumbing)?;
        let ended = !fds[1].revents().is_empty();
        drop(fds);
        let mut arrived = Arrived {
            ended,
            ..Arrived::default()
        };
        if let Err(broken) = self.read_frames(&mut arrived) {
            arrived.broken = Some(broken);
        }
        match self.question_pipes.read(self.nonce) {
            Ok(questions) => arrived.questions = questions,
            Err(broken) => arrived.broken = Some(broken),
        }
        // This comes after the frames, because a job's output precedes its outcome.
        self.read_printed();
        if arrived.became_ready {
            let printed = self.output.take_unclaimed();
            if !printed.is_empty() {
                tracing::info!(output = printed.into_text(), "printed at start");
            }
        }
        self.write().map_err(RuntimeError::Plumbing)?;
        Ok(arrived)
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(requests) = &self.requests else {
            return Ok(());
        };
        while let Some(front) = self.outgoing.front_mut() {
            match rustix::io::write(requests, front.rest()) {
                Ok(bytes) => front.written += bytes,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                // The process is gone or has closed its end, which is noticed elsewhere.
                Err(Errno::PIPE) => self.outgoing.clear(),
                Err(error) => return Err(error.into()),
            }
            if self.outgoing.front().is_some_and(|front| front.rest().is_empty()) {
                self.outgoing.pop_front();
            }
        }
        Ok(())
    }

    fn read_printed(&mut self) {
        let mut bytes_read = 0;
        for _ in 0..READS_IN_A_ROW_MAX {
            match read_ready(self.printed.as_fd(), &mut self.scratch) {
                Ok(Some(0)) => break,
                Ok(Some(bytes)) => {
                    self.output.push(&self.scratch[..bytes]);
                    bytes_read += bytes;
                }
                Ok(None) | Err(_) => {
                    self.printed_ended = true;
                    break;
                }
            }
        }
        let may_wait = (1..OUTPUT_READ_AT_ONCE_BYTES).contains(&bytes_read) && !self.output.is_followed();
        self.read_printed_at = may_wait.then(|| Instant::now() + Duration::from_millis(OUTPUT_READ_EVERY_MS));
    }

    fn read_frames(&mut self, arrived: &mut Arrived) -> Result<(), ProtocolError> {
        let mut closed = false;
        let mut reads = 0;
        // At the end of the process everything is read. Before, the other streams get their turn.
        while arrived.ended || reads < READS_IN_A_ROW_MAX {
            reads += 1;
            let bytes = match read_ready(self.outcomes.as_fd(), &mut self.scratch) {
                Ok(Some(bytes)) => bytes,
                Ok(None) | Err(_) => {
                    closed = true;
                    break;
                }
            };
            self.incoming.extend_from_slice(&self.scratch[..bytes]);
            self.take_frames(arrived)?;
            // A short read has emptied the pipe.
            if bytes == 0 || (bytes < READ_BYTES && !arrived.ended) {
                break;
            }
        }
        // A closed pipe means that the process is about to end.
        if closed && !arrived.ended && !self.child.wait_ms(EXIT_MS_MAX) {
            return Err(ProtocolError::Closed);
        }
        arrived.ended |= closed;
        Ok(())
    }

    fn take_frames(&mut self, arrived: &mut Arrived) -> Result<(), ProtocolError> {
        let mut used = 0;
        while let Some((frame, bytes)) = read_frame(&self.incoming[used..], self.nonce)? {
            used += bytes;
            match frame {
                Frame::Outcomes(outcomes) => arrived.frames.push(outcomes),
                Frame::Refused(failure) => arrived.refused = Some(failure),
                Frame::Ready(ready) => {
                    tracing::debug!(runtime = ready.runtime, "a script process is ready");
                    self.ready = Some(Started {
                        is_async: ready.is_async,
                    });
                    arrived.files = ready.files;
                    arrived.became_ready = true;
                }
            }
        }
        self.incoming.drain(..used);
        Ok(())
    }

    /// Kills the process and its group, reads its remaining output, and returns its exit status.
    pub fn end(&mut self) -> std::process::ExitStatus {
        let status = self.child.end();
        self.read_printed();
        status
    }
}
