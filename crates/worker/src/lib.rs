//! The worker: it claims, runs and commits jobs, all at the same time, with any [`Source`] of leases.
//!
//! [`Worker::run`] drives the [`Handler`]s of its kinds. It claims few jobs at first, and more while it runs dry. It
//! cuts claimed jobs into micro-batches that take about 10 ms each. One exchange sends outcomes and the next claim.

mod claims;
mod dispatch;
pub mod handler;
mod heart;
pub mod hops;
pub mod io;
mod live_output;
mod mill;
pub mod observer;
pub mod pressure;
pub mod progress;
pub mod settings;
pub mod signals;
pub mod source;
pub mod spans;
mod stopper;
mod summary;
mod sync;
pub mod worker;

pub use gristmill_store::ChildOutcome;
pub use handler::context::JobContext;
pub use handler::family::{Finalizing, Step, parent_handler};
pub use handler::flow::{Flow, MapFuture, SignalFuture, StepFailed, StepFuture, flow_handler};
pub use handler::function::{Job, batch_handler, job_handler};
pub use handler::micro_batch::{MicroBatch, MicroBatchJob};
pub use handler::runners::{RunnerChange, RunnerListener};
pub use handler::{Capacity, Handler, OutcomeSink, Outcomes};
pub use handler::{context, family, flow, function, micro_batch};
pub use hops::HopRecorder;
pub use io::IoRate;
pub use live_output::LiveOutputBoard;
pub use mill::{delivery, report_buffer};
pub use observer::{NoObserver, Observer};
pub use pressure::{Admission, Backpressure, PressureSource, Threshold};
pub use progress::ProgressBoard;
pub use settings::WorkerSettings;
pub use source::{Source, SourceError, SourceErrorKind, StoreSource};
pub use stopper::Stopper;
pub use worker::{Worker, WorkerSummary};
