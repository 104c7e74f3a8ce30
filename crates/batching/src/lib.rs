//! What every batched hop of Gristmill is made of. Pure: no I/O, no jobs, no clock, no executor of its own.
//!
//! * [`group_commit()`]: operations that arrive while the last transaction ran go together into the next one.
//! * [`RampUp`]: how many jobs a worker claims next, so that it is busy and never hoards.
//! * [`OrderedWindow`]: results that arrive in any order leave in order, within bounds.
//! * [`BatchStats`]: how many batches each hop moved, how large, and why they ended.

mod batch_stats;
mod group_commit;
mod ordered_window;
mod ramp_up;

pub use batch_stats::{AtomicBatchStats, BatchStats, EndReason, HopRecorder, HopStats};
pub use group_commit::{
    Committer, EnqueueError, Group, GroupCommitError, GroupIntoIter, GroupLimits, Responder, Submitter,
    Ticket, group_commit,
};
pub use ordered_window::{InsertError, OrderedWindow};
pub use ramp_up::{RampUp, RampUpSettings};
