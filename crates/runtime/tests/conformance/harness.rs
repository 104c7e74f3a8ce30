//! The runtimes that the suite tests, and a worker's side that records what it receives.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use gristmill_model::{
    BatchId, JobError, JobLabels, LeaseId, LeasedSlice, PackedArray, PackedBuilder, Positions, Progress,
    Siblings, Suspended, Tag, Timestamp, TraceParent,
};
use gristmill_runtime::{DetectOptions, Runtime, RuntimeOptions, Script, ScriptHandler};
use gristmill_worker::{Handler, MicroBatch, OutcomeSink, Outcomes, RunnerChange, RunnerListener};
use serde_json::Value;
use tokio::sync::Notify;

/// The longest wait of a test for an event.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A runtime to test.
#[derive(Debug, Clone)]
pub struct Subject {
    pub name: &'static str,
    pub runtime: Runtime,
    interpreter: Option<PathBuf>,
}

/// All runtimes, found or not.
const SUBJECTS: [(&str, Runtime, &str); 6] = [
    ("python", Runtime::Python, "python3"),
    ("node", Runtime::Node, "node"),
    ("node24", Runtime::Node, "node24/bin/node"),
    ("deno", Runtime::Deno, "bin/deno"),
    ("bun", Runtime::Bun, "bin/bun"),
    ("bash", Runtime::Program, "bash"),
];

fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/tools")
}

/// The installed runtimes. Missing ones are reported on standard error.
pub fn subjects() -> Vec<Subject> {
    let only = std::env::var("GRISTMILL_TEST_RUNTIMES").ok();
    let wanted = SUBJECTS.iter().filter(|(name, ..)| {
        only.as_deref()
            .is_none_or(|only| only.split(',').any(|one| one == *name))
    });
    let subjects: Vec<Subject> = wanted
        .filter_map(|(name, runtime, program)| find(name, *runtime, program))
        .collect();
    assert!(!subjects.is_empty(), "no runtime is installed");
    subjects
}

fn find(name: &'static str, runtime: Runtime, program: &str) -> Option<Subject> {
    let in_tools = tools().join(program);
    let in_path = std::env::var_os("PATH").and_then(|path| {
        let program = program
            .rsplit('/')
            .next()
            .filter(|_| !program.starts_with("node24"))?;
        std::env::split_paths(&path)
            .map(|folder| folder.join(program))
            .find(|path| path.exists())
    });
    let interpreter = Some(in_tools).filter(|path| path.exists()).or(in_path);
    if interpreter.is_none() {
        eprintln!("SKIPPED: {name} is not installed; crates/runtime/scripts/install-runtimes.sh installs it");
    }
    interpreter.map(|interpreter| Subject {
        name,
        runtime,
        interpreter: Some(interpreter),
    })
}

/// The subjects of a language that keep a warm process.
pub fn warm_subjects_of(is_python: bool) -> Vec<Subject> {
    let mut subjects = warm_subjects();
    subjects.retain(|subject| (subject.runtime == Runtime::Python) == is_python);
    subjects
}

/// The subjects that keep a warm process.
pub fn warm_subjects() -> Vec<Subject> {
    subjects()
        .into_iter()
        .filter(|subject| subject.runtime != Runtime::Program)
        .collect()
}

impl Subject {
    /// A script of the suite in this runtime's language.
    pub fn script(&self, stem: &str) -> Script {
        let extension = match self.runtime {
            Runtime::Python => "py",
            Runtime::Program => "sh",
            _ => "js",
        };
        self.script_file(
            &Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/scripts")
                .join(format!("{stem}.{extension}")),
        )
    }

    pub fn script_file(&self, path: &Path) -> Script {
        let options = DetectOptions {
            interpreter: self.interpreter.clone(),
            ..DetectOptions::default()
        };
        Script::detect(path, &options).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// A script with this text in its own folder.
    pub fn script_of(&self, name: &str, text: &str) -> (tempfile::TempDir, Script) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let script = self.script_file(&path);
        (folder, script)
    }

    /// A handler with one process for a script of the suite.
    pub fn handler(&self, stem: &str) -> ScriptHandler {
        self.handler_with(stem, &RuntimeOptions::default())
    }

    pub fn handler_with(&self, stem: &str, options: &RuntimeOptions) -> ScriptHandler {
        ScriptHandler::new(self.script(stem), options)
            .unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// The end of one job.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    Completed(Value),
    Failed(JobError),
    Released,
    Returned,
    Suspended,
}

impl Ended {
    pub fn value(&self) -> &Value {
        match self {
            Ended::Completed(value) => value,
            other => panic!("not completed: {other:?}"),
        }
    }

    pub fn error(&self) -> &JobError {
        match self {
            Ended::Failed(error) => error,
            other => panic!("not failed: {other:?}"),
        }
    }
}

/// A worker's side of a micro-batch. It panics if a job is answered twice.
#[derive(Debug, Default)]
pub struct Recorder {
    ended: Mutex<BTreeMap<u32, Ended>>,
    logs: Mutex<BTreeMap<u32, String>>,
    progress: Mutex<BTreeMap<u32, Progress>>,
    spawned: Mutex<Vec<Suspended>>,
    siblings: Mutex<Vec<Siblings>>,
    changed: Notify,
    draining: AtomicBool,
    asked_while_draining: AtomicUsize,
    cancelled: Mutex<Positions>,
    asked_since_cancel: AtomicUsize,
    followed: AtomicBool,
    printed: Mutex<BTreeMap<u32, Vec<u8>>>,
}

impl Recorder {
    /// The children that jobs spawned, in the order of the reports.
    pub fn spawned(&self) -> Vec<Suspended> {
        self.spawned.lock().unwrap().clone()
    }

    /// The siblings that jobs spawned.
    pub fn siblings(&self) -> Vec<Siblings> {
        self.siblings.lock().unwrap().clone()
    }

    pub fn ended(&self) -> BTreeMap<u32, Ended> {
        self.ended.lock().unwrap().clone()
    }

    /// The last progress that a job reported.
    pub fn progress_of(&self, position: u32) -> Option<Progress> {
        self.progress.lock().unwrap().get(&position).cloned()
    }

    pub fn log(&self, position: u32) -> String {
        self.logs
            .lock()
            .unwrap()
            .get(&position)
            .cloned()
            .unwrap_or_default()
    }

    /// Follows the output of jobs from now on.
    pub fn follow(&self) {
        self.followed.store(true, Ordering::SeqCst);
    }

    /// The reported output of a running job.
    pub fn printed(&self, position: u32) -> String {
        let printed = self.printed.lock().unwrap();
        let bytes = printed.get(&position).cloned().unwrap_or_default();
        String::from_utf8(bytes).unwrap()
    }

    /// Waits until the handler has the micro-batch.
    pub async fn until_asked(&self) {
        self.until("the first look", |recorder| {
            recorder.asked_since_cancel.load(Ordering::SeqCst) >= 1 || !recorder.ended().is_empty()
        })
        .await;
    }

    pub fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    pub fn cancel(&self, positions: Positions) {
        *self.cancelled.lock().unwrap() = positions;
        self.asked_since_cancel.store(0, Ordering::SeqCst);
    }

    /// Waits until `done` holds.
    pub async fn until(&self, what: &str, done: impl Fn(&Recorder) -> bool) {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if done(self) {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            panic!("{what} did not come; ended so far: {:?}", self.ended());
        }
    }

    pub async fn until_answered(&self, count: usize) {
        self.until("answers", |recorder| {
            recorder.ended.lock().unwrap().len() >= count
        })
        .await;
    }

    /// Waits until the handler has acted on the drain: it asks, tells the process, and asks again; or has released jobs
    /// that it had not begun at all.
    pub async fn until_drain_is_heard(&self) {
        self.until("the drain", |recorder| {
            let asked = recorder.asked_while_draining.load(Ordering::SeqCst);
            asked >= 3 || recorder.ended().values().any(|ended| *ended == Ended::Released)
        })
        .await;
    }

    pub async fn until_cancel_is_heard(&self) {
        self.until("the cancel", |recorder| {
            recorder.asked_since_cancel.load(Ordering::SeqCst) >= 3
        })
        .await;
    }

    fn end(&self, position: u32, ended: Ended) {
        let before = self.ended.lock().unwrap().insert(position, ended);
        assert!(before.is_none(), "job {position} was answered twice");
    }
}

impl OutcomeSink for Recorder {
    fn answer(&self, outcomes: Outcomes) {
        for log in outcomes.logs {
            let before = self.logs.lock().unwrap().insert(log.position, log.text);
            assert!(before.is_none(), "job {} has two logs", log.position);
        }
        if let Some(completed) = outcomes.completed {
            assert_eq!(completed.positions.len(), completed.values.count());
            assert_eq!(completed.positions.len() as usize, completed.durations_us.len());
            for (position, value) in completed.positions.iter().zip(completed.values.items()) {
                self.end(
                    position,
                    Ended::Completed(serde_json::from_str(value).expect("a value is JSON")),
                );
            }
        }
        self.siblings.lock().unwrap().extend(outcomes.siblings);
        for suspended in outcomes.suspended {
            suspended.check().unwrap();
            self.spawned.lock().unwrap().push(suspended.clone());
            for position in suspended.positions.iter() {
                self.end(position, Ended::Suspended);
            }
        }
        for failed in outcomes.failed {
            self.end(failed.position, Ended::Failed(failed.error));
        }
        for position in outcomes.released.iter() {
            self.end(position, Ended::Released);
        }
        for position in outcomes.returned.iter() {
            self.end(position, Ended::Returned);
        }
        self.changed.notify_waiters();
    }

    fn is_draining(&self) -> bool {
        let draining = self.draining.load(Ordering::SeqCst);
        if draining {
            self.asked_while_draining.fetch_add(1, Ordering::SeqCst);
            self.changed.notify_waiters();
        }
        draining
    }

    fn progress(&self, progress: Vec<(u32, Progress)>) {
        self.progress.lock().unwrap().extend(progress);
        self.changed.notify_waiters();
    }

    fn is_followed(&self) -> bool {
        self.followed.load(Ordering::SeqCst)
    }

    fn printed(&self, index: u32, bytes: &[u8]) {
        let mut printed = self.printed.lock().unwrap();
        printed.entry(index).or_default().extend_from_slice(bytes);
        drop(printed);
        self.changed.notify_waiters();
    }

    fn cancelled(&self) -> Positions {
        self.asked_since_cancel.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
        self.cancelled.lock().unwrap().clone()
    }
}

/// A micro-batch of `payloads`, from the middle of a batch.
pub fn micro_batch(payloads: &[Value], timeout_ms: Option<u64>) -> MicroBatch {
    let mut builder = PackedBuilder::new();
    payloads
        .iter()
        .for_each(|payload| builder.push_value(payload).unwrap());
    packed(builder.finish(), timeout_ms)
}

/// A micro-batch whose jobs have this time limit.
pub fn timed(payloads: &[Value], timeout_ms: u64) -> MicroBatch {
    micro_batch(payloads, Some(timeout_ms))
}

/// A micro-batch of packed payloads.
pub fn packed(payloads: PackedArray, timeout_ms: Option<u64>) -> MicroBatch {
    MicroBatch::new(vec![slice(payloads, timeout_ms)])
}

/// A micro-batch with jobs of batch 42, and others of batch 43 on their fifth attempt, of a group, with a deadline, and
/// the first of them with its own key and tag.
pub fn of_two_batches(payloads: &[Value], others: &[Value]) -> MicroBatch {
    let [first, second] = [payloads, others].map(|payloads| {
        let mut builder = PackedBuilder::new();
        payloads
            .iter()
            .for_each(|payload| builder.push_value(payload).unwrap());
        slice(builder.finish(), None)
    });
    let second = LeasedSlice {
        lease: LeaseId(2),
        batch: BatchId(43),
        positions: Positions::from(7..7 + second.payloads.count()),
        attempt: 5,
        group: Some("acme".into()),
        deadline: Some(Timestamp(1_500)),
        traceparent: Some(TraceParent {
            trace_id: 10,
            span_id: 11,
        }),
        labels: Some(Arc::new(labels(Positions::from(7..7 + second.payloads.count())))),
        ..second
    };
    MicroBatch::new(vec![first, second])
}

fn labels(positions: Positions) -> JobLabels {
    let mut keys = vec![Value::Null; positions.len() as usize];
    keys[0] = "say \"one\"".into();
    let own = Tag {
        positions: Some(Positions::from(7..8)),
        ..Tag::all("__proto__", "own")
    };
    let mut packed = PackedBuilder::new();
    keys.iter().for_each(|key| packed.push_value(key).unwrap());
    JobLabels::new(
        positions,
        Some(packed.finish()),
        vec![own, Tag::all("tenant", "7")],
    )
    .unwrap()
}

/// Jobs of batch 42 from position 10.
pub fn slice(payloads: PackedArray, timeout_ms: Option<u64>) -> LeasedSlice {
    LeasedSlice {
        lease: LeaseId(1),
        batch: BatchId(42),
        kind: "script:actions".into(),
        queue: "default".into(),
        group: None,
        positions: Positions::from(10..10 + payloads.count()),
        payloads,
        attempt: 1,
        rescues: 0,
        timeout_ms,
        priority: 0,
        retry: gristmill_model::RetryPolicy::default(),
        submitted_at: Timestamp(0),
        memos: None,
        deadline: None,
        labels: None,
        traceparent: None,
    }
}

/// Runs one micro-batch to its end. Returns the end of each job, in order, and the recorder with the logs.
pub async fn run(
    handler: &ScriptHandler,
    payloads: &[Value],
    timeout_ms: Option<u64>,
) -> (Vec<Ended>, Arc<Recorder>) {
    run_work(handler, micro_batch(payloads, timeout_ms)).await
}

/// Like `run`, for any micro-batch.
pub async fn run_work(handler: &ScriptHandler, work: MicroBatch) -> (Vec<Ended>, Arc<Recorder>) {
    run_on(handler, 0, work).await
}

/// Like `run_work`, on any runner.
pub async fn run_on(handler: &ScriptHandler, runner: usize, work: MicroBatch) -> (Vec<Ended>, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let jobs = work.jobs_count();
    let running = handler.run(runner, work, &*recorder);
    if tokio::time::timeout(PATIENCE, running).await.is_err() {
        panic!(
            "the micro-batch did not end; ended so far: {:?}",
            recorder.ended()
        );
    }
    let ended = recorder.ended();
    assert_eq!(
        ended.keys().copied().collect::<Vec<_>>(),
        (0..jobs).collect::<Vec<_>>()
    );
    (ended.into_values().collect(), recorder)
}

/// The changes of a handler's runners that a worker receives.
pub struct Changes(mpsc::Receiver<RunnerChange>);

impl Changes {
    pub fn of(handler: &ScriptHandler) -> Changes {
        let (sender, changes) = mpsc::channel();
        handler.listen(RunnerListener::new(move |change| drop(sender.send(change))));
        Changes(changes)
    }

    pub fn next(&self) -> RunnerChange {
        self.0.recv_timeout(PATIENCE).expect("no change")
    }

    /// The reason why no runner takes jobs any more.
    pub fn failed(&self) -> String {
        loop {
            if let RunnerChange::Failed(reason) = self.next() {
                return reason;
            }
        }
    }
}

/// A FIFO in its own folder. A job that reads from it blocks until the test writes.
pub struct Gate {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
}

impl Gate {
    pub fn new() -> Gate {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gate");
        let made = std::process::Command::new("mkfifo")
            .args([&path, &path.with_extension("announced")])
            .status()
            .unwrap();
        assert!(made.success());
        Gate {
            _folder: folder,
            path,
        }
    }

    /// The payload of a job that waits here.
    pub fn block(&self) -> Value {
        serde_json::json!({"do": "block", "fifo": self.path})
    }

    /// The payload of a job that waits here and announces this: [`until_waited_at`](Gate::until_waited_at).
    pub fn announced_block(&self) -> Value {
        serde_json::json!({"do": "block", "fifo": self.path, "here": self.announced()})
    }

    /// The payload of an asynchronous job that waits here, beside others, until it is released.
    pub fn wait(&self) -> Value {
        serde_json::json!({"do": "wait", "here": self.announced(), "file": self.released()})
    }

    /// A FIFO to which a waiting job writes.
    fn announced(&self) -> PathBuf {
        self.path.with_extension("announced")
    }

    /// This file exists when the job may continue.
    fn released(&self) -> PathBuf {
        self.path.with_extension("released")
    }

    /// Waits until the job that announces itself is here.
    pub async fn until_waited_at(&self) {
        let path = self.announced();
        // Opening a FIFO to read waits for its writer.
        let read = tokio::task::spawn_blocking(move || std::fs::read(path));
        tokio::time::timeout(PATIENCE, read)
            .await
            .expect("nobody waits at the gate")
            .unwrap()
            .unwrap();
    }

    /// Releases the waiting asynchronous job.
    pub fn let_go(&self) {
        std::fs::write(self.released(), "").unwrap();
    }

    /// Waits until a job waits here, and lets it continue with `text`.
    pub async fn open(&self, text: &'static str) {
        let path = self.path.clone();
        // Opening a FIFO to write waits for its reader.
        let write = tokio::task::spawn_blocking(move || std::fs::write(path, text));
        tokio::time::timeout(PATIENCE, write)
            .await
            .expect("nobody waits at the gate")
            .unwrap()
            .unwrap();
    }
}
