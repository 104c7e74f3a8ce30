//! The layout of a database: its tables, and the views, functions and triggers over them. The stores of jobs and of
//! knowledge use this module to migrate their databases to the layout of the program that opens them.
//!
//! Tables have versions: version 1 creates them, and each later version is a migration. Views, functions and triggers
//! are the *code* of a layout, and have no versions. A database records a digest of its code, and a program with
//! another digest replaces the whole code. Both happen in one transaction under a lock, so that a process finds either
//! the old layout or the new one.
//!
//! `docs/migrations.md` describes how to make a migration.

use sha2::{Digest, Sha256};

/// The version of this program, which a database records.
pub const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// The layout that this program has in a database.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The tables: version 1, and one migration for each later version. Released ones never change.
    pub tables: &'static [&'static str],
    /// The views, functions and triggers, in the order of their creation.
    pub code: &'static [&'static str],
}

/// The layout that a database records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The version of its tables.
    pub version: i64,
    /// The digest of the files that created them.
    pub tables: String,
    /// The digest of its code.
    pub code: String,
    /// The version of the program that made this layout.
    pub program: String,
    /// The views, functions and triggers of the program, in the form that `DROP` takes.
    pub objects: Vec<String>,
}

/// The reason why a database does not have the layout of this program.
#[derive(Debug)]
pub enum LayoutError<E> {
    /// A newer program has changed the layout.
    Newer(Found),
    /// A development version made it, whose tables belong to no release.
    Development,
    /// The tables cannot be changed, or the code cannot be replaced.
    Failed {
        /// The found version; 0 for a new database.
        found: i64,
        /// The database's message.
        cause: E,
    },
    /// The database failed otherwise.
    Database(E),
}

impl<E> From<E> for LayoutError<E> {
    fn from(error: E) -> Self {
        LayoutError::Database(error)
    }
}

impl Layout {
    /// The version of the tables.
    pub fn version(&self) -> i64 {
        i64::try_from(self.tables.len()).unwrap_or(i64::MAX)
    }

    /// The digest of the code.
    pub fn code_digest(&self) -> String {
        digest(self.code)
    }

    /// The digest of the tables.
    pub fn tables_digest(&self) -> String {
        digest(self.tables)
    }

    /// The identity of the layout.
    pub fn id(&self) -> String {
        format!(
            "{}-{}-{}",
            self.version(),
            self.tables_digest(),
            self.code_digest()
        )
    }

    /// Whether the database has this layout.
    ///
    /// # Errors
    ///
    /// [`LayoutError::Newer`] for a database of a newer program, [`LayoutError::Development`].
    pub fn is_that_of<E>(&self, found: &Found) -> Result<bool, LayoutError<E>> {
        if found.version > self.version() {
            return Err(LayoutError::Newer(found.clone()));
        }
        let (made_by, migrations) = self.split_at(found.version);
        if found.tables != digest(made_by) {
            return Err(LayoutError::Development);
        }
        if migrations.is_empty() && found.code == self.code_digest() {
            return Ok(true);
        }
        if release(&found.program) > release(PROGRAM) {
            Err(LayoutError::Newer(found.clone()))
        } else {
            Ok(false)
        }
    }

    /// Splits the files into those of this version, and the later migrations.
    pub fn split_at(&self, version: i64) -> (&'static [&'static str], &'static [&'static str]) {
        let made = usize::try_from(version).unwrap_or(0);
        self.tables.split_at(made.min(self.tables.len()))
    }
}

/// Computes a digest of files, in hexadecimal.
fn digest(files: &[&str]) -> String {
    let mut digest = Sha256::new();
    for file in files {
        digest.update(file.len().to_le_bytes());
        digest.update(file);
    }
    let bytes = &digest.finalize()[..16];
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the numbers of a version such as `1.12.3`, for comparison.
fn release(version: &str) -> Vec<u64> {
    version
        .split(['.', '-', '+'])
        .map_while(|number| number.parse().ok())
        .collect()
}
