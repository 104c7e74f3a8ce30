//! `gristmill submit`: puts jobs into a store for workers to run.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use gristmill_batching::BatchStats;
use gristmill_model::batch::check_name;
use gristmill_model::{BatchId, BatchOptions, Clock, NewBatch, PackedBuilder, PackedError, SystemClock};
use gristmill_store::Store;
use serde_json::json;

use crate::arguments::{SubmitArguments, milliseconds};
use crate::exit::Exit;
use crate::input::{BatchLimits, Input};
use crate::output::print_line;
use crate::span::show_count;

/// What was submitted.
#[derive(Debug, Default)]
struct Submitted {
    batches: Vec<(BatchId, u32)>,
    rejected: u64,
}

/// Runs the command.
pub async fn submit(arguments: SubmitArguments) -> anyhow::Result<Exit> {
    check_name("kind", &arguments.kind)?;
    check_name("queue", &arguments.queue)?;
    let options = options(&arguments);
    let submitted = match &arguments.input {
        Some(path) => submit_file(&arguments, path, options).await?,
        None => submit_payloads(&arguments, options).await?,
    };
    tell(&arguments, &submitted)?;
    Ok(if submitted.rejected == 0 {
        Exit::Done
    } else {
        Exit::SomeFailed
    })
}

fn options(arguments: &SubmitArguments) -> BatchOptions {
    let now = SystemClock.now();
    let after = |span| now.plus_ms(i64::try_from(milliseconds(span)).unwrap_or(i64::MAX));
    BatchOptions {
        priority: arguments.priority,
        run_at: arguments.delay.map(after),
        expires_at: arguments.expires.map(after),
        timeout_ms: arguments.retry.timeout_ms(),
        retry: arguments.retry.policy(),
        unique: None,
    }
}

fn new_batch(
    arguments: &SubmitArguments,
    options: &BatchOptions,
    payloads: gristmill_model::PackedArray,
) -> NewBatch {
    NewBatch {
        queue: arguments.queue.clone(),
        options: options.clone(),
        ..NewBatch::new(arguments.kind.as_str(), payloads)
    }
}

/// All of the command line's payloads, or none.
async fn submit_payloads(arguments: &SubmitArguments, options: BatchOptions) -> anyhow::Result<Submitted> {
    let mut batches = Vec::new();
    let mut builder = PackedBuilder::new();
    for (index, payload) in arguments.payloads.iter().enumerate() {
        builder.push(payload).map_err(|error| match error {
            PackedError::NotJson { reason, .. } => anyhow::anyhow!(
                "payload {} is not JSON: {reason}; a string needs quotes of its own, as in '\"text\"'",
                index + 1
            ),
            other => other.into(),
        })?;
        if builder.count() == arguments.batch {
            batches.push(std::mem::take(&mut builder).finish());
        }
    }
    if builder.count() > 0 {
        batches.push(builder.finish());
    }
    let counts: Vec<u32> = batches.iter().map(|payloads| payloads.count()).collect();
    let store = arguments.store.open_or_create().await?;
    let batches = batches
        .into_iter()
        .map(|payloads| new_batch(arguments, &options, payloads))
        .collect();
    let ids = store.submit(batches, None).await?;
    store.close().await?;
    Ok(Submitted {
        batches: ids.into_iter().zip(counts).collect(),
        rejected: 0,
    })
}

/// A file's items, batch by batch.
async fn submit_file(
    arguments: &SubmitArguments,
    path: &Path,
    options: BatchOptions,
) -> anyhow::Result<Submitted> {
    let input = Input::new(path, arguments.format)?;
    let mut reader = input.open(BatchLimits {
        jobs_max: arguments.batch,
        ..BatchLimits::default()
    })?;
    let store: Arc<dyn Store> = arguments.store.open_or_create().await?;
    let mut submitted = Submitted::default();
    let mut hops = BatchStats::default();
    let result = async {
        while let Some(batch) = tokio::task::block_in_place(|| reader.next_batch())? {
            let count = batch.payloads.count();
            hops.record("submit", count as usize, batch.end_reason);
            submitted.rejected += batch.rejected.len() as u64;
            let new = NewBatch {
                rejected: batch.rejected,
                ..new_batch(arguments, &options, batch.payloads)
            };
            for id in store.submit(vec![new], None).await? {
                submitted.batches.push((id, count));
            }
        }
        anyhow::Ok(())
    }
    .await;
    store.record(hops).await?;
    store.close().await?;
    let jobs: u64 = submitted.batches.iter().map(|(_, count)| u64::from(*count)).sum();
    result.with_context(|| format!("stopped after {} jobs were submitted", show_count(jobs)))?;
    if jobs == 0 {
        bail!("{} has no items", input.name());
    }
    Ok(submitted)
}

fn tell(arguments: &SubmitArguments, submitted: &Submitted) -> anyhow::Result<()> {
    let jobs: u64 = submitted.batches.iter().map(|(_, count)| u64::from(*count)).sum();
    let first = submitted.batches.first().map_or(0, |(batch, _)| batch.0);
    let last = submitted.batches.last().map_or(0, |(batch, _)| batch.0);
    if arguments.json {
        let summary = json!({
            "jobs": jobs,
            "rejected": submitted.rejected,
            "batches": submitted.batches.iter().map(|(batch, count)| json!({"batch": batch, "jobs": count})).collect::<Vec<_>>(),
        });
        return Ok(print_line(&summary.to_string())?);
    }
    match submitted.batches.as_slice() {
        // Few jobs are named, so that they can be asked for.
        [(batch, count)] if *count <= 20 => {
            for position in 0..*count {
                print_line(&format!("{batch}:{position}"))?;
            }
        }
        [(batch, count)] => print_line(&format!(
            "{} jobs submitted as batch {batch}",
            show_count(u64::from(*count))
        ))?,
        _ => print_line(&format!(
            "{} jobs submitted as batches {first} to {last} ({} in all)",
            show_count(jobs),
            submitted.batches.len()
        ))?,
    }
    if submitted.rejected > 0 {
        eprintln!(
            "{} of them cannot be read and are dead: gristmill jobs --state dead --kind '{}'",
            show_count(submitted.rejected),
            arguments.kind
        );
    }
    Ok(())
}
