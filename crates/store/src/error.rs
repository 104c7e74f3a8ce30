//! What can go wrong in a store.

use std::path::PathBuf;

use gristmill_model::batch::InvalidBatch;
use gristmill_model::{BatchId, JobId, PackedError, RunId, WorkerId};

/// Why an operation was refused or failed. Nothing of it is stored, but for [`Unknown`](StoreError::Unknown).
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The batch itself is wrong.
    #[error(transparent)]
    InvalidBatch(#[from] InvalidBatch),
    /// A packed text is wrong.
    #[error(transparent)]
    InvalidPacked(#[from] PackedError),
    /// Other input is wrong; the text says what would be right.
    #[error("{0}")]
    InvalidInput(String),
    /// A key that another job has, where duplicates are refused.
    #[error("the key `{key}` {}; nothing of this submit is stored", match owner {
        Some(job) => format!("is that of job {job} already"),
        None => "stands twice in one batch".to_owned(),
    })]
    DuplicateKey {
        /// The key.
        key: String,
        /// Who has it; another one of the same batch, where `None`.
        owner: Option<JobId>,
    },
    /// A batch waits for one that there is not.
    #[error(
        "there is no batch {0} to wait for: it never existed, or it was pruned; leave it out, or submit it again"
    )]
    PrerequisiteUnknown(BatchId),
    /// The worker is not registered: it was silent for too long and its leases were given to others.
    #[error("worker {0} is not registered (any more): its heartbeat stopped and its leases were rescued")]
    WorkerUnknown(WorkerId),
    /// A run of that name exists.
    #[error("there is a run named `{0}` already")]
    RunExists(String),
    /// No such run.
    #[error("there is no run with the id {0}")]
    RunUnknown(RunId),
    /// The file is a database of something else.
    #[error("{} is not a Gristmill store (application id {application_id:#010x}); choose another file with --store", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What its header says.
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
    /// A development version has made the file or database.
    #[error(
        "{} has the layout of an earlier development version of Gristmill, which this program cannot read; \
         finish its jobs with that version, or use a new store", path.display()
    )]
    Development {
        /// The file or database.
        path: PathBuf,
    },
    /// Another program has changed the layout of the file or database since this one opened it.
    #[error(
        "another version of gristmill has changed the layout of {} while this process was running; \
         nothing of this operation is stored; start that version here, too", path.display()
    )]
    LayoutChanged {
        /// The file or database.
        path: PathBuf,
    },
    /// Somebody else holds the store's write lock for too long.
    #[error("{} is locked by another process that has been writing for over {waited_ms} ms; try again when it is done", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
        /// How long was waited.
        waited_ms: u64,
    },
    /// No room.
    #[error("the disk of {} is full: free some space and run the same command again; nothing that was acknowledged is lost", path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
    },
    /// The store cannot be written to.
    #[error("{} cannot be written: {reason}; check its permissions and its folder's", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The store cannot be opened.
    #[error("{} cannot be opened: {reason}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The file is damaged.
    #[error("{} is damaged: {reason}; restore it from a backup, or see what `PRAGMA integrity_check` says", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What the database said.
        reason: String,
    },
    /// The database cannot be reached.
    #[error("{database} could not be reached{}: {reason}; see that it runs, and try again", match waited_ms {
        0 => String::new(),
        waited_ms => format!(" for {waited_ms} ms"),
    })]
    Unreachable {
        /// Its address, without its password.
        database: String,
        /// How long was tried; 0, where once.
        waited_ms: u64,
        /// What the system or the database said last.
        reason: String,
    },
    /// The database was lost while it committed the operation, and could not be asked since. The operation may be
    /// stored.
    #[error(
        "{database} was lost while it committed, and could not be asked for {waited_ms} ms: {reason}; \
         what was sent may or may not be stored: look, once it runs, before you send it again"
    )]
    Unknown {
        /// Its address, without its password.
        database: String,
        /// How long was tried.
        waited_ms: u64,
        /// What the system or the database said last.
        reason: String,
    },
    /// Another error of the database.
    #[error("the database failed: {0}")]
    Database(String),
    /// The operation's code panicked; it was rolled back, and others go on.
    #[error("the operation panicked and was rolled back: {0}")]
    Panicked(String),
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// The refusal of a layout of a newer program.
    pub(crate) fn newer(path: PathBuf, found: crate::layout::Found, known: i64) -> StoreError {
        StoreError::NewerSchema {
            path,
            found: found.version,
            known,
            program: found.program,
        }
    }
}
