//! Warm script processes behind the worker's [`Handler`](gristmill_worker::Handler).
//!
//! [`Script::detect`] finds out what runs a script, and [`ScriptHandler`] keeps a pool of processes
//! that have it imported: its runners. A process takes a stream of jobs and answers with a stream of outcomes. Jobs travel to it
//! as they were stored, and outcomes come back packed, over pipes of their own ([protocol]); what jobs print becomes their log.
//!
//! | file | what |
//! | --- | --- |
//! | `script.rs`, `interpreter.rs` | what language, which interpreter |
//! | `handler.rs`, `pool.rs` | the handler, and the queues before the processes |
//! | `slot.rs` | one thread a process: feeding, timeouts, finding the job that kills |
//! | `stream.rs`, `in_flight.rs`, `answers.rs` | what a process has, what waits for it, and what it says |
//! | `process.rs`, `protocol.rs`, `shims/` | one warm process and what is said to it |
//! | `output.rs`, `capped.rs` | whose log is what a process writes |
//! | `program.rs` | a process a job: Bash and any program |
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
//! * A job's outcome leaves its process within [`limits::FLUSH_EVERY_MS`] of its end, also while the
//!   next job computes or blocks. In Python that takes a moment in which other threads may run: native
//!   code that lets none run, such as a regular expression that backtracks for ages, holds it up.
//! * A job's time counts from its own start. A synchronous job that exceeds it is killed with its process. An asynchronous one
//!   is ended alone: Python cancels its task; JavaScript gives it up, and it holds its slot until it ends by itself. A process in which such
//!   jobs hold half of the slots is replaced once the others have ended. A process that does not do so within
//!   [`limits::GIVE_UP_GRACE_MS`] is killed.
//! * A job that kills its process, writes into our pipes or exceeds its timeout is the only one that
//!   is charged an attempt. Others that its process had and had not answered run again, in the same runner.
//! * What a job printed through its language's own streams is its log, up to the limit, however it ends: its
//!   timeout, its crash and the end of its process included.
//! * Values are what they were when `main` returned them, whatever later jobs do to what they refer to.
//! * A recall ([`Handler::recall`](gristmill_worker::Handler::recall)) is answered within milliseconds, also while a job computes
//!   or blocks. A job is either begun or given back, never both.
//! * A drain is heard within [`limits::SIGNALS_EVERY_MS`], and by the process as a recall. Then no job begins; those that have
//!   are ended and answered.

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
