//! `POST /jobs`: submits one job or many.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use gristmill_model::{After, Prerequisite};
use gristmill_operations::SubmitRequest;
use gristmill_operations::access::has_batch;
use gristmill_store::StoreError;

use super::awaited::{Awaited, SubmitQuery};
use super::submitted::{store, traceparent};
use crate::app::App;
use crate::body::{JsonBody, Query, json};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// Refuses prerequisites that the caller has no access to, in the same way as the store refuses missing ones.
async fn check_prerequisites(app: &App, caller: &Caller, after: &[After]) -> Result<(), ApiError> {
    for after in after {
        if let Prerequisite::Batch(batch) = after.prerequisite
            && !has_batch(&**app.store(), &caller.access, batch).await?
        {
            return Err(StoreError::PrerequisiteUnknown(batch).into());
        }
    }
    Ok(())
}

/// Submit one job or many
///
/// The store accepts all jobs or none. Status 201 means that all jobs are on disk. With `wait`, the answer also has the
/// outcomes of the jobs that end in time.
#[utoipa::path(
    post,
    path = "/jobs",
    tag = "jobs",
    operation_id = "submit",
    params(
        SubmitQuery,
        ("traceparent" = Option<String>, Header, description = "The trace that the jobs belong to (W3C Trace Context)"),
    ),
    request_body = SubmitRequest,
    responses(
        (status = 201, description = "The jobs are on disk", body = Awaited),
        (status = "4XX", description = "Refused; nothing is stored", body = Refusal),
    )
)]
pub async fn submit(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<SubmitQuery>,
    headers: HeaderMap,
    mut body: JsonBody,
) -> Result<(StatusCode, Json<Awaited>), ApiError> {
    let (by, now) = (caller.clone(), app.clock().now());
    let read = body.read_with(move |bytes| {
        let request: SubmitRequest<'_> = json(bytes)?;
        by.access.check_queue(request.queue())?;
        if let Some(unique) = request.unique()? {
            by.access.check_key_scope(unique.scope)?;
        }
        Ok(request.cut(now)?)
    });
    let (mut cutter, after) = read.await?;
    let wait = query.wait(&app, cutter.jobs())?;
    check_prerequisites(&app, &caller, &after).await?;
    cutter.wait(after);
    cutter.trace(traceparent(&headers));
    let submitted = store(cutter, &app).await?;
    // The jobs are on disk. A wait for their outcomes keeps no room for bodies.
    drop(body);
    let answer = match wait {
        Some(wait) => Awaited::new(&app, &caller, submitted, wait).await?,
        None => Awaited::without_results(submitted),
    };
    Ok((StatusCode::CREATED, Json(answer)))
}
