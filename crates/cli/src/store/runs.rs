//! `gristmill runs`: lists the runs of a store.

use gristmill_store::{JobFilter, RunState};
use serde_json::json;

use crate::arguments::job::RunsArguments;
use crate::exit::Exit;
use crate::output::json::print_json;
use crate::output::print_line;
use crate::output::table::{Align, Table};
use crate::run::{Corrections, Description};
use crate::span::show_count;

/// Runs the command.
pub async fn runs(arguments: RunsArguments) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    let mut table = Table::new(&[
        ("run", Align::Left),
        ("state", Align::Left),
        ("jobs", Align::Right),
        ("completed", Align::Right),
        ("failed", Align::Right),
        ("open", Align::Right),
        ("begun", Align::Left),
    ]);
    for run in store.runs().await? {
        let filter = JobFilter {
            run: Some(run.id),
            ..JobFilter::default()
        };
        let mut counts = store.counts(&filter).await?;
        // The jobs of corrected items stand for these.
        let corrected = Corrections::of(&store, run.id).await?.replaced();
        counts.cancelled = counts.cancelled.saturating_sub(corrected);
        let state = match run.state {
            RunState::Finished => run.state.name(),
            _ if Description::says_halted(&run.description) => "halted",
            state => state.name(),
        };
        if arguments.json {
            let row = json!({
                "name": run.name,
                "state": state,
                "counts": counts,
                "progress": run.progress,
                "created_at": run.created_at,
                "description": serde_json::from_str::<serde_json::Value>(&run.description).ok(),
            });
            print_json(&row)?;
            continue;
        }
        table.row([
            run.name,
            state.to_owned(),
            show_count(counts.total()),
            show_count(counts.completed),
            show_count(counts.ended() - counts.completed),
            show_count(counts.total() - counts.ended()),
            run.created_at.to_string(),
        ]);
    }
    if !arguments.json {
        if table.is_empty() {
            say!("no runs");
        } else {
            print_line(&table.text())?;
        }
    }
    Ok(Exit::Done)
}
