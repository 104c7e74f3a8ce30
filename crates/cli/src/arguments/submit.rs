//! The arguments of `gristmill submit`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gristmill_model::limits::BATCH_JOBS_MAX;
use gristmill_model::trace_parent::ParseTraceParentError;
use gristmill_model::{After, OnFailure, Tag, TraceParent, parse_priority};

use crate::arguments::hook::HookArguments;
use crate::arguments::key::KeyArguments;
use crate::arguments::shared::{RetryArguments, StoreArguments};
use crate::input::{DialectArguments, Format};
use crate::span::parse_span;

const SUBMIT_HELP: &str = "\
Examples:
  gristmill submit resize '{\"file\":\"a.png\"}' '{\"file\":\"b.png\"}'
  gristmill submit resize --input images.csv --delay 5m --retries 3
  gristmill submit resize --input images.csv --key-field file --on-duplicate replace
  gristmill worker resize.py --kind resize --drain

All jobs of a submit are stored, or none. A pipe that pauses is submitted up to each pause, and a file
of more than 256 MiB in portions of so much: an error then says how many items are submitted, and
--skip goes on behind them.

Exit status: 0 if all jobs are submitted; 1 if some items are unreadable, and their jobs are
submitted as failed; 2 if nothing is submitted, or only what the message says.";

fn parse_tag(text: &str) -> Result<Tag, String> {
    parse_pair(text).map(|(name, value)| Tag::all(name, value))
}

/// A given trace context. `None` if the trace is not sampled.
#[derive(Debug, Clone, Copy)]
pub struct TraceContext(pub Option<TraceParent>);

fn parse_trace_context(text: &str) -> Result<TraceContext, ParseTraceParentError> {
    TraceParent::read(text).map(TraceContext)
}

/// Reads the name and the value of a tag.
pub fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(format!(
            "`{text}` is not a tag: write name=value, as in customer=7"
        )),
    }
}

/// `gristmill submit`.
#[derive(Debug, Args)]
#[command(after_help = SUBMIT_HELP)]
pub struct SubmitArguments {
    /// The kind: selects the script that runs the jobs
    pub kind: String,
    /// The payloads: one JSON text for each job
    #[arg(value_name = "JSON", conflicts_with = "input")]
    pub payloads: Vec<String>,
    /// A file of payloads, plain, .gz or .zst; - is standard input
    #[arg(short, long, value_name = "FILE", required_unless_present = "payloads")]
    pub input: Option<PathBuf>,
    /// The format of the file
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Skip the first items of the file, which an earlier submit has stored
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true,
        requires = "input"
    )]
    pub skip: u64,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub dialect: DialectArguments,
    /// The queue: selects the workers of the jobs
    #[arg(long, default_value = gristmill_model::batch::DEFAULT_QUEUE)]
    pub queue: String,
    /// A tag of the jobs; repeatable
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = parse_tag)]
    pub tags: Vec<Tag>,
    /// Tag each job with the value of this field of its payload; repeatable
    #[arg(long = "tag-field", value_name = "FIELD")]
    pub tag_fields: Vec<String>,
    /// The tenant that owns the jobs; limits and pauses can apply to a group
    #[arg(long)]
    pub group: Option<String>,
    #[command(flatten, next_help_heading = "Order and time")]
    #[allow(missing_docs)]
    pub timing: TimingArguments,
    #[command(flatten, next_help_heading = "Failures")]
    #[allow(missing_docs)]
    pub retry: RetryArguments,
    #[command(flatten, next_help_heading = "Duplicates")]
    #[allow(missing_docs)]
    pub key: KeyArguments,
    /// Reuse the value of a job of the same queue, kind, group and payload that completed within this time, if it also had --cached
    #[arg(
        long,
        value_name = "SPAN",
        conflicts_with_all = ["after", "keys", "key_field"],
        help_heading = "Duplicates",
        value_parser = parse_span
    )]
    pub cached: Option<Duration>,
    /// Wait for a batch (42), a job (42:7) or part of a batch (42:0-499) to end; repeatable
    #[arg(long, value_name = "JOBS", help_heading = "Prerequisites")]
    pub after: Vec<After>,
    /// Action if a prerequisite does not complete: cancel, fail or ignore
    #[arg(
        long,
        value_name = "POLICY",
        default_value_t,
        requires = "after",
        help_heading = "Prerequisites"
    )]
    pub after_failure: OnFailure,
    #[command(flatten, next_help_heading = "Hooks")]
    #[allow(missing_docs)]
    pub hooks: HookArguments,
    #[command(flatten, next_help_heading = "Store and output")]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Jobs in a batch
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=BATCH_JOBS_MAX as i64))]
    pub batch: u32,
    /// The trace of the jobs, in the form of the HTTP header traceparent [default: the variable TRACEPARENT]
    #[arg(long, value_name = "CONTEXT", value_parser = parse_trace_context)]
    pub traceparent: Option<TraceContext>,
    /// Print the submitted jobs as JSON: the numbers of jobs, rejected items and duplicates, the batches, and the first 10,000
    /// ids, one for each payload
    #[arg(long)]
    pub json: bool,
}

/// The times of jobs, and their order.
#[derive(Debug, Args)]
pub struct TimingArguments {
    /// Higher runs first: a number, or background (-100), low (-10), normal (0), high (10) or urgent (100)
    #[arg(long, value_name = "PRIORITY", default_value = "normal", allow_negative_numbers = true, value_parser = parse_priority)]
    pub priority: i16,
    /// Earliest start, from now
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub delay: Option<Duration>,
    /// Expire a job that no worker has started after this time
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub expires: Option<Duration>,
    /// Stop retrying a job that has not completed this long after its first attempt began
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub complete_within: Option<Duration>,
}
