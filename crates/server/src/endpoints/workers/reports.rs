//! `POST /reports`: outcomes of claimed jobs, as JSON.

use std::collections::BTreeMap;
use std::fmt;

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_model::limits::{ATTEMPTS_MAX, BATCH_JOBS_MAX, LOG_BYTES_MAX};
use gristmill_model::{
    BatchId, Completed, FailedJob, JobError, JobId, JobLog, LeaseId, PackedBuilder, Positions, Receipt,
    Report, Suspended, WorkerId, bounded,
};
use gristmill_operations::limits::ENTRIES_PER_REQUEST_MAX;
use gristmill_operations::submit::even_null;
use gristmill_operations::submit::spawned::read_spawn;
use gristmill_protocol::exchange::clean;
use gristmill_store::StoreError;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::claims::beat;
use super::exchange::{check_children, note, recall};
use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query, json};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::{
    ITEM_BYTES_MAX, LOG_BYTES_PER_EXCHANGE_MAX, OUTCOMES_PER_REQUEST_MAX, OUTCOMES_READ_MAX,
};

/// Outcomes of jobs that a worker claimed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportRequest<'a> {
    /// The worker that claimed the jobs.
    #[schema(minimum = 1, example = 7)]
    worker: i64,
    /// The outcomes, each of one job.
    #[serde(borrow, deserialize_with = "bounded::list::<_, _, OUTCOMES_READ_MAX>")]
    #[schema(min_items = 1, max_items = 10_000)]
    outcomes: Vec<Outcome<'a>>,
}

/// The outcome of one job: exactly one of `value`, `error`, `spawned` and `released`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Outcome<'a> {
    /// The job, as in the answer to the claim.
    #[schema(value_type = String, example = "42:7")]
    job: JobId,
    /// Its lease, as in the answer to the claim.
    lease: i64,
    /// Its attempt, as in the answer to the claim.
    #[schema(minimum = 1)]
    attempt: u32,
    /// The job completed with this value: any JSON.
    #[serde(default, borrow, deserialize_with = "even_null")]
    #[schema(value_type = Option<serde_json::Value>)]
    value: Option<&'a RawValue>,
    /// The attempt failed: a text, or an object with `message` and optionally `type`, `traceback`, `permanent` (no
    /// retry can help) and `retry_after_ms`.
    #[serde(default)]
    error: Option<OutcomeError>,
    /// The job waits for children, which are stored with this report. Their end makes it claimable again, with its `memo`: read
    /// their outcomes by `POST /workers/{worker}/children`. An object with `children` (a list, each with `payloads`, `kind`, and
    /// optionally `queue`, `tags` and `options`, which are those of a submit) and `memo` (a list of one value); optionally
    /// `on_failure` (`fail`, or `collect` for jobs that go on after a failure) and what flows have: `flow`, `wake`,
    /// `given_up` and `cleanup_ms` (after a cancel, an instance cleans up for so long).
    #[serde(default, borrow)]
    #[schema(value_type = Option<serde_json::Value>)]
    spawned: Option<&'a RawValue>,
    /// The worker did not run the job: it can be claimed again, and no attempt is charged.
    #[serde(default)]
    released: bool,
    /// The duration of the attempt; 0 by default. Milliseconds.
    #[serde(default)]
    #[schema(minimum = 0)]
    duration_ms: f64,
    /// The log of the attempt; the end of a long one is cut.
    #[serde(default)]
    log: Option<String>,
}

/// The error of an attempt.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub enum OutcomeError {
    /// Only a message.
    Message(String),
    /// A message with its circumstances.
    Described(DescribedError),
}

impl<'de> Deserialize<'de> for OutcomeError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ErrorVisitor)
    }
}

/// Reads a text or an object. Refuses everything else before it is in memory.
struct ErrorVisitor;

impl<'de> Visitor<'de> for ErrorVisitor {
    type Value = OutcomeError;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text, or an object with `message`")
    }

    fn visit_str<E: serde::de::Error>(self, message: &str) -> Result<OutcomeError, E> {
        Ok(OutcomeError::Message(message.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, error: A) -> Result<OutcomeError, A::Error> {
        DescribedError::deserialize(MapAccessDeserializer::new(error)).map(OutcomeError::Described)
    }
}

/// An error with its circumstances.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DescribedError {
    /// The kind of error, for grouping; `error` by default.
    #[serde(rename = "type", default)]
    error_type: Option<String>,
    /// The message.
    message: String,
    /// The place of the error.
    #[serde(default)]
    traceback: Option<String>,
    /// No retry can help: the job ends as dead.
    #[serde(default)]
    permanent: bool,
    /// The delay before the next attempt, instead of the retry policy's. Milliseconds.
    #[serde(default)]
    retry_after_ms: Option<u64>,
}

/// The result of a report.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Reported {
    /// The number of outcomes that are on disk.
    accepted: u32,
    /// Jobs whose outcomes no longer count, because the worker does not hold them: they were cancelled, or it was
    /// silent for too long.
    #[schema(value_type = Vec<String>)]
    refused: Vec<JobId>,
    /// Failed jobs without further attempts.
    #[schema(value_type = Vec<String>)]
    dead: Vec<JobId>,
    /// The jobs that were cancelled while the worker held them. Stop them.
    #[schema(value_type = Vec<String>)]
    cancelled: Vec<JobId>,
}

/// Report outcomes
///
/// All outcomes are committed in one transaction; status 200 means that they are on disk. The store accepts or refuses
/// each outcome. A report can be repeated: the outcomes of the first time count once, and are accepted again.
#[utoipa::path(
    post,
    path = "/reports",
    tag = "agents",
    operation_id = "report",
    request_body = ReportRequest,
    responses(
        (status = 200, description = "The outcomes are on disk, except the refused ones", body = Reported),
        (status = "4XX", description = "Refused; nothing is stored", body = Refusal),
    )
)]
pub async fn report(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<Reported>, ApiError> {
    let read = body.read_with(|bytes| {
        let request: ReportRequest<'_> = json(bytes)?;
        // The `spawned` of all outcomes share a limit.
        let reports = bounded::within(ENTRIES_PER_REQUEST_MAX, || reports(request.outcomes))?;
        Ok((WorkerId(request.worker), reports))
    });
    let (worker, reports) = read.await?;
    app.sessions.of_caller(&**app.store(), &caller, worker).await?;
    check_children(&reports, &caller)?;
    let exchanged = app.store().exchange(worker, reports.clone(), None).await;
    if matches!(exchanged, Err(StoreError::WorkerUnknown(_))) {
        app.sessions.end(worker);
    }
    let mut exchanged = exchanged?;
    note(&app, &reports, &exchanged);
    recall(&app, &caller, worker, &reports, &mut exchanged.receipts).await?;
    // The outcomes are on disk. A failed heartbeat does not undo this.
    let cancelled = beat(&app, worker).await.unwrap_or_default();
    let all = |positions: fn(&Receipt) -> &Positions| -> Vec<JobId> {
        let receipts = reports.iter().zip(&exchanged.receipts);
        let jobs = receipts.flat_map(|(report, receipt)| {
            let batch = report.batch;
            positions(receipt)
                .iter()
                .map(move |position| JobId { batch, position })
        });
        jobs.collect()
    };
    Ok(Json(Reported {
        accepted: exchanged
            .receipts
            .iter()
            .map(|receipt| receipt.accepted.len())
            .sum(),
        refused: all(|receipt| &receipt.refused),
        dead: all(|receipt| &receipt.dead),
        cancelled,
    }))
}

/// The outcomes of one batch, lease and attempt, by position.
type Group<'a> = BTreeMap<u32, Outcome<'a>>;

/// One report for each batch, lease and attempt.
fn reports(outcomes: Vec<Outcome<'_>>) -> Result<Vec<Report>, ApiError> {
    if outcomes.is_empty() || outcomes.len() > OUTCOMES_PER_REQUEST_MAX {
        return Err(ApiError::invalid(
            format!("the report has {} `outcomes`", outcomes.len()),
            format!("send 1 to {OUTCOMES_PER_REQUEST_MAX} outcomes in one report"),
        ));
    }
    let mut log_bytes_left = LOG_BYTES_PER_EXCHANGE_MAX;
    let mut groups: BTreeMap<(BatchId, LeaseId, u32), Group<'_>> = BTreeMap::new();
    for (index, outcome) in outcomes.into_iter().enumerate() {
        check(index, &outcome)?;
        log_bytes_left = log_bytes_left
            .checked_sub(outcome.log.as_ref().map_or(0, |log| log.len().min(LOG_BYTES_MAX)))
            .ok_or_else(|| ApiError::TooLarge {
                what: "the logs of one report".to_owned(),
                limit: format!("{LOG_BYTES_PER_EXCHANGE_MAX} bytes"),
            })?;
        let job = outcome.job;
        let group = groups
            .entry((job.batch, LeaseId(outcome.lease), outcome.attempt))
            .or_default();
        if group.insert(job.position, outcome).is_some() {
            return Err(ApiError::invalid(
                format!("`outcomes[{index}]` is another outcome of job {job}"),
                "report one outcome for each job",
            ));
        }
    }
    groups
        .into_iter()
        .map(|((batch, lease, attempt), group)| report_of(Report::new(lease, batch, attempt), group))
        .collect()
}

/// Refuses an outcome with no result, or with several.
fn check(index: usize, outcome: &Outcome<'_>) -> Result<(), ApiError> {
    let wrong = |what: String, remedy: &str| {
        let job = outcome.job;
        Err(ApiError::invalid(
            format!("`outcomes[{index}]` of job {job} {what}"),
            remedy,
        ))
    };
    let given = [
        outcome.value.is_some(),
        outcome.error.is_some(),
        outcome.spawned.is_some(),
        outcome.released,
    ];
    if given.iter().filter(|given| **given).count() != 1 {
        return wrong(
            "has not exactly one of `value`, `error`, `spawned` and `released`".to_owned(),
            "give `value` for a completed job, `error` for a failed one, `spawned` for one that waits for children, or \
             `released`: true for one that did not run",
        );
    }
    if outcome.job.position >= BATCH_JOBS_MAX || outcome.attempt == 0 || outcome.attempt > ATTEMPTS_MAX {
        return wrong(
            format!("has the attempt {}", outcome.attempt),
            "repeat `job`, `lease` and `attempt` as the claim answered them",
        );
    }
    if !(0.0..=f64::MAX).contains(&outcome.duration_ms) {
        return wrong(
            "has a negative `duration_ms`".to_owned(),
            "give milliseconds from 0",
        );
    }
    if let Some(value) = outcome.value
        && value.get().len() > ITEM_BYTES_MAX
    {
        return Err(ApiError::TooLarge {
            what: format!("the value of job {}", outcome.job),
            limit: format!("{ITEM_BYTES_MAX} bytes"),
        });
    }
    Ok(())
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a duration out of range becomes the nearest that fits"
)]
fn microseconds(milliseconds: f64) -> u32 {
    (milliseconds * 1_000.0).round() as u32
}

fn report_of(mut report: Report, group: Group<'_>) -> Result<Report, ApiError> {
    let mut values = PackedBuilder::with_item_bytes_max(ITEM_BYTES_MAX);
    let (mut positions, mut durations_us) = (Positions::new(), Vec::new());
    for (position, outcome) in group {
        let duration_us = microseconds(outcome.duration_ms);
        if let Some(log) = outcome.log {
            report.logs.push(JobLog {
                position,
                text: clean(log, LOG_BYTES_MAX),
            });
        }
        if let Some(spawned) = outcome.spawned {
            // Each batch of children names its kind.
            let suspended = read_spawn(position, spawned, "").map_err(|problem| {
                ApiError::invalid(
                    format!("`spawned` of job {}: {problem}", outcome.job),
                    "correct the children",
                )
            })?;
            report.suspended.push(suspended);
            continue;
        }
        match (outcome.value, outcome.error) {
            (Some(value), _) => {
                values
                    .push(value.get())
                    .map_err(|error| ApiError::invalid(error.to_string(), "correct the value"))?;
                positions.insert(position);
                durations_us.push(duration_us);
            }
            (None, Some(error)) => report.failed.push(FailedJob {
                position,
                error: JobError::from(error).cleaned(),
                duration_us,
            }),
            (None, None) => report.released.insert(position),
        }
    }
    report.suspended = Suspended::pack(report.suspended);
    report.completed = (!positions.is_empty()).then(|| Completed {
        positions,
        values: values.finish(),
        durations_us,
    });
    Ok(report)
}

impl From<OutcomeError> for JobError {
    fn from(error: OutcomeError) -> JobError {
        match error {
            OutcomeError::Message(message) => JobError::new("error", message),
            OutcomeError::Described(error) => JobError {
                error_type: error.error_type.unwrap_or_else(|| "error".to_owned()),
                message: error.message,
                traceback: error.traceback,
                permanent: error.permanent,
                retry_after_ms: error.retry_after_ms,
            },
        }
    }
}
