//! Everything that is known of one job.

use std::collections::BTreeMap;

use gristmill_engine::Engine;
use gristmill_model::{JobId, JobState, Scope};
use gristmill_store::{
    FailedPrerequisite, JobCounts, JobDetails, JobPause, OpenPrerequisite, Store, StoredFailure,
};
use serde::Serialize;
use serde_json::value::RawValue;

use super::list::JobSummary;
use crate::access::Access;
use crate::read::read_job;
use crate::refused::Refused;

/// One failed attempt.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FailureView {
    /// The attempt, from 1; 0 for a job that was rejected before its first attempt.
    attempt: u32,
    /// The error's type, for grouping.
    #[serde(rename = "type")]
    error_type: String,
    /// The error's message.
    message: String,
    /// The traceback, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    traceback: Option<String>,
    /// Its duration. Microseconds.
    duration_us: u32,
    /// Its log.
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
    /// The worker that ran it.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    /// Its time. Milliseconds since 1970.
    failed_at: i64,
}

/// A pause that holds a job.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PauseView {
    /// The reason.
    reason: String,
    /// The end of the pause; none by default. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<i64>,
    /// Its scope; without one, it is a pause of this job alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<Scope>,
}

impl From<JobPause> for PauseView {
    fn from(pause: JobPause) -> Self {
        PauseView {
            reason: pause.reason,
            until: pause.until.map(|until| until.0),
            scope: pause.scope,
        }
    }
}

/// A job that did not complete, so that the jobs that waited for it were cancelled.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CauseView {
    /// The first such job of the prerequisite.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "42:7"))]
    job: JobId,
    /// The state in which it ended: dead, cancelled or expired.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "dead"))]
    state: JobState,
}

impl From<FailedPrerequisite> for CauseView {
    fn from(cause: FailedPrerequisite) -> Self {
        CauseView {
            job: cause.job,
            state: cause.state,
        }
    }
}

/// All data of one job.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobView {
    #[serde(flatten)]
    summary: JobSummary,
    /// Its payload.
    #[cfg_attr(feature = "schema", schema(value_type = serde_json::Value))]
    payload: Box<RawValue>,
    /// Its value, if it completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    value: Option<Box<RawValue>>,
    /// Its deduplication key.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The pauses that hold it: its own, and those of its queue, kind and group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pauses: Vec<PauseView>,
    /// Its tags.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: BTreeMap<String, String>,
    /// The prerequisite that did not complete, so that this job was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<CauseView>,
    /// The job that spawned it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    parent: Option<JobId>,
    /// The number of children that it spawned last, by state. A blocked job waits for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    children: Option<JobCounts>,
    /// The duration of its last attempt. Microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_us: Option<u32>,
    /// The worker that holds it or ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    /// The log of its last attempt, unless that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
    /// Its failed attempts, oldest first.
    failures: Vec<FailureView>,
    /// The jobs that it waits for, while it is blocked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    prerequisites: Vec<PrerequisiteView>,
    /// True if the payload (then null), value, logs and tracebacks are left out, because the caller may not see them.
    #[serde(skip_serializing_if = "is_false")]
    hidden: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Jobs of one batch that a blocked job waits for.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PrerequisiteView {
    /// Their batch.
    batch: i64,
    /// Their positions, as ranges; without them, all jobs of the batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(example = "0-499,731"))]
    positions: Option<String>,
    /// The action if one of them does not complete: `cancel`, `fail` or `ignore`.
    #[cfg_attr(feature = "schema", schema(example = "cancel"))]
    on_failure: String,
    /// Their number by state.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    states: JobCounts,
}

impl From<OpenPrerequisite> for PrerequisiteView {
    fn from(prerequisite: OpenPrerequisite) -> Self {
        PrerequisiteView {
            batch: prerequisite.batch.0,
            positions: prerequisite.positions,
            on_failure: prerequisite.on_failure,
            states: prerequisite.counts,
        }
    }
}

impl JobView {
    /// Leaves out the payload, the value and the output of the job.
    pub fn hide(&mut self) {
        self.payload = RawValue::NULL.to_owned();
        self.value = None;
        self.log = None;
        for failure in &mut self.failures {
            failure.traceback = None;
            failure.log = None;
        }
        self.hidden = true;
    }
}

impl From<StoredFailure> for FailureView {
    fn from(failure: StoredFailure) -> Self {
        FailureView {
            attempt: failure.attempt,
            error_type: failure.error.error_type,
            message: failure.error.message,
            traceback: failure.error.traceback,
            duration_us: failure.duration_us,
            log: failure.log,
            worker: failure.worker.map(|worker| worker.to_string()),
            failed_at: failure.failed_at.0,
        }
    }
}

impl From<JobDetails> for JobView {
    fn from(details: JobDetails) -> Self {
        JobView {
            summary: details.row.into(),
            payload: details.payload,
            value: details.value,
            key: details.key,
            pauses: details.pauses.into_iter().map(Into::into).collect(),
            tags: details.tags,
            cause: details.cause.map(Into::into),
            parent: details.parent,
            children: details.children,
            duration_us: details.duration_us,
            worker: details.worker.map(|worker| worker.to_string()),
            log: details.log,
            failures: details.failures.into_iter().map(Into::into).collect(),
            prerequisites: details.prerequisites.into_iter().map(Into::into).collect(),
            hidden: false,
        }
    }
}

/// Shows one job.
pub async fn job(engine: &Engine, access: &Access, job: &str) -> Result<JobView, Refused> {
    Ok(details_of(&**engine.store(), access, read_job(job)?)
        .await?
        .into())
}

/// All data of a job on the caller's queues.
pub async fn details_of(store: &dyn Store, access: &Access, id: JobId) -> Result<JobDetails, Refused> {
    let details = store.job(id).await?;
    let own = details.filter(|details| access.queues.contains(&details.row.queue));
    own.ok_or_else(|| Refused::not_found("job", &id.to_string()))
}
