//! `GET /groups`: the groups of jobs, for completion of a user's input.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_model::limits::PAGE_ROWS_MAX;
use gristmill_operations::read::check_rows;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// The default number of groups in an answer.
const ROWS: u32 = 100;

/// The listed groups.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GroupsQuery {
    /// Only groups of jobs on this queue. Required for a token with several queues but not all.
    #[serde(default)]
    queue: Option<String>,
    /// Only groups with this prefix.
    #[serde(default)]
    prefix: Option<String>,
    /// The maximum number of groups; 100 by default.
    #[serde(default)]
    #[param(minimum = 1, maximum = 10_000)]
    limit: Option<u32>,
}

/// Groups.
#[derive(Debug, Serialize, ToSchema)]
pub struct Groups {
    /// In their order.
    groups: Vec<String>,
}

/// List groups
///
/// The groups that jobs have or had.
#[utoipa::path(
    get,
    path = "/groups",
    tag = "watching",
    operation_id = "groups",
    params(GroupsQuery),
    responses(
        (status = 200, description = "Groups", body = Groups),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn groups(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<GroupsQuery>,
) -> Result<Json<Groups>, ApiError> {
    let limit = check_rows(query.limit, ROWS, PAGE_ROWS_MAX)?;
    let queue = caller.access.filter_queue(query.queue)?;
    let prefix = query.prefix.unwrap_or_default();
    let groups = app.store().groups(queue.as_deref(), &prefix, limit).await?;
    Ok(Json(Groups { groups }))
}
