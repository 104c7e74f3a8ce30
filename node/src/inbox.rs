//! Messages of a worker's handlers to JavaScript's thread, and the ways of its answers back.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gristmill_model::Progress;
use gristmill_worker::{MicroBatch, Outcomes};
use napi::Status;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode, UnknownReturnValue};
use napi_derive::napi;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// A function that runs in JavaScript's thread. It keeps the event loop alive.
pub type Wake = ThreadsafeFunction<(), UnknownReturnValue, (), Status, false>;

/// A message to JavaScript.
#[napi(object, object_from_js = false)]
#[derive(Debug, Default)]
pub struct Message {
    /// "run", "recall", "drain" or "cancel".
    pub what: &'static str,
    /// The number of the micro-batch; of a recall, the number of the kind.
    pub number: u32,
    /// The number of the micro-batch's kind.
    pub kind: u32,
    /// The number of its jobs.
    pub count: u32,
    /// The payloads as one JSON array.
    pub payloads: Option<String>,
    /// The identity of the jobs, as the runtime's scripts get it.
    pub identity: Option<String>,
    /// The time limit of an attempt.
    pub timeout_ms: Option<f64>,
    /// The places of the cancelled jobs.
    pub places: Option<Vec<u32>>,
}

/// An answer from JavaScript about a micro-batch.
#[derive(Debug)]
pub enum Answer {
    Outcomes(Box<Outcomes>),
    Progress(Vec<(u32, Progress)>),
}

/// The messages that JavaScript has not taken, and the micro-batches that it has not answered. The dispatcher bounds both: it
/// gives a runner at most its slots and a window of jobs.
pub struct Inbox {
    state: Mutex<State>,
}

struct State {
    messages: Vec<Message>,
    will_wake: bool,
    running: HashMap<u32, UnboundedSender<Answer>>,
    next: u32,
    /// None once the worker has ended.
    wake: Option<Wake>,
}

impl Inbox {
    /// An inbox whose messages `wake` announces.
    pub fn new(wake: Wake) -> Inbox {
        Inbox {
            state: Mutex::new(State {
                messages: Vec::new(),
                will_wake: false,
                running: HashMap::new(),
                next: 0,
                wake: Some(wake),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message, and wakes JavaScript unless it is about to look.
    pub fn push(&self, message: Message) {
        let mut state = self.lock();
        state.messages.push(message);
        let will_wake = std::mem::replace(&mut state.will_wake, true);
        if let Some(wake) = state.wake.as_ref().filter(|_| !will_wake) {
            wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }

    /// Hands a micro-batch over. Returns its number, and the channel of its answers.
    pub fn deliver(&self, kind: u32, work: &MicroBatch) -> (u32, UnboundedReceiver<Answer>) {
        let (sender, answers) = mpsc::unbounded_channel();
        let number = {
            let mut state = self.lock();
            let number = state.next;
            state.next = state.next.wrapping_add(1);
            let before = state.running.insert(number, sender);
            assert!(before.is_none(), "a micro-batch has a number of its own");
            number
        };
        self.push(Message {
            what: "run",
            number,
            kind,
            count: work.jobs_count(),
            payloads: Some(work.payloads().as_str().to_owned()),
            identity: Some(work.identity_json(&work.indexes())),
            timeout_ms: work.timeout_ms().map(|timeout_ms| timeout_ms as f64),
            places: None,
        });
        (number, answers)
    }

    /// Passes an answer on. Answers of micro-batches that have ended are dropped: their jobs were taken back.
    pub fn answer(&self, number: u32, answer: Answer) {
        if let Some(sender) = self.lock().running.get(&number) {
            let _ = sender.send(answer);
        }
    }

    /// Forgets a micro-batch whose jobs are answered.
    pub fn end(&self, number: u32) {
        self.lock().running.remove(&number);
    }

    /// Takes all messages.
    pub fn take(&self) -> Vec<Message> {
        let mut state = self.lock();
        state.will_wake = false;
        std::mem::take(&mut state.messages)
    }

    /// Lets the event loop end: no messages come any more.
    pub fn close(&self) {
        let wake = self.lock().wake.take();
        drop(wake);
    }
}
