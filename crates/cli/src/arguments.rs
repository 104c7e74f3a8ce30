//! The arguments of the program, and its `--help`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use gristmill_model::limits::{
    ATTEMPTS_MAX, BATCH_JOBS_MAX, LEASE_LOST_AFTER_MS_MAX, LEASE_LOST_AFTER_MS_MIN,
};
use gristmill_model::{After, Backoff, OnFailure, RetryPolicy, Tag, parse_priority};

use crate::container::CONTAINER_HELP;
use crate::control_arguments::{LimitArguments, PauseArguments, PausesArguments, ResumeArguments};
use crate::exit::EXIT_STATUS_HELP;
use crate::fleet_arguments::{AgentArguments, ServeArguments, TokenArguments};
use crate::history::HistoryArguments;
use crate::input::Format;
use crate::job_arguments::{
    ChangeArguments, EventsArguments, JobsArguments, LogsArguments, PriorityArguments, PruneArguments,
    ResultsArguments, RunsArguments, ShowArguments, StatsArguments, TagsArguments,
};
use crate::key_arguments::KeyArguments;
use crate::memory_arguments::{
    AskArguments, IngestArguments, McpArguments, MemoryArguments, RecallArguments,
};
use crate::model_arguments::ExtractorArguments;
use crate::pressure_arguments::PressureArguments;
use crate::schedule_arguments::ScheduleArguments;
use crate::span::parse_span;
use crate::store_location::StoreLocation;

/// A durable job engine that moves work in batches: runs a script over every item of a file, and resumes
/// after Ctrl-C, a crash or a reboot.
#[derive(Debug, Parser)]
#[command(name = "gristmill", version, after_help = format!("{CONTAINER_HELP}\n\n{EXIT_STATUS_HELP}"), max_term_width = 100)]
#[command(
    propagate_version = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a script over every item of an input, durably
    Run(RunArguments),
    /// Submit jobs for workers to run
    Submit(SubmitArguments),
    /// Run submitted jobs with scripts until Ctrl-C
    Worker(WorkerArguments),
    /// Submit jobs on a schedule: cron expressions and intervals
    Schedule(ScheduleArguments),
    /// Pause jobs, a queue, a kind, a group or everything
    Pause(PauseArguments),
    /// End pauses
    Resume(ResumeArguments),
    /// List pauses
    Pauses(PausesArguments),
    /// Set concurrency limits, rate limits, shares and aging
    Limit(LimitArguments),
    /// Serve the HTTP API, for clients and agents
    Serve(ServeArguments),
    /// Run a server's jobs with scripts until Ctrl-C
    Agent(AgentArguments),
    /// Create, list and revoke a server's tokens
    Token(TokenArguments),
    /// List jobs
    Jobs(JobsArguments),
    /// List the values of a tag, and the number of jobs with each
    Tags(TagsArguments),
    /// Show everything about one job: payload, value, attempts, errors, log
    Show(ShowArguments),
    /// Print a job's log, attempt by attempt, or follow the output of running jobs
    Logs(LogsArguments),
    /// Print events of jobs as they happen
    Events(EventsArguments),
    /// Make dead, cancelled or expired jobs claimable again
    Retry(ChangeArguments),
    /// Cancel jobs that have not ended
    Cancel(ChangeArguments),
    /// End dead jobs as cancelled, so that they no longer count as dead
    Discard(ChangeArguments),
    /// Change the priority of jobs that have not ended
    Priority(PriorityArguments),
    /// Write the results of a run or a batch again
    Results(ResultsArguments),
    /// List the runs of a store
    Runs(RunsArguments),
    /// Show totals by kind, batches by hop and end reason, and sizes
    Stats(StatsArguments),
    /// Show counts and durations of ended jobs, by kind and time
    History(HistoryArguments),
    /// Delete batches that ended long ago
    Prune(PruneArguments),
    /// Read transcripts, subtitles, mail, notes and chats into a knowledge base
    Ingest(IngestArguments),
    /// Find messages and knowledge in a knowledge base, without a model
    Recall(RecallArguments),
    /// Answer a question from a knowledge base, with its sources
    Ask(AskArguments),
    /// Inspect a knowledge base, delete from it, export and import
    Memory(MemoryArguments),
    /// Serve a knowledge base to programs that speak the Model Context Protocol, over standard input and output
    Mcp(McpArguments),
    /// Print completions for a shell
    Completions(CompletionsArguments),
}

/// The store of a command.
#[derive(Debug, Args)]
pub struct StoreArguments {
    /// The store: a file, or a database such as postgresql://user@host/database
    #[arg(
        long,
        value_name = "FILE|URL",
        default_value = "gristmill.db",
        env = "GRISTMILL_STORE",
        hide_env_values = true,
        value_parser = OsStringValueParser::new().try_map(|text| StoreLocation::parse(&text))
    )]
    pub store: StoreLocation,
    /// Durability of a commit to a file: full survives a power cut, normal can lose the latest commits
    #[arg(long, value_enum, default_value_t = Synchronous::Full, value_name = "LEVEL")]
    pub synchronous: Synchronous,
}

/// The durability of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Synchronous {
    /// A commit is on disk.
    Full,
    /// The operating system has the commit: it survives a killed process, but not always a power cut.
    Normal,
}

/// The failure detection of workers.
#[derive(Debug, Args)]
pub struct LeaseArguments {
    /// Release a worker's jobs after this time without a heartbeat; use the same for all programs on a store
    #[arg(
        long,
        value_name = "SPAN",
        default_value = "15s",
        env = "GRISTMILL_LEASE",
        value_parser = parse_lease
    )]
    pub lease: Duration,
}

fn parse_lease(text: &str) -> Result<Duration, String> {
    let lease = parse_span(text)?;
    let [least, most] =
        [LEASE_LOST_AFTER_MS_MIN, LEASE_LOST_AFTER_MS_MAX].map(|ms| Duration::from_millis(ms.unsigned_abs()));
    if lease < least || lease > most {
        return Err(format!(
            "`{text}` is out of range: give a span from {} s to {} s",
            least.as_secs(),
            most.as_secs()
        ));
    }
    Ok(lease)
}

/// The retry policy.
#[derive(Debug, Args)]
pub struct RetryArguments {
    /// Time limit of one attempt; an attempt beyond it is killed and fails [default: no limit]
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub timeout: Option<Duration>,
    /// Retries of a failed job
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..ATTEMPTS_MAX as i64))]
    pub retries: u32,
    /// Growth of the delay from retry to retry
    #[arg(long, value_enum, default_value_t = BackoffArgument::Jitter)]
    pub backoff: BackoffArgument,
    /// Delay before the first retry
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = parse_span)]
    pub retry_delay: Duration,
}

impl RetryArguments {
    /// As a policy.
    pub fn policy(&self) -> RetryPolicy {
        RetryPolicy {
            attempts_max: self.retries + 1,
            backoff: match self.backoff {
                BackoffArgument::Constant => Backoff::Constant,
                BackoffArgument::Linear => Backoff::Linear,
                BackoffArgument::Exponential => Backoff::Exponential,
                BackoffArgument::Jitter => Backoff::Jitter,
            },
            delay_ms: milliseconds(self.retry_delay),
            ..RetryPolicy::default()
        }
    }

    /// The timeout in milliseconds.
    pub fn timeout_ms(&self) -> Option<u64> {
        self.timeout.map(milliseconds)
    }
}

/// The growth of the delay from retry to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackoffArgument {
    /// The same delay each time.
    Constant,
    /// The delay times the number of failed attempts.
    Linear,
    /// Doubles each time.
    Exponential,
    /// Random, up to the exponential delay.
    Jitter,
}

/// A span as whole milliseconds.
pub fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The concurrency of scripts.
#[derive(Debug, Clone, Args)]
pub struct ConcurrencyArguments {
    /// Processes of each script [default: the number of processors; 1 for an agent without --batch]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub jobs: Option<u32>,
    /// Concurrent jobs in each process of an asynchronous script; with --extractor, concurrent model calls
    /// [default: 32 jobs, 20 calls; 1 for an agent without --batch]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub concurrency: Option<u32>,
    /// Threads in each process of a synchronous Python script; each thread runs one job: for scripts that wait for I/O
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub threads: u32,
}

/// The default number of concurrent jobs in one process of an asynchronous script.
const CONCURRENCY_DEFAULT: u32 = 32;

impl ConcurrencyArguments {
    /// How a script's jobs are run at once.
    pub fn of_scripts(&self) -> ScriptConcurrency {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        ScriptConcurrency {
            processes: self.jobs.map_or(processors, |jobs| jobs as usize),
            concurrency: self.concurrency.unwrap_or(CONCURRENCY_DEFAULT),
            threads: self.threads,
            is_concurrency_given: self.concurrency.is_some(),
        }
    }

    /// The same where nothing runs at once that is not asked for.
    pub fn one_at_a_time(&self) -> ConcurrencyArguments {
        ConcurrencyArguments {
            jobs: self.jobs.or(Some(1)),
            concurrency: self.concurrency.or(Some(1)),
            threads: self.threads,
        }
    }
}

/// How many jobs of one script run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptConcurrency {
    /// Processes.
    pub processes: usize,
    /// Asynchronous jobs at once in each.
    pub concurrency: u32,
    /// Threads of each that run synchronous Python.
    pub threads: u32,
    /// Whether `concurrency` was asked for.
    pub is_concurrency_given: bool,
}

const RUN_HELP: &str = "\
The script has a function `main` that takes one item and returns its result: `def main(payload)` in
Python, `export function main(payload)` in JavaScript and TypeScript. A Bash script, or the program
after --, reads the item from standard input and writes the result to standard output.

Examples:
  gristmill run word_stats.py --input items.jsonl --output results.jsonl
  gristmill run resize.ts --input images.csv --output done.jsonl -j 4 --timeout 30s --retries 2
  gristmill run fetch.py --input urls.txt --output pages.jsonl --threads 16
  zcat log.gz | gristmill run parse.py --format lines --values > parsed.jsonl
  gristmill run --input words.txt --output upper.jsonl -- tr a-z A-Z

Run the same command again to resume after Ctrl-C, a crash or a reboot. An unreadable item fails
with its file and line; the other items run. The results have one line for each item, in input
order: {\"job\":\"1:7\",\"value\":…} or {\"job\":\"1:7\",\"error\":{…}}.
Blank lines of JSONL are skipped.";

/// `gristmill run`.
#[derive(Debug, Args)]
#[command(after_help = format!("{RUN_HELP}\n\n{EXIT_STATUS_HELP}"))]
pub struct RunArguments {
    /// The script: .py, .js, .mjs, .ts or .sh
    #[arg(required_unless_present = "program", conflicts_with = "program")]
    pub script: Option<PathBuf>,
    /// A program and its arguments, run once for each item
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
    /// The items: a file, plain, .gz or .zst; - is standard input [default: standard input, if it is piped]
    #[arg(short, long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// The file of results; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    /// The format of the items [default: by the input's name; jsonl for standard input]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// The run's name; the same name resumes the run [default: the names of the script and the input]
    #[arg(long)]
    pub name: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub lease: LeaseArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub concurrency: ConcurrencyArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub retry: RetryArguments,
    /// Jobs in a batch
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=BATCH_JOBS_MAX as i64))]
    pub batch: u32,
    /// Run only the first N items; a later run without --limit runs the others
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Write bare values; null for a failed job
    #[arg(long)]
    pub values: bool,
    /// Discard the progress of an earlier run of this name, and start over
    #[arg(long, conflicts_with = "continue_run")]
    pub restart: bool,
    /// Resume although the script or the input has changed: results stay, the rest runs with the new version
    #[arg(long = "continue")]
    pub continue_run: bool,
    /// Print the summary as JSON: to standard output, or to standard error if standard output has the results
    #[arg(long)]
    pub json: bool,
    /// Print no progress and no summary
    #[arg(short, long)]
    pub quiet: bool,
}

const SUBMIT_HELP: &str = "\
Examples:
  gristmill submit resize '{\"file\":\"a.png\"}' '{\"file\":\"b.png\"}'
  gristmill submit resize --input images.csv --delay 5m --retries 3
  gristmill submit resize --input images.csv --key-field file --on-duplicate replace
  gristmill worker resize.py --kind resize --drain

Exit status: 0 if all jobs are submitted; 1 if some items are unreadable, and their jobs are
submitted as failed; 2 if nothing is submitted.";

/// Reads a tag.
fn parse_tag(text: &str) -> Result<Tag, String> {
    match text.split_once('=') {
        Some((name, value)) => Ok(Tag::all(name, value)),
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
    /// The queue: selects the workers of the jobs
    #[arg(long, default_value = gristmill_model::batch::DEFAULT_QUEUE)]
    pub queue: String,
    /// The tenant that owns the jobs; limits and pauses can apply to a group
    #[arg(long)]
    pub group: Option<String>,
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
    /// Reuse the value of a job of the same kind and payload that completed within this time, if it also had --cached
    #[arg(long, value_name = "SPAN", conflicts_with_all = ["after", "keys", "key_field"], value_parser = parse_span)]
    pub cached: Option<Duration>,
    /// Wait for a batch (42), a job (42:7) or part of a batch (42:0-499) to end; repeatable
    #[arg(long, value_name = "JOBS")]
    pub after: Vec<After>,
    /// Action if a prerequisite does not complete: cancel, fail or ignore
    #[arg(long, value_name = "POLICY", default_value_t, requires = "after")]
    pub after_failure: OnFailure,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub retry: RetryArguments,
    /// A tag of the jobs; repeatable
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = parse_tag)]
    pub tags: Vec<Tag>,
    /// Tag each job with the value of this field of its payload; repeatable
    #[arg(long = "tag-field", value_name = "FIELD")]
    pub tag_fields: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: KeyArguments,
    /// Jobs in a batch
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=BATCH_JOBS_MAX as i64))]
    pub batch: u32,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print the submitted jobs as JSON
    #[arg(long)]
    pub json: bool,
}

const WORKER_HELP: &str = "\
Examples:
  gristmill worker resize.py --kind resize
  gristmill worker extract.ts --queue slow --queue default -j 4
  gristmill worker fetch.py --threads 16
  gristmill worker call.ts -j 2 --concurrency 200
  gristmill worker a.py b.py --kind a --kind b --drain
  gristmill worker --extractor openai --model gpt-4o-mini --concurrency 64 --store postgresql://jobs@db.example/jobs";

/// `gristmill worker`.
#[derive(Debug, Args)]
#[command(after_help = format!("{WORKER_HELP}\n\n{EXIT_STATUS_HELP}"))]
pub struct WorkerArguments {
    /// The scripts
    #[arg(required_unless_present = "extractor", value_name = "SCRIPT")]
    pub scripts: Vec<PathBuf>,
    /// The kind of each script, in the order of the scripts [default: script:FILE]
    #[arg(long = "kind", value_name = "KIND")]
    pub kinds: Vec<String>,
    /// A queue to claim jobs from; repeatable
    #[arg(long = "queue", value_name = "QUEUE", default_value = gristmill_model::batch::DEFAULT_QUEUE)]
    pub queues: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub concurrency: ConcurrencyArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub extractor: ExtractorArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub pressure: PressureArguments,
    /// Exit when nothing is left to run
    #[arg(long)]
    pub drain: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub lease: LeaseArguments,
    /// Print the totals as JSON at the end
    #[arg(long)]
    pub json: bool,
    /// Print no progress
    #[arg(short, long)]
    pub quiet: bool,
}

const COMPLETIONS_HELP: &str = "\
Examples:
  gristmill completions bash > ~/.local/share/bash-completion/completions/gristmill
  gristmill completions zsh > ~/.zfunc/_gristmill
  gristmill completions fish > ~/.config/fish/completions/gristmill.fish";

/// `gristmill completions`.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_HELP)]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

impl RunArguments {
    /// The output's file, unless it is standard output.
    pub fn output_file(&self) -> Option<&Path> {
        Some(self.output.as_path()).filter(|path| *path != Path::new("-"))
    }
}
