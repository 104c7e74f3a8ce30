//! A long simulation, split into processes side by side.

use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::HOURS_PER_PROCESS_MAX;
use crate::simulation::Finding;

/// The sums over all parts.
#[derive(Debug, Default)]
struct Sums {
    simulated_s: f64,
    faults: u64,
    jobs: u64,
    flows: u64,
    died_with_workers: u64,
    violations: u64,
}

/// Simulates this many hours, seed by seed, and prints the sums.
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
    println!(
        "{:.2} simulated hours, {} faults, {} jobs, {} flows, {} jobs dead with their workers: {} violations (seeds {seed} to {})",
        sums.simulated_s / 3_600.0,
        sums.faults,
        sums.jobs,
        sums.flows,
        sums.died_with_workers,
        sums.violations,
        seed + parts - 1,
    );
    match sums.violations {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn add(sums: &mut Sums, seed: u64, hours: f64, finding: Result<Finding, String>) {
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
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .args([
            "--alone",
            "--seed",
            &seed.to_string(),
            "--hours",
            &hours.to_string(),
        ])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    read(&output)
}

fn read(output: &Output) -> Result<Finding, String> {
    serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
}
