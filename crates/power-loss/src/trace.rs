//! The trace: the record of a volume.

use serde::{Deserialize, Serialize};

use crate::note::Note;

/// One event of a trace. Files are numbered in the order of their creation. A name can refer to several files, one
/// after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// An empty file was made.
    Create {
        /// The name of the file.
        name: String,
        /// The number of the file.
        file: usize,
    },
    /// A name was deleted.
    Delete {
        /// The deleted name.
        name: String,
    },
    /// Bytes were written.
    Write {
        /// The number of the file.
        file: usize,
        /// The first written byte.
        offset: usize,
        /// The written bytes.
        bytes: Vec<u8>,
    },
    /// The length of a file changed.
    Truncate {
        /// The number of the file.
        file: usize,
        /// The new length in bytes.
        length: usize,
    },
    /// A file was synced: its content is on disk after this event.
    Sync {
        /// The number of the file.
        file: usize,
    },
    /// The folder was synced: all names are on disk after this event.
    SyncNames,
    /// The workload left a note.
    Note(Note),
}

impl Event {
    /// Reports whether a cut next to this event is more valuable than other cuts.
    pub fn is_edge(&self) -> bool {
        matches!(
            self,
            Event::Sync { .. } | Event::SyncNames | Event::Note(_) | Event::Delete { .. }
        )
    }
}
