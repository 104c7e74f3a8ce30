//! The data of every ref and message that recall needs, column by column.

use std::sync::OnceLock;

use gristmill_model::Timestamp;

use crate::knowledge::{KnowledgeKind, RefOrdinal};
use crate::message::MessageOrdinal;
use crate::store::conversations::Conversations;
use crate::words::Languages;

/// The time of a message without one, or of a deleted message.
const NEVER: i64 = i64::MIN;

/// The source of a deleted message.
const NOWHERE: u32 = u32::MAX;

/// The kind and message of every ref; the time, source and length of every message. Takes 5 bytes a ref and 16 a message.
#[derive(Debug, Clone, Default)]
pub struct Columns {
    kinds: Vec<u8>,
    messages: Vec<u32>,
    times: Vec<i64>,
    sources: Vec<u32>,
    lengths: Vec<u32>,
    /// Number of messages that exist.
    message_count: u32,
    words: u64,
    newest: Option<Timestamp>,
    languages: Languages,
    rewrites: i64,
    /// The conversations. A question finds them when it needs them first, and they serve all questions until messages
    /// are added.
    conversations: OnceLock<Conversations>,
}

impl Columns {
    /// Makes the columns of an empty knowledge base after this many deletions.
    pub fn new(rewrites: i64) -> Columns {
        Columns {
            rewrites,
            ..Columns::default()
        }
    }

    /// The number of deletions at which the columns were read. While it is unchanged, later columns only add rows.
    pub fn rewrites(&self) -> i64 {
        self.rewrites
    }

    /// The number that the next ref gets.
    pub fn ref_end(&self) -> u32 {
        self.kinds.len() as u32
    }

    /// The number that the next message gets.
    pub fn message_end(&self) -> u32 {
        self.times.len() as u32
    }

    /// Makes room for the refs and messages below these numbers. A row that is not set counts as deleted.
    pub fn grow(&mut self, ref_end: u32, message_end: u32) {
        self.conversations.take();
        self.kinds.resize(self.kinds.len().max(ref_end as usize), 0);
        self.messages.resize(self.messages.len().max(ref_end as usize), 0);
        self.times
            .resize(self.times.len().max(message_end as usize), NEVER);
        self.sources.resize(self.times.len(), NOWHERE);
        self.lengths.resize(self.times.len(), 0);
    }

    /// Sets consecutive refs of one message. `kinds` has the [letter](KnowledgeKind::letter) of each.
    pub fn set_refs(&mut self, first: RefOrdinal, message: MessageOrdinal, kinds: &[u8]) {
        let first = first.0 as usize;
        self.kinds[first..first + kinds.len()].copy_from_slice(kinds);
        self.messages[first..first + kinds.len()].fill(message.0);
    }

    /// Sets the source, time and number of words of a new message.
    pub fn set_message(&mut self, message: MessageOrdinal, source: i64, at: Option<Timestamp>, words: u32) {
        self.conversations.take();
        let place = message.0 as usize;
        // The numbers of sources are only compared between neighbouring messages.
        self.sources[place] = (source as u32).min(NOWHERE - 1);
        self.lengths[place] = words;
        self.message_count += 1;
        self.words += u64::from(words);
        if let Some(at) = at {
            self.times[place] = at.0;
            self.newest = self.newest.max(Some(at));
        }
    }

    /// Sets the languages of the messages.
    pub fn set_languages(&mut self, languages: Languages) {
        self.languages = languages;
    }

    /// The kind of a ref; `None` if the ref does not exist.
    pub fn kind(&self, ordinal: u32) -> Option<KnowledgeKind> {
        KnowledgeKind::from_letter(*self.kinds.get(ordinal as usize)?)
    }

    /// The message of an existing ref.
    pub fn message(&self, ordinal: u32) -> u32 {
        self.messages[ordinal as usize]
    }

    /// The time of a message.
    pub fn time(&self, message: u32) -> Option<Timestamp> {
        self.times
            .get(message as usize)
            .filter(|&&at| at != NEVER)
            .map(|&at| Timestamp(at))
    }

    /// Whether a message exists.
    pub fn has_message(&self, message: u32) -> bool {
        self.sources
            .get(message as usize)
            .is_some_and(|&source| source != NOWHERE)
    }

    /// Whether two messages exist and belong to one source.
    pub fn are_of_one_source(&self, left: u32, right: u32) -> bool {
        self.has_message(left) && self.sources.get(left as usize) == self.sources.get(right as usize)
    }

    /// Number of words of a message.
    pub fn length(&self, message: u32) -> u32 {
        self.lengths.get(message as usize).copied().unwrap_or(0)
    }

    /// Mean number of words of a message; at least 1.
    pub fn mean_length(&self) -> f64 {
        (self.words as f64 / f64::from(self.message_count.max(1))).max(1.0)
    }

    /// Number of messages.
    pub fn message_count(&self) -> u32 {
        self.message_count
    }

    /// The conversations of the messages. The first call takes O(messages).
    pub fn conversations(&self) -> &Conversations {
        self.conversations.get_or_init(|| Conversations::new(self))
    }

    /// The time of the newest message.
    pub fn newest(&self) -> Option<Timestamp> {
        self.newest
    }

    /// The languages of the messages, including deleted ones.
    pub fn languages(&self) -> Languages {
        self.languages
    }

    /// Counts the existing refs of a kind.
    pub fn count(&self, kind: KnowledgeKind) -> u64 {
        self.kinds
            .iter()
            .filter(|&&letter| letter == kind.letter())
            .count() as u64
    }
}
