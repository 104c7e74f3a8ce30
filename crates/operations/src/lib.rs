//! Requests and options as types. Each has one check, which the command line, the server, spawning scripts and Python share.
//!
//! * [`options`] has the options of jobs, which a submit, a schedule and a spawn share.
//! * [`submit`] has the request of a submit, and cuts its payloads into batches.
//! * An impossible request is [`Refused`], with the problem, its place and the remedy.
//!
//! Invariants: a check needs no store and no clock; the time is a parameter. An option is a field of one struct, and a name that
//! the struct does not have is an error.

pub mod limits;
pub mod options;
pub mod priority;
pub mod read;
pub mod refused;
pub mod submit;
pub mod unique;

pub use options::{JobOptions, RetryOptions, check_after, check_names};
pub use priority::Priority;
pub use read::{read_job, read_states};
pub use refused::Refused;
pub use submit::{JobCutter, JobTags, SubmitRequest};
pub use unique::UniqueOptions;
