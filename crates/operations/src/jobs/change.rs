//! Changes of jobs by id, or of all that match.

use gristmill_engine::Engine;
use gristmill_model::Timestamp;
use gristmill_model::batch::check_name;
use gristmill_store::Change;

use super::selection::{ChangedView, FilterRequest, SelectionRequest, selecting};
use crate::access::Access;
use crate::limits::TIMESTAMP_MS_MAX;
use crate::options::Priority;
use crate::refused::Refused;

selecting! {
    /// Either jobs by id, or all matching jobs, and their new priority.
    PrioritiseRequest {
        /// Their new priority; higher is claimed first.
        priority: Priority,
    }
}

selecting! {
    /// Either jobs by id, or all matching jobs, and the reason of the pause.
    PauseJobsRequest {
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
}

selecting! {
    /// Either jobs by id, or all matching jobs, and the reason of the pauses to end.
    ResumeJobsRequest {
        /// The reason of the pauses to end; all of the jobs' own pauses by default.
        #[serde(default)]
        reason: Option<String>,
    }
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
    pub fn parts(mut self) -> Result<(SelectionRequest, Change), Refused> {
        let change = Change::Prioritise(self.priority.check()?);
        Ok((self.selection(), change))
    }
}

impl PauseJobsRequest {
    /// The jobs and their change.
    pub fn parts(mut self) -> Result<(SelectionRequest, Change), Refused> {
        let change = pause(&self.reason, self.until)?;
        Ok((self.selection(), change))
    }
}

impl ResumeJobsRequest {
    /// The jobs and their change.
    pub fn parts(mut self) -> Result<(SelectionRequest, Change), Refused> {
        Ok((self.selection(), Change::Resume { reason: self.reason }))
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
