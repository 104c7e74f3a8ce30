//! Simulates a whole fleet in virtual time and under faults, and checks the promises of Gristmill.
//!
//! One process simulates at most one hour, on one thread. Its clock moves only while nothing can run (see
//! `virtual_time.c`). The program brings its own `clock_gettime`, `epoll_wait` and `getrandom`, which replace the
//! functions of the C library. The routers of the servers, the agents and the workers share one store in a SQLite file.
//! The agents send their requests through Unix sockets to a network that delays, loses and repeats them (see
//! `network.rs`).
//!
//! The same seed always gives the same simulation. A longer simulation is split into processes, each with the next seed.

mod checker;
mod clients;
mod clock;
mod faults;
mod flows;
mod limits;
mod links;
mod network;
mod nodes;
mod parts;
mod simulation;
mod store;
mod trace;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::limits::HOURS_PER_PROCESS_MAX;

/// The folder for the files, in memory if the system has it.
const MEMORY: &str = "/dev/shm";

/// Simulates a whole fleet in virtual time and under faults, and checks the promises of Gristmill.
#[derive(Debug, Parser)]
struct Arguments {
    /// The seed of the first simulation. Each next simulation has the next seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The simulated time in hours.
    #[arg(long, default_value_t = 1.0)]
    hours: f64,
    /// Runs one simulation in this process, and prints its finding as JSON.
    #[arg(long)]
    alone: bool,
    /// Prints every event.
    #[arg(long, requires = "alone")]
    trace: bool,
}

/// The folder of the files of a process.
fn folder_of(process_id: u32) -> PathBuf {
    let memory = PathBuf::from(MEMORY);
    let parent = match memory.is_dir() {
        true => memory,
        false => std::env::temp_dir(),
    };
    parent.join(format!("gristmill-simulation-{process_id}"))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !arguments.alone {
        return parts::run(arguments.seed, arguments.hours);
    }
    let folder = folder_of(std::process::id());
    if let Err(error) = std::fs::create_dir(&folder) {
        eprintln!("cannot create the folder {}: {error}", folder.display());
        return ExitCode::FAILURE;
    }
    let hours = arguments.hours.clamp(0.0, HOURS_PER_PROCESS_MAX);
    let duration = Duration::from_secs_f64(hours * 3_600.0);
    let finding = simulation::simulate(arguments.seed, duration, folder.clone(), arguments.trace);
    let _ = std::fs::remove_dir_all(folder);
    println!("{}", serde_json::json!(finding));
    match finding.violation {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
    }
}
