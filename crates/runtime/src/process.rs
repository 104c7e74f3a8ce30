//! One warm script process: started once, imports the script once, then runs micro-batches.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt, FdMapping};
use gristmill_model::PackedArray;
use gristmill_model::limits::{ERROR_TRACEBACK_BYTES_MAX, LOG_BYTES_MAX, VALUE_BYTES_MAX};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use crate::child::{GroupChild, describe, pipe, poll_ms, read_ready};
use crate::error::RuntimeError;
use crate::guard::Guard;
use crate::limits::{CRASH_OUTPUT_BYTES_MAX, FLUSH_EVERY_MS, SHUT_DOWN_MS_MAX};
use crate::output::Output;
use crate::protocol::{
    self, Frame, Hello, OutcomesFrame, ProtocolError, RunFlags, hello_frame, read_frame, run_frame_head,
};
use crate::script::Script;

/// What the shim finds at which file descriptor.
const REQUESTS_FD: i32 = 3;
const OUTCOMES_FD: i32 = 4;
const CONTROL_FD: i32 = 5;
const SHIM_FD: i32 = 6;

/// Bytes of the page of words that we share with the shim.
const CONTROL_BYTES: usize = 64;
/// Bytes read at a time.
const READ_BYTES: usize = 256 << 10;
/// Reads of a stream that never runs dry before the others get their turn.
const READS_IN_A_ROW_MAX: usize = 16;

/// What is needed to start a process, again and again.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub script: Script,
    pub async_jobs_max: u32,
    pub start_ms_max: u64,
    pub cancel_grace: Duration,
    pub guard: Guard,
}

/// A started process that has imported its script.
#[derive(Debug)]
pub(crate) struct WarmProcess {
    child: GroupChild,
    requests: OwnedFd,
    outcomes: OwnedFd,
    printed: OwnedFd,
    printed_ended: bool,
    control: OwnedFd,
    nonce: u64,
    next_sequence: u32,
    outgoing: VecDeque<Outgoing>,
    incoming: Vec<u8>,
    /// Where reads go first.
    scratch: Box<[u8]>,
    /// What came on file descriptors 1 and 2.
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

/// What made [`WarmProcess::wait`] return.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    pub frames: Vec<OutcomesFrame>,
    /// A frame did not hold, or the process closed its answers.
    pub broken: Option<ProtocolError>,
    pub ended: bool,
}

impl WarmProcess {
    /// Starts a process and waits until it has imported its script. Where `interrupted` says so, the
    /// wait ends with an error; it is asked when `interrupt` becomes readable.
    pub fn start(
        recipe: &Recipe,
        interrupt: &OwnedFd,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<WarmProcess, RuntimeError> {
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
            async_jobs_max: recipe.async_jobs_max,
            flush_every_ms: FLUSH_EVERY_MS,
        };
        process.outgoing.push_back(Outgoing {
            bytes: OutgoingBytes::Head(hello_frame(&hello, process.nonce)),
            written: 0,
        });
        process.await_ready(recipe, interrupt, interrupted)?;
        Ok(process)
    }

    fn spawn(recipe: &Recipe) -> io::Result<WarmProcess> {
        let (their_requests, requests) = pipe(false)?;
        let (outcomes, their_outcomes) = pipe(true)?;
        let (printed, their_printed) = pipe(true)?;
        let control = memory_file("gristmill-control", &[0; CONTROL_BYTES])?;
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
            ])
            .map_err(io::Error::other)?;
        let child = GroupChild::spawn(&mut command, &recipe.guard)?;
        // Keyed anew by the operating system's randomness for every `RandomState`.
        let nonce = RandomState::new().build_hasher().finish();
        Ok(WarmProcess {
            child,
            requests,
            outcomes,
            printed,
            printed_ended: false,
            control,
            nonce,
            next_sequence: 1,
            outgoing: VecDeque::new(),
            incoming: Vec::new(),
            scratch: vec![0; READ_BYTES].into_boxed_slice(),
            output: Output::new(nonce),
        })
    }

    fn await_ready(
        &mut self,
        recipe: &Recipe,
        interrupt: &OwnedFd,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        let script = recipe.script.path();
        let deadline = Instant::now() + Duration::from_millis(recipe.start_ms_max);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(RuntimeError::StartTimedOut {
                    script: script.to_owned(),
                    milliseconds: recipe.start_ms_max,
                });
            }
            let mut ready = None;
            let arrived = self.exchange(Some(left.as_millis() as u64 + 1), interrupt, &mut |frame| {
                ready = Some(frame);
            })?;
            match ready {
                Some(Frame::Ready(ready)) => {
                    let output = self.output.take_unclaimed();
                    tracing::debug!(script = %script.display(), runtime = ready.runtime, "script process is ready");
                    if !output.is_empty() {
                        tracing::info!(script = %script.display(), output = output.into_text(), "printed at start");
                    }
                    return Ok(());
                }
                Some(Frame::Refused(failure)) => {
                    return Err(RuntimeError::ScriptRefused {
                        script: script.to_owned(),
                        error: Box::new(failure.into()),
                    });
                }
                Some(Frame::Outcomes(_)) | None => {}
            }
            if arrived.ended || arrived.broken.is_some() {
                let status = describe(self.end());
                return Err(RuntimeError::DiedAtStart {
                    script: script.to_owned(),
                    status: arrived.broken.map_or(status, |broken| format!("sent {broken}")),
                    output: self.output.unclaimed.tail(CRASH_OUTPUT_BYTES_MAX),
                });
            }
            if interrupted() {
                return Err(RuntimeError::ShutDown);
            }
        }
    }

    /// Has the process run `payloads`, and returns the sequence number under which it answers. A
    /// careful run goes one job at a time and answers each before it begins the next one.
    pub fn run(&mut self, payloads: &PackedArray, flags: RunFlags) -> u32 {
        let sequence = self.next_sequence;
        self.next_sequence = self.next_sequence.wrapping_add(1).max(1);
        let head = run_frame_head(self.nonce, sequence, flags, payloads.as_str().len());
        let text = Arc::clone(payloads.text());
        for bytes in [OutgoingBytes::Head(head), OutgoingBytes::Payloads(text)] {
            self.outgoing.push_back(Outgoing { bytes, written: 0 });
        }
        sequence
    }

    /// Has the process begin no more jobs of a sequence.
    pub fn stop(&self, sequence: u32) {
        // The page is ours and has its size; a write to it has no way to fail.
        let _ = rustix::io::pwrite(
            &self.control,
            &sequence.to_le_bytes(),
            u64::from(sequence & 1) * 4,
        );
    }

    /// Sequence and index of the job that runs, or ran when the process died, where the shim says it.
    pub fn running(&self) -> Option<(u32, u32)> {
        let mut words = [0; 8];
        let read = rustix::io::pread(&self.control, &mut words, 8).ok()?;
        let (sequence, index) = words.split_at(4);
        let word = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).ok();
        let sequence = word(sequence)?;
        (read == 8 && sequence != 0).then_some((sequence, word(index)?))
    }

    /// Writes and reads what can be written and read, after waiting at most `timeout_ms` for the
    /// process or for `interrupt`.
    pub fn wait(&mut self, timeout_ms: Option<u64>, interrupt: &OwnedFd) -> Result<Arrived, RuntimeError> {
        self.exchange(timeout_ms, interrupt, &mut |_| ())
    }

    fn exchange(
        &mut self,
        timeout_ms: Option<u64>,
        interrupt: &OwnedFd,
        other: &mut dyn FnMut(Frame),
    ) -> Result<Arrived, RuntimeError> {
        self.write().map_err(RuntimeError::Plumbing)?;
        let mut fds = vec![
            PollFd::new(interrupt, PollFlags::IN),
            PollFd::from_borrowed_fd(self.child.exit_fd(), PollFlags::IN),
            PollFd::new(&self.outcomes, PollFlags::IN),
        ];
        if !self.printed_ended {
            fds.push(PollFd::new(&self.printed, PollFlags::IN));
        }
        if !self.outgoing.is_empty() {
            fds.push(PollFd::new(&self.requests, PollFlags::OUT));
        }
        poll_ms(&mut fds, timeout_ms).map_err(RuntimeError::Plumbing)?;
        let ended = !fds[1].revents().is_empty();
        drop(fds);
        let mut arrived = Arrived {
            ended,
            ..Arrived::default()
        };
        if let Err(broken) = self.read_frames(&mut arrived, other) {
            arrived.broken = Some(broken);
        }
        // After the frames: what a job printed was there before its outcome.
        self.read_printed();
        self.write().map_err(RuntimeError::Plumbing)?;
        Ok(arrived)
    }

    fn write(&mut self) -> io::Result<()> {
        while let Some(front) = self.outgoing.front_mut() {
            match rustix::io::write(&self.requests, front.rest()) {
                Ok(bytes) => front.written += bytes,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                // The process has gone or closed its end: that shows elsewhere.
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
        for _ in 0..READS_IN_A_ROW_MAX {
            match read_ready(self.printed.as_fd(), &mut self.scratch) {
                Ok(Some(0)) => return,
                Ok(Some(bytes)) => self.output.push(&self.scratch[..bytes]),
                Ok(None) | Err(_) => {
                    self.printed_ended = true;
                    return;
                }
            }
        }
    }

    fn read_frames(
        &mut self,
        arrived: &mut Arrived,
        other: &mut dyn FnMut(Frame),
    ) -> Result<(), ProtocolError> {
        let mut closed = false;
        let mut reads = 0;
        // At the end of the process everything is read; before, others get their turn.
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
            self.take_frames(arrived, other)?;
            // A short read has emptied the pipe.
            if bytes == 0 || (bytes < READ_BYTES && !arrived.ended) {
                break;
            }
        }
        // A closed pipe of a process that is about to end is its end.
        if closed && !arrived.ended && !self.child.wait_ms(SHUT_DOWN_MS_MAX) {
            return Err(ProtocolError::Closed);
        }
        arrived.ended |= closed;
        Ok(())
    }

    fn take_frames(
        &mut self,
        arrived: &mut Arrived,
        other: &mut dyn FnMut(Frame),
    ) -> Result<(), ProtocolError> {
        let mut used = 0;
        while let Some((frame, bytes)) = read_frame(&self.incoming[used..], self.nonce)? {
            used += bytes;
            match frame {
                Frame::Outcomes(outcomes) => arrived.frames.push(outcomes),
                frame => other(frame),
            }
        }
        self.incoming.drain(..used);
        Ok(())
    }

    /// Kills the process and its group, reads what it still printed, and says how it ended.
    pub fn end(&mut self) -> std::process::ExitStatus {
        let status = self.child.end();
        self.read_printed();
        status
    }

    /// Lets the process end by itself, so that what the script registered for its exit runs; kills it
    /// where it does not.
    pub fn shut_down(self) {
        let WarmProcess {
            mut child, requests, ..
        } = self;
        // The end of the requests tells the shim to end.
        drop(requests);
        if !child.wait_ms(SHUT_DOWN_MS_MAX) {
            tracing::warn!("a script process did not end by itself and was killed");
        }
        child.end();
    }
}

/// A file in memory with `contents`, at its beginning.
fn memory_file(name: &str, contents: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
    let mut at = 0;
    while at < contents.len() {
        at += rustix::io::pwrite(&file, &contents[at..], at as u64)?;
    }
    Ok(file)
}
