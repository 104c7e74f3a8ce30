//! Group commit: whatever operations have gathered while the last transaction ran go together into the next
//! one.
//!
//! Many callers hold a [`Submitter`]; one thread or task holds the [`Committer`]. A caller hands over an
//! operation and waits for its own reply. The committer takes everything that has gathered, carries it out at
//! one fixed cost (a transaction, an fsync, a round trip), and then replies to each. There is no timer: a
//! lone caller is served at once, and groups grow by themselves as the committer gets slower or callers more.
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
mod spin;
mod submitter;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;
mod ticket;
mod waiter;

pub use committer::Committer;
pub use group::{Group, GroupIntoIter};
pub use submitter::Submitter;
pub use ticket::{Responder, Ticket};

use queue::Shared;
use sync::Arc;

/// How much goes into one group, and how much may wait. Weight is whatever the caller measures its operations
/// in, as a rule bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupLimits {
    /// Operations in one group, at least 1.
    pub operations_max: usize,
    /// Weight of one group. An operation that alone is heavier goes in a group of its own.
    pub weight_max: usize,
    /// Operations that wait for the committer, at least 1; further callers wait for space.
    pub queue_operations_max: usize,
    /// Weight that waits for the committer. An operation that alone is heavier enters when nothing else
    /// waits.
    pub queue_weight_max: usize,
}

/// Why an operation has no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GroupCommitError {
    /// The committer was gone before it took the operation, which therefore was not carried out.
    #[error(
        "the operation was not carried out: its committer has stopped; submit it again once the store is open"
    )]
    Closed,
    /// The committer took the operation and gave no reply, because it panicked or dropped the group.
    #[error(
        "the committer gave up on the operation without a reply: it may or may not have been carried out; \
         look before submitting it again"
    )]
    Abandoned,
}

/// Why [`Submitter::enqueue`] took no operation. The operation comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnqueueError<Op> {
    /// The queue is full, or others wait for space already.
    #[error("the queue of operations is full; wait for a reply, or enqueue with enqueue_when_space")]
    Full(Op),
    /// The committer is gone.
    #[error("the operation was not enqueued: its committer has stopped")]
    Closed(Op),
}

/// Makes a group commit: the end that callers clone, and the one end that commits.
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
