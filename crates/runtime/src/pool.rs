//! The queue between the worker's tasks and the threads that drive processes.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gristmill_model::{Positions, Progress};
use gristmill_worker::{MicroBatch, Outcomes};
use rustix::event::EventfdFlags;
use tokio::sync::mpsc;

use crate::error::RuntimeError;
use crate::limits::OUTCOMES_WAITING_MAX;

/// What the worker wants of a micro-batch while it runs.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    draining: AtomicBool,
    cancelled: Mutex<Positions>,
}

impl Signals {
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    pub fn cancelled(&self) -> Positions {
        lock(&self.cancelled).clone()
    }
}

/// What comes of a micro-batch. Jobs are numbered by their places in it.
#[derive(Debug)]
pub(crate) enum Told {
    /// What became of jobs.
    Outcomes(Box<Outcomes>),
    /// How far running jobs are.
    Progress(Vec<(u32, Progress)>),
}

/// One micro-batch on its way through the pool. Dropping it tells the worker's task that nothing
/// more will come.
#[derive(Debug)]
pub(crate) struct Work {
    pub micro_batch: MicroBatch,
    pub signals: Arc<Signals>,
    events: mpsc::Sender<Told>,
}

impl Work {
    /// Hands outcomes to the worker's task, which never waits for long: where it falls behind, the
    /// process is slowed down rather than memory filled. A task that has gone away takes nothing.
    pub fn answer(&self, outcomes: Outcomes) {
        let _ = self.events.blocking_send(Told::Outcomes(Box::new(outcomes)));
    }

    /// Tells how far jobs are, unless the worker's task is behind: there will be more to tell.
    pub fn tell(&self, progress: Vec<(u32, Progress)>) {
        let _ = self.events.try_send(Told::Progress(progress));
    }

    /// Whether nobody waits for outcomes any more.
    pub fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }
}

/// The worker's side of a micro-batch.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub events: mpsc::Receiver<Told>,
    signals: Arc<Signals>,
    pool: Arc<Pool>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Given up before its end: its process is to be told.
        if !self.events.is_closed() {
            self.events.close();
            self.pool.wake_all();
        }
    }
}

/// How ready a slot is for more work, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Readiness {
    /// Its process is warm and has nothing to do.
    Warm,
    /// It has no process yet.
    Cold,
    /// Its process will be free in a moment.
    Soon,
    /// It takes nothing.
    Busy,
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<Work>,
    slots: Vec<Readiness>,
    shutting_down: bool,
    graceful: bool,
    /// How the first start of a process went, once known.
    started: Option<Result<(), Arc<RuntimeError>>>,
}

/// The queue and its slots.
#[derive(Debug)]
pub(crate) struct Pool {
    state: Mutex<State>,
    wakers: Vec<OwnedFd>,
    started: tokio::sync::Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the lock protects is whole at every moment, also when a holder panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool of `slots` slots, all of them cold.
    pub fn new(slots: usize) -> io::Result<Pool> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wakers = (0..slots).map(|_| rustix::event::eventfd(0, flags));
        Ok(Pool {
            wakers: wakers.collect::<Result<_, _>>()?,
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                slots: vec![Readiness::Cold; slots],
                shutting_down: false,
                graceful: false,
                started: None,
            }),
            started: tokio::sync::Notify::new(),
        })
    }

    /// What becomes readable when a slot should look around.
    pub fn waker(&self, slot: usize) -> &OwnedFd {
        &self.wakers[slot]
    }

    /// Makes a slot's waker unreadable again.
    pub fn acknowledge(&self, slot: usize) {
        let _ = rustix::io::read(self.wakers[slot].as_fd(), &mut [0; 8]);
    }

    fn wake(&self, slot: usize) {
        let _ = rustix::io::write(self.wakers[slot].as_fd(), &1u64.to_ne_bytes());
    }

    fn wake_all(&self) {
        (0..self.wakers.len()).for_each(|slot| self.wake(slot));
    }

    /// Puts a micro-batch into the queue and wakes the slot that is the readiest for it.
    pub fn push(self: &Arc<Self>, micro_batch: MicroBatch) -> Ticket {
        let (sender, events) = mpsc::channel(OUTCOMES_WAITING_MAX);
        let signals = Arc::new(Signals::default());
        let work = Work {
            micro_batch,
            signals: Arc::clone(&signals),
            events: sender,
        };
        let mut state = lock(&self.state);
        // The pool takes no work once it shuts down: the ticket then ends at once.
        if !state.shutting_down {
            state.waiting.push_back(work);
            let readiest = (0..state.slots.len()).min_by_key(|slot| state.slots[*slot]);
            if let Some(slot) = readiest.filter(|slot| state.slots[*slot] != Readiness::Busy) {
                // Until it has looked, the next micro-batch goes to another one.
                state.slots[slot] = Readiness::Busy;
                self.wake(slot);
            }
        }
        Ticket {
            events,
            signals,
            pool: self.clone(),
        }
    }

    /// The next micro-batch for a slot. Where there is none, `readiness` is remembered, and the slot
    /// is woken when one comes.
    pub fn next(&self, slot: usize, readiness: Readiness) -> Option<Work> {
        let mut state = lock(&self.state);
        state.slots[slot] = readiness;
        if readiness == Readiness::Busy {
            return None;
        }
        let work = state.waiting.pop_front();
        if work.is_some() {
            state.slots[slot] = Readiness::Busy;
        }
        work
    }

    /// Tells the slots what the worker wants of a micro-batch. One that still waits is given back at
    /// once; the positions of what is returned are to be released.
    pub fn signal(&self, ticket: &Ticket, draining: bool, cancelled: Positions) -> Option<Positions> {
        let changed = {
            let mut known = lock(&ticket.signals.cancelled);
            let changed = *known != cancelled;
            *known = cancelled;
            changed
        };
        let began_draining = draining && !ticket.signals.draining.swap(true, Ordering::AcqRel);
        if began_draining {
            let mut state = lock(&self.state);
            let is_this = |work: &Work| Arc::ptr_eq(&work.signals, &ticket.signals);
            if let Some(index) = state.waiting.iter().position(is_this) {
                return state.waiting.remove(index).map(|work| work.micro_batch.indexes());
            }
        }
        if changed || began_draining {
            self.wake_all();
        }
        None
    }

    /// Says how a process's start went; the first one counts.
    pub fn report_start(&self, result: Result<(), Arc<RuntimeError>>) {
        lock(&self.state).started.get_or_insert(result);
        self.started.notify_waiters();
    }

    /// Waits for the first process's start.
    pub async fn first_start(&self) -> Result<(), Arc<RuntimeError>> {
        loop {
            let notified = self.started.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if let Some(result) = lock(&self.state).started.clone() {
                return result;
            }
            notified.await;
        }
    }

    /// Ends the pool: what waits is dropped, and the slots end; where it is `graceful`, they let idle
    /// processes end by themselves.
    pub fn shut_down(&self, graceful: bool) {
        let mut state = lock(&self.state);
        state.shutting_down = true;
        state.graceful = graceful;
        state.waiting.clear();
        state
            .started
            .get_or_insert_with(|| Err(Arc::new(RuntimeError::ShutDown)));
        drop(state);
        self.started.notify_waiters();
        self.wake_all();
    }

    pub fn is_shutting_down(&self) -> bool {
        lock(&self.state).shutting_down
    }

    pub fn is_graceful(&self) -> bool {
        lock(&self.state).graceful
    }
}
