//! The arguments of commands over stored jobs: list, show, change, delete, logs, events.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gristmill_model::{JobId, JobState, parse_priority};
use gristmill_store::EventCursor;

use crate::arguments::shared::StoreArguments;
use crate::span::parse_span;

/// A filter of jobs.
#[derive(Debug, Default, PartialEq, Args)]
pub struct FilterArguments {
    /// Only jobs in this state: blocked, waiting, scheduled, paused, running, completed, dead, cancelled or expired; repeatable
    #[arg(long = "state", value_name = "STATE")]
    pub states: Vec<JobState>,
    /// Only jobs of this kind
    #[arg(long)]
    pub kind: Option<String>,
    /// Only jobs on this queue
    #[arg(long)]
    pub queue: Option<String>,
    /// Only jobs of this group
    #[arg(long)]
    pub group: Option<String>,
    /// Only jobs of this run
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Only jobs of this batch
    #[arg(long, value_name = "N")]
    pub batch: Option<i64>,
    /// Only jobs that were submitted within this time
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub since: Option<Duration>,
    /// Only jobs that were submitted longer ago than this time
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub until: Option<Duration>,
    /// Only jobs with this tag: name=value, name, or a prefix name*; repeatable, all must match
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Only jobs with this deduplication key
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Only jobs whose deduplication key has this prefix
    #[arg(long, value_name = "TEXT")]
    pub key_prefix: Option<String>,
    /// Only children of this job, as in 42:7
    #[arg(long, value_name = "JOB")]
    pub parent: Option<JobId>,
}

const EVENTS_HELP: &str = "\
Prints one JSON object in each line: submitted, completed, retried, dead, cancelled, expired,
progress, in commit order, of all processes. The store records events while a listener exists
(--follow, an engine, a server's /events) and for an hour after that. `missed` means that
earlier events are gone.

Examples:
  gristmill events --follow
  gristmill events --follow --after 0-1734 | jq 'select(.type == \"dead\")'
  gristmill events";

const JOBS_HELP: &str = "\
Examples:
  gristmill jobs --state dead
  gristmill jobs --run word_stats.py:items.jsonl --state running --state waiting
  gristmill jobs --newest --limit 10 --since 24h
  gristmill jobs --next --queue mail
  gristmill jobs --parent 42:7
  gristmill jobs --after 12:999 --limit 100 --json
  gristmill jobs --tag customer=7 --ids
  gristmill jobs --state dead --count";

const TAGS_HELP: &str = "\
Examples:
  gristmill tags customer
  gristmill tags customer --after 7 --json";

/// `gristmill tags`.
#[derive(Debug, Args)]
#[command(after_help = TAGS_HELP)]
pub struct TagsArguments {
    /// The tag's name
    pub name: String,
    /// Only values after this one: the next page
    #[arg(long, value_name = "VALUE")]
    pub after: Option<String>,
    /// The maximum number of values
    #[arg(
        long,
        value_name = "N",
        default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..gristmill_model::limits::PAGE_ROWS_MAX as i64)
    )]
    pub limit: u32,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print one JSON line for each value
    #[arg(long)]
    pub json: bool,
}

/// `gristmill jobs`.
#[derive(Debug, Args)]
#[command(after_help = JOBS_HELP)]
pub struct JobsArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub filter: FilterArguments,
    /// Only jobs after this one: the next page
    #[arg(long, value_name = "JOB")]
    pub after: Option<JobId>,
    /// The newest jobs first, by their ids
    #[arg(long, conflicts_with_all = ["after", "ids", "count"])]
    pub newest: bool,
    /// The waiting jobs that workers would get next, in the order of claims, whatever the size of their payloads
    #[arg(
        long,
        conflicts_with_all = [
            "after", "newest", "ids", "count", "states", "group", "run", "batch", "since", "until", "tags", "key", "key_prefix", "parent"
        ]
    )]
    pub next: bool,
    /// Print the ids of all matching jobs, packed by batch: 42:0-499,731
    #[arg(long, conflicts_with_all = ["after", "limit", "json"])]
    pub ids: bool,
    /// Print only the number of matching jobs; with --json, by state
    #[arg(long, conflicts_with_all = ["after", "limit", "ids"])]
    pub count: bool,
    /// The maximum number of jobs
    #[arg(
        long,
        value_name = "N",
        default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..gristmill_model::limits::PAGE_ROWS_MAX as i64)
    )]
    pub limit: u32,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print one JSON line for each job
    #[arg(long)]
    pub json: bool,
}

/// `gristmill events`.
#[derive(Debug, Args)]
#[command(after_help = EVENTS_HELP)]
pub struct EventsArguments {
    /// Print new events (or those after --after) until Ctrl-C
    #[arg(long, short)]
    pub follow: bool,
    /// Only events after this cursor, to resume a listener
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<EventCursor>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
}

/// `gristmill show`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gristmill show 42:7\n  gristmill show 42:7 --json | jq .payload")]
pub struct ShowArguments {
    /// The job, as in 42:7
    pub job: JobId,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

const LOGS_HELP: &str = "\
Examples:
  gristmill logs 42:7
  gristmill logs 42:7 --follow
  gristmill logs 42:7 --json | jq -r .text
  gristmill logs --follow --kind resize
  gristmill logs --follow --tag customer=7 --run word_stats.py:items.jsonl
  gristmill logs 42:7 --follow --base-url https://jobs.example:8378 --token-file token

With --kind, --queue, --tag or --run, the command follows all running jobs that match, up to 100 at once,
and jobs that begin later, until Ctrl-C. Each line begins with the job's id, as in `42:7 | text`. A terminal
shows control characters as symbols; a file or a pipe gets the unchanged output. A server's token needs the
role submit or admin.";

/// `gristmill logs`.
#[derive(Debug, Args)]
#[command(after_help = LOGS_HELP)]
pub struct LogsArguments {
    /// The job, as in 42:7
    #[arg(required_unless_present = "follow", conflicts_with_all = ["kind", "queue", "tags", "run"])]
    pub job: Option<JobId>,
    /// Print output live until the job ends; exit status 0 if it completed
    #[arg(long, short)]
    pub follow: bool,
    /// Follow the running jobs of this kind
    #[arg(long, requires = "follow")]
    pub kind: Option<String>,
    /// Follow the running jobs of this queue
    #[arg(long, requires = "follow")]
    pub queue: Option<String>,
    /// Follow the running jobs with this tag: name=value, name, or a prefix name*; repeatable, all must match
    #[arg(long = "tag", value_name = "TAG", requires = "follow")]
    pub tags: Vec<String>,
    /// Follow the running jobs of this run
    #[arg(long, value_name = "NAME", requires = "follow")]
    pub run: Option<String>,
    /// Print JSON lines: job, attempt and text of each piece; with --follow, job and state of each job that has ended
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Ask a server instead of a store, or several servers of one store, separated by commas
    #[arg(long = "base-url", value_name = "URL", value_delimiter = ',')]
    pub base_urls: Vec<String>,
    /// The file with the server's token [default: the environment variable AGENT_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// A CA certificate to verify the server with, as PEM, in addition to the system's
    #[arg(long, value_name = "FILE")]
    pub ca_cert: Option<PathBuf>,
    /// Allow a token in clear text over plain HTTP to another machine: only on a trusted network
    #[arg(long)]
    pub plain_http: bool,
}

const CHANGE_HELP: &str = "\
Examples:
  gristmill retry 42:7 42:9
  gristmill retry --state dead --kind resize
  gristmill cancel --queue slow
  gristmill cancel --tag customer=7
  gristmill cancel --all
  gristmill discard --kind resize";

/// `gristmill retry`, `gristmill cancel` and `gristmill discard`.
#[derive(Debug, Args)]
#[command(after_help = CHANGE_HELP)]
pub struct ChangeArguments {
    /// The jobs, as in 42:7
    #[arg(
        value_name = "JOB",
        conflicts_with_all = [
            "states", "kind", "queue", "group", "run", "batch", "since", "until", "tags", "key", "key_prefix", "parent", "all"
        ]
    )]
    pub ids: Vec<JobId>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub filter: FilterArguments,
    /// All jobs of the store
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print the counts as JSON
    #[arg(long)]
    pub json: bool,
}

const PRIORITY_HELP: &str = "\
Examples:
  gristmill priority urgent 42:7 42:9
  gristmill priority 25 --tag customer=7
  gristmill priority background --kind resize --state waiting

The priority takes effect at the next claim. Running jobs keep it for their next attempt.";

/// `gristmill priority`.
#[derive(Debug, Args)]
#[command(after_help = PRIORITY_HELP)]
pub struct PriorityArguments {
    /// Higher runs first: a number, or background (-100), low (-10), normal (0), high (10) or urgent (100)
    #[arg(allow_negative_numbers = true, value_parser = parse_priority)]
    pub priority: i16,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub change: ChangeArguments,
}

const RESULTS_HELP: &str = "\
Examples:
  gristmill results word_stats.py:items.jsonl --output again.jsonl
  gristmill results --batch 42 --values

Jobs that have not ended have no line. The exit status is 0 only if every job completed.";

/// `gristmill results`.
#[derive(Debug, Args)]
#[command(after_help = RESULTS_HELP)]
pub struct ResultsArguments {
    /// The run's name
    #[arg(required_unless_present = "batch", conflicts_with = "batch")]
    pub run: Option<String>,
    /// One batch instead of a run
    #[arg(long, value_name = "N")]
    pub batch: Option<i64>,
    /// The file of results; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    /// Write bare values; null for a failed job
    #[arg(long)]
    pub values: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
}

/// `gristmill runs`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gristmill runs\n  gristmill runs --json | jq .name")]
pub struct RunsArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print one JSON line for each run
    #[arg(long)]
    pub json: bool,
}

/// `gristmill stats`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gristmill stats\n  gristmill stats --json | jq .hops")]
pub struct StatsArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

const QUEUES_HELP: &str = "\
The queues of ended runs are left out: `gristmill runs` lists them.

Examples:
  gristmill queues
  gristmill queues --json | jq 'select(.waiting > 0)'";

/// `gristmill queues`.
#[derive(Debug, Args)]
#[command(after_help = QUEUES_HELP)]
pub struct QueuesArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print one JSON line for each queue and kind
    #[arg(long)]
    pub json: bool,
}

/// `gristmill workers`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gristmill workers\n  gristmill workers --json | jq .name")]
pub struct WorkersArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print one JSON line for each worker
    #[arg(long)]
    pub json: bool,
}

const DRAIN_HELP: &str = "\
A worker learns it by its next heartbeat, which takes some seconds. It claims nothing more, finishes its running jobs,
releases the others, and ends with status 0, as after SIGTERM.

Examples:
  gristmill drain 7
  gristmill workers --json | jq 'select(.host == \"old\").id' | xargs gristmill drain";

/// `gristmill drain`.
#[derive(Debug, Args)]
#[command(after_help = DRAIN_HELP)]
pub struct DrainArguments {
    /// The workers' ids, as `gristmill workers` lists them
    #[arg(required = true, value_name = "WORKER")]
    pub workers: Vec<i64>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
}

const PRUNE_HELP: &str = "\
A batch is deleted as a whole, once all of its jobs have ended. Batches with dead jobs are kept
unless --dead-too is given. `gristmill results` cannot write the results of deleted batches.

Examples:
  gristmill prune --older-than 7d --dry-run
  gristmill prune --older-than 30d --keep 1000";

/// `gristmill prune`.
#[derive(Debug, Args)]
#[command(after_help = PRUNE_HELP)]
pub struct PruneArguments {
    /// Only batches whose last job ended at least this long ago
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub older_than: Duration,
    /// Keep the latest N batches, regardless of age
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub keep: u32,
    /// Also delete batches with dead jobs
    #[arg(long)]
    pub dead_too: bool,
    /// Print the counts without deleting
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print the counts as JSON
    #[arg(long)]
    pub json: bool,
}
