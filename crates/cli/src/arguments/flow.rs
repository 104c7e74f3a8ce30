//! The arguments of `gristmill flow`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gristmill_model::{JobId, JobState};

use crate::arguments::job::ChangeArguments;
use crate::arguments::shared::StoreArguments;
use crate::arguments::submit::SubmitArguments;
use crate::exit::EXIT_STATUS_HELP;

const FLOW_HELP: &str = "\
A flow is a job that waits for steps, events and times without a process. Its kind is its name, or NAME@VERSION. All commands
over jobs take flows, too: wait, retry, logs, results.

Examples:
  gristmill flow start document@3 '{\"url\":\"https://example.org\"}'
  gristmill flow list
  gristmill flow list --kind document --state blocked
  gristmill flow show 42:7
  gristmill flow event 42:7 approve '{\"by\":\"Ada\"}'
  gristmill flow fork 42:7 --from embed
  gristmill flow upgrade shop:app order --from 1 --dry-run
  gristmill flow cancel 42:7";

/// `gristmill flow`.
#[derive(Debug, Args)]
#[command(after_help = format!("{FLOW_HELP}\n\n{EXIT_STATUS_HELP}"))]
pub struct FlowArguments {
    /// The command.
    #[command(subcommand)]
    pub command: FlowCommand,
}

/// The commands over flows.
#[derive(Debug, Subcommand)]
pub enum FlowCommand {
    /// Start flows: submit a job of the flow's kind for each payload
    #[command(after_help = START_HELP)]
    Start(Box<SubmitArguments>),
    /// List flows by name and version, or those of a kind or state with what each waits for
    List(FlowListArguments),
    /// Show a flow and its steps: their times, attempts, events and errors
    Show(FlowShowArguments),
    /// Send events to flows
    Event(FlowEventArguments),
    /// Start new instances that have the steps of ended ones up to a step
    Fork(FlowForkArguments),
    /// Let new code in Python go on with the instances of a version that it fits, and hold the others
    #[command(after_help = UPGRADE_HELP)]
    Upgrade(FlowUpgradeArguments),
    /// Cancel flows that have not ended, and their open steps
    #[command(after_help = CANCEL_HELP)]
    Cancel(ChangeArguments),
}

const START_HELP: &str = "\
Examples:
  gristmill flow start document@3 '{\"url\":\"https://example.org\"}'
  gristmill flow start document --input urls.jsonl --key-field url

These are the options of `gristmill submit`.

Exit status: 0 if all flows are submitted; 1 if some items are unreadable, and their flows are submitted as failed; 2 if
nothing is submitted, or only what the message says.";

const UPGRADE_HELP: &str = "\
This is a command of the Python package, because it replays the flows of an application in Python:

  python -m gristmill flow upgrade --help
  python -m gristmill flow upgrade shop:app order --from 1 --dry-run";

/// `gristmill flow upgrade`, which the Python package runs.
#[derive(Debug, Args)]
pub struct FlowUpgradeArguments {
    /// The arguments of the package's command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub arguments: Vec<String>,
}

const CANCEL_HELP: &str = "\
Examples:
  gristmill flow cancel 42:7 42:9
  gristmill flow cancel --kind document@2 --state blocked";

const LIST_HELP: &str = "\
Without --kind and --state, the table has a row for each name, version and queue, with counts by state. A flow that has not
waited yet is listed once another one of its kind has.

Examples:
  gristmill flow list
  gristmill flow list --no-worker
  gristmill flow list --kind document
  gristmill flow list --kind document@3 --state blocked --json | jq .awaited";

/// `gristmill flow list`.
#[derive(Debug, Args)]
#[command(after_help = LIST_HELP)]
pub struct FlowListArguments {
    /// List the flows of this name, or of this name and version, as in document@3
    #[arg(long)]
    pub kind: Option<String>,
    /// List the flows in this state: blocked (it waits), waiting, scheduled, paused, running, completed, dead, cancelled or
    /// expired; repeatable
    #[arg(long = "state", value_name = "STATE")]
    pub states: Vec<JobState>,
    /// Only names and versions that no registered worker serves
    #[arg(long, conflicts_with_all = ["states", "after", "limit"])]
    pub no_worker: bool,
    /// Only flows after this one: the next page
    #[arg(long, value_name = "JOB")]
    pub after: Option<JobId>,
    /// The maximum number of flows
    #[arg(
        long,
        value_name = "N",
        default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=1_000)
    )]
    pub limit: u32,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print one JSON line for each row
    #[arg(long)]
    pub json: bool,
}

const SHOW_HELP: &str = "\
The steps are in the order in which the flow asked for them. A map of many items is one row.

Examples:
  gristmill flow show 42:7
  gristmill flow show 42:7 --from 200
  gristmill flow show 42:7 --json | jq '.steps[] | select(.state == \"dead\")'";

/// `gristmill flow show`.
#[derive(Debug, Args)]
#[command(after_help = SHOW_HELP)]
pub struct FlowShowArguments {
    /// The flow, as in 42:7
    #[arg(value_name = "JOB")]
    pub flow: JobId,
    /// The number of the first step
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub from: u32,
    /// The maximum number of steps
    #[arg(
        long,
        value_name = "N",
        default_value_t = 200,
        value_parser = clap::value_parser!(u32).range(1..=gristmill_engine::flow_steps::STEPS_PAGE_MAX as i64)
    )]
    pub limit: u32,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print the flow and its steps as one JSON object
    #[arg(long)]
    pub json: bool,
}

const EVENT_HELP: &str = "\
A flow that awaits the event goes on. A flow that does not await it yet finds it later: the store keeps up to 1,000 events of a
flow. Each line of --input is an object with `name`, with `job` or `key`, and perhaps with `kind` and `value`. 1,000 lines are
sent in one transaction.

Exit status: 0 if all events are delivered or kept; 1 if a flow has ended, is unknown or has too many events; 2 if an event
is wrong.

Examples:
  gristmill flow event 42:7 approve
  gristmill flow event 42:7 approve '{\"by\":\"Ada\"}'
  gristmill flow event key=order-17 paid --kind ship
  jq -n '{by: \"Ada\"}' | gristmill flow event 42:7 approve -
  echo '{\"job\":\"42:7\",\"name\":\"approve\",\"value\":true}' | gristmill flow event --input -";

/// `gristmill flow event`.
#[derive(Debug, Args)]
#[command(after_help = EVENT_HELP)]
pub struct FlowEventArguments {
    /// The flow: its id, as in 42:7, or its deduplication key, as in key=order-17
    #[arg(
        value_name = "JOB|key=KEY",
        required_unless_present = "input",
        requires = "name"
    )]
    pub flow: Option<String>,
    /// The name of the event
    pub name: Option<String>,
    /// The value of the event, as JSON; - reads it from standard input [default: null]
    #[arg(value_name = "JSON|-")]
    pub value: Option<String>,
    /// With a key: the kind of the flow
    #[arg(long, requires = "flow")]
    pub kind: Option<String>,
    /// Send an event for each line of this file; - is standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "flow")]
    pub input: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    /// Print one JSON line for each event
    #[arg(long)]
    pub json: bool,
}

const FORK_HELP: &str = "\
A fork is a new instance with the payload, options and tags of a flow that has ended. It has the outcomes of all steps that the
flow began before STEP; STEP and what follows run again. STEP is the name of a step, or its number in `gristmill flow show`.
With conditions instead of ids, the flows that match and have ended are forked, as packed batches. Ctrl-C stops; the forks that
were printed are stored.

Exit status: 0 if all flows are forked; 1 if some cannot be, such as flows without the step; 2 if the request is wrong.

Examples:
  gristmill flow fork 42:7 --from embed
  gristmill flow fork 42:7 42:9 --from 3
  gristmill flow fork --kind document@3 --state dead --from embed --to 4
  gristmill flow fork --batch 42 --from charge --step-key order-17 --json | jq .fork";

/// `gristmill flow fork`.
#[derive(Debug, Args)]
#[command(after_help = FORK_HELP)]
pub struct FlowForkArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub flows: ChangeArguments,
    /// The step that runs again, with all that follow: its name, or its number
    #[arg(long, value_name = "STEP")]
    pub from: String,
    /// The key of the step
    #[arg(long, value_name = "KEY")]
    pub step_key: Option<String>,
    /// The version of the new instances [default: that of each flow]
    #[arg(long, value_name = "VERSION")]
    pub to: Option<String>,
}
