//! The data of every ref and message that recall needs, column by column.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use gristmill_model::Timestamp;

use crate::knowledge::{KnowledgeKind, RefOrdinal};
use crate::message::MessageOrdinal;
use crate::source::{Format, SourceKind};
use crate::store::conversations::Conversations;
use crate::words::Languages;

/// The time of a message without one, or of a deleted message.
const NEVER: i64 = i64::MIN;

/// The source of a deleted message.
const NOWHERE: u32 = u32::MAX;

/// A source, as recall needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceColumn {
    name: String,
    kind: SourceKind,
}

/// The kind and message of every ref; the time, source, length and thread of every message; the name of every source. Takes 5
/// bytes a ref and 21 a message.
#[derive(Debug, Clone, Default)]
pub struct Columns {
    kinds: Vec<u8>,
    messages: Vec<u32>,
    times: Vec<i64>,
    sources: Vec<u32>,
    lengths: Vec<u32>,
    /// 0 for a message without a thread.
    threads: Vec<u32>,
    source_kinds: Vec<SourceKind>,
    /// The sources by their numbers.
    known_sources: Arc<BTreeMap<u32, SourceColumn>>,
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
        self.threads.resize(self.times.len(), 0);
        self.source_kinds.resize(self.times.len(), SourceKind::default());
    }

    /// Sets consecutive refs of one message. `kinds` has the [letter](KnowledgeKind::letter) of each.
    pub fn set_refs(&mut self, first: RefOrdinal, message: MessageOrdinal, kinds: &[u8]) {
        let first = first.0 as usize;
        self.kinds[first..first + kinds.len()].copy_from_slice(kinds);
        self.messages[first..first + kinds.len()].fill(message.0);
    }

    /// The number of the newest source that is known; 0 if there is none.
    pub fn last_source(&self) -> i64 {
        self.known_sources
            .last_key_value()
            .map_or(0, |(&source, _)| i64::from(source))
    }

    /// Sets the name and format of a source. It comes before its messages.
    pub fn set_source(&mut self, source: i64, name: String, format: &str) {
        let kind = Format::from_name(format).map(Format::kind).unwrap_or_default();
        Arc::make_mut(&mut self.known_sources).insert(source_number(source), SourceColumn { name, kind });
    }

    /// Sets the source, time, number of words and thread of a new message.
    pub fn set_message(
        &mut self,
        message: MessageOrdinal,
        source: i64,
        at: Option<Timestamp>,
        words: u32,
        thread: u32,
    ) {
        self.conversations.take();
        let place = message.0 as usize;
        let source = source_number(source);
        self.sources[place] = source;
        self.lengths[place] = words;
        self.threads[place] = thread;
        self.source_kinds[place] = self
            .known_sources
            .get(&source)
            .map(|known| known.kind)
            .unwrap_or_default();
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

    /// The number of the source of a message that exists.
    pub fn source(&self, message: u32) -> Option<u32> {
        self.sources
            .get(message as usize)
            .copied()
            .filter(|&source| source != NOWHERE)
    }

    /// The numbers of the sources with this name, or in the folder with this name.
    pub fn sources_named(&self, name: &str) -> Vec<u32> {
        let folder = name.trim_end_matches('/');
        let is_in = |source: &SourceColumn| {
            let rest = source.name.strip_prefix(folder);
            source.name == name || (!folder.is_empty() && rest.is_some_and(|rest| rest.starts_with('/')))
        };
        let named = self.known_sources.iter().filter(|(_, source)| is_in(source));
        named.map(|(&number, _)| number).collect()
    }

    /// The digest of the thread of a message; 0 if it has none.
    pub fn thread(&self, message: u32) -> u32 {
        self.threads.get(message as usize).copied().unwrap_or(0)
    }

    /// What a message is to those beside it.
    pub fn source_kind(&self, message: u32) -> SourceKind {
        self.source_kinds
            .get(message as usize)
            .copied()
            .unwrap_or_default()
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

/// The number of a source in the columns.
fn source_number(source: i64) -> u32 {
    (source as u32).min(NOWHERE - 1)
}
