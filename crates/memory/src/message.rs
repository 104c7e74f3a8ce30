//! What was said or written, and where in it something stands.

use gristmill_model::Timestamp;
use serde::{Deserialize, Serialize};

/// A message's number in its knowledge base. New messages get the next numbers, from 0, in reading order; a number
/// is never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageOrdinal(pub u32);

/// One message: a turn of a conversation, a mail, a section of a document.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Message {
    /// Its text, in chunks of a size that a model reads at once. Never empty.
    pub text_chunks: Vec<String>,
    /// Its speaker or sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
    /// Its listeners or recipients.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<String>,
    /// Its subject, if it has one: a mail's subject, a section's heading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// When it was said or sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moment: Option<Moment>,
}

impl Message {
    /// A message with one chunk.
    pub fn new(text: impl Into<String>) -> Message {
        Message {
            text_chunks: vec![text.into()],
            ..Message::default()
        }
    }

    /// The whole text.
    pub fn text(&self) -> String {
        self.text_chunks.concat()
    }

    /// The bytes of the whole text.
    pub fn text_bytes(&self) -> usize {
        self.text_chunks.iter().map(String::len).sum()
    }
}

/// A moment, and the zone in which its source told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Moment {
    /// The instant: milliseconds since 1970-01-01T00:00:00Z.
    pub at: Timestamp,
    /// The source's offset from UTC in minutes, east positive; `None` where the source told none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone_minutes: Option<i16>,
}

/// Where in the messages something stands: one chunk of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TextRange {
    /// The message.
    pub message: MessageOrdinal,
    /// The chunk, from 0.
    pub chunk: u32,
}

/// A stretch of time, without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimeRange {
    /// The first instant in it.
    pub start: Timestamp,
    /// The first instant after it; `None` for all time from `start` on.
    pub end: Option<Timestamp>,
}

impl TimeRange {
    /// Whether an instant is in it.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.start <= at && self.end.is_none_or(|end| at < end)
    }
}
