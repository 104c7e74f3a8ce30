//! `POST /jobs/stream`: submits one payload in each line.

use std::collections::BTreeMap;

use axum::extract::FromRequest;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use gristmill_model::batch::DEFAULT_QUEUE;
use gristmill_model::bounded;
use gristmill_operations::{JobCutter, JobOptions, Priority, RetryOptions, check_names};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::IntoParams;

use super::submitted::{Submitted, store, traceparent};
use crate::app::App;
use crate::body::lines::{Lines, NDJSON_TYPE};
use crate::body::{Body, Query, check_type};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::TAGS_READ_MAX;

/// The options of all jobs of the stream.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StreamQuery {
    /// The kind: selects the handler of the jobs.
    #[param(min_length = 1, max_length = 200)]
    kind: String,
    /// The queue: selects the workers of the jobs; `default` by default.
    #[serde(default)]
    #[param(min_length = 1, max_length = 200)]
    queue: Option<String>,
    /// The tenant that owns the jobs: limits, pauses and shares can apply to a group.
    #[serde(default)]
    #[param(min_length = 1, max_length = 200)]
    group: Option<String>,
    /// Higher is claimed first; 0 by default. A number, or background, low, normal, high or urgent.
    #[serde(default)]
    #[param(example = "high")]
    priority: Option<String>,
    /// The delay before the jobs can be claimed. Milliseconds.
    #[serde(default)]
    #[param(minimum = 0, maximum = 316_224_000_000_i64)]
    delay_ms: Option<u64>,
    /// The time limit of one attempt. Milliseconds.
    #[serde(default)]
    #[param(minimum = 1, maximum = 316_224_000_000_i64)]
    timeout_ms: Option<u64>,
    /// The maximum number of attempts, including the first; 3 by default.
    #[serde(default)]
    #[param(minimum = 1, maximum = 1000)]
    attempts_max: Option<u32>,
    /// When all jobs of the stream have completed: the kind of a job that gets a summary as its payload, or a URL that a
    /// worker with `--http-hooks` posts the summary to. With at most 10,000 jobs.
    #[serde(default)]
    #[param(min_length = 1, max_length = 2000)]
    on_success: Option<String>,
    /// The same, when all jobs of the stream have ended and one has not completed.
    #[serde(default)]
    #[param(min_length = 1, max_length = 2000)]
    on_failure: Option<String>,
    /// With `true`, each line is an object with `payload` and `tags`, instead of the payload itself.
    #[serde(default)]
    wrapped: bool,
}

/// A line with a job and its tags.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrappedJob<'a> {
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(default, deserialize_with = "bounded::texts::<_, TAGS_READ_MAX>")]
    tags: BTreeMap<String, String>,
}

/// Submit one payload in each line
///
/// Each line is one payload, any JSON (or, with `wrapped`, an object with the payload and its tags). Empty lines are
/// skipped. The store accepts all lines or none: an error names the invalid line. Split larger inputs into several
/// requests.
#[utoipa::path(
    post,
    path = "/jobs/stream",
    tag = "jobs",
    operation_id = "submit_stream",
    params(
        StreamQuery,
        ("traceparent" = Option<String>, Header, description = "The trace that the jobs belong to (W3C Trace Context)"),
    ),
    request_body(content = Lines, content_type = "application/x-ndjson", description = "One payload in each line"),
    responses(
        (status = 201, description = "The jobs are on disk", body = Submitted),
        (status = "4XX", description = "Refused; nothing is stored", body = Refusal),
    )
)]
pub async fn submit_stream(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<StreamQuery>,
    request: Request,
) -> Result<(StatusCode, Json<Submitted>), ApiError> {
    check_type(request.headers(), NDJSON_TYPE)?;
    let queue = query.queue.unwrap_or_else(|| DEFAULT_QUEUE.to_owned());
    check_names(&query.kind, &queue)?;
    caller.access.check_queue(&queue)?;
    let retry = query.attempts_max.map(|attempts_max| RetryOptions {
        attempts_max: Some(attempts_max),
        ..Default::default()
    });
    let options = JobOptions {
        priority: query.priority.map(Priority::Level),
        delay_ms: query.delay_ms,
        timeout_ms: query.timeout_ms,
        retry,
        group: query.group,
        on_success: query.on_success,
        on_failure: query.on_failure,
        ..JobOptions::default()
    };
    let mut cutter = JobCutter::new(query.kind, queue, options.check(app.clock().now())?);
    cutter.trace(traceparent(request.headers()));
    let mut body = Body::from_request(request, &app).await?;
    let cut = body.read(move |lines| cut(lines, query.wrapped, cutter));
    Ok((StatusCode::CREATED, Json(store(cut.await?, &app).await?)))
}

/// Packs the job in each line.
fn cut(lines: &[u8], wrapped: bool, mut cutter: JobCutter) -> Result<JobCutter, ApiError> {
    for (line, number) in lines.split(|byte| *byte == b'\n').zip(1..) {
        let text = std::str::from_utf8(line).map_err(|error| {
            ApiError::invalid(format!("line {number} is not UTF-8: {error}"), "send UTF-8")
        })?;
        if !text.trim_ascii().is_empty() {
            let place = |_| format!("line {number}");
            if wrapped {
                let job: WrappedJob<'_> = serde_json::from_str(text).map_err(|error| {
                    ApiError::invalid(
                        format!("line {number}: {error}"),
                        "send {\"payload\": …, \"tags\": {…}} on each line, or omit `wrapped`",
                    )
                })?;
                cutter.push_tagged(job.payload.get(), job.tags, place)?;
            } else {
                cutter.push(text, place)?
            }
        }
    }
    Ok(cutter)
}
