//! `GET /jobs`: matching jobs, in pages.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_operations::jobs::list::{self, JobsPage, JobsQuery};

use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::SEARCHES_MAX;

/// List jobs
#[utoipa::path(
    get,
    path = "/jobs",
    tag = "jobs",
    operation_id = "jobs",
    params(JobsQuery),
    responses(
        (status = 200, description = "A page of jobs", body = JobsPage),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn jobs(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<JobsQuery>,
) -> Result<Json<JobsPage>, ApiError> {
    let _room = if query.is_search() {
        if app.hides_payloads_from(&caller) {
            return Err(ApiError::forbidden(
                "a token for `monitor` does not allow a search for `text`, because payloads are hidden from it",
                "use a token for: admin, operator, submit; or start the server with --monitors-see-payloads",
            ));
        }
        let room = app.searches.try_acquire();
        Some(room.map_err(|_| ApiError::TooMany {
            what: "too many searches",
            limit: format!("{SEARCHES_MAX} at once"),
            retry_after_s: 1,
        })?)
    } else {
        None
    };
    Ok(Json(list::jobs(&app.engine, &caller.access, query).await?))
}
