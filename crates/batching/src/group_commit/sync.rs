//! What threads share: from std, or from loom when its tests explore every interleaving.

#[cfg(loom)]
pub(super) use loom::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Thread, current, park},
};
#[cfg(not(loom))]
pub(super) use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Thread, current, park},
};

/// Locks, poisoned or not. No code of a caller runs under our locks except the cloning and dropping of a
/// waker, and every change under them is complete before that, so a panic leaves nothing half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
