//! The locks and flags that the threads of a worker share. They come from std, or from shuttle when its tests try
//! interleavings.

#[cfg(all(test, shuttle))]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};
#[cfg(not(all(test, shuttle)))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

/// Locks a mutex, even a poisoned one. Each change under a lock of the worker is complete before anything can panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
