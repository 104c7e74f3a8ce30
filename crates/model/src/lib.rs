//! The terms of Gristmill, as types: [`Batch`](batch::NewBatch), [`JobId`], [`Positions`], [`Lease`], [`Report`],
//! outcomes, retry policies and limits.
//!
//! This crate does no I/O and depends on no other crate of the project. Time and randomness are parameters
//! ([`Clock`], [`Rng`]).

pub mod batch;
pub mod bounded;
pub mod clock;
pub mod control;
pub mod duration_histogram;
pub mod error;
pub mod family;
pub mod id;
pub mod lease;
pub mod limits;
pub mod live_output;
pub mod packed;
pub mod positions;
pub mod progress;
pub mod recurrence;
pub mod report;
pub mod retry;
pub mod rng;
pub mod state;

// Short paths to the modules of a batch and of a family.
pub use batch::{dependency, hooks, labels, priority, signal, tag, trace_parent, unique};
pub use family::{flow, siblings, spawn};

pub use batch::{BatchOptions, KeyedBatch, NewBatch, Rejected};
pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use control::{Control, Effect, InvalidControl, Scope};
pub use dependency::{After, Awaited, OnFailure, Prerequisite};
pub use duration_histogram::DurationHistogram;
pub use error::JobError;
pub use flow::Wake;
pub use hooks::{HookTarget, Hooks, WEBHOOK_KIND, WEBHOOK_SECRET_VARIABLE};
pub use id::{BatchId, JobId, LeaseId, RunId, WorkerId};
pub use labels::{InvalidLabels, JobLabels};
pub use lease::{Lease, LeasedSlice};
pub use live_output::{Followed, KeptOutput, LogEvent, Printed};
pub use packed::cutter::{BatchLimits, CutList, PackedCutter};
pub use packed::item;
pub use packed::{PackedArray, PackedBuilder, PackedError, PackedIndex};
pub use positions::Positions;
pub use priority::{PRIORITY_LEVELS, parse_priority};
pub use progress::{JobProgress, Progress, RateMeter, ShownProgress};
pub use recurrence::{InvalidRecurrence, Recurrence, RecurrenceRule};
pub use report::{Completed, EarlierFailure, FailedJob, JobLog, Receipt, Report, ReportWrite};
pub use retry::{Backoff, RetryPolicy};
pub use rng::{Rng, SplitMix64};
pub use siblings::Siblings;
pub use signal::Signal;
pub use spawn::{ChildAfter, ChildBatch, InvalidSpawn, OnChildFailure, Spawn, Suspended};
pub use state::JobState;
pub use tag::{Tag, TagCondition, pack_tags};
pub use trace_parent::TraceParent;
pub use unique::{Debounce, DebouncedPayloads, KeyScope, OnDuplicate, Unique};
