//! `POST /claims`: claims jobs as JSON, for a worker in any language.
//!
//! A claim without `worker` registers a worker. Each claim and report also counts as a heartbeat, and the server sends
//! heartbeats for a worker whose claim waits. A client that gets no answer claims without `worker`. The store releases
//! the old worker's jobs when its heartbeats cease. A claim therefore needs no number, and the server keeps no answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_batching::BatchStats;
use gristmill_model::batch::{DEFAULT_QUEUE, check_name};
use gristmill_model::limits::heartbeat_every_ms;
use gristmill_model::{JobId, Lease, LeasedSlice, Report, TraceParent, WorkerId, bounded};
use gristmill_operations::limits::WAIT_MS_MAX;
use gristmill_store::{Exchanged, NewWorker, Revoked, StoreError, Want};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use utoipa::ToSchema;

use super::exchange::{check_want, jobs, wait_for_work};
use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::{AGENT_NAME_BYTES_MAX, KINDS_READ_MAX};
use crate::sessions::new_worker;

/// The request of a claim.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// The worker, as in the answer to its first claim. Without it, the server registers a new worker. Omit it in the
    /// first claim, after a claim without an answer, and after the refusal `worker_unknown`.
    #[serde(default)]
    #[schema(minimum = 1, example = 7)]
    worker: Option<i64>,
    /// The name of a new worker, for display; `worker` by default.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 100, example = "mailer-1")]
    name: Option<String>,
    /// Claim jobs of these kinds; of all kinds by default.
    #[serde(default, deserialize_with = "bounded::list::<_, _, KINDS_READ_MAX>")]
    #[schema(max_items = 1000, example = json!(["mail"]))]
    kinds: Vec<String>,
    /// Claim jobs of these queues; of `default` by default.
    #[serde(default, deserialize_with = "bounded::optional_list::<_, _, KINDS_READ_MAX>")]
    #[schema(min_items = 1, max_items = 100)]
    queues: Option<Vec<String>>,
    /// Claim at most this many jobs; 1 by default.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 10_000)]
    jobs_max: Option<u32>,
    /// The maximum wait for a job if there is none; 0 by default. Milliseconds.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 30_000)]
    wait_ms: u64,
}

/// A job that the worker holds until it reports its outcome.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ClaimedJob {
    /// The job.
    #[schema(value_type = String, example = "42:7")]
    job: JobId,
    /// The lease that holds it. The report repeats it.
    lease: i64,
    /// The attempt, from 1. The report repeats it.
    attempt: u32,
    /// Its kind.
    #[schema(value_type = String)]
    kind: Arc<str>,
    /// Its queue.
    #[schema(value_type = String)]
    queue: Arc<str>,
    /// The tenant that owns it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    group: Option<Arc<str>>,
    /// Its payload.
    #[schema(value_type = serde_json::Value)]
    payload: Box<RawValue>,
    /// The time limit of the attempt, which the worker enforces. Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    /// The time by which the job must complete. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<i64>,
    /// The submitter's span, as the header `traceparent` names it: the parent for spans of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    traceparent: Option<TraceParent>,
    /// Its deduplication key.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Its tags.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: BTreeMap<String, String>,
    /// The value that it kept when it spawned its children, all of which have ended: see the operation `children`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    memo: Option<Box<RawValue>>,
}

/// The answer to a claim.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Claimed {
    /// The worker: name it in the next claim and in reports.
    worker: i64,
    /// The interval of heartbeats while jobs run longer: `POST /workers/{worker}/heartbeat` with the body `{}`. Milliseconds.
    heartbeat_every_ms: i64,
    /// The store releases the worker's jobs after this time without a claim, a report or a heartbeat. Milliseconds.
    lost_after_ms: i64,
    /// The jobs in the order to run them; empty if none came in time.
    jobs: Vec<ClaimedJob>,
    /// The jobs that were cancelled while the worker held them. Stop them; their reports are refused.
    #[schema(value_type = Vec<String>)]
    cancelled: Vec<JobId>,
}

/// Claim jobs
///
/// For workers in any language. The worker runs the jobs and sends their outcomes to `POST /reports`. Other workers get
/// the jobs of a worker that is silent for `lost_after_ms`. If the client disconnects before the answer, the store
/// releases the jobs at once.
#[utoipa::path(
    post,
    path = "/claims",
    tag = "agents",
    operation_id = "claim",
    request_body = ClaimRequest,
    responses(
        (status = 200, description = "The claimed jobs", body = Claimed),
        (status = "4XX", description = "Refused; nothing is claimed", body = Refusal),
    )
)]
pub async fn claim(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<Claimed>, ApiError> {
    let request: ClaimRequest = body.read().await?;
    drop(body);
    if request.wait_ms > WAIT_MS_MAX {
        return Err(ApiError::invalid(
            format!("`wait_ms` is {}", request.wait_ms),
            format!("give at most {WAIT_MS_MAX}"),
        ));
    }
    let queues = request
        .queues
        .clone()
        .unwrap_or_else(|| vec![DEFAULT_QUEUE.to_owned()]);
    let want = Want {
        jobs_max: request.jobs_max.unwrap_or(1),
        queues: queues.into_iter().map(Into::into).collect(),
        kinds: request.kinds.iter().map(|kind| kind.as_str().into()).collect(),
        priority_min: None,
    };
    check_want(&want, &caller)?;
    let worker = worker_of(&app, &caller, &request, &want).await?;
    // The claim runs to its end even without its client, so that no claim stays with a client that is gone.
    let (answer, answered) = oneshot::channel();
    tokio::spawn(carry_out(app, caller, worker, want, request.wait_ms, answer));
    let (claimed, held) = answered.await.unwrap_or(Err(ApiError::Stopping))?;
    held.keep();
    Ok(Json(claimed))
}

/// Claimed jobs whose answer is not sent yet. If this is dropped first, it releases them.
struct Held(Option<(App, WorkerId, Lease)>);

impl Held {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((app, worker, lease)) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { release(&app, worker, &lease).await });
        }
    }
}

/// The channel of an answer to its request.
type Answer = oneshot::Sender<Result<(Claimed, Held), ApiError>>;

/// The worker of a claim: the named one, or a new one. A new one is listed with the queues and kinds of its first claim.
async fn worker_of(
    app: &App,
    caller: &Caller,
    request: &ClaimRequest,
    want: &Want,
) -> Result<WorkerId, ApiError> {
    if let Some(worker) = request.worker {
        let worker = WorkerId(worker);
        app.sessions.of_caller(&**app.store(), caller, worker).await?;
        return Ok(worker);
    }
    let name = request.name.as_deref().unwrap_or("worker");
    if name.len() > AGENT_NAME_BYTES_MAX || check_name("worker", name).is_err() {
        return Err(ApiError::invalid(
            format!("`name` must have 1 to {AGENT_NAME_BYTES_MAX} bytes and no control characters"),
            "choose another",
        ));
    }
    let new = NewWorker {
        queues: want.queues.clone(),
        kinds: want.kinds.clone(),
        ..new_worker(caller, name, "client", 0)
    };
    let worker = app.store().register_worker(new).await?;
    app.sessions.begin(caller, worker);
    Ok(worker)
}

/// Claims, and waits for jobs if the request asks for that.
async fn carry_out(app: App, caller: Caller, worker: WorkerId, want: Want, wait_ms: u64, mut answer: Answer) {
    let claimed = claim_or_wait(&app, &caller, worker, &want, wait_ms, &mut answer).await;
    if matches!(claimed, Err(ApiError::Store(StoreError::WorkerUnknown(_)))) {
        app.sessions.end(worker);
    }
    let claimed = claimed.and_then(|(exchanged, cancelled)| {
        app.metrics.exchanged("claimed", jobs(&exchanged));
        let held = Held(exchanged.lease.clone().map(|lease| (app.clone(), worker, lease)));
        let lost_after_ms = app.engine.lease_lost_after_ms();
        let claimed = Claimed {
            worker: worker.0,
            heartbeat_every_ms: heartbeat_every_ms(lost_after_ms),
            lost_after_ms,
            jobs: claimed_jobs(exchanged.lease.as_ref().map_or(&[], |lease| &lease.slices))?,
            cancelled,
        };
        Ok((claimed, held))
    });
    // If the request is gone, dropping the answer releases the jobs.
    let _ = answer.send(claimed);
}

/// Claims, and waits for a job if there is none. Sends the worker's heartbeats meanwhile.
async fn claim_or_wait(
    app: &App,
    caller: &Caller,
    worker: WorkerId,
    want: &Want,
    wait_ms: u64,
    answer: &mut Answer,
) -> Result<(Exchanged, Vec<JobId>), ApiError> {
    let mut cancelled = beat(app, worker).await?;
    let first = app
        .store()
        .exchange(worker, Vec::new(), Some(want.clone()))
        .await?;
    if wait_ms == 0 || jobs(&first) > 0 {
        return Ok((first, cancelled));
    }
    let ended = async {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(wait_ms)) => {}
            () = answer.closed() => {}
            () = app.stopped() => {}
            _ = app.token_ended(caller) => {}
        }
    };
    let every_ms = heartbeat_every_ms(app.engine.lease_lost_after_ms()).max(1);
    let every = Duration::from_millis(every_ms.unsigned_abs());
    // A job may become due while the claim waits. A claim that expects none would end with the jobs of other workers.
    let nothing = Exchanged::default();
    let waiting = wait_for_work(app, worker, want, nothing, ended);
    tokio::pin!(waiting);
    loop {
        tokio::select! {
            exchanged = &mut waiting => return Ok((exchanged?, cancelled)),
            () = tokio::time::sleep(every) => cancelled.extend(beat(app, worker).await?),
        }
    }
}

/// Sends the worker's heartbeat, and returns its cancelled jobs.
pub(super) async fn beat(app: &App, worker: WorkerId) -> Result<Vec<JobId>, ApiError> {
    let heartbeat = app.store().heartbeat(worker, BatchStats::default()).await?;
    if !heartbeat.known {
        app.sessions.end(worker);
        return Err(ApiError::WorkerUnknown(worker.0));
    }
    app.interest.learn(&heartbeat.followed);
    Ok(heartbeat.revoked.iter().flat_map(revoked_jobs).collect())
}

fn revoked_jobs(revoked: &Revoked) -> impl Iterator<Item = JobId> + '_ {
    let batch = revoked.batch;
    revoked
        .positions
        .iter()
        .map(move |position| JobId { batch, position })
}

fn claimed_jobs(slices: &[LeasedSlice]) -> Result<Vec<ClaimedJob>, ApiError> {
    // Stored items are JSON, because the store checks each one at its submit.
    let raw = |item: &str| {
        RawValue::from_string(item.to_owned()).map_err(|error| {
            ApiError::Store(StoreError::InvalidInput(format!(
                "a stored payload is not JSON: {error}"
            )))
        })
    };
    let mut claimed = Vec::with_capacity(slices.iter().map(|slice| slice.len() as usize).sum());
    for slice in slices {
        let mut memos = slice.memos.as_ref().map(|memos| memos.items());
        for (position, payload) in slice.positions.iter().zip(slice.payloads.items()) {
            let labels = slice.labels.as_deref();
            claimed.push(ClaimedJob {
                job: JobId {
                    batch: slice.batch,
                    position,
                },
                lease: slice.lease.0,
                attempt: slice.attempt,
                kind: slice.kind.clone(),
                queue: slice.queue.clone(),
                group: slice.group.clone(),
                payload: raw(payload)?,
                timeout_ms: slice.timeout_ms,
                deadline: slice.deadline.map(|deadline| deadline.0),
                traceparent: slice.traceparent,
                key: labels.and_then(|labels| labels.key_of(position)),
                tags: labels.map(|labels| labels.tags_of(position)).unwrap_or_default(),
                memo: memos.as_mut().and_then(Iterator::next).map(raw).transpose()?,
            });
        }
    }
    Ok(claimed)
}

/// Releases a claim that no client received.
async fn release(app: &App, worker: WorkerId, lease: &Lease) {
    let reports: Vec<Report> = lease
        .slices
        .iter()
        .map(|slice| Report {
            released: slice.positions.clone(),
            ..Report::new(slice.lease, slice.batch, slice.attempt)
        })
        .collect();
    match app.store().exchange(worker, reports.clone(), None).await {
        Ok(exchanged) => super::exchange::note(app, &reports, &exchanged),
        // The worker sends no more heartbeats, so a rescue releases the jobs later.
        Err(error) => {
            tracing::warn!(%error, worker = worker.0, "a claim that no client received is not released")
        }
    }
}
