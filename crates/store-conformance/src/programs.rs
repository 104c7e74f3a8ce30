//! Random programs of flows, run by the real handler on a store, and compared with an interpreter in memory.
//!
//! A program is a tree of steps, gathers, races, caught failures, sleeps, events, child flows, local values and new beginnings. Workers
//! claim and report in a random order. They die with their jobs, lose answers, and repeat reports; clocks advance; jobs
//! are cancelled by hand. After all that:
//!
//! * each job has one outcome, and each step began once;
//! * each run of a flow sees the same outcomes, and decides its races as the runs before;
//! * each flow has the result that the interpreter finds from these outcomes and decisions;
//! * a flow that awaits an event has read all that were sent to it before;
//! * nothing is open, and nothing waits for what does not come.
//!
//! A program is random, but its seed determines it and all that happens to it. `FLOW_PROGRAMS=10000` chooses the number of
//! programs, and `FLOW_PROGRAM_SEED=17` the first seed.

mod driver;
mod expected;
mod flow;
mod node;
mod record;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use futures::FutureExt;

use crate::Database;

/// The number of threads that run programs. One thread continues while another waits for its store.
const RUNNERS: u64 = 4;

/// The number of failed programs that are printed.
const SHOWN_FAILURES_MAX: usize = 5;

/// Runs this many random programs, or as many as the variable `FLOW_PROGRAMS` says, each on a store that `database` makes.
/// Prints how many ran and how many failed.
///
/// # Panics
///
/// A program failed. Its seed was printed.
pub fn flows_agree_with_the_interpreter<D: Database>(programs: u32, database: impl Fn() -> D + Sync) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let programs = number("FLOW_PROGRAMS").unwrap_or(u64::from(programs));
    let first = number("FLOW_PROGRAM_SEED").unwrap_or(1);
    let next = AtomicU64::new(first);
    let exchanges = AtomicU64::new(0);
    let failures: Mutex<Vec<(u64, String)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..RUNNERS.min(programs) {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + programs {
                        return;
                    }
                    let run = async {
                        let database = database();
                        driver::run(&database, seed).await
                    };
                    match runtime.block_on(std::panic::AssertUnwindSafe(run).catch_unwind()) {
                        Ok(count) => drop(exchanges.fetch_add(count, Ordering::Relaxed)),
                        Err(panic) => {
                            let text = panic.downcast_ref::<String>().cloned();
                            let text =
                                text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                            let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                            failures.push((seed, text.unwrap_or_default()));
                        }
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    failures.sort();
    println!(
        "ran {programs} programs of flows with {} exchanges, {} failed (seeds from {first})",
        exchanges.into_inner(),
        failures.len()
    );
    for (seed, text) in failures.iter().take(SHOWN_FAILURES_MAX) {
        println!("FLOW_PROGRAM_SEED={seed} FLOW_PROGRAMS=1: {text}");
    }
    assert!(
        failures.is_empty(),
        "{} programs failed, the first by seed {}",
        failures.len(),
        failures[0].0
    );
}
