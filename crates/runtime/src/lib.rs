//! Warm script processes behind the worker's [`Handler`](gristmill_worker::Handler).
//!
//! [`Script::detect`] finds the interpreter of a script, and [`ScriptHandler`] keeps a pool of processes that have
//! imported it: its runners. A process takes a stream of jobs and answers with a stream of outcomes, over its own pipes
//! ([protocol]). Jobs travel in their stored form, and outcomes come back packed. The output of a job becomes its log.
//!
//! | file | purpose |
//! | --- | --- |
//! | `script.rs`, `interpreter.rs` | languages and interpreters |
//! | `handler.rs`, `pool.rs` | the handler, and the queues before the processes |
//! | `slot.rs`, `slot/` | one thread for each process: feeding, timeouts, finding the job that kills |
//! | `starts.rs`, `starts/` | starts that fail, changes of the code, and what is told of them |
//! | `stream.rs`, `in_flight.rs`, `answers.rs` | the jobs of a process, waiting jobs, and answers |
//! | `process.rs`, `protocol.rs`, `shims/` | one warm process and its protocol |
//! | `output.rs`, `output/`, `capped.rs` | the assignment of output to logs, and its listener |
//! | `program.rs` | a process for each job: Bash and any program |
//! | `fork_server.rs` | a prepared interpreter that forks Python processes |
//! | `child.rs`, `child/guard.rs`, `descriptors.rs` | processes that never outlive us |
//! | `slot/stop.rs`, `child/orphans.rs` | processes that die with a stop of the worker; reaping as process 1 |
//!
//! # What a script can rely on
//!
//! * `main(payload)` is called once for each job; the script is imported once in each process. An asynchronous `main`
//!   (`async def main`, `async function main`) runs up to [`RuntimeOptions::concurrency`] jobs at the same time in each
//!   process, and a synchronous one in Python up to [`RuntimeOptions::threads`], each in its own thread. A plain
//!   function that returns an awaitable or a promise runs one job at a time, because the worker must know the concurrency
//!   before the first job.
//! * `gristmill.job()` returns the current job, in all of its threads and tasks: `id`, `attempt`, `key`, `batch`, `kind`,
//!   `queue`, `group`, `tags` and `deadline` (seconds since 1970). A missing key, group or deadline is `None` or `null`,
//!   and missing tags are an empty dict or object. Programs find the same in their environment (`GRISTMILL_JOB`,
//!   `GRISTMILL_ATTEMPT`, …).
//! * An exception fails the attempt. Its attribute `retry_after` (`retryAfter` in JavaScript; seconds) delays the next
//!   attempt, and `permanent` being true prevents one.
//! * A `main` that returns `gristmill.spawn(…)` makes the job wait for children. When all have ended, Gristmill calls
//!   `finalize(payload, memo, outcomes)` in place of `main`. `gristmill.done(value, …)` completes the job with
//!   siblings: further children of its own parent. `gristmill` is a module in Python, and a global object in
//!   JavaScript.
//! * Each process imports the script by itself. A Python process is forked from a prepared interpreter, which has imported
//!   only the first standard modules of the script, and has run nothing of the script itself. The environment
//!   variable `GRISTMILL_FORK_SERVER=off` makes each process start its own interpreter.
//! * Standard input is empty. Standard output and error are the job's log. If one job runs at a time, the output of its programs
//!   stands where they printed it. A [`PrintListener`] gets all output, too.
//! * The environment is the worker's environment without its secrets ([`SECRET_VARIABLES`]), except for those that
//!   [`Script::passing`] names.
//! * A process can be killed and restarted at any time.
//! * A process without further jobs runs the exit handlers of its script, and writes and closes the script's files, for at most
//!   [`limits::END_MS_MAX`]. A handler that fails or takes longer is logged as an error.
//! * A job may fork its process. A child in which `main` returns or raises ends there, with the usual status of a program.
//!
//! # What Gristmill guarantees
//!
//! * A job's outcome leaves its process within [`limits::FLUSH_EVERY_MS`] of its end, or within
//!   [`limits::FLUSH_EVERY_MS_MAX`] if there are many processes for each processor, even while the next job computes
//!   or blocks. In Python, this needs a moment in which other threads can run: native code that holds the interpreter's
//!   lock, such as a long backtracking regular expression, delays it.
//! * A job's time counts from its own start. A synchronous job that exceeds its timeout is killed with its process. An
//!   asynchronous one ends alone: Python cancels its task; JavaScript abandons it, and it holds its slot until it ends
//!   by itself. A process whose abandoned jobs hold half of its slots is replaced when its other jobs have ended, or
//!   killed after [`limits::GIVE_UP_GRACE_MS`].
//! * A start of a process that fails charges no job: the jobs go back to the worker, and the start is tried again.
//! * If a starting process finds the script or a module of its own changed, all older processes are replaced.
//! * Only the job that kills its process, writes into our pipes or exceeds its timeout is charged an attempt.
//!   Unanswered jobs of the same process run again in the same runner. If concurrent jobs exceed their timeouts because one of
//!   them keeps the event loop from turning, that one is charged for all (`slot/overdue.rs`).
//! * Asynchronous jobs do not see values that others set in their context: variables of `contextvars`, stores of `AsyncLocalStorage`.
//! * Output through the language's own streams becomes the job's log, up to the limit, whatever the job's end: also after
//!   a timeout, a crash or the end of its process.
//! * A value is a snapshot at the time when `main` returns it. Later jobs cannot change it.
//! * A recall ([`Handler::recall`](gristmill_worker::Handler::recall)) is answered within milliseconds, even while a
//!   job computes or blocks. A job either begins or is returned, never both.
//! * If a process dies by a signal while its worker stops, its jobs are released without charge: see `slot/stop.rs`.
//! * A slot notices a drain within [`limits::SIGNALS_EVERY_MS`], and its process gets it as a recall. Then no further job
//!   begins. Jobs that have begun end and are answered.

mod answers;
mod capped;
mod child;
mod descriptors;
mod error;
mod fork_server;
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
mod starts;
mod stream;

pub use child::orphans::reap_as_first_process;
pub use error::RuntimeError;
pub use fork_server::ForkServers;
pub use handler::{RuntimeOptions, ScriptHandler};
pub use interpreter::Runtime;
pub use output::{PrintListener, StandardStream};
pub use program::template::{field_names, fill_template};
pub use script::environment::{SECRET_VARIABLES, STORE_VARIABLES};
#[cfg(fuzzing)]
pub use script::fuzzing;
pub use script::{DetectOptions, Script};
pub use starts::ProcessListener;
