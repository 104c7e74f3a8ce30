//! The arguments of the program, and its `--help`.

pub mod container;
pub mod control;
#[cfg(feature = "full")]
pub mod fleet;
pub mod flow;
pub mod help;
pub mod history;
pub mod hook;
pub mod job;
pub mod key;
#[cfg(feature = "full")]
pub mod memory;
#[cfg(feature = "full")]
pub mod model;
pub mod pressure;
pub mod rate;
pub mod run;
pub mod schedule;
pub mod shared;
pub mod submit;
pub mod wait;
#[cfg(feature = "full")]
pub mod webhook;
pub mod worker;

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use crate::exit::EXIT_STATUS_HELP;
use crate::store::location::StoreLocation;
use container::CONTAINER_HELP;
use control::{LimitArguments, PauseArguments, PausesArguments, ResumeArguments};
#[cfg(feature = "full")]
use fleet::FleetCommand;
use flow::FlowArguments;
use history::HistoryArguments;
use job::{
    ChangeArguments, DrainArguments, EventsArguments, JobsArguments, LogsArguments, PriorityArguments,
    PruneArguments, QueuesArguments, ResultsArguments, RunsArguments, ShowArguments, StatsArguments,
    TagsArguments, WorkersArguments,
};
#[cfg(feature = "full")]
use memory::KnowledgeCommand;
#[cfg(feature = "full")]
use model::llm::LlmArguments;
use run::RunArguments;
use schedule::ScheduleArguments;
use submit::SubmitArguments;
use wait::WaitArguments;
use worker::WorkerArguments;

/// A durable job engine that moves work in batches: runs a script over every item of a file, and resumes
/// after Ctrl-C, a crash or a reboot.
#[derive(Debug, Parser)]
#[command(name = "gristmill", version, after_help = format!("{CONTAINER_HELP}\n\n{EXIT_STATUS_HELP}"), max_term_width = 100)]
#[command(propagate_version = true, arg_required_else_help = true)]
pub struct Arguments {
    /// Colours in help and progress; auto colours a terminal unless the environment has NO_COLOR
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value_t = clap::ColorChoice::Auto,
        hide_possible_values = true,
        display_order = 900
    )]
    pub color: clap::ColorChoice,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a script over every item of an input, durably
    Run(RunArguments),
    /// Ask a model for every item of an input, durably
    #[cfg(feature = "full")]
    Llm(LlmArguments),
    /// Submit jobs for workers to run
    Submit(SubmitArguments),
    /// Run submitted jobs with scripts until Ctrl-C
    Worker(WorkerArguments),
    /// Submit jobs on a schedule: cron expressions and intervals
    Schedule(ScheduleArguments),
    /// Start, list and show durable flows, and send them events
    Flow(FlowArguments),
    /// Pause jobs, a queue, a kind, a group or everything
    Pause(PauseArguments),
    /// End pauses
    Resume(ResumeArguments),
    /// List pauses
    Pauses(PausesArguments),
    /// Set concurrency limits, rate limits, shares and aging
    Limit(LimitArguments),
    #[cfg(feature = "full")]
    #[command(flatten)]
    #[allow(missing_docs)]
    Fleet(FleetCommand),
    /// List jobs
    Jobs(JobsArguments),
    /// Wait until batches or jobs have ended
    Wait(WaitArguments),
    /// List queues, with the jobs of each kind by state
    Queues(QueuesArguments),
    /// List registered workers: the queues and kinds that each serves, and the number of jobs that it holds
    Workers(WorkersArguments),
    /// Ask workers to end their jobs and leave
    Drain(DrainArguments),
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
    /// Show totals by kind, the sizes of batches, and the size of the store
    Stats(StatsArguments),
    /// Show counts and durations of ended jobs, by kind and time
    History(HistoryArguments),
    /// Delete batches that ended long ago
    Prune(PruneArguments),
    /// Copy a store while programs use it
    Backup(BackupArguments),
    /// Look for damage in a store while programs use it
    Check(CheckArguments),
    #[cfg(feature = "full")]
    #[command(flatten)]
    #[allow(missing_docs)]
    Knowledge(KnowledgeCommand),
    /// Print completions for a shell
    Completions(CompletionsArguments),
    /// Print the man page of the program or of a command
    Man(ManArguments),
}

const MAN_HELP: &str = "\
Examples:
  gristmill man | man -l -
  gristmill man run > ~/.local/share/man/man1/gristmill-run.1";

/// `gristmill man`.
#[derive(Debug, Args)]
#[command(after_help = MAN_HELP)]
pub struct ManArguments {
    /// The command, as in `run` or `schedule put` [default: the program]
    pub command: Vec<String>,
}

const BACKUP_HELP: &str = "\
The copy is one file with everything that was committed when the command began. Programs may go on reading and writing
the store meanwhile. An existing file is not overwritten. Copy a PostgreSQL store with pg_dump.

Examples:
  gristmill backup gristmill.db backup.db
  gristmill jobs --store backup.db";

/// `gristmill backup`.
#[derive(Debug, Args)]
#[command(after_help = BACKUP_HELP)]
pub struct BackupArguments {
    /// The file to copy: a store or a knowledge base
    #[arg(value_parser = OsStringValueParser::new().try_map(|text| StoreLocation::parse(&text)))]
    pub store: StoreLocation,
    /// The file to write, which must not exist
    pub file: PathBuf,
    /// Print the file and its size as JSON
    #[arg(long)]
    pub json: bool,
}

const CHECK_HELP: &str = "\
Compares the checksums of all payloads, values, errors, keys and kept values, and the rows of each batch with each
other: each job waits, runs or has ended, once; no row belongs to a batch, a worker, a kind or a run that does not exist.
In a file, SQLite checks its own structure, too. For the pages of PostgreSQL, use its data checksums and pg_amcheck.

The check reads in many short transactions and changes nothing, so programs may go on using the store. Workers do not
claim damaged jobs: they pause the open jobs of the batch for the reason `damaged`, and go on with others.

Exit status: 0 without damage, 1 with damage, which is listed, 2 where the store cannot be opened.

Examples:
  gristmill check gristmill.db
  gristmill check postgresql://jobs@db.example/jobs --json | jq .batch
  gristmill cancel --batch 12";

/// `gristmill check`.
#[derive(Debug, Args)]
#[command(after_help = CHECK_HELP)]
pub struct CheckArguments {
    /// The store: a file, or a database such as postgresql://user@host/database
    #[arg(value_parser = OsStringValueParser::new().try_map(|text| StoreLocation::parse(&text)))]
    pub store: StoreLocation,
    /// Print one JSON line for each damage
    #[arg(long)]
    pub json: bool,
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
