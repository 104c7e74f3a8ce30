//! The arguments of `gristmill wait`.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use gristmill_model::{BatchId, JobId};

use crate::arguments::shared::StoreArguments;
use crate::span::parse_span;

const WAIT_HELP: &str = "\
Examples:
  gristmill wait 42
  gristmill wait 42:7 43 --timeout 5m && gristmill results --batch 42

Exit status: 0 if all jobs completed; 1 if a job ended otherwise, the time is up, or a batch or job does not exist.";

/// `gristmill wait`.
#[derive(Debug, Args)]
#[command(after_help = WAIT_HELP)]
pub struct WaitArguments {
    /// Batches (42) and jobs (42:7)
    #[arg(required = true, value_name = "JOBS")]
    pub targets: Vec<WaitTarget>,
    /// Stop waiting after this time [default: no limit]
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub timeout: Option<Duration>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print one JSON line for each batch and job
    #[arg(long)]
    pub json: bool,
}

/// A batch or a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitTarget {
    /// All jobs of a batch.
    Batch(BatchId),
    /// One job.
    Job(JobId),
}

impl FromStr for WaitTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(job) = text.parse() {
            return Ok(WaitTarget::Job(job));
        }
        match text.parse() {
            Ok(batch) if batch > 0 => Ok(WaitTarget::Batch(BatchId(batch))),
            _ => Err(format!("`{text}` is neither a batch (42) nor a job (42:7)")),
        }
    }
}

impl std::fmt::Display for WaitTarget {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WaitTarget::Batch(batch) => write!(formatter, "batch {batch}"),
            WaitTarget::Job(job) => write!(formatter, "job {job}"),
        }
    }
}
