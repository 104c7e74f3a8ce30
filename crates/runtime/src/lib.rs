//! Warm script processes behind the worker's [`Handler`](gristmill_worker::Handler).
//!
//! [`Script::detect`] finds the interpreter of a script, and [`ScriptHandler`] keeps a pool of processes that have
//! imported it: its runners. A process takes a stream of jobs and answers with a stream of outcomes, over its own pipes
//! ([protocol]). Jobs travel as they are stored, and outcomes come back packed; the output of a job becomes its log.
//!
//! | file | purpose |
//! | --- | --- |
//! | `script.rs`, `interpreter.rs` | languages and interpreters |
//! | `handler.rs`, `pool.rs` | the handler, and the queues before the processes |
//! | `slot.rs` | one thread for each process: feeding, timeouts, finding the job that kills |
//! | `stream.rs`, `in_flight.rs`, `answers.rs` | the jobs of a process, waiting jobs, and answers |
//! | `process.rs`, `protocol.rs`, `shims/` | one warm process and its protocol |
//! | `output.rs`, `capped.rs` | the assignment of output to logs |
//! | `program.rs` | a process for each job: Bash and any program |
//! | `child.rs`, `guard.rs` | processes that never outlive us |
//!
//! # What a script can rely on
//!
//! * `main(payload)` is called once a job; the script is imported once a process. An asynchronous
//!   `main` runs up to [`RuntimeOptions::concurrency`] jobs at once in each process, and a synchronous one in Python up to
//!   [`RuntimeOptions::threads`], each in a thread of its own. Asynchronous is what is written so: `async def main`, `async function
//!   main`. A plain function may return an awaitable or a promise, but then its jobs run one at a time: how many run at once
//!   is promised to the worker before the first one.
//! * `gristmill.job()` says which job runs, in every thread and task of it: `id`, `attempt`, `key`, `batch`, `kind`, `queue`, `group`,
//!   `tags` and `deadline` (seconds since 1970). A job without key, group or deadline has `None` or `null` there, one without tags
//!   an empty dict or object. Programs find the same in their environment (`GRISTMILL_JOB`, `GRISTMILL_ATTEMPT`, …).
//! * An exception fails the job. Its attribute `retry_after` (`retryAfter` in JavaScript; seconds) asks
//!   for the next attempt no sooner than that, and `permanent` being true says that trying again
//!   cannot help.
//! * What `gristmill.spawn(…)` gives, returned by `main`, lets the job wait for children; once they have ended, the
//!   script's `finalize(payload, memo, outcomes)` is called in its place. What `gristmill.done(value, …)` gives completes
//!   the job with siblings: further children of its own parent. `gristmill` is a module to import in Python, and global
//!   in JavaScript.
//! * Standard input is empty, standard output and error are the job's log.
//! * Processes may be killed and started again at any time.
//!
//! # What Gristmill guarantees
//!
//! * A job's outcome leaves its process within [`limits::FLUSH_EVERY_MS`] of its end, even while the next job computes
//!   or blocks. In Python, this needs a moment in which other threads can run: native code that holds the interpreter's
//!   lock, such as a regular expression that backtracks for long, delays it.
//! * A job's time counts from its own start. A synchronous job that exceeds its timeout is killed with its process. An
//!   asynchronous one ends alone: Python cancels its task; JavaScript abandons it, and it holds its slot until it ends
//!   by itself. A process whose abandoned jobs hold half of its slots is replaced when its other jobs have ended, or
//!   killed after [`limits::GIVE_UP_GRACE_MS`].
//! * Only the job that kills its process, writes into our pipes or exceeds its timeout is charged an attempt.
//!   Unanswered jobs of the same process run again, in the same runner.
//! * Output through the language's own streams becomes the job's log, up to the limit, regardless of the job's end:
//!   timeout, crash and the end of its process included.
//! * A value is a snapshot of the moment at which `main` returns it. Later jobs cannot change it.
//! * A recall ([`Handler::recall`](gristmill_worker::Handler::recall)) is answered within milliseconds, even while a
//!   job computes or blocks. A job either begins or is returned, never both.
//! * A slot notices a drain within [`limits::SIGNALS_EVERY_MS`], and its process sees it as a recall. Then no job
//!   begins; jobs that have begun end and are answered.

mod answers;
mod capped;
mod child;
mod error;
mod guard;
mod handler;
mod in_flight;
mod interpreter;
pub mod limits;
mod output;
mod pool;
mod process;
mod program;
pub mod protocol;
mod script;
mod slot;
mod stream;

pub use error::RuntimeError;
pub use handler::{RuntimeOptions, ScriptHandler};
pub use interpreter::Runtime;
pub use script::{DetectOptions, Script};
