//! The limits and measures of a simulation.

use std::time::Duration;

/// Servers of the one store.
pub const SERVERS: usize = 2;

/// Agents, which reach the servers over the network.
pub const AGENTS: usize = 3;

/// Workers on the store itself.
pub const WORKERS: usize = 1;

/// Clients that submit jobs.
pub const CLIENTS: usize = 2;

/// Jobs of one submit at most.
pub const SUBMIT_JOBS_MAX: u64 = 20;

/// Jobs of the kind `limited` that may run at a time.
pub const LIMITED_JOBS_MAX: u32 = 5;

/// How long a client waits for an answer.
pub const CLIENT_PATIENCE: Duration = Duration::from_secs(10);

/// How long the jobs may take to end, once there are no more faults.
pub const ENDS_WITHIN: Duration = Duration::from_secs(900);

/// Longest time without a new fault. Milliseconds.
pub const FAULT_GAP_MS_MAX: u64 = 60_000;

/// How long the claims and reports of one worker hang, unless the store forgets it before. Long enough that a server looks for
/// silent workers in it, whatever other faults there are.
pub const HANG: Duration = Duration::from_secs(240);

/// Longest time that a fault lasts: twice the time after which a silent worker has lost its jobs. Milliseconds.
pub const FAULT_MS_MAX: u64 = 30_000;

/// How long a job without an asked delay may be kept from being claimable by a clock that was set back.
pub const CLAIMABLE_WITHIN: Duration = Duration::from_secs(30);

/// By how much a wall clock jumps at most: less than `ENDS_WITHIN`, since a job that asks for a delay while the clock is fast runs
/// when the clock gets there. Milliseconds.
pub const CLOCK_JUMP_MS_MAX: u64 = 600_000;

/// Of 1,000 messages, so many are lost, each way, or arrive twice.
pub const MESSAGE_FAULTS_PERMILLE: u64 = 10;

/// How long a message is usually under way at most, and on a slow link. Milliseconds.
pub const DELAY_MS_MAX: u64 = 20;
pub const SLOW_DELAY_MS_MAX: u64 = 5_000;

/// Of 1,000 operations on a store with faults, so many fail.
pub const STORE_FAULTS_PERMILLE: u64 = 300;

/// How long an operation of a slow store takes at most. Milliseconds.
pub const SLOW_STORE_MS_MAX: u64 = 4_000;

/// Lines of the trace that are kept for the report of a violation.
pub const TRACE_LINES_MAX: usize = 400;

/// Bytes of a message.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Simulated hours of one process.
pub const HOURS_PER_PROCESS_MAX: f64 = 1.0;
