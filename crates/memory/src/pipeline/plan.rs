//! What is to be done for a source.

use std::collections::VecDeque;

use gristmill_model::Timestamp;

use crate::error::MemoryError;
use crate::extract::{ChunkText, Extractor, known};
use crate::knowledge::Knowledge;
use crate::message::{Message, MessageOrdinal};
use crate::pipeline::{IngestOptions, NewInput};
use crate::source;
use crate::store::{KnowledgeStore, NewSource};

/// How a source begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beginning {
    /// It is new.
    New(NewSource),
    /// It has changed: the old one is deleted when the new one is complete, in the same transaction.
    Replace(NewSource),
    /// An earlier run committed so many of its messages.
    Resume {
        /// Its name.
        source: String,
        /// The position of the next message.
        position: u32,
    },
}

/// A message to be ingested.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// The message.
    pub message: Message,
    /// What is known of it without a model.
    pub known: Vec<Knowledge>,
    /// Its chunks, as they are to be extracted.
    pub chunks: Vec<ChunkText>,
}

/// The messages of a source that are not committed yet.
#[derive(Debug, Clone)]
pub struct Plan {
    source: String,
    beginning: Beginning,
    left: VecDeque<Planned>,
    /// The names that people may be asked for by.
    pub aliases: Vec<(String, String)>,
}

impl Plan {
    /// The plan for a source; `None` where it is complete and unchanged.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Invalid`] where it does not have its format, and what the store says.
    pub async fn new(
        store: &dyn KnowledgeStore,
        input: NewInput,
        options: &IngestOptions,
        extractor: &dyn Extractor,
        now: Timestamp,
    ) -> Result<Option<Plan>, MemoryError> {
        let new = NewSource {
            name: input.name.clone(),
            format: input.format.name().to_owned(),
            digest: crate::digest::of(&input.bytes),
            settings: format!("{} {}", options.read.describe(), extractor.identity()),
            zone_minutes: options.read.zone_minutes,
            ingested_at: now,
        };
        let beginning = match store.source(&input.name).await? {
            None => Beginning::New(new),
            Some(stored) if (&stored.digest, &stored.settings) != (&new.digest, &new.settings) => {
                Beginning::Replace(new)
            }
            Some(stored) if stored.complete && options.replace => Beginning::Replace(new),
            Some(stored) if stored.complete => return Ok(None),
            Some(stored) => Beginning::Resume {
                source: stored.name,
                position: stored.messages,
            },
        };
        let messages = source::read(&input.name, input.format, &input.bytes, &options.read)?;
        let done = match &beginning {
            Beginning::Resume { position, .. } => *position as usize,
            Beginning::New(_) | Beginning::Replace(_) => 0,
        };
        let people = messages
            .iter()
            .flat_map(|message| message.speaker.iter().chain(&message.recipients));
        let aliases = known::aliases(people.map(String::as_str));
        let left = messages
            .into_iter()
            .skip(done)
            .map(|message| planned(message, extractor));
        Ok(Some(Plan {
            source: input.name,
            beginning,
            left: left.collect(),
            aliases,
        }))
    }

    /// The source's name.
    pub fn source(&self) -> String {
        self.source.clone()
    }

    /// How the source begins.
    pub fn beginning(&self) -> Beginning {
        self.beginning.clone()
    }

    /// Whether the source is there already, and has changed.
    pub fn is_replacement(&self) -> bool {
        matches!(self.beginning, Beginning::Replace(_))
    }

    /// The keys of all chunks that are left.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let chunks = self.left.iter().flat_map(|planned| &planned.chunks);
        chunks.map(|chunk| chunk.key.as_str())
    }

    /// Takes the next message.
    pub fn take_next(&mut self) -> Option<Planned> {
        self.left.pop_front()
    }
}

fn planned(message: Message, extractor: &dyn Extractor) -> Planned {
    let chunks = message
        .text_chunks
        .iter()
        .map(|text| extractor.chunk(text, message.speaker.as_deref()));
    Planned {
        chunks: chunks.collect(),
        known: known::knowledge(&message),
        message,
    }
}

/// A chunk that failed in an earlier run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learning {
    /// The source's name.
    pub source: String,
    /// The message's position in it.
    pub position: u32,
    /// The chunk.
    pub chunk: u32,
    /// The chunk, as it is to be extracted.
    pub text: ChunkText,
}

/// The chunks that failed in earlier runs.
pub async fn retry_failed(
    store: &dyn KnowledgeStore,
    extractor: &dyn Extractor,
) -> Result<Vec<Learning>, MemoryError> {
    let failures = store.failures().await?;
    let ordinals: Vec<MessageOrdinal> = failures.iter().map(|failure| failure.message).collect();
    let messages = store.messages(ordinals).await?;
    let learnings = failures
        .into_iter()
        .zip(messages)
        .filter_map(|(failure, stored)| {
            let text = stored.message.text_chunks.get(failure.chunk as usize)?;
            Some(Learning {
                text: extractor.chunk(text, stored.message.speaker.as_deref()),
                source: failure.source,
                position: failure.position,
                chunk: failure.chunk,
            })
        });
    Ok(learnings.collect())
}
