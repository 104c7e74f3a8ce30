//! The embedded job engine.
//!
//! An [`Engine`] is a store with its operations: submit, run, cancel, retry, query, watch, and housekeeping. Jobs of a
//! [`Kind`] are typed.
//!
//! ```
//! use gristmill_engine::{Engine, Job, JobError, Kind};
//!
//! struct Square;
//! impl Kind for Square {
//!     const NAME: &'static str = "square";
//!     type Payload = i64;
//!     type Value = i64;
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("gristmill.db");
//! let engine = Engine::open(&path).await?;
//! let job = engine.submit::<Square>(&12).await?;
//! let mut worker = engine.worker();
//! worker.handle::<Square, _, _>(|job: Job<i64>| async move { Ok::<_, JobError>(job.payload * job.payload) });
//! worker.until_empty().run().await?;
//! assert_eq!(engine.value::<Square>(job).await?, Some(144));
//! # engine.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The feature `postgres`, which is on by default, adds the store in PostgreSQL. With `default-features = false`, an
//! engine on SQLite compiles neither a PostgreSQL driver nor TLS.

pub mod engine;
pub mod error;
pub mod events;
mod expiry;
mod firing;
pub mod flow;
mod flow_cleanup;
pub mod flow_fork;
pub mod flow_steps;
mod housekeeping;
pub mod kind;
pub mod live_logs;
mod open_store;
pub mod portions;
pub mod process;
pub mod schedules;
pub mod settings;
#[cfg(feature = "testing")]
pub mod testing;
pub mod work;

pub use engine::{Engine, end_reason};
pub use error::EngineError;
pub use events::Events;
pub use flow::FlowSteps;
pub use gristmill_model::{
    After, ChildAfter, ChildBatch, HookTarget, Hooks, JobError, JobId, KeyScope, KeyedBatch, OnChildFailure,
    OnDuplicate, OnFailure, Prerequisite, Progress, RecurrenceRule, RetryPolicy, Signal, Spawn, Unique, Wake,
};
pub use gristmill_store::{
    ChildOutcome, Event, EventCursor, EventJobs, FlowEvent, FlowEventReceipt, RecordedEvent, SubmittedJobs,
    Suspension,
};
pub use gristmill_worker::flow::{CannotFork, StepAt};
pub use gristmill_worker::pressure;
pub use gristmill_worker::{
    Admission, Backpressure, Capacity, Finalizing, Flow, Handler, IoRate, Job, JobContext, Observer,
    PressureSource, SourceError, Step, StepFailed, Stopper, Threshold, WorkerSettings, WorkerSummary,
};
pub use kind::Kind;
pub use open_store::{is_postgres, open_store};
pub use portions::Portions;
pub use schedules::ScheduleOptions;
pub use settings::{EngineSettings, Retention};
pub use work::{RunningWorker, WorkerBuilder};

/// The examples of the documentation, compiled and run.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/rust.md")]
mod documented {}
