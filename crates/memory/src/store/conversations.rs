//! The conversations of messages: the messages of one thread, or runs of messages of one source without a long gap.

use std::collections::HashMap;

use crate::limits::CONVERSATION_GAP_MS;
use crate::source::SourceKind;
use crate::store::Columns;

/// The largest distance at which two messages of a conversation are neighbours.
pub const NEIGHBOURS_APART_MAX: usize = 2;

/// There is no further message.
const NO_MESSAGE: u32 = u32::MAX;

/// The conversation and the follower of every message, and the number of words of every conversation. Takes 8 bytes a
/// message and 5 a conversation.
#[derive(Debug, Clone, Default)]
pub struct Conversations {
    of: Vec<u32>,
    next: Vec<u32>,
    lengths: Vec<u32>,
    kinds: Vec<SourceKind>,
    mean_length: f64,
}

impl Conversations {
    /// Finds the conversations of all messages, in O(messages).
    pub(super) fn new(columns: &Columns) -> Conversations {
        let end = columns.message_end() as usize;
        let mut all = Conversations {
            of: Vec::with_capacity(end),
            next: vec![NO_MESSAGE; end],
            ..Conversations::default()
        };
        // The last message of each thread.
        let mut threads: HashMap<(u32, u32), u32> = HashMap::new();
        let mut last_unthreaded: Option<u32> = None;
        for message in 0..columns.message_end() {
            let kind = columns.source_kind(message);
            let thread = columns.thread(message);
            let before = if thread != 0 {
                // The archive of a mailing list is often a file a month, and a thread goes on in the next one.
                let source = if kind == SourceKind::Mail {
                    None
                } else {
                    columns.source(message)
                };
                let key = (source.unwrap_or(NO_MESSAGE), thread);
                threads.insert(key, message)
            } else {
                let before = last_unthreaded.replace(message);
                before.filter(|&before| kind != SourceKind::Mail && are_beside(columns, before, message))
            };
            let length = columns.length(message);
            match before {
                Some(before) => {
                    let conversation = all.of[before as usize];
                    let total = &mut all.lengths[conversation as usize];
                    *total = total.saturating_add(length);
                    all.next[before as usize] = message;
                    all.of.push(conversation);
                }
                None => {
                    all.of.push(all.lengths.len() as u32);
                    all.lengths.push(length);
                    all.kinds.push(kind);
                }
            }
        }
        let words: u64 = all.lengths.iter().map(|&length| u64::from(length)).sum();
        all.mean_length = (words as f64 / all.lengths.len().max(1) as f64).max(1.0);
        all
    }

    /// The conversation of a message below the [end](Columns::message_end).
    pub fn of(&self, message: u32) -> u32 {
        self.of[message as usize]
    }

    /// The next message of the same conversation.
    pub fn next(&self, message: u32) -> Option<u32> {
        let next = self.next[message as usize];
        (next != NO_MESSAGE).then_some(next)
    }

    /// Number of words of a conversation.
    pub fn length(&self, conversation: u32) -> u32 {
        self.lengths[conversation as usize]
    }

    /// What the messages of a conversation are to each other.
    pub fn kind(&self, conversation: u32) -> SourceKind {
        self.kinds[conversation as usize]
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

/// Whether two messages, the second of which is the next one without a thread, belong to one conversation.
fn are_beside(columns: &Columns, message: u32, other: u32) -> bool {
    let is_near = match (columns.time(message), columns.time(other)) {
        (Some(left), Some(right)) => left.0.abs_diff(right.0) <= CONVERSATION_GAP_MS.unsigned_abs(),
        _ => true,
    };
    is_near && columns.are_of_one_source(message, other)
}

#[cfg(test)]
mod tests {
    use gristmill_model::Timestamp;

    use super::*;
    use crate::message::MessageOrdinal;

    /// Columns of messages with a source, a time in minutes and a thread each.
    fn columns(formats: &[&str], messages: &[(i64, i64, u32)]) -> Columns {
        let mut columns = Columns::new(0);
        for (number, format) in (1..).zip(formats) {
            columns.set_source(number, format!("source {number}"), format);
        }
        columns.grow(0, messages.len() as u32);
        for (ordinal, (source, minute, thread)) in (0..).zip(messages) {
            let at = Some(Timestamp(minute * 60_000));
            columns.set_message(MessageOrdinal(ordinal), *source, at, 5, *thread);
        }
        columns
    }

    fn conversations(columns: &Columns) -> Vec<u32> {
        (0..columns.message_end())
            .map(|message| columns.conversations().of(message))
            .collect()
    }

    #[test]
    fn mails_belong_to_their_threads_and_not_to_those_beside_them() {
        let mails = columns(
            &["mbox", "mbox"],
            &[
                (1, 0, 7),
                (1, 1, 8),
                (1, 2, 0),
                (1, 3, 7),
                (2, 90_000, 7),
                (2, 90_001, 0),
            ],
        );
        assert_eq!(conversations(&mails), [0, 1, 2, 0, 0, 3]);
        let all = mails.conversations();
        assert_eq!((all.next(0), all.next(3), all.next(4)), (Some(3), Some(4), None));
        assert_eq!((all.length(0), all.kind(0)), (15, SourceKind::Mail));
    }

    #[test]
    fn turns_belong_together_until_a_gap_and_around_threads() {
        let chat = columns(
            &["slack", "slack"],
            &[
                (1, 0, 0),
                (1, 1, 5),
                (1, 2, 0),
                (1, 200, 0),
                (2, 201, 5),
                (2, 202, 0),
            ],
        );
        assert_eq!(conversations(&chat), [0, 1, 0, 2, 3, 4]);
        assert_eq!(chat.conversations().next(0), Some(2));
    }
}
