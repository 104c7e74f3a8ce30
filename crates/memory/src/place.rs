//! The place of a knowledge base, and the one function that opens it.

use std::path::PathBuf;
use std::sync::Arc;

use gristmill_engine::{Engine, EngineError, EngineSettings, is_postgres, open_store};
use gristmill_postgres_link::without_password;

use crate::error::MemoryError;
use crate::store::{KnowledgeStore, PostgresKnowledge, SqliteKnowledge, SqliteKnowledgeOptions};

/// The place of a knowledge base, as a user writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A SQLite file.
    File(PathBuf),
    /// A PostgreSQL database.
    Url(String),
}

impl Place {
    /// Parses a path, or an address such as `postgres://user@host/database`.
    pub fn of(text: &str) -> Place {
        if is_postgres(text) {
            Place::Url(text.to_owned())
        } else {
            Place::File(PathBuf::from(text))
        }
    }

    /// Opens the knowledge base. Creates a missing one if `create` is set.
    ///
    /// # Errors
    ///
    /// Errors of the store; [`MemoryError::Missing`] if the knowledge base does not exist.
    pub async fn open(&self, create: bool) -> Result<Arc<dyn KnowledgeStore>, MemoryError> {
        match self {
            Place::File(path) => {
                let options = SqliteKnowledgeOptions {
                    create,
                    ..SqliteKnowledgeOptions::default()
                };
                Ok(Arc::new(SqliteKnowledge::open(path, options)?))
            }
            Place::Url(url) => Ok(Arc::new(PostgresKnowledge::open(url, create).await?)),
        }
    }

    /// The default place of the extraction jobs: `kb.jobs.db` beside `kb.db`, or a schema of its own in the database of
    /// the knowledge base.
    pub fn jobs(&self) -> Place {
        match self {
            Place::File(path) => Place::File(path.with_extension("jobs.db")),
            Place::Url(url) => Place::Url(url.clone()),
        }
    }

    /// Opens an engine over the store of jobs at this place. Creates a missing store.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn open_engine(&self) -> Result<Engine, EngineError> {
        match self {
            Place::File(path) => Engine::open(path).await,
            Place::Url(url) => Engine::new(open_store(url).await?, EngineSettings::default()).await,
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::File(path) => path.display().fmt(formatter),
            Place::Url(url) => formatter.write_str(&without_password(url)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_files_from_databases() {
        assert_eq!(Place::of("kb.db").jobs(), Place::of("kb.jobs.db"));
        assert_eq!(Place::of("a/kb").jobs(), Place::of("a/kb.jobs.db"));
        let database = Place::of("postgres://ada:secret@db.example/bees");
        assert_eq!(database.to_string(), "postgres://ada@db.example/bees");
        assert_eq!(database.jobs(), database);
    }
}
