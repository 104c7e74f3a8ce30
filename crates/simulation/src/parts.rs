//! A long simulation, split into processes side by side.

use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::folder_of;
use crate::limits::{HOURS_PER_PROCESS_MAX, MESSAGES_WAIT, REAL_S_MAX, TRACE_LINES_MAX};
use crate::simulation::Finding;

/// The sums over all parts.
#[derive(Debug, Default)]
struct Sums {
    parts: u64,
    simulated_s: f64,
    faults: u64,
    jobs: u64,
    flows: u64,
    died_with_workers: u64,
    violations: u64,
}

/// Simulates this many hours, seed by seed. Prints the sums so far after each part, and all of them at the end.
pub fn run(seed: u64, hours: f64) -> ExitCode {
    let parts = (hours / HOURS_PER_PROCESS_MAX).ceil().max(1.0) as u64;
    let hours_each = hours / parts as f64;
    let next = AtomicU64::new(seed);
    let sums = Mutex::new(Sums::default());
    let processes = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..processes {
            scope.spawn(|| {
                loop {
                    let seed_of_part = next.fetch_add(1, Ordering::Relaxed);
                    if seed_of_part >= seed + parts {
                        return;
                    }
                    let finding = run_part(seed_of_part, hours_each);
                    let mut sums = sums.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    add(&mut sums, seed_of_part, hours_each, finding);
                    eprintln!("part {} of {parts}: {}", sums.parts, sums.told());
                }
            });
        }
    });
    let sums = sums
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    assert!(
        next.into_inner() >= seed + parts,
        "each of the {parts} parts was taken by a thread"
    );
    println!("{} (seeds {seed} to {})", sums.told(), seed + parts - 1);
    match sums.violations {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

impl Sums {
    fn told(&self) -> String {
        format!(
            "{:.2} simulated hours, {} faults, {} jobs, {} flows, {} jobs dead with their workers: {} violations",
            self.simulated_s / 3_600.0,
            self.faults,
            self.jobs,
            self.flows,
            self.died_with_workers,
            self.violations,
        )
    }
}

fn add(sums: &mut Sums, seed: u64, hours: f64, finding: Result<Finding, String>) {
    sums.parts += 1;
    let problem = match finding {
        Ok(finding) => {
            sums.simulated_s += finding.simulated_s;
            sums.faults += finding.faults;
            sums.jobs += finding.jobs;
            sums.flows += finding.flows;
            sums.died_with_workers += finding.died_with_workers;
            finding.violation
        }
        Err(error) => Some(error),
    };
    if let Some(problem) = problem {
        sums.violations += 1;
        println!(
            "seed {seed}: {problem}\n  again: gristmill-simulate --alone --trace --seed {seed} --hours {hours}"
        );
    }
}

fn run_part(seed: u64, hours: f64) -> Result<Finding, String> {
    let told = |error: std::io::Error| error.to_string();
    let program = std::env::current_exe().map_err(told)?;
    let mut process = Command::new(program)
        .args([
            "--alone",
            "--seed",
            &seed.to_string(),
            "--hours",
            &hours.to_string(),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(told)?;
    let output = read_all(process.stdout.take());
    let messages = read_all(process.stderr.take());
    let Ok(output) = output.recv_timeout(Duration::from_secs(REAL_S_MAX)) else {
        process.kill().map_err(told)?;
        process.wait().map_err(told)?;
        let _ = std::fs::remove_dir_all(folder_of(process.id()));
        return Err(format!(
            "the simulation has not ended within {REAL_S_MAX} s of real time: something waits for ever. It said last:\n{}",
            last_lines(&messages)
        ));
    };
    let status = process.wait().map_err(told)?;
    serde_json::from_slice(&output).map_err(|_| format!("{status}: {}", last_lines(&messages)))
}

/// The last lines that a process wrote before it ended.
fn last_lines(messages: &Receiver<Vec<u8>>) -> String {
    // A process that it left behind may hold the pipe open.
    let messages = messages.recv_timeout(MESSAGES_WAIT).unwrap_or_default();
    let text = String::from_utf8_lossy(&messages);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TRACE_LINES_MAX)..].join("\n")
}

/// Reads a pipe in a thread, and sends all of its bytes once the pipe has ended. Nobody joins the thread: it ends with the pipe.
fn read_all(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(mut pipe) = pipe {
            // A pipe that breaks ends the text.
            let _ = pipe.read_to_end(&mut all);
        }
        // After a timeout nobody wants it.
        let _ = sender.send(all);
    });
    receiver
}
