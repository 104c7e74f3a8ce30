//! `gristmill prune`: deletes batches that ended long ago.

use gristmill_model::{Clock, SystemClock};
use gristmill_store::PruneOptions;

use crate::arguments::job::PruneArguments;
use crate::exit::Exit;
use crate::output::print_line;
use crate::span::{milliseconds, show_number_of};

/// Runs the command.
pub async fn prune(arguments: PruneArguments) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    let age_ms = i64::try_from(milliseconds(arguments.older_than)).unwrap_or(i64::MAX);
    let options = PruneOptions {
        finished_before: SystemClock.now().plus_ms(-age_ms),
        keep_batches: arguments.keep,
        dead_too: arguments.dead_too,
        dry_run: arguments.dry_run,
    };
    let pruned = store.prune(options).await?;
    store.close().await?;
    if arguments.json {
        print_line(&serde_json::to_string(&pruned)?)?;
    } else {
        let (batches, jobs) = (
            show_number_of(pruned.batches, "batch"),
            show_number_of(pruned.jobs, "job"),
        );
        let what = if arguments.dry_run {
            "would be deleted"
        } else {
            "deleted"
        };
        print_line(&format!("{batches} with {jobs} {what}"))?;
    }
    Ok(Exit::Done)
}
