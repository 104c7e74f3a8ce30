//! The knowledge base in a PostgreSQL database, in a schema of its own: `gristmill_memory`.
//!
//! Every commit writes its rows from arrays, with one statement for each table. One transaction writes at a time, over
//! all processes. Queries run beside it on other connections.

mod connection;
mod index;
mod open;
mod read;
mod remove;
mod rows;
mod vectors;
mod words;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Mutex;

use crate::embed::Vector;
use crate::error::MemoryError;
use crate::knowledge::{RefOrdinal, SemanticRef};
use crate::message::MessageOrdinal;
use crate::store::{
    Applied, Change, ChunkPlace, Columns, KnowledgeStats, KnowledgeStore, Postings, RelatedTerm, Source,
    SourceFailure, StoredEmbedder, StoredFailure, StoredMessage, UnreadMessage, VectorCounts, VectorCursor,
    VectorLists, VectorTexts,
};
use connection::Database;

/// The digest by which a term is found.
type Digest = Vec<u8>;

/// Bytes of a digest. Among a billion texts, two have the same one with a chance of 1 in 10^21.
const DIGEST_BYTES: usize = 16;

/// Computes the digest of a text.
fn digest(text: &str) -> Digest {
    crate::digest::bytes_of(text.as_bytes())[..DIGEST_BYTES].to_vec()
}

/// Replaces NUL, which PostgreSQL cannot store in a text.
fn without_nul(text: String) -> String {
    if text.contains('\0') {
        text.replace('\0', "\u{fffd}")
    } else {
        text
    }
}

/// A knowledge base in a PostgreSQL database. Clones share it.
#[derive(Debug, Clone)]
pub struct PostgresKnowledge {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    database: Database,
    /// Held by the writer, so that the others wait here and occupy no connection.
    writing: Mutex<()>,
    columns: Mutex<Arc<Columns>>,
}

impl PostgresKnowledge {
    /// Opens the knowledge base at an address such as `postgresql://user@host/database`. Creates a missing one if
    /// `create` is set. `PGPASSWORD` may hold the password.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Missing`], [`MemoryError::NewerSchema`], [`MemoryError::Database`].
    pub async fn open(url: &str, create: bool) -> Result<PostgresKnowledge, MemoryError> {
        let database = Database::of(url)?;
        open::set_up(&database, create)
            .await
            .map_err(|failure| database.error(failure))?;
        Ok(PostgresKnowledge {
            shared: Arc::new(Shared {
                database,
                writing: Mutex::new(()),
                // A knowledge base never has -1 deletions, so the first use reads everything.
                columns: Mutex::new(Arc::new(Columns::new(-1))),
            }),
        })
    }
}

/// Runs a query on a connection of its own: `read!(self, connection => query)`.
macro_rules! read {
    ($self:ident, $connection:ident => $query:expr) => {{
        let database = &$self.shared.database;
        let answer = async {
            let $connection = &database.connection().await?;
            $query.await
        };
        answer.await.map_err(|failure| database.error(failure))
    }};
}

#[async_trait]
impl KnowledgeStore for PostgresKnowledge {
    async fn apply(&self, changes: Vec<Change>) -> Result<Applied, MemoryError> {
        let _turn = self.shared.writing.lock().await;
        let database = &self.shared.database;
        write::apply(database, changes)
            .await
            .map_err(|failure| database.error(failure))
    }

    async fn columns(&self) -> Result<Arc<Columns>, MemoryError> {
        let database = &self.shared.database;
        // The lock is held while the columns are read, so that two callers do not read the same rows.
        let mut columns = self.shared.columns.lock().await;
        let newer = async {
            let mut connection = database.connection().await?;
            read::columns(&mut connection, &columns).await
        };
        if let Some(newer) = newer.await.map_err(|failure| database.error(failure))? {
            *columns = Arc::new(newer);
        }
        Ok(columns.clone())
    }

    async fn postings(&self, terms: Vec<String>) -> Result<Vec<Postings>, MemoryError> {
        read!(self, connection => read::postings(connection, &terms))
    }

    async fn aliases(&self, terms: Vec<String>) -> Result<Vec<Option<Vec<RelatedTerm>>>, MemoryError> {
        read!(self, connection => read::aliases(connection, &terms))
    }

    async fn similar_terms(&self, terms: Vec<String>) -> Result<Vec<Vec<RelatedTerm>>, MemoryError> {
        read!(self, connection => read::similar_terms(connection, &terms))
    }

    async fn messages_with(&self, words: Vec<String>) -> Result<Vec<Vec<u32>>, MemoryError> {
        read!(self, connection => words::messages_with(connection, &words))
    }

    async fn words_beginning(&self, prefix: &str, limit: usize) -> Result<Vec<String>, MemoryError> {
        read!(self, connection => words::beginning(connection, prefix, limit))
    }

    async fn texts_without_vectors(
        &self,
        cursor: VectorCursor,
        limit: usize,
    ) -> Result<VectorTexts, MemoryError> {
        read!(self, connection => vectors::texts_without(connection, cursor, limit))
    }

    async fn nearest_terms(
        &self,
        vectors: Vec<Vector>,
        limit: usize,
        cosine_min: f64,
    ) -> Result<Vec<Vec<RelatedTerm>>, MemoryError> {
        read!(self, connection => vectors::nearest_terms(connection, &vectors, limit, cosine_min))
    }

    async fn nearest_messages(
        &self,
        from: MessageOrdinal,
        vector: Vector,
        limit: usize,
        cosine_min: f64,
    ) -> Result<Vec<(MessageOrdinal, f64)>, MemoryError> {
        read!(self, connection => vectors::nearest_messages(connection, from, &vector, limit, cosine_min))
    }

    async fn chunk_vectors(
        &self,
        after: Option<ChunkPlace>,
        limit: usize,
    ) -> Result<Vec<(ChunkPlace, Vector)>, MemoryError> {
        read!(self, connection => vectors::chunk_vectors(connection, after, limit))
    }

    async fn cosines(
        &self,
        messages: Vec<MessageOrdinal>,
        vector: Vector,
    ) -> Result<Vec<(MessageOrdinal, f64)>, MemoryError> {
        read!(self, connection => vectors::cosines(connection, &messages, &vector))
    }

    async fn vector_lists(&self) -> Result<Option<VectorLists>, MemoryError> {
        read!(self, connection => vectors::lists(connection))
    }

    async fn list_entries(&self, lists: Vec<u32>) -> Result<Vec<Vec<u8>>, MemoryError> {
        read!(self, connection => vectors::list_entries(connection, &lists))
    }

    async fn embedder(&self) -> Result<Option<StoredEmbedder>, MemoryError> {
        read!(self, connection => vectors::embedder(connection))
    }

    async fn vector_counts(&self) -> Result<VectorCounts, MemoryError> {
        read!(self, connection => vectors::counts(connection))
    }

    async fn messages(&self, ordinals: Vec<MessageOrdinal>) -> Result<Vec<StoredMessage>, MemoryError> {
        read!(self, connection => read::messages(connection, &ordinals))
    }

    async fn refs(&self, ordinals: Vec<RefOrdinal>) -> Result<Vec<SemanticRef>, MemoryError> {
        read!(self, connection => read::refs(connection, &ordinals))
    }

    async fn sources(&self) -> Result<Vec<Source>, MemoryError> {
        read!(self, connection => read::sources(connection, None))
    }

    async fn source(&self, name: &str) -> Result<Option<Source>, MemoryError> {
        let mut found = read!(self, connection => read::sources(connection, Some(name)))?;
        Ok(found.pop())
    }

    async fn source_messages(
        &self,
        name: &str,
        from_position: u32,
        limit: u32,
    ) -> Result<Vec<StoredMessage>, MemoryError> {
        read!(self, connection => read::source_messages(connection, name, from_position, limit))
    }

    async fn failures(&self) -> Result<Vec<StoredFailure>, MemoryError> {
        read!(self, connection => read::failures(connection))
    }

    async fn source_failures(&self) -> Result<Vec<SourceFailure>, MemoryError> {
        read!(self, connection => read::source_failures(connection))
    }

    async fn unread(&self, source: Option<&str>) -> Result<Vec<UnreadMessage>, MemoryError> {
        read!(self, connection => read::unread(connection, source))
    }

    async fn all_aliases(&self) -> Result<Vec<(String, RelatedTerm)>, MemoryError> {
        read!(self, connection => read::all_aliases(connection))
    }

    async fn stats(&self) -> Result<KnowledgeStats, MemoryError> {
        let columns = self.columns().await?;
        read!(self, connection => read::stats(connection, &columns))
    }
}
