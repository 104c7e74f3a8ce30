//! `POST /operations`: starts a change of all matching jobs.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use gristmill_operations::Priority;
use gristmill_operations::jobs::change::pause;
use gristmill_operations::jobs::selection::FilterRequest;
use gristmill_store::Change;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::kept::Operations;
use super::single::OperationView;
use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::OPERATION_BYTES_MAX;

/// A change of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChangeName {
    /// Like `POST /jobs/cancel`.
    Cancel,
    /// Like `POST /jobs/retry`.
    Retry,
    /// Like `POST /jobs/discard`.
    Discard,
    /// Like `POST /jobs/prioritise`.
    Prioritise,
    /// Like `POST /jobs/pause`.
    Pause,
    /// Like `POST /jobs/resume`.
    Resume,
}

/// A change of all matching jobs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OperationRequest {
    /// The change.
    pub change: ChangeName,
    /// The jobs.
    pub filter: FilterRequest,
    /// The reason of a pause, required for `pause`. For `resume`, the reason of the pauses to end; all of the jobs' own
    /// pauses by default.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200, example = "deploy")]
    pub reason: Option<String>,
    /// The end of a pause; by default, it ends when the jobs are resumed. Milliseconds since 1970.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 253_402_300_799_999_i64)]
    pub until: Option<i64>,
    /// The new priority, required for `prioritise`; higher is claimed first.
    #[serde(default)]
    pub priority: Option<Priority>,
}

impl OperationRequest {
    /// Refuses a request that is too large to keep.
    fn check_size(&self) -> Result<(), ApiError> {
        let bytes = serde_json::to_vec(self).map_or(usize::MAX, |text| text.len());
        if bytes > OPERATION_BYTES_MAX {
            Err(ApiError::TooLarge {
                what: "the request of an operation".to_owned(),
                limit: format!("{OPERATION_BYTES_MAX} bytes"),
            })
        } else {
            Ok(())
        }
    }

    fn change(&self) -> Result<Change, ApiError> {
        let needs = |name: &str| ApiError::invalid(format!("`{name}` is missing"), format!("add `{name}`"));
        let takes = [
            (
                "reason",
                self.reason.is_some(),
                [ChangeName::Pause, ChangeName::Resume].as_slice(),
            ),
            ("until", self.until.is_some(), &[ChangeName::Pause]),
            ("priority", self.priority.is_some(), &[ChangeName::Prioritise]),
        ];
        for (name, is_given, changes) in takes {
            if is_given && !changes.contains(&self.change) {
                let error = format!("this change does not take `{name}`");
                return Err(ApiError::invalid(error, format!("leave out `{name}`")));
            }
        }
        Ok(match self.change {
            ChangeName::Cancel => Change::Cancel,
            ChangeName::Retry => Change::Retry,
            ChangeName::Discard => Change::Discard,
            ChangeName::Prioritise => {
                let priority = self.priority.as_ref().ok_or_else(|| needs("priority"))?;
                Change::Prioritise(priority.check()?)
            }
            ChangeName::Pause => {
                let reason = self.reason.as_ref().ok_or_else(|| needs("reason"))?;
                pause(reason, self.until)?
            }
            ChangeName::Resume => Change::Resume {
                reason: self.reason.clone(),
            },
        })
    }
}

/// Change all matching jobs in the background
///
/// The server changes the jobs in portions of at most 10,000, each in its own transaction. Claims, reports and submits
/// continue meanwhile. Jobs that are submitted after the start stay as they are. Operations are in the memory of the
/// server: if it stops, the change ends between two portions. The changed jobs stay changed, and the same request
/// changes the others. An operation ends with its token.
#[utoipa::path(
    post,
    path = "/operations",
    tag = "jobs",
    operation_id = "start_operation",
    request_body = OperationRequest,
    responses(
        (status = 202, description = "The operation has begun", body = OperationView),
        (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
    )
)]
pub async fn start_operation(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<(StatusCode, Json<OperationView>), ApiError> {
    let mut request: OperationRequest = body.read().await?;
    request.check_size()?;
    let change = request.change()?;
    let filter = request
        .filter
        .clone()
        .check(&**app.store(), &caller.access)
        .await?;
    request.filter.queue.clone_from(&filter.queue);
    let room = app.state::<Operations>().room()?;
    let portions = app.engine.portions(filter, change).await?;
    let matched = portions.matching().await?;
    let operation = app
        .state::<Operations>()
        .begin(&app, &caller, request, (portions, matched), room);
    Ok((StatusCode::ACCEPTED, Json(OperationView::of(&operation))))
}
