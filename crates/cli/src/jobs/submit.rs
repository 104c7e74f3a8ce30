//! `gristmill submit`: puts jobs into a store for workers to run.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use gristmill_batching::BatchStats;
use gristmill_model::batch::check_name;
use gristmill_model::limits::BATCH_JOBS_MAX;
use gristmill_model::{
    BatchId, BatchLimits, BatchOptions, Clock, JobId, KeyedBatch, NewBatch, PackedArray, PackedCutter,
    PackedError, SystemClock, TraceParent, item, pack_tags,
};
use gristmill_store::{Store, StoreError};
use gristmill_worker::spans::SubmitSpans;
use serde_json::json;

use crate::arguments::container::variable;
use crate::arguments::submit::SubmitArguments;
use crate::exit::Exit;
use crate::input::Input;
use crate::jobs::portion::{PORTION_BYTES_MAX, Portions, left_behind};
use crate::output::print_line;
use crate::span::{milliseconds, show_count, show_number_of};

/// The variable with the trace of a program.
const TRACEPARENT_VARIABLE: &str = "TRACEPARENT";

/// The submitted batches and jobs.
#[derive(Debug, Default)]
struct Submitted {
    batches: Vec<(BatchId, u32)>,
    rejected: u64,
    /// The jobs that stand for the given payloads, if they have keys.
    jobs: Vec<JobId>,
}

/// The largest number of ids that `--json` prints.
const IDS_MAX: usize = 10_000;

impl Submitted {
    /// The job that stands for each payload, in the payloads' order.
    fn ids(&self) -> impl Iterator<Item = JobId> {
        let of_batch = |(batch, count): &(BatchId, u32)| {
            let batch = *batch;
            (0..*count).map(move |position| JobId { batch, position })
        };
        let unkeyed = self.batches.iter().filter(|_| self.jobs.is_empty());
        self.jobs.iter().copied().chain(unkeyed.flat_map(of_batch))
    }

    /// Submits batches, with their keys if they have any.
    async fn add(
        &mut self,
        arguments: &SubmitArguments,
        store: &Arc<dyn Store>,
        mut batches: Vec<NewBatch>,
    ) -> anyhow::Result<()> {
        let Some(unique) = arguments.key.unique() else {
            let counts: Vec<u32> = batches.iter().map(|batch| batch.payloads.count()).collect();
            let spans = SubmitSpans::begin(&mut batches);
            let ids = store.submit(batches, None).await?;
            spans.end(ids.iter().copied().map(Some));
            self.batches.extend(ids.into_iter().zip(counts));
            return Ok(());
        };
        let mut given = arguments.key.keys.iter();
        let mut keyed = Vec::with_capacity(batches.len());
        for batch in batches {
            keyed.push(match &arguments.key.key_field {
                Some(field) => {
                    let payloads = batch.payloads.clone();
                    let keys = payloads.items().map(|payload| key_in(payload, field));
                    KeyedBatch::with_keys(batch, keys, unique)?
                }
                None => KeyedBatch::with_keys(batch, given.by_ref(), unique)?,
            });
        }
        let spans = SubmitSpans::begin(&mut keyed);
        let stored = store.submit_keyed(keyed).await?;
        spans.end(stored.iter().map(|submitted| submitted.batch));
        for submitted in stored {
            self.batches
                .extend(submitted.batch.map(|batch| (batch, submitted.count)));
            self.jobs.extend(submitted.jobs);
        }
        Ok(())
    }
}

/// A payload's key or tag: a string, a number or a boolean in this field. A number keeps its text from the payload.
pub fn key_in(payload: &str, field: &str) -> Option<String> {
    item::scalar_text(item::field(payload, field)?)
}

/// The tags of each payload: strings or numbers in these fields.
fn tags_in(payloads: &PackedArray, fields: &[String]) -> Vec<BTreeMap<String, String>> {
    let of_payload = |payload: &str| {
        let tags = fields
            .iter()
            .filter_map(|field| Some((field.clone(), key_in(payload, field)?)));
        tags.collect()
    };
    payloads.items().map(of_payload).collect()
}

/// Refuses a field for keys or tags that none of the first payloads has, because its name is probably mistyped.
fn check_fields(arguments: &SubmitArguments, first: &PackedArray) -> anyhow::Result<()> {
    let options = arguments.key.key_field.iter().map(|field| ("--key-field", field));
    let tags = arguments.tag_fields.iter().map(|field| ("--tag-field", field));
    for (option, field) in options.chain(tags) {
        if first.items().all(|payload| key_in(payload, field).is_none()) {
            bail!(
                "{option} {field}: no payload has a text, a number or a boolean in this field (of the first {}); \
                 nothing is submitted",
                show_count(u64::from(first.count()))
            );
        }
    }
    Ok(())
}

/// Runs the command.
pub async fn submit(arguments: SubmitArguments) -> anyhow::Result<Exit> {
    check_name("kind", &arguments.kind)?;
    check_name("queue", &arguments.queue)?;
    if let Some(group) = &arguments.group {
        check_name("group", group)?;
    }
    arguments.key.check(&arguments.hooks)?;
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

/// The trace of the jobs. A wrong variable belongs to another program, and does not fail the submit.
fn traceparent(arguments: &SubmitArguments) -> Option<TraceParent> {
    if let Some(given) = arguments.traceparent {
        return given.0;
    }
    let text = variable(TRACEPARENT_VARIABLE).ok().flatten()?;
    let read = TraceParent::read(&text);
    read.inspect_err(|error| tracing::warn!(%error, "the environment's {TRACEPARENT_VARIABLE} is ignored"))
        .ok()
        .flatten()
}

fn options(arguments: &SubmitArguments) -> BatchOptions {
    let now = SystemClock.now();
    let after = |span| now.plus_ms(i64::try_from(milliseconds(span)).unwrap_or(i64::MAX));
    BatchOptions {
        priority: arguments.timing.priority,
        run_at: arguments.timing.delay.map(after),
        expires_at: arguments.timing.expires.map(after),
        timeout_ms: arguments.retry.timeout_ms(),
        complete_within_ms: arguments.timing.complete_within.map(milliseconds),
        cached_ms: arguments.cached.map(milliseconds),
        retry: arguments.retry.policy(),
        unique: None,
        group: arguments.group.clone(),
        hooks: arguments.hooks.hooks(),
        signal: None,
        prerequisites: Vec::new(),
        traceparent: traceparent(arguments),
    }
}

/// The limits of batches. A submit with hooks is one batch, so that the end of the batch is the end of all jobs.
fn batch_limits(arguments: &SubmitArguments) -> BatchLimits {
    match arguments.hooks.hooks() {
        Some(_) => BatchLimits {
            jobs_max: BATCH_JOBS_MAX,
            bytes_max: PORTION_BYTES_MAX,
        },
        None => BatchLimits {
            jobs_max: arguments.batch,
            ..BatchLimits::default()
        },
    }
}

/// The refusal of a second batch of a submit with hooks.
fn two_batches() -> anyhow::Error {
    anyhow::anyhow!(
        "--on-success and --on-failure watch one batch, of at most {} jobs and {} MiB, and the payloads are more: submit \
         fewer at a time, or use gristmill run; nothing is submitted",
        show_count(u64::from(BATCH_JOBS_MAX)),
        PORTION_BYTES_MAX >> 20
    )
}

fn new_batch(arguments: &SubmitArguments, options: &BatchOptions, payloads: PackedArray) -> NewBatch {
    let mut tags = arguments.tags.clone();
    if !arguments.tag_fields.is_empty() {
        tags.extend(pack_tags(&tags_in(&payloads, &arguments.tag_fields)));
    }
    let after = arguments.after.iter().cloned();
    let after = after.map(|after| after.on_failure(arguments.after_failure));
    NewBatch {
        queue: arguments.queue.clone(),
        options: options.clone(),
        after: after.collect(),
        tags,
        ..NewBatch::new(arguments.kind.as_str(), payloads)
    }
}

/// Submits all payloads of the command line, or none.
async fn submit_payloads(arguments: &SubmitArguments, options: BatchOptions) -> anyhow::Result<Submitted> {
    let mut batches = Vec::new();
    let mut cutter = PackedCutter::new(batch_limits(arguments));
    for (index, payload) in arguments.payloads.iter().enumerate() {
        let full = cutter.push(payload).map_err(|error| match error {
            PackedError::NotJson { reason, .. } => anyhow::anyhow!(
                "payload {} is not JSON: {reason}; a string needs its own quotes, as in '\"text\"'",
                index + 1
            ),
            other => other.into(),
        })?;
        batches.extend(full);
    }
    batches.extend(cutter.rest());
    if batches.len() > 1 && arguments.hooks.hooks().is_some() {
        return Err(two_batches());
    }
    let keys = arguments.key.keys.len();
    if keys > 0 && keys != arguments.payloads.len() {
        bail!(
            "{keys} keys for {} payloads: give --key once for each payload",
            arguments.payloads.len()
        );
    }
    if let Some(first) = batches.first() {
        check_fields(arguments, first)?;
    }
    let store = arguments.store.open_or_create().await?;
    let batches = batches
        .into_iter()
        .map(|payloads| new_batch(arguments, &options, payloads))
        .collect();
    let mut submitted = Submitted::default();
    let added = submitted.add(arguments, &store, batches).await;
    let jobs = arguments.payloads.len() as u64;
    added.map_err(|error| with_what_is_stored(error, 0, jobs, 0))?;
    close(&store, None).await;
    Ok(submitted)
}

/// Submits the items of a file in portions. Most files are one portion.
async fn submit_file(
    arguments: &SubmitArguments,
    path: &Path,
    options: BatchOptions,
) -> anyhow::Result<Submitted> {
    let input = Input::new(path, arguments.format)?.with_dialect(arguments.dialect)?;
    let mut portions = Portions::new(input.open(batch_limits(arguments))?, arguments.skip);
    let mut next = || tokio::task::block_in_place(|| portions.next());
    let mut portion = next().context("nothing is submitted")?;
    let Some(first) = portion.first() else {
        match arguments.skip {
            0 => bail!("{} has no items", input.name()),
            skipped => bail!(
                "{} has no items behind the first {}",
                input.name(),
                show_count(skipped)
            ),
        }
    };
    check_fields(arguments, &first.payloads)?;
    if arguments.hooks.hooks().is_some() && (portion.len() > 1 || !next()?.is_empty()) {
        return Err(two_batches());
    }
    let store: Arc<dyn Store> = arguments.store.open_or_create().await?;
    let mut submitted = Submitted::default();
    let mut hops = BatchStats::default();
    let (mut stored, mut under_way) = (0, 0);
    let result = async {
        while !portion.is_empty() {
            let mut batches = Vec::with_capacity(portion.len());
            for batch in std::mem::take(&mut portion) {
                let jobs = batch.payloads.count();
                hops.record("submit", jobs as usize, batch.end_reason);
                under_way += u64::from(jobs);
                submitted.rejected += batch.rejected.len() as u64;
                batches.push(NewBatch {
                    rejected: batch.rejected,
                    ..new_batch(arguments, &options, batch.payloads)
                });
            }
            submitted.add(arguments, &store, batches).await?;
            stored += std::mem::take(&mut under_way);
            portion = next()?;
        }
        anyhow::Ok(())
    }
    .await;
    close(&store, Some(hops)).await;
    result.map_err(|error| with_what_is_stored(error, stored, under_way, arguments.skip))?;
    Ok(submitted)
}

/// Adds to an error what the submit stored before it.
fn with_what_is_stored(error: anyhow::Error, stored: u64, under_way: u64, skipped: u64) -> anyhow::Error {
    let is_unknown = matches!(error.downcast_ref(), Some(StoreError::Unknown { .. }));
    error.context(left_behind(stored, under_way, skipped, is_unknown))
}

/// Closes a store. The jobs stay submitted even if closing fails.
async fn close(store: &Arc<dyn Store>, hops: Option<BatchStats>) {
    let recorded = match hops {
        Some(hops) => store.record(hops).await,
        None => Ok(()),
    };
    if let Err(error) = recorded.and(store.close().await) {
        tracing::warn!(%error, "the store could not be closed cleanly; the jobs stay submitted");
    }
}

fn tell(arguments: &SubmitArguments, submitted: &Submitted) -> anyhow::Result<()> {
    let jobs: u64 = submitted.batches.iter().map(|(_, count)| u64::from(*count)).sum();
    let first = submitted.batches.first().map_or(0, |(batch, _)| batch.0);
    let last = submitted.batches.last().map_or(0, |(batch, _)| batch.0);
    let duplicates = (submitted.jobs.len() as u64).saturating_sub(jobs);
    if arguments.json {
        let of_batch = |(batch, count): &(BatchId, u32)| json!({"batch": batch, "jobs": count});
        let ids: Vec<String> = submitted.ids().take(IDS_MAX).map(|job| job.to_string()).collect();
        let summary = json!({
            "jobs": jobs,
            "rejected": submitted.rejected,
            "duplicates": duplicates,
            "batches": submitted.batches.iter().map(of_batch).collect::<Vec<_>>(),
            "ids": ids,
        });
        return Ok(print_line(&summary.to_string())?);
    }
    match submitted.batches.as_slice() {
        _ if (1..=20).contains(&submitted.jobs.len()) => {
            for job in &submitted.jobs {
                print_line(&job.to_string())?;
            }
        }
        [] => {}
        // A few jobs are named, so that the user can ask for them.
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
    if duplicates > 0 {
        say!(
            "{}: another job stands for each",
            show_number_of(duplicates, "duplicate")
        );
    }
    if submitted.rejected > 0 {
        say!(
            "unreadable: {}; their jobs are dead: gristmill jobs --state dead --kind '{}'",
            show_number_of(submitted.rejected, "item"),
            arguments.kind
        );
    }
    Ok(())
}
