//! Stores under power loss.
//!
//! A [`Volume`] is a file system in memory, on which SQLite works by way of a VFS. It records a [`trace`]: each change of a
//! file or a name, each sync, and [notes](note) of what was acknowledged between them. A [`Disk`] replays a trace up to a cut,
//! and makes images of what a disk may hold then: it drops, reorders and tears what was not synced. A
//! [`workload`] opens the stores of an image as a program does after the power is back, and compares them with
//! the notes.
//!
//! A [`BlockDisk`] does the same for a whole block device, by a [log](BlockLog) of its writes and flushes.
//!
//! One trace gives thousands of images, so that recording costs next to nothing.

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
