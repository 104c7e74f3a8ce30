//! Changes of jobs by id, or of all that match.

use gristmill_engine::Engine;
use gristmill_model::batch::check_name;
use gristmill_model::{Timestamp, bounded};
use gristmill_store::Change;
use serde::Deserialize;

use super::selection::{ChangedView, FilterRequest, SelectionRequest};
use crate::access::Access;
use crate::limits::{SELECTED_JOBS_READ_MAX, TIMESTAMP_MS_MAX};
use crate::priority::Priority;
use crate::refused::Refused;

/// Either jobs by id, or all matching jobs, and their new priority.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PrioritiseRequest {
    /// These jobs.
    #[serde(
        default,
        deserialize_with = "bounded::optional_list::<_, _, SELECTED_JOBS_READ_MAX>"
    )]
    #[cfg_attr(feature = "schema", schema(max_items = 10_000, example = json!(["42:7", "42:8"])))]
    jobs: Option<Vec<String>>,
    /// All matching jobs.
    #[serde(default)]
    filter: Option<FilterRequest>,
    /// Their new priority; higher is claimed first.
    priority: Priority,
}

/// Either jobs by id, or all matching jobs, and the reason of the pause.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PauseJobsRequest {
    /// These jobs.
    #[serde(
        default,
        deserialize_with = "bounded::optional_list::<_, _, SELECTED_JOBS_READ_MAX>"
    )]
    #[cfg_attr(feature = "schema", schema(max_items = 10_000, example = json!(["42:7", "42:8"])))]
    jobs: Option<Vec<String>>,
    /// All matching jobs.
    #[serde(default)]
    filter: Option<FilterRequest>,
    /// The reason. Pauses with different reasons stack, and each is resumed by its reason.
    #[cfg_attr(
        feature = "schema",
        schema(min_length = 1, max_length = 200, example = "deploy")
    )]
    reason: String,
    /// The end of the pause; by default, it ends when the jobs are resumed. Milliseconds since 1970.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 253_402_300_799_999_i64))]
    until: Option<i64>,
}

/// Either jobs by id, or all matching jobs, and the reason of the pauses to end.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResumeJobsRequest {
    /// These jobs.
    #[serde(
        default,
        deserialize_with = "bounded::optional_list::<_, _, SELECTED_JOBS_READ_MAX>"
    )]
    #[cfg_attr(feature = "schema", schema(max_items = 10_000, example = json!(["42:7", "42:8"])))]
    jobs: Option<Vec<String>>,
    /// All matching jobs.
    #[serde(default)]
    filter: Option<FilterRequest>,
    /// The reason of the pauses to end; all of the jobs' own pauses by default.
    #[serde(default)]
    reason: Option<String>,
}

/// The pause that a request asks for.
pub fn pause(reason: &str, until: Option<i64>) -> Result<Change, Refused> {
    check_name("reason", reason)
        .map_err(|error| Refused::invalid(error.to_string(), "choose another reason"))?;
    if let Some(until) = until.filter(|until| !(0..=TIMESTAMP_MS_MAX).contains(until)) {
        return Err(Refused::invalid(
            format!("`until` is {until}"),
            format!("give 0 to {TIMESTAMP_MS_MAX}"),
        ));
    }
    Ok(Change::Pause {
        reason: reason.to_owned(),
        until: until.map(Timestamp),
    })
}

impl PrioritiseRequest {
    /// The jobs and their change.
    pub fn parts(self) -> Result<(SelectionRequest, Change), Refused> {
        let change = Change::Prioritise(self.priority.check()?);
        Ok((SelectionRequest::new(self.jobs, self.filter), change))
    }
}

impl PauseJobsRequest {
    /// The jobs and their change.
    pub fn parts(self) -> Result<(SelectionRequest, Change), Refused> {
        let change = pause(&self.reason, self.until)?;
        Ok((SelectionRequest::new(self.jobs, self.filter), change))
    }
}

impl ResumeJobsRequest {
    /// The jobs and their change.
    pub fn parts(self) -> Result<(SelectionRequest, Change), Refused> {
        let change = Change::Resume { reason: self.reason };
        Ok((SelectionRequest::new(self.jobs, self.filter), change))
    }
}

/// Changes the jobs of a selection, those of a filter in portions.
pub async fn change(
    engine: &Engine,
    access: &Access,
    (selection, change): (SelectionRequest, Change),
) -> Result<ChangedView, Refused> {
    let selection = selection.check(&**engine.store(), access).await?;
    Ok(engine.change(selection, change).await?.into())
}
