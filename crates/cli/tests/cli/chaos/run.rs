//! Kills `gristmill run` repeatedly at random times, and runs the same command again until it is done.
//!
//! `CYCLES` is the number of kills (5 by default), and `SEED` the start of the random numbers. After every kill the
//! store must be sound and hold everything that it reported as committed. At the end of every run each line has one
//! outcome, in order, and no committed job ran again.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use gristmill_model::{Rng, SplitMix64};

use crate::workspace::{self, Workspace, json_lines, numbers};

const ITEMS: u32 = 20_000;
const BATCH: u64 = 200;

const COMMAND: &str = "run chaos.py --input items.jsonl --output out.jsonl --batch 200 --quiet";

/// Notes each payload before it answers, in one write, so that no kill can tear a line.
const SCRIPT: &str = "import os\n\
    ran = os.open(os.path.dirname(os.path.abspath(__file__)) + '/ran.txt', os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n\
    def main(payload):\n\
    \x20   os.write(ran, b'%d\\n' % payload)\n\
    \x20   if payload % 97 == 0:\n\
    \x20       raise ValueError('no')\n\
    \x20   return payload * 2\n";

#[test]
fn a_killed_run_goes_on_where_it_was() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| {
            text.parse()
                .unwrap_or_else(|_| panic!("{name}={text} is no number"))
        })
    };
    assert!(COMMAND.contains(&format!("--batch {BATCH} ")));
    let (cycles, seed) = (number("CYCLES", 5), number("SEED", 1));
    let mut rng = SplitMix64::new(seed);
    // An undisturbed run measures the duration, so that kills come at the start, in the middle and at the end, on any
    // machine.
    let mut undisturbed = Duration::ZERO;
    kill_until_finished(0, &mut rng, &mut undisturbed);
    println!("a run takes {undisturbed:.1?}");
    let mut done = 0;
    while done < cycles {
        let killed = kill_until_finished(cycles - done, &mut rng, &mut undisturbed);
        done += killed;
        println!("{done} of {cycles} cycles; the last run was killed {killed} times");
    }
    // A failure has panicked before this line.
    println!("{done} cycles, 0 failed (SEED={seed})");
}

/// The jobs that were seen as committed.
#[derive(Default)]
struct Seen {
    outcomes: BTreeMap<String, String>,
    /// For each payload, the number of its runs when its outcome was first seen.
    ran: BTreeMap<u64, u32>,
}

impl Seen {
    /// Reads the store after a kill. No earlier outcome may be missing or different.
    fn look(&mut self, workspace: &Workspace) {
        let outcomes = committed(workspace);
        for (job, outcome) in &self.outcomes {
            assert_eq!(
                outcomes.get(job),
                Some(outcome),
                "job {job} was committed and is not any more"
            );
        }
        let ran = if outcomes.is_empty() {
            Default::default()
        } else {
            workspace.ran()
        };
        for payload in outcomes.keys().map(|job| payload_of(job)) {
            self.ran.entry(payload).or_insert_with(|| ran[&payload]);
        }
        self.outcomes = outcomes;
    }
}

/// The payload of a job. It follows from the job's id, because batches are full and ids begin with 1.
fn payload_of(job: &str) -> u64 {
    let (batch, position) = job
        .trim_start_matches("{\"job\":\"")
        .split_once(':')
        .expect("a job's id");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    (number(batch) - 1) * BATCH + number(position) + 1
}

/// Runs and kills one run up to `kills` times, each time within the duration of a run. Returns the number of kills.
/// Without `kills`, measures the duration.
fn kill_until_finished(kills: u64, rng: &mut SplitMix64, undisturbed: &mut Duration) -> u64 {
    let workspace = Workspace::new();
    workspace
        .write("chaos.py", SCRIPT)
        .write("items.jsonl", numbers(ITEMS));
    let mut seen = Seen::default();
    let mut killed = 0;
    while killed < kills {
        let delay = Duration::from_micros(rng.below(undisturbed.as_micros() as u64));
        if run_for(&workspace, delay) {
            break;
        }
        killed += 1;
        seen.look(&workspace);
    }
    let begun = Instant::now();
    let ended = workspace.run(COMMAND);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    if kills == 0 {
        *undisturbed = begun.elapsed();
    }
    check_end(&workspace, &mut seen);
    killed
}

/// Runs the command and kills it after `delay`. Returns whether it had ended by itself.
fn run_for(workspace: &Workspace, delay: Duration) -> bool {
    let mut child = workspace.spawn(COMMAND, Stdio::null());
    // The end of its standard error means the end of the process.
    let (ended, end) = mpsc::channel::<()>();
    let mut stderr = child.stderr.take().expect("it is piped");
    let watcher = std::thread::spawn(move || {
        let _ = std::io::copy(&mut stderr, &mut std::io::sink());
        drop(ended);
    });
    let begun = Instant::now();
    let had_ended = end.recv_timeout(delay) == Err(mpsc::RecvTimeoutError::Disconnected);
    assert!(had_ended || begun.elapsed() >= delay);
    let _ = child.kill();
    let status = child.wait().expect("it has ended");
    watcher.join().expect("the watcher ends with the process");
    assert!(
        status.code().is_none_or(|code| code == 1),
        "it ended by itself with {status}"
    );
    status.code().is_some()
}

/// The values of the completed jobs in a store whose process was just killed. Checks its integrity first.
fn committed(workspace: &Workspace) -> BTreeMap<String, String> {
    let store = workspace.path("gristmill.db");
    if !workspace::exists(&store) {
        return BTreeMap::new();
    }
    let check = Command::new("python3")
        .args(["-c", "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('PRAGMA integrity_check').fetchone()[0])"])
        .arg(&store)
        .output()
        .expect("python3 runs");
    let verdict = String::from_utf8_lossy(&check.stdout);
    assert_eq!(verdict.trim(), "ok", "{}", String::from_utf8_lossy(&check.stderr));
    let results = workspace.run("results chaos.py:items.jsonl");
    if results.code != Some(0) && results.stderr.contains("does not exist") {
        // The process was killed before the run started.
        return BTreeMap::new();
    }
    let lines = results.stdout.lines().map(|line| {
        let (job, outcome) = line.split_once("\",\"").expect("a job and its outcome");
        (job.to_owned(), outcome.to_owned())
    });
    lines.collect()
}

fn check_end(workspace: &Workspace, seen: &mut Seen) {
    let lines = json_lines(&workspace.read("out.jsonl"));
    assert_eq!(lines.len(), ITEMS as usize, "every line has one outcome");
    for (payload, line) in (1..).zip(&lines) {
        assert_eq!(
            payload_of(line["job"].as_str().expect("a job")),
            payload,
            "in order"
        );
        if payload.is_multiple_of(97) {
            assert_eq!(line["error"]["type"], "ValueError", "line {payload}: {line}");
        } else {
            assert_eq!(
                line["value"].as_u64(),
                Some(payload * 2),
                "line {payload}: {line}"
            );
        }
    }
    let ran_before = std::mem::take(&mut seen.ran);
    seen.look(workspace);
    let ran = workspace.ran();
    assert_eq!(ran.len(), ITEMS as usize, "every line was run");
    for (payload, times) in ran_before {
        assert_eq!(ran[&payload], times, "{payload} was committed and ran again");
    }
}
