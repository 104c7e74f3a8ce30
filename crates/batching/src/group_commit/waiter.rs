//! Whoever waits: a task or a thread.

use std::task::Waker;

use super::sync::{Thread, current};

/// A thread or task to wake once. A waiter registers under the lock of its condition, after checking it, and the thread
/// that changes the condition removes it under the same lock. So no wake-up is lost, and a change without waiters pays
/// nothing.
#[derive(Debug)]
pub(super) enum Waiter {
    Task(Waker),
    Thread(Thread),
}

impl Waiter {
    pub(super) fn current_thread() -> Waiter {
        Waiter::Thread(current())
    }

    /// Wakes it. Not to be called under a lock: a waker is code of the executor.
    pub(super) fn wake(self) {
        match self {
            Waiter::Task(waker) => waker.wake(),
            Waiter::Thread(thread) => thread.unpark(),
        }
    }
}
