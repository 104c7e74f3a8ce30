//! Messages of a worker's handlers to JavaScript's thread, and the ways of its answers back.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gristmill_model::limits::FINALIZING_BYTES_MAX;
use gristmill_model::{PackedBuilder, Positions, Progress};
use gristmill_worker::{MicroBatch, Outcomes};
use napi::Status;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode, UnknownReturnValue};
use napi_derive::napi;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::limits::FINALIZING_BYTES_PER_MESSAGE;

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
    /// The payloads as one JSON array. For jobs that finalize, an item is an array of the payload, the memo and the outcomes of the
    /// children, or a text that says why the job cannot have them.
    pub payloads: Option<String>,
    /// Whether the jobs finalize.
    pub is_finalizing: bool,
    /// The identity of the jobs, as the runtime's scripts get it.
    pub identity: Option<String>,
    /// The time limit of an attempt.
    pub timeout_ms: Option<f64>,
    /// The places of the cancelled jobs.
    pub places: Option<Vec<u32>>,
}

/// An answer from JavaScript about a message's jobs, by their places in the message.
#[derive(Debug)]
pub enum Answer {
    Outcomes(Box<Outcomes>),
    Progress(Vec<(u32, Progress)>),
}

/// A part of a micro-batch that JavaScript got as one message.
pub struct Piece {
    /// The number of the message.
    pub number: u32,
    /// The places of its jobs in the micro-batch.
    pub places: Range<u32>,
}

/// A message with jobs that JavaScript has not answered.
struct Running {
    /// The kind of its jobs.
    kind: Arc<str>,
    /// The way of answers to the micro-batch, each with the number of the message.
    answers: UnboundedSender<(u32, Answer)>,
}

/// The messages that JavaScript has not taken, and the micro-batches that it has not answered. The dispatcher bounds both: it
/// gives a runner at most its slots and a window of jobs.
pub struct Inbox {
    state: Mutex<State>,
}

struct State {
    messages: Vec<Message>,
    will_wake: bool,
    running: HashMap<u32, Running>,
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

    /// Hands a micro-batch over, in one message or in several. Returns them, and the channel of their answers.
    pub fn deliver(&self, kind: u32, work: &MicroBatch) -> (Vec<Piece>, UnboundedReceiver<(u32, Answer)>) {
        let (sender, answers) = mpsc::unbounded_channel();
        let inputs = match work.is_finalizing() {
            true => finalizing_inputs(work),
            false => vec![(0..work.jobs_count(), work.payloads().as_str().to_owned())],
        };
        let pieces = inputs.into_iter().map(|(places, payloads)| {
            let number = self.register(Running {
                kind: work.kind().clone(),
                answers: sender.clone(),
            });
            self.push(Message {
                what: "run",
                number,
                kind,
                count: places.len() as u32,
                payloads: Some(payloads),
                is_finalizing: work.is_finalizing(),
                identity: Some(work.identity_json(&Positions::from(places.clone()))),
                timeout_ms: work.timeout_ms().map(|timeout_ms| timeout_ms as f64),
                places: None,
            });
            Piece { number, places }
        });
        (pieces.collect(), answers)
    }

    /// The number of a message to come.
    fn register(&self, running: Running) -> u32 {
        let mut state = self.lock();
        let number = state.next;
        state.next = state.next.wrapping_add(1);
        let before = state.running.insert(number, running);
        assert!(before.is_none(), "a message has a number of its own");
        number
    }

    /// The kind of a message's jobs; none where all are answered.
    pub fn kind_of(&self, number: u32) -> Option<Arc<str>> {
        self.lock()
            .running
            .get(&number)
            .map(|running| running.kind.clone())
    }

    /// Passes an answer on. Answers of micro-batches that have ended are dropped: their jobs were taken back.
    pub fn answer(&self, number: u32, answer: Answer) {
        if let Some(running) = self.lock().running.get(&number) {
            let _ = running.answers.send((number, answer));
        }
    }

    /// Forgets a message whose jobs are answered.
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

/// The inputs of jobs that finalize, each text with the places of its jobs.
fn finalizing_inputs(work: &MicroBatch) -> Vec<(Range<u32>, String)> {
    let new = || PackedBuilder::with_item_bytes_max(FINALIZING_BYTES_MAX).of_wrapped();
    let (mut inputs, mut builder, mut bytes, mut first) = (Vec::new(), new(), 0, 0);
    for job in work.jobs() {
        let outcomes = serde_json::to_string(work.children_of(job.index)).unwrap_or_default();
        let item = format!("[{},{},{outcomes}]", job.payload, job.memo.unwrap_or("null"));
        if bytes > 0 && bytes + item.len() > FINALIZING_BYTES_PER_MESSAGE {
            let full = std::mem::replace(&mut builder, new());
            inputs.push((first..job.index, full.finish().as_str().to_owned()));
            (bytes, first) = (0, job.index);
        }
        bytes += item.len();
        if let Err(error) = builder.push(&item) {
            let told = format!("the outcomes of its children are too large: {error}");
            let told = serde_json::to_string(&told).unwrap_or_else(|_| "\"\"".to_owned());
            // A short text is no problem.
            let _ = builder.push(&told);
        }
    }
    inputs.push((first..work.jobs_count(), builder.finish().as_str().to_owned()));
    inputs
}
