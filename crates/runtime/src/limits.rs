//! The limits of the runtime: nothing that a script does is unbounded.
//!
//! Limits of jobs themselves (payload, value, log, error) are in [`gristmill_model::limits`].

use gristmill_model::limits::VALUE_BYTES_MAX;

/// Milliseconds after which a finished job's outcome leaves the script process, whatever the process
/// does next. Short beside anything a person or a commit waits for, long beside a write.
pub const FLUSH_EVERY_MS: u64 = 2;

/// Processes for each processor from which on outcomes leave later: sending takes more processor time than quick jobs do.
pub const PROCESSES_FLUSHED_AT_ONCE: u64 = 4;

/// The largest such time in milliseconds, for many processes.
pub const FLUSH_EVERY_MS_MAX: u64 = 8;

/// Intervals between two flushes that a job may run past its timeout before its process is killed: the time in which the
/// outcome of a job that ended just in time may still be under way.
pub const TIMEOUT_SLACK_FLUSHES: u64 = 3;

/// Milliseconds between two reads of what jobs print while nobody follows it. Each job of a script that runs for a
/// millisecond marks its end there, and waking a thread for each mark costs more than the job.
pub const OUTPUT_READ_EVERY_MS: u64 = 10;

/// Bytes that were read at once from which on the next read does not wait: well below [`PIPE_BYTES`].
pub const OUTPUT_READ_AT_ONCE_BYTES: usize = 64 << 10;

/// Bytes of a line that a listener of what is printed hears in one piece: as many as a pipe takes whole.
pub const LINE_BYTES_MAX: usize = 4096;

/// Bytes of one frame from a script at most: one value of the largest size, and what else may have
/// gathered before a flush.
pub const FRAME_BYTES_MAX: usize = VALUE_BYTES_MAX + (8 << 20);

/// Bytes of one job's input when it finalizes: its payload, its memo and the outcomes of its children.
pub const FINALIZING_BYTES_MAX: usize = 64 << 20;

/// Asynchronous jobs that run at once in one process, by default. High enough to hide the latency of
/// remote calls, low enough for the usual rate limits and file descriptor limits.
pub const CONCURRENCY_DEFAULT: u32 = 32;

/// Jobs that run at once in one process at most, asynchronous ones or in threads.
pub const CONCURRENCY_MAX: u32 = 4_096;

/// Jobs that a process is given before it is replaced: their numbers fit 32 bits with room to spare.
pub const JOBS_PER_PROCESS_MAX: u32 = 1 << 30;

/// Milliseconds that a process has to answer a job by itself that its shim has given up at its timeout, before it is killed.
pub const GIVE_UP_GRACE_MS: u64 = 1_000;

/// Bytes that a shim puts into one record among the output: with its head no more than `PIPE_BUF`.
pub const RECORD_BYTES_MAX: usize = 4_096 - 22;

/// Milliseconds that a script may take to start: imports of large libraries included.
pub const START_MS_MAX: u64 = 300_000;

/// Milliseconds after a failed start until the next process is tried. They double with each further failure.
pub const START_AGAIN_MS: u64 = 500;

/// The longest such pause: a corrected script runs soon, and an import that takes seconds does not load the machine all the
/// time.
pub const START_AGAIN_MS_MAX: u64 = 10_000;

/// Milliseconds between two tellings of the same error of failing starts.
pub const SAID_AGAIN_MS: u64 = 60_000;

/// Milliseconds from one telling of failing starts to that of another error.
pub const SAID_OF_ANOTHER_ERROR_MS: u64 = 5_000;

/// Files of one script whose changes are noticed at most. Reading them takes milliseconds.
pub const CODE_FILES_MAX: usize = 1_000;

/// Bytes of a file whose imports are looked for. Larger ones are made by bundlers, and import nothing of their own.
pub const CODE_FILE_BYTES_MAX: u64 = 4 << 20;

/// Milliseconds between two looks at whether the code of a script has changed, where its processes are to be replaced then.
pub const RELOAD_LOOK_EVERY_MS: u64 = 500;

/// Milliseconds for which no process may be there, and none start, before work that comes to an end by itself gives up.
pub const START_PATIENCE_MS: u64 = 60_000;

/// Milliseconds that the fork server may take to start, or to answer.
pub const FORK_SERVER_MS_MAX: u64 = 10_000;

/// Milliseconds that a script's exit handlers, threads and files may take when its process ends in order. Then they are
/// interrupted, and named.
pub const END_MS_MAX: u64 = 5_000;

/// Milliseconds that a script process may take in all to end by itself when the handler shuts down. Then it is killed.
pub const SHUT_DOWN_MS_MAX: u64 = 2 * END_MS_MAX;

/// Milliseconds that a process may take to exit when it has said that it does, or has closed its answers.
pub const EXIT_MS_MAX: u64 = 2_000;

/// Milliseconds that a process may take to say which job keeps another one beyond its timeout.
pub const ANSWER_MS_MAX: u64 = 500;

/// Milliseconds in which a worker notices that it is to stop, where the same signal reached a script's process first.
pub const STOP_NOTICED_MS_MAX: u64 = 500;

/// Milliseconds that the guard may take to end, before it is killed.
pub const GUARD_END_MS_MAX: u64 = 2_000;

/// Milliseconds between two looks at whether the worker drains or a job was cancelled.
pub const SIGNALS_EVERY_MS: u64 = 20;

/// Groups of outcomes that may wait for the worker's task before the process is slowed down.
pub const OUTCOMES_WAITING_MAX: usize = 64;

/// Bytes that the pipes to and from a script hold: a whole micro-batch, so that the next one is there
/// when the last one ends. The kernel's limit for a user without privileges.
pub const PIPE_BYTES: usize = 1 << 20;

/// Bytes of a process's output in the error of a crash.
pub const CRASH_OUTPUT_BYTES_MAX: usize = 4 << 10;

/// Processes of one handler at most.
pub const PROCESSES_MAX: usize = 256;
