//! `gristmill flow show`: a flow and its steps.

use gristmill_engine::flow_steps::{self, FlowStep, FlowStepsPage, name_and_version};
use gristmill_model::{JobState, Timestamp};
use gristmill_store::JobDetails;
use serde::Serialize;

use crate::arguments::flow::FlowShowArguments;
use crate::exit::{Exit, NotFound};
use crate::jobs::flow::{ended_of, microseconds_between, name_of};
use crate::output::json::print_json;
use crate::output::print_line;
use crate::output::table::{Align, Table, cut};
use crate::output::terminal::harmless;
use crate::span::{show_count, show_microseconds};

/// Characters of a payload, value or error that are shown; `gristmill show` has all of them.
const TEXT_CHARS_MAX: usize = 200;

/// Characters of an error of a step that are shown.
const ERROR_CHARS_MAX: usize = 60;

/// A flow with its steps.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    details: &'a JobDetails,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<&'a str>,
    continued: u64,
    /// Whether it cleans up after its origin, which was cancelled.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cleans_up: bool,
    /// The number of all steps.
    steps_total: u32,
    steps: &'a [FlowStep],
}

/// Runs the command.
pub async fn show(arguments: FlowShowArguments) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    let Some(details) = store.job(arguments.flow).await? else {
        return Err(NotFound(format!(
            "flow {} does not exist; `gristmill flow list` lists flows",
            arguments.flow
        ))
        .into());
    };
    let steps = flow_steps::steps(&*store, arguments.flow, arguments.from, arguments.limit).await?;
    let now = store.now();
    store.close().await?;
    let (name, version) = name_and_version(&details.row.kind);
    if arguments.json {
        print_json(&Shown {
            details: &details,
            name,
            version,
            origin: steps.origin.as_deref(),
            continued: steps.continued,
            cleans_up: steps.cleans_up,
            steps_total: steps.total,
            steps: &steps.steps,
        })?;
        return Ok(Exit::Done);
    }
    print_line(&harmless(&head(&details, &steps, now)))?;
    if steps.total == 0 {
        say!(
            "job {} has no steps; `gristmill show {}` shows it as a job",
            arguments.flow,
            arguments.flow
        );
        return Ok(Exit::Done);
    }
    print_line("")?;
    print_line(&timeline(&details, &steps, now).text())?;
    let next = arguments.from.saturating_add(steps.steps.len() as u32);
    if next < steps.total {
        say!(
            "{} more steps: add --from {next}",
            show_count(u64::from(steps.total - next))
        );
    }
    Ok(Exit::Done)
}

fn head(details: &JobDetails, steps: &FlowStepsPage, now: Timestamp) -> String {
    let row = &details.row;
    let (name, version) = name_and_version(&row.kind);
    let state = match row.state {
        JobState::Blocked => "blocked: waits for its steps".to_owned(),
        state => state.to_string(),
    };
    let mut lines = vec![
        format!("flow       {name}"),
        format!("job        {}", row.job),
        format!("queue      {}", row.queue),
        format!("state      {state}"),
        format!("submitted  {}", row.submitted_at),
    ];
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            lines.push(format!("{name:<10} {}", cut(&value, TEXT_CHARS_MAX)));
        }
    };
    add("version", version.map(str::to_owned));
    add("ended", row.finished_at.map(|at| at.to_string()));
    let lasted = microseconds_between(row.submitted_at, row.finished_at.unwrap_or(now));
    add("lasts", Some(show_microseconds(lasted)));
    add("key", details.key.clone());
    let origin = match steps.cleans_up {
        true => "cleanup of",
        false => "fork of",
    };
    add(origin, steps.origin.clone());
    let continued = Some(steps.continued).filter(|count| *count > 0);
    add(
        "begun",
        continued.map(|count| format!("anew {} times", show_count(count))),
    );
    add("parent", details.parent.map(|parent| parent.to_string()));
    add("payload", Some(details.payload.get().to_owned()));
    add(
        "value",
        details.value.as_ref().map(|value| value.get().to_owned()),
    );
    add("error", row.error.clone());
    lines.join("\n")
}

/// The steps: each begins so long after the flow was submitted.
fn timeline(details: &JobDetails, steps: &FlowStepsPage, now: Timestamp) -> Table {
    let mut table = Table::new(&[
        ("", Align::Right),
        ("step", Align::Left),
        ("key", Align::Left),
        ("job", Align::Left),
        ("state", Align::Left),
        ("attempt", Align::Right),
        ("begins", Align::Right),
        ("lasts", Align::Right),
        ("", Align::Left),
    ]);
    for step in &steps.steps {
        let begins = step.submitted_at.map(|at| {
            let after = microseconds_between(details.row.submitted_at, at);
            format!("+{}", show_microseconds(after))
        });
        table.row([
            step.number.to_string(),
            shown_name(step),
            step.key.clone().unwrap_or_default(),
            step.job.to_string(),
            shown_state(step),
            attempt(step),
            begins.unwrap_or_default(),
            lasts(step, now),
            note(step),
        ]);
    }
    table
}

fn shown_name(step: &FlowStep) -> String {
    match &step.event {
        Some(event) => format!("event {event}"),
        None if step.is_sleep() => "sleep".to_owned(),
        None => name_of(step).to_owned(),
    }
}

/// The attempt of a step that a worker runs.
fn attempt(step: &FlowStep) -> String {
    let is_wait = step.event.is_some() || step.is_sleep();
    let attempt = step.attempt.filter(|_| !is_wait);
    attempt.map(|attempt| attempt.to_string()).unwrap_or_default()
}

/// A wait has words of its own.
fn shown_state(step: &FlowStep) -> String {
    let Some(state) = step.state else {
        return "deleted".to_owned();
    };
    let word = match (state, step.is_sleep(), step.event.is_some()) {
        (JobState::Expired, true, _) => "over",
        (JobState::Expired, _, true) => "timed out",
        (JobState::Completed, _, true) => "received",
        (state, true, _) | (state, _, true) if !state.is_final() => "awaited",
        _ => return state.to_string(),
    };
    word.to_owned()
}

fn lasts(step: &FlowStep, now: Timestamp) -> String {
    let Some(begun_at) = step.submitted_at else {
        return String::new();
    };
    let is_open = step.state.is_some_and(|state| !state.is_final());
    match (step.finished_at, is_open) {
        (Some(at), _) => show_microseconds(microseconds_between(begun_at, at)),
        (None, true) => format!(
            "{} so far",
            show_microseconds(microseconds_between(begun_at, now))
        ),
        (None, false) => String::new(),
    }
}

fn note(step: &FlowStep) -> String {
    let mut notes = Vec::new();
    notes.extend(step.until.map(|until| format!("until {until}")));
    let ended = ended_of(step);
    if !ended.is_empty() {
        notes.push(ended.trim_start_matches(", ").to_owned());
    }
    notes.extend(step.error.as_deref().map(|error| cut(error, ERROR_CHARS_MAX)));
    notes.join(", ")
}
