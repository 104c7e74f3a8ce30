//! `GET /results`: the outcomes of ended jobs, one a line.

use std::fmt::Write;
use std::future::Future;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use gristmill_model::limits::PAGE_ROWS_MAX;
use gristmill_model::{BatchId, RunId};
use gristmill_operations::access::{has_batch, run_id};
use gristmill_store::{BatchOutcomes, StoreError};
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use utoipa::IntoParams;

use crate::app::App;
use crate::body::Query;
use crate::body::lines::{Lines, NDJSON_TYPE};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::{LONG_POLLS_MAX, RESULT_BATCHES_MAX, WAIT_MS_MAX};

/// The interval at which a waiting request looks whether its jobs have ended, if the store sends no notice.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The time before the first look. Each later interval is twice as long. The store may send no notice of a report that
/// it commits while the request begins to wait.
const LOOK_FIRST_AFTER: Duration = Duration::from_millis(25);

/// The selection of results.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ResultsQuery {
    /// The batches to read, separated by commas.
    #[serde(default)]
    #[param(example = "42,43")]
    batches: Option<String>,
    /// The run to read.
    #[serde(default)]
    run: Option<String>,
    /// The maximum wait for all jobs of the batches to end. Milliseconds. Not with `run`.
    #[serde(default)]
    #[param(minimum = 0, maximum = 30_000)]
    wait_ms: Option<u64>,
}

/// The batches that are still to be written.
enum Batches {
    Listed(std::vec::IntoIter<BatchId>),
    OfRun {
        run: RunId,
        caller: Caller,
        after: Option<BatchId>,
        page: std::vec::IntoIter<BatchId>,
        done: bool,
    },
}

/// Read results
///
/// One JSON object in each line, by batch and position: `job`, `state`, `attempt`, and the `value` of a completed job
/// or the `error` of a failed one. Jobs that have not ended have no line.
#[utoipa::path(
    get,
    path = "/results",
    tag = "jobs",
    operation_id = "results",
    params(ResultsQuery),
    responses(
        (status = 200, description = "One outcome in each line: an object with `job`, `state`, `attempt`, and `value` or \
            `error`, as in the `results` of `submit`", content_type = "application/x-ndjson", body = Lines),
        (status = "4XX", description = "Refused, or not found", body = Refusal),
    )
)]
pub async fn results(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<ResultsQuery>,
) -> Result<Response, ApiError> {
    let batches = match (query.batches, query.run) {
        (Some(batches), None) => {
            let listed = listed(&app, &caller, &batches).await?;
            wait(&app, &caller, &listed, query.wait_ms.unwrap_or_default()).await?;
            Batches::Listed(listed.into_iter())
        }
        (None, Some(run)) if query.wait_ms.is_none() => {
            let run = run_id(&**app.store(), &caller.access, &run).await?;
            let mut batches = Batches::OfRun {
                run,
                caller: caller.clone(),
                after: None,
                page: Vec::new().into_iter(),
                done: false,
            };
            // The first page is read before the answer begins, so that a refusal has its own status.
            batches.fill(&app).await?;
            batches
        }
        _ => {
            return Err(ApiError::invalid(
                "the request needs either `batches` or `run`",
                "give `batches` (ids, separated by commas; optionally `wait_ms`), or `run` (a name)",
            ));
        }
    };
    let lines = stream::unfold((app, caller, batches), |(app, caller, mut batches)| async move {
        let next = match app.trust.check_again(&caller) {
            Ok(()) => batches.next(&app).await.transpose()?,
            Err(ended) => Err(ended),
        };
        // After the answer has begun, an error can only cut it short. Every client notices this.
        let lines = next.map_err(|error| std::io::Error::other(error.to_string()));
        Some((lines, (app, caller, batches)))
    });
    Ok(([(header::CONTENT_TYPE, NDJSON_TYPE)], Body::from_stream(lines)).into_response())
}

async fn listed(app: &App, caller: &Caller, text: &str) -> Result<Vec<BatchId>, ApiError> {
    let wrong = |part: &str| {
        let part: String = part.chars().take(40).collect();
        ApiError::invalid(
            format!("`{part}` is not a batch's id"),
            "write ids, separated by commas, as in 42,43",
        )
    };
    let ids: Vec<&str> = text.split(',').map(str::trim).collect();
    if ids.len() > RESULT_BATCHES_MAX {
        let limit = format!("{RESULT_BATCHES_MAX} batches");
        return Err(ApiError::TooLarge {
            what: "the number of batches in one request".to_owned(),
            limit,
        });
    }
    let mut batches = Vec::with_capacity(ids.len());
    for id in ids {
        let batch = BatchId(id.parse().map_err(|_| wrong(id))?);
        let there = has_batch(&**app.store(), &caller.access, batch).await?;
        if !there || app.store().outcomes(batch).await?.is_none() {
            return Err(ApiError::NotFound {
                what: "batch",
                id: batch.to_string(),
            });
        }
        batches.push(batch);
    }
    Ok(batches)
}

/// Waits until all jobs of the batches have ended or the time is up.
async fn wait(app: &App, caller: &Caller, batches: &[BatchId], wait_ms: u64) -> Result<(), ApiError> {
    if wait_ms > WAIT_MS_MAX {
        return Err(ApiError::invalid(
            format!("`wait_ms` is {wait_ms}"),
            format!("give 0 to {WAIT_MS_MAX}"),
        ));
    }
    if wait_ms == 0 {
        return Ok(());
    }
    let _room = room_to_wait(app)?;
    let finished = async {
        for batch in batches {
            wait_until(app, *batch, || app.store().is_finished(*batch)).await?;
        }
        Ok(())
    };
    wait_at_most(app, caller, wait_ms, finished).await
}

/// The permit of one request among all waiting ones.
pub(super) fn room_to_wait(app: &App) -> Result<OwnedSemaphorePermit, ApiError> {
    app.long_polls
        .clone()
        .try_acquire_owned()
        .map_err(|_| ApiError::TooMany {
            what: "too many requests wait for results or for work",
            limit: format!("{LONG_POLLS_MAX} at once"),
            retry_after_s: 5,
        })
}

/// Waits for `finished`, until the time is up or the server stops. Fails when the caller's token ends.
pub(super) async fn wait_at_most(
    app: &App,
    caller: &Caller,
    wait_ms: u64,
    finished: impl Future<Output = Result<(), StoreError>>,
) -> Result<(), ApiError> {
    tokio::select! {
        finished = finished => Ok(finished?),
        () = tokio::time::sleep(Duration::from_millis(wait_ms)) => Ok(()),
        () = app.stopped() => Ok(()),
        ended = app.token_ended(caller) => Err(ended),
    }
}

/// Waits until jobs of a batch have ended, which `have_ended` checks.
pub(super) async fn wait_until<F>(
    app: &App,
    batch: BatchId,
    have_ended: impl Fn() -> F,
) -> Result<(), StoreError>
where
    F: Future<Output = Result<bool, StoreError>>,
{
    if have_ended().await? {
        return Ok(());
    }
    let mut watch = app.store().watch_outcomes(batch);
    let mut look_after = LOOK_FIRST_AFTER;
    while !have_ended().await? {
        tokio::select! {
            () = watch.changed() => {}
            () = tokio::time::sleep(look_after) => look_after = (look_after * 2).min(LOOK_EVERY),
        }
    }
    Ok(())
}

impl Batches {
    /// Reads the next page of a run's batches when the last page is used up.
    async fn fill(&mut self, app: &App) -> Result<(), ApiError> {
        let Batches::OfRun {
            run,
            caller,
            after,
            page,
            done,
        } = self
        else {
            return Ok(());
        };
        if page.len() > 0 || *done {
            return Ok(());
        }
        let rows = app.store().run_batches(*run, *after, PAGE_ROWS_MAX).await?;
        if let Some(foreign) = rows.iter().find(|row| !caller.access.queues.contains(&row.queue)) {
            return Err(ApiError::NotFound {
                what: "batch",
                id: foreign.batch.to_string(),
            });
        }
        *done = rows.len() < PAGE_ROWS_MAX as usize;
        *after = rows.last().map(|row| row.batch);
        *page = rows
            .into_iter()
            .map(|row| row.batch)
            .collect::<Vec<_>>()
            .into_iter();
        Ok(())
    }

    /// The lines of the next batch with lines.
    async fn next(&mut self, app: &App) -> Result<Option<Bytes>, ApiError> {
        loop {
            self.fill(app).await?;
            let next = match self {
                Batches::Listed(listed) => listed.next(),
                Batches::OfRun { page, .. } => page.next(),
            };
            let Some(batch) = next else { return Ok(None) };
            // A batch that was pruned in the meantime has no lines.
            let lines = app
                .store()
                .outcomes(batch)
                .await?
                .map(|outcomes| {
                    lines(&outcomes)
                        .into_iter()
                        .map(|(_, line)| line)
                        .collect::<String>()
                })
                .unwrap_or_default();
            if !lines.is_empty() {
                return Ok(Some(lines.into()));
            }
        }
    }
}

/// The outcomes of one batch by position, one line each. Values stay in their packed form.
pub(super) fn lines(outcomes: &BatchOutcomes) -> Vec<(u32, String)> {
    let mut lines: Vec<(u32, String)> = Vec::with_capacity(outcomes.ended() as usize);
    for report in &outcomes.reports {
        let mut values = report.values.as_ref().map(|values| values.items());
        let mut durations = report.durations_us.iter();
        for position in report.positions.iter() {
            let mut line = format!(
                "{{\"job\":\"{}:{position}\",\"state\":\"{}\",\"attempt\":{}",
                outcomes.batch, report.state, report.attempt
            );
            // Writing to a string cannot fail.
            if let Some(duration_us) = durations.next() {
                let _ = write!(line, ",\"duration_us\":{duration_us}");
            }
            if let Some(value) = values.as_mut().and_then(Iterator::next) {
                let _ = write!(line, ",\"value\":{value}");
            }
            if let Ok(index) = outcomes
                .errors
                .binary_search_by_key(&position, |failure| failure.position)
                && let Ok(error) = serde_json::to_string(&outcomes.errors[index].error)
            {
                let _ = write!(line, ",\"error\":{error}");
            }
            line.push_str("}\n");
            lines.push((position, line));
        }
    }
    lines.sort_unstable_by_key(|(position, _)| *position);
    lines
}

#[cfg(test)]
mod tests {
    use gristmill_model::{JobError, JobState, PackedArray, Timestamp};
    use gristmill_store::{StoredFailure, StoredReport};

    use super::*;

    #[test]
    fn lines_stand_by_position_with_values_as_they_are_packed() {
        let report = |state, positions: &str, values: Option<&str>| StoredReport {
            state,
            positions: positions.parse().unwrap(),
            values: values.map(|values| PackedArray::parse(values).unwrap()),
            durations_us: if values.is_some() { vec![5; 3] } else { Vec::new() },
            attempt: 1,
            worker: None,
            finished_at: Timestamp(9),
        };
        let outcomes = BatchOutcomes {
            batch: BatchId(42),
            count: 5,
            reports: vec![
                report(JobState::Completed, "0,2,4", Some("[1.50, {\"b\":1}, null]")),
                report(JobState::Dead, "1", None),
            ],
            errors: vec![StoredFailure {
                position: 1,
                attempt: 1,
                error: JobError::new("ValueError", "no \"good\""),
                duration_us: 7,
                log: None,
                worker: None,
                failed_at: Timestamp(9),
            }],
        };
        let expected = "{\"job\":\"42:0\",\"state\":\"completed\",\"attempt\":1,\"duration_us\":5,\"value\":1.50}\n\
            {\"job\":\"42:1\",\"state\":\"dead\",\"attempt\":1,\"error\":{\"type\":\"ValueError\",\"message\":\"no \\\"good\\\"\"}}\n\
            {\"job\":\"42:2\",\"state\":\"completed\",\"attempt\":1,\"duration_us\":5,\"value\":{\"b\":1}}\n\
            {\"job\":\"42:4\",\"state\":\"completed\",\"attempt\":1,\"duration_us\":5,\"value\":null}\n";
        let text: String = lines(&outcomes).into_iter().map(|(_, line)| line).collect();
        assert_eq!(text, expected);
    }
}
