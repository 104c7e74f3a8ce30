//! The conversations of messages: those that follow one another in a source without a long gap.

use crate::limits::CONVERSATION_GAP_MS;
use crate::store::Columns;

/// The conversation of every message, and the words of every conversation: 4 bytes a message, 4 a conversation.
#[derive(Debug, Clone, Default)]
pub struct Conversations {
    of: Vec<u32>,
    lengths: Vec<u32>,
    mean_length: f64,
}

impl Conversations {
    /// Finds the conversations of all messages: O(messages).
    pub(super) fn new(columns: &Columns) -> Conversations {
        let mut of = Vec::with_capacity(columns.message_end() as usize);
        let mut lengths: Vec<u32> = Vec::new();
        for message in 0..columns.message_end() {
            let length = columns.length(message);
            match lengths.last_mut() {
                Some(last) if are_beside(columns, message - 1, message) => {
                    *last = last.saturating_add(length)
                }
                _ => lengths.push(length),
            }
            of.push(lengths.len() as u32 - 1);
        }
        let words: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        Conversations {
            mean_length: (words as f64 / lengths.len().max(1) as f64).max(1.0),
            of,
            lengths,
        }
    }

    /// The conversation of a message that is below the [end](Columns::message_end).
    pub fn of(&self, message: u32) -> u32 {
        self.of[message as usize]
    }

    /// How many words a conversation has.
    pub fn length(&self, conversation: u32) -> u32 {
        self.lengths[conversation as usize]
    }

    /// How many words a conversation has on average; at least 1.
    pub fn mean_length(&self) -> f64 {
        self.mean_length
    }

    /// How many conversations there are.
    pub fn count(&self) -> u32 {
        self.lengths.len() as u32
    }
}

/// Whether two messages, one after the other or with few between them, are of one conversation.
pub fn are_beside(columns: &Columns, message: u32, other: u32) -> bool {
    let is_near = match (columns.time(message), columns.time(other)) {
        (Some(left), Some(right)) => left.0.abs_diff(right.0) <= CONVERSATION_GAP_MS.unsigned_abs(),
        _ => true,
    };
    is_near && columns.are_of_one_source(message, other)
}
