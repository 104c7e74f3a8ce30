//! The arguments of `gristmill pause`, `resume`, `pauses` and `limit`.

use std::time::Duration;

use clap::{Args, Subcommand};
use gristmill_model::{BatchId, JobId, Scope, TagCondition};
use gristmill_store::{JobFilter, Selection};

use crate::arguments::rate::{LimitRate, parse_limit_rate};
use crate::arguments::shared::StoreArguments;
use crate::span::parse_span;

/// A filter of jobs.
#[derive(Debug, Args)]
pub struct ScopeArguments {
    /// Only jobs on this queue
    #[arg(long)]
    pub queue: Option<String>,
    /// Only jobs of this kind
    #[arg(long)]
    pub kind: Option<String>,
    /// Only jobs of this group
    #[arg(long)]
    pub group: Option<String>,
    /// All jobs
    #[arg(long, conflicts_with_all = ["queue", "kind", "group"])]
    pub all: bool,
}

impl ScopeArguments {
    /// Reports whether no scope is given.
    pub fn is_empty(&self) -> bool {
        !self.all && self.queue.is_none() && self.kind.is_none() && self.group.is_none()
    }

    /// The named scope.
    pub fn scope(&self) -> Scope {
        Scope {
            queue: self.queue.clone(),
            kind: self.kind.clone(),
            group: self.group.clone(),
            each_group: false,
        }
    }
}

/// A selection of single jobs.
#[derive(Debug, Args)]
pub struct SingleJobArguments {
    /// These jobs, as in 42:7
    #[arg(value_name = "JOB", conflicts_with_all = ["queue", "kind", "group", "all", "batch", "tags"])]
    pub ids: Vec<JobId>,
    /// The existing jobs of this batch
    #[arg(long, value_name = "N", conflicts_with = "all")]
    pub batch: Option<i64>,
    /// The existing jobs with this tag: name=value, name, or a prefix name*; repeatable, all must match
    #[arg(long = "tag", value_name = "TAG", conflicts_with = "all")]
    pub tags: Vec<String>,
}

impl SingleJobArguments {
    /// The named jobs within this scope; `None` if no job is named.
    pub fn selection(&self, scope: &ScopeArguments) -> Option<Selection> {
        if !self.ids.is_empty() {
            return Some(Selection::Jobs(self.ids.clone()));
        }
        if self.batch.is_none() && self.tags.is_empty() {
            return None;
        }
        Some(Selection::Filter(JobFilter {
            queue: scope.queue.clone(),
            kind: scope.kind.clone(),
            group: scope.group.clone(),
            batch: self.batch.map(BatchId),
            tags: self.tags.iter().map(|text| TagCondition::parse(text)).collect(),
            ..JobFilter::default()
        }))
    }
}

const PAUSE_HELP: &str = "\
Running jobs continue. Workers claim no paused job until its last pause ends. Pauses survive restarts. A pause
of a queue, a kind or a group also affects jobs that are submitted later; a pause of ids, a batch or a tag
affects existing jobs only.

Examples:
  gristmill pause --queue mail --reason deploy
  gristmill pause 42:7 42:9 --reason inspect
  gristmill pause --tag customer=7 --for 30m
  gristmill pause --group acme --for 2h
  gristmill pause --all";

/// `gristmill pause`.
#[derive(Debug, Args)]
#[command(after_help = PAUSE_HELP)]
pub struct PauseArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub single: SingleJobArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub scope: ScopeArguments,
    /// The reason; pauses with different reasons stack
    #[arg(long, default_value = "manual")]
    pub reason: String,
    /// End the pause after this time
    #[arg(long = "for", value_name = "SPAN", value_parser = parse_span)]
    pub span: Option<Duration>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print the pause, or the number of paused jobs, as JSON
    #[arg(long)]
    pub json: bool,
}

const RESUME_HELP: &str = "\
Examples:
  gristmill resume --queue mail --reason deploy
  gristmill resume --tag customer=7
  gristmill resume --reason deploy
  gristmill resume --all";

/// `gristmill resume`.
#[derive(Debug, Args)]
#[command(after_help = RESUME_HELP)]
pub struct ResumeArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub single: SingleJobArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub scope: ScopeArguments,
    /// Only pauses with this reason [default: manual, if jobs, a queue, a kind, a group or --all is given]
    #[arg(long)]
    pub reason: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print the numbers of ended pauses and resumed jobs as JSON
    #[arg(long)]
    pub json: bool,
}

const PAUSES_HELP: &str = "\
Example:
  gristmill pauses --json";

/// `gristmill pauses`.
#[derive(Debug, Args)]
#[command(after_help = PAUSES_HELP)]
pub struct PausesArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print one JSON line for each pause
    #[arg(long)]
    pub json: bool,
}

const LIMIT_HELP: &str = "\
Limits apply to all workers of a store together, from their next claim on.

Examples:
  gristmill limit set --kind mail --concurrency 20
  gristmill limit set --kind mail --each-group --concurrency 2
  gristmill limit set --queue api --rate 200 --per 1s --burst 20
  gristmill limit set --group acme --weight 3 --min-jobs 5
  gristmill limit set --queue default --age-after 1m --age-step 10s
  gristmill limit list
  gristmill limit lift --kind mail";

/// `gristmill limit`.
#[derive(Debug, Args)]
#[command(after_help = LIMIT_HELP)]
pub struct LimitArguments {
    /// The command.
    #[command(subcommand)]
    pub command: LimitCommand,
}

/// The commands over limits.
#[derive(Debug, Subcommand)]
pub enum LimitCommand {
    /// Set concurrency limits, rates, shares and aging; replaces those of the same scope
    Set(Box<LimitSetArguments>),
    /// List limits
    List(LimitListArguments),
    /// Remove all limits of exactly this scope
    Lift(LimitLiftArguments),
}

/// `gristmill limit list`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  gristmill limit list --json")]
pub struct LimitListArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print one JSON line for each limit
    #[arg(long)]
    pub json: bool,
}

/// `gristmill limit set`.
#[derive(Debug, Args)]
pub struct LimitSetArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub scope: ScopeArguments,
    /// Give each group its own limit
    #[arg(long, conflicts_with = "group")]
    pub each_group: bool,
    /// The maximum number of running jobs
    #[arg(long, value_name = "N")]
    pub concurrency: Option<u32>,
    /// The maximum number of attempts that begin in a period, as in 10/s, 100/m, or 10 with --per
    #[arg(long, value_name = "N[/UNIT]", value_parser = parse_limit_rate)]
    pub rate: Option<LimitRate>,
    /// The period of a rate without a unit [default: 1s]
    #[arg(long, value_name = "SPAN", value_parser = parse_span, requires = "rate")]
    pub per: Option<Duration>,
    /// Attempts that can begin at once [default: a tenth of the rate]
    #[arg(long, value_name = "N", requires = "rate")]
    pub burst: Option<u32>,
    /// The share of claimed jobs, in proportion to other queues or groups, which have 1
    #[arg(long, value_name = "N")]
    pub weight: Option<u32>,
    /// Claim these jobs first while fewer than this run
    #[arg(long, value_name = "N")]
    pub min_jobs: Option<u32>,
    /// Raise the priority of jobs that have waited this long
    #[arg(long, value_name = "SPAN", value_parser = parse_span, requires = "age_step")]
    pub age_after: Option<Duration>,
    /// Raise the priority by one for each such span
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub age_step: Option<Duration>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print one JSON line for each limit
    #[arg(long)]
    pub json: bool,
}

/// `gristmill limit lift`.
#[derive(Debug, Args)]
pub struct LimitLiftArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub scope: ScopeArguments,
    /// The limits of each group
    #[arg(long, conflicts_with = "group")]
    pub each_group: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print the number of limits as JSON
    #[arg(long)]
    pub json: bool,
}
