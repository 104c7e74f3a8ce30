//! The conversations of messages: runs of messages of one source without a long gap.

use crate::limits::CONVERSATION_GAP_MS;
use crate::store::Columns;

/// The largest distance at which two messages of a conversation are neighbours.
pub const NEIGHBOURS_APART_MAX: usize = 2;

/// The conversation and the neighbours of every message, and the number of words of every conversation. Takes 5 bytes a
/// message and 4 a conversation.
#[derive(Debug, Clone, Default)]
pub struct Conversations {
    of: Vec<u32>,
    /// For each message, bit n - 1 says whether the message n places later is [beside](are_beside) it.
    followers: Vec<u8>,
    lengths: Vec<u32>,
    mean_length: f64,
}

impl Conversations {
    /// Finds the conversations of all messages, in O(messages).
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
            assert!(!lengths.is_empty(), "a message belongs to a conversation");
            of.push(lengths.len() as u32 - 1);
        }
        let followers = (0..columns.message_end()).map(|message| {
            (0..NEIGHBOURS_APART_MAX as u32).fold(0, |followers, bit| {
                let is_beside = are_beside(columns, message, message.saturating_add(bit + 1));
                followers | u8::from(is_beside) << bit
            })
        });
        let followers = followers.collect();
        let words: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        Conversations {
            mean_length: (words as f64 / lengths.len().max(1) as f64).max(1.0),
            of,
            followers,
            lengths,
        }
    }

    /// The conversation of a message below the [end](Columns::message_end).
    pub fn of(&self, message: u32) -> u32 {
        self.of[message as usize]
    }

    /// For each message, bit n - 1 says whether the message n places later belongs to the same conversation, for n up
    /// to [`NEIGHBOURS_APART_MAX`].
    pub fn followers(&self) -> &[u8] {
        &self.followers
    }

    /// Number of words of a conversation.
    pub fn length(&self, conversation: u32) -> u32 {
        self.lengths[conversation as usize]
    }

    /// Mean number of words of a conversation; at least 1.
    pub fn mean_length(&self) -> f64 {
        self.mean_length
    }

    /// Number of conversations.
    pub fn count(&self) -> u32 {
        self.lengths.len() as u32
    }
}

/// Whether two messages at most a few places apart belong to one conversation.
fn are_beside(columns: &Columns, message: u32, other: u32) -> bool {
    let is_near = match (columns.time(message), columns.time(other)) {
        (Some(left), Some(right)) => left.0.abs_diff(right.0) <= CONVERSATION_GAP_MS.unsigned_abs(),
        _ => true,
    };
    is_near && columns.are_of_one_source(message, other)
}
