//! `gristmill ingest`: sources become a knowledge base.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use clap::ValueEnum;
use gristmill_memory::pipeline::{
    IngestError, IngestEvent, IngestOptions, IngestStopper, Ingested, Ingestion, OnFailure, Progress as Done,
};
use gristmill_memory::service::Limiter;
use gristmill_memory::source::{Format, ReadOptions, moment, recording};
use gristmill_memory::{Memory, MemoryError};
use gristmill_store_sqlite::SqliteOptions;
use serde_json::json;
use tokio::time::Instant;

use super::dry_run::dry_run;
use super::events::{Events, progress_json};
use super::extraction_jobs::ExtractionJobs;
use super::ingest_progress::{IngestSnapshot, Prices, costs};
use super::shown::plain;
use super::sources::{self, PassedOver, Source};
use crate::arguments::memory::{IngestArguments, OnFailureChoice};
use crate::arguments::model::EmbedderChoice;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::progress::{Progress, show_rate};
use crate::output::{OutputError, print_line};
use crate::span::{milliseconds, show_count, show_number_of};
use crate::store::location::StoreLocation;
use crate::store::open::{engine_over, open_location, refuse_shown_password};

/// The number of failures to show at the end.
const FAILURES_SHOWN: usize = 5;

/// Runs the command.
pub async fn ingest(arguments: IngestArguments) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen()?;
    let options = options(&arguments)?;
    // All errors of the arguments appear before anything is created.
    let found = tokio::select! {
        found = sources::find(&arguments.sources, arguments.format, arguments.name.as_deref()) => found?,
        exit = interrupt.wait() => return Ok(exit),
    };
    if arguments.dry_run {
        return tokio::select! {
            seen = dry_run(found, options.read, arguments.json) => seen,
            exit = interrupt.wait() => Ok(exit),
        };
    }
    let (mut inputs, passed_over) = (found.sources, found.passed_over);
    if !arguments.quiet {
        tell_passed_over(&passed_over);
    }
    let embedder = arguments.embedder.open(&arguments.service)?;
    let extracting = tokio::select! {
        found = arguments.extracting() => found?,
        exit = interrupt.wait() => return Ok(exit),
    };
    let events = arguments
        .on_batch_committed
        .as_deref()
        .map(Events::open)
        .transpose()?;
    refuse_shown_password(&arguments.into)?;
    let memory = Memory::open_place(&arguments.into.place(), true)
        .await?
        .with_embedder(embedder);
    let jobs = ExtractionJobs::of(&arguments.into, arguments.store.as_ref())?;
    let Some(lock) = jobs.try_lock().await? else {
        bail!(
            "another process is already ingesting into {}; wait for it",
            arguments.into
        );
    };
    if extracting.is_fallback && !arguments.quiet {
        say!(
            "gristmill: no model is set, so the rules of --extractor local read the texts: fast and free, but weaker \
             than a model (--model, with a key in OPENAI_API_KEY, or --base-url names one)"
        );
    }
    if arguments.retry_failed {
        sources::add_failed(&memory, &mut inputs, arguments.format).await?;
    }
    let store = open_location(&jobs.location, SqliteOptions::default()).await?;
    let engine = engine_over(store, &arguments.lease).await?;
    let begun_at = Instant::now();
    let mut ingestion = memory.ingestion(
        engine.clone(),
        extracting.extractor,
        extracting.concurrency,
        options,
    );
    if let Some(name) = jobs.name {
        ingestion = ingestion.with_name(name);
    }
    if arguments.calls_elsewhere {
        ingestion = ingestion.with_calls_elsewhere();
        tell_who_extracts(&arguments, &jobs.location);
    }
    let ended = tokio::select! {
        ended = run(&arguments, ingestion, inputs, events, extracting.limiter, interrupt) => Some(ended),
        () = lock.lost() => None,
    };
    engine.close().await?;
    let Some(ended) = ended else {
        bail!(
            "another process began to ingest into {} while the database was unreachable; commits are not lost",
            arguments.into
        );
    };
    if arguments.prune_missing && ended.result.is_ok() {
        let pruned = sources::prune_missing(&memory, &arguments.sources).await?;
        if pruned > 0 && !arguments.quiet {
            say!(
                "gristmill: {} deleted, because the files are gone",
                show_number_of(pruned, "source")
            );
        }
    }
    tell(&arguments, &memory, &ended, begun_at.elapsed().as_secs_f64()).await?;
    ended.exit()
}

fn tell_who_extracts(arguments: &IngestArguments, jobs: &StoreLocation) {
    if let (false, Some(extractor)) = (arguments.quiet, arguments.extractor) {
        let extractor = extractor.to_possible_value();
        let name = extractor.as_ref().map_or("", |value| value.get_name());
        say!(
            "gristmill: the texts are read elsewhere, by `gristmill worker --extractor {name} --store {jobs}`, or agents of \
             a server on that store"
        );
    }
}

/// The end of an ingestion.
struct Ended {
    result: Result<Ingested, IngestError>,
    /// The committed progress, regardless of the end.
    done: Done,
    /// The reader of the events is gone, or they cannot be written.
    events: Option<OutputError>,
    /// The sources that cannot be read, with their errors.
    bad_sources: Vec<(String, String)>,
    /// The errors of messages that cannot be read.
    unread: Vec<String>,
    /// The sources without a text, with what they were read as.
    without_text: Vec<(String, Format)>,
    interrupted: Option<Exit>,
}

impl Ended {
    fn exit(self) -> anyhow::Result<Exit> {
        if let Some(error) = self.events {
            return Err(error.into());
        }
        match (self.result, self.interrupted) {
            (Ok(_), _) if self.done.failures + self.done.unread > 0 || !self.bad_sources.is_empty() => {
                Ok(Exit::SomeFailed)
            }
            (Ok(_), _) => Ok(Exit::Done),
            (Err(IngestError::Stopped), Some(exit)) => Ok(exit),
            (Err(error), _) => Err(full_disk(error)),
        }
    }
}

/// Adds the remedy to the error of a full disk.
fn full_disk(error: IngestError) -> anyhow::Error {
    let text = error.to_string();
    let is_full = text.contains("disk is full") || text.contains("disk I/O error");
    if is_full {
        anyhow::anyhow!(
            "{text}; what was committed is kept: free some space and run the same command again, and it goes on where it \
             stopped"
        )
    } else {
        error.into()
    }
}

async fn run(
    arguments: &IngestArguments,
    ingestion: Ingestion,
    inputs: Vec<Source>,
    mut events: Option<Events>,
    limiter: Option<Limiter>,
    interrupt: Interrupt,
) -> Ended {
    let stopper = ingestion.stopper();
    let done = Arc::new(Mutex::new(Done::default()));
    let mut events_error = None;
    let mut bad_sources = Vec::new();
    let (mut unread, mut without_text) = (Vec::new(), Vec::new());
    let prices = prices(arguments);
    let embeds = arguments.embedder.embedder != EmbedderChoice::None;
    let look = {
        let done = done.clone();
        move || IngestSnapshot {
            progress: *done.lock().unwrap_or_else(PoisonError::into_inner),
            embeds,
            prices,
            pause: limiter.as_ref().and_then(Limiter::pause),
        }
    };
    let on_event = |event: &IngestEvent| {
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            IngestEvent::Committed(progress) => *done = *progress,
            IngestEvent::Planned { chunks, .. } => done.chunks_total += *chunks as u64,
            IngestEvent::Failed { source, error } => bad_sources.push((source.clone(), error.clone())),
            IngestEvent::Unread { errors, .. } => {
                let room = FAILURES_SHOWN.saturating_sub(unread.len());
                unread.extend(errors.iter().take(room).cloned());
            }
            IngestEvent::WithoutText { source, format } => without_text.push((source.clone(), *format)),
            IngestEvent::Skipped { .. } | IngestEvent::Moved { .. } => {}
        }
        if events_error.is_none()
            && let Some(events) = &mut events
            && let Err(error) = events.write(event)
        {
            events_error = Some(error);
            stopper.stop();
        }
    };
    let progress = Progress::new(arguments.quiet, events_on_stdout(arguments));
    let result = tokio::select! {
        result = ingestion.run(inputs, on_event) => result,
        () = progress.show(look) => Err(IngestError::Stopped),
        () = ask_to_stop(interrupt.clone(), ingestion.stopper(), arguments.quiet) => Err(IngestError::Stopped),
    };
    let mut done = *done.lock().unwrap_or_else(PoisonError::into_inner);
    if let Ok(ingested) = &result {
        done = ingested.progress;
    }
    Ended {
        result,
        done,
        events: events_error,
        bad_sources,
        unread,
        without_text,
        interrupted: interrupt.asked(),
    }
}

/// Stops the ingestion when the program is asked to end, and waits for its end.
async fn ask_to_stop(mut interrupt: Interrupt, stopper: IngestStopper, quiet: bool) {
    interrupt.wait().await;
    if !quiet {
        say!(
            "\ngristmill: committing results; press Ctrl-C again to exit immediately (commits are not lost)"
        );
    }
    stopper.stop();
    std::future::pending().await
}

fn events_on_stdout(arguments: &IngestArguments) -> bool {
    arguments.on_batch_committed.as_deref() == Some(Path::new("-"))
}

fn prices(arguments: &IngestArguments) -> Option<Prices> {
    let (input, output) = arguments.input_price.zip(arguments.output_price)?;
    Some(Prices { input, output })
}

fn options(arguments: &IngestArguments) -> anyhow::Result<IngestOptions> {
    let pattern = arguments.recorded_at.as_ref().filter(|text| text.contains('%'));
    if let Some(pattern) = pattern.filter(|pattern| !recording::is_pattern(pattern)) {
        bail!(
            "--recorded-at {pattern}: not a pattern of times in the names of files, such as %d.%m.%Y or %Y%m%d_%H%M%S"
        );
    }
    let recorded_at = match &arguments.recorded_at {
        None => None,
        Some(_) if pattern.is_some() => None,
        Some(text) => Some(moment::parse(text, arguments.zone).with_context(|| {
            format!("--recorded-at {text}: not a time such as 2023-05-01T09:30:00 or 2023-05-01")
        })?),
    };
    Ok(IngestOptions {
        read: ReadOptions {
            chunk_characters: arguments.chunk_characters as usize,
            zone_minutes: arguments
                .zone
                .or(recorded_at.and_then(|moment| moment.zone_minutes)),
            recorded_at: recorded_at.map(|moment| moment.at),
            recorded_pattern: pattern.cloned(),
            duration_ms: arguments
                .duration
                .map(|span| i64::try_from(milliseconds(span)).unwrap_or(i64::MAX)),
        },
        on_failure: match arguments.on_failure {
            OnFailureChoice::Skip => OnFailure::Skip,
            OnFailureChoice::Stop => OnFailure::Stop,
        },
        retry_failed: arguments.retry_failed,
        replace: arguments.replace,
        replace_vectors: arguments.replace_vectors,
    })
}

/// Prints the summary and the failures.
async fn tell(
    arguments: &IngestArguments,
    memory: &Memory,
    ended: &Ended,
    seconds: f64,
) -> Result<(), anyhow::Error> {
    if ended.events.is_some() {
        return Ok(());
    }
    let ingested = ended.result.as_ref().ok();
    for (_, error) in ended.bad_sources.iter().take(FAILURES_SHOWN) {
        say!("error: {}", plain(error));
    }
    for error in &ended.unread {
        say!("error: {}", plain(error));
    }
    let shown = ended.bad_sources.len().min(FAILURES_SHOWN) + ended.unread.len();
    let failed = ended.bad_sources.len() as u64 + ended.done.unread;
    if failed > shown as u64 {
        say!("error: and {} more", show_count(failed - shown as u64));
    }
    if failed > 0 {
        say!(
            "list what cannot be read: gristmill memory sources {} --failed; then retry: gristmill ingest --retry-failed --into {}",
            arguments.into,
            arguments.into
        );
    }
    if !arguments.quiet {
        tell_without_text(&ended.without_text);
    }
    if arguments.json {
        let mut summary = progress_json(&ended.done);
        summary["complete"] = json!(ingested.is_some());
        summary["seconds"] = json!((seconds * 1_000.0).round() / 1_000.0);
        if let Some(ingested) = ingested {
            summary["sources_skipped"] = json!(ingested.sources_skipped);
            summary["sources_replaced"] = json!(ingested.sources_replaced);
            summary["sources_failed"] = json!(ingested.sources_failed);
            summary["vectors"] = json!(ingested.vectors);
        }
        if events_on_stdout(arguments) {
            say!("{summary}")
        } else {
            print_line(&summary.to_string())?
        }
        return Ok(());
    }
    let is_told_by_its_error = ingested.is_none() && ended.done.messages == 0 && ended.interrupted.is_none();
    if arguments.quiet || is_told_by_its_error {
        return Ok(());
    }
    say!("gristmill: {}", summary(arguments, ended, seconds));
    if ended.done.failures > 0 {
        tell_failures(memory, &arguments.into.to_string()).await?;
    }
    if ended.interrupted.is_some() && ingested.is_none() {
        say!("run the same command again to resume");
    }
    Ok(())
}

/// Names the files of folders that are no sources.
fn tell_passed_over(files: &[PassedOver]) {
    for PassedOver { path, reason } in files.iter().take(FAILURES_SHOWN) {
        say!(
            "gristmill: passed over: {}: {reason}",
            plain(&path.display().to_string())
        );
    }
    if files.len() > FAILURES_SHOWN {
        say!(
            "gristmill: and {} more files; list them: gristmill ingest --dry-run FOLDER",
            show_count((files.len() - FAILURES_SHOWN) as u64)
        );
    }
}

/// Names the sources without a text, and the remedy.
fn tell_without_text(sources: &[(String, Format)]) {
    for (source, format) in sources.iter().take(FAILURES_SHOWN) {
        say!(
            "gristmill: {} has no text, read as {}; if it is another format, name it with --format and --replace",
            plain(source),
            format.name()
        );
    }
    if sources.len() > FAILURES_SHOWN {
        say!(
            "gristmill: and {} more sources have no text",
            show_count((sources.len() - FAILURES_SHOWN) as u64)
        );
    }
}

fn summary(arguments: &IngestArguments, ended: &Ended, seconds: f64) -> String {
    let done = &ended.done;
    let mut parts = vec![format!(
        "{} and {} of knowledge added to {}",
        show_number_of(done.messages, "message"),
        show_number_of(done.refs, "piece"),
        arguments.into
    )];
    if let Ok(ingested) = &ended.result {
        if done.messages == 0 && done.chunks == 0 && ingested.sources_skipped > 0 {
            parts = vec![format!(
                "nothing is new: {} unchanged in {}",
                show_number_of(ingested.sources_skipped, "source"),
                arguments.into
            )];
        } else if done.messages == 0 && done.chunks == 0 && ended.bad_sources.is_empty() {
            parts = vec![format!(
                "nothing was added to {}: the sources have no text (a heading alone is none)",
                arguments.into
            )];
        } else if ingested.sources_skipped > 0 {
            parts.push(format!(
                "{} unchanged",
                show_number_of(ingested.sources_skipped, "source")
            ));
        }
        if ingested.sources_replaced > 0 {
            parts.push(format!("{} replaced", show_count(ingested.sources_replaced)));
        }
        if ingested.vectors > 0 {
            parts.push(format!("{} made", show_number_of(ingested.vectors, "vector")));
        }
    }
    if !ended.bad_sources.is_empty() {
        parts.push(format!(
            "unreadable: {}",
            show_number_of(ended.bad_sources.len() as u64, "source")
        ));
    }
    if done.unread > 0 {
        parts.push(format!("unreadable: {}", show_number_of(done.unread, "message")));
    }
    if done.failures > 0 {
        parts.push(format!("{} failed", show_number_of(done.failures, "chunk")));
    }
    if done.chunks > 0 && seconds > 0.0 {
        parts.push(format!("{} chunks/s", show_rate(done.chunks as f64 / seconds)));
    }
    parts.extend(costs(done, prices(arguments)));
    parts.join(", ")
}

async fn tell_failures(memory: &Memory, place: &str) -> Result<(), MemoryError> {
    let failures = memory.knowledge().failures().await?;
    for failure in failures.iter().take(FAILURES_SHOWN) {
        say!(
            "  {}, message {}: {}",
            failure.source,
            failure.position,
            failure.error
        );
    }
    if failures.len() > FAILURES_SHOWN {
        say!(
            "  and {} more",
            show_count((failures.len() - FAILURES_SHOWN) as u64)
        );
    }
    say!("list them all: gristmill memory failures {place}");
    say!("retry them: gristmill ingest --retry-failed --into {place}");
    Ok(())
}
