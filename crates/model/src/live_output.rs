//! The live output of running jobs, for followers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::{BatchId, JobId};

/// Jobs with followers of their output.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Followed {
    /// One job.
    Job(JobId),
    /// All of a batch.
    Batch(BatchId),
    /// All of a kind.
    Kind(Arc<str>),
}

impl Followed {
    /// Whether a job of this kind is among them.
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
    /// Which attempt.
    pub attempt: u32,
    /// How much the attempt had printed before. Bytes of text. Where pieces were dropped, it is more than has come.
    pub offset: u64,
    /// The output.
    pub text: String,
}

/// A piece of output, as a store keeps it for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptOutput {
    /// Its place. Pieces of other workers may still come before it for some seconds.
    pub id: i64,
    /// When it was kept.
    pub at: Timestamp,
    /// The printed text.
    #[serde(flatten)]
    pub printed: Printed,
}
