//! Batches as they are submitted.

pub mod dependency;
pub mod hooks;
mod invalid;
mod keyed;
pub mod labels;
mod prerequisites;
pub mod priority;
pub mod signal;
pub mod tag;
pub mod trace_parent;
pub mod unique;

pub use invalid::{InvalidBatch, check_name};
pub use keyed::KeyedBatch;
pub use prerequisites::check_after;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::dependency::{After, Awaited};
use crate::error::JobError;
use crate::hooks::Hooks;
use crate::limits::{BATCH_JOBS_MAX, KEY_PERIOD_MS_MAX};
use crate::packed::PackedArray;
use crate::retry::RetryPolicy;
use crate::signal::Signal;
use crate::tag::{Tag, check_tags};
use crate::trace_parent::TraceParent;
use crate::unique::Unique;

/// The queue of batches that name none.
pub const DEFAULT_QUEUE: &str = "default";

/// The options of all jobs of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BatchOptions {
    /// The priority. Jobs with a higher one are claimed first.
    pub priority: i16,
    /// The earliest time of a claim; at once if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// The time at which a job expires that no worker has started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The time limit of one attempt, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The time limit from the beginning of the first attempt, in milliseconds. A job that has not completed by then is
    /// not retried, and ends as dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete_within_ms: Option<u64>,
    /// The time for which a completed value is kept, in milliseconds. Within it, another job with this option and the
    /// same queue, kind, group and payload (byte for byte) completes with the kept value, without running. Such jobs
    /// have neither keys nor prerequisites.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_ms: Option<u64>,
    /// The retry policy of a failed job.
    pub retry: RetryPolicy,
    /// The rules of the jobs' deduplication keys; `None` for jobs without keys. Only a [`KeyedBatch`] has this option.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique: Option<Unique>,
    /// The tenant or customer that owns the jobs. Limits, pauses and shares can apply to a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The jobs that the store submits when the batch has ended; usually none. Not for jobs with keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Box<Hooks>>,
    /// The signal that ends the jobs, which no worker runs. Only children of flows have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<Signal>,
    /// The prerequisites of the jobs as the store keeps them, so that the jobs can read their outcomes. The store sets this from
    /// [`after`](NewBatch::after).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prerequisites: Vec<Awaited>,
    /// The submitter's span. The spans of the jobs belong to its trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceParent>,
}

/// A job that cannot run. It is dead from the start, with an error that gives the reason. Its payload in the batch is a
/// string or `null`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The job's position in its batch.
    pub position: u32,
    /// The reason.
    pub error: JobError,
}

/// A batch to submit: 1 to [`BATCH_JOBS_MAX`] jobs of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBatch {
    /// The name of the handler that runs the jobs.
    pub kind: String,
    /// The name that selects their workers.
    pub queue: String,
    /// The payload of each job.
    pub payloads: PackedArray,
    /// The options of all jobs.
    pub options: BatchOptions,
    /// Jobs that are dead from the start, in ascending order of position; usually none.
    pub rejected: Vec<Rejected>,
    /// The prerequisites of the jobs; usually none.
    pub after: Vec<After>,
    /// Tags that filters find; usually none.
    pub tags: Vec<Tag>,
    /// For flows that begin with more than their payloads, the memo of each; usually none.
    pub memos: Option<PackedArray>,
}

impl AsMut<NewBatch> for NewBatch {
    fn as_mut(&mut self) -> &mut NewBatch {
        self
    }
}

impl AsRef<NewBatch> for NewBatch {
    fn as_ref(&self) -> &NewBatch {
        self
    }
}

impl NewBatch {
    /// Makes a batch on the default queue with default options.
    pub fn new(kind: impl Into<String>, payloads: PackedArray) -> Self {
        NewBatch {
            kind: kind.into(),
            queue: DEFAULT_QUEUE.to_owned(),
            payloads,
            options: BatchOptions::default(),
            rejected: Vec::new(),
            after: Vec::new(),
            tags: Vec::new(),
            memos: None,
        }
    }

    /// Checks everything that can be checked without a store.
    pub fn check(&self) -> Result<(), InvalidBatch> {
        check_name("kind", &self.kind)?;
        check_name("queue", &self.queue)?;
        if let Some(group) = &self.options.group {
            check_name("group", group)?;
        }
        match self.payloads.count() {
            0 => return Err(InvalidBatch::Empty),
            count if count > BATCH_JOBS_MAX => return Err(InvalidBatch::TooManyJobs(count)),
            _ => {}
        }
        if self.options.retry.attempts_max == 0 {
            return Err(InvalidBatch::NoAttempts);
        }
        if let Some(within_ms) = self.options.complete_within_ms
            && !(1..=KEY_PERIOD_MS_MAX).contains(&within_ms)
        {
            return Err(InvalidBatch::CompleteWithin(within_ms));
        }
        if let Some(cached_ms) = self.options.cached_ms {
            if !(1..=KEY_PERIOD_MS_MAX).contains(&cached_ms) {
                return Err(InvalidBatch::CachedSpan(cached_ms));
            }
            if !self.after.is_empty() {
                return Err(InvalidBatch::CachedOptions);
            }
        }
        if let Some(signal) = &self.options.signal {
            signal.check(&self.kind, self.options.expires_at.is_some())?;
        }
        if let Some(hooks) = &self.options.hooks {
            hooks.check()?;
        }
        if self.options.unique.is_some() {
            return Err(InvalidBatch::KeysMissing);
        }
        if let Some(memos) = &self.memos
            && memos.count() != self.payloads.count()
        {
            return Err(InvalidBatch::Memos(memos.count(), self.payloads.count()));
        }
        check_tags(&self.tags, self.payloads.count())
    }
}
