//! The submitting end of a group commit.

use std::fmt;
use std::future::poll_fn;
use std::task::Poll;

use super::queue::{Place, Shared};
use super::sync::{Arc, park};
use super::ticket::Ticket;
use super::waiter::Waiter;
use super::{EnqueueError, GroupCommitError};

/// The submitting end of a group commit. Clones feed the same committer. Once all are dropped, the committer finishes
/// the queued operations and ends.
///
/// When the queue is full, callers wait in line for room, first come first served. If a caller leaves the line (its
/// future is dropped), its operation leaves too. An operation in the queue will be executed.
pub struct Submitter<Op, Reply> {
    shared: Arc<Shared<Op, Reply>>,
}

impl<Op, Reply> fmt::Debug for Submitter<Op, Reply> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Submitter").finish_non_exhaustive()
    }
}

impl<Op, Reply> Clone for Submitter<Op, Reply> {
    fn clone(&self) -> Self {
        Submitter::new(self.shared.clone())
    }
}

impl<Op, Reply> Drop for Submitter<Op, Reply> {
    fn drop(&mut self) {
        self.shared.submitter_went();
    }
}

impl<Op, Reply> Submitter<Op, Reply> {
    pub(super) fn new(shared: Arc<Shared<Op, Reply>>) -> Self {
        shared.submitter_came();
        Submitter { shared }
    }

    /// Hands over `op`, waits for room if the queue is full, and waits for the reply. The operation is in the queue, or
    /// in line for it, after the first poll. `weight` counts against the limits of weight.
    ///
    /// # Errors
    ///
    /// [`GroupCommitError`] if the committer went away or gave up on the operation.
    pub async fn submit(&self, op: Op, weight: usize) -> Result<Reply, GroupCommitError> {
        let (ticket, _in_line) = self.join(op, weight)?;
        ticket.await
    }

    /// Submits like [`submit`](Submitter::submit), but blocks this thread.
    ///
    /// # Errors
    ///
    /// [`GroupCommitError`] if the committer went away or gave up on the operation.
    pub fn submit_blocking(&self, op: Op, weight: usize) -> Result<Reply, GroupCommitError> {
        let (ticket, _in_line) = self.join(op, weight)?;
        ticket.wait()
    }

    /// Hands over `op` if there is room now. Does not wait for the reply, for which the ticket is.
    ///
    /// # Errors
    ///
    /// [`EnqueueError`], with the operation in it, if the queue is full or the committer gone.
    pub fn enqueue(&self, op: Op, weight: usize) -> Result<Ticket<Reply>, EnqueueError<Op>> {
        self.shared.push(op, weight, false).map(|(ticket, _)| ticket)
    }

    /// Hands over `op` once there is room. Does not wait for the reply. Callers that keep several operations under way
    /// wait only when the queue is full.
    ///
    /// # Errors
    ///
    /// [`GroupCommitError::Closed`] if the committer is gone. If it goes while the operation is in line, the ticket has
    /// the error.
    pub async fn enqueue_when_space(&self, op: Op, weight: usize) -> Result<Ticket<Reply>, GroupCommitError> {
        let (ticket, in_line) = self.join(op, weight)?;
        if let Some(in_line) = &in_line {
            poll_fn(|context| {
                if in_line.is_admitted(|| Waiter::Task(context.waker().clone())) {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
        }
        Ok(ticket)
    }

    /// Enqueues like [`enqueue_when_space`](Submitter::enqueue_when_space), but blocks this thread.
    ///
    /// # Errors
    ///
    /// [`GroupCommitError::Closed`] if the committer is gone.
    pub fn enqueue_blocking(&self, op: Op, weight: usize) -> Result<Ticket<Reply>, GroupCommitError> {
        let (ticket, in_line) = self.join(op, weight)?;
        if let Some(in_line) = &in_line {
            while !in_line.is_admitted(Waiter::current_thread) {
                park();
            }
        }
        Ok(ticket)
    }

    fn join(&self, op: Op, weight: usize) -> Result<Joined<'_, Op, Reply>, GroupCommitError> {
        let shared = &self.shared;
        match shared.push(op, weight, true) {
            Ok((ticket, Place::Queue)) => Ok((ticket, None)),
            Ok((ticket, Place::Line(number))) => Ok((ticket, Some(InLine { shared, number }))),
            Err(_) => Err(GroupCommitError::Closed),
        }
    }
}

/// The ticket for the reply, and the place in line if there was no room.
type Joined<'submitter, Op, Reply> = (Ticket<Reply>, Option<InLine<'submitter, Op, Reply>>);

/// An operation that waits for room. If it is dropped before its admission, the operation is removed.
struct InLine<'submitter, Op, Reply> {
    shared: &'submitter Shared<Op, Reply>,
    number: u64,
}

impl<Op, Reply> InLine<'_, Op, Reply> {
    fn is_admitted(&self, waiter: impl FnOnce() -> Waiter) -> bool {
        self.shared.is_admitted(self.number, waiter)
    }
}

impl<Op, Reply> Drop for InLine<'_, Op, Reply> {
    fn drop(&mut self) {
        self.shared.withdraw(self.number);
    }
}
