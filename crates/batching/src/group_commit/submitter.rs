//! The callers' end.

use std::fmt;
use std::future::poll_fn;
use std::task::Poll;

use super::queue::{Place, Shared};
use super::sync::{Arc, park};
use super::ticket::Ticket;
use super::waiter::Waiter;
use super::{EnqueueError, GroupCommitError};

/// The callers' end of a group commit. Clones feed the same committer; once all are dropped, the committer
/// finishes queued operations and ends.
///
/// When the queue is full, callers wait in line for space, first come first served. An operation in line is
/// taken back if its caller goes away (the future is dropped); once it is in the queue, it will be carried
/// out.
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

    /// Hands over `op` and waits for its reply, and for space before that when the queue is full. The
    /// operation is in the queue, or in line for it, after the first poll. `weight` counts against the limits
    /// of weight.
    ///
    /// # Errors
    ///
    /// [`GroupCommitError`] if the committer went away or gave up on the operation.
    pub async fn submit(&self, op: Op, weight: usize) -> Result<Reply, GroupCommitError> {
        let (ticket, _in_line) = self.join(op, weight)?;
        ticket.await
    }

    /// As [`submit`](Submitter::submit), but blocks this thread.
    ///
    /// # Errors
    ///
    /// [`GroupCommitError`] if the committer went away or gave up on the operation.
    pub fn submit_blocking(&self, op: Op, weight: usize) -> Result<Reply, GroupCommitError> {
        let (ticket, _in_line) = self.join(op, weight)?;
        ticket.wait()
    }

    /// Hands over `op` if there is space at this moment, and does not wait for the reply: that is what the
    /// ticket is for.
    ///
    /// # Errors
    ///
    /// [`EnqueueError`], with the operation in it, if the queue is full or the committer gone.
    pub fn enqueue(&self, op: Op, weight: usize) -> Result<Ticket<Reply>, EnqueueError<Op>> {
        self.shared.push(op, weight, false).map(|(ticket, _)| ticket)
    }

    /// Hands over `op`, once there is space, and does not wait for the reply. For callers that keep several
    /// operations under way: they wait exactly when the queue is full.
    ///
    /// # Errors
    ///
    /// [`GroupCommitError::Closed`] if the committer is gone. If it goes while the operation is in line, the
    /// ticket says so.
    pub async fn enqueue_when_space(&self, op: Op, weight: usize) -> Result<Ticket<Reply>, GroupCommitError> {
        let (ticket, in_line) = self.join(op, weight)?;
        if let Some(in_line) = &in_line {
            poll_fn(
                |context| match in_line.is_admitted(|| Waiter::Task(context.waker().clone())) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                },
            )
            .await;
        }
        Ok(ticket)
    }

    /// As [`enqueue_when_space`](Submitter::enqueue_when_space), but blocks this thread.
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

/// The way to the reply, and the place in line, if there was no space.
type Joined<'submitter, Op, Reply> = (Ticket<Reply>, Option<InLine<'submitter, Op, Reply>>);

/// An operation that waits for space; dropped before it is admitted, it takes the operation back.
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
