//! The other requests and answers of a worker, as JSON.

use std::sync::Arc;

use gristmill_batching::BatchStats;
use gristmill_model::{Followed, JobId, JobProgress, Positions, Printed, bounded};
use gristmill_store::family::StepPlace;
use gristmill_store::{ChildOutcome, Revoked, Want};
use serde::{Deserialize, Serialize};

use crate::limits::PROGRESS_JOBS_READ_MAX;

/// The agent's description of itself, for display. Its token identifies it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RegisterRequest {
    /// Its name.
    #[cfg_attr(
        feature = "schema",
        schema(min_length = 1, max_length = 100, example = "agent-1")
    )]
    pub name: String,
    /// The machine that it runs on.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 100))]
    pub host: String,
    /// Its process there.
    pub process_id: u32,
    /// The queues that it claims from.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>, max_items = 100, example = json!(["default"])))]
    pub queues: Vec<Arc<str>>,
    /// The kinds that it runs.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>, max_items = 1000, example = json!(["mail"])))]
    pub kinds: Vec<Arc<str>>,
}

/// The worker, as the server knows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Registered {
    /// Its id, which belongs to the token that registered it.
    pub worker: i64,
    /// The id of this run of the server; exchanges name it.
    pub instance: String,
    /// The interval of heartbeats. Milliseconds.
    pub heartbeat_every_ms: i64,
    /// The store releases the worker's jobs after this time without a heartbeat. Milliseconds.
    pub lost_after_ms: i64,
}

/// A heartbeat.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    /// From 1 upwards for each worker. A repeated heartbeat has the same number, so that nothing counts twice. A
    /// heartbeat without `hops` needs no number.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(minimum = 0))]
    pub number: u64,
    /// The batches that the worker's hops moved since the last heartbeat: by hop `batches`, `items`, `items_max` and
    /// `end_reasons`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub hops: BatchStats,
    /// The progress of the worker's running jobs. It replaces the last report, and is absent without news. Each has
    /// `job`, `attempt`, and optionally `fraction` (from 0 to 1), `done` and `total` (in one unit, such as bytes),
    /// `message`, `rate_per_s`. At most 1,000 jobs.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, PROGRESS_JOBS_READ_MAX>"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<Object>))]
    pub progress: Vec<JobProgress>,
    /// The claim of an idle worker that asks why it gets no jobs: `jobs_max`, `queues`, `kinds` (empty means all) and
    /// optionally `priority_min`. The question may cost as much as a claim: ask after 10 s without jobs, and then at
    /// most once a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub idle: Option<Want>,
}

/// Jobs that the worker no longer holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HeartbeatAnswer {
    /// True if the worker is still registered. Otherwise its leases are lost, and it registers again.
    pub known: bool,
    /// Jobs that were cancelled while the worker held them, each reported once: `lease`, `batch`, `positions`.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<Object>))]
    pub revoked: Vec<Revoked>,
    /// The followed jobs, each as `{"job": …}`, `{"batch": …}` or `{"kind": …}`; absent without followers. The worker
    /// sends the output of such jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<Object>))]
    pub followed: Vec<Followed>,
    /// True if the worker is asked to claim nothing more, to finish or release the jobs that it holds, and to unregister.
    #[serde(default)]
    pub drain: bool,
    /// The reason in words why the worker gets no jobs for `idle`, although some have been due for 10 s; absent without
    /// such jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
}

/// The output of running jobs since the last request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OutputRequest {
    /// Pieces, each of one attempt of a job: `job`, `kind`, `attempt`, `offset` (the bytes of text that the attempt
    /// printed before) and `text`. At most 1,000 pieces with 262,144 bytes of text together.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<Object>))]
    #[serde(deserialize_with = "bounded::list::<_, _, PROGRESS_JOBS_READ_MAX>")]
    pub printed: Vec<Printed>,
}

/// The result of the request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct OutputAnswer {
    /// Jobs that the worker does not hold any more. Their output comes with their outcomes.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub refused: Vec<JobId>,
}

/// Jobs that have spawned children.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ChildrenRequest {
    /// Their batch.
    pub batch: i64,
    /// Their positions in it, as ranges: `0-4,9`; at most 256.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub positions: Positions,
}

/// The outcomes of their children.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ChildrenAnswer {
    /// The children that each job spawned last, in the order of the positions: each with `job`, `state`, and `value` or
    /// `error`.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<Vec<Object>>))]
    pub children: Vec<Vec<ChildOutcome>>,
}

/// A job that asks for its place in a flow, or for the outcomes of its prerequisites.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct JobQuestion {
    /// The job.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "42:7"))]
    pub job: JobId,
}

/// The place of a job in the flow that began it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StepAnswer {
    /// None if no flow began the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepPlace>,
}

/// The outcomes of the prerequisites of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PrerequisitesAnswer {
    /// In the order in which its submit named their batches: each with `job`, `state`, and `value` or `error`.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<Object>))]
    pub outcomes: Vec<ChildOutcome>,
}
