//! Tests of stores under power loss.
//!
//! A [`Volume`] is a file system in memory. SQLite reaches it through a VFS. The volume records a [`trace`]: each
//! change of a file or a name, each sync, and the [notes](note) of acknowledgements between them. A [`Disk`] replays a
//! trace up to a cut, and makes the images that a disk may then hold: it drops, reorders and tears unsynced changes. A
//! [`workload`] opens the stores of an image like a program does after the power returns, and compares them with the
//! notes.
//!
//! A [`BlockDisk`] does the same for a whole block device, from a [log](BlockLog) of its writes and flushes.
//!
//! One trace gives thousands of images, so the recording costs next to nothing.

pub mod block_log;
pub mod check;
pub mod disk;
pub mod error;
pub mod fate;
pub mod jobs;
pub mod limits;
pub mod note;
pub mod trace;
pub mod trial;
mod vfs;
pub mod volume;
pub mod workload;

pub use block_log::{BlockDisk, BlockLog};
pub use disk::Disk;
pub use trial::{Tried, replay, try_images};
pub use volume::{Syncs, Volume};
pub use workload::{Recording, Workload};
