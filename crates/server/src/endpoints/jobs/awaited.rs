//! `POST /jobs?wait=30s`: the outcomes of jobs that the same request submitted.

use std::collections::BTreeMap;

use gristmill_model::positions::by_batch;
use gristmill_model::{BatchId, Positions};
use gristmill_operations::limits::{RESULT_BYTES_MAX, WAIT_MS_MAX};
use gristmill_operations::results::{have_ended, lines, wait_until};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use utoipa::{IntoParams, ToSchema};

use super::results::{room_to_wait, wait_at_most};
use super::submitted::Submitted;
use crate::app::App;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::limits::AWAITED_JOBS_MAX;

/// Selects whether a submit waits for its jobs to end.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SubmitQuery {
    /// The maximum wait for the jobs to end, up to 30 s; the answer then has `done` and `results`. At most 1,000 jobs.
    #[serde(default)]
    #[param(example = "30s")]
    wait: Option<String>,
}

/// The submitted jobs, which are on disk, and their outcomes if the request waits for them.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Awaited {
    #[serde(flatten)]
    submitted: Submitted,
    /// With `wait`: whether all jobs have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<bool>,
    /// With `wait`: the outcomes of the jobs that have ended, as the operation `results` answers them: `job`, `state`,
    /// `attempt`, and `value` or `error`. The answer has up to 32 MiB of them; `GET /results` has the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    results: Option<Vec<Box<RawValue>>>,
}

/// A wait that has a permit.
#[derive(Debug)]
pub struct Wait {
    wait_ms: u64,
    _room: OwnedSemaphorePermit,
}

impl SubmitQuery {
    /// The wait that the request asks for, for this many jobs. A wrong one is refused before any job is stored.
    pub fn wait(&self, app: &App, jobs: usize) -> Result<Option<Wait>, ApiError> {
        let Some(text) = &self.wait else { return Ok(None) };
        let wait_ms = parse_wait(text).ok_or_else(|| {
            ApiError::invalid(
                format!("`wait` is `{}`", text.chars().take(40).collect::<String>()),
                format!(
                    "write a number of s or ms, up to {} s, as in 30s or 500ms",
                    WAIT_MS_MAX / 1_000
                ),
            )
        })?;
        if jobs > AWAITED_JOBS_MAX {
            return Err(ApiError::invalid(
                format!("the request waits for {jobs} jobs"),
                format!(
                    "wait for at most {AWAITED_JOBS_MAX} jobs, or submit without `wait` and read `GET /results`"
                ),
            ));
        }
        let _room = room_to_wait(app)?;
        Ok(Some(Wait { wait_ms, _room }))
    }
}

/// Parses `30s` or `500ms` into milliseconds, up to the limit.
fn parse_wait(text: &str) -> Option<u64> {
    let (number, milliseconds_a_unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s')?, 1_000),
    };
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let wait_ms = number.parse::<u64>().ok()?.checked_mul(milliseconds_a_unit)?;
    (wait_ms <= WAIT_MS_MAX).then_some(wait_ms)
}

impl Awaited {
    /// An answer with the submitted jobs only.
    pub fn without_results(submitted: Submitted) -> Awaited {
        Awaited {
            submitted,
            done: None,
            results: None,
        }
    }

    /// Waits for the jobs, and reads the outcomes of those that have ended.
    pub async fn new(
        app: &App,
        caller: &Caller,
        submitted: Submitted,
        wait: Wait,
    ) -> Result<Awaited, ApiError> {
        let jobs = jobs_of(&submitted);
        let ended = async {
            for (batch, positions) in &jobs {
                wait_until(&**app.store(), *batch, || {
                    have_ended(&**app.store(), *batch, positions)
                })
                .await?;
            }
            Ok(())
        };
        wait_at_most(app, caller, wait.wait_ms, ended).await?;
        let (mut results, mut bytes, mut done) = (Vec::new(), 0, true);
        for (batch, positions) in &jobs {
            let outcomes = app.store().outcomes(*batch).await?;
            let lines = outcomes.map(|outcomes| lines(&outcomes)).unwrap_or_default();
            let mut ended = Positions::new();
            for (position, line) in lines {
                if !positions.contains(position) {
                    continue;
                }
                ended.insert(position);
                bytes += line.len();
                // A line is JSON, because it consists of values that the store has checked.
                if let Ok(line) = RawValue::from_string(line.trim_end().to_owned())
                    && bytes <= RESULT_BYTES_MAX
                {
                    results.push(line);
                }
            }
            done &= ended.contains_all(positions);
        }
        Ok(Awaited {
            submitted,
            done: Some(done),
            results: Some(results),
        })
    }
}

/// The jobs of a request. For jobs with keys, the jobs that stand for them.
fn jobs_of(submitted: &Submitted) -> BTreeMap<BatchId, Positions> {
    if let Some(ids) = &submitted.ids {
        return by_batch(ids.iter().filter_map(|id| id.parse().ok()));
    }
    let mut jobs = BTreeMap::<BatchId, Positions>::new();
    for batch in &submitted.batches {
        let positions = batch.first_position..batch.first_position + batch.count;
        jobs.entry(BatchId(batch.batch))
            .or_default()
            .insert_range(positions);
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_have_a_unit_and_a_limit() {
        assert_eq!(
            ["30s", "500ms", "0s", "30000ms"].map(parse_wait),
            [Some(30_000), Some(500), Some(0), Some(30_000)]
        );
        for wrong in ["", "30", "s", "31s", "-1s", "1m", "99999999999999999999s", "1.5s"] {
            assert_eq!(parse_wait(wrong), None, "{wrong}");
        }
    }
}
