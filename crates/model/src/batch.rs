//! Batches as they are submitted.

pub mod dependency;
pub mod hooks;
mod invalid;
mod keyed;
pub mod labels;
mod prerequisites;
pub mod priority;
pub mod tag;
pub mod trace_parent;
pub mod unique;

pub use invalid::{InvalidBatch, check_name};
pub use keyed::KeyedBatch;
pub use prerequisites::check_after;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::dependency::After;
use crate::error::JobError;
use crate::hooks::Hooks;
use crate::limits::{BATCH_JOBS_MAX, KEY_PERIOD_MS_MAX};
use crate::packed::PackedArray;
use crate::retry::RetryPolicy;
use crate::tag::{Tag, check_tags};
use crate::trace_parent::TraceParent;
use crate::unique::Unique;

/// The queue that is used where none is named.
pub const DEFAULT_QUEUE: &str = "default";

/// The options of all jobs of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BatchOptions {
    /// Higher is claimed first.
    pub priority: i16,
    /// Not to be claimed before this moment; now, where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// A job that no worker has started by this time expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// How long one attempt may take. Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// A job that has not completed this long after its first attempt began is not retried, and ends as dead.
    /// Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete_within_ms: Option<u64>,
    /// A job has the value with which another one of the same queue, kind, group and payload (letter for letter) completed
    /// at most so long ago, without running; its own value is kept for so long. Only jobs with this option look, and only
    /// theirs are kept. They have no keys and wait for no others. Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_ms: Option<u64>,
    /// When a failed job is tried again.
    pub retry: RetryPolicy,
    /// How the deduplication keys of the jobs are meant; none has one, where `None`. Only a
    /// [`KeyedBatch`] has this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique: Option<Unique>,
    /// The tenant or customer that owns the jobs: limits, pauses and shares can apply to a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The jobs that the store submits when the batch has ended; usually none. Not for jobs with keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Box<Hooks>>,
    /// The submitter's span: spans of the jobs belong to its trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceParent>,
}

/// A job that cannot run: it is dead from the start, with an error that says why. Its payload in the
/// batch is whatever could be kept of it (a string, or `null`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The job's position in its batch.
    pub position: u32,
    /// Why it cannot run.
    pub error: JobError,
}

/// A batch to be submitted: 1 to [`BATCH_JOBS_MAX`] jobs of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBatch {
    /// Which handler runs the jobs.
    pub kind: String,
    /// Which workers may take them.
    pub queue: String,
    /// One payload a job.
    pub payloads: PackedArray,
    /// The options of all of them.
    pub options: BatchOptions,
    /// Jobs that are dead from the start, by position ascending; usually none.
    pub rejected: Vec<Rejected>,
    /// Their prerequisites; usually none.
    pub after: Vec<After>,
    /// Tags, by which jobs are found again; usually none.
    pub tags: Vec<Tag>,
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
    /// A batch on the default queue with default options.
    pub fn new(kind: impl Into<String>, payloads: PackedArray) -> Self {
        NewBatch {
            kind: kind.into(),
            queue: DEFAULT_QUEUE.to_owned(),
            payloads,
            options: BatchOptions::default(),
            rejected: Vec::new(),
            after: Vec::new(),
            tags: Vec::new(),
        }
    }

    /// Checks everything that needs no store.
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
        if let Some(hooks) = &self.options.hooks {
            hooks.check()?;
        }
        if self.options.unique.is_some() {
            return Err(InvalidBatch::KeysMissing);
        }
        check_tags(&self.tags, self.payloads.count())
    }
}
