//! `gristmill flow`: starts, lists, shows and forks flows, sends them events, and cancels them.

mod event;
mod fork;
mod list;
mod show;

use gristmill_engine::flow_steps::{self, FlowStep};
use gristmill_model::Timestamp;
use gristmill_store::{Change, Store};

use crate::arguments::flow::{FlowArguments, FlowCommand};
use crate::arguments::submit::SubmitArguments;
use crate::exit::Exit;
use crate::jobs::{change, submit};
use crate::span::show_count;
use crate::store::location::StoreLocation;

/// Runs the command.
pub async fn flow(arguments: FlowArguments) -> anyhow::Result<Exit> {
    match arguments.command {
        FlowCommand::Start(arguments) => start(*arguments).await,
        FlowCommand::List(arguments) => list::list(arguments).await,
        FlowCommand::Show(arguments) => show::show(arguments).await,
        FlowCommand::Event(arguments) => event::event(arguments).await,
        FlowCommand::Fork(arguments) => fork::fork(arguments).await,
        FlowCommand::Upgrade(arguments) => anyhow::bail!(
            "`gristmill flow upgrade` replays the flows of an application in Python, and this program has none: run `python -m \
             gristmill flow upgrade {}` where the package is installed",
            arguments.arguments.join(" ")
        ),
        FlowCommand::Cancel(arguments) => change::change_jobs(arguments, Change::Cancel).await,
    }
}

async fn start(arguments: SubmitArguments) -> anyhow::Result<Exit> {
    let is_there = match &arguments.store.store {
        StoreLocation::File(path) => path.exists(),
        StoreLocation::Postgres(_) => true,
    };
    if is_there {
        let store = arguments.store.open_existing().await?;
        let checked = check_version(&*store, &arguments.kind).await;
        store.close().await?;
        checked?;
    }
    submit::submit(arguments).await
}

/// Refuses a name of which the store knows versions only: no worker would take the flow.
async fn check_version(store: &dyn Store, kind: &str) -> anyhow::Result<()> {
    let known = flow_steps::flow_kinds(store, Some(kind)).await?;
    if known.is_empty() || known.iter().any(|known| *known.kind == *kind) {
        return Ok(());
    }
    let mut kinds: Vec<&str> = known.iter().map(|known| &*known.kind).collect();
    kinds.dedup();
    anyhow::bail!(
        "the flow `{kind}` has versions here: name one, as in `{}`; nothing is submitted",
        kinds.join("` or `")
    )
}

/// Describes a step in words: `event approve until 2026-01-01T00:00:00.000Z`, `embed (key a), 3 of 10 ended`.
fn described(step: &FlowStep) -> String {
    let until = step
        .until
        .map(|until| format!(" until {until}"))
        .unwrap_or_default();
    if step.is_sleep() {
        return format!("sleep{until}");
    }
    if let Some(event) = &step.event {
        return format!("event {event}{until}");
    }
    let key = step.key.as_ref().map(|key| format!(" (key {key})"));
    format!("{}{}{}", name_of(step), key.unwrap_or_default(), ended_of(step))
}

/// A step's name, or the kind of its jobs.
fn name_of(step: &FlowStep) -> &str {
    step.name
        .as_deref()
        .or(step.kind.as_deref())
        .unwrap_or("(deleted)")
}

/// How many jobs of a step with several have ended.
fn ended_of(step: &FlowStep) -> String {
    match (&step.states, step.jobs) {
        (Some(states), Some(jobs)) => format!(
            ", {} of {} ended",
            show_count(states.ended()),
            show_count(u64::from(jobs))
        ),
        _ => String::new(),
    }
}

/// The time between two moments, in microseconds.
fn microseconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to.since_ms(from).max(0) as f64 * 1_000.0
}
