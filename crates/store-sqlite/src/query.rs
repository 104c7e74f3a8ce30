//! Queries, each on one snapshot.

mod batches;
mod counts;
pub(crate) mod due;
pub(crate) mod ended;
pub(crate) mod event;
pub(crate) mod filter;
pub(crate) mod flow;
mod gaps;
mod history;
pub(crate) mod integrity;
mod job;
pub(crate) mod metrics;
mod piece;
mod prerequisite;
pub(crate) mod tag;
pub(crate) mod totals;

pub(crate) use batches::{
    is_finished, newest_batch, outcomes, outcomes_of, payloads, report_ids, run_batches, workers,
};
pub(crate) use counts::{batch_summaries, counts, kind_counts, stats};
pub(crate) use history::history;
pub(crate) use job::{job, job_ids, jobs, rows_of};
pub(crate) use metrics::{metrics, open_lanes};
