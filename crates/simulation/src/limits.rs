//! The limits and sizes of a simulation.

use std::time::Duration;

/// The number of servers of the one store.
pub const SERVERS: usize = 2;

/// The number of agents. They reach the servers over the network.
pub const AGENTS: usize = 3;

/// The number of workers with direct access to the store.
pub const WORKERS: usize = 1;

/// The number of clients. They submit jobs.
pub const CLIENTS: usize = 2;

/// The largest number of jobs in a submit.
pub const SUBMIT_JOBS_MAX: u64 = 20;

/// The largest number of concurrent jobs of the kind `limited`.
pub const LIMITED_JOBS_MAX: u32 = 5;

/// The time that a client waits for an answer.
pub const CLIENT_PATIENCE: Duration = Duration::from_secs(10);

/// The time within which all jobs must end after the last fault.
pub const ENDS_WITHIN: Duration = Duration::from_secs(900);

/// The longest time without a new fault, in milliseconds.
pub const FAULT_GAP_MS_MAX: u64 = 60_000;

/// The time for which the claims and reports of a worker hang, unless the store forgets the worker earlier. During this
/// time a server looks for silent workers at least once, whatever other faults there are.
pub const HANG: Duration = Duration::from_secs(240);

/// The longest duration of a fault, in milliseconds: twice the time after which a silent worker loses its jobs.
pub const FAULT_MS_MAX: u64 = 30_000;

/// The time within which a job without a delay must be claimable, although a clock was set back.
pub const CLAIMABLE_WITHIN: Duration = Duration::from_secs(30);

/// The largest jump of a wall clock, in milliseconds. The jump is shorter than `ENDS_WITHIN`, because a job that asks
/// for a delay while the clock is fast waits until the right clock reaches that time.
pub const CLOCK_JUMP_MS_MAX: u64 = 600_000;

/// The share of messages that are lost or repeated in each direction, in parts of 1,000.
pub const MESSAGE_FAULTS_PERMILLE: u64 = 10;

/// The longest normal travel time of a message, and the longest on a slow link, in milliseconds.
pub const DELAY_MS_MAX: u64 = 20;
pub const SLOW_DELAY_MS_MAX: u64 = 5_000;

/// The share of failing operations on a store with faults, in parts of 1,000.
pub const STORE_FAULTS_PERMILLE: u64 = 300;

/// The longest duration of an operation on a slow store, in milliseconds.
pub const SLOW_STORE_MS_MAX: u64 = 4_000;

/// The time within which the messages of a process that has ended are read.
pub const MESSAGES_WAIT: Duration = Duration::from_secs(10);

/// The number of trace lines kept for the report of a violation.
pub const TRACE_LINES_MAX: usize = 400;

/// The largest number of bytes in a message.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The largest number of simulated hours in one process.
pub const HOURS_PER_PROCESS_MAX: f64 = 1.0;

/// The real time in which a process must end, in seconds. An hour takes one to three minutes of a processor.
pub const REAL_S_MAX: u64 = 3_600;
