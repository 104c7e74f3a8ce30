//! The plan for one source: which messages are to be ingested.

use std::collections::BTreeSet;
use std::sync::Arc;

use gristmill_model::Timestamp;

use crate::error::MemoryError;
use crate::extract::{ChunkText, Extractor, known};
use crate::knowledge::Knowledge;
use crate::limits::SURVEY_MESSAGES_MAX;
use crate::message::{Message, MessageOrdinal};
use crate::pipeline::assembly::Ending;
use crate::pipeline::input::Followed;
use crate::pipeline::source_reader::SourceReader;
use crate::pipeline::stream::{FOLLOWED_DIGEST, Stream, Streamed};
use crate::pipeline::unread::UnreadMessages;
use crate::pipeline::{IngestOptions, NewInput, OnFailure};
use crate::source::{Format, ReadOptions};
use crate::store::{Change, KnowledgeStore, NewSource, Source, blocking};

/// The first change that the plan makes to the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beginning {
    /// Adds a new source.
    New(NewSource),
    /// Replaces a changed source. The old one is deleted when the new one is complete, in the same transaction.
    Replace(NewSource),
    /// Appends to a source that has grown. Its earlier messages are unchanged.
    Grow {
        /// The source as it is now.
        source: NewSource,
        /// The position of the first new message.
        position: u32,
    },
    /// Continues a source of which an earlier run committed some messages.
    Resume {
        /// The name of the source.
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
    /// The chunks that are to be extracted.
    pub chunks: Vec<ChunkText>,
}

/// The messages of a source that are not committed yet.
#[derive(Debug)]
pub struct Plan {
    source: String,
    beginning: Beginning,
    left: Left,
    extractor: Arc<dyn Extractor>,
    /// Number of chunks of those messages, and number of chunks that need no call; both are zero for a stream, whose
    /// length is unknown.
    pub chunks: (usize, usize),
    has_text: bool,
    ending: Ending,
}

/// The plan for a source.
#[derive(Debug)]
pub enum Planning {
    /// Messages are to be ingested.
    Ingest(Box<Plan>),
    /// The source is complete and unchanged. These messages could not be read again, if that was to be retried. The change
    /// notes the stamp of its file.
    Unchanged(UnreadMessages, Option<Change>),
}

/// The source of the messages.
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
    /// A message of a stream cannot be read.
    Unread(MemoryError),
    /// No message yet: [`Plan::arrived`] waits for the next one.
    Later,
    /// The source has ended.
    End,
}

/// What the plan must know about a source before its first message is ingested.
#[derive(Debug, Default)]
struct Survey {
    people: BTreeSet<String>,
    chunks: usize,
    known: usize,
    unread: UnreadMessages,
    /// Number of messages that can be read.
    messages: usize,
    /// Whether any message has a text.
    has_text: bool,
    /// The first zone that a message tells.
    zone_minutes: Option<i16>,
}

impl Plan {
    /// Makes the plan for a source. `is_known` says whether the extraction of the chunk with this key is known.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Invalid`] if the source is malformed, or none of its messages can be read; with
    /// [`OnFailure::Stop`], [`MemoryError::Unread`]; and errors of the store.
    pub async fn of(
        store: &dyn KnowledgeStore,
        input: NewInput,
        options: &IngestOptions,
        extractor: Arc<dyn Extractor>,
        now: Timestamp,
        is_known: impl Fn(&str) -> bool,
        mut moved_from: impl FnMut(&NewSource) -> Option<String>,
    ) -> Result<Planning, MemoryError> {
        let content = input.content.clone();
        let stamp = content.stamp(now);
        let new = NewSource {
            name: input.name.clone(),
            format: input.format.name().to_owned(),
            digest: blocking(move || content.digest()).await?,
            settings: settings(options, &*extractor),
            zone_minutes: options.read.zone_minutes,
            ingested_at: now,
            stamp,
        };
        let mut stored = store.source(&input.name).await?;
        if stored.is_none()
            && let Some(source) = moved_from(&new)
        {
            let name = input.name.clone();
            store.apply(vec![Change::Move { source, name }]).await?;
            stored = store.source(&input.name).await?;
        }
        let mut beginning = match stored {
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
            Some(stored) if stored.complete => {
                let unchanged = unchanged(store, stored, &new, &input, options, &*extractor).await?;
                match unchanged {
                    Some(unchanged) => return Ok(unchanged),
                    None => Beginning::Replace(new),
                }
            }
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
        survey.unread.check_any_read(survey.messages)?;
        if let (OnFailure::Stop, Some(first)) = (options.on_failure, survey.unread.first()) {
            return Err(first);
        }
        if let Beginning::New(new) | Beginning::Replace(new) | Beginning::Grow { source: new, .. } =
            &mut beginning
        {
            // Days are counted in the zone that the messages themselves tell.
            new.zone_minutes = new.zone_minutes.or(survey.zone_minutes);
        }
        // The first messages are committed already.
        left.skip(done).await?;
        Ok(Planning::Ingest(Box::new(Plan {
            source: input.name,
            beginning,
            left: Left::Read(left),
            extractor,
            chunks: (survey.chunks, survey.known),
            has_text: survey.has_text,
            ending: Ending {
                aliases: known::aliases(survey.people.iter().map(String::as_str)),
                unread: Some(survey.unread),
            },
        })))
    }

    /// Makes the plan for lines that are still to come. They are appended to the source if it exists.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Invalid`] if the source is to be replaced, and errors of the store.
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
            stamp: None,
        };
        let stored = store.source(&source).await?;
        if stored.is_some() && options.replace {
            return Err(MemoryError::invalid(
                source,
                "its end is unknown yet, so it cannot be replaced; delete it first, or omit --replace",
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
            has_text: true,
            ending: Ending::default(),
        })
    }

    /// Whether the source is still being written.
    pub fn is_followed(&self) -> bool {
        matches!(self.left, Left::Followed(_))
    }

    /// Takes what is known about the source, once it has ended.
    pub fn ending(&mut self) -> Ending {
        match &self.left {
            Left::Read(_) => std::mem::take(&mut self.ending),
            Left::Followed(stream) => Ending {
                aliases: known::aliases(stream.people()),
                unread: None,
            },
        }
    }

    /// Whether any message of the source has a text.
    pub fn has_text(&self) -> bool {
        self.has_text
    }

    /// Waits for the next message of a source that is still being written. Never returns for other sources.
    pub async fn arrived(&mut self, store: &dyn KnowledgeStore) -> Result<(), MemoryError> {
        match &mut self.left {
            Left::Read(_) => std::future::pending().await,
            Left::Followed(stream) => stream.arrived(store).await,
        }
    }

    /// The name of the source.
    pub fn source(&self) -> String {
        self.source.clone()
    }

    /// The first change to the source.
    pub fn beginning(&self) -> Beginning {
        self.beginning.clone()
    }

    /// Whether the source exists and has changed.
    pub fn is_replacement(&self) -> bool {
        matches!(self.beginning, Beginning::Replace(_))
    }

    /// Takes the next message.
    ///
    /// # Errors
    ///
    /// The source cannot be read on.
    pub async fn take_next(&mut self) -> Result<Next, MemoryError> {
        let message = match &mut self.left {
            Left::Read(messages) => messages.next().await?,
            Left::Followed(stream) => match stream.take_next()? {
                Streamed::Message(message) => Some(message),
                Streamed::Unread(error) => return Ok(Next::Unread(error)),
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

/// The plan for a complete source with the same bytes; `None` if it is to be replaced, because messages that could not be read
/// are to be retried and can be read now.
async fn unchanged(
    store: &dyn KnowledgeStore,
    stored: Source,
    new: &NewSource,
    input: &NewInput,
    options: &IngestOptions,
    extractor: &dyn Extractor,
) -> Result<Option<Planning>, MemoryError> {
    let unread = match options.retry_failed {
        true => store.unread(Some(&stored.name)).await?,
        false => Vec::new(),
    };
    if unread.is_empty() {
        let seen = (stored.stamp != new.stamp).then(|| Change::Seen {
            source: stored.name,
            stamp: new.stamp.clone(),
        });
        return Ok(Some(Planning::Unchanged(UnreadMessages::default(), seen)));
    }
    let reader = SourceReader::open(input, &options.read).await?;
    let survey = survey(&reader, input, &options.read, 0, extractor, |_| false).await?;
    let is_same = survey
        .unread
        .errors()
        .iter()
        .eq(unread.iter().map(|one| &one.error));
    Ok(is_same.then_some(Planning::Unchanged(survey.unread, None)))
}

/// Describes how a source is read and extracted. With other settings, it counts as changed.
pub(super) fn settings(options: &IngestOptions, extractor: &dyn Extractor) -> String {
    format!("{} {}", options.read.describe(), extractor.identity())
}

/// Extracts the [identity](Extractor::identity) of the extractor from a source's settings.
pub(crate) fn identity_of(settings: &str) -> Option<&str> {
    let (_, from_duration) = settings.split_once(" duration=")?;
    Some(from_duration.split_once(' ')?.1)
}

/// Whether a complete source has new bytes and still begins with all its stored messages.
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
                Some(message) if message.is_same(&known.message) => position += 1,
                _ => return Ok(false),
            }
        }
    }
    Ok(true)
}

/// Surveys the messages of a source. Its first `done` messages are committed. A source that is read message by message is read
/// again for the survey, so no message stays in memory.
async fn survey(
    messages: &SourceReader,
    input: &NewInput,
    options: &ReadOptions,
    done: usize,
    extractor: &dyn Extractor,
    is_known: impl Fn(&str) -> bool,
) -> Result<Survey, MemoryError> {
    let mut survey = Survey::default();
    let look_at = |survey: &mut Survey, message: &Message| {
        let position = survey.messages;
        survey.messages += 1;
        survey.has_text |= !message.is_empty();
        survey.zone_minutes = survey.zone_minutes.or_else(|| message.moment?.zone_minutes);
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
            for (position, item) in messages.iter().enumerate() {
                match item {
                    Ok(message) => look_at(&mut survey, message),
                    Err(error) => survey.unread.add(error.clone())?,
                }
                if position % SURVEY_MESSAGES_MAX == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }
        None => {
            let mut messages = SourceReader::open(input, options).await?;
            while let Some(message) = messages.next().await? {
                look_at(&mut survey, &message);
            }
            survey.unread = messages.unread().clone();
        }
    }
    assert!(
        survey.known <= survey.chunks,
        "known chunks are chunks of the source"
    );
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
    /// The position of the message in the source.
    pub position: u32,
    /// The position of the chunk in the message.
    pub chunk: u32,
    /// The chunk that is to be extracted.
    pub text: ChunkText,
}

/// Lists the chunks that failed in earlier runs.
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
    fn settings_name_the_extractor() {
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
