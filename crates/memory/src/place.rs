//! Where a knowledge base is: the one function that opens it, whatever keeps it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::MemoryError;
use crate::store::{KnowledgeStore, PostgresKnowledge, SqliteKnowledge, SqliteKnowledgeOptions};

/// Where a knowledge base is, as people write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A SQLite file.
    File(PathBuf),
    /// A PostgreSQL database.
    Url(String),
}

impl Place {
    /// A path, or an address such as `postgres://user@host/database`.
    pub fn of(text: &str) -> Place {
        match ["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| text.starts_with(scheme))
        {
            true => Place::Url(text.to_owned()),
            false => Place::File(PathBuf::from(text)),
        }
    }

    /// Opens the knowledge base; makes it where there is none, if `create` says so.
    ///
    /// # Errors
    ///
    /// What the store says; [`MemoryError::Missing`] where there is none.
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

    /// The file of the jobs that its extractions are, where nothing else is said: `kb.jobs.db` beside `kb.db`, and
    /// `memory.jobs.db` here for a database.
    pub fn jobs_file(&self) -> PathBuf {
        match self {
            Place::File(path) => path.with_extension("jobs.db"),
            Place::Url(_) => Path::new("memory.jobs.db").to_path_buf(),
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

/// The address as it may be printed.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    match rest.split_once('@') {
        Some((user, rest)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}@{rest}")
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_files_from_databases() {
        assert_eq!(Place::of("kb.db").jobs_file(), Path::new("kb.jobs.db"));
        assert_eq!(Place::of("a/kb").jobs_file(), Path::new("a/kb.jobs.db"));
        let database = Place::of("postgres://ada:secret@db.example/bees");
        assert_eq!(database.to_string(), "postgres://ada@db.example/bees");
    }
}
