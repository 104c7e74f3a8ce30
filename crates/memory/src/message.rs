//! Messages, and places in them.

use gristmill_model::Timestamp;
use serde::{Deserialize, Serialize};

/// The number of a message in its knowledge base. New messages get the next numbers, from 0, in reading order. A number
/// is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageOrdinal(pub u32);

/// One message: a turn of a conversation, a mail, a section of a document.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Message {
    /// Its text, in chunks that a model reads one at a time. A message without a text has none.
    pub text_chunks: Vec<String>,
    /// Its speaker or sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
    /// Its listeners or recipients.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<String>,
    /// Its subject: the subject of a mail, the heading of a section.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Its labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The moment at which it was said or sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moment: Option<Moment>,
    /// The name that its own program gave it, the same in every copy: the Message-ID of a mail, the id of a chat message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The thread to which it belongs: the id of the message that began it, or its subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Its place in the source as a person counts there: `line 12`, `mail 7`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

impl Message {
    /// Makes a message with one chunk.
    pub fn new(text: impl Into<String>) -> Message {
        Message {
            text_chunks: vec![text.into()],
            ..Message::default()
        }
    }

    /// A digest of its thread, by which messages of one thread find each other; 0 if it has none.
    pub fn thread_number(&self) -> u32 {
        self.thread.as_deref().map_or(0, thread_number)
    }

    /// Whether it has no text. No model reads it.
    pub fn is_empty(&self) -> bool {
        self.text_chunks.is_empty()
    }

    /// Whether it is the same message, wherever both stand in their sources.
    pub fn is_same(&self, other: &Message) -> bool {
        let at_no_place = |message: &Message| Message {
            place: None,
            ..message.clone()
        };
        self == other || (self.place != other.place && at_no_place(self) == at_no_place(other))
    }

    /// The whole text.
    pub fn text(&self) -> String {
        self.text_chunks.concat()
    }

    /// Number of bytes of the whole text.
    pub fn text_bytes(&self) -> usize {
        self.text_chunks.iter().map(String::len).sum()
    }
}

/// The digest of a thread: FNV-1a over its bytes, and never 0.
pub fn thread_number(thread: &str) -> u32 {
    let digest = thread.bytes().fold(0x811c_9dc5_u32, |digest, byte| {
        (digest ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    digest.max(1)
}

/// An instant, and the zone in which the source wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Moment {
    /// The instant: milliseconds since 1970-01-01T00:00:00Z.
    pub at: Timestamp,
    /// The source's offset from UTC in minutes, east positive; `None` if the source names no zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone_minutes: Option<i16>,
}

/// A place in the messages: one chunk of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TextRange {
    /// The message.
    pub message: MessageOrdinal,
    /// The position of the chunk in the message, from 0.
    pub chunk: u32,
}

/// A range of time that excludes its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimeRange {
    /// The first instant in it.
    pub start: Timestamp,
    /// The first instant after it; `None` for all time from `start` on.
    pub end: Option<Timestamp>,
}

impl TimeRange {
    /// Whether an instant is in the range.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.start <= at && self.end.is_none_or(|end| at < end)
    }
}
