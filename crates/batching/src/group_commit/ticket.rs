//! The way of a reply from the committer to one caller: a [`Responder`] on one side, a [`Ticket`] on the other.

#[cfg(not(loom))]
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::GroupCommitError;
use super::spin::Spin;
use super::sync::{Arc, AtomicBool, Mutex, Ordering, lock, park};
use super::waiter::Waiter;

/// The place of the reply.
struct Slot<Reply> {
    state: Mutex<SlotState<Reply>>,
    /// Whether the state is `Answered`, for spinning threads. The state decides.
    answered: AtomicBool,
}

enum SlotState<Reply> {
    Waiting(Option<Waiter>),
    Answered(Result<Reply, GroupCommitError>),
    Taken,
}

impl<Reply> Slot<Reply> {
    fn answer(&self, answer: Result<Reply, GroupCommitError>) {
        let waiting = std::mem::replace(&mut *lock(&self.state), SlotState::Answered(answer));
        assert!(
            matches!(waiting, SlotState::Waiting(_)),
            "an operation is answered once"
        );
        self.answered.store(true, Ordering::Release);
        if let SlotState::Waiting(Some(waiter)) = waiting {
            waiter.wake();
        }
    }

    /// Takes the answer. Without one, `waiter` is woken by it.
    fn take(&self, waiter: impl FnOnce() -> Waiter) -> Option<Result<Reply, GroupCommitError>> {
        let mut state = lock(&self.state);
        if let SlotState::Waiting(registered) = &mut *state {
            let before = registered.replace(waiter());
            // Dropping a waker may drop a task, and any value with it, so it happens outside the lock.
            drop(state);
            drop(before);
            return None;
        }
        match std::mem::replace(&mut *state, SlotState::Taken) {
            SlotState::Answered(answer) => Some(answer),
            SlotState::Waiting(_) | SlotState::Taken => {
                panic!("a Ticket was polled after it had given its reply")
            }
        }
    }
}

/// Makes a ticket and the responder that answers it.
pub(super) fn ticket<Reply>() -> (Ticket<Reply>, Responder<Reply>) {
    let slot = Arc::new(Slot {
        state: Mutex::new(SlotState::Waiting(None)),
        answered: AtomicBool::new(false),
    });
    (Ticket { slot: slot.clone() }, Responder { slot: Some(slot) })
}

/// A caller's claim to the reply of its enqueued operation: a future, or a blocking [`wait`](Ticket::wait). Dropping it
/// does not undo the operation.
#[must_use = "a ticket is waited for, or dropped on purpose when the reply does not matter"]
pub struct Ticket<Reply> {
    slot: Arc<Slot<Reply>>,
}

impl<Reply> fmt::Debug for Ticket<Reply> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Ticket").finish_non_exhaustive()
    }
}

impl<Reply> Ticket<Reply> {
    /// Blocks this thread until the reply arrives.
    ///
    /// # Errors
    ///
    /// [`GroupCommitError`] if the committer went away or gave up on the operation.
    pub fn wait(self) -> Result<Reply, GroupCommitError> {
        with_thread_spin(|spin| spin.until(|| self.slot.answered.load(Ordering::Acquire)));
        loop {
            if let Some(answer) = self.slot.take(Waiter::current_thread) {
                return answer;
            }
            park();
        }
    }
}

impl<Reply> Future for Ticket<Reply> {
    type Output = Result<Reply, GroupCommitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.slot.take(|| Waiter::Task(context.waker().clone()));
        answer.map_or(Poll::Pending, Poll::Ready)
    }
}

/// Waits with the spin of this thread, which remembers its recent waits. A count shared by all threads would be one
/// more contended cache line.
#[cfg(not(loom))]
fn with_thread_spin(wait: impl FnOnce(&mut Spin) -> bool) {
    thread_local!(static SPIN: Cell<Spin> = const { Cell::new(Spin::new()) });
    let mut spin = SPIN.get();
    wait(&mut spin);
    SPIN.set(spin);
}

#[cfg(loom)]
fn with_thread_spin(wait: impl FnOnce(&mut Spin) -> bool) {
    wait(&mut Spin::new());
}

/// The committer's duty to answer one operation. If it is dropped without a reply, it answers
/// [`GroupCommitError::Abandoned`], so that no caller hangs.
pub struct Responder<Reply> {
    slot: Option<Arc<Slot<Reply>>>,
}

impl<Reply> fmt::Debug for Responder<Reply> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Responder").finish_non_exhaustive()
    }
}

impl<Reply> Responder<Reply> {
    /// Answers the caller. The reply is dropped if the caller has dropped its ticket.
    pub fn reply(self, reply: Reply) {
        self.answer(Ok(reply));
    }

    /// Answers that the operation was not taken.
    pub(super) fn close(self) {
        self.answer(Err(GroupCommitError::Closed));
    }

    fn answer(mut self, answer: Result<Reply, GroupCommitError>) {
        if let Some(slot) = self.slot.take() {
            slot.answer(answer);
        }
    }
}

impl<Reply> Drop for Responder<Reply> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.answer(Err(GroupCommitError::Abandoned));
        }
    }
}
