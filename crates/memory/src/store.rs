//! Where knowledge is kept: the trait that recall and ingestion need of a database, SQLite and PostgreSQL.
//!
//! Every store passes the same conformance suite (the feature `conformance`). Each call is one operation: it holds as a whole or
//! not at all, and when it has answered `Ok`, what it did is on disk.

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

use std::sync::Arc;

use async_trait::async_trait;
use gristmill_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::embed::Vector;
use crate::error::MemoryError;
use crate::knowledge::{Knowledge, RefOrdinal, SemanticRef};
use crate::message::{Message, MessageOrdinal};
use crate::property::Property;
pub use columns::Columns;
pub use postgres::PostgresKnowledge;
pub use sqlite::{SqliteKnowledge, SqliteKnowledgeOptions};
pub use vectors::{
    ChunkPlace, StoredEmbedder, VectorCounts, VectorCursor, VectorKey, VectorLists, VectorTexts,
};

/// A durable knowledge base. Object-safe, shared between tasks.
#[async_trait]
pub trait KnowledgeStore: Send + Sync + std::fmt::Debug + 'static {
    /// Carries out changes, in order, all in one transaction or none.
    ///
    /// # Errors
    ///
    /// [`MemoryError::SourceUnknown`] for a change to a source that is not there, [`MemoryError::Invalid`] for one
    /// that does not fit what is stored (a message twice, a gap between positions), and what the database says.
    async fn apply(&self, changes: Vec<Change>) -> Result<Applied, MemoryError>;

    // --- for recall ---

    /// The data of every ref and message for recall, in memory. This call updates it.
    async fn columns(&self) -> Result<Arc<Columns>, MemoryError>;

    /// Where terms stand, in the order of `terms`; empty for an unknown one. In lower case, as they are stored.
    async fn postings(&self, terms: Vec<String>) -> Result<Vec<Postings>, MemoryError>;

    /// The aliases of terms, in the order of `terms`. `None` where a term has none.
    async fn aliases(&self, terms: Vec<String>) -> Result<Vec<Option<Vec<RelatedTerm>>>, MemoryError>;

    /// Stored terms that are written like `terms` (the same stem, words in common, a letter's difference), best
    /// first, without the terms themselves.
    async fn similar_terms(&self, terms: Vec<String>) -> Result<Vec<Vec<RelatedTerm>>, MemoryError>;

    /// The messages in which [words](crate::words) stand, in the order of `words`: ascending, each as often as the word
    /// stands in it.
    async fn messages_with(&self, words: Vec<String>) -> Result<Vec<Vec<u32>>, MemoryError>;

    /// Words of the index that begin with `prefix`, in order, at most `limit`.
    async fn words_beginning(&self, prefix: &str, limit: usize) -> Result<Vec<String>, MemoryError>;

    // --- vectors ---

    /// The embedder that made the vectors; `None` where there are none.
    async fn embedder(&self) -> Result<Option<StoredEmbedder>, MemoryError>;

    /// How many vectors there are.
    async fn vector_counts(&self) -> Result<VectorCounts, MemoryError>;

    /// Terms and chunks after `cursor` that have no vector, at most `limit` of them: terms first.
    async fn texts_without_vectors(
        &self,
        cursor: VectorCursor,
        limit: usize,
    ) -> Result<VectorTexts, MemoryError>;

    /// For each vector, the stored terms nearest to it, best first, with their cosines: at most `limit` of each, with a
    /// cosine of at least `cosine_min`.
    async fn nearest_terms(
        &self,
        vectors: Vec<Vector>,
        limit: usize,
        cosine_min: f64,
    ) -> Result<Vec<Vec<RelatedTerm>>, MemoryError>;

    /// The messages from a number on with the chunks nearest to a vector, best first, with the cosines of their nearest
    /// chunks: at most `limit`, with a cosine of at least `cosine_min`. Compares all of them.
    async fn nearest_messages(
        &self,
        from: MessageOrdinal,
        vector: Vector,
        limit: usize,
        cosine_min: f64,
    ) -> Result<Vec<(MessageOrdinal, f64)>, MemoryError>;

    /// The vectors of chunks after a chunk of a message, in order, at most `limit`.
    async fn chunk_vectors(
        &self,
        after: Option<ChunkPlace>,
        limit: usize,
    ) -> Result<Vec<(ChunkPlace, Vector)>, MemoryError>;

    /// The cosines of the nearest chunks of some messages to a vector. A message without vectors is left out.
    async fn cosines(
        &self,
        messages: Vec<MessageOrdinal>,
        vector: Vector,
    ) -> Result<Vec<(MessageOrdinal, f64)>, MemoryError>;

    /// The centres of the lists of vectors, and the messages that they hold; `None` without lists.
    async fn vector_lists(&self) -> Result<Option<VectorLists>, MemoryError>;

    /// The entries of some lists of vectors, those without any left out.
    async fn list_entries(&self, lists: Vec<u32>) -> Result<Vec<Vec<u8>>, MemoryError>;

    // --- for reading ---

    /// Messages by their numbers, in the same order; unknown ones are left out.
    async fn messages(&self, ordinals: Vec<MessageOrdinal>) -> Result<Vec<StoredMessage>, MemoryError>;

    /// Refs by their numbers, in the same order; unknown ones are left out.
    async fn refs(&self, ordinals: Vec<RefOrdinal>) -> Result<Vec<SemanticRef>, MemoryError>;

    /// All sources, by name.
    async fn sources(&self) -> Result<Vec<Source>, MemoryError>;

    /// The source of that name.
    async fn source(&self, name: &str) -> Result<Option<Source>, MemoryError>;

    /// The messages of a source from a position on, at most `limit`.
    async fn source_messages(
        &self,
        name: &str,
        from_position: u32,
        limit: u32,
    ) -> Result<Vec<StoredMessage>, MemoryError>;

    /// The chunks whose extraction failed, in reading order.
    async fn failures(&self) -> Result<Vec<StoredFailure>, MemoryError>;

    /// The sources that could not be read, by name.
    async fn source_failures(&self) -> Result<Vec<SourceFailure>, MemoryError>;

    /// All aliases, by term.
    async fn all_aliases(&self) -> Result<Vec<(String, RelatedTerm)>, MemoryError>;

    /// How much there is of everything.
    async fn stats(&self) -> Result<KnowledgeStats, MemoryError>;
}

/// One change to a knowledge base.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Begins a source, still without messages. Its name must be free.
    Begin(NewSource),
    /// Adds messages after those that a source has.
    Append {
        /// The source's name.
        source: String,
        /// The position of the first one: how many messages the source has. Guards against adding twice.
        first_position: u32,
        /// In reading order.
        messages: Vec<NewMessage>,
    },
    /// Adds knowledge to messages that are there, and takes back their failures of those chunks.
    Learn {
        /// The source's name.
        source: String,
        /// In the order in which the refs are to be numbered.
        learned: Vec<Learned>,
    },
    /// Says that a source has all its messages.
    Complete {
        /// The source's name.
        source: String,
    },
    /// Deletes a source with its messages and all that is known of them.
    Delete {
        /// The source's name.
        source: String,
    },
    /// Says that a complete source goes on: it has grown to what this describes, and more messages come.
    Continue(NewSource),
    /// Records that a source cannot be read, or takes that back.
    SourceFailure {
        /// The source's name. It need not be there.
        source: String,
        /// The error; `None` where it could be read now.
        error: Option<String>,
        /// When.
        at: Timestamp,
    },
    /// Gives vectors to terms and chunks. Skips terms and chunks that were deleted. Refused with
    /// [`MemoryError::OtherEmbedder`] where another model made the vectors that are there.
    Vectors {
        /// The model that made them.
        model: String,
        /// The vectors, all of the same number of dimensions; that of a text without meaning may have none.
        vectors: Vec<(VectorKey, Vector)>,
    },
    /// Deletes all vectors, so that another embedder can make new ones.
    ForgetVectors,
    /// Writes the lists of vectors anew. A source that is deleted takes all lists with it.
    ListVectors {
        /// Their centres, and the messages that they hold.
        lists: VectorLists,
        /// The entries of each list, by its number.
        entries: Vec<Vec<u8>>,
        /// How often something had been deleted when they were read; where that has changed, nothing is written.
        rewrites: i64,
    },
    /// Says that a term may stand for others.
    Alias {
        /// The term that is asked for.
        term: String,
        /// Its further results.
        related: RelatedTerm,
    },
}

/// A source that is begun.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewSource {
    /// Its name: a path, as it was given.
    pub name: String,
    /// Which reader reads it.
    pub format: String,
    /// Of its bytes.
    pub digest: String,
    /// How it is cut and read; with another text, an unchanged file counts as changed.
    pub settings: String,
    /// The offset from UTC of its times, in minutes, where they tell none themselves.
    pub zone_minutes: Option<i16>,
    /// When it is ingested.
    pub ingested_at: Timestamp,
}

/// A message to be stored, with what is known of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NewMessage {
    /// The message.
    pub message: Message,
    /// The knowledge, by chunk.
    pub knowledge: Vec<(u32, Vec<Knowledge>)>,
    /// Chunks whose extraction failed, with the error.
    pub failures: Vec<ChunkFailure>,
}

/// A chunk whose extraction failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkFailure {
    /// The chunk.
    pub chunk: u32,
    /// The error.
    pub error: String,
    /// When.
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

/// The written counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Applied {
    /// Messages that were added.
    pub messages: u32,
    /// Refs that were added.
    pub refs: u32,
    /// Refs that were deleted.
    pub refs_deleted: u32,
}

/// A source as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// Its name.
    pub name: String,
    /// Which reader read it.
    pub format: String,
    /// Of its bytes.
    pub digest: String,
    /// How it was cut and read.
    pub settings: String,
    /// Whether it has all its messages.
    pub complete: bool,
    /// How many it has.
    pub messages: u32,
    /// The offset from UTC of its times, in minutes.
    pub zone_minutes: Option<i16>,
    /// When it was ingested.
    pub ingested_at: Timestamp,
}

/// A message as it is stored.
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

/// A failed chunk as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredFailure {
    /// The message.
    pub message: MessageOrdinal,
    /// Its source's name.
    pub source: String,
    /// Its position in its source.
    pub position: u32,
    /// The chunk.
    pub chunk: u32,
    /// The error.
    pub error: String,
    /// When.
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
    /// When.
    pub at: Timestamp,
}

/// Where one term stands: refs ascending, by role. A ref stands there as often as the term stands in it.
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
    /// How near, from 0 to 1; `None` for as good as the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

/// How much there is of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KnowledgeStats {
    /// Sources.
    pub sources: u64,
    /// Messages.
    pub messages: u64,
    /// Refs by kind.
    pub entities: u64,
    /// Actions, inverse ones among them.
    pub actions: u64,
    /// Topics.
    pub topics: u64,
    /// Tags.
    pub tags: u64,
    /// Distinct terms.
    pub terms: u64,
    /// Places where terms stand.
    pub postings: u64,
    /// Aliases.
    pub aliases: u64,
    /// Chunks whose extraction failed.
    pub failures: u64,
    /// Bytes of the database.
    pub bytes: u64,
}

impl KnowledgeStats {
    /// Refs of all kinds.
    pub fn refs(&self) -> u64 {
        self.entities + self.actions + self.topics + self.tags
    }
}

/// Runs what takes long, or waits for the disk, on a thread where it may.
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
