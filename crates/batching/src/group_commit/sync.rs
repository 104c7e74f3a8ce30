//! Synchronisation of threads: from std, or from loom when its tests explore every interleaving.

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

/// Locks a mutex, even if it is poisoned. No code of callers runs under these locks, except for cloning and dropping a
/// waker. Every change under them is complete before that, so a panic leaves no half-done change.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
