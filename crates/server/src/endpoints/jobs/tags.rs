//! `GET /tags/{tag}`: the values of a tag.

use axum::Json;
use axum::extract::State;
use gristmill_model::limits::PAGE_ROWS_MAX;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::body::{PathText, Query};
use crate::error::{ApiError, Refusal};

/// The default number of values on a page.
const PAGE_ROWS: u32 = 100;

/// The listed values.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TagQuery {
    /// Only values after this one: `next` of the previous page.
    #[serde(default)]
    after: Option<String>,
    /// The maximum number of values on the page; 100 by default.
    #[serde(default)]
    #[param(minimum = 1, maximum = 10_000)]
    limit: Option<u32>,
}

/// One value of a tag.
#[derive(Debug, Serialize, ToSchema)]
pub struct TagValueView {
    /// The value.
    value: String,
    /// The number of jobs with this value.
    jobs: u64,
}

/// A page of values.
#[derive(Debug, Serialize, ToSchema)]
pub struct TagValues {
    /// In their order.
    values: Vec<TagValueView>,
    /// The `after` of the next page, if there may be more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// List the values of a tag
///
/// Counts all stored jobs on all queues.
#[utoipa::path(
    get,
    path = "/tags/{tag}",
    tag = "watching",
    operation_id = "tag_values",
    params(("tag" = String, Path, description = "Its name", example = "customer"), TagQuery),
    responses(
        (status = 200, description = "A page of values", body = TagValues),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn tag_values(
    State(app): State<App>,
    PathText(tag): PathText,
    Query(query): Query<TagQuery>,
) -> Result<Json<TagValues>, ApiError> {
    let limit = query.limit.unwrap_or(PAGE_ROWS);
    if limit == 0 || limit > PAGE_ROWS_MAX {
        return Err(ApiError::invalid(
            format!("`limit` is {limit}"),
            format!("give 1 to {PAGE_ROWS_MAX}"),
        ));
    }
    let values = app
        .store()
        .tag_values(&tag, query.after.as_deref(), limit)
        .await?;
    let next = values.last().filter(|_| values.len() == limit as usize);
    Ok(Json(TagValues {
        next: next.map(|last| last.value.clone()),
        values: values
            .into_iter()
            .map(|value| TagValueView {
                value: value.value,
                jobs: value.jobs,
            })
            .collect(),
    }))
}
