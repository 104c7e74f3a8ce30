//! `gristmill wait`: waits until batches and jobs have ended.

use std::time::Duration;

use gristmill_model::BatchId;
use gristmill_store::{JobCounts, JobFilter, Store};
use serde_json::json;

use crate::arguments::wait::{WaitArguments, WaitTarget};
use crate::exit::{Exit, NotFound};
use crate::interrupt::Interrupt;
use crate::jobs::show::counted_by_state;
use crate::output::print_line;
use crate::span::{show_microseconds, show_seconds};

/// The time before the store is first asked whether jobs have ended. Each later wait is twice as long.
const LOOK_FIRST_AFTER: Duration = Duration::from_millis(25);

/// The longest wait before the store is asked again, because a notification can be lost.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Runs the command.
pub async fn wait(arguments: WaitArguments) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen()?;
    let store = arguments.store.open_existing().await?;
    let exit = wait_for_all(&arguments, &*store, &mut interrupt).await;
    store.close().await?;
    exit
}

/// Waits for one target after the other.
async fn wait_for_all(
    arguments: &WaitArguments,
    store: &dyn Store,
    interrupt: &mut Interrupt,
) -> anyhow::Result<Exit> {
    let timeout = async {
        match arguments.timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(timeout);
    let mut exit = Exit::Done;
    for target in &arguments.targets {
        let counts = tokio::select! {
            counts = ended(store, *target) => counts?,
            () = &mut timeout => {
                let timeout = arguments.timeout.unwrap_or_default();
                let shown = match timeout.as_secs() {
                    0 => show_microseconds(timeout.as_secs_f64() * 1e6),
                    seconds => show_seconds(seconds),
                };
                say!("{target} has not ended after {shown}");
                return Ok(Exit::SomeFailed);
            }
            exit = interrupt.wait() => return Ok(exit),
        };
        if counts.completed < counts.total() {
            exit = Exit::SomeFailed;
        }
        print_line(&if arguments.json {
            match target {
                WaitTarget::Batch(batch) => json!({"batch": batch, "counts": counts}),
                WaitTarget::Job(job) => json!({"job": job, "counts": counts}),
            }
            .to_string()
        } else {
            format!("{target} has ended: {}", counted_by_state(counts))
        })?;
    }
    Ok(exit)
}

/// The counts of the target's jobs, if all have ended.
async fn ended(store: &dyn Store, target: WaitTarget) -> anyhow::Result<JobCounts> {
    let batch = match target {
        WaitTarget::Batch(batch) => batch,
        WaitTarget::Job(job) => job.batch,
    };
    let mut watch = store.watch_outcomes(batch);
    let mut look_after = LOOK_FIRST_AFTER;
    loop {
        let counts = look(store, target, batch).await?;
        if counts.ended() == counts.total() {
            return Ok(counts);
        }
        tokio::select! {
            () = watch.changed() => {}
            () = tokio::time::sleep(look_after) => look_after = (look_after * 2).min(LOOK_EVERY),
        }
    }
}

async fn look(store: &dyn Store, target: WaitTarget, batch: BatchId) -> anyhow::Result<JobCounts> {
    let counts = match target {
        WaitTarget::Batch(_) => {
            let filter = JobFilter {
                batch: Some(batch),
                ..JobFilter::default()
            };
            store.counts(&filter).await?
        }
        WaitTarget::Job(job) => {
            let mut counts = JobCounts::default();
            if let Some(details) = store.job(job).await? {
                *counts.get_mut(details.row.state) = 1;
            }
            counts
        }
    };
    match counts.total() {
        0 => Err(NotFound(format!(
            "{target} does not exist; `gristmill jobs` lists all jobs"
        ))
        .into()),
        _ => Ok(counts),
    }
}
