//! An ingestion into a knowledge base: two files on one volume.

use std::sync::Arc;

use gristmill_engine::{Engine, EngineSettings};
use gristmill_memory::extract::LocalExtractor;
use gristmill_memory::pipeline::{IngestEvent, IngestOptions, Ingestion, NewInput};
use gristmill_store_sqlite::Synchronous;

use crate::check::knowledge::{self, Texts};
use crate::check::{Fault, broken};
use crate::error::RecordError;
use crate::jobs;
use crate::note::{Note, Promises};
use crate::volume::Volume;

/// The number of sources. A separate program ingests each source.
const SOURCES: usize = 3;

/// The number of messages in a source.
const MESSAGES: usize = 12;

/// The number of concurrent extractions.
const CONCURRENCY: usize = 2;

/// The sources with their texts.
fn input() -> Vec<Texts> {
    let texts =
        |source: usize| (0..MESSAGES).map(move |message| format!("I saw {message} drums in town {source}."));
    (0..SOURCES)
        .map(|source| (format!("talk-{source}.txt"), texts(source).collect()))
        .collect()
}

/// A source as a transcript.
fn transcript((name, texts): &Texts) -> NewInput {
    let speakers = ["ADA KING", "BOB RAY"].iter().cycle();
    let turns: Vec<String> = texts
        .iter()
        .zip(speakers)
        .map(|(text, speaker)| format!("{speaker}: {text}\n"))
        .collect();
    NewInput::from_bytes(name.clone(), turns.join("\n").into_bytes())
}

pub(super) async fn record(volume: &Volume, synchronous: Synchronous) -> Result<(), RecordError> {
    let input = input();
    let mut messages = 0;
    for source in &input {
        messages += ingest(volume, synchronous, std::slice::from_ref(source), messages).await?;
    }
    let stored = knowledge::compare(&knowledge::open(volume, true)?, &input).await?;
    if stored == (SOURCES * MESSAGES) as u64 {
        Ok(())
    } else {
        Err(format!("only {stored} messages were ingested").into())
    }
}

/// Ingests sources like one program does, after `before` messages. Returns the number of new messages.
async fn ingest(
    volume: &Volume,
    synchronous: Synchronous,
    sources: &[Texts],
    before: u64,
) -> Result<u64, RecordError> {
    let knowledge = knowledge::open(volume, synchronous == Synchronous::Full)?;
    let settings = EngineSettings {
        housekeeping: false,
        ..EngineSettings::default()
    };
    let engine = Engine::new(Arc::new(jobs::open(volume, synchronous)?), settings).await?;
    let ingestion = Ingestion::new(
        Arc::new(knowledge),
        engine.clone(),
        Arc::new(LocalExtractor),
        CONCURRENCY,
        IngestOptions::default(),
    );
    let inputs: Vec<NewInput> = sources.iter().map(transcript).collect();
    let note = |event: &IngestEvent| {
        if let IngestEvent::Committed(progress) = event {
            volume.note(Note::Ingested(before + progress.messages));
        }
    };
    let ingested = ingestion.run(inputs, note).await?;
    engine.close().await?;
    Ok(ingested.progress.messages)
}

/// Checks an image. A `deep` check then ingests the whole input, and checks that each message is stored once.
pub(super) async fn check(volume: &Volume, promises: &Promises, deep: bool) -> Result<(), Fault> {
    let input = input();
    knowledge::check(volume, promises, &input).await?;
    if deep {
        ingest(volume, Synchronous::Full, &input, 0)
            .await
            .map_err(broken)?;
        let promises = Promises {
            messages: (SOURCES * MESSAGES) as u64,
            ..Promises::default()
        };
        knowledge::check(volume, &promises, &input).await?;
    }
    Ok(())
}
