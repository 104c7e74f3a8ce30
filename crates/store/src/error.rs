//! Errors of a store.

use std::path::PathBuf;

use gristmill_model::batch::InvalidBatch;
use gristmill_model::{BatchId, JobId, PackedError, RunId, WorkerId};

/// A refused or failed operation. Nothing of it is stored, except for [`Unknown`](StoreError::Unknown).
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The batch is invalid.
    #[error(transparent)]
    InvalidBatch(#[from] InvalidBatch),
    /// A packed text is invalid.
    #[error(transparent)]
    InvalidPacked(#[from] PackedError),
    /// Other input is invalid; the text names the remedy.
    #[error("{0}")]
    InvalidInput(String),
    /// Another job has the key, and duplicates are rejected.
    #[error("the key `{key}` {}; nothing of this submit is stored", match owner {
        Some(job) => format!("belongs to job {job}"),
        None => "occurs twice in one batch".to_owned(),
    })]
    DuplicateKey {
        /// The key.
        key: String,
        /// The owner of the key; `None` if another job of the same batch has the key.
        owner: Option<JobId>,
    },
    /// The job that has the key has the maximum number of payloads waiting behind it.
    #[error(
        "the key `{key}` belongs to job {owner}, and no more payloads can wait behind it; nothing of this submit is \
         stored; submit again when the job has ended"
    )]
    KeyFull {
        /// The key.
        key: String,
        /// The job that has the key.
        owner: JobId,
    },
    /// A prerequisite does not exist.
    #[error(
        "option `after` names batch {0}, which does not exist or was pruned; omit it, or submit it again"
    )]
    PrerequisiteUnknown(BatchId),
    /// The worker is not registered: its heartbeats stopped, and its leases were rescued.
    #[error("worker {0} is not registered: its heartbeats stopped, and the store released its jobs")]
    WorkerUnknown(WorkerId),
    /// A run with this name exists.
    #[error("run `{0}` already exists")]
    RunExists(String),
    /// The run does not exist.
    #[error("the run with the id {0} does not exist")]
    RunUnknown(RunId),
    /// The file is a database of another program.
    #[error("{} is not a Gristmill store (application id {application_id:#010x}); choose another file", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// The id in its header.
        application_id: i64,
    },
    /// The file is a copy of a store that has lost its mark.
    #[error(
        "{} is a copy of a Gristmill store without its mark, as `.dump` and `.clone` of sqlite3 write it; give it back: \
sqlite3 {} 'PRAGMA application_id={application_id}'", path.display(), path.display()
    )]
    CopyWithoutMark {
        /// The file.
        path: PathBuf,
        /// The mark: the id in the header of a store.
        application_id: i64,
    },
    /// A newer program has changed the layout of the file or database.
    #[error(
        "{} has schema version {found} of gristmill {program}, and this program is gristmill {} with version {known}; \
         use gristmill {program} or newer", path.display(), env!("CARGO_PKG_VERSION")
    )]
    NewerSchema {
        /// The file or database.
        path: PathBuf,
        /// The version of its tables.
        found: i64,
        /// The version of the tables of this program.
        known: i64,
        /// The version of the newer program.
        program: String,
    },
    /// A development version created the file or database.
    #[error(
        "{} has the layout of an earlier development version of Gristmill, which this program cannot read; \
         finish its jobs with that version, or use a new store", path.display()
    )]
    Development {
        /// The file or database.
        path: PathBuf,
    },
    /// Another program has changed the layout of the file or database since this process opened it.
    #[error(
        "another version of gristmill has changed the layout of {} while this process was running; \
         nothing of this operation is stored; start that version here, too", path.display()
    )]
    LayoutChanged {
        /// The file or database.
        path: PathBuf,
    },
    /// The file or its log was moved, removed or replaced while this process had it open.
    #[error(
        "{} was moved, removed or replaced while this process had it open; nothing more is acknowledged, since it would be \
         stored where nobody looks; move it back, or stop this process and start it again on the right file", path.display()
    )]
    Moved {
        /// The file, or its log.
        path: PathBuf,
    },
    /// Another process has begun to write to a file that this process may only read.
    #[error("{} changed while it was read, since another process writes to it; retry", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// Another process held the store's write lock, or another transaction held rows of it, for too long.
    #[error("{} is locked by another process for over {waited_ms} ms; retry when it has finished", path.display())]
    Locked {
        /// The file or database.
        path: PathBuf,
        /// The duration of the wait.
        waited_ms: u64,
    },
    /// The disk is full.
    #[error(
        "the disk of {} is full: free some space and run the same command again; \
         acknowledged jobs and outcomes are not lost",
        path.display()
    )]
    DiskFull {
        /// The file.
        path: PathBuf,
    },
    /// The store cannot be written to.
    #[error("{} cannot be written: {reason}; check its permissions and its folder's", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// The system's message.
        reason: String,
    },
    /// The database accepts no writes of this program: it is a standby, or the role may only read.
    #[error("{database} is read-only: {reason}")]
    ReadOnlyDatabase {
        /// Its address, without its password.
        database: String,
        /// The reason and the remedy.
        reason: String,
    },
    /// The store cannot be opened.
    #[error("{} cannot be opened: {reason}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's message.
        reason: String,
    },
    /// The file is damaged.
    #[error("{} is damaged: {reason}; restore it from a backup; `gristmill check` says what is left", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The database's message.
        reason: String,
    },
    /// Rows of one batch are damaged. Other batches are not affected.
    #[error(
        "batch {batch} is damaged, in the table `{table}`: {what}; its open jobs are paused for the reason `damaged`; \
         see all damage with `gristmill check`; restore the store from a backup, or cancel the batch with \
         `gristmill cancel --batch {batch}` and submit its jobs again"
    )]
    Damaged {
        /// The batch.
        batch: BatchId,
        /// The table with the damaged rows.
        table: &'static str,
        /// A description of the damage.
        what: String,
    },
    /// The database cannot be reached.
    #[error("{database} could not be reached{}: {reason}; start it or check the network, and retry", match waited_ms {
        0 => String::new(),
        waited_ms => format!(" for {waited_ms} ms"),
    })]
    Unreachable {
        /// Its address, without its password.
        database: String,
        /// The duration of the attempts; 0 for a single attempt.
        waited_ms: u64,
        /// The last message of the system or the database.
        reason: String,
    },
    /// The connection was lost during the commit of the operation, and the database could not be asked since. The
    /// operation may be stored.
    #[error(
        "the connection to {database} broke during COMMIT, and reconnecting failed for {waited_ms} ms: {reason}; \
         the operation may or may not be stored: check the store before you repeat it"
    )]
    Unknown {
        /// Its address, without its password.
        database: String,
        /// The duration of the attempts.
        waited_ms: u64,
        /// The last message of the system or the database.
        reason: String,
    },
    /// Another error of the database.
    #[error("the database failed: {0}")]
    Database(String),
    /// The operation panicked and was rolled back. Other operations continue.
    #[error("the operation panicked and was rolled back: {0}")]
    Panicked(String),
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Whether the store is read-only, so that a retry does not help.
    pub fn is_read_only(&self) -> bool {
        matches!(
            self,
            StoreError::ReadOnly { .. } | StoreError::ReadOnlyDatabase { .. }
        )
    }

    /// Makes the error for a layout of a newer program.
    pub fn newer(path: PathBuf, found: crate::layout::Found, known: i64) -> StoreError {
        StoreError::NewerSchema {
            path,
            found: found.version,
            known,
            program: found.program,
        }
    }
}
