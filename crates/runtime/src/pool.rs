//! The queues between the worker's tasks and the threads that drive processes, one for each runner, and the state that
//! these threads share.

mod asked;
pub(crate) mod question_pipes;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gristmill_model::{Positions, Progress};
use gristmill_worker::{MicroBatch, Outcomes, RunnerChange, RunnerListener};
use rustix::event::EventfdFlags;
use tokio::sync::mpsc;

use crate::error::RuntimeError;
use crate::interpreter::Runtime;
use crate::limits::OUTCOMES_WAITING_MAX;
use crate::script::Script;
use crate::starts::code::{Code, Seen};
use crate::starts::imports;
use crate::starts::words::{code_changed, failed_start, gave_up, program_changed, starts_again};
use crate::starts::{ProcessListener, Starts};
pub(crate) use asked::Asked;
use question_pipes::JobAnswer;

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

    /// Reports whether its output has a follower.
    pub fn is_followed(&self) -> bool {
        self.followed.load(Ordering::Acquire)
    }

    pub fn cancelled(&self) -> Positions {
        if self.has_cancelled.load(Ordering::Acquire) {
            lock(&self.cancelled).clone()
        } else {
            Positions::new()
        }
    }
}

/// The worker's requests for a micro-batch, in the form of its message.
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
    /// The progress of running jobs.
    Progress(Vec<(u32, Progress)>),
    /// The output of a running job.
    Printed(u32, Vec<u8>),
    /// A question of a running job about itself.
    Asked(u32, Asked),
}

/// One micro-batch on its way through the pool. Dropping it tells the worker's task that no more outcomes will come.
#[derive(Debug)]
pub(crate) struct Work {
    pub micro_batch: MicroBatch,
    pub signals: Arc<Signals>,
    events: mpsc::Sender<Told>,
}

impl Work {
    /// Passes outcomes to the worker's task, which never waits for long. If the task falls behind, the process is
    /// slowed down, so that memory does not fill. If the task is gone, the outcomes are dropped.
    pub fn answer(&self, outcomes: Outcomes) {
        let _ = self.events.blocking_send(Told::Outcomes(Box::new(outcomes)));
    }

    /// Sends progress or output. If the worker's task is behind, drops it, because newer news follows.
    pub fn tell(&self, told: Told) {
        let _ = self.events.try_send(told);
    }

    /// Passes a question of a job on. Where nobody is there to answer, the question is dropped, which answers it.
    pub fn ask(&self, place: u32, asked: Asked) {
        let _ = self.events.blocking_send(Told::Asked(place, asked));
    }

    /// Releases an unanswered micro-batch as a whole, without waiting.
    pub fn return_whole(self) {
        self.tell(Told::Outcomes(Box::new(Outcomes {
            returned: self.micro_batch.indexes(),
            ..Outcomes::default()
        })));
    }

    /// Reports whether the receiver of outcomes is gone.
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
        // It was abandoned before its end, and its process must learn this.
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
    /// Answers to questions of jobs. A process has one open question.
    answers: Vec<JobAnswer>,
    /// True if the worker recalls the jobs that the runner has not begun.
    is_recalled: bool,
}

/// The condition of a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    /// It has no process, and starts one when there is work.
    Resting,
    /// It has a process that has imported the script.
    Working,
    /// It waits until a process can start.
    Out,
}

#[derive(Debug)]
struct State {
    /// The queue of each runner.
    queues: Vec<Queue>,
    /// The condition of each runner.
    conditions: Vec<Condition>,
    shutting_down: bool,
    graceful: bool,
    /// True after a process has started for the first time.
    is_proven: bool,
    /// The result of the first start of a process, if known. Any later success replaces it.
    started: Option<Result<Started, Arc<RuntimeError>>>,
    starts: Starts,
    /// The time since which no runner has had a process.
    without_since: Option<Instant>,
    worker: Option<RunnerListener>,
    /// The reason why no runner will take jobs again.
    failed: Option<String>,
}

impl State {
    fn set_condition(&mut self, slot: usize, condition: Condition) {
        let before = std::mem::replace(&mut self.conditions[slot], condition);
        self.without_since = match self.working() {
            0 => self.without_since.or_else(|| Some(Instant::now())),
            _ => None,
        };
        assert_eq!(
            self.without_since.is_some(),
            self.conditions[slot] != Condition::Working && self.working() == 0,
            "a pool is without a process exactly while no slot has one"
        );
        let change = match (before == Condition::Out, condition == Condition::Out) {
            (false, true) => RunnerChange::Out(slot),
            (true, false) => RunnerChange::Back(slot),
            _ => return,
        };
        if let Some(worker) = &self.worker {
            worker.tell(change);
        }
    }

    fn working(&self) -> usize {
        let working = self.conditions.iter();
        working
            .filter(|condition| **condition == Condition::Working)
            .count()
    }

    fn fail(&mut self, reason: String) {
        let reason = self.failed.get_or_insert(reason).clone();
        if let Some(worker) = &self.worker {
            worker.tell(RunnerChange::Failed(reason));
        }
    }
}

/// The answer to the question whether a slot may start a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MayStart {
    Now,
    /// Starts have failed lately, and the slot gives its jobs back. It asks again at this time, or when it is woken.
    Later(Option<Instant>),
}

/// The queues before the processes.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The script's name, for people.
    name: String,
    state: Mutex<State>,
    wakers: Vec<OwnedFd>,
    /// Wakes the watcher of the code, only at the end.
    watcher: OwnedFd,
    started: tokio::sync::Notify,
    code: Mutex<Code>,
    /// The script, if its text names its imports.
    names_imports: Option<PathBuf>,
    /// The generation of the newest code that a process has loaded.
    generation: AtomicU64,
    listener: ProcessListener,
    /// The time without any process, while starts fail, after which no runner takes jobs again.
    patience: Option<Duration>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The protected data is consistent at every moment, even if a holder panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool with this many slots for a script. It gives up after this time without a process and without a successful
    /// start.
    pub fn new(
        script: &Script,
        slots: usize,
        listener: ProcessListener,
        patience: Option<Duration>,
    ) -> io::Result<Pool> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wakers = (0..slots).map(|_| rustix::event::eventfd(0, flags));
        Ok(Pool {
            name: script.name(),
            wakers: wakers.collect::<Result<_, _>>()?,
            watcher: rustix::event::eventfd(0, flags)?,
            state: Mutex::new(State {
                queues: (0..slots).map(|_| Queue::default()).collect(),
                conditions: vec![Condition::Resting; slots],
                shutting_down: false,
                graceful: false,
                is_proven: false,
                started: None,
                starts: Starts::default(),
                without_since: None,
                worker: None,
                failed: None,
            }),
            started: tokio::sync::Notify::new(),
            code: Mutex::new(Code::new(script.path())),
            names_imports: matches!(script.runtime(), Runtime::Node | Runtime::Deno | Runtime::Bun)
                .then(|| script.path().to_owned()),
            generation: AtomicU64::new(0),
            listener,
            patience,
        })
    }

    /// The descriptor that wakes a slot.
    pub fn waker(&self, slot: usize) -> &OwnedFd {
        &self.wakers[slot]
    }

    /// The descriptor that wakes the watcher of the code.
    pub fn watcher(&self) -> &OwnedFd {
        &self.watcher
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
            // A pool that shuts down takes no work, so the ticket ends at once.
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

    /// Gives a runner the answer to the question of a job of its process.
    fn answer(&self, runner: usize, answer: JobAnswer) {
        lock(&self.state).queues[runner].answers.push(answer);
        self.wake(runner);
    }

    /// Takes the answers for a runner.
    pub fn take_answers(&self, runner: usize) -> Vec<JobAnswer> {
        std::mem::take(&mut lock(&self.state).queues[runner].answers)
    }

    /// The next micro-batch for a runner that has none. An earlier recall does not affect it.
    pub fn next(&self, runner: usize) -> Option<Work> {
        let mut state = lock(&self.state);
        state.queues[runner].is_recalled = false;
        state.queues[runner].waiting.pop_front()
    }

    /// Reports whether a runner was recalled since the last call, and returns the jobs pushed since then.
    pub fn take(&self, runner: usize) -> (bool, VecDeque<Work>) {
        let mut state = lock(&self.state);
        let queue = &mut state.queues[runner];
        let is_recalled = std::mem::take(&mut queue.is_recalled);
        (is_recalled, std::mem::take(&mut queue.waiting))
    }

    /// Reports whether a micro-batch waits for a runner.
    pub fn has_next(&self, runner: usize) -> bool {
        !lock(&self.state).queues[runner].waiting.is_empty()
    }

    /// Releases the jobs that wait for a runner, and makes its slot release jobs that have not begun.
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

    /// Reports whether a runner was recalled since the last call.
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

    /// Reports changes of runners to the worker from now on.
    pub fn listen(&self, worker: RunnerListener) {
        let mut state = lock(&self.state);
        for (slot, condition) in state.conditions.iter().enumerate() {
            if *condition == Condition::Out {
                worker.tell(RunnerChange::Out(slot));
            }
        }
        if let Some(reason) = &state.failed {
            worker.tell(RunnerChange::Failed(reason.clone()));
        }
        state.worker = Some(worker);
    }

    /// Reports whether a slot without a process may start one. If not, its runner is out. The runner of a slot that
    /// tries for all is out, too, unless its start needs a job.
    pub fn may_start(&self, slot: usize, needs_job: bool, now: Instant) -> MayStart {
        let mut state = lock(&self.state);
        if !state.starts.are_failing() {
            state.set_condition(slot, Condition::Resting);
            return MayStart::Now;
        }
        let may = state.starts.may_start(slot, now);
        let condition = if may && needs_job {
            Condition::Resting
        } else {
            Condition::Out
        };
        state.set_condition(slot, condition);
        if may {
            MayStart::Now
        } else {
            MayStart::Later(state.starts.again_at())
        }
    }

    /// Reports whether slots without a process wait with their starts, or one of them should try for all.
    pub fn are_starts_failing(&self) -> bool {
        lock(&self.state).starts.are_failing()
    }

    /// Notes that a slot's process has imported the script, whose files were as in `before` at its start. Returns the
    /// generation of its code.
    pub fn start_succeeded(
        &self,
        slot: Option<usize>,
        started: Started,
        before: &Seen,
        mut files: Vec<PathBuf>,
    ) -> u64 {
        files.extend(self.names_imports.iter().flat_map(|script| imports::of(script)));
        let (changed, generation) = {
            let mut code = lock(&self.code);
            (code.loaded(before, files), code.generation())
        };
        let recovered = {
            let mut state = lock(&self.state);
            if let Some(slot) = slot {
                state.set_condition(slot, Condition::Working);
            }
            if !matches!(state.started, Some(Ok(_))) {
                state.started = Some(Ok(started));
            }
            state.is_proven = true;
            state.starts.succeeded(Instant::now())
        };
        self.generation.store(generation, Ordering::Release);
        self.started.notify_waiters();
        if let Some((failures, lasted)) = recovered {
            self.listener.tell(&starts_again(&self.name, failures, lasted));
        }
        if !changed.is_empty() {
            self.listener.tell(&code_changed(&self.name, &changed));
        }
        // Slots that are out come back, and older processes are replaced.
        self.wake_all();
        generation
    }

    /// Notes that the script is a program, which starts for each job.
    pub fn is_program(&self) {
        let before = self.look_at_code();
        lock(&self.code).loaded(&before, Vec::new());
        lock(&self.state).started = Some(Ok(Started::default()));
        self.started.notify_waiters();
    }

    /// Notes that a slot has started a program for a job.
    pub fn program_started(&self, slot: usize) {
        let changed = {
            let mut code = lock(&self.code);
            let now = code.look();
            code.loaded(&now, Vec::new())
        };
        let recovered = {
            let mut state = lock(&self.state);
            state.set_condition(slot, Condition::Working);
            state.is_proven = true;
            let were_failing = state.starts.are_failing();
            were_failing.then(|| state.starts.succeeded(Instant::now()))
        };
        if let Some(path) = changed.first().filter(|path| path.exists()) {
            self.listener.tell(&program_changed(path));
        }
        if let Some(recovered) = recovered {
            if let Some((failures, lasted)) = recovered {
                self.listener.tell(&starts_again(&self.name, failures, lasted));
            }
            self.wake_all();
        }
    }

    /// Notes that a slot no longer has a process.
    pub fn process_ended(&self, slot: usize) {
        let mut state = lock(&self.state);
        if state.conditions[slot] == Condition::Working {
            state.set_condition(slot, Condition::Resting);
        }
    }

    /// Notes that the start of a slot's process has failed. Its runner is out before its jobs are given back.
    pub fn start_failed(&self, slot: usize, error: RuntimeError) {
        let (_, changed) = self.changed_code();
        let news = {
            let mut state = lock(&self.state);
            state.set_condition(slot, Condition::Out);
            let now = Instant::now();
            let failed = state.starts.failed(slot, &error, now);
            let working = state.working();
            // Many programs start at once, so the first failure may mean that there is one too many.
            let may_be_one_too_many = matches!(state.started, Some(Ok(_))) && error.is_shortage();
            let is_first = !state.is_proven && !may_be_one_too_many;
            let without = state.without_since.map(|since| now.duration_since(since));
            let lasted = failed.lasted.min(without.unwrap_or_default());
            let gives_up = self.patience.is_some_and(|patience| lasted >= patience);
            if is_first {
                // The caller that waits for the first start reports the error.
                state.fail(error.to_string());
                state.started.get_or_insert(Err(Arc::new(error)));
                None
            } else if working == 0 && gives_up {
                state.fail(gave_up(&self.name, lasted, &error));
                None
            } else {
                let words = || failed_start(&self.name, &failed, working, &changed, &error);
                failed.is_news.then(words)
            }
        };
        self.started.notify_waiters();
        if let Some(words) = news {
            self.listener.tell(&words);
        }
        self.wake_all();
    }

    /// Notes that a thread that drives processes has panicked. No runner takes jobs again.
    pub fn panicked(&self) {
        let mut state = lock(&self.state);
        state.fail(RuntimeError::Panicked.to_string());
        state.started.get_or_insert(Err(Arc::new(RuntimeError::Panicked)));
        drop(state);
        self.started.notify_waiters();
    }

    /// The current files of the code.
    pub fn look_at_code(&self) -> Seen {
        lock(&self.code).look()
    }

    /// The current files of the code, and those that have changed since a process loaded them.
    pub fn changed_code(&self) -> (Seen, Vec<PathBuf>) {
        let code = lock(&self.code);
        let now = code.look();
        let changed = code.changed(&now);
        (now, changed)
    }

    /// Notes that a process has imported further files.
    pub fn imported(&self, files: Vec<PathBuf>) {
        lock(&self.code).imported(files);
    }

    /// Passes a message about the processes on.
    pub fn tell(&self, words: &str) {
        self.listener.tell(words);
    }

    /// The generation of the newest code that a process has loaded.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
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

    /// Ends the pool: waiting jobs are dropped, and the slots end. If `graceful`, they let idle processes end by themselves.
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
        let _ = rustix::io::write(self.watcher.as_fd(), &1u64.to_ne_bytes());
        self.wake_all();
    }

    pub fn is_shutting_down(&self) -> bool {
        lock(&self.state).shutting_down
    }

    pub fn is_graceful(&self) -> bool {
        lock(&self.state).graceful
    }
}
