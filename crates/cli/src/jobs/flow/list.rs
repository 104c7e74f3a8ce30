//! `gristmill flow list`: flows by name and version, or each of a kind or state.

use gristmill_engine::flow_steps::{self, FlowKind, FlowStep, name_and_version};
use gristmill_model::JobState;
use gristmill_store::{JobFilter, JobRow, Page, Store};
use serde::Serialize;

use crate::arguments::flow::FlowListArguments;
use crate::exit::{Exit, NotFound};
use crate::jobs::flow::described;
use crate::jobs::show::counted_by_state;
use crate::output::json::print_json;
use crate::output::print_line;
use crate::output::table::{Align, Table, cut};

/// Characters of an error that are shown.
const ERROR_CHARS_MAX: usize = 60;

/// A flow in a listing.
#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    row: &'a JobRow,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    /// The first steps for which it waits.
    awaited: &'a [FlowStep],
}

/// Runs the command.
pub async fn list(arguments: FlowListArguments) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    let mut kinds = flow_steps::flow_kinds(&*store, arguments.kind.as_deref()).await?;
    if arguments.no_worker {
        kinds.retain(|kind| !kind.has_worker);
    }
    let exit = if arguments.no_worker || (arguments.kind.is_none() && arguments.states.is_empty()) {
        by_kind(&arguments, &kinds)
    } else if let Some(kind) = arguments.kind.as_ref().filter(|_| kinds.is_empty()) {
        Err(NotFound(format!(
            "no flow of the kind `{kind}` has waited here; `gristmill flow list` lists the kinds, and \
             `gristmill jobs --kind {kind}` jobs that never waited"
        ))
        .into())
    } else {
        each(&arguments, &*store, &kinds).await
    };
    store.close().await?;
    exit
}

fn by_kind(arguments: &FlowListArguments, kinds: &[FlowKind]) -> anyhow::Result<Exit> {
    if arguments.json {
        kinds.iter().try_for_each(print_json)?;
        return Ok(Exit::Done);
    }
    if kinds.is_empty() {
        say!("no flow matches");
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&[
        ("flow", Align::Left),
        ("version", Align::Left),
        ("queue", Align::Left),
        ("worker", Align::Left),
        ("flows", Align::Left),
    ]);
    for kind in kinds {
        table.row([
            kind.name.clone(),
            kind.version.clone().unwrap_or_default(),
            kind.queue.to_string(),
            if kind.has_worker { "yes" } else { "no" }.to_owned(),
            counted_by_state(kind.counts),
        ]);
    }
    print_line(&table.text())?;
    Ok(Exit::Done)
}

async fn each(arguments: &FlowListArguments, store: &dyn Store, kinds: &[FlowKind]) -> anyhow::Result<Exit> {
    let mut names: Vec<&str> = kinds.iter().map(|kind| &*kind.kind).collect();
    names.dedup();
    // One more than is shown says whether there is a next page.
    let page = Page {
        after: arguments.after,
        limit: arguments.limit + 1,
    };
    let mut rows = Vec::new();
    for kind in names {
        let filter = JobFilter {
            kind: Some(kind.to_owned()),
            states: arguments.states.clone(),
            ..JobFilter::default()
        };
        rows.extend(store.jobs(&filter, page).await?);
    }
    rows.sort_by_key(|row| row.job);
    let has_more = rows.len() > arguments.limit as usize;
    rows.truncate(arguments.limit as usize);
    let mut table = Table::new(&[
        ("job", Align::Left),
        ("flow", Align::Left),
        ("version", Align::Left),
        ("queue", Align::Left),
        ("state", Align::Left),
        ("submitted", Align::Left),
        ("waits for", Align::Left),
        ("error", Align::Left),
    ]);
    for row in &rows {
        let awaited = match row.state {
            JobState::Blocked => flow_steps::awaited(store, row.job).await?,
            _ => Vec::new(),
        };
        let (name, version) = name_and_version(&row.kind);
        if arguments.json {
            print_json(&Listed {
                row,
                name,
                version,
                awaited: &awaited,
            })?;
            continue;
        }
        let waits: Vec<String> = awaited.iter().map(described).collect();
        table.row([
            row.job.to_string(),
            name.to_owned(),
            version.unwrap_or_default().to_owned(),
            row.queue.to_string(),
            row.state.to_string(),
            row.submitted_at.to_string(),
            waits.join("; "),
            cut(row.error.as_deref().unwrap_or_default(), ERROR_CHARS_MAX),
        ]);
    }
    if rows.is_empty() {
        say!("no flow matches");
    } else if !arguments.json {
        print_line(&table.text())?;
    }
    if let Some(last) = rows.last().filter(|_| has_more) {
        say!("more flows match: add --after {}", last.job);
    }
    Ok(Exit::Done)
}
