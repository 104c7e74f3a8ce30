//! A random machine drives one handler with runs, recalls, drains and cancels of jobs that sleep, fail, fork, crash,
//! print and run too long. In any order of events, each job is answered exactly once, none begins twice unless a job
//! killed its process in between, jobs begin in their order, and each log belongs to its job.
//!
//! `GRISTMILL_TEST_SEED` chooses another seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gristmill_model::Positions;
use gristmill_runtime::{Runtime, RuntimeOptions, ScriptHandler};
use gristmill_worker::Handler;
use serde_json::{Value, json};

use crate::harness::{Ended, PATIENCE, Recorder, Subject, micro_batch, warm_subjects};

const STEPS: usize = 60;
const CRASHES_MAX: usize = 4;
const HANGS_MAX: usize = 2;
/// This is long beside any work of a job on a busy machine.
const TIMEOUT_MS: u64 = 4_000;

/// A sequence of numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// One call of `run`.
struct Call {
    first_id: u64,
    does: Vec<&'static str>,
    recorder: Arc<Recorder>,
    running: tokio::task::JoinHandle<()>,
    drained: bool,
    cancelled: bool,
}

struct Machine {
    dice: Dice,
    handler: Arc<ScriptHandler>,
    processes: usize,
    file: std::path::PathBuf,
    calls: Vec<Call>,
    next_id: u64,
    crashes: usize,
    hangs: usize,
}

impl Machine {
    async fn run(&mut self) {
        let count_max = if self.dice.below(4) == 0 { 40 } else { 6 };
        let count = 1 + self.dice.below(count_max);
        let mut does = Vec::new();
        for _ in 0..count {
            does.push(match self.dice.below(40) {
                0 if self.crashes < CRASHES_MAX => {
                    self.crashes += 1;
                    "crash"
                }
                1 if self.hangs < HANGS_MAX => {
                    self.hangs += 1;
                    "hang"
                }
                2..=5 => "fail",
                6..=20 => "sleep",
                21..=24 => "fork",
                _ => "nothing",
            });
        }
        let first_id = self.next_id;
        self.next_id += count;
        let payloads: Vec<Value> = does
            .iter()
            .zip(first_id..)
            .map(|(does, id)| json!({"id": id, "do": does, "ms": self.dice.below(8), "file": self.file}))
            .collect();
        let work = micro_batch(&payloads, Some(TIMEOUT_MS));
        let recorder = Arc::new(Recorder::default());
        let (handler, sink) = (Arc::clone(&self.handler), Arc::clone(&recorder));
        let runner = self.dice.below(self.processes as u64) as usize;
        let running = tokio::spawn(async move { handler.run(runner, work, &*sink).await });
        // The calls are made in this order.
        recorder.until_asked().await;
        self.calls.push(Call {
            first_id,
            does,
            recorder,
            running,
            drained: false,
            cancelled: false,
        });
    }

    async fn step(&mut self) {
        // One of the last calls, which may still run.
        let last = self.calls.len() - 1;
        let call = last - self.dice.below(last.min(3) as u64 + 1) as usize;
        match self.dice.below(10) {
            0..=4 => self.run().await,
            5 | 6 => self
                .handler
                .recall(self.dice.below(self.processes as u64) as usize),
            7 => {
                if let Some(call) = self.calls.get_mut(call) {
                    call.recorder.drain();
                    call.drained = true;
                }
            }
            8 => {
                if let Some(call) = self.calls.get_mut(call) {
                    let count = call.does.len() as u64;
                    let first = self.dice.below(count);
                    let end = first + 1 + self.dice.below(count - first);
                    call.recorder.cancel(Positions::from(first as u32..end as u32));
                    call.cancelled = true;
                }
            }
            _ => {
                // Something should happen before the next step.
                if let Some(call) = self.calls.get(call) {
                    call.recorder.until_answered(1).await;
                }
            }
        }
    }
}

#[derive(Default, Debug)]
struct Counts {
    completed: usize,
    failed: usize,
    released: usize,
    returned: usize,
    begun_again: usize,
}

/// The jobs that began, as they wrote it down themselves.
struct BegunJobs {
    /// The ids of jobs and their processes, in the order in which jobs began.
    in_order: Vec<(u64, u64)>,
    /// The processes in which each job began.
    pids_of: BTreeMap<u64, Vec<u64>>,
    /// The processes that a job killed.
    killed: BTreeSet<u64>,
}

impl BegunJobs {
    fn of(machine: &Machine) -> BegunJobs {
        let text = std::fs::read_to_string(&machine.file).unwrap();
        let in_order: Vec<(u64, u64)> = text
            .lines()
            .map(|line| {
                let (id, pid) = line.split_once(' ').unwrap();
                (id.parse().unwrap(), pid.parse().unwrap())
            })
            .collect();
        let mut pids_of: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (id, pid) in &in_order {
            pids_of.entry(*id).or_default().push(*pid);
        }
        let calls = machine.calls.iter();
        let does: Vec<&str> = calls.flat_map(|call| call.does.iter().copied()).collect();
        // A job that a shim gives up leaves its process alive.
        let kills = |id: u64| does[id as usize] == "crash" || does[id as usize] == "hang";
        let killed = in_order.iter().filter(|(id, _)| kills(*id));
        BegunJobs {
            killed: killed.map(|(_, pid)| *pid).collect(),
            in_order,
            pids_of,
        }
    }

    /// A process that runs one job at a time begins jobs in their order.
    fn is_in_order(&self, name: &str) {
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for (id, pid) in &self.in_order {
            let before = last.insert(*pid, *id);
            assert!(
                before < Some(*id),
                "{name}: job {id} began after {before:?} in process {pid}"
            );
        }
    }
}

async fn drive(subject: &Subject, stem: &str, options: &RuntimeOptions, seed: u64) {
    let name = format!("{} {stem} {options:?} seed {seed}", subject.name);
    let folder = tempfile::tempdir().unwrap();
    let handler = Arc::new(subject.handler_with(stem, options));
    handler.check().await.unwrap();
    let mut machine = Machine {
        dice: Dice(seed),
        handler,
        processes: options.processes,
        file: folder.path().join("begun"),
        calls: Vec::new(),
        next_id: 0,
        crashes: 0,
        hangs: 0,
    };
    machine.run().await;
    for _ in 0..STEPS {
        machine.step().await;
    }
    let mut counts = Counts::default();
    for call in &mut machine.calls {
        if tokio::time::timeout(PATIENCE, &mut call.running).await.is_err() {
            panic!(
                "{name}: a call did not end: {:?} {:?}",
                call.does,
                call.recorder.ended()
            );
        }
    }
    let begun = BegunJobs::of(&machine);
    for call in &machine.calls {
        check(&name, call, &begun, &mut counts);
    }
    if options.concurrency == 1 {
        begun.is_in_order(&name);
    }
    let jobs: usize = machine.calls.iter().map(|call| call.does.len()).sum();
    println!("{name}: {jobs} jobs, {counts:?}");
    machine.handler.shut_down().await;
}

/// Checks that each job of a call had a possible end.
fn check(name: &str, call: &Call, begun: &BegunJobs, counts: &mut Counts) {
    let ended = call.recorder.ended();
    assert_eq!(ended.len(), call.does.len(), "{name}: {ended:?}");
    for ((place, ended), does) in ended.iter().zip(&call.does) {
        let id = call.first_id + u64::from(*place);
        let pids = begun.pids_of.get(&id).cloned().unwrap_or_default();
        let what = format!("{name}: job {id} ({does}) ended as {ended:?}, begun in {pids:?}");
        let log = call.recorder.log(*place);
        let (first, last) = (format!("begin {id}\n"), format!("end {id}\n"));
        match ended {
            Ended::Completed(value) => {
                counts.completed += 1;
                assert_eq!(
                    (value, ["sleep", "fork", "nothing"].contains(does)),
                    (&json!(id), true),
                    "{what}"
                );
                assert_eq!(log, first + &last, "{what}");
            }
            Ended::Failed(error) => {
                counts.failed += 1;
                let expected: &[&str] = match *does {
                    "fail" => &["ValueError", "Error"],
                    "crash" => &["crash"],
                    "hang" => &["timeout"],
                    _ => &[],
                };
                assert!(expected.contains(&error.error_type.as_str()), "{what}");
                assert_eq!(log, first, "{what}");
            }
            Ended::Released => {
                counts.released += 1;
                assert!(call.drained || call.cancelled, "{what}");
            }
            Ended::Returned => counts.returned += 1,
            Ended::Suspended => panic!("{what}"),
        }
        let is_answered = matches!(ended, Ended::Completed(_) | Ended::Failed(_));
        assert!(!is_answered || !pids.is_empty(), "{what}");
        // A job killed every process in which this job began and did not end.
        let before = pids.len() - usize::from(is_answered).min(pids.len());
        assert!(
            pids[..before].iter().all(|pid| begun.killed.contains(pid)),
            "{what}"
        );
        assert_eq!(pids.iter().collect::<BTreeSet<_>>().len(), pids.len(), "{what}");
        counts.begun_again += before;
    }
}

fn seed() -> u64 {
    let given = std::env::var("GRISTMILL_TEST_SEED").ok();
    given.and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

async fn drive_all(stem: &str, concurrency: u32) {
    for subject in warm_subjects() {
        let options = RuntimeOptions {
            processes: 2,
            concurrency,
            // Cancels affect jobs that have not begun.
            cancel_grace_ms: 600_000,
            ..RuntimeOptions::default()
        };
        drive(&subject, stem, &options, seed()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_job_at_a_time() {
    drive_all("machine", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_asynchronous_jobs_at_once() {
    drive_all("machine_async", 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_two_asynchronous_jobs_at_once() {
    drive_all("machine_async", 32).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_threads() {
    for subject in warm_subjects()
        .iter()
        .filter(|subject| subject.runtime == Runtime::Python)
    {
        let options = RuntimeOptions {
            processes: 2,
            threads: 8,
            cancel_grace_ms: 600_000,
            ..RuntimeOptions::default()
        };
        drive(subject, "machine", &options, seed()).await;
    }
}
