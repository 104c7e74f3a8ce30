//! `POST /jobs/cancel`, `retry`, `discard`, `prioritise`, `pause` and `resume`: changes of jobs by id, or of all that match.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_operations::jobs::change::{PauseJobsRequest, PrioritiseRequest, ResumeJobsRequest};
use gristmill_operations::jobs::selection::{ChangedView, SelectionRequest};
use gristmill_operations::{Refused, jobs};
use gristmill_store::Change;
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// Changes the jobs that a request selects. `read` gets the selection and the change from the request.
async fn change<R: DeserializeOwned + Send + 'static>(
    app: &App,
    caller: &Caller,
    mut body: JsonBody,
    read: impl FnOnce(R) -> Result<(SelectionRequest, Change), Refused>,
) -> Result<Json<ChangedView>, ApiError> {
    let selected = read(body.read().await?)?;
    let changed = jobs::change::change(&app.engine, &caller.access, selected).await?;
    // A change may make jobs claimable: retried and resumed ones, and dependents of cancelled ones.
    app.wake.ring();
    Ok(Json(changed))
}

/// The handlers of changes: path, operation, request, and the function that gets the change from the request.
macro_rules! handlers {
    ($($(#[$about:meta])* $name:ident($path:tt, $operation:tt, $request:ident) = $read:expr;)*) => {$(
        $(#[$about])*
        #[utoipa::path(
            post,
            path = $path,
            tag = "jobs",
            operation_id = $operation,
            request_body = $request,
            responses(
                (status = 200, description = "The number of changed jobs", body = ChangedView),
                (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
            )
        )]
        pub async fn $name(
            State(app): State<App>,
            Extension(caller): Extension<Caller>,
            Query(NoQuery {}): Query<NoQuery>,
            body: JsonBody,
        ) -> Result<Json<ChangedView>, ApiError> {
            change(&app, &caller, body, $read).await
        }
    )*};
}

handlers! {
    /// Cancel jobs that have not ended
    ///
    /// Running jobs end as cancelled at once. Their workers learn this with their next heartbeat or exchange.
    cancel("/jobs/cancel", "cancel", SelectionRequest) = |selected| Ok((selected, Change::Cancel));

    /// Run dead, cancelled or expired jobs again
    ///
    /// The jobs get all their attempts again.
    retry("/jobs/retry", "retry", SelectionRequest) = |selected| Ok((selected, Change::Retry));

    /// Discard dead jobs
    ///
    /// The jobs end as cancelled, keep their failures, and no longer count as dead.
    discard("/jobs/discard", "discard", SelectionRequest) = |selected| Ok((selected, Change::Discard));

    /// Change the priority of jobs that have not ended
    ///
    /// The priority takes effect at the next claim. A running job keeps it for its next attempt, and a blocked job for the
    /// time when it can be claimed.
    prioritise("/jobs/prioritise", "prioritise", PrioritiseRequest) = PrioritiseRequest::parts;

    /// Pause jobs that have not ended
    ///
    /// Workers do not claim the jobs until their last pause ends. A running job continues, and is paused when it becomes
    /// claimable again. To pause jobs that are submitted later, use controls.
    pause_jobs("/jobs/pause", "pause_jobs", PauseJobsRequest) = PauseJobsRequest::parts;

    /// Resume paused jobs
    ///
    /// The jobs keep their old place in line. Other pauses still hold them.
    resume_jobs("/jobs/resume", "resume_jobs", ResumeJobsRequest) = ResumeJobsRequest::parts;
}
