//! `gristmill memory`: inspects knowledge bases, deletes from them, exports and imports.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use gristmill_engine::{Engine, EngineSettings};
use gristmill_memory::export::{ExportError, export_index};
use gristmill_memory::import::{ImportOptions, import_index};
use gristmill_memory::pipeline::erasure::forget_extractions;
use gristmill_memory::source::Content;
use gristmill_memory::{Change, KnowledgeStore, Memory, MemoryError};
use gristmill_model::{Clock, SystemClock};
use gristmill_store_sqlite::SqliteOptions;
use serde_json::json;

use super::extraction_jobs::ExtractionJobs;
use super::overwrite::overwrite_deleted;
use super::shown::plain;
use crate::arguments::memory::{
    MemoryArguments, MemoryCommand, MemoryDeleteArguments, MemoryExportArguments, MemoryImportArguments,
    MemoryListArguments, MemoryMoveArguments, MemorySourcesArguments,
};
use crate::exit::Exit;
use crate::output::table::{Align, Table};
use crate::output::target::refuse_database;
use crate::output::{OutputError, print_line};
use crate::span::{show_bytes, show_count, show_number_of};
use crate::store::location::StoreLocation;
use crate::store::open::{open_location, refuse_shown_password};

/// Runs the command.
pub async fn manage(arguments: MemoryArguments) -> anyhow::Result<Exit> {
    match arguments.command {
        MemoryCommand::Stats(stats) => show_stats(&stats).await,
        MemoryCommand::Sources(sources) => list_sources(&sources).await,
        MemoryCommand::Failures(failures) => list_failures(&failures).await,
        MemoryCommand::Delete(delete) => delete_sources(&delete).await,
        MemoryCommand::Move(moved) => move_source(&moved).await,
        MemoryCommand::Export(export) => write_export(&export).await,
        MemoryCommand::Import(import) => read_import(&import).await,
    }
}

async fn move_source(arguments: &MemoryMoveArguments) -> anyhow::Result<Exit> {
    let memory = arguments.knowledge.open().await?;
    let name = arguments.name.clone();
    let source = arguments.source.clone();
    let stored = memory.knowledge().source(&source).await?;
    let mut changes = Vec::new();
    if stored.is_some_and(|stored| stored.stamp.is_some()) {
        // The source is the file of its name from now on, or none. A new file at the old place is not to replace its knowledge.
        let stamp = Content::File(PathBuf::from(&name)).stamp_of_unread();
        let source = source.clone();
        changes.push(Change::Seen { source, stamp });
    }
    changes.push(Change::Move { source, name });
    memory.knowledge().apply(changes).await?;
    Ok(Exit::Done)
}

async fn show_stats(arguments: &MemoryListArguments) -> anyhow::Result<Exit> {
    let memory = arguments.knowledge.open().await?;
    let stats = memory.knowledge().stats().await?;
    let embedder = memory.knowledge().embedder().await?;
    let vectors = memory.knowledge().vector_counts().await?;
    if arguments.json {
        let mut all = serde_json::to_value(stats)?;
        all["vectors"] = match &embedder {
            Some(embedder) => json!({
                "model": embedder.model,
                "dimensions": embedder.dimensions,
                "terms": vectors.terms,
                "chunks": vectors.chunks,
            }),
            None => json!(null),
        };
        print_line(&all.to_string())?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&[("count of", Align::Left), ("number", Align::Right)]);
    for (what, count) in [
        ("sources", stats.sources),
        ("messages", stats.messages),
        ("entities", stats.entities),
        ("actions", stats.actions),
        ("topics", stats.topics),
        ("tags", stats.tags),
        ("distinct terms", stats.terms),
        ("term occurrences", stats.postings),
        ("aliases", stats.aliases),
        ("failed chunks", stats.failures),
    ] {
        table.row([what.to_owned(), show_count(count)]);
    }
    if let Some(embedder) = embedder {
        table.row([
            format!(
                "vectors of {} ({} dimensions)",
                embedder.model, embedder.dimensions
            ),
            show_count(vectors.terms + vectors.chunks),
        ]);
    }
    print_line(&format!(
        "{}\n\n{} on disk",
        table.text(),
        show_bytes(stats.bytes)
    ))?;
    Ok(Exit::Done)
}

async fn list_sources(arguments: &MemorySourcesArguments) -> anyhow::Result<Exit> {
    let arguments = if arguments.failed {
        return list_unread(&arguments.list).await;
    } else {
        &arguments.list
    };
    let memory = arguments.knowledge.open().await?;
    let sources = memory.knowledge().sources().await?;
    if arguments.json {
        for source in sources {
            print_line(&serde_json::to_string(&source)?)?;
        }
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&[
        ("source", Align::Left),
        ("format", Align::Left),
        ("messages", Align::Right),
        ("state", Align::Left),
        ("ingested", Align::Left),
    ]);
    for source in sources {
        table.row([
            source.name,
            source.format,
            show_count(u64::from(source.messages)),
            if source.complete { "complete" } else { "partial" }.to_owned(),
            source.ingested_at.to_string(),
        ]);
    }
    print_line(&table.text())?;
    Ok(Exit::Done)
}

/// Lists the sources, and messages of sources, that could not be read.
async fn list_unread(arguments: &MemoryListArguments) -> anyhow::Result<Exit> {
    let memory = arguments.knowledge.open().await?;
    match print_unread(&memory, arguments.json).await? {
        0 if !arguments.json => say!("gristmill: all sources and their messages could be read"),
        _ => {}
    }
    Ok(Exit::Done)
}

/// Prints the sources, and messages of sources, that could not be read. Returns their number.
async fn print_unread(memory: &Memory, json: bool) -> anyhow::Result<usize> {
    let sources = memory.knowledge().source_failures().await?;
    for failure in &sources {
        print_line(&if json {
            serde_json::to_string(failure)?
        } else {
            plain(&failure.error)
        })?;
    }
    let unread = memory.knowledge().unread(None).await?;
    for message in &unread {
        print_line(&if json {
            serde_json::to_string(message)?
        } else {
            plain(&message.error)
        })?;
    }
    Ok(sources.len() + unread.len())
}

async fn list_failures(arguments: &MemoryListArguments) -> anyhow::Result<Exit> {
    let memory = arguments.knowledge.open().await?;
    let unread = print_unread(&memory, arguments.json).await?;
    let failures = memory.knowledge().failures().await?;
    for failure in &failures {
        print_line(&if arguments.json {
            serde_json::to_string(failure)?
        } else {
            plain(&format!(
                "{}, message {}, chunk {}: {}",
                failure.source, failure.position, failure.chunk, failure.error
            ))
        })?;
    }
    if failures.is_empty() && unread == 0 && !arguments.json {
        say!("gristmill: no source, no message and no chunk failed");
    }
    Ok(Exit::Done)
}

async fn delete_sources(arguments: &MemoryDeleteArguments) -> anyhow::Result<Exit> {
    let memory = arguments.knowledge.open().await?;
    let mut changes = Vec::new();
    let failures = memory.knowledge().source_failures().await?;
    let now = SystemClock.now();
    for name in &arguments.sources {
        let source = name.clone();
        let change = if memory.knowledge().source(name).await?.is_some() {
            Change::Delete { source }
        } else if failures.iter().any(|failure| failure.source == *name) {
            // No part of it was ever read.
            Change::SourceFailure {
                source,
                error: None,
                place: None,
                at: now,
            }
        } else {
            say!("error: {}", MemoryError::SourceUnknown(source));
            return Ok(Exit::SomeFailed);
        };
        if !changes.contains(&change) {
            changes.push(change);
        }
    }
    let count = changes.len() as u64;
    let knowledge = &arguments.knowledge.knowledge;
    let jobs = ExtractionJobs::of(knowledge, arguments.store.as_ref())?;
    // If the file of jobs was removed, there is nothing to erase.
    let has_jobs = match &jobs.location {
        StoreLocation::File(path) => path.is_file(),
        StoreLocation::Postgres(_) => true,
    };
    if has_jobs {
        let Some(_lock) = jobs.try_lock().await? else {
            bail!("another process is ingesting into {knowledge}; wait for it");
        };
        let store = open_location(&jobs.location, SqliteOptions::default()).await?;
        let engine = Engine::new(store, EngineSettings::default()).await?;
        let sources: BTreeSet<String> = arguments.sources.iter().cloned().collect();
        let store = &**memory.knowledge();
        let forgotten = forget_extractions(store, &engine, jobs.name.as_deref(), &sources).await;
        engine.close().await?;
        forgotten?;
    }
    let applied = memory.knowledge().apply(changes).await?;
    drop(memory);
    for location in [Some(knowledge), has_jobs.then_some(&jobs.location)]
        .into_iter()
        .flatten()
    {
        if let StoreLocation::File(path) = location
            && !overwrite_deleted(path).with_context(|| format!("{} cannot be compacted", path.display()))?
        {
            say!(
                "gristmill: warning: other programs have {} open, so deleted texts are still in its free pages or its log; \
                 `gristmill backup` makes a copy without them",
                path.display()
            );
        }
    }
    print_line(&if arguments.json {
        json!({"sources": count, "refs": applied.refs_deleted}).to_string()
    } else {
        format!(
            "{} and {} of knowledge deleted",
            show_number_of(count, "source"),
            show_number_of(u64::from(applied.refs_deleted), "piece")
        )
    })?;
    Ok(Exit::Done)
}

async fn write_export(arguments: &MemoryExportArguments) -> anyhow::Result<Exit> {
    let memory = arguments.knowledge.open().await?;
    let store = &**memory.knowledge();
    let name = arguments.knowledge.knowledge.to_string();
    if arguments.output == Path::new("-") {
        export_to(store, &name, "stdout", &mut BufWriter::new(std::io::stdout())).await?;
        return Ok(Exit::Done);
    }
    let output = arguments.output.display().to_string();
    refuse_database(&arguments.output)?;
    // A reader of the file finds a complete export, or the previous one.
    let mut partial = arguments.output.as_os_str().to_owned();
    partial.push(".partial");
    let created = File::create(&partial).map_err(|reason| OutputError::Create {
        name: output.clone(),
        reason,
    })?;
    let written = async {
        let exported = export_to(store, &name, &output, &mut BufWriter::new(&created)).await?;
        let moved = created
            .sync_all()
            .and_then(|()| std::fs::rename(&partial, &arguments.output));
        moved.map_err(|reason| OutputError::of(output.clone(), reason))?;
        anyhow::Ok(exported)
    }
    .await;
    let exported = match written {
        Ok(exported) => exported,
        Err(error) => {
            // Half an export is useless.
            let _ = std::fs::remove_file(&partial);
            return Err(error);
        }
    };
    say!(
        "gristmill: {} of {} and {} of knowledge written to {output}",
        show_number_of(exported.messages, "message"),
        show_number_of(exported.sources, "source"),
        show_number_of(exported.refs, "piece")
    );
    Ok(Exit::Done)
}

async fn export_to(
    store: &dyn KnowledgeStore,
    name: &str,
    output: &str,
    to: &mut (dyn Write + Send),
) -> anyhow::Result<gristmill_memory::export::Exported> {
    match export_index(store, name, to).await {
        Ok(exported) => Ok(exported),
        Err(ExportError::Write(reason)) => Err(OutputError::of(output.to_owned(), reason).into()),
        Err(ExportError::Memory(error)) => Err(error.into()),
    }
}

async fn read_import(arguments: &MemoryImportArguments) -> anyhow::Result<Exit> {
    // A missing file must not create a knowledge base.
    std::fs::metadata(&arguments.index).map_err(|error| MemoryError::File {
        path: arguments.index.clone(),
        reason: error.to_string(),
    })?;
    refuse_shown_password(&arguments.into)?;
    let memory = Memory::open_place(&arguments.into.place(), true).await?;
    let options = ImportOptions {
        zone_minutes: arguments.zone,
        imported_at: SystemClock.now(),
    };
    let imported = import_index(&**memory.knowledge(), &arguments.index, &options).await?;
    if arguments.json {
        let told = json!({
            "sources": imported.sources,
            "messages": imported.applied.messages,
            "refs": imported.applied.refs,
            "recorded_terms": imported.recorded_terms,
            "recorded_postings": imported.recorded_postings,
            "zone_minutes": imported.zone_minutes,
        });
        print_line(&told.to_string())?;
        return Ok(Exit::Done);
    }
    print_line(&format!(
        "{} of {} and {} of knowledge imported into {}",
        show_number_of(u64::from(imported.applied.messages), "message"),
        show_number_of(imported.sources as u64, "source"),
        show_number_of(u64::from(imported.applied.refs), "piece"),
        arguments.into
    ))?;
    Ok(Exit::Done)
}
