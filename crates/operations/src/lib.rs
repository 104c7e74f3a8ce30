//! Requests, options and operations as types and functions, each with its one check. The command line, the server, scripts that
//! spawn, Python and other languages use the same ones.
//!
//! * [`options`] has the options of jobs, which a submit, a schedule and a spawn share.
//! * [`flow_event`] has the request of an event for a flow, and [`submit::spawned`] reads what a job spawns.
//! * [`submit`] has the request of a submit, and cuts its payloads into batches.
//! * [`jobs`], [`results`], [`batches`], [`runs`], [`queues`], [`schedules`], [`controls`], [`history`], [`backlog`] and [`stats`]
//!   are the operations on an engine, with their requests and answers.
//! * [`feeder`] submits the input of a run, batch by batch.
//! * [`local`] carries out an operation by its name, for a program in another language that has the store itself.
//! * [`access`] is what a caller may touch.
//! * An impossible request is [`Refused`], with the problem, its place and the remedy.
//!
//! Invariants: a check needs no store and no clock; the time is a parameter. An option is a field of one struct, and a name that
//! the struct does not have is an error. Nothing here knows of HTTP, and nothing of Python.

pub mod access;
#[cfg(feature = "engine")]
pub mod backlog;
#[cfg(feature = "engine")]
pub mod batches;
#[cfg(feature = "engine")]
pub mod controls;
#[cfg(feature = "engine")]
pub mod feeder;
pub mod flow_event;
#[cfg(feature = "engine")]
pub mod history;
#[cfg(feature = "engine")]
pub mod jobs;
pub mod limits;
#[cfg(feature = "engine")]
pub mod local;
pub mod options;
#[cfg(feature = "engine")]
pub mod queues;
pub mod read;
pub mod refused;
#[cfg(feature = "engine")]
pub mod results;
#[cfg(feature = "engine")]
pub mod runs;
#[cfg(feature = "engine")]
pub mod schedules;
#[cfg(feature = "engine")]
pub mod stats;
pub mod submit;

pub use access::Access;
pub use flow_event::{AddressedEvent, FlowAddress, FlowEventRequest, checked_event_name};
pub use options::{JobOptions, Priority, RetryOptions, UniqueOptions, check_after, check_names};
pub use read::{read_job, read_states};
pub use refused::Refused;
pub use submit::{JobCutter, JobTags, SubmitRequest};
