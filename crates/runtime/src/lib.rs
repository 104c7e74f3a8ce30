//! Warm script processes behind the worker's [`Handler`](gristmill_worker::Handler).
//!
//! [`Script::detect`] finds out what runs a script, and [`ScriptHandler`] keeps a pool of processes
//! that have it imported. A micro-batch travels to a process as it was stored, and its outcomes come
//! back packed, over pipes of their own ([protocol]); what jobs print becomes their log.
//!
//! | file | what |
//! | --- | --- |
//! | `script.rs`, `interpreter.rs` | what language, which interpreter |
//! | `handler.rs`, `pool.rs` | the handler, and the queue before the processes |
//! | `slot.rs`, `in_flight.rs`, `answers.rs` | one thread a process: feeding, timeouts, finding the job that kills |
//! | `process.rs`, `protocol.rs`, `shims/` | one warm process and what is said to it |
//! | `output.rs`, `capped.rs` | whose log is what a process writes |
//! | `program.rs` | a process a job: Bash and any program |
//! | `child.rs`, `guard.rs` | processes that never outlive us |
//!
//! # What a script can rely on
//!
//! * `main(payload)` is called once a job; the script is imported once a process. An asynchronous
//!   `main` runs up to [`RuntimeOptions::async_jobs_max`] jobs at once.
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
//! * A job that kills its process, writes into our pipes or exceeds its timeout is the only one that
//!   is charged an attempt. Others of its micro-batch that were not answered yet run again.
//! * Values are what they were when `main` returned them, whatever later jobs do to what they refer to.
//! * A drain is heard within [`limits::SIGNALS_EVERY_MS`], and by the process within
//!   [`limits::FLUSH_EVERY_MS`] or at the end of the running job. Then no job begins; those that have
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
