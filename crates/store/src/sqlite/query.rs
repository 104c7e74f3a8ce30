//! Queries, each on one snapshot.

mod batches;
mod counts;
mod history;
mod job;

pub(super) use batches::{is_finished, outcomes, report_ids, run_batches, workers};
pub(super) use counts::{counts, stats};
pub(super) use history::history;
pub(super) use job::{job, job_ids, jobs};
