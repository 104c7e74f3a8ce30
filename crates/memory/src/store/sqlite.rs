//! The knowledge base in one SQLite file.
//!
//! One connection writes, and a few others read at the same time. Postings are packed: a term in a thousand refs of one
//! commit costs one or two rows.

mod open;
mod read;
mod remove;
mod vectors;
mod words;
mod write;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rusqlite::{Connection, ErrorCode};

use crate::embed::Vector;
use crate::error::MemoryError;
use crate::knowledge::{RefOrdinal, SemanticRef};
use crate::limits::READERS_MAX;
use crate::message::MessageOrdinal;
use crate::store::{
    Applied, Change, ChunkPlace, Columns, KnowledgeStats, KnowledgeStore, Postings, RelatedTerm, Source,
    SourceFailure, StoredEmbedder, StoredFailure, StoredMessage, UnreadMessage, VectorCounts, VectorCursor,
    VectorLists, VectorTexts, blocking,
};
pub use open::APPLICATION_ID;

/// Options of opening a knowledge base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SqliteKnowledgeOptions {
    /// Whether to create a missing file.
    pub create: bool,
    /// Whether every commit waits for the disk. Without it, a power cut may lose the last commits. A crash of the
    /// program alone loses none.
    pub sync: bool,
}

impl Default for SqliteKnowledgeOptions {
    fn default() -> Self {
        SqliteKnowledgeOptions {
            create: true,
            sync: true,
        }
    }
}

/// A knowledge base in one SQLite file. Clones share it.
#[derive(Clone)]
pub struct SqliteKnowledge {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    // The readers are closed before the writer. The last connection to close moves the log into the file, which readers
    // cannot do.
    readers: Mutex<Vec<Connection>>,
    writer: Mutex<Connection>,
    columns: Mutex<Arc<Columns>>,
}

impl std::fmt::Debug for SqliteKnowledge {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SqliteKnowledge")
            .field("path", &self.shared.path)
            .finish_non_exhaustive()
    }
}

impl SqliteKnowledge {
    /// Opens the knowledge base in the file at `path`.
    ///
    /// # Errors
    ///
    /// [`MemoryError::NotAKnowledgeBase`], [`MemoryError::NewerSchema`], [`MemoryError::Missing`],
    /// [`MemoryError::Locked`], [`MemoryError::Database`].
    pub fn open(
        path: impl AsRef<Path>,
        options: SqliteKnowledgeOptions,
    ) -> Result<SqliteKnowledge, MemoryError> {
        let path = path.as_ref().to_path_buf();
        let writer = open::open_writer(&path, options.create, options.sync)?;
        Ok(SqliteKnowledge {
            shared: Arc::new(Shared {
                path,
                writer: Mutex::new(writer),
                readers: Mutex::new(Vec::new()),
                // A knowledge base never has -1 deletions, so the first use reads everything.
                columns: Mutex::new(Arc::new(Columns::new(-1))),
            }),
        })
    }

    /// Runs a query on a connection of its own, on a thread that may block.
    async fn read<T, F>(&self, query: F) -> Result<T, MemoryError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let shared = self.shared.clone();
        blocking(move || shared.read(query)).await
    }
}

impl Shared {
    fn read<T>(&self, query: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, MemoryError> {
        let kept = locked(&self.readers).pop();
        let connection = match kept {
            Some(connection) => connection,
            None => open::open_reader(&self.path)?,
        };
        // One transaction for all statements of a query: they read one snapshot, and the file is locked once.
        let answer = connection
            .unchecked_transaction()
            .and_then(|transaction| query(&transaction))
            .map_err(|error| database_error(&self.path, &error));
        let mut readers = locked(&self.readers);
        if readers.len() < READERS_MAX {
            readers.push(connection);
        }
        answer
    }

    fn columns(&self) -> Result<Arc<Columns>, MemoryError> {
        // The lock is held while the columns are read, so that two callers do not read the same rows.
        let mut columns = locked(&self.columns);
        if let Some(newer) = self.read(|connection| read::columns(connection, &columns))? {
            *columns = Arc::new(newer);
        }
        Ok(columns.clone())
    }
}

#[async_trait]
impl KnowledgeStore for SqliteKnowledge {
    async fn apply(&self, changes: Vec<Change>) -> Result<Applied, MemoryError> {
        let shared = self.shared.clone();
        blocking(move || write::apply(&mut locked(&shared.writer), &shared.path, changes)).await
    }

    async fn columns(&self) -> Result<Arc<Columns>, MemoryError> {
        let shared = self.shared.clone();
        blocking(move || shared.columns()).await
    }

    async fn postings(&self, terms: Vec<String>) -> Result<Vec<Postings>, MemoryError> {
        self.read(move |connection| read::postings(connection, &terms))
            .await
    }

    async fn aliases(&self, terms: Vec<String>) -> Result<Vec<Option<Vec<RelatedTerm>>>, MemoryError> {
        self.read(move |connection| read::aliases(connection, &terms))
            .await
    }

    async fn similar_terms(&self, terms: Vec<String>) -> Result<Vec<Vec<RelatedTerm>>, MemoryError> {
        self.read(move |connection| read::similar_terms(connection, &terms))
            .await
    }

    async fn messages_with(&self, words: Vec<String>) -> Result<Vec<Vec<u32>>, MemoryError> {
        self.read(move |connection| words::messages_with(connection, &words))
            .await
    }

    async fn words_beginning(&self, prefix: &str, limit: usize) -> Result<Vec<String>, MemoryError> {
        let prefix = prefix.to_owned();
        self.read(move |connection| words::beginning(connection, &prefix, limit))
            .await
    }

    async fn texts_without_vectors(
        &self,
        cursor: VectorCursor,
        limit: usize,
    ) -> Result<VectorTexts, MemoryError> {
        self.read(move |connection| vectors::texts_without(connection, cursor, limit))
            .await
    }

    async fn nearest_terms(
        &self,
        vectors: Vec<Vector>,
        limit: usize,
        cosine_min: f64,
    ) -> Result<Vec<Vec<RelatedTerm>>, MemoryError> {
        self.read(move |connection| vectors::nearest_terms(connection, &vectors, limit, cosine_min))
            .await
    }

    async fn nearest_messages(
        &self,
        from: MessageOrdinal,
        vector: Vector,
        limit: usize,
        cosine_min: f64,
    ) -> Result<Vec<(MessageOrdinal, f64)>, MemoryError> {
        self.read(move |connection| vectors::nearest_messages(connection, from, &vector, limit, cosine_min))
            .await
    }

    async fn chunk_vectors(
        &self,
        after: Option<ChunkPlace>,
        limit: usize,
    ) -> Result<Vec<(ChunkPlace, Vector)>, MemoryError> {
        self.read(move |connection| vectors::chunk_vectors(connection, after, limit))
            .await
    }

    async fn cosines(
        &self,
        messages: Vec<MessageOrdinal>,
        vector: Vector,
    ) -> Result<Vec<(MessageOrdinal, f64)>, MemoryError> {
        self.read(move |connection| vectors::cosines(connection, &messages, &vector))
            .await
    }

    async fn vector_lists(&self) -> Result<Option<VectorLists>, MemoryError> {
        self.read(vectors::lists).await
    }

    async fn list_entries(&self, lists: Vec<u32>) -> Result<Vec<Vec<u8>>, MemoryError> {
        self.read(move |connection| vectors::list_entries(connection, &lists))
            .await
    }

    async fn embedder(&self) -> Result<Option<StoredEmbedder>, MemoryError> {
        self.read(vectors::embedder).await
    }

    async fn vector_counts(&self) -> Result<VectorCounts, MemoryError> {
        self.read(vectors::counts).await
    }

    async fn messages(&self, ordinals: Vec<MessageOrdinal>) -> Result<Vec<StoredMessage>, MemoryError> {
        self.read(move |connection| read::messages(connection, &ordinals))
            .await
    }

    async fn refs(&self, ordinals: Vec<RefOrdinal>) -> Result<Vec<SemanticRef>, MemoryError> {
        self.read(move |connection| read::refs(connection, &ordinals))
            .await
    }

    async fn sources(&self) -> Result<Vec<Source>, MemoryError> {
        self.read(|connection| read::sources(connection, None)).await
    }

    async fn source(&self, name: &str) -> Result<Option<Source>, MemoryError> {
        let name = name.to_owned();
        self.read(move |connection| Ok(read::sources(connection, Some(&name))?.pop()))
            .await
    }

    async fn source_messages(
        &self,
        name: &str,
        from_position: u32,
        limit: u32,
    ) -> Result<Vec<StoredMessage>, MemoryError> {
        let name = name.to_owned();
        self.read(move |connection| read::source_messages(connection, &name, from_position, limit))
            .await
    }

    async fn failures(&self) -> Result<Vec<StoredFailure>, MemoryError> {
        self.read(read::failures).await
    }

    async fn source_failures(&self) -> Result<Vec<SourceFailure>, MemoryError> {
        self.read(read::source_failures).await
    }

    async fn unread(&self, source: Option<&str>) -> Result<Vec<UnreadMessage>, MemoryError> {
        let source = source.map(str::to_owned);
        self.read(move |connection| read::unread(connection, source.as_deref()))
            .await
    }

    async fn all_aliases(&self) -> Result<Vec<(String, RelatedTerm)>, MemoryError> {
        self.read(read::all_aliases).await
    }

    async fn stats(&self) -> Result<KnowledgeStats, MemoryError> {
        let shared = self.shared.clone();
        blocking(move || {
            let columns = shared.columns()?;
            shared.read(|connection| read::stats(connection, &columns))
        })
        .await
    }
}

/// Locks a mutex, even after a panic elsewhere. The data is whole, because a dropped transaction rolls back.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn database_error(path: &Path, error: &rusqlite::Error) -> MemoryError {
    let path = path.to_path_buf();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => MemoryError::Locked { path },
        Some(ErrorCode::NotADatabase) => MemoryError::NotAKnowledgeBase {
            path,
            application_id: 0,
        },
        _ => MemoryError::Database {
            path,
            reason: error.to_string(),
        },
    }
}

/// Makes the error for invalid stored text, which another program wrote.
fn damaged(what: &str, reason: impl std::fmt::Display) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(
        0,
        rusqlite::types::Type::Text,
        format!("{what} is damaged: {reason}").into(),
    )
}
