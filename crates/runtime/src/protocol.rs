//! The frames between Gristmill and a warm script process, version 2.
//!
//! A process takes a stream of jobs and answers with a stream of outcomes. Its jobs are numbered from 0 over its whole
//! life. A process is replaced before the numbers reach [`JOBS_PER_PROCESS_MAX`](crate::limits::JOBS_PER_PROCESS_MAX),
//! so that they never wrap.
//!
//! Frames travel over two separate pipes. Standard input, output and error are not involved. All numbers are
//! little-endian. What a running job asks about itself has two pipes of its own (`pool/question_pipes.rs`). A frame is a header and a body:
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | length of the body |
//! | 4 | kind |
//! | 8 | nonce: drawn for each process; every frame to and from it carries it |
//!
//! | kind | from | body |
//! | --- | --- | --- |
//! | 1 `hello` | Gristmill | JSON: `Hello` |
//! | 2 `run` | Gristmill | see below |
//! | 17 `ready` | process | JSON: `Ready` |
//! | 18 `refused` | process | JSON: `Note::Failed`'s error, for a script that cannot be imported |
//! | 19 `outcomes` | process | see below |
//!
//! `run` adds jobs to the stream: number of the first one (4), flags (4; bit 0: finalizing; bits 1 and 2: the payloads
//! may have integers beyond 2^53, and numbers beyond the largest double), timeout in milliseconds (4; 0: none), length
//! of the identity (4), the identity (JSON: see
//! [`MicroBatch::identity_json`](gristmill_worker::MicroBatch::identity_json)), then the packed payloads in their
//! stored form. For jobs that finalize, these are arrays of payload, memo and outcomes of children. There is no flag
//! for care: jobs that are suspected of killing processes are sent one by one, each when the process has no other job.
//!
//! `outcomes`: the number up to which jobs have begun (4), number *n* of completed jobs (4), bytes of values (4), 0
//! (4), *n* numbers of jobs (4 each), *n* durations in microseconds (4 each), the values as a packed array (one JSON
//! text in each line, as in [`gristmill_model::packed`]), then notes, one JSON text in each line: everything else
//! (`Note`), such as the progress of a running job. The jobs may come from several `run` frames.
//!
//! The process begins jobs in the order of their numbers, each as soon as one of its slots is free. It answers them in
//! any order, at most [`FLUSH_EVERY_MS`](crate::limits::FLUSH_EVERY_MS) after each has ended.
//!
//! # Words in shared memory
//!
//! Beside the pipes there is one page of shared memory (a memfd) with words of 4 bytes. It can be read after the
//! process's death.
//!
//! | word | written by | what |
//! | --- | --- | --- |
//! | 0 | Gristmill | the limit: no job below this number begins any more |
//! | 1 | Gristmill | how many questions it has asked |
//! | 2 | Gristmill | the number of the job of the last question |
//! | 3 | shims that can | the number up to which jobs have begun |
//! | 4 | shims that can | how well word 3 is kept |
//!
//! Word 4 is 0 if word 3 is not kept, 1 if jobs run concurrently, and 2 if one job runs at a time, so that the last one
//! that has begun is the running one.
//!
//! Gristmill raises the limit to the number of jobs that it has sent so far, and rings the *bell* (an eventfd). The
//! process answers with the note `recalled` within milliseconds, even while its jobs run: those numbers have not begun
//! and never will. They include jobs below the limit in frames that it has not read yet, which are dropped when they
//! are read. Drains, cancels and recalls all use this one mechanism. Gristmill decides afterwards about the jobs.
//!
//! If jobs run concurrently and one exceeds its timeout, Gristmill asks which job keeps it, and rings the bell. The
//! process answers with the note `culprit`: the number of a job, for example one that blocks the event loop, or no
//! number if the job is about to be answered. A process that does not answer within
//! [`ANSWER_MS_MAX`](crate::limits::ANSWER_MS_MAX) does not know. Then each job that had begun runs again, alone, and
//! none is charged before.
//!
//! # The end
//!
//! The end of its requests tells a process to end. It runs the exit handlers of its script, and writes and closes the
//! script's files, within [`END_MS_MAX`](crate::limits::END_MS_MAX). The note `unended` names what failed or took
//! longer. A process that ends by itself announces this with the note `exiting`, if it can. It is killed if it has not
//! ended after [`EXIT_MS_MAX`](crate::limits::EXIT_MS_MAX).
//!
//! In the shims, one operation gives a job to a runner or takes it back, so that it never has two owners: the call of
//! an iterator that the runners and the recalling thread share (Python), or a compare-and-exchange of the next number
//! (JavaScript).
//!
//! # Records among the output
//!
//! A shim writes records into file descriptor 1's pipe: `\0GRST`, the nonce (8), a kind (1), the number of a job (4), a
//! length (4), and then this many bytes. A record is written at once and is no longer than `PIPE_BUF`, so that other
//! writers cannot tear it.
//!
//! | kind | what |
//! | --- | --- |
//! | 0 | written before the outcome of a job that ran for a millisecond or more: the raw output before this record is that job's |
//! | 1 | the job printed these bytes |
//! | 2 | the bytes that the job printed beyond its limit, in all, as a number (8) |
//!
//! No incoming data is trusted: lengths, counts, numbers and JSON are checked, a job can be answered once, and an
//! invalid frame ends the process.

mod numbers;

use std::path::PathBuf;

use gristmill_model::limits::BATCH_JOBS_MAX;
use gristmill_model::{JobError, PackedArray, Progress};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::limits::FRAME_BYTES_MAX;
use crate::protocol::numbers::Outstanding;

/// The version of this protocol.
pub(crate) const VERSION: u32 = 2;

pub(crate) const HEADER_BYTES: usize = 16;
const RUN_BYTES: usize = 16;
const OUTCOMES_BYTES: usize = 16;

const KIND_HELLO: u32 = 1;
const KIND_RUN: u32 = 2;
const KIND_READY: u32 = 17;
const KIND_REFUSED: u32 = 18;
const KIND_OUTCOMES: u32 = 19;

/// The first frame to a process.
#[derive(Debug, Serialize)]
pub(crate) struct Hello<'a> {
    pub protocol: u32,
    /// In decimal, because JSON readers lose bits of large numbers.
    pub nonce: String,
    /// Absolute path of the script.
    pub script: &'a str,
    pub value_bytes_max: usize,
    pub log_bytes_max: usize,
    pub traceback_bytes_max: usize,
    /// The number of concurrent asynchronous jobs.
    pub concurrency: u32,
    /// The number of concurrent synchronous jobs, in languages with threads.
    pub threads: u32,
    pub flush_every_ms: u64,
    pub end_ms_max: u64,
}

/// The process's answer to [`Hello`].
#[derive(Debug, Deserialize)]
pub(crate) struct Ready {
    /// The runtime's name and version, as it reports them.
    pub runtime: String,
    /// True if `main` is asynchronous.
    pub is_async: bool,
    /// The files of the imported modules, without libraries, if the process reports them.
    #[serde(default)]
    pub files: Vec<PathBuf>,
}

/// A failure in the form of the shims.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Failure {
    #[serde(rename = "type")]
    pub error_type: String,
    pub message: String,
    #[serde(default)]
    pub traceback: Option<String>,
    #[serde(default)]
    pub permanent: bool,
    /// The delay. Seconds.
    #[serde(default)]
    pub retry_after: Option<f64>,
}

impl From<Failure> for JobError {
    fn from(failure: Failure) -> JobError {
        let mut error = JobError::new(failure.error_type, failure.message);
        if let Some(traceback) = failure.traceback.filter(|traceback| !traceback.is_empty()) {
            error = error.with_traceback(traceback);
        }
        error.permanent = failure.permanent;
        error.retry_after_ms = failure
            .retry_after
            .filter(|seconds| *seconds >= 0.0)
            .map(|seconds| (seconds * 1_000.0).ceil() as u64);
        error
    }
}

/// The description of jobs in a `run` frame.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    /// The number of the first one.
    pub first: u32,
    /// True if they finalize.
    pub finalizing: bool,
    pub timeout_ms: Option<u64>,
    pub identity: &'a str,
}

/// Notes: everything except plain values.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Note {
    /// A job failed.
    Failed {
        index: u32,
        duration_us: u32,
        error: Failure,
    },
    /// A job waits for children.
    Spawned {
        index: u32,
        duration_us: u32,
        spawn: Box<RawValue>,
    },
    /// A job completed, and spawned siblings.
    Done {
        index: u32,
        duration_us: u32,
        /// A packed array with one item.
        value: PackedArray,
        siblings: Box<RawValue>,
    },
    /// The progress of a job.
    Progress {
        index: u32,
        #[serde(flatten)]
        progress: Progress,
    },
    /// Jobs with these numbers have not begun, and never will.
    Recalled { from: u32, to: u32 },
    /// The process begins no more jobs, because abandoned jobs hold too many of its slots.
    Exhausted,
    /// The job that keeps another one beyond its timeout.
    Culprit { index: Option<u32> },
    /// The process exits by itself.
    Exiting,
    /// Parts of the script that the process could not end normally.
    Unended(String),
    /// The script's own files that the process has imported while it ran jobs.
    Imported(Vec<PathBuf>),
}

impl Note {
    /// The number of the job in the note.
    pub fn number_mut(&mut self) -> Option<&mut u32> {
        match self {
            Note::Failed { index, .. }
            | Note::Spawned { index, .. }
            | Note::Done { index, .. }
            | Note::Progress { index, .. } => Some(index),
            Note::Recalled { .. }
            | Note::Exhausted
            | Note::Culprit { .. }
            | Note::Exiting
            | Note::Unended(_)
            | Note::Imported(_) => None,
        }
    }
}

/// Outcomes of some jobs.
#[derive(Debug)]
pub(crate) struct OutcomesFrame {
    /// The number up to which jobs have begun.
    pub begun: u32,
    pub numbers: Vec<u32>,
    pub durations_us: Vec<u32>,
    /// A packed array with as many values, not checked yet. Empty if there are none.
    pub values: String,
    pub notes: Vec<Note>,
}

/// A frame from a process.
#[derive(Debug)]
pub(crate) enum Frame {
    Ready(Ready),
    Refused(Failure),
    Outcomes(OutcomesFrame),
}

/// An invalid frame. The process is no longer trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error("a frame without this process's nonce")]
    Nonce,
    #[error("a frame of unknown kind {0}")]
    Kind(u32),
    #[error("a frame of {0} bytes; the limit is {FRAME_BYTES_MAX}")]
    TooLong(usize),
    #[error("a frame whose parts do not fit its length")]
    Parts,
    #[error("a frame that is not UTF-8")]
    NotUtf8,
    #[error("a frame with invalid JSON: {0}")]
    Json(String),
    #[error("an outcome of a job that it does not hold")]
    UnknownJob,
    #[error("{values} values for {jobs} jobs")]
    Count { values: u32, jobs: u32 },
    #[error("an answer to a recall that was not sent")]
    Recall,
    #[error("the end of its answers while it runs")]
    Closed,
}

/// The bytes of a `hello` frame.
pub(crate) fn hello_frame(hello: &Hello<'_>, nonce: u64) -> Vec<u8> {
    let body = serde_json::to_vec(hello).unwrap_or_default();
    let mut frame = Vec::with_capacity(HEADER_BYTES + body.len());
    put_header(&mut frame, body.len(), KIND_HELLO, nonce);
    frame.extend_from_slice(&body);
    frame
}

/// The bytes of a `run` frame before its packed payloads.
pub(crate) fn run_frame_head(nonce: u64, run: &Run<'_>, payloads: &str) -> Vec<u8> {
    let identity = run.identity.as_bytes();
    let mut frame = Vec::with_capacity(HEADER_BYTES + RUN_BYTES + identity.len());
    let body_bytes = RUN_BYTES + identity.len() + payloads.len();
    put_header(&mut frame, body_bytes, KIND_RUN, nonce);
    let timeout_ms = run.timeout_ms.map_or(0, |timeout_ms| {
        u32::try_from(timeout_ms).unwrap_or(u32::MAX).max(1)
    });
    let numbers = Outstanding::find(payloads);
    let words = [
        run.first,
        u32::from(run.finalizing) | u32::from(numbers.long) << 1 | u32::from(numbers.far) << 2,
        timeout_ms,
        identity.len() as u32,
    ];
    words
        .iter()
        .for_each(|word| frame.extend_from_slice(&word.to_le_bytes()));
    frame.extend_from_slice(identity);
    frame
}

fn put_header(frame: &mut Vec<u8>, body_bytes: usize, kind: u32, nonce: u64) {
    frame.extend_from_slice(&(body_bytes as u32).to_le_bytes());
    frame.extend_from_slice(&kind.to_le_bytes());
    frame.extend_from_slice(&nonce.to_le_bytes());
}

/// Takes the first complete frame from the front of `bytes`. Returns the frame and its length, or `None` if more bytes
/// are needed.
pub(crate) fn read_frame(bytes: &[u8], nonce: u64) -> Result<Option<(Frame, usize)>, ProtocolError> {
    let Some(header) = bytes.get(..HEADER_BYTES) else {
        return Ok(None);
    };
    if header[8..16] != nonce.to_le_bytes() {
        return Err(ProtocolError::Nonce);
    }
    let body_bytes = word(header, 0) as usize;
    if body_bytes > FRAME_BYTES_MAX {
        return Err(ProtocolError::TooLong(body_bytes));
    }
    let Some(body) = bytes.get(HEADER_BYTES..HEADER_BYTES + body_bytes) else {
        return Ok(None);
    };
    let frame = match word(header, 4) {
        KIND_READY => Frame::Ready(read_json(body)?),
        KIND_REFUSED => Frame::Refused(read_json(body)?),
        KIND_OUTCOMES => Frame::Outcomes(read_outcomes(body)?),
        kind => return Err(ProtocolError::Kind(kind)),
    };
    Ok(Some((frame, HEADER_BYTES + body_bytes)))
}

fn read_outcomes(body: &[u8]) -> Result<OutcomesFrame, ProtocolError> {
    if body.len() < OUTCOMES_BYTES {
        return Err(ProtocolError::Parts);
    }
    let (count, values_bytes) = (word(body, 4), word(body, 8) as usize);
    let numbers_bytes = count as usize * 4;
    let rest = &body[OUTCOMES_BYTES..];
    if count > BATCH_JOBS_MAX || rest.len() < 2 * numbers_bytes + values_bytes {
        return Err(ProtocolError::Parts);
    }
    let (numbers, rest) = rest.split_at(numbers_bytes);
    let (durations, rest) = rest.split_at(numbers_bytes);
    let (values, notes) = rest.split_at(values_bytes);
    let utf8 = |bytes| std::str::from_utf8(bytes).map_err(|_| ProtocolError::NotUtf8);
    let notes = notes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    Ok(OutcomesFrame {
        begun: word(body, 0),
        numbers: words(numbers),
        durations_us: words(durations),
        values: utf8(values)?.to_owned(),
        notes: notes.map(read_json).collect::<Result<_, _>>()?,
    })
}

fn read_json<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, ProtocolError> {
    serde_json::from_slice(text).map_err(|error| ProtocolError::Json(error.to_string()))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|bytes| word(bytes, 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: u64 = 77;

    fn frame(kind: u32, nonce: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&nonce.to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    fn outcomes(count: u32, values_bytes: u32, rest: &[u8]) -> Vec<u8> {
        let mut body: Vec<u8> = [2u32, count, values_bytes, 0]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();
        body.extend_from_slice(rest);
        frame(KIND_OUTCOMES, NONCE, &body)
    }

    #[test]
    fn outcomes_are_read_when_they_are_complete() {
        let mut rest: Vec<u8> = [0u32, 1, 10, 11].into_iter().flat_map(u32::to_le_bytes).collect();
        rest.extend_from_slice(b"[1\n,2]{\"recalled\":{\"from\":2,\"to\":5}}\n\"exhausted\"\n");
        let bytes = outcomes(2, 6, &rest);
        for length in 0..bytes.len() {
            assert!(read_frame(&bytes[..length], NONCE).unwrap().is_none());
        }
        let Some((Frame::Outcomes(read), used)) = read_frame(&bytes, NONCE).unwrap() else {
            panic!("no outcomes");
        };
        assert_eq!(used, bytes.len());
        assert_eq!(read.begun, 2);
        assert_eq!((read.numbers, read.durations_us), (vec![0, 1], vec![10, 11]));
        assert_eq!(read.values, "[1\n,2]");
        assert!(matches!(
            read.notes[..],
            [Note::Recalled { from: 2, to: 5 }, Note::Exhausted]
        ));
    }

    #[test]
    fn invalid_frames_are_refused() {
        for (bytes, error) in [
            (frame(KIND_READY, NONCE + 1, b"{}"), ProtocolError::Nonce),
            (frame(99, NONCE, b""), ProtocolError::Kind(99)),
            (frame(KIND_OUTCOMES, NONCE, b"short"), ProtocolError::Parts),
            (outcomes(u32::MAX, 0, b""), ProtocolError::Parts),
            (outcomes(0, u32::MAX, b""), ProtocolError::Parts),
            (outcomes(0, 1, b"\xff"), ProtocolError::NotUtf8),
        ] {
            assert_eq!(read_frame(&bytes, NONCE).unwrap_err(), error);
        }
        let mut long = frame(KIND_OUTCOMES, NONCE, b"");
        long[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(
            read_frame(&long, NONCE).unwrap_err(),
            ProtocolError::TooLong(u32::MAX as usize)
        );
        assert!(matches!(
            read_frame(&outcomes(0, 0, b"{]"), NONCE),
            Err(ProtocolError::Json(_))
        ));
    }
}
