//! Group commit: operations that gather during a transaction go together into the next one.
//!
//! Many callers hold a [`Submitter`], and one thread or task holds the [`Committer`]. A caller hands over an operation
//! and waits for its own reply. The committer takes all gathered operations, executes them at one fixed cost (a
//! transaction, an fsync, a round trip), and then replies to each caller. There is no timer. A lone caller is served at
//! once, and groups grow by themselves when the committer gets slower or callers get more. Where a hand-over to the committer
//! would take longer than the operation, a lone caller carries it out itself, with the state that a [`Seat`] holds for both.
//!
//! ```
//! use gristmill_batching::{GroupLimits, group_commit};
//!
//! let limits = GroupLimits {
//!     operations_max: 100,
//!     weight_max: 1 << 20,
//!     queue_operations_max: 1_000,
//!     queue_weight_max: 8 << 20,
//! };
//! let (submitter, mut committer) = group_commit::<u64, u64>(limits);
//! let committing = std::thread::spawn(move || {
//!     let mut total = 0;
//!     while let Some(group) = committer.next_group() {
//!         // One transaction for all of them, and then the replies.
//!         for (operation, responder) in group {
//!             total += operation;
//!             responder.reply(total);
//!         }
//!     }
//! });
//! assert_eq!(submitter.submit_blocking(40, 8), Ok(40));
//! assert_eq!(submitter.submit_blocking(2, 8), Ok(42));
//! drop(submitter);
//! committing.join().unwrap();
//! ```

mod committer;
mod group;
mod queue;
mod seat;
mod spin;
mod submitter;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;
mod ticket;
mod waiter;

pub use committer::Committer;
pub use group::{Group, GroupIntoIter};
pub use seat::Seat;
pub use submitter::Submitter;
pub use ticket::{Responder, Ticket};

use queue::Shared;
use sync::Arc;

/// The limits of one group, and of the queue in front of the committer. The caller chooses the unit of weight,
/// usually bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupLimits {
    /// The largest number of operations in one group, at least 1.
    pub operations_max: usize,
    /// The largest weight of one group. A heavier operation gets a group of its own.
    pub weight_max: usize,
    /// The largest number of operations that wait for the committer, at least 1. Further callers wait for space.
    pub queue_operations_max: usize,
    /// The largest weight of the operations that wait for the committer. A heavier operation enters an empty
    /// queue.
    pub queue_weight_max: usize,
}

/// The reason an operation has no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GroupCommitError {
    /// The committer stopped before it took the operation. The operation was not carried out.
    #[error(
        "the operation was not carried out: its committer has stopped; submit it again once the store is open"
    )]
    Closed,
    /// The committer took the operation, then panicked or dropped the group without a reply.
    #[error(
        "the committer gave up on the operation without a reply: it may or may not have been carried out; \
         look before submitting it again"
    )]
    Abandoned,
}

/// The reason [`Submitter::enqueue`] refused an operation, and the operation itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnqueueError<Op> {
    /// The queue is full, or other callers already wait for space.
    #[error("the queue of operations is full; wait for a reply, or enqueue with enqueue_when_space")]
    Full(Op),
    /// The committer has stopped.
    #[error("the operation was not enqueued: its committer has stopped")]
    Closed(Op),
}

/// Makes a group commit: a submitter, which callers clone, and the only committer.
///
/// # Panics
///
/// If `operations_max` or `queue_operations_max` is 0: nothing could ever be committed.
pub fn group_commit<Op, Reply>(limits: GroupLimits) -> (Submitter<Op, Reply>, Committer<Op, Reply>) {
    assert!(
        limits.operations_max > 0,
        "GroupLimits::operations_max must be at least 1"
    );
    assert!(
        limits.queue_operations_max > 0,
        "GroupLimits::queue_operations_max must be at least 1"
    );
    let shared = Arc::new(Shared::new(limits));
    (Submitter::new(shared.clone()), Committer::new(shared))
}
