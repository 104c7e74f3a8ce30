//! Imports the recorded index format (`*_index_data.json`): messages, knowledge and aliases.
//!
//! Terms and properties are indexed anew, which gives the recorded index. Embeddings are ignored.

use std::collections::BTreeMap;
use std::path::Path;

use chrono::{DateTime, Timelike};
use gristmill_model::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::error::MemoryError;
use crate::knowledge::Knowledge;
use crate::limits::IMPORT_BYTES_MAX;
use crate::message::{Message, Moment};
use crate::store::{
    Applied, Change, ChunkFailure, KnowledgeStore, Learned, NewMessage, NewSource, RelatedTerm, Source,
    Unread, UnreadMessage,
};

/// The name of this format in [`Source::format`](crate::store::Source::format).
pub const FORMAT: &str = "index";

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// Messages and refs that were added.
    pub applied: Applied,
    /// Sources that were added or replaced.
    pub sources: usize,
    /// Distinct terms of the recorded index.
    pub recorded_terms: usize,
    /// Postings of these terms in the recorded index.
    pub recorded_postings: usize,
    /// The offset from UTC that was used for the messages' times, in minutes.
    pub zone_minutes: Option<i16>,
}

/// Options of an import.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// The offset from UTC of the recording, in minutes. The format has none. If this is `None`, the offset is taken
    /// from the first message, because such an index dates it at midnight of the day of recording.
    pub zone_minutes: Option<i16>,
    /// The time of the import.
    pub imported_at: Timestamp,
}

/// Imports the index in the file at `path`. An [export](super::export) becomes the sources that it came from, and any
/// other file becomes one source with the name of the path. Sources with these names are replaced.
///
/// # Errors
///
/// [`MemoryError::File`], [`MemoryError::Invalid`], and errors of the store. Nothing is imported then.
pub async fn import_index(
    store: &dyn KnowledgeStore,
    path: &Path,
    options: &ImportOptions,
) -> Result<Imported, MemoryError> {
    let text = read_capped(path)?;
    let place = path.display().to_string();
    let index: Index = serde_json::from_str(&text)
        .map_err(|error| MemoryError::invalid(&place, format!("it is not an index data file: {error}")))?;
    let mut messages = messages(&index, &place)?;
    let zone_minutes = options.zone_minutes.or_else(|| zone_of(&messages));
    let mut learned = learned(&index, &place)?;
    add_failures(&index, &place, &mut messages, &mut learned)?;
    let sources = match index.source_data {
        Some(sources) => sources,
        None => vec![Source {
            name: place.clone(),
            format: FORMAT.to_owned(),
            digest: crate::digest::of(text.as_bytes()),
            settings: String::new(),
            complete: true,
            messages: messages.len() as u32,
            zone_minutes,
            ingested_at: options.imported_at,
            stamp: None,
        }],
    };
    let mut changes = changes_of(store, &place, &sources, messages, learned).await?;
    let aliases = index
        .related_terms_index_data
        .unwrap_or_default()
        .alias_data
        .related_terms;
    for alias in aliases {
        changes.extend(alias.related_terms.into_iter().map(|related| Change::Alias {
            term: alias.term_text.clone(),
            related,
        }));
    }
    changes.extend(unread_changes(index.unread_data));
    let items = index.semantic_index_data.unwrap_or_default().items;
    Ok(Imported {
        applied: store.apply(changes).await?,
        sources: sources.len(),
        recorded_terms: items.len(),
        recorded_postings: items.iter().map(|item| item.semantic_ref_ordinals.len()).sum(),
        zone_minutes: sources.iter().find_map(|source| source.zone_minutes),
    })
}

/// Makes the changes that record what could not be read, by source and in reading order.
fn unread_changes(unread: Vec<UnreadMessage>) -> impl Iterator<Item = Change> {
    let mut by_source: BTreeMap<(String, Timestamp), Vec<Unread>> = BTreeMap::new();
    for UnreadMessage {
        source,
        place,
        error,
        at,
    } in unread
    {
        by_source
            .entry((source, at))
            .or_default()
            .push(Unread { place, error });
    }
    let mut firsts: BTreeMap<String, u32> = BTreeMap::new();
    by_source.into_iter().map(move |((source, at), unread)| {
        let next = firsts.entry(source.clone()).or_default();
        let first = *next;
        *next += unread.len() as u32;
        Change::Unread {
            source,
            first,
            unread,
            at,
        }
    })
}

/// Makes the changes that add the sources, with the refs in the order of their numbers.
async fn changes_of(
    store: &dyn KnowledgeStore,
    place: &str,
    sources: &[Source],
    messages: Vec<NewMessage>,
    learned: Vec<Learned>,
) -> Result<Vec<Change>, MemoryError> {
    let told: u64 = sources.iter().map(|source| u64::from(source.messages)).sum();
    if told != messages.len() as u64 {
        return Err(MemoryError::invalid(
            place,
            format!(
                "its sources have {told} messages together, and it has {}",
                messages.len()
            ),
        ));
    }
    let mut changes = Vec::new();
    let mut messages = messages.into_iter();
    // The source and the position of each message, by its number in the file.
    let mut positions: Vec<(usize, u32)> = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        if store.source(&source.name).await?.is_some() {
            changes.push(Change::Delete {
                source: source.name.clone(),
            });
        }
        changes.push(Change::Begin(NewSource {
            name: source.name.clone(),
            format: source.format.clone(),
            digest: source.digest.clone(),
            settings: source.settings.clone(),
            zone_minutes: source.zone_minutes,
            ingested_at: source.ingested_at,
            stamp: None,
        }));
        changes.push(Change::Append {
            source: source.name.clone(),
            first_position: 0,
            messages: messages.by_ref().take(source.messages as usize).collect(),
        });
        positions.extend((0..source.messages).map(|position| (number, position)));
    }
    assert!(messages.next().is_none(), "each message belongs to a source");
    assert_eq!(
        positions.len() as u64,
        told,
        "each message has a position in its source"
    );
    for learned in learned {
        let Some(&(number, position)) = positions.get(learned.position as usize) else {
            return Err(MemoryError::invalid(
                place,
                format!(
                    "its knowledge names message {}, which it does not have",
                    learned.position
                ),
            ));
        };
        let learned = Learned { position, ..learned };
        match changes.last_mut() {
            Some(Change::Learn { source, learned: all }) if *source == sources[number].name => {
                all.push(learned)
            }
            _ => changes.push(Change::Learn {
                source: sources[number].name.clone(),
                learned: vec![learned],
            }),
        }
    }
    changes.extend(
        sources
            .iter()
            .filter(|source| source.complete)
            .map(|source| Change::Complete {
                source: source.name.clone(),
            }),
    );
    Ok(changes)
}

/// Adds the failed chunks to their messages. Knowledge of a failed chunk is added with its message too, because
/// knowledge that is learned later would clear the failure.
fn add_failures(
    index: &Index,
    place: &str,
    messages: &mut [NewMessage],
    learned: &mut Vec<Learned>,
) -> Result<(), MemoryError> {
    for failure in &index.failure_data {
        let Some(message) = messages.get_mut(failure.message_ordinal as usize) else {
            return Err(MemoryError::invalid(
                place,
                format!(
                    "a failure names message {}, which it does not have",
                    failure.message_ordinal
                ),
            ));
        };
        message.failures.push(ChunkFailure {
            chunk: failure.chunk_ordinal,
            error: failure.error.clone(),
            at: failure.at,
        });
        learned.retain_mut(|known| {
            let is_of_it = (known.position, known.chunk) == (failure.message_ordinal, failure.chunk_ordinal);
            if is_of_it {
                message
                    .knowledge
                    .push((known.chunk, std::mem::take(&mut known.knowledge)));
            }
            !is_of_it
        });
    }
    Ok(())
}

/// Reads a whole file, if it does not exceed the limit.
pub(crate) fn read_capped(path: &Path) -> Result<String, MemoryError> {
    let failed = |error: std::io::Error| MemoryError::File {
        path: path.to_path_buf(),
        reason: error.to_string(),
    };
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    if bytes > IMPORT_BYTES_MAX {
        return Err(MemoryError::File {
            path: path.to_path_buf(),
            reason: format!("it has {bytes} bytes; the limit is {IMPORT_BYTES_MAX}"),
        });
    }
    std::fs::read_to_string(path).map_err(failed)
}

fn messages(index: &Index, place: &str) -> Result<Vec<NewMessage>, MemoryError> {
    let converted = index.messages.iter().enumerate().map(|(number, recorded)| {
        let moment = match &recorded.timestamp {
            None => None,
            Some(text) => Some(moment(text, recorded.zone_minutes).ok_or_else(|| {
                MemoryError::invalid(
                    format!("{place}, message {number}"),
                    format!("`{text}` is not a date and time such as 2023-05-01T07:00:00Z"),
                )
            })?),
        };
        let message = Message {
            text_chunks: recorded.text_chunks.clone(),
            speaker: first_name(&recorded.metadata, &["speaker", "sender"]),
            recipients: names(&recorded.metadata, &["listeners", "recipients"]),
            subject: first_name(&recorded.metadata, &["subject"]),
            tags: recorded.tags.clone(),
            moment,
            id: recorded.id.clone(),
            thread: recorded.thread.clone(),
            place: recorded.place.clone(),
        };
        Ok(NewMessage {
            message,
            ..NewMessage::default()
        })
    });
    converted.collect()
}

fn moment(text: &str, zone_minutes: Option<i16>) -> Option<Moment> {
    let at = DateTime::parse_from_rfc3339(text).ok()?;
    Some(Moment {
        at: Timestamp(at.timestamp_millis()),
        zone_minutes,
    })
}

/// Finds the zone in which the first message is at midnight, if there is one.
fn zone_of(messages: &[NewMessage]) -> Option<i16> {
    let first = messages.iter().find_map(|message| message.message.moment)?;
    let at = DateTime::from_timestamp_millis(first.at.0)?;
    if at.minute() % 15 != 0 || at.second() != 0 || at.timestamp_subsec_millis() != 0 {
        return None;
    }
    let minutes = (at.hour() * 60 + at.minute()) as i16;
    // West of Greenwich midnight comes later in UTC, by up to 12 hours.
    Some(if minutes <= 12 * 60 {
        -minutes
    } else {
        24 * 60 - minutes
    })
}

fn learned(index: &Index, place: &str) -> Result<Vec<Learned>, MemoryError> {
    let mut learned: Vec<Learned> = Vec::new();
    for (number, recorded) in index.semantic_refs.iter().enumerate() {
        if recorded.semantic_ref_ordinal != number {
            return Err(MemoryError::invalid(
                format!("{place}, semantic ref {number}"),
                format!("it says that it is number {}", recorded.semantic_ref_ordinal),
            ));
        }
        let start = &recorded.range.start;
        let is_same_chunk = learned
            .last()
            .is_some_and(|last| (last.position, last.chunk) == (start.message_ordinal, start.chunk_ordinal));
        if !is_same_chunk {
            learned.push(Learned {
                position: start.message_ordinal,
                chunk: start.chunk_ordinal,
                knowledge: Vec::new(),
            });
        }
        if let Some(last) = learned.last_mut() {
            last.knowledge.push(recorded.knowledge.clone());
        }
    }
    Ok(learned)
}

/// The first text under one of these keys.
fn first_name(metadata: &Value, keys: &[&str]) -> Option<String> {
    names(metadata, keys).into_iter().next()
}

fn names(metadata: &Value, keys: &[&str]) -> Vec<String> {
    let found = keys.iter().filter_map(|key| metadata.get(key));
    let texts = found.flat_map(|value| match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    });
    texts.collect()
}

// --- the parts of the recorded format that are read ---

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    messages: Vec<RecordedMessage>,
    semantic_refs: Vec<RecordedRef>,
    #[serde(default)]
    semantic_index_data: Option<TermIndex>,
    #[serde(default)]
    related_terms_index_data: Option<RelatedTermsIndex>,
    /// The sources. Only exports have them.
    #[serde(default)]
    source_data: Option<Vec<Source>>,
    #[serde(default)]
    failure_data: Vec<RecordedFailure>,
    /// The messages that could not be read. Only exports have them.
    #[serde(default)]
    unread_data: Vec<UnreadMessage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedMessage {
    text_chunks: Vec<String>,
    #[serde(default)]
    metadata: Value,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    timestamp: Option<String>,
    /// The zone of the timestamp. Only exports have it.
    #[serde(default)]
    zone_minutes: Option<i16>,
    /// What follows is in exports alone, too.
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    thread: Option<String>,
    #[serde(default)]
    place: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedFailure {
    message_ordinal: u32,
    chunk_ordinal: u32,
    error: String,
    at: Timestamp,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedRef {
    semantic_ref_ordinal: usize,
    range: RecordedRange,
    #[serde(flatten)]
    knowledge: Knowledge,
}

#[derive(Deserialize)]
struct RecordedRange {
    start: RecordedLocation,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedLocation {
    message_ordinal: u32,
    #[serde(default)]
    chunk_ordinal: u32,
}

#[derive(Deserialize, Default)]
struct TermIndex {
    items: Vec<TermItem>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TermItem {
    semantic_ref_ordinals: Vec<Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct RelatedTermsIndex {
    #[serde(default)]
    alias_data: AliasData,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct AliasData {
    #[serde(default)]
    related_terms: Vec<Alias>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Alias {
    term_text: String,
    related_terms: Vec<RelatedTerm>,
}
