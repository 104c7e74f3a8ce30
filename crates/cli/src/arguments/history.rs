//! The arguments of `gristmill history`.

use std::time::Duration;

use clap::Args;
use gristmill_store::HistoryPeriod;

use crate::arguments::shared::StoreArguments;
use crate::span::parse_span;

const HISTORY_HELP: &str = "\
Percentiles describe the last attempts of completed jobs, rounded up by a sixteenth at most.
Pruned batches do not count.

Examples:
  gristmill history
  gristmill history --by hour --since 24h --kind resize
  gristmill history --since 48h --until 24h
  gristmill history --by day --json | jq 'select(.dead > 0)'";

/// `gristmill history`.
#[derive(Debug, Args)]
#[command(after_help = HISTORY_HELP)]
pub struct HistoryArguments {
    /// The period of a row
    #[arg(long, value_enum, default_value_t = HistoryPeriod::All)]
    pub by: HistoryPeriod,
    /// Only jobs of this kind
    #[arg(long)]
    pub kind: Option<String>,
    /// Only jobs on this queue
    #[arg(long)]
    pub queue: Option<String>,
    /// Only jobs that ended within this time
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub since: Option<Duration>,
    /// Only jobs that ended longer ago than this time
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub until: Option<Duration>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print one JSON line for each row
    #[arg(long)]
    pub json: bool,
}
