//! `gristmill retry`, `cancel`, `discard` and `priority`: change jobs.

use std::sync::Arc;

use anyhow::bail;
use gristmill_store::{Changed, Selection, Store};

use crate::arguments::job::{ChangeArguments, PriorityArguments};
use crate::exit::Exit;
use crate::output::print_line;
use crate::span::show_number_of;

/// Runs `gristmill retry`.
pub async fn retry(arguments: ChangeArguments) -> anyhow::Result<Exit> {
    let (store, selection) = select(&arguments, "retry").await?;
    let changed = store.retry(selection).await?;
    store.close().await?;
    tell(
        &arguments,
        changed,
        "can run again",
        "only dead, cancelled and expired jobs can be retried",
    )
}

/// Runs `gristmill cancel`.
pub async fn cancel(arguments: ChangeArguments) -> anyhow::Result<Exit> {
    let (store, selection) = select(&arguments, "cancel").await?;
    let changed = store.cancel(selection).await?;
    store.close().await?;
    tell(
        &arguments,
        changed,
        "cancelled",
        "only jobs that have not ended can be cancelled",
    )
}

/// Runs `gristmill discard`.
pub async fn discard(arguments: ChangeArguments) -> anyhow::Result<Exit> {
    let (store, selection) = select(&arguments, "discard").await?;
    let changed = store.discard(selection).await?;
    store.close().await?;
    tell(
        &arguments,
        changed,
        "discarded",
        "only dead jobs can be discarded",
    )
}

/// Runs `gristmill priority`.
pub async fn priority(arguments: PriorityArguments) -> anyhow::Result<Exit> {
    let (store, selection) = select(&arguments.change, "give another priority").await?;
    let changed = store.prioritise(selection, arguments.priority).await?;
    store.close().await?;
    tell(
        &arguments.change,
        changed,
        &format!("now at priority {}", arguments.priority),
        "only jobs that have not ended can get another priority",
    )
}

async fn select(arguments: &ChangeArguments, verb: &str) -> anyhow::Result<(Arc<dyn Store>, Selection)> {
    if arguments.ids.is_empty() && arguments.filter.is_empty() && !arguments.all {
        bail!(
            "name the jobs to {verb}: ids as in 42:7, or --state, --kind, --queue, --group, --run, --batch, --tag, --key, or --all"
        );
    }
    let store = arguments.store.open_existing().await?;
    let selection = if arguments.ids.is_empty() {
        Selection::Filter(arguments.filter.resolve(&store).await?)
    } else {
        Selection::Jobs(arguments.ids.clone())
    };
    Ok((store, selection))
}

fn tell(arguments: &ChangeArguments, changed: Changed, done: &str, rule: &str) -> anyhow::Result<Exit> {
    if arguments.json {
        print_line(&serde_json::to_string(&changed)?)?;
    } else {
        print_line(&format!("{} {done}", show_number_of(changed.changed, "job")))?;
        if changed.unchanged > 0 {
            eprintln!(
                "{} did not change or cannot be found: {rule}",
                show_number_of(changed.unchanged, "job")
            );
        }
    }
    // A caller that names a job expects a change; a filter may match no job.
    Ok(if arguments.ids.is_empty() || changed.unchanged == 0 {
        Exit::Done
    } else {
        Exit::SomeFailed
    })
}
