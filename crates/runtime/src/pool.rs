//! The queues between the worker's tasks and the threads that drive processes: one a runner.

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

/// The worker's requests for a running micro-batch.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    draining: AtomicBool,
    followed: AtomicBool,
    has_cancelled: AtomicBool,
    cancelled: Mutex<Positions>,
}

impl Signals {
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Whether its output has a follower.
    pub fn is_followed(&self) -> bool {
        self.followed.load(Ordering::Acquire)
    }

    pub fn cancelled(&self) -> Positions {
        match self.has_cancelled.load(Ordering::Acquire) {
            true => lock(&self.cancelled).clone(),
            false => Positions::new(),
        }
    }
}

/// The worker's requests for a micro-batch, as it sends them.
#[derive(Debug)]
pub(crate) struct Wishes {
    pub draining: bool,
    pub followed: bool,
    pub cancelled: Positions,
}

/// The events of a micro-batch. Jobs are numbered by their places in it.
#[derive(Debug)]
pub(crate) enum Told {
    /// Outcomes of jobs.
    Outcomes(Box<Outcomes>),
    /// How far running jobs are.
    Progress(Vec<(u32, Progress)>),
    /// The output of a running job.
    Printed(u32, Vec<u8>),
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

    /// Sends progress or output, unless the worker's task is behind: newer news follows.
    pub fn tell(&self, told: Told) {
        let _ = self.events.try_send(told);
    }

    /// Releases all of an unanswered micro-batch, without waiting.
    fn return_whole(self) {
        self.tell(Told::Outcomes(Box::new(Outcomes {
            returned: self.micro_batch.indexes(),
            ..Outcomes::default()
        })));
    }

    /// Whether the receiver of outcomes is gone.
    pub fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }
}

/// The worker's side of a micro-batch.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub events: mpsc::Receiver<Told>,
    runner: usize,
    signals: Arc<Signals>,
    pool: Arc<Pool>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Abandoned before its end: its process must learn it.
        if !self.events.is_closed() {
            self.events.close();
            self.pool.wake(self.runner);
        }
    }
}

/// The properties of a started script.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Started {
    pub is_async: bool,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Work>,
    /// Whether the worker recalls the jobs that the runner has not begun.
    is_recalled: bool,
}

#[derive(Debug)]
struct State {
    /// One a runner.
    queues: Vec<Queue>,
    shutting_down: bool,
    graceful: bool,
    /// How the first start of a process went, once known.
    started: Option<Result<Started, Arc<RuntimeError>>>,
}

/// The queues before the processes.
#[derive(Debug)]
pub(crate) struct Pool {
    state: Mutex<State>,
    wakers: Vec<OwnedFd>,
    started: tokio::sync::Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The protected data is consistent at every moment, even if a holder panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool of so many slots.
    pub fn new(slots: usize) -> io::Result<Pool> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wakers = (0..slots).map(|_| rustix::event::eventfd(0, flags));
        Ok(Pool {
            wakers: wakers.collect::<Result<_, _>>()?,
            state: Mutex::new(State {
                queues: (0..slots).map(|_| Queue::default()).collect(),
                shutting_down: false,
                graceful: false,
                started: None,
            }),
            started: tokio::sync::Notify::new(),
        })
    }

    /// The descriptor that wakes a slot.
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

    /// Puts a micro-batch into the queue of a runner.
    pub fn push(self: &Arc<Self>, runner: usize, micro_batch: MicroBatch) -> Ticket {
        let (sender, events) = mpsc::channel(OUTCOMES_WAITING_MAX);
        let signals = Arc::new(Signals::default());
        let work = Work {
            micro_batch,
            signals: Arc::clone(&signals),
            events: sender,
        };
        // A worker that knows the capacity names no other runner.
        let runner = runner % self.wakers.len();
        {
            let mut state = lock(&self.state);
            // The pool takes no work once it shuts down: the ticket then ends at once.
            if !state.shutting_down {
                state.queues[runner].waiting.push_back(work);
            }
        }
        self.wake(runner);
        Ticket {
            events,
            runner,
            signals,
            pool: self.clone(),
        }
    }

    /// The next micro-batch for a runner that has none. A recall before it was pushed does not concern it.
    pub fn next(&self, runner: usize) -> Option<Work> {
        let mut state = lock(&self.state);
        state.queues[runner].is_recalled = false;
        state.queues[runner].waiting.pop_front()
    }

    /// Whether a runner was recalled since the last call, and the jobs pushed since then.
    pub fn take(&self, runner: usize) -> (bool, VecDeque<Work>) {
        let queue = std::mem::take(&mut lock(&self.state).queues[runner]);
        (queue.is_recalled, queue.waiting)
    }

    /// Whether a micro-batch waits for a runner.
    pub fn has_next(&self, runner: usize) -> bool {
        !lock(&self.state).queues[runner].waiting.is_empty()
    }

    /// Releases the jobs that wait for a runner, and makes its slot release those that have not begun.
    pub fn recall(&self, runner: usize) {
        let runner = runner % self.wakers.len();
        let waiting = {
            let mut state = lock(&self.state);
            state.queues[runner].is_recalled = true;
            std::mem::take(&mut state.queues[runner].waiting)
        };
        waiting.into_iter().for_each(Work::return_whole);
        self.wake(runner);
    }

    /// Whether a runner was recalled since the last call.
    pub fn take_recall(&self, runner: usize) -> bool {
        std::mem::take(&mut lock(&self.state).queues[runner].is_recalled)
    }

    /// Passes the worker's requests for a micro-batch to the runner. A waiting one is returned at once; the caller
    /// releases the returned positions.
    pub fn signal(&self, ticket: &Ticket, wishes: Wishes) -> Option<Positions> {
        let signals = &ticket.signals;
        let mut changed = {
            let mut known = lock(&signals.cancelled);
            let changed = *known != wishes.cancelled;
            *known = wishes.cancelled;
            signals.has_cancelled.store(!known.is_empty(), Ordering::Release);
            changed
        };
        changed |= wishes.followed != signals.followed.swap(wishes.followed, Ordering::AcqRel);
        let began_draining = wishes.draining && !signals.draining.swap(true, Ordering::AcqRel);
        if began_draining {
            let mut state = lock(&self.state);
            let waiting = &mut state.queues[ticket.runner].waiting;
            let is_this = |work: &Work| Arc::ptr_eq(&work.signals, signals);
            if let Some(index) = waiting.iter().position(is_this) {
                return waiting.remove(index).map(|work| work.micro_batch.indexes());
            }
        }
        if changed || began_draining {
            self.wake(ticket.runner);
        }
        None
    }

    /// Says how a process's start went; the first one counts.
    pub fn report_start(&self, result: Result<Started, Arc<RuntimeError>>) {
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
                return result.map(drop);
            }
            notified.await;
        }
    }

    /// The script's properties since its first successful start.
    pub fn started(&self) -> Option<Started> {
        lock(&self.state).started.as_ref()?.as_ref().ok().copied()
    }

    /// Ends the pool: what waits is dropped, and the slots end; where it is `graceful`, they let idle
    /// processes end by themselves.
    pub fn shut_down(&self, graceful: bool) {
        let mut state = lock(&self.state);
        state.shutting_down = true;
        state.graceful = graceful;
        let waiting: Vec<Queue> = state.queues.iter_mut().map(std::mem::take).collect();
        state
            .started
            .get_or_insert_with(|| Err(Arc::new(RuntimeError::ShutDown)));
        drop(state);
        drop(waiting);
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
