//! `GET` and `PUT /controls`, `POST /controls/lift`: pauses, limits, shares and agings.

use axum::Json;
use axum::extract::State;
use gristmill_model::{Control, Effect, Scope, Timestamp, bounded};
use gristmill_store::ControlFilter;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::error::{ApiError, Refusal};
use crate::limits::{CONTROLS_READ_MAX, NAMES_READ_MAX};

/// The scope of a control: jobs that match all named conditions; all jobs without conditions.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ControlScope {
    /// On this queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    queue: Option<String>,
    /// Of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    kind: Option<String>,
    /// Of this group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    group: Option<String>,
    /// Each group has its own limit; jobs without a group have none.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    each_group: bool,
}

/// The effect of a control.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ControlEffect {
    /// Workers claim none of the jobs until their last pause ends.
    Pause {
        /// The reason. Pauses with different reasons stack, and each is lifted by its reason.
        #[schema(min_length = 1, max_length = 200, example = "deploy")]
        reason: String,
        /// The end of the pause; by default, it ends when it is lifted. Milliseconds since 1970.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<i64>,
    },
    /// A limit of running jobs.
    Concurrency {
        /// The maximum number. With 0, workers claim none.
        jobs_max: u32,
    },
    /// A limit of attempts in a period: a token bucket, one token for each attempt.
    Rate {
        /// The tokens added in each period.
        #[schema(minimum = 1)]
        jobs: u32,
        /// The period. Milliseconds.
        #[schema(minimum = 1, maximum = 31_622_400_000_i64)]
        period_ms: u64,
        /// The size of the bucket: the number of attempts that can begin at once.
        #[schema(minimum = 1)]
        burst: u32,
    },
    /// The share of one group or queue in claims, among groups or queues with waiting jobs.
    Share {
        /// The weight in proportion to others; 1 by default.
        #[schema(minimum = 1, maximum = 10_000)]
        weight: u32,
        /// While fewer of its jobs run, it comes before groups or queues that have reached their own minimum.
        jobs_min: u32,
    },
    /// Jobs that have waited long come before jobs of a higher priority; for one queue or all.
    Aging {
        /// The wait before a job begins to age. Milliseconds.
        #[schema(minimum = 0, maximum = 31_622_400_000_i64)]
        grace_ms: u64,
        /// The span that raises the priority by one. Milliseconds.
        #[schema(minimum = 1, maximum = 31_622_400_000_i64)]
        step_ms: u64,
    },
}

/// A pause, a limit, a share or an aging of some jobs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ControlView {
    /// Which jobs.
    scope: ControlScope,
    /// The effect.
    effect: ControlEffect,
}

/// Controls.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Controls {
    /// By age, without ended pauses.
    #[serde(deserialize_with = "bounded::list::<_, _, CONTROLS_READ_MAX>")]
    controls: Vec<ControlView>,
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
    scope: Option<ControlScope>,
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

impl From<ControlScope> for Scope {
    fn from(scope: ControlScope) -> Self {
        Scope {
            queue: scope.queue,
            kind: scope.kind,
            group: scope.group,
            each_group: scope.each_group,
        }
    }
}

impl From<Scope> for ControlScope {
    fn from(scope: Scope) -> Self {
        ControlScope {
            queue: scope.queue,
            kind: scope.kind,
            group: scope.group,
            each_group: scope.each_group,
        }
    }
}

impl From<ControlView> for Control {
    fn from(view: ControlView) -> Self {
        let effect = match view.effect {
            ControlEffect::Pause { reason, until } => Effect::Pause {
                reason,
                until: until.map(Timestamp),
            },
            ControlEffect::Concurrency { jobs_max } => Effect::Concurrency { jobs_max },
            ControlEffect::Rate {
                jobs,
                period_ms,
                burst,
            } => Effect::Rate {
                jobs,
                period_ms,
                burst,
            },
            ControlEffect::Share { weight, jobs_min } => Effect::Share { weight, jobs_min },
            ControlEffect::Aging { grace_ms, step_ms } => Effect::Aging { grace_ms, step_ms },
        };
        Control {
            scope: view.scope.into(),
            effect,
        }
    }
}

impl From<Control> for ControlView {
    fn from(control: Control) -> Self {
        let effect = match control.effect {
            Effect::Pause { reason, until } => ControlEffect::Pause {
                reason,
                until: until.map(|until| until.0),
            },
            Effect::Concurrency { jobs_max } => ControlEffect::Concurrency { jobs_max },
            Effect::Rate {
                jobs,
                period_ms,
                burst,
            } => ControlEffect::Rate {
                jobs,
                period_ms,
                burst,
            },
            Effect::Share { weight, jobs_min } => ControlEffect::Share { weight, jobs_min },
            Effect::Aging { grace_ms, step_ms } => ControlEffect::Aging { grace_ms, step_ms },
        };
        ControlView {
            scope: control.scope.into(),
            effect,
        }
    }
}

async fn shown(app: &App) -> Result<Json<Controls>, ApiError> {
    let controls = app.store().controls().await?;
    Ok(Json(Controls {
        controls: controls.into_iter().map(ControlView::from).collect(),
    }))
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
    let controls: Vec<Control> = request.controls.into_iter().map(Control::from).collect();
    for control in &controls {
        control
            .check()
            .map_err(|error| ApiError::invalid(error.to_string(), "give a value in this range"))?;
    }
    app.store().put_controls(controls).await?;
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
        scope: request.scope.map(Scope::from),
        reason: request.reason,
    };
    let lifted = app.store().delete_controls(filter).await?;
    Ok(Json(Lifted { lifted }))
}
