//! The check of a knowledge base, and of the extraction jobs of its messages.

use gristmill_memory::{KnowledgeStore, SqliteKnowledge, SqliteKnowledgeOptions};
use gristmill_model::JobState;
use gristmill_store::{JobFilter, Store};
use gristmill_store_sqlite::Synchronous;

use crate::check::jobs::Found;
use crate::check::{Fault, broken, integrity};
use crate::jobs;
use crate::limits::ROWS_MAX;
use crate::note::Promises;
use crate::volume::Volume;

/// The file of the knowledge base.
pub const FILE: &str = "knowledge.db";

/// The name of a source, and the texts of its messages in order.
pub type Texts = (String, Vec<String>);

/// Opens the knowledge base of a volume.
pub fn open(volume: &Volume, sync: bool) -> Result<SqliteKnowledge, Fault> {
    let options = SqliteKnowledgeOptions { create: true, sync };
    SqliteKnowledge::open(volume.path(FILE), options).map_err(broken)
}

/// Opens both files of an image, and compares them with the input and the promises.
pub async fn check(volume: &Volume, promises: &Promises, input: &[Texts]) -> Result<(), Fault> {
    let store = jobs::open(volume, Synchronous::Full).map_err(broken)?;
    let knowledge = open(volume, true)?;
    integrity(volume, jobs::FILE)?;
    integrity(volume, FILE)?;
    Found::read(&store).await?;
    let messages = compare(&knowledge, input).await?;
    if messages < promises.messages {
        return Err(Fault::Lost(format!(
            "{} messages were ingested, but {messages} are stored",
            promises.messages
        )));
    }
    let completed = JobFilter {
        states: vec![JobState::Completed],
        ..JobFilter::default()
    };
    let extracted = store.counts(&completed).await.map_err(broken)?.completed;
    if extracted < messages {
        return Err(Fault::Lost(format!(
            "{messages} messages are stored, but only {extracted} extractions completed"
        )));
    }
    store.close().await.map_err(broken)
}

/// Checks that each source holds the first messages of its input, each of them once. Returns the number of messages in
/// all sources.
pub async fn compare(knowledge: &SqliteKnowledge, input: &[Texts]) -> Result<u64, Fault> {
    let mut messages = 0;
    for source in knowledge.sources().await.map_err(broken)? {
        let stored = knowledge
            .source_messages(&source.name, 0, ROWS_MAX)
            .await
            .map_err(broken)?;
        let stored: Vec<String> = stored.iter().map(|stored| stored.message.text()).collect();
        let given = input.iter().find(|(name, _)| *name == source.name);
        let given = given.map_or(&[][..], |(_, texts)| texts);
        if !given.starts_with(&stored) {
            return Err(Fault::Broken(format!("source {} holds {stored:?}", source.name)));
        }
        if source.complete && given.len() != stored.len() {
            return Err(Fault::Broken(format!(
                "source {} is marked complete, but its last messages are missing",
                source.name
            )));
        }
        messages += stored.len() as u64;
    }
    Ok(messages)
}
