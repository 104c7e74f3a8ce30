//! Waiters: a task or a thread.

use std::task::Waker;

use super::sync::{Thread, current};

/// A thread or task to wake once. A waiter registers under the lock of its condition, after checking the condition. The
/// thread that changes the condition removes the waiter under the same lock. So no wake-up is lost, and a change
/// without waiters costs nothing.
#[derive(Debug)]
pub(super) enum Waiter {
    Task(Waker),
    Thread(Thread),
}

impl Waiter {
    pub(super) fn current_thread() -> Waiter {
        Waiter::Thread(current())
    }

    /// Wakes the waiter. Never called under a lock, because a waker is code of the executor.
    pub(super) fn wake(self) {
        match self {
            Waiter::Task(waker) => waker.wake(),
            Waiter::Thread(thread) => thread.unpark(),
        }
    }
}
