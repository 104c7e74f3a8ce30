//! Joins messages and their extractions again, in reading order.

use std::collections::VecDeque;

use gristmill_model::Timestamp;

use crate::extract::known::SAY_ALIASES;
use crate::knowledge::Knowledge;
use crate::message::Message;
use crate::pipeline::job::Outcome;
use crate::pipeline::outcomes::OutcomeResult;
use crate::pipeline::plan::Beginning;
use crate::pipeline::unread::UnreadMessages;
use crate::store::{Change, ChunkFailure, Learned, NewMessage, RelatedTerm};

/// A place in the assembly for the extraction of one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    item: u64,
    chunk: usize,
}

/// Messages in reading order, with the extractions that have arrived.
#[derive(Debug)]
pub struct Assembly {
    items: VecDeque<Item>,
    /// The number of the first item.
    first: u64,
    chunks: usize,
    /// Bytes of messages and extractions.
    bytes: usize,
    /// The position of the next message in the source.
    next_position: u32,
    source: String,
}

#[derive(Debug)]
struct Item {
    what: What,
    extractions: Vec<Option<OutcomeResult>>,
    bytes: usize,
}

#[derive(Debug)]
enum What {
    Begin(Beginning),
    Message {
        source: String,
        position: u32,
        message: Message,
        known: Vec<Knowledge>,
    },
    /// A chunk of a stored message.
    Learn {
        source: String,
        position: u32,
        chunk: u32,
    },
    End {
        source: String,
        ending: Ending,
    },
}

/// The facts about a source at its end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ending {
    /// Other names for its people, as pairs of name and full name.
    pub aliases: Vec<(String, String)>,
    /// The messages that cannot be read; `None` if they are recorded already.
    pub unread: Option<UnreadMessages>,
}

/// A complete item, which can be committed.
#[derive(Debug)]
pub struct Ready(Item);

impl Assembly {
    /// Makes an empty assembly.
    pub fn new() -> Assembly {
        Assembly {
            items: VecDeque::new(),
            first: 0,
            chunks: 0,
            bytes: 0,
            next_position: 0,
            source: String::new(),
        }
    }

    /// Whether the assembly is empty.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Number of chunks of all items.
    pub fn chunks(&self) -> usize {
        self.chunks
    }

    /// Bytes of the messages and extractions of all items.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Begins a source.
    pub fn begin_source(&mut self, beginning: Beginning) {
        (self.source, self.next_position) = match &beginning {
            Beginning::New(new) | Beginning::Replace(new) => (new.name.clone(), 0),
            Beginning::Resume { source, position } => (source.clone(), *position),
            Beginning::Grow { source, position } => (source.name.clone(), *position),
        };
        self.push(What::Begin(beginning), 0, 0);
    }

    /// Adds the next message of the source, which has this many chunks.
    pub fn add(&mut self, message: Message, known: Vec<Knowledge>, chunks: usize) -> Vec<Slot> {
        let bytes = message.text_bytes();
        let what = What::Message {
            source: self.source.clone(),
            position: self.next_position,
            message,
            known,
        };
        self.next_position += 1;
        self.push(what, chunks, bytes)
    }

    /// Adds a chunk of a stored message.
    pub fn learn(&mut self, source: String, position: u32, chunk: u32) -> Slot {
        let item = self.first + self.items.len() as u64;
        self.push(
            What::Learn {
                source,
                position,
                chunk,
            },
            1,
            0,
        );
        assert_eq!(self.first + self.items.len() as u64, item + 1, "the last item");
        Slot { item, chunk: 0 }
    }

    /// Ends the source.
    pub fn end_source(&mut self, source: String, ending: Ending) {
        assert_eq!(source, self.source, "the source that began last ends");
        self.push(What::End { source, ending }, 0, 0);
    }

    /// Stores an arrived extraction in its slot.
    pub fn fill(&mut self, slot: Slot, outcome: &Outcome) {
        let index = slot.item.checked_sub(self.first).map(|index| index as usize);
        let item = index.and_then(|index| self.items.get_mut(index));
        assert!(
            item.is_some(),
            "an item stays until all its extractions have arrived"
        );
        if let Some(item) = item {
            let before = item.extractions[slot.chunk].replace(outcome.result.clone());
            assert!(before.is_none(), "each slot is filled once");
            item.bytes += outcome.bytes;
            self.bytes += outcome.bytes;
        }
    }

    /// Takes complete items from the front: at most `items_max`, and no more once they have `bytes_max` bytes. The
    /// messages of a source that replaces another are taken together.
    pub fn take_ready(&mut self, items_max: usize, bytes_max: usize) -> Vec<Ready> {
        let mut count = 0;
        let mut bytes = 0;
        let mut whole_until = None;
        for (index, item) in self.items.iter().enumerate() {
            if item.extractions.iter().any(Option::is_none) {
                break;
            }
            match &item.what {
                What::Begin(Beginning::Replace(_)) => whole_until = Some(index),
                What::End { .. } => whole_until = None,
                _ => {}
            }
            count = index + 1;
            bytes += item.bytes;
            if (count >= items_max || bytes >= bytes_max) && whole_until.is_none() {
                break;
            }
        }
        let count = whole_until.unwrap_or(count);
        assert!(count <= self.items.len(), "only items are taken");
        self.first += count as u64;
        let ready: Vec<Ready> = self.items.drain(..count).map(Ready).collect();
        for Ready(item) in &ready {
            self.chunks -= item.extractions.len();
            self.bytes -= item.bytes;
        }
        self.check();
        ready
    }

    /// Returns the last taken item.
    pub fn put_back(&mut self, ready: Ready) {
        assert!(self.first > 0, "only a taken item is returned");
        self.first -= 1;
        self.chunks += ready.0.extractions.len();
        self.bytes += ready.0.bytes;
        assert!(ready.0.extractions.iter().all(Option::is_some), "all arrived");
        self.items.push_front(ready.0);
    }

    /// Checks the totals against the items.
    fn check(&self) {
        debug_assert_eq!(
            self.chunks,
            self.items
                .iter()
                .map(|item| item.extractions.len())
                .sum::<usize>(),
            "the assembly counts the chunks of its items"
        );
        debug_assert_eq!(
            self.bytes,
            self.items.iter().map(|item| item.bytes).sum::<usize>(),
            "the assembly counts the bytes of its items"
        );
    }

    fn push(&mut self, what: What, chunks: usize, bytes: usize) -> Vec<Slot> {
        let item = self.first + self.items.len() as u64;
        self.items.push_back(Item {
            what,
            extractions: vec![None; chunks],
            bytes,
        });
        self.chunks += chunks;
        self.bytes += bytes;
        (0..chunks).map(|chunk| Slot { item, chunk }).collect()
    }
}

impl Default for Assembly {
    fn default() -> Self {
        Assembly::new()
    }
}

impl Ready {
    /// Whether it begins a source that replaces another.
    pub fn begins_replacement(&self) -> bool {
        matches!(self.0.what, What::Begin(Beginning::Replace(_)))
    }

    /// The source, the position and the error of its first failed extraction.
    pub fn failure(&self) -> Option<(String, u32, String)> {
        let (What::Message { source, position, .. } | What::Learn { source, position, .. }) = &self.0.what
        else {
            return None;
        };
        let mut outcomes = self.0.extractions.iter().flatten();
        let error = outcomes.find_map(|outcome| outcome.as_ref().err())?;
        Some((source.clone(), *position, error.to_string()))
    }

    /// The messages that cannot be read of the source that it ends, if there are any.
    pub fn unread(&self) -> Option<(&str, &UnreadMessages)> {
        let What::End { source, ending } = &self.0.what else {
            return None;
        };
        let unread = ending.unread.as_ref()?;
        (unread.messages > 0).then_some((source.as_str(), unread))
    }

    /// Numbers of its messages, chunks and failures.
    pub fn count(&self) -> (u64, u64, u64) {
        let messages = u64::from(matches!(self.0.what, What::Message { .. }));
        let failures = self
            .0
            .extractions
            .iter()
            .flatten()
            .filter(|outcome| outcome.is_err())
            .count();
        (messages, self.0.extractions.len() as u64, failures as u64)
    }
}

/// Makes the changes that commit the items. Consecutive messages of one source share a change.
pub fn changes(ready: &[Ready], now: Timestamp) -> Vec<Change> {
    let mut changes = Vec::new();
    for Ready(item) in ready {
        match &item.what {
            What::Begin(Beginning::New(new)) => changes.push(Change::Begin(new.clone())),
            What::Begin(Beginning::Replace(new)) => {
                changes.push(Change::Delete {
                    source: new.name.clone(),
                });
                changes.push(Change::Begin(new.clone()));
            }
            What::Begin(Beginning::Resume { .. }) => {}
            What::Begin(Beginning::Grow { source, .. }) => changes.push(Change::Continue(source.clone())),
            What::End { source, ending } => {
                changes.push(Change::Complete {
                    source: source.clone(),
                });
                let said = SAY_ALIASES.iter().map(|verb| (*verb, "say"));
                if let Some(unread) = &ending.unread {
                    changes.push(Change::Unread {
                        source: source.clone(),
                        first: 0,
                        unread: unread.records(),
                        at: now,
                    });
                }
                let people = ending
                    .aliases
                    .iter()
                    .map(|(term, name)| (term.as_str(), name.as_str()));
                changes.extend(people.chain(said).map(|(term, text)| Change::Alias {
                    term: term.to_owned(),
                    related: RelatedTerm {
                        text: text.to_owned(),
                        weight: None,
                    },
                }));
            }
            What::Message {
                source,
                position,
                message,
                known,
            } => {
                let new = new_message(message, known, &item.extractions, now);
                match changes.last_mut() {
                    Some(Change::Append {
                        source: last,
                        messages,
                        first_position,
                    }) if last == source => {
                        assert_eq!(
                            *first_position as usize + messages.len(),
                            *position as usize,
                            "messages of a source follow each other"
                        );
                        messages.push(new);
                    }
                    _ => changes.push(Change::Append {
                        source: source.clone(),
                        first_position: *position,
                        messages: vec![new],
                    }),
                }
            }
            What::Learn {
                source,
                position,
                chunk,
            } => {
                if let Some(Some(Ok(extracted))) = item.extractions.first() {
                    changes.push(Change::Learn {
                        source: source.clone(),
                        learned: vec![Learned {
                            position: *position,
                            chunk: *chunk,
                            knowledge: extracted.extraction.clone().into_knowledge(),
                        }],
                    });
                }
            }
        }
    }
    changes
}

/// Makes a message. The knowledge from its own fields comes before the knowledge from its first chunk.
fn new_message(
    message: &Message,
    known: &[Knowledge],
    extractions: &[Option<OutcomeResult>],
    now: Timestamp,
) -> NewMessage {
    let mut knowledge = vec![(0, known.to_vec())];
    let mut failures = Vec::new();
    for (chunk, outcome) in (0..).zip(extractions) {
        match outcome {
            Some(Ok(extracted)) => {
                let found = extracted.extraction.clone().into_knowledge();
                match knowledge.last_mut() {
                    Some((last, items)) if *last == chunk => items.extend(found),
                    _ => knowledge.push((chunk, found)),
                }
            }
            Some(Err(error)) => failures.push(ChunkFailure {
                chunk,
                error: error.to_string(),
                at: now,
            }),
            None => {}
        }
    }
    NewMessage {
        message: message.clone(),
        knowledge,
        failures,
    }
}
