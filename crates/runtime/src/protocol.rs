//! The frames between Gristmill and a warm script process, version 1.
//!
//! They travel over two pipes of their own; standard input, output and error are not involved. All
//! numbers are little-endian. A frame is a header and a body:
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
//! | 2 `run` | Gristmill | sequence (4), flags (4; bit 0: careful; bit 1: finalizing), then the packed payloads as they are stored; of jobs that finalize, arrays of payload, memo and outcomes of children |
//! | 17 `ready` | process | JSON: `Ready` |
//! | 18 `refused` | process | JSON: `Note::Failed`'s error, for a script that cannot be imported |
//! | 19 `outcomes` | process | see below |
//!
//! `outcomes`: sequence (4), jobs begun so far (4), number *n* of completed jobs (4), bytes of values
//! (4), *n* indexes (4 each), *n* durations in microseconds (4 each), the values as a packed array
//! (one JSON text a line, as in [`gristmill_model::packed`]), then notes, one JSON text a line: what
//! stands out (`Note`), among it how far a running job is. Indexes count the payloads of the `run` frame from 0.
//!
//! The process answers jobs in any order, at most [`FLUSH_EVERY_MS`](crate::limits::FLUSH_EVERY_MS)
//! after each has ended; under the flag *careful* one at a time, each before the next one begins.
//!
//! Beside the pipes there is one page of shared memory (a memfd) with words of 4 bytes:
//! words 0 and 1: the sequence to stop, at its parity (written by Gristmill: begin no more jobs of it,
//! end with the note `stopped`); words 2 and 3: sequence and index of the running job (written by the
//! shims that can, 0 otherwise). The page can be read after the process is dead.
//!
//! Into file descriptor 1 a shim writes a marker whenever a job has ended that ran for a millisecond or
//! more, before its outcome: `\0GRST`, the nonce (8), sequence (4) and index (4). What came before the
//! marker is that job's output.
//!
//! Nothing that arrives is trusted: lengths, counts, indexes and JSON are checked, a job can be
//! answered once, and a frame that does not hold ends the process.

use std::collections::BTreeMap;

use gristmill_model::limits::BATCH_JOBS_MAX;
use gristmill_model::{BatchOptions, ChildBatch, JobError, OnChildFailure, PackedArray, Progress, Spawn};
use serde::{Deserialize, Serialize};

use crate::limits::FRAME_BYTES_MAX;

/// The version of this protocol.
pub(crate) const VERSION: u32 = 1;

pub(crate) const HEADER_BYTES: usize = 16;
const RUN_BYTES: usize = 8;
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
    /// In decimal, since JSON readers lose bits of large numbers.
    pub nonce: String,
    /// Absolute path of the script.
    pub script: &'a str,
    pub value_bytes_max: usize,
    pub log_bytes_max: usize,
    pub traceback_bytes_max: usize,
    pub async_jobs_max: u32,
    pub flush_every_ms: u64,
}

/// The process's answer to [`Hello`].
#[derive(Debug, Deserialize)]
pub(crate) struct Ready {
    /// The runtime's name and version, as it says itself.
    pub runtime: String,
}

/// A failure as the shims say it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Failure {
    #[serde(rename = "type")]
    pub error_type: String,
    pub message: String,
    #[serde(default)]
    pub traceback: Option<String>,
    #[serde(default)]
    pub permanent: bool,
    /// Seconds.
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

/// What a job spawns, as the shims say it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ScriptSpawn {
    pub children: Vec<ScriptChildren>,
    /// A packed array of one.
    pub memo: PackedArray,
    #[serde(default)]
    pub on_failure: OnChildFailure,
}

/// Children of one kind.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptChildren {
    /// That of the parent, where `None`.
    #[serde(default)]
    pub kind: Option<String>,
    #[serde(default)]
    pub queue: Option<String>,
    pub payloads: PackedArray,
    #[serde(default)]
    pub options: BatchOptions,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

impl ScriptChildren {
    /// What a job of this kind spawns.
    pub fn into_batch(self, kind: &str) -> ChildBatch {
        ChildBatch {
            queue: self.queue,
            options: self.options,
            tags: self.tags,
            ..ChildBatch::new(self.kind.as_deref().unwrap_or(kind), self.payloads)
        }
    }
}

impl ScriptSpawn {
    /// What a job of this kind spawns.
    pub fn into_spawn(self, kind: &str) -> Spawn {
        let children = self.children.into_iter();
        let children = children.map(|children| children.into_batch(kind));
        Spawn {
            children: children.collect(),
            on_failure: self.on_failure,
            memo: Some(self.memo),
        }
    }
}

/// How a piece of a micro-batch is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RunFlags {
    /// One job at a time, each answered before the next one begins.
    pub careful: bool,
    /// The jobs finalize.
    pub finalizing: bool,
}

/// What stands out among the outcomes.
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
        spawn: ScriptSpawn,
    },
    /// A job completed, and spawned siblings.
    Done {
        index: u32,
        duration_us: u32,
        /// A packed array of one.
        value: PackedArray,
        siblings: Vec<ScriptChildren>,
    },
    /// A job printed; `dropped_bytes` more than `text` holds.
    Log {
        index: u32,
        text: String,
        dropped_bytes: u64,
    },
    /// How far a job is.
    Progress {
        index: u32,
        #[serde(flatten)]
        progress: Progress,
    },
    /// The process begins no more jobs of this sequence.
    Stopped,
}

/// Outcomes of some jobs of one `run` frame.
#[derive(Debug)]
pub(crate) struct OutcomesFrame {
    pub sequence: u32,
    /// How many jobs have begun, in the order of the payloads.
    pub begun: u32,
    pub indexes: Vec<u32>,
    pub durations_us: Vec<u32>,
    /// A packed array of as many values, not yet checked; empty where there are none.
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

/// What was wrong with a frame. The process is not to be trusted any more.
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
    #[error("a frame whose JSON does not hold: {0}")]
    Json(String),
    #[error("an outcome for a job that it was not given or has answered before")]
    UnknownJob,
    #[error("{values} values for {jobs} jobs")]
    Count { values: u32, jobs: u32 },
    #[error("the end of its answers while it lives")]
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
pub(crate) fn run_frame_head(nonce: u64, sequence: u32, flags: RunFlags, payload_bytes: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER_BYTES + RUN_BYTES);
    put_header(&mut frame, RUN_BYTES + payload_bytes, KIND_RUN, nonce);
    frame.extend_from_slice(&sequence.to_le_bytes());
    let flags = u32::from(flags.careful) | u32::from(flags.finalizing) << 1;
    frame.extend_from_slice(&flags.to_le_bytes());
    frame
}

fn put_header(frame: &mut Vec<u8>, body_bytes: usize, kind: u32, nonce: u64) {
    frame.extend_from_slice(&(body_bytes as u32).to_le_bytes());
    frame.extend_from_slice(&kind.to_le_bytes());
    frame.extend_from_slice(&nonce.to_le_bytes());
}

/// Takes the first whole frame off the front of `bytes`: the frame and how long it was, or `None`
/// while more bytes are needed.
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
    let (count, values_bytes) = (word(body, 8), word(body, 12) as usize);
    let numbers_bytes = count as usize * 4;
    let rest = &body[OUTCOMES_BYTES..];
    if count > BATCH_JOBS_MAX || rest.len() < 2 * numbers_bytes + values_bytes {
        return Err(ProtocolError::Parts);
    }
    let (indexes, rest) = rest.split_at(numbers_bytes);
    let (durations, rest) = rest.split_at(numbers_bytes);
    let (values, notes) = rest.split_at(values_bytes);
    let utf8 = |bytes| std::str::from_utf8(bytes).map_err(|_| ProtocolError::NotUtf8);
    let notes = notes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    Ok(OutcomesFrame {
        sequence: word(body, 0),
        begun: word(body, 4),
        indexes: words(indexes),
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
        let mut body: Vec<u8> = [5u32, 2, count, values_bytes]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();
        body.extend_from_slice(rest);
        frame(KIND_OUTCOMES, NONCE, &body)
    }

    #[test]
    fn reads_outcomes_and_asks_for_more_until_they_are_whole() {
        let mut rest: Vec<u8> = [0u32, 1, 10, 11].into_iter().flat_map(u32::to_le_bytes).collect();
        rest.extend_from_slice(
            b"[1\n,2]{\"log\":{\"index\":0,\"text\":\"a\",\"dropped_bytes\":0}}\n\"stopped\"\n",
        );
        let bytes = outcomes(2, 6, &rest);
        for length in 0..bytes.len() {
            assert!(read_frame(&bytes[..length], NONCE).unwrap().is_none());
        }
        let Some((Frame::Outcomes(read), used)) = read_frame(&bytes, NONCE).unwrap() else {
            panic!("no outcomes");
        };
        assert_eq!(used, bytes.len());
        assert_eq!((read.sequence, read.begun), (5, 2));
        assert_eq!((read.indexes, read.durations_us), (vec![0, 1], vec![10, 11]));
        assert_eq!(read.values, "[1\n,2]");
        assert!(matches!(
            read.notes[..],
            [Note::Log { index: 0, .. }, Note::Stopped]
        ));
    }

    #[test]
    fn refuses_what_does_not_hold() {
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
