//! The worker: claim → run → commit, overlapped, over any [`Source`] of leases.
//!
//! [`Worker::run`] drives the [`Handler`]s of its kinds. It claims little at first and more while it runs
//! dry, cuts what it claimed into micro-batches that take about 10 ms each, and sends the outcomes
//! with the next claim in one exchange.

mod claims;
pub mod context;
pub mod delivery;
mod dispatch;
pub mod family;
pub mod function;
mod give_back;
pub mod handler;
mod heart;
pub mod hops;
pub mod io;
mod lane;
mod live_output;
pub mod micro_batch;
mod mill;
pub mod observer;
mod outage;
pub mod pressure;
pub mod progress;
mod repeats;
pub mod report_buffer;
pub mod settings;
pub mod signals;
pub mod source;
mod turns;
pub mod worker;

pub use context::JobContext;
pub use family::{Finalizing, Step, parent_handler};
pub use function::{Job, batch_handler, job_handler};
pub use gristmill_store::ChildOutcome;
pub use handler::{Capacity, Handler, OutcomeSink, Outcomes};
pub use hops::HopRecorder;
pub use io::IoRate;
pub use live_output::LiveOutputBoard;
pub use micro_batch::{MicroBatch, MicroBatchJob};
pub use observer::{NoObserver, Observer};
pub use pressure::{Admission, Backpressure, PressureSource, Threshold};
pub use progress::ProgressBoard;
pub use settings::WorkerSettings;
pub use source::{Source, SourceError, SourceErrorKind, StoreSource};
pub use worker::{Stopper, Worker, WorkerSummary};
