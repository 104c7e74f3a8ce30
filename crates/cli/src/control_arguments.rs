//! The arguments of `gristmill pause`, `resume`, `pauses` and `limit`.

use std::time::Duration;

use clap::{Args, Subcommand};
use gristmill_model::{BatchId, JobId, Scope, TagCondition};
use gristmill_store::{JobFilter, Selection};

use crate::arguments::StoreArguments;
use crate::span::parse_span;

/// Which jobs are meant.
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
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        !self.all && self.queue.is_none() && self.kind.is_none() && self.group.is_none()
    }

    /// The scope that they name.
    pub fn scope(&self) -> Scope {
        Scope {
            queue: self.queue.clone(),
            kind: self.kind.clone(),
            group: self.group.clone(),
            each_group: false,
        }
    }
}

/// Which single jobs are meant.
#[derive(Debug, Args)]
pub struct SingleJobArguments {
    /// These jobs, as in 42:7
    #[arg(value_name = "JOB", conflicts_with_all = ["queue", "kind", "group", "all", "batch", "tags"])]
    pub ids: Vec<JobId>,
    /// The jobs of this batch that there are
    #[arg(long, value_name = "N", conflicts_with = "all")]
    pub batch: Option<i64>,
    /// The jobs with this tag that there are: name=value, name, or name* (begins so); may be repeated, and all must hold
    #[arg(long = "tag", value_name = "TAG", conflicts_with = "all")]
    pub tags: Vec<String>,
}

impl SingleJobArguments {
    /// The jobs that they name, within this scope; `None` where they name none.
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
What runs is let be; what waits is not claimed until its last pause is gone, also after a restart. A pause
of a queue, a kind or a group holds for jobs that are submitted later, too; one of jobs, a batch or a tag
for those that there are.

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
    /// Tells this pause from others of the same jobs
    #[arg(long, default_value = "manual")]
    pub reason: String,
    /// It is over by itself after so long
    #[arg(long = "for", value_name = "SPAN", value_parser = parse_span)]
    pub span: Option<Duration>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
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
    /// Only the pauses of this reason; `manual` where jobs, a queue, kind or group are named, or --all
    #[arg(long)]
    pub reason: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
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
    /// Print one JSON object a pause
    #[arg(long)]
    pub json: bool,
}

const LIMIT_HELP: &str = "\
Limits hold for all workers of a store together, from their next claim on.

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
    /// What to do.
    #[command(subcommand)]
    pub command: LimitCommand,
}

/// What is done with limits.
#[derive(Debug, Subcommand)]
pub enum LimitCommand {
    /// Set limits of running jobs and rates, shares and agings, in the place of those of the same jobs
    Set(Box<LimitSetArguments>),
    /// List them
    List(PausesArguments),
    /// Lift all that were set for exactly these jobs
    Lift(LimitLiftArguments),
}

/// `gristmill limit set`.
#[derive(Debug, Args)]
pub struct LimitSetArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub scope: ScopeArguments,
    /// Each group has a limit of its own
    #[arg(long, conflicts_with = "group")]
    pub each_group: bool,
    /// Jobs that run at the same time at most
    #[arg(long, value_name = "N")]
    pub concurrency: Option<u32>,
    /// Attempts that begin in a span (--per) at most
    #[arg(long, value_name = "N")]
    pub rate: Option<u32>,
    /// The span of the rate
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = parse_span, requires = "rate")]
    pub per: Duration,
    /// Attempts that may begin at once; a tenth of the rate, where nothing is said
    #[arg(long, value_name = "N", requires = "rate")]
    pub burst: Option<u32>,
    /// How much of what is claimed, in proportion to other queues or groups, which have 1
    #[arg(long, value_name = "N")]
    pub weight: Option<u32>,
    /// While fewer of its jobs run, it comes before others
    #[arg(long, value_name = "N")]
    pub min_jobs: Option<u32>,
    /// Jobs count as more urgent once they have waited for so long
    #[arg(long, value_name = "SPAN", value_parser = parse_span, requires = "age_step")]
    pub age_after: Option<Duration>,
    /// By one priority for each so long
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub age_step: Option<Duration>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
}

/// `gristmill limit lift`.
#[derive(Debug, Args)]
pub struct LimitLiftArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub scope: ScopeArguments,
    /// Those of each group
    #[arg(long, conflicts_with = "group")]
    pub each_group: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
}
