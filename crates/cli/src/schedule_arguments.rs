//! The arguments of `gristmill schedule`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use gristmill_model::{BatchOptions, RecurrenceRule, parse_priority};
use gristmill_store::{CatchUp, Overlap};

use crate::arguments::{RetryArguments, StoreArguments, milliseconds};
use crate::exit::EXIT_STATUS_HELP;
use crate::span::parse_span;

const SCHEDULE_HELP: &str = "\
Schedules are fired by any `gristmill worker` or `gristmill serve` on the store; each moment once, however many run.

Examples:
  gristmill schedule put nightly report '{\"region\":\"eu\"}' --cron '30 4 * * *'
  gristmill schedule put opening greet --cron '0 9 * * 1-5' --time-zone Asia/Tokyo
  gristmill schedule put heartbeat ping null --every 90s --overlap skip
  gristmill schedule list
  gristmill schedule pause nightly --for 2d
  gristmill schedule trigger nightly";

/// `gristmill schedule`.
#[derive(Debug, Args)]
#[command(after_help = format!("{SCHEDULE_HELP}\n\n{EXIT_STATUS_HELP}"))]
pub struct ScheduleArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: ScheduleCommand,
}

/// What is done with schedules.
#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// Make a schedule, or change the one of that name
    Put(Box<SchedulePutArguments>),
    /// List all schedules: when each is due, what it did last
    List(ScheduleListArguments),
    /// Let schedules be due no more, for a while or until they are resumed
    Pause(SchedulePauseArguments),
    /// Let paused schedules go on; what passed meanwhile is left out
    Resume(ScheduleNamesArguments),
    /// Submit a job of schedules now; they stay due as they were
    Trigger(ScheduleNamesArguments),
    /// Delete schedules; the jobs that they submitted stay
    Delete(ScheduleNamesArguments),
}

/// `gristmill schedule put`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS_HELP)]
pub struct SchedulePutArguments {
    /// The schedule's name
    pub name: String,
    /// Which handler is to run its jobs
    pub kind: String,
    /// The payload of its jobs, as JSON
    #[arg(value_name = "JSON", default_value = "null")]
    pub payload: String,
    /// When it is due: minute, hour, day of month, month, day of week (seconds may stand first), or @daily and its kin
    #[arg(long, value_name = "EXPRESSION", required_unless_present = "every")]
    pub cron: Option<String>,
    /// Whose clocks the expression means, by the name in the IANA database
    #[arg(long, value_name = "ZONE", default_value = "UTC", requires = "cron")]
    pub time_zone: String,
    /// Due again after so long, from now on
    #[arg(long, value_name = "SPAN", conflicts_with = "cron", value_parser = parse_span)]
    pub every: Option<Duration>,
    /// What becomes of moments that passed while nothing ran
    #[arg(long, value_enum, default_value_t = CatchUpArgument::One)]
    pub catch_up: CatchUpArgument,
    /// What happens while the last job is not over
    #[arg(long, value_enum, default_value_t = OverlapArgument::Allow)]
    pub overlap: OverlapArgument,
    /// Which workers may take its jobs
    #[arg(long, default_value = gristmill_model::batch::DEFAULT_QUEUE)]
    pub queue: String,
    /// Whose jobs they are; limits and pauses may be set by group
    #[arg(long)]
    pub group: Option<String>,
    /// Higher is run first: a number, or background (-100), low (-10), normal (0), high (10) or urgent (100)
    #[arg(long, value_name = "PRIORITY", default_value = "normal", allow_negative_numbers = true, value_parser = parse_priority)]
    pub priority: i16,
    /// A job is given up as expired if nobody has started it so long after it was due
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub expires: Option<Duration>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub retry: RetryArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
}

impl SchedulePutArguments {
    /// When it is due.
    pub fn rule(&self) -> RecurrenceRule {
        match (&self.cron, self.every) {
            (None, Some(interval)) => RecurrenceRule::Every {
                interval_ms: milliseconds(interval),
            },
            (expression, _) => RecurrenceRule::Cron {
                expression: expression.clone().unwrap_or_default(),
                time_zone: self.time_zone.clone(),
            },
        }
    }

    /// What holds for its jobs.
    pub fn options(&self) -> BatchOptions {
        BatchOptions {
            priority: self.priority,
            timeout_ms: self.retry.timeout_ms(),
            retry: self.retry.policy(),
            group: self.group.clone(),
            ..BatchOptions::default()
        }
    }
}

/// What becomes of missed moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CatchUpArgument {
    /// They are left out
    Skip,
    /// One job for all of them
    One,
    /// A job for each
    All,
}

impl From<CatchUpArgument> for CatchUp {
    fn from(argument: CatchUpArgument) -> Self {
        match argument {
            CatchUpArgument::Skip => CatchUp::Skip,
            CatchUpArgument::One => CatchUp::One,
            CatchUpArgument::All => CatchUp::All,
        }
    }
}

/// What happens while the last job is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OverlapArgument {
    /// The next one is submitted beside it
    Allow,
    /// The moment is left out
    Skip,
    /// It is cancelled for the next one
    Replace,
}

impl From<OverlapArgument> for Overlap {
    fn from(argument: OverlapArgument) -> Self {
        match argument {
            OverlapArgument::Allow => Overlap::Allow,
            OverlapArgument::Skip => Overlap::Skip,
            OverlapArgument::Replace => Overlap::Replace,
        }
    }
}

/// `gristmill schedule list`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS_HELP)]
pub struct ScheduleListArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print one JSON object a schedule
    #[arg(long)]
    pub json: bool,
}

/// `gristmill schedule pause`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS_HELP)]
pub struct SchedulePauseArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub names: ScheduleNamesArguments,
    /// They go on by themselves after so long
    #[arg(long = "for", value_name = "SPAN", value_parser = parse_span)]
    pub span: Option<Duration>,
}

/// Schedules by name.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS_HELP)]
pub struct ScheduleNamesArguments {
    /// The schedules' names
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
}
