//! The arguments of `gristmill schedule`.

use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};
use gristmill_model::{BatchOptions, RecurrenceRule, parse_priority};
use gristmill_store::{CatchUp, Overlap};

use crate::arguments::hook::HookArguments;
use crate::arguments::key::KeyArguments;
use crate::arguments::shared::{RetryArguments, StoreArguments};
use crate::arguments::submit::parse_pair;
use crate::exit::EXIT_STATUS_HELP;
use crate::span::{milliseconds, parse_span};

const SCHEDULE_HELP: &str = "\
Any `gristmill worker` or `gristmill serve` on the store fires the schedules; each due moment fires once.

Examples:
  gristmill schedule put nightly report '{\"region\":\"eu\"}' --cron '30 4 * * *'
  gristmill schedule put opening greet --cron '0 9 * * 1-5' --time-zone Asia/Tokyo
  gristmill schedule put heartbeat ping null --every 90s --overlap skip
  gristmill schedule put sync import '{\"shop\":7}' --every 10m --key-field shop --on-duplicate replace
  gristmill schedule list
  gristmill schedule pause nightly --for 2d
  gristmill schedule trigger nightly";

/// `gristmill schedule`.
#[derive(Debug, Args)]
#[command(after_help = format!("{SCHEDULE_HELP}\n\n{EXIT_STATUS_HELP}"))]
pub struct ScheduleArguments {
    /// The command.
    #[command(subcommand)]
    pub command: ScheduleCommand,
}

/// The commands over schedules.
#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// Create or change a schedule
    Put(Box<SchedulePutArguments>),
    /// List all schedules, with the next due moment and the last job of each
    List(ScheduleListArguments),
    /// Pause schedules, for a span or until they are resumed
    Pause(SchedulePauseArguments),
    /// Resume paused schedules; moments that passed meanwhile are skipped
    Resume(ScheduleNamesArguments),
    /// Submit a job of each schedule now; due moments do not change
    Trigger(ScheduleNamesArguments),
    /// Delete schedules; jobs that they submitted stay
    Delete(ScheduleNamesArguments),
}

/// `gristmill schedule put`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS_HELP)]
pub struct SchedulePutArguments {
    /// The schedule's name
    pub name: String,
    /// The kind of its jobs: selects the script
    pub kind: String,
    /// The payload of its jobs, as JSON
    #[arg(value_name = "JSON", default_value = "null")]
    pub payload: String,
    /// Due moments: minute, hour, day of month, month, day of week (optionally seconds first), or @daily and the like
    #[arg(long, value_name = "EXPRESSION", required_unless_present = "every")]
    pub cron: Option<String>,
    /// The time zone of the expression, by its IANA name [default: UTC]
    #[arg(long, value_name = "ZONE")]
    pub time_zone: Option<String>,
    /// The interval between due moments, from now on
    #[arg(long, value_name = "SPAN", conflicts_with = "cron", value_parser = parse_span)]
    pub every: Option<Duration>,
    /// Action for moments that passed while no worker or server ran
    #[arg(long, value_enum, default_value_t = CatchUp::One)]
    pub catch_up: CatchUp,
    /// Action while the last job has not ended
    #[arg(long, value_enum, default_value_t = Overlap::Allow)]
    pub overlap: Overlap,
    /// The queue of its jobs: selects the workers
    #[arg(long, default_value = gristmill_model::batch::DEFAULT_QUEUE)]
    pub queue: String,
    /// The tenant that owns the jobs; limits and pauses can apply to a group
    #[arg(long)]
    pub group: Option<String>,
    /// Higher runs first: a number, or background (-100), low (-10), normal (0), high (10) or urgent (100)
    #[arg(long, value_name = "PRIORITY", default_value = "normal", allow_negative_numbers = true, value_parser = parse_priority)]
    pub priority: i16,
    /// Expire a job that no worker has started this long after it was due
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub expires: Option<Duration>,
    /// Stop retrying a job that has not completed this long after its first attempt began
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub complete_within: Option<Duration>,
    /// A tag of its jobs; repeatable
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub tags: Vec<(String, String)>,
    /// Tag its jobs with the value of this field of the payload; repeatable
    #[arg(long = "tag-field", value_name = "FIELD")]
    pub tag_fields: Vec<String>,
    #[command(flatten, next_help_heading = "Failures")]
    #[allow(missing_docs)]
    pub retry: RetryArguments,
    #[command(flatten, next_help_heading = "Duplicates")]
    #[allow(missing_docs)]
    pub key: KeyArguments,
    /// Reuse the value of a job of the same queue, kind, group and payload that completed within this time, if it also
    /// had --cached
    #[arg(
        long,
        value_name = "SPAN",
        conflicts_with_all = ["keys", "key_field"],
        help_heading = "Duplicates",
        value_parser = parse_span
    )]
    pub cached: Option<Duration>,
    #[command(flatten, next_help_heading = "Hooks")]
    #[allow(missing_docs)]
    pub hooks: HookArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub refused: RefusedArguments,
    #[command(flatten, next_help_heading = "Store and output")]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print the schedule as JSON
    #[arg(long)]
    pub json: bool,
}

/// The options of `submit` that make no sense for a schedule. They are parsed so that the refusal gives the reason.
#[derive(Debug, Args)]
pub struct RefusedArguments {
    /// A file of payloads
    #[arg(short, long, value_name = "FILE", hide = true)]
    pub input: Option<String>,
    /// The format of the file
    #[arg(long, value_name = "FORMAT", hide = true)]
    pub format: Option<String>,
    /// Jobs in a batch
    #[arg(long, value_name = "N", hide = true)]
    pub batch: Option<String>,
    /// Earliest start, from now
    #[arg(long, value_name = "SPAN", hide = true)]
    pub delay: Option<String>,
    /// Prerequisites
    #[arg(long, value_name = "JOBS", hide = true)]
    pub after: Vec<String>,
    /// Action if a prerequisite does not complete
    #[arg(long, value_name = "POLICY", hide = true)]
    pub after_failure: Option<String>,
}

impl RefusedArguments {
    /// Refuses these options.
    pub fn check(&self) -> anyhow::Result<()> {
        let one_payload = "a schedule submits one job at a time, with one payload: write it after the kind";
        let no_prerequisites = "the jobs of a schedule wait for no others: a prerequisite ends only once. Start what comes \
                                next with --on-success, or from the script";
        let given = [
            ("--input", self.input.is_some(), one_payload),
            ("--format", self.format.is_some(), one_payload),
            ("--batch", self.batch.is_some(), one_payload),
            (
                "--delay",
                self.delay.is_some(),
                "the jobs of a schedule start when they are due: choose other moments with --cron or --every",
            ),
            ("--after", !self.after.is_empty(), no_prerequisites),
            ("--after-failure", self.after_failure.is_some(), no_prerequisites),
        ];
        match given.iter().find(|(_, is_given, _)| *is_given) {
            Some((option, _, reason)) => bail!("schedule put does not take {option}: {reason}"),
            None => Ok(()),
        }
    }
}

impl SchedulePutArguments {
    /// The recurrence.
    pub fn rule(&self) -> anyhow::Result<RecurrenceRule> {
        match (&self.cron, self.every) {
            (None, Some(_)) if self.time_zone.is_some() => bail!(
                "schedule put does not take --time-zone with --every: an interval is elapsed time, and a day of 23 or 25 hours \
                 moves it on the clock. For each day of the calendar, give --cron '0 9 * * *' or --cron @daily"
            ),
            (None, Some(interval)) => Ok(RecurrenceRule::Every {
                interval_ms: milliseconds(interval),
            }),
            (expression, _) => Ok(RecurrenceRule::Cron {
                expression: expression.clone().unwrap_or_default(),
                time_zone: self.time_zone.clone().unwrap_or_else(|| "UTC".to_owned()),
            }),
        }
    }

    /// The options of its jobs.
    pub fn options(&self) -> BatchOptions {
        BatchOptions {
            priority: self.priority,
            timeout_ms: self.retry.timeout_ms(),
            complete_within_ms: self.complete_within.map(milliseconds),
            cached_ms: self.cached.map(milliseconds),
            retry: self.retry.policy(),
            unique: self.key.unique(),
            group: self.group.clone(),
            hooks: self.hooks.hooks(),
            ..BatchOptions::default()
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
    /// Print one JSON line for each schedule
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
    /// Resume after this time
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
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
