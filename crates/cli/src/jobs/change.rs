//! `gristmill retry`, `cancel`, `discard` and `priority`: change jobs.

use std::cell::Cell;
use std::io::IsTerminal;
use std::sync::Arc;

use anyhow::bail;
use gristmill_engine::Portions;
use gristmill_store::{Change, Changed, Selection, Store, StoreError};

use crate::arguments::job::{ChangeArguments, FilterArguments};
use crate::exit::Exit;
use crate::output::print_line;
use crate::output::progress::{Progress, Shown, show_rate};
use crate::span::{show_count, show_number_of};

/// Runs `gristmill retry`, `cancel`, `discard` or `priority`.
pub async fn change_jobs(arguments: ChangeArguments, requested: Change) -> anyhow::Result<Exit> {
    const OPEN: &str = "only jobs that have not ended can be";
    let (verb, done, rule) = match &requested {
        Change::Retry => (
            "retry",
            "can run again".to_owned(),
            "only dead, cancelled and expired jobs can be retried".to_owned(),
        ),
        Change::Cancel => ("cancel", "cancelled".to_owned(), format!("{OPEN} cancelled")),
        Change::Discard => (
            "discard",
            "discarded".to_owned(),
            "only dead jobs can be discarded".to_owned(),
        ),
        Change::Prioritise(priority) => (
            "give another priority",
            format!("now at priority {priority}"),
            "only jobs that have not ended can get another priority".to_owned(),
        ),
        Change::Pause { .. } => ("pause", "paused".to_owned(), format!("{OPEN} paused")),
        Change::Resume { .. } => ("resume", "resumed".to_owned(), format!("{OPEN} resumed")),
    };
    let (store, selection) = select(&arguments, verb).await?;
    let changed = change(&store, selection, requested).await?;
    store.close().await?;
    tell(&arguments, changed, &done, &rule)
}

/// Changes jobs. Jobs of a filter are changed in portions. After two portions, a terminal shows a progress bar.
pub async fn change(
    store: &Arc<dyn Store>,
    selection: Selection,
    change: Change,
) -> Result<Changed, StoreError> {
    let Selection::Filter(filter) = selection else {
        return store.change(selection, change).await;
    };
    let mut portions = Portions::of(store.clone(), filter, change).await?;
    let is_shown = std::io::stderr().is_terminal();
    let total = if is_shown { portions.matching().await? } else { 0 };
    let first = portions.change_next().await?;
    let second = portions.change_next().await?;
    let changed = Cell::new(first.unwrap_or(0) + second.unwrap_or(0));
    let rest = async {
        while let Some(more) = portions.change_next().await? {
            changed.set(changed.get() + more);
        }
        Ok::<(), StoreError>(())
    };
    if is_shown && second.is_some() {
        let progress = Progress::new(false, false).show(|| ChangedSoFar {
            changed: changed.get(),
            total,
        });
        tokio::select! {
            // Shows the bar once, even if the rest is done at once.
            biased;
            () = progress => Ok(()),
            ended = rest => ended,
        }
    } else {
        rest.await
    }?;
    Ok(Changed {
        changed: changed.get(),
        unchanged: 0,
    })
}

/// The progress of a change.
struct ChangedSoFar {
    changed: u64,
    total: u64,
}

impl Shown for ChangedSoFar {
    fn done(&self) -> u64 {
        self.changed
    }

    fn total(&self) -> Option<u64> {
        Some(self.total)
    }

    fn describe(&self, rate: Option<f64>) -> String {
        let (changed, total) = (show_count(self.changed), show_count(self.total));
        match rate {
            Some(rate) => format!("{changed} of {total} changed, {} jobs/s", show_rate(rate)),
            None => format!("{changed} of {total} changed"),
        }
    }
}

/// The store, and the jobs that the arguments name.
pub async fn select(arguments: &ChangeArguments, verb: &str) -> anyhow::Result<(Arc<dyn Store>, Selection)> {
    if arguments.ids.is_empty() && arguments.filter == FilterArguments::default() && !arguments.all {
        bail!(
            "name the jobs to {verb}: ids as in 42:7, or --state, --kind, --queue, --group, --run, --batch, --tag, --key, or --all"
        );
    }
    let store = arguments.store.open_existing().await?;
    let selection = if arguments.ids.is_empty() {
        Selection::Filter(arguments.filter.resolve(&*store).await?)
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
            say!(
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
