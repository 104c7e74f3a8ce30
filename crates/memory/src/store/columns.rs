//! What recall needs of every ref and message, column by column.

use gristmill_model::Timestamp;

use crate::knowledge::{KnowledgeKind, RefOrdinal};
use crate::message::MessageOrdinal;

/// The instant of a message that has none, or is not there.
const NEVER: i64 = i64::MIN;

/// The kind and message of every ref, the time of every message: 5 bytes a ref, 8 a message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Columns {
    kinds: Vec<u8>,
    messages: Vec<u32>,
    times: Vec<i64>,
    rewrites: i64,
}

impl Columns {
    /// The columns of an empty knowledge base after so many deletions.
    pub fn new(rewrites: i64) -> Columns {
        Columns {
            rewrites,
            ..Columns::default()
        }
    }

    /// How often something had been deleted when these were read: later ones hold only what was added, as long as
    /// this is the same.
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

    /// Makes room for the refs and messages below these numbers. What is not set is not there.
    pub fn grow(&mut self, ref_end: u32, message_end: u32) {
        self.kinds.resize(self.kinds.len().max(ref_end as usize), 0);
        self.messages.resize(self.messages.len().max(ref_end as usize), 0);
        self.times
            .resize(self.times.len().max(message_end as usize), NEVER);
    }

    /// Sets consecutive refs of one message. `kinds` has one [letter](KnowledgeKind::letter) each.
    pub fn set_refs(&mut self, first: RefOrdinal, message: MessageOrdinal, kinds: &[u8]) {
        let first = first.0 as usize;
        self.kinds[first..first + kinds.len()].copy_from_slice(kinds);
        self.messages[first..first + kinds.len()].fill(message.0);
    }

    /// Sets the time of a message.
    pub fn set_time(&mut self, message: MessageOrdinal, at: Timestamp) {
        self.times[message.0 as usize] = at.0;
    }

    /// The kind of a ref; `None` where there is none of that number.
    pub fn kind(&self, ordinal: u32) -> Option<KnowledgeKind> {
        KnowledgeKind::from_letter(*self.kinds.get(ordinal as usize)?)
    }

    /// The message of a ref that is there.
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

    /// Refs that are there, by kind.
    pub fn count(&self, kind: KnowledgeKind) -> u64 {
        self.kinds
            .iter()
            .filter(|&&letter| letter == kind.letter())
            .count() as u64
    }
}
