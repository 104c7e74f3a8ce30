//! The parts of every batched hop of Gristmill. They are pure: no I/O, no jobs, no clock, no executor of their own.
//!
//! * [`group_commit()`]: operations that arrive during a transaction go together into the next one.
//! * [`RampUp`]: the number of jobs that a worker claims next, so that it is busy and does not hoard jobs.
//! * [`OrderedWindow`]: results that arrive in any order leave in order, within bounds.
//! * [`BatchStats`]: the batches that each hop moved, their sizes, and the reasons for their ends.

mod batch_stats;
mod group_commit;
mod ordered_window;
mod ramp_up;

pub use batch_stats::{AtomicBatchStats, BatchStats, EndReason, HopRecorder, HopStats};
pub use group_commit::{
    Committer, EnqueueError, Group, GroupCommitError, GroupIntoIter, GroupLimits, Responder, Seat, Submitter,
    Ticket, group_commit,
};
pub use ordered_window::{InsertError, OrderedWindow};
pub use ramp_up::{RampUp, RampUpSettings};
