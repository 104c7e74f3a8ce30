//! `POST /workers/{worker}/step` and `POST /workers/{worker}/prerequisites`: what running jobs ask about themselves.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_engine::flow_steps::step_of;
use gristmill_model::limits::PAGE_ROWS_MAX;
use gristmill_model::{BatchId, JobId};
use gristmill_operations::Refused;
use gristmill_operations::access::{Access, QueueScope, has_batch};
use gristmill_protocol::worker::{JobQuestion, PrerequisitesAnswer, StepAnswer};
use gristmill_store::Store;

use super::worker_id;
use crate::app::App;
use crate::body::{JsonBody, NoQuery, PathText, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// Find the flow of a job
///
/// The flow that began the job as a step, with the name and the key of the step; nothing for other jobs.
#[utoipa::path(
    post,
    path = "/workers/{worker}/step",
    tag = "agents",
    operation_id = "step",
    params(("worker" = i64, Path, description = "The id from its registration")),
    request_body = JobQuestion,
    responses(
        (status = 200, description = "The place of the job in its flow", body = StepAnswer),
        (status = "4XX", description = "Refused, or not found", body = Refusal),
    )
)]
pub async fn step(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathText(worker): PathText,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<StepAnswer>, ApiError> {
    let job = asked(&app, &caller, &worker, body.read().await?).await?;
    let step = step_of(&**app.store(), job).await?;
    Ok(Json(StepAnswer { step }))
}

/// Read the outcomes of prerequisites
///
/// The outcomes of the jobs for which a job waited: at most 16 MiB. The token needs access to their queues, too.
#[utoipa::path(
    post,
    path = "/workers/{worker}/prerequisites",
    tag = "agents",
    operation_id = "prerequisites",
    params(("worker" = i64, Path, description = "The id from its registration")),
    request_body = JobQuestion,
    responses(
        (status = 200, description = "The outcomes of the prerequisites", body = PrerequisitesAnswer),
        (status = "4XX", description = "Refused, or not found", body = Refusal),
    )
)]
pub async fn prerequisites(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathText(worker): PathText,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<PrerequisitesAnswer>, ApiError> {
    let job = asked(&app, &caller, &worker, body.read().await?).await?;
    check_queues(&**app.store(), &caller.access, job).await?;
    let read = app.children.prerequisites(&**app.store(), job).await?;
    let outcomes = read.map_err(|unread| {
        ApiError::invalid(
            unread.to_string(),
            "read the outcomes by `GET /results`, as far as they are there",
        )
    })?;
    Ok(Json(PrerequisitesAnswer { outcomes }))
}

/// Refuses a job that waited for jobs on queues to which the caller has no access.
async fn check_queues(store: &dyn Store, access: &Access, job: JobId) -> Result<(), ApiError> {
    if access.queues == QueueScope::All {
        return Ok(());
    }
    let prerequisites = store.job(job).await?.map(|details| details.options.prerequisites);
    let batches = prerequisites.iter().flatten().map(|awaited| awaited.batch);
    let batches: Vec<BatchId> = batches.collect();
    for some in batches.chunks(PAGE_ROWS_MAX as usize) {
        for summary in store.batch_summaries(some).await? {
            if !access.queues.contains(&summary.queue) {
                return Err(Refused::forbidden(
                    format!(
                        "job {job} waited for jobs on a queue to which the token of `{}` gives no access",
                        access.subject
                    ),
                    "give the agent a token for the queues of the prerequisites, too",
                )
                .into());
            }
        }
    }
    Ok(())
}

/// The job of a question, on a queue of the caller.
async fn asked(app: &App, caller: &Caller, worker: &str, question: JobQuestion) -> Result<JobId, ApiError> {
    let worker = worker_id(worker)?;
    app.sessions.of_caller(&**app.store(), caller, worker).await?;
    let job = question.job;
    if has_batch(&**app.store(), &caller.access, job.batch).await? {
        return Ok(job);
    }
    Err(ApiError::NotFound {
        what: "job",
        id: job.to_string(),
    })
}
