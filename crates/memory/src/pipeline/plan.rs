//! What is to be done for a source.

use std::collections::BTreeSet;
use std::sync::Arc;

use gristmill_model::Timestamp;

use crate::error::MemoryError;
use crate::extract::{ChunkText, Extractor, known};
use crate::knowledge::Knowledge;
use crate::limits::SURVEY_MESSAGES_MAX;
use crate::message::{Message, MessageOrdinal};
use crate::pipeline::input::Followed;
use crate::pipeline::source_reader::SourceReader;
use crate::pipeline::stream::{FOLLOWED_DIGEST, Stream, Streamed};
use crate::pipeline::{IngestOptions, NewInput};
use crate::source::{Format, ReadOptions};
use crate::store::{KnowledgeStore, NewSource, Source, blocking};

/// How a source begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beginning {
    /// It is new.
    New(NewSource),
    /// It has changed: the old one is deleted when the new one is complete, in the same transaction.
    Replace(NewSource),
    /// It has grown: what it had is unchanged, and only the rest is new.
    Grow {
        /// What it is now.
        source: NewSource,
        /// The position of the first new message.
        position: u32,
    },
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
    /// The knowledge that needs no model.
    pub known: Vec<Knowledge>,
    /// Its chunks, as they are to be extracted.
    pub chunks: Vec<ChunkText>,
}

/// The messages of a source that are not committed yet.
#[derive(Debug)]
pub struct Plan {
    source: String,
    beginning: Beginning,
    left: Left,
    extractor: Arc<dyn Extractor>,
    /// Chunks of those messages, and how many of them need no call; zero for a stream, whose length is unknown.
    pub chunks: (usize, usize),
    /// The names that people may be asked for by.
    aliases: Vec<(String, String)>,
}

/// Where the messages come from.
#[derive(Debug)]
enum Left {
    Read(SourceReader),
    Followed(Stream),
}

/// The next item of a plan.
#[derive(Debug)]
pub enum Next {
    /// The next message.
    Message(Planned),
    /// Nothing before [`Plan::arrived`] has ended.
    Later,
    /// The source has no more.
    End,
}

/// What is to be known of a source before its first message is ingested.
#[derive(Debug, Default)]
struct Survey {
    people: BTreeSet<String>,
    chunks: usize,
    known: usize,
}

impl Plan {
    /// The plan for a source; `None` where it is complete and unchanged. `is_known` says by a chunk's key whether its
    /// extraction is known.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Invalid`] where it does not have its format, and what the store says.
    pub async fn new(
        store: &dyn KnowledgeStore,
        input: NewInput,
        options: &IngestOptions,
        extractor: Arc<dyn Extractor>,
        now: Timestamp,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<Option<Plan>, MemoryError> {
        let content = input.content.clone();
        let new = NewSource {
            name: input.name.clone(),
            format: input.format.name().to_owned(),
            digest: blocking(move || content.digest()).await?,
            settings: settings(options, &*extractor),
            zone_minutes: options.read.zone_minutes,
            ingested_at: now,
        };
        let beginning = match store.source(&input.name).await? {
            None => Beginning::New(new),
            Some(stored) if !options.replace && has_grown(store, &stored, &new, &input, options).await? => {
                Beginning::Grow {
                    source: new,
                    position: stored.messages,
                }
            }
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
        let done = match &beginning {
            Beginning::Resume { position, .. } | Beginning::Grow { position, .. } => *position as usize,
            Beginning::New(_) | Beginning::Replace(_) => 0,
        };
        let mut left = SourceReader::open(&input, &options.read).await?;
        let survey = survey(&left, &input, &options.read, done, &*extractor, is_known).await?;
        // Those that are committed.
        left.skip(done).await?;
        Ok(Some(Plan {
            source: input.name,
            beginning,
            left: Left::Read(left),
            extractor,
            chunks: (survey.chunks, survey.known),
            aliases: known::aliases(survey.people.iter().map(String::as_str)),
        }))
    }

    /// The plan for lines that are still to come. They are added to the source, if there is one.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Invalid`] where the source is to be replaced, and what the store says.
    pub async fn follow(
        store: &dyn KnowledgeStore,
        followed: Followed,
        options: &IngestOptions,
        extractor: Arc<dyn Extractor>,
        now: Timestamp,
    ) -> Result<Plan, MemoryError> {
        let source = followed.name.clone();
        let new = NewSource {
            name: source.clone(),
            format: Format::JsonLines.name().to_owned(),
            digest: FOLLOWED_DIGEST.to_owned(),
            settings: settings(options, &*extractor),
            zone_minutes: options.read.zone_minutes,
            ingested_at: now,
        };
        let stored = store.source(&source).await?;
        if stored.is_some() && options.replace {
            return Err(MemoryError::invalid(
                source,
                "nobody knows its end yet, so it cannot be replaced; delete it first, or omit --replace",
            ));
        }
        let position = stored.as_ref().map_or(0, |stored| stored.messages);
        let beginning = match stored {
            None => Beginning::New(new),
            Some(stored) if stored.complete => Beginning::Grow {
                source: new,
                position,
            },
            Some(stored) => Beginning::Resume {
                source: stored.name,
                position,
            },
        };
        Ok(Plan {
            left: Left::Followed(Stream::start(followed, position, &options.read)?),
            source,
            beginning,
            extractor,
            chunks: (0, 0),
            aliases: Vec::new(),
        })
    }

    /// Whether the source is still written.
    pub fn is_followed(&self) -> bool {
        matches!(self.left, Left::Followed(_))
    }

    /// The names that people may be asked for by, once the source has ended.
    pub fn aliases(&mut self) -> Vec<(String, String)> {
        match &self.left {
            Left::Read(_) => std::mem::take(&mut self.aliases),
            Left::Followed(stream) => known::aliases(stream.people()),
        }
    }

    /// Waits for the next message of a source that is still written. For ever, where the source is there.
    pub async fn arrived(&mut self, store: &dyn KnowledgeStore) -> Result<(), MemoryError> {
        match &mut self.left {
            Left::Read(_) => std::future::pending().await,
            Left::Followed(stream) => stream.arrived(store).await,
        }
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

    /// Takes the next message.
    ///
    /// # Errors
    ///
    /// That it cannot be read: the file has changed since it was looked through, or a line of a stream is no message.
    pub async fn take_next(&mut self) -> Result<Next, MemoryError> {
        let message = match &mut self.left {
            Left::Read(messages) => messages.next().await?,
            Left::Followed(stream) => match stream.take_next()? {
                Streamed::Message(message) => Some(message),
                Streamed::Later => return Ok(Next::Later),
                Streamed::End => None,
            },
        };
        Ok(match message {
            Some(message) => Next::Message(planned(message, &*self.extractor)),
            None => Next::End,
        })
    }
}

/// How a source is read and extracted: with other settings, it is another one.
fn settings(options: &IngestOptions, extractor: &dyn Extractor) -> String {
    format!("{} {}", options.read.describe(), extractor.identity())
}

/// The [identity](Extractor::identity) of the extractor in a source's settings.
pub(crate) fn identity_of(settings: &str) -> Option<&str> {
    let (_, from_duration) = settings.split_once(" duration=")?;
    Some(from_duration.split_once(' ')?.1)
}

/// Whether a complete source has other bytes than before, and begins with all messages that it had.
async fn has_grown(
    store: &dyn KnowledgeStore,
    stored: &Source,
    new: &NewSource,
    input: &NewInput,
    options: &IngestOptions,
) -> Result<bool, MemoryError> {
    let is_changed =
        stored.digest != new.digest && stored.settings == new.settings && stored.format == new.format;
    if !is_changed || !stored.complete || stored.messages == 0 {
        return Ok(false);
    }
    let mut messages = SourceReader::open(input, &options.read).await?;
    let mut position = 0;
    while position < stored.messages {
        let known = store
            .source_messages(&stored.name, position, SURVEY_MESSAGES_MAX as u32)
            .await?;
        if known.is_empty() {
            return Ok(false);
        }
        for known in known {
            match messages.next().await? {
                Some(message) if message == known.message => position += 1,
                _ => return Ok(false),
            }
        }
    }
    Ok(true)
}

/// Looks through the messages of a source, of which the first `done` are committed. Those that are read one by one are
/// read once more for it, so that none is held.
async fn survey(
    messages: &SourceReader,
    input: &NewInput,
    options: &ReadOptions,
    done: usize,
    extractor: &dyn Extractor,
    is_known: impl Fn(&str) -> bool,
) -> Result<Survey, MemoryError> {
    let mut survey = Survey::default();
    let mut look_at = |position: usize, message: &Message| {
        for person in message.speaker.iter().chain(&message.recipients) {
            if !survey.people.contains(person) {
                survey.people.insert(person.clone());
            }
        }
        if position >= done {
            for chunk in chunks(message, extractor) {
                survey.chunks += 1;
                survey.known += usize::from(is_known(&chunk.key));
            }
        }
    };
    match messages.whole() {
        Some(messages) => {
            for (position, message) in messages.iter().enumerate() {
                look_at(position, message);
                if position % SURVEY_MESSAGES_MAX == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }
        None => {
            let mut messages = SourceReader::open(input, options).await?;
            let mut position = 0;
            while let Some(message) = messages.next().await? {
                look_at(position, &message);
                position += 1;
            }
        }
    }
    Ok(survey)
}

fn chunks(message: &Message, extractor: &dyn Extractor) -> Vec<ChunkText> {
    let speaker = message.speaker.as_deref();
    let texts = message.text_chunks.iter();
    texts.map(|text| extractor.chunk(text, speaker)).collect()
}

fn planned(message: Message, extractor: &dyn Extractor) -> Planned {
    Planned {
        chunks: chunks(&message, extractor),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::LocalExtractor;

    #[test]
    fn settings_tell_the_extractor() {
        for duration_ms in [None, Some(60_000)] {
            let options = IngestOptions {
                read: ReadOptions {
                    duration_ms,
                    ..ReadOptions::default()
                },
                ..IngestOptions::default()
            };
            let settings = settings(&options, &LocalExtractor);
            assert_eq!(identity_of(&settings), Some(LocalExtractor.identity().as_str()));
        }
        assert_eq!(identity_of("imported"), None);
    }
}
