//! The limits of the runtime: nothing that a script does is unbounded.
//!
//! Limits of jobs themselves (payload, value, log, error) are in [`gristmill_model::limits`].

use gristmill_model::limits::VALUE_BYTES_MAX;

/// The time after which a finished job's outcome leaves the script process, whatever the process does next. It is short
/// beside anything that a person or a commit waits for, and long beside a write. Milliseconds.
pub const FLUSH_EVERY_MS: u64 = 2;

/// The number of processes per processor above which outcomes leave later, because sending takes more processor time
/// than quick jobs.
pub const PROCESSES_FLUSHED_AT_ONCE: u64 = 4;

/// The largest such time in milliseconds, for many processes.
pub const FLUSH_EVERY_MS_MAX: u64 = 8;

/// The number of flush intervals that a job may run past its timeout before its process is killed. In this time the
/// outcome of a job that ended just in time may still be on its way.
pub const TIMEOUT_SLACK_FLUSHES: u64 = 3;

/// The time between two reads of output that nobody follows. Each job of a script that runs for a millisecond marks its
/// end there, and waking a thread for each mark costs more than the job. Milliseconds.
pub const OUTPUT_READ_EVERY_MS: u64 = 10;

/// If one read returns this many bytes, the next read does not wait. It is well below [`PIPE_BYTES`].
pub const OUTPUT_READ_AT_ONCE_BYTES: usize = 64 << 10;

/// The longest line that a listener gets in one piece. A pipe takes this many bytes as a whole.
pub const LINE_BYTES_MAX: usize = 4096;

/// The largest frame from a script: one value of the largest size, and other outcomes that gathered before a flush. Bytes.
pub const FRAME_BYTES_MAX: usize = VALUE_BYTES_MAX + (8 << 20);

/// The default number of concurrent asynchronous jobs in one process. It is high enough to hide the latency of remote
/// calls, and low enough for the usual limits of rates and file descriptors.
pub const CONCURRENCY_DEFAULT: u32 = 32;

/// The largest number of concurrent jobs in one process, asynchronous ones or in threads.
pub const CONCURRENCY_MAX: u32 = 4_096;

/// The number of jobs that a process gets before it is replaced. Their numbers fit 32 bits with room to spare.
pub const JOBS_PER_PROCESS_MAX: u32 = 1 << 30;

/// The time that a process has to answer a job that its shim gave up at its timeout, before it is killed. Milliseconds.
pub const GIVE_UP_GRACE_MS: u64 = 1_000;

/// Bytes that a shim puts into one record of the output. With its head, a record is no longer than `PIPE_BUF`.
pub const RECORD_BYTES_MAX: usize = 4_096 - 22;

/// The time limit of a script's start, including imports of large libraries. Milliseconds.
pub const START_MS_MAX: u64 = 300_000;

/// The pause between a failed start and the next try. It doubles with each further failure. Milliseconds.
pub const START_AGAIN_MS: u64 = 500;

/// The longest such pause. A corrected script runs soon, and an import that takes seconds does not load the machine all
/// the time.
pub const START_AGAIN_MS_MAX: u64 = 10_000;

/// The time between two reports of the same error of failing starts. Milliseconds.
pub const SAID_AGAIN_MS: u64 = 60_000;

/// The time between a report of failing starts and a report of another error. Milliseconds.
pub const SAID_OF_ANOTHER_ERROR_MS: u64 = 5_000;

/// The largest number of files of one script whose changes are noticed. Reading them takes milliseconds.
pub const CODE_FILES_MAX: usize = 1_000;

/// The largest file whose imports are searched. Larger ones come from bundlers, and import no modules of their own. Bytes.
pub const CODE_FILE_BYTES_MAX: u64 = 4 << 20;

/// The interval of looking for changes of a script's code, if its processes are replaced then. Milliseconds.
pub const RELOAD_LOOK_EVERY_MS: u64 = 500;

/// The time without any process, while starts fail, after which work that ends by itself gives up. Milliseconds.
pub const START_PATIENCE_MS: u64 = 60_000;

/// The time limit of the fork server's start, and of its answers. Milliseconds.
pub const FORK_SERVER_MS_MAX: u64 = 10_000;

/// Fork servers that a program keeps for its next handlers. Each is an interpreter that waits.
pub const FORK_SERVERS_KEPT_MAX: usize = 2;

/// The time limit of a script's exit handlers, threads and files when its process ends normally. After it, they are
/// interrupted and named. Milliseconds.
pub const END_MS_MAX: u64 = 5_000;

/// The time limit of a script process's own end when the handler shuts down. After it, the process is killed. Milliseconds.
pub const SHUT_DOWN_MS_MAX: u64 = 2 * END_MS_MAX;

/// The time in which a process must exit after it has announced this, or has closed its answers. Milliseconds.
pub const EXIT_MS_MAX: u64 = 2_000;

/// The time in which a process must report which job keeps another one beyond its timeout. Milliseconds.
pub const ANSWER_MS_MAX: u64 = 500;

/// The time in which the store must tell a job about its flow or its prerequisites. Then the job gets an error. Milliseconds.
pub const QUESTION_MS_MAX: u64 = 60_000;

/// The time in which a worker notices that it should stop, if the same signal reached a script's process first. Milliseconds.
pub const STOP_NOTICED_MS_MAX: u64 = 500;

/// The time in which the guard must end before it is killed. Milliseconds.
pub const GUARD_END_MS_MAX: u64 = 2_000;

/// The interval of looking whether the worker drains or a job was cancelled. Milliseconds.
pub const SIGNALS_EVERY_MS: u64 = 20;

/// The number of groups of outcomes that may wait for the worker's task before the process is slowed down.
pub const OUTCOMES_WAITING_MAX: usize = 64;

/// The size of the pipes to and from a script. A whole micro-batch fits, so that the next one is there when the last
/// one ends. This is the kernel's limit for a user without privileges. Bytes.
pub const PIPE_BYTES: usize = 1 << 20;

/// Bytes of a process's output in the error of a crash.
pub const CRASH_OUTPUT_BYTES_MAX: usize = 4 << 10;

/// The largest number of processes of one handler.
pub const PROCESSES_MAX: usize = 256;
