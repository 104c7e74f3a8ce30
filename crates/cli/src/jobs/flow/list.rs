//! `gristmill flow list`: flows by name and version, or each of a kind or state.

use gristmill_engine::flow_steps::{self, FlowKind};
use gristmill_operations::Access;
use gristmill_operations::jobs::flows::{FlowKindView, FlowKindsQuery, FlowView, kinds_of};
use gristmill_store::{Page, Store};

use crate::arguments::flow::FlowListArguments;
use crate::exit::{Exit, NotFound, refused};
use crate::jobs::flow::described;
use crate::jobs::show::counted_by_state;
use crate::output::json::print_json;
use crate::output::print_line;
use crate::output::table::{Align, Table, cut};

/// Characters of an error that are shown.
const ERROR_CHARS_MAX: usize = 60;

/// Runs the command.
pub async fn list(arguments: FlowListArguments) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    let wanted = FlowKindsQuery {
        flow: arguments.kind.clone(),
        no_worker: Some(arguments.no_worker),
        ..FlowKindsQuery::default()
    };
    let kinds = kinds_of(&*store, &Access::all(), &wanted)
        .await
        .map_err(refused)?;
    let exit = if arguments.no_worker || (arguments.kind.is_none() && arguments.states.is_empty()) {
        by_kind(&arguments, kinds)
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

fn by_kind(arguments: &FlowListArguments, kinds: Vec<FlowKind>) -> anyhow::Result<Exit> {
    if arguments.json {
        let mut kinds = kinds.into_iter().map(FlowKindView::from);
        kinds.try_for_each(|kind| print_json(&kind))?;
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
            kind.name,
            kind.version.unwrap_or_default(),
            kind.queue.to_string(),
            if kind.has_worker { "yes" } else { "no" }.to_owned(),
            counted_by_state(kind.counts),
        ]);
    }
    print_line(&table.text())?;
    Ok(Exit::Done)
}

async fn each(arguments: &FlowListArguments, store: &dyn Store, kinds: &[FlowKind]) -> anyhow::Result<Exit> {
    let page = Page {
        after: arguments.after,
        limit: arguments.limit,
    };
    let listed = flow_steps::flows(store, kinds, &arguments.states, page).await?;
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
    let last = listed
        .flows
        .last()
        .filter(|_| listed.has_more)
        .map(|flow| flow.row.job);
    let is_empty = listed.flows.is_empty();
    for flow in listed.flows {
        if arguments.json {
            print_json(&FlowView::from(flow))?;
            continue;
        }
        let row = &flow.row;
        let waits: Vec<String> = flow.awaited.iter().map(described).collect();
        table.row([
            row.job.to_string(),
            flow.name,
            flow.version.unwrap_or_default(),
            row.queue.to_string(),
            row.state.to_string(),
            row.submitted_at.to_string(),
            waits.join("; "),
            cut(row.error.as_deref().unwrap_or_default(), ERROR_CHARS_MAX),
        ]);
    }
    if is_empty {
        say!("no flow matches");
    } else if !arguments.json {
        print_line(&table.text())?;
    }
    if let Some(last) = last {
        say!("more flows match: add --after {last}");
    }
    Ok(Exit::Done)
}
