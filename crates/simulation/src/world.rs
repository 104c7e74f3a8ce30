//! The world: the state that all nodes of a simulation share.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gristmill_model::{Rng, SplitMix64};
use tokio::sync::Notify;

use crate::checker::{Checker, Violation};
use crate::clock::WallClock;
use crate::links::Network;
use crate::trace::Trace;

/// The state that all nodes of a simulation share.
#[derive(Debug)]
pub struct World {
    /// The folder of the store and the sockets.
    pub folder: PathBuf,
    /// The start of virtual time.
    pub began: Instant,
    /// The wall clock of the store's machine.
    pub wall_clock: Arc<WallClock>,
    /// The network between the nodes.
    pub network: Network,
    /// Wakes the simulation at the first violation.
    pub violated: Notify,
    rng: Mutex<SplitMix64>,
    trace: Mutex<Trace>,
    checker: Mutex<Checker>,
    violation: Mutex<Option<Violation>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// A new world.
    pub fn new(folder: PathBuf, seed: u64, prints: bool) -> Arc<World> {
        let began = Instant::now();
        Arc::new(World {
            folder,
            began,
            wall_clock: Arc::new(WallClock::new(began)),
            network: Network::default(),
            violated: Notify::new(),
            rng: Mutex::new(SplitMix64::new(seed)),
            trace: Mutex::new(Trace::new(prints)),
            checker: Mutex::default(),
            violation: Mutex::default(),
        })
    }

    /// Draws a number below `bound`.
    pub fn draw(&self, bound: u64) -> u64 {
        lock(&self.rng).below(bound)
    }

    /// Draws whether an event happens that happens in this many of 1,000 cases.
    pub fn happens(&self, permille: u64) -> bool {
        assert!(permille <= 1_000, "a chance is at most 1,000 of 1,000");
        self.draw(1_000) < permille
    }

    /// Draws a time up to `most_ms`.
    pub fn draw_time(&self, most_ms: u64) -> Duration {
        Duration::from_millis(self.draw(most_ms + 1))
    }

    /// Adds a line to the trace.
    pub fn note(&self, what: fmt::Arguments<'_>) {
        let line = format!("{:>12.3} {what}", self.began.elapsed().as_secs_f64());
        lock(&self.trace).add(line);
    }

    /// Passes the checker to `check`.
    pub fn check<T>(&self, check: impl FnOnce(&mut Checker) -> T) -> T {
        check(&mut lock(&self.checker))
    }

    /// Keeps the first violation.
    pub fn require(&self, promise: Result<(), Violation>) {
        if let Err(violation) = promise {
            self.note(format_args!("VIOLATION: {violation}"));
            lock(&self.violation).get_or_insert(violation);
            self.violated.notify_one();
        }
    }

    /// The first violation.
    pub fn violation(&self) -> Option<Violation> {
        lock(&self.violation).clone()
    }

    /// The hash of the trace.
    pub fn trace_hash(&self) -> u64 {
        lock(&self.trace).hash()
    }

    /// Prints the last lines of the trace.
    pub fn print_trace(&self) {
        lock(&self.trace).last().for_each(|line| eprintln!("{line}"));
    }
}
