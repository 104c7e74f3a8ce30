//! The state of a committer, which a lone caller may use in its own thread in place of the committer.

use std::fmt;

use super::sync::{AtomicBool, Mutex, Ordering, lock};

/// The state with which operations are carried out, by one thread at a time.
///
/// The committer waits for the state. A caller that takes the committer's place does not: it gets the state at once, or hands its
/// operation over. A caller never comes before a committer that waits, so lone callers do not keep the committer out.
pub struct Seat<State> {
    state: Mutex<Option<State>>,
    /// Whether the committer waits. A hint for callers: the mutex decides who has the state.
    is_awaited: AtomicBool,
}

impl<State> fmt::Debug for Seat<State> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Seat").finish_non_exhaustive()
    }
}

impl<State> Seat<State> {
    /// A seat with this state.
    pub fn new(state: State) -> Self {
        Seat {
            state: Mutex::new(Some(state)),
            is_awaited: AtomicBool::new(false),
        }
    }

    /// Works with the state, as the committer: waits for it. `None` if a holder has panicked, or once it was removed.
    pub fn work<T>(&self, work: impl FnOnce(&mut State) -> T) -> Option<T> {
        self.is_awaited.store(true, Ordering::Relaxed);
        let state = self.state.lock();
        self.is_awaited.store(false, Ordering::Relaxed);
        state.ok()?.as_mut().map(work)
    }

    /// Works with the state, as a caller: `None` if somebody has it or waits for it, if a holder has panicked, or once it was
    /// removed.
    pub fn try_work<T>(&self, work: impl FnOnce(&mut State) -> T) -> Option<T> {
        if self.is_awaited.load(Ordering::Relaxed) {
            return None;
        }
        self.state.try_lock().ok()?.as_mut().map(work)
    }

    /// Waits for the state and removes it. Nobody gets it any more.
    pub fn remove(&self) -> Option<State> {
        self.is_awaited.store(true, Ordering::Relaxed);
        lock(&self.state).take()
    }
}
