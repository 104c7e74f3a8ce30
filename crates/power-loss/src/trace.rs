//! The record of a volume.

use serde::{Deserialize, Serialize};

use crate::note::Note;

/// One step of a trace. Files are numbered in the order in which they were made; a name can stand for several, one after
/// the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// An empty file was made.
    Create {
        /// Its name.
        name: String,
        /// Its number.
        file: usize,
    },
    /// A name was deleted.
    Delete {
        /// The name.
        name: String,
    },
    /// Bytes were written.
    Write {
        /// The file.
        file: usize,
        /// From this byte on.
        offset: usize,
        /// What was written.
        bytes: Vec<u8>,
    },
    /// A file was cut or grew.
    Truncate {
        /// The file.
        file: usize,
        /// Its bytes since then.
        length: usize,
    },
    /// A file was synced: its content is on disk when this is over.
    Sync {
        /// The file.
        file: usize,
    },
    /// The folder was synced: all names are on disk when this is over.
    SyncNames,
    /// The workload noted something.
    Note(Note),
}

impl Event {
    /// Whether a cut just before or after it is worth more than others.
    pub fn is_edge(&self) -> bool {
        matches!(
            self,
            Event::Sync { .. } | Event::SyncNames | Event::Note(_) | Event::Delete { .. }
        )
    }
}
