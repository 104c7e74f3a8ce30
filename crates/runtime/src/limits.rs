//! The limits of the runtime: nothing that a script does is unbounded.
//!
//! Limits of jobs themselves (payload, value, log, error) are in [`gristmill_model::limits`].

use gristmill_model::limits::VALUE_BYTES_MAX;

/// Milliseconds after which a finished job's outcome leaves the script process, whatever the process
/// does next. Short beside anything a person or a commit waits for, long beside a write.
pub const FLUSH_EVERY_MS: u64 = 2;

/// Milliseconds that a job may run past its timeout before its process is killed: the time in which
/// the outcome of a job that ended just in time may still be under way.
pub const TIMEOUT_SLACK_MS: u64 = 3 * FLUSH_EVERY_MS;

/// Bytes of one frame from a script at most: one value of the largest size, and what else may have
/// gathered before a flush.
pub const FRAME_BYTES_MAX: usize = VALUE_BYTES_MAX + (8 << 20);

/// Bytes of all that one job is told when it finalizes: its payload, its memo and the outcomes of its children.
pub const FINALIZING_BYTES_MAX: usize = 64 << 20;

/// Asynchronous jobs that run at once in one process, by default. High enough to hide the latency of
/// remote calls, low enough for the usual rate limits and file descriptor limits.
pub const ASYNC_JOBS_MAX_DEFAULT: u32 = 32;

/// Micro-batches on their way to one process: one that runs and one in the pipe behind it.
pub const MICRO_BATCHES_PER_PROCESS_MAX: usize = 2;

/// Milliseconds of work that a process may hold before it takes no second micro-batch: work behind
/// slow jobs is better done by whichever process is free first.
pub const PREFETCH_BELOW_MS: u64 = 20;

/// Milliseconds that a script may take to start: imports of large libraries included.
pub const START_MS_MAX: u64 = 300_000;

/// Milliseconds that a script process may take to end by itself when the handler shuts down.
pub const SHUT_DOWN_MS_MAX: u64 = 2_000;

/// Milliseconds between two looks at whether the worker drains or a job was cancelled.
pub const SIGNALS_EVERY_MS: u64 = 20;

/// Groups of outcomes that may wait for the worker's task before the process is slowed down.
pub const OUTCOMES_WAITING_MAX: usize = 64;

/// Bytes that the pipes to and from a script hold: a whole micro-batch, so that the next one is there
/// when the last one ends. The kernel's limit for a user without privileges.
pub const PIPE_BYTES: usize = 1 << 20;

/// Bytes of what a process printed that go into the error of a crash.
pub const CRASH_OUTPUT_BYTES_MAX: usize = 4 << 10;

/// Processes of one handler at most.
pub const PROCESSES_MAX: usize = 256;
