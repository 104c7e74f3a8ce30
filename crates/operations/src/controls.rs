//! Pauses, limits, shares and agings.

use gristmill_engine::Engine;
use gristmill_model::{Control, Effect, Scope, bounded};
use gristmill_store::ControlFilter;
use serde::{Deserialize, Serialize};

use crate::limits::{CONTROLS_READ_MAX, NAMES_READ_MAX};
use crate::refused::Refused;

/// Controls.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Controls {
    /// By age, without ended pauses.
    #[serde(deserialize_with = "bounded::list::<_, _, CONTROLS_READ_MAX>")]
    controls: Vec<Control>,
}

/// The controls to lift: those that match all conditions; at least one is required.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LiftRequest {
    /// Only those with one of these effects: pause, concurrency, rate, share, aging.
    #[serde(default, deserialize_with = "bounded::list::<_, _, NAMES_READ_MAX>")]
    #[cfg_attr(feature = "schema", schema(example = json!(["pause"])))]
    effects: Vec<String>,
    /// Only those of exactly this scope.
    #[serde(default)]
    scope: Option<Scope>,
    /// Only pauses with this reason.
    #[serde(default)]
    reason: Option<String>,
}

/// The lifted controls.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Lifted {
    /// The number of controls.
    lifted: u64,
}

/// Lists all controls.
pub async fn controls(engine: &Engine) -> Result<Controls, Refused> {
    let controls = engine.store().controls().await?;
    Ok(Controls { controls })
}

/// Sets controls, all or none.
pub async fn put_controls(engine: &Engine, request: Controls) -> Result<Controls, Refused> {
    for control in &request.controls {
        control
            .check()
            .map_err(|error| Refused::invalid(error.to_string(), "give a value in this range"))?;
    }
    engine.store().put_controls(request.controls).await?;
    controls(engine).await
}

/// Lifts controls.
pub async fn lift_controls(engine: &Engine, request: LiftRequest) -> Result<Lifted, Refused> {
    if request.effects.is_empty() && request.scope.is_none() && request.reason.is_none() {
        return Err(Refused::invalid(
            "a request without conditions would lift all controls",
            "name at least one: effects, scope or reason",
        ));
    }
    let mut effects = Vec::new();
    for given in &request.effects {
        let known = Effect::NAMES.iter().find(|name| *name == given).ok_or_else(|| {
            let cut: String = given.chars().take(40).collect();
            Refused::invalid(
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
    let lifted = engine.store().delete_controls(filter).await?;
    Ok(Lifted { lifted })
}
