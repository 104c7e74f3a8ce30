//! Whoever waits: a task or a thread.

use std::task::Waker;

use super::sync::{Thread, current};

/// Someone to wake once. A waiter is registered under the lock of what it waits for, after a look at it, and
/// taken out under the same lock by whoever changes it; so no wake-up is lost, and none is paid for when
/// nobody is parked.
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
