//! `GET /tags/{tag}`: the values of a tag.

use axum::Json;
use axum::extract::State;
use gristmill_operations::jobs::tags::{self, TagQuery, TagValues};

use crate::app::App;
use crate::body::{PathText, Query};
use crate::error::{ApiError, Refusal};

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
    Ok(Json(tags::tag_values(&app.engine, &tag, query).await?))
}
