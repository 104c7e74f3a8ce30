//! `GET /results`: the outcomes of ended jobs, one a line.

use std::future::Future;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{StreamExt, stream};
use gristmill_operations::results::ResultsQuery;
use gristmill_store::StoreError;
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::body::Query;
use crate::body::lines::{Lines, NDJSON_TYPE};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::LONG_POLLS_MAX;

/// Read results
///
/// One JSON object in each line, by batch and position: `job`, `state`, `attempt`, and the `value` of a completed job
/// or the `error` of a failed one. Jobs that have not ended have no line.
#[utoipa::path(
    get,
    path = "/results",
    tag = "jobs",
    operation_id = "results",
    params(ResultsQuery),
    responses(
        (status = 200, description = "One outcome in each line: an object with `job`, `state`, `attempt`, and `value` or \
            `error`, as in the `results` of `submit`", content_type = "application/x-ndjson", body = Lines),
        (status = "4XX", description = "Refused, or not found", body = Refusal),
    )
)]
pub async fn results(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<ResultsQuery>,
) -> Result<Response, ApiError> {
    let wait_ms = query.wait_ms.unwrap_or_default();
    let batches = query.batches(&**app.store(), &caller.access).await?;
    if wait_ms > 0 {
        let _room = room_to_wait(&app)?;
        wait_at_most(&app, &caller, wait_ms, batches.all_ended(&**app.store())).await?;
    }
    let lines = stream::unfold((app, caller, batches), |(app, caller, mut batches)| async move {
        let next = match app.trust.check_again(&caller) {
            Ok(()) => batches
                .next(&**app.store(), &caller.access)
                .await
                .transpose()?
                .map_err(ApiError::from),
            Err(ended) => Err(ended),
        };
        let text = next.map(|lines| Bytes::from(lines.into_iter().map(|(_, line)| line).collect::<String>()));
        // After the answer has begun, an error can only cut it short. Every client notices this.
        let text = text.map_err(|error| std::io::Error::other(error.to_string()));
        Some((text, (app, caller, batches)))
    });
    // A compression of an empty answer asks for more after its end.
    let lines = lines.fuse();
    Ok(([(header::CONTENT_TYPE, NDJSON_TYPE)], Body::from_stream(lines)).into_response())
}

/// The permit of one request among all waiting ones.
pub(super) fn room_to_wait(app: &App) -> Result<OwnedSemaphorePermit, ApiError> {
    app.long_polls
        .clone()
        .try_acquire_owned()
        .map_err(|_| ApiError::TooMany {
            what: "too many requests wait for results or for work",
            limit: format!("{LONG_POLLS_MAX} at once"),
            retry_after_s: 5,
        })
}

/// Waits for `finished`, until the time is up or the server stops. Fails when the caller's token ends.
pub(super) async fn wait_at_most(
    app: &App,
    caller: &Caller,
    wait_ms: u64,
    finished: impl Future<Output = Result<(), StoreError>>,
) -> Result<(), ApiError> {
    tokio::select! {
        finished = finished => Ok(finished?),
        () = tokio::time::sleep(Duration::from_millis(wait_ms)) => Ok(()),
        () = app.stopped() => Ok(()),
        ended = app.token_ended(caller) => Err(ended),
    }
}
