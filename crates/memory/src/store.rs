//! The store of a knowledge base: the trait that recall and ingestion need, implemented for SQLite and PostgreSQL.
//!
//! Both stores pass one conformance suite (the feature `conformance`). Each call is one operation, which happens
//! completely or not at all. After `Ok`, its changes are on disk.

pub mod columns;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod conversations;
mod packed;
pub mod postgres;
mod posting;

pub mod similar;
pub mod sqlite;
pub mod vectors;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use gristmill_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::embed::Vector;
use crate::error::MemoryError;
use crate::knowledge::{Knowledge, RefOrdinal, SemanticRef};
use crate::message::{Message, MessageOrdinal};
use crate::property::Property;
use crate::source::Content;
pub use columns::Columns;
pub use postgres::PostgresKnowledge;
pub use sqlite::{SqliteKnowledge, SqliteKnowledgeOptions};
pub use vectors::{
    ChunkPlace, StoredEmbedder, VectorCounts, VectorCursor, VectorKey, VectorLists, VectorTexts,
};

/// A durable knowledge base, which tasks can share.
#[async_trait]
pub trait KnowledgeStore: Send + Sync + std::fmt::Debug + 'static {
    /// Applies changes in order, in one transaction.
    ///
    /// # Errors
    ///
    /// [`MemoryError::SourceUnknown`] for a change to an unknown source, [`MemoryError::Invalid`] for a change that
    /// contradicts the stored data (a message twice, a gap between positions), and errors of the database.
    async fn apply(&self, changes: Vec<Change>) -> Result<Applied, MemoryError>;

    // --- for recall ---

    /// Updates and returns the columns of all refs and messages, which recall keeps in memory.
    async fn columns(&self) -> Result<Arc<Columns>, MemoryError>;

    /// Looks up the postings of terms in lower case, in the order of `terms`. An unknown term has empty postings.
    async fn postings(&self, terms: Vec<String>) -> Result<Vec<Postings>, MemoryError>;

    /// Looks up the aliases of terms, in the order of `terms`; `None` for a term without aliases.
    async fn aliases(&self, terms: Vec<String>) -> Result<Vec<Option<Vec<RelatedTerm>>>, MemoryError>;

    /// Finds stored terms with a similar spelling (the same stem, common words, one letter's difference), best first,
    /// without the terms themselves.
    async fn similar_terms(&self, terms: Vec<String>) -> Result<Vec<Vec<RelatedTerm>>, MemoryError>;

    /// Finds the messages that contain [words](crate::words), in the order of `words`. The messages ascend, and each
    /// occurs as often as the word occurs in it.
    async fn messages_with(&self, words: Vec<String>) -> Result<Vec<Vec<u32>>, MemoryError>;

    /// Lists words of the index that begin with `prefix`, in order, at most `limit`.
    async fn words_beginning(&self, prefix: &str, limit: usize) -> Result<Vec<String>, MemoryError>;

    // --- vectors ---

    /// The embedder that made the vectors; `None` if there are no vectors.
    async fn embedder(&self) -> Result<Option<StoredEmbedder>, MemoryError>;

    /// Counts the vectors.
    async fn vector_counts(&self) -> Result<VectorCounts, MemoryError>;

    /// Lists terms and chunks after `cursor` that have no vector: about `limit` of them, terms first.
    async fn texts_without_vectors(
        &self,
        cursor: VectorCursor,
        limit: usize,
    ) -> Result<VectorTexts, MemoryError>;

    /// Finds for each vector the stored terms nearest to it, best first, with their cosines: at most `limit`, with a
    /// cosine of at least `cosine_min`.
    async fn nearest_terms(
        &self,
        vectors: Vec<Vector>,
        limit: usize,
        cosine_min: f64,
    ) -> Result<Vec<Vec<RelatedTerm>>, MemoryError>;

    /// Finds the messages from a number on whose chunks are nearest to a vector, best first, with the cosines of their
    /// nearest chunks: at most `limit`, with a cosine of at least `cosine_min`. Compares all chunks.
    async fn nearest_messages(
        &self,
        from: MessageOrdinal,
        vector: Vector,
        limit: usize,
        cosine_min: f64,
    ) -> Result<Vec<(MessageOrdinal, f64)>, MemoryError>;

    /// Lists the vectors of chunks after a place, in order, at most `limit`.
    async fn chunk_vectors(
        &self,
        after: Option<ChunkPlace>,
        limit: usize,
    ) -> Result<Vec<(ChunkPlace, Vector)>, MemoryError>;

    /// Computes the cosines of the nearest chunks of some messages to a vector. Leaves out messages without vectors.
    async fn cosines(
        &self,
        messages: Vec<MessageOrdinal>,
        vector: Vector,
    ) -> Result<Vec<(MessageOrdinal, f64)>, MemoryError>;

    /// The centres of the lists of vectors, and the end of the listed messages; `None` if there are no lists.
    async fn vector_lists(&self) -> Result<Option<VectorLists>, MemoryError>;

    /// Reads the entries of some lists of vectors. Leaves out empty lists.
    async fn list_entries(&self, lists: Vec<u32>) -> Result<Vec<Vec<u8>>, MemoryError>;

    // --- for reading ---

    /// Reads messages by their numbers, in the same order. Leaves out unknown ones.
    async fn messages(&self, ordinals: Vec<MessageOrdinal>) -> Result<Vec<StoredMessage>, MemoryError>;

    /// Reads refs by their numbers, in the same order. Leaves out unknown ones.
    async fn refs(&self, ordinals: Vec<RefOrdinal>) -> Result<Vec<SemanticRef>, MemoryError>;

    /// All sources, by name.
    async fn sources(&self) -> Result<Vec<Source>, MemoryError>;

    /// The source with this name.
    async fn source(&self, name: &str) -> Result<Option<Source>, MemoryError>;

    /// Reads the messages of a source from a position on, at most `limit`.
    async fn source_messages(
        &self,
        name: &str,
        from_position: u32,
        limit: u32,
    ) -> Result<Vec<StoredMessage>, MemoryError>;

    /// Lists the chunks whose extraction failed, in reading order.
    async fn failures(&self) -> Result<Vec<StoredFailure>, MemoryError>;

    /// Lists the sources that could not be read, by name.
    async fn source_failures(&self) -> Result<Vec<SourceFailure>, MemoryError>;

    /// Lists the messages that could not be read, by source and in reading order: of one source, or of all.
    async fn unread(&self, source: Option<&str>) -> Result<Vec<UnreadMessage>, MemoryError>;

    /// Lists all aliases, by term.
    async fn all_aliases(&self) -> Result<Vec<(String, RelatedTerm)>, MemoryError>;

    /// Counts everything in the knowledge base.
    async fn stats(&self) -> Result<KnowledgeStats, MemoryError>;
}

/// One change to a knowledge base.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Begins a source without messages. Its name must be free.
    Begin(NewSource),
    /// Appends messages to a source.
    Append {
        /// The source's name.
        source: String,
        /// The position of the first new message, which is the number of stored messages. It prevents a second addition.
        first_position: u32,
        /// The messages, in reading order.
        messages: Vec<NewMessage>,
    },
    /// Adds knowledge to stored messages, and clears the failures of their chunks.
    Learn {
        /// The source's name.
        source: String,
        /// The knowledge, in the order in which the refs get numbers.
        learned: Vec<Learned>,
    },
    /// Marks a source as complete.
    Complete {
        /// The source's name.
        source: String,
    },
    /// Deletes a source with its messages and their knowledge.
    Delete {
        /// The source's name.
        source: String,
    },
    /// Reopens a complete source that has grown. More messages follow.
    Continue(NewSource),
    /// Gives a source another name, which must be free: its file has moved.
    Move {
        /// The source's name.
        source: String,
        /// The new name.
        name: String,
    },
    /// Notes the [stamp](crate::source::Content::stamp) of a source's file, whose content is unchanged.
    Seen {
        /// The source's name.
        source: String,
        /// The stamp.
        stamp: Option<String>,
    },
    /// Records that a source cannot be read, or clears that record.
    SourceFailure {
        /// The name of the source, which need not be stored.
        source: String,
        /// The error; `None` if the source can be read now.
        error: Option<String>,
        /// The path of its file from the root, if it is one.
        place: Option<String>,
        /// The time of the failure.
        at: Timestamp,
    },
    /// Replaces the records of messages that could not be read, from a number on. [`Delete`](Change::Delete) removes all.
    Unread {
        /// The name of the source, which need not be stored.
        source: String,
        /// The number of the first replaced record.
        first: u32,
        /// The new records.
        unread: Vec<Unread>,
        /// The time of the failure.
        at: Timestamp,
    },
    /// Adds vectors to terms and chunks. Skips deleted terms and chunks. Fails with [`MemoryError::OtherEmbedder`] if
    /// another model made the stored vectors.
    Vectors {
        /// The model that made the vectors.
        model: String,
        /// The vectors, all with the same number of dimensions. The vector of a text without meaning may have none.
        vectors: Vec<(VectorKey, Vector)>,
    },
    /// Deletes all vectors, so that another embedder can make new ones.
    ForgetVectors,
    /// Replaces the lists of vectors. The deletion of any source deletes all lists.
    ListVectors {
        /// The centres of the lists, and the end of the listed messages.
        lists: VectorLists,
        /// The entries of each list, by its number.
        entries: Vec<Vec<u8>>,
        /// The number of deletions at which the vectors were read. If it has changed since, nothing is written.
        rewrites: i64,
    },
    /// Declares that a term may stand for others.
    Alias {
        /// The term that a question contains.
        term: String,
        /// The term that is searched for too.
        related: RelatedTerm,
    },
}

/// A new source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewSource {
    /// Its name: the path as the user wrote it.
    pub name: String,
    /// The name of its format.
    pub format: String,
    /// The digest of its bytes.
    pub digest: String,
    /// A description of how it is read and cut. With another description, an unchanged file counts as changed.
    pub settings: String,
    /// The offset from UTC of its times without a zone, in minutes; without one, the first that its messages tell.
    pub zone_minutes: Option<i16>,
    /// The time of the ingestion.
    pub ingested_at: Timestamp,
    /// The [stamp](crate::source::Content::stamp) of its file.
    pub stamp: Option<String>,
}

/// A message to store, with its knowledge.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NewMessage {
    /// The message.
    pub message: Message,
    /// The knowledge, by chunk.
    pub knowledge: Vec<(u32, Vec<Knowledge>)>,
    /// The chunks whose extraction failed.
    pub failures: Vec<ChunkFailure>,
}

/// A chunk whose extraction failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkFailure {
    /// The chunk.
    pub chunk: u32,
    /// The error.
    pub error: String,
    /// The time of the failure.
    pub at: Timestamp,
}

/// The knowledge of one chunk.
#[derive(Debug, Clone, PartialEq)]
pub struct Learned {
    /// The message's position in its source.
    pub position: u32,
    /// The chunk.
    pub chunk: u32,
    /// The knowledge.
    pub knowledge: Vec<Knowledge>,
}

/// The number of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Applied {
    /// Number of added messages.
    pub messages: u32,
    /// Number of added refs.
    pub refs: u32,
    /// Number of deleted refs.
    pub refs_deleted: u32,
}

/// A stored source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// Its name.
    pub name: String,
    /// The name of its format.
    pub format: String,
    /// The digest of its bytes.
    pub digest: String,
    /// A description of how it was read and cut.
    pub settings: String,
    /// Whether it has all its messages.
    pub complete: bool,
    /// Number of its messages.
    pub messages: u32,
    /// The offset from UTC of its times, in minutes.
    pub zone_minutes: Option<i16>,
    /// The time of the ingestion.
    pub ingested_at: Timestamp,
    /// The [stamp](crate::source::Content::stamp) of its file; `None` if it was no file.
    #[serde(default, skip_serializing)]
    pub stamp: Option<String>,
}

impl Source {
    /// The path of its file from the root, where it was when it was ingested; `None` if it was no file.
    pub fn place(&self) -> Option<&Path> {
        let place = self.stamp.as_deref().and_then(Content::place_of);
        // A path that was not UTF-8 leads nowhere, so nothing is to be concluded from it.
        let whole = place.filter(|place| !place.contains(char::REPLACEMENT_CHARACTER));
        whole.map(Path::new)
    }
}

/// A stored message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredMessage {
    /// Its number.
    pub ordinal: MessageOrdinal,
    /// Its source's name.
    pub source: String,
    /// Its position in its source.
    pub position: u32,
    /// The message.
    #[serde(flatten)]
    pub message: Message,
}

/// A stored failure of a chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredFailure {
    /// The message.
    pub message: MessageOrdinal,
    /// Its source's name.
    pub source: String,
    /// The position of the message in its source.
    pub position: u32,
    /// The chunk.
    pub chunk: u32,
    /// The error.
    pub error: String,
    /// The time of the failure.
    pub at: Timestamp,
}

/// A source that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceFailure {
    /// Its name.
    pub source: String,
    /// The error.
    pub error: String,
    /// The path of its file from the root, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The time of the failure.
    pub at: Timestamp,
}

/// A message that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// Its place in the source.
    pub place: String,
    /// The error, with source and place.
    pub error: String,
}

/// A stored record of a message that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnreadMessage {
    /// The name of its source.
    pub source: String,
    /// Its place in the source, as a person counts there.
    pub place: String,
    /// The error, with source and place.
    pub error: String,
    /// The time of the failure.
    pub at: Timestamp,
}

/// The postings of one term: the refs of each role in ascending order. A ref occurs as often as the term occurs in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Postings {
    /// The refs of each role that has any.
    pub by_property: Vec<(Property, Vec<u32>)>,
}

impl Postings {
    /// The refs of one role.
    pub fn of(&self, property: Property) -> &[u32] {
        let found = self.by_property.iter().find(|(found, _)| *found == property);
        found.map_or(&[], |(_, refs)| refs)
    }
}

/// A term that may stand for another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RelatedTerm {
    /// The term.
    pub text: String,
    /// The nearness, from 0 to 1; `None` if it counts as much as the term itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

/// The size of a knowledge base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KnowledgeStats {
    /// Number of sources.
    pub sources: u64,
    /// Number of messages.
    pub messages: u64,
    /// Number of entities.
    pub entities: u64,
    /// Number of actions, including inverse ones.
    pub actions: u64,
    /// Number of topics.
    pub topics: u64,
    /// Number of tags.
    pub tags: u64,
    /// Number of distinct terms.
    pub terms: u64,
    /// Number of occurrences of terms in refs.
    pub postings: u64,
    /// Number of aliases.
    pub aliases: u64,
    /// Number of chunks whose extraction failed.
    pub failures: u64,
    /// Bytes of the database.
    pub bytes: u64,
}

impl KnowledgeStats {
    /// Number of refs of all kinds.
    pub fn refs(&self) -> u64 {
        self.entities + self.actions + self.topics + self.tags
    }
}

/// Runs long work, or work that waits for the disk, on a thread that may block.
pub(crate) async fn blocking<T, F>(work: F) -> Result<T, MemoryError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, MemoryError> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        Err(_) => Err(MemoryError::invalid(
            "the runtime",
            "it was shut down during a query",
        )),
    }
}
