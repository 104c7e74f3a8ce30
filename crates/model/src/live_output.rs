//! The live output of running jobs, for followers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::{BatchId, JobId};
use crate::state::JobState;

/// A filter of jobs whose output is followed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Followed {
    /// One job.
    Job(JobId),
    /// All jobs of a batch.
    Batch(BatchId),
    /// All jobs of a kind.
    Kind(Arc<str>),
}

impl Followed {
    /// Whether a job of this kind matches.
    pub fn includes(&self, job: JobId, kind: &str) -> bool {
        match self {
            Followed::Job(followed) => *followed == job,
            Followed::Batch(batch) => *batch == job.batch,
            Followed::Kind(followed) => **followed == *kind,
        }
    }
}

/// A piece of the output of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Printed {
    /// The job.
    pub job: JobId,
    /// Its kind.
    pub kind: Arc<str>,
    /// The number of the attempt.
    pub attempt: u32,
    /// Bytes of text that the attempt printed before. It is more than the received bytes if pieces were dropped.
    pub offset: u64,
    /// The output.
    pub text: String,
}

/// A piece of output that a store keeps for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptOutput {
    /// The id of the piece. For some seconds, pieces of other workers may still get lower ids.
    pub id: i64,
    /// The time at which it was kept.
    pub at: Timestamp,
    /// The printed text.
    #[serde(flatten)]
    pub printed: Printed,
}

/// What a follower of logs sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LogEvent {
    /// A running job printed something.
    Printed(KeptOutput),
    /// An attempt is over: its whole log, where it printed anything.
    AttemptEnded {
        /// The job.
        job: JobId,
        /// Which attempt.
        attempt: u32,
        /// What it printed, up to the log's limit.
        log: String,
    },
    /// A job has ended.
    Ended {
        /// The job.
        job: JobId,
        /// How.
        state: JobState,
    },
    /// More jobs run and match than are followed.
    LeftOut {
        /// How many more.
        jobs: u64,
    },
}
