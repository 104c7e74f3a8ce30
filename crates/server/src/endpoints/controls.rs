//! `GET` and `PUT /controls`, `POST /controls/lift`: pauses, limits, shares and agings.

use axum::Json;
use axum::extract::State;
use gristmill_model::{Control, Effect, Scope, Timestamp};
use gristmill_store::ControlFilter;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::error::{ApiError, Refusal};

/// Which jobs a control is for: those of all that it names; all jobs, where it names nothing.
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
    /// Each group has a limit of its own; jobs without a group have none.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    each_group: bool,
}

/// What a control does.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ControlEffect {
    /// Nothing is claimed. Jobs run again once the last pause that holds them is gone.
    Pause {
        /// Tells pauses of the same jobs apart; each is lifted by its own.
        #[schema(min_length = 1, max_length = 200, example = "deploy")]
        reason: String,
        /// When it is over by itself; when it is lifted, where nothing is said. Milliseconds since 1970.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<i64>,
    },
    /// No more jobs than this run at the same time.
    Concurrency {
        /// How many. With 0, none are claimed.
        jobs_max: u32,
    },
    /// No more attempts than this begin in a time: a bucket of tokens, one an attempt.
    Rate {
        /// Tokens that come in a period.
        #[schema(minimum = 1)]
        jobs: u32,
        /// The period. Milliseconds.
        #[schema(minimum = 1, maximum = 31_622_400_000_i64)]
        period_ms: u64,
        /// Tokens that the bucket holds: how many attempts may begin at once.
        #[schema(minimum = 1)]
        burst: u32,
    },
    /// How claims are shared out between groups or queues of which each has work; of one group or one queue.
    Share {
        /// How much of it, in proportion to the others'; 1 where nothing is said.
        #[schema(minimum = 1, maximum = 10_000)]
        weight: u32,
        /// While fewer of its jobs run, it comes before those that run at least as many as their own minimum.
        jobs_min: u32,
    },
    /// Jobs that wait for long come before those of a higher priority; of one queue or all.
    Aging {
        /// How long a job waits before it ages. Milliseconds.
        #[schema(minimum = 0, maximum = 31_622_400_000_i64)]
        grace_ms: u64,
        /// It counts as one priority higher for each so long. Milliseconds.
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
    /// What.
    effect: ControlEffect,
}

/// Controls.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Controls {
    /// By age, without pauses that are over.
    controls: Vec<ControlView>,
}

/// Which controls are lifted: those that meet all conditions, of which there is at least one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LiftRequest {
    /// Only those with one of these effects: pause, concurrency, rate, share, aging.
    #[serde(default)]
    #[schema(example = json!(["pause"]))]
    effects: Vec<String>,
    /// Only those of exactly this scope.
    #[serde(default)]
    scope: Option<ControlScope>,
    /// Only pauses of this reason.
    #[serde(default)]
    reason: Option<String>,
}

/// What was lifted.
#[derive(Debug, Serialize, ToSchema)]
pub struct Lifted {
    /// How many controls.
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
/// All or none. One of the same scope and effect (and reason, for a pause) takes the place of the one before; others
/// stay. What runs already is left alone.
#[utoipa::path(
    put,
    path = "/controls",
    tag = "controls",
    operation_id = "put_controls",
    request_body = Controls,
    responses(
        (status = 200, description = "All that hold now", body = Controls),
        (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
    )
)]
pub async fn put_controls(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody,
) -> Result<Json<Controls>, ApiError> {
    let request: Controls = body.read()?;
    let controls: Vec<Control> = request.controls.into_iter().map(Control::from).collect();
    for control in &controls {
        control
            .check()
            .map_err(|error| ApiError::invalid(error.to_string(), "give what it says"))?;
    }
    app.store().put_controls(controls).await?;
    shown(&app).await
}

/// Lift pauses, limits, shares and agings
///
/// A pause is resumed so: work goes on once no other holds it.
#[utoipa::path(
    post,
    path = "/controls/lift",
    tag = "controls",
    operation_id = "lift_controls",
    request_body = LiftRequest,
    responses(
        (status = 200, description = "How many there were", body = Lifted),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn lift_controls(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody,
) -> Result<Json<Lifted>, ApiError> {
    let request: LiftRequest = body.read()?;
    if request.effects.is_empty() && request.scope.is_none() && request.reason.is_none() {
        return Err(ApiError::invalid(
            "it names no condition, which would lift all controls",
            "name at least one: effects, scope or reason",
        ));
    }
    let mut effects = Vec::new();
    for given in &request.effects {
        let known = Effect::NAMES.iter().find(|name| *name == given).ok_or_else(|| {
            let cut: String = given.chars().take(40).collect();
            ApiError::invalid(
                format!("`{cut}` is no effect"),
                format!("name some of: {}", Effect::NAMES.join(", ")),
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
