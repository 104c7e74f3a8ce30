//! `GET` and `PUT /controls`, `POST /controls/lift`: pauses, limits, shares and agings.

use axum::Json;
use axum::extract::State;
use gristmill_model::{Control, Effect, Scope, bounded};
use gristmill_store::ControlFilter;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::error::{ApiError, Refusal};
use crate::limits::{CONTROLS_READ_MAX, NAMES_READ_MAX};

/// Controls.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Controls {
    /// By age, without ended pauses.
    #[serde(deserialize_with = "bounded::list::<_, _, CONTROLS_READ_MAX>")]
    controls: Vec<Control>,
}

/// The controls to lift: those that match all conditions; at least one is required.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LiftRequest {
    /// Only those with one of these effects: pause, concurrency, rate, share, aging.
    #[serde(default, deserialize_with = "bounded::list::<_, _, NAMES_READ_MAX>")]
    #[schema(example = json!(["pause"]))]
    effects: Vec<String>,
    /// Only those of exactly this scope.
    #[serde(default)]
    scope: Option<Scope>,
    /// Only pauses with this reason.
    #[serde(default)]
    reason: Option<String>,
}

/// The lifted controls.
#[derive(Debug, Serialize, ToSchema)]
pub struct Lifted {
    /// The number of controls.
    lifted: u64,
}

async fn shown(app: &App) -> Result<Json<Controls>, ApiError> {
    let controls = app.store().controls().await?;
    Ok(Json(Controls { controls }))
}

/// List pauses, limits, shares and agings
#[utoipa::path(
    get,
    path = "/controls",
    tag = "controls",
    operation_id = "controls",
    responses(
        (status = 200, description = "All of them", body = Controls),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn controls(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<Controls>, ApiError> {
    shown(&app).await
}

/// Set pauses, limits, shares and agings
///
/// Sets all or none. A control replaces one of the same scope and effect (and reason, for a pause); others stay.
/// Running jobs continue.
#[utoipa::path(
    put,
    path = "/controls",
    tag = "controls",
    operation_id = "put_controls",
    request_body = Controls,
    responses(
        (status = 200, description = "All active controls", body = Controls),
        (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
    )
)]
pub async fn put_controls(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<Controls>, ApiError> {
    let request: Controls = body.read().await?;
    for control in &request.controls {
        control
            .check()
            .map_err(|error| ApiError::invalid(error.to_string(), "give a value in this range"))?;
    }
    app.store().put_controls(request.controls).await?;
    shown(&app).await
}

/// Lift pauses, limits, shares and agings
///
/// Lifting a pause resumes its jobs, unless another pause holds them.
#[utoipa::path(
    post,
    path = "/controls/lift",
    tag = "controls",
    operation_id = "lift_controls",
    request_body = LiftRequest,
    responses(
        (status = 200, description = "The number of lifted controls", body = Lifted),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn lift_controls(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<Lifted>, ApiError> {
    let request: LiftRequest = body.read().await?;
    if request.effects.is_empty() && request.scope.is_none() && request.reason.is_none() {
        return Err(ApiError::invalid(
            "a request without conditions would lift all controls",
            "name at least one: effects, scope or reason",
        ));
    }
    let mut effects = Vec::new();
    for given in &request.effects {
        let known = Effect::NAMES.iter().find(|name| *name == given).ok_or_else(|| {
            let cut: String = given.chars().take(40).collect();
            ApiError::invalid(
                format!("`{cut}` is not an effect"),
                format!("give some of: {}", Effect::NAMES.join(", ")),
            )
        })?;
        effects.push(*known);
    }
    let filter = ControlFilter {
        effects,
        scope: request.scope,
        reason: request.reason,
    };
    let lifted = app.store().delete_controls(filter).await?;
    Ok(Json(Lifted { lifted }))
}
