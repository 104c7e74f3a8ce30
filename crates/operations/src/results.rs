//! The outcomes of ended jobs, one a line.

use std::fmt::Write;
use std::time::Duration;

use gristmill_engine::Engine;
use gristmill_model::limits::PAGE_ROWS_MAX;
use gristmill_model::positions::ParsePositionsError;
use gristmill_model::{BatchId, JobId, JobState, Positions, RunId};
use gristmill_store::{
    BatchOutcomes, BatchPositions, EndedJob, JobDetails, JobFilter, OutcomesRead, OutcomesWanted, Store,
    StoreError,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::access::{Access, has_batch, run_id};
use crate::limits::{RESULT_BATCHES_MAX, RESULT_BYTES_MAX, WAIT_MS_MAX};
use crate::refused::Refused;

/// The interval at which a waiting request looks whether its jobs have ended, if the store sends no notice.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The interval at which a program that waits for one job of its own store looks whether it has ended, if the store sends no notice.
const LOOK_AT_JOB_EVERY: Duration = Duration::from_millis(500);

/// The time before the first look. Each later interval is twice as long. The store may send no notice of a report that
/// it commits while the request begins to wait.
const LOOK_FIRST_AFTER: Duration = Duration::from_millis(25);

/// The selection of results.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", into_params(parameter_in = Query))]
pub struct ResultsQuery {
    /// The batches to read, separated by commas.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(example = "42,43"))]
    batches: Option<String>,
    /// The run to read.
    #[serde(default)]
    run: Option<String>,
    /// The maximum wait for all jobs of the batches to end. Milliseconds. Not with `run`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(minimum = 0, maximum = 30_000))]
    pub wait_ms: Option<u64>,
    /// The positions to read, of one batch; all by default. Write them ascending, as positions and ranges.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(example = "0-99,120"))]
    positions: Option<String>,
}

/// The batches whose outcomes are still to be read.
#[derive(Debug)]
pub struct Results {
    batches: std::vec::IntoIter<BatchId>,
    /// The positions to read of the only batch.
    positions: Option<Positions>,
    /// The maximum bytes of the outcomes of `positions`.
    bytes_max: usize,
    /// A run with further batches, and the last batch of its pages so far.
    more: Option<(RunId, Option<BatchId>)>,
}

impl ResultsQuery {
    /// The batches of the request, within the caller's queues.
    pub async fn batches(self, store: &dyn Store, access: &Access) -> Result<Results, Refused> {
        if let Some(wait_ms) = self.wait_ms.filter(|wait_ms| *wait_ms > WAIT_MS_MAX) {
            return Err(Refused::invalid(
                format!("`wait_ms` is {wait_ms}"),
                format!("give 0 to {WAIT_MS_MAX}"),
            ));
        }
        let positions = self.positions.as_deref().map(parse_positions).transpose()?;
        match (self.batches, self.run) {
            (Some(batches), None) => {
                let batches = listed(store, access, &batches).await?;
                if let Some(positions) = &positions {
                    check_positions(positions, &batches)?;
                }
                let batches: Vec<BatchId> = batches.into_iter().map(|found| found.batch).collect();
                Ok(Results {
                    batches: batches.into_iter(),
                    positions,
                    bytes_max: usize::MAX,
                    more: None,
                })
            }
            (None, Some(run)) if self.wait_ms.is_none() && positions.is_none() => {
                let run = run_id(store, access, &run).await?;
                let mut results = Results {
                    batches: Vec::new().into_iter(),
                    positions,
                    bytes_max: usize::MAX,
                    more: Some((run, None)),
                };
                // The first page is read before the answer begins, so that a refusal has its own status.
                results.fill(store, access).await?;
                Ok(results)
            }
            _ => Err(Refused::invalid(
                "the request needs either `batches` or `run`",
                "give `batches` (ids, separated by commas; optionally `wait_ms`, and `positions` of one), or `run` (a name)",
            )),
        }
    }
}

fn parse_positions(text: &str) -> Result<Positions, Refused> {
    let remedy = "write ascending positions and ranges, separated by commas, as in 0-99,120";
    let positions: Positions = text
        .parse()
        .map_err(|error: ParsePositionsError| Refused::invalid(format!("`positions`: {error}"), remedy))?;
    if positions.is_empty() {
        return Err(Refused::invalid("`positions` is empty", remedy));
    }
    Ok(positions)
}

/// Refuses positions that are not all of one batch. A wait for a job that does not exist would not end.
fn check_positions(positions: &Positions, batches: &[BatchPositions]) -> Result<(), Refused> {
    let [found] = batches else {
        return Err(Refused::invalid(
            format!("the request has `positions`, and names {} batches", batches.len()),
            "name one batch, or leave `positions` out",
        ));
    };
    if found.positions.contains_all(positions) {
        return Ok(());
    }
    Err(Refused::invalid(
        format!(
            "`positions` names a job that batch {} does not have: it has {} jobs",
            found.batch,
            found.positions.len()
        ),
        format!("name positions of {}", found.positions),
    ))
}

/// The batches that a request names, with all positions of each. Reads no values.
async fn listed(store: &dyn Store, access: &Access, text: &str) -> Result<Vec<BatchPositions>, Refused> {
    let wrong = |part: &str| {
        let part: String = part.chars().take(40).collect();
        Refused::invalid(
            format!("`{part}` is not a batch's id"),
            "write ids, separated by commas, as in 42,43",
        )
    };
    let ids: Vec<&str> = text.split(',').map(str::trim).collect();
    if ids.len() > RESULT_BATCHES_MAX {
        return Err(Refused::TooLarge {
            what: "the number of batches in one request".to_owned(),
            limit: format!("{RESULT_BATCHES_MAX} batches"),
        });
    }
    let mut batches = Vec::with_capacity(ids.len());
    for id in ids {
        let batch = BatchId(id.parse().map_err(|_| wrong(id))?);
        let missing = || Refused::not_found("batch", &batch.to_string());
        if !has_batch(store, access, batch).await? {
            return Err(missing());
        }
        batches.push(jobs_in(store, batch, Vec::new()).await?.ok_or_else(missing)?);
    }
    Ok(batches)
}

impl Results {
    /// Waits until all jobs of the batches have ended.
    pub async fn all_ended(&self, store: &dyn Store) -> Result<(), StoreError> {
        for batch in self.batches.as_slice() {
            match &self.positions {
                Some(positions) => {
                    wait_until(store, *batch, || have_ended(store, *batch, positions)).await?;
                }
                None => wait_until(store, *batch, || store.is_finished(*batch)).await?,
            }
        }
        Ok(())
    }

    /// Reads the next page of a run's batches when the last page is used up.
    async fn fill(&mut self, store: &dyn Store, access: &Access) -> Result<(), Refused> {
        let Some((run, after)) = self.more.filter(|_| self.batches.len() == 0) else {
            return Ok(());
        };
        let rows = store.run_batches(run, after, PAGE_ROWS_MAX).await?;
        if let Some(foreign) = rows.iter().find(|row| !access.queues.contains(&row.queue)) {
            return Err(Refused::not_found("batch", &foreign.batch.to_string()));
        }
        assert!(rows.iter().all(|row| Some(row.batch) > after), "pages ascend");
        let last = rows.last().filter(|_| rows.len() == PAGE_ROWS_MAX as usize);
        self.more = last.map(|row| (run, Some(row.batch)));
        self.batches = rows.iter().map(|row| row.batch).collect::<Vec<_>>().into_iter();
        Ok(())
    }

    /// The lines of the next batch that has some, by position.
    pub async fn next(
        &mut self,
        store: &dyn Store,
        access: &Access,
    ) -> Result<Option<Vec<(u32, String)>>, Refused> {
        loop {
            self.fill(store, access).await?;
            let Some(batch) = self.batches.next() else {
                return Ok(None);
            };
            // A batch that was pruned in the meantime has no lines.
            let outcomes = match &self.positions {
                Some(positions) => self.some_outcomes(store, batch, positions).await?,
                None => store.outcomes(batch).await?,
            };
            let lines = outcomes.map(|outcomes| lines(&outcomes)).unwrap_or_default();
            if !lines.is_empty() {
                return Ok(Some(lines));
            }
        }
    }

    async fn some_outcomes(
        &self,
        store: &dyn Store,
        batch: BatchId,
        positions: &Positions,
    ) -> Result<Option<BatchOutcomes>, Refused> {
        let wanted = OutcomesWanted {
            batch,
            positions: Some(positions.clone()),
            bytes_max: self.bytes_max,
            whole_bytes_max: 0,
        };
        match store.outcomes_of(&wanted).await? {
            OutcomesRead::Read(mut outcomes) | OutcomesRead::ReadWhole(mut outcomes) => {
                let reports = outcomes.reports.into_iter();
                outcomes.reports = reports.filter_map(|report| report.narrowed(positions)).collect();
                Ok(Some(outcomes))
            }
            OutcomesRead::Unknown => Ok(None),
            OutcomesRead::TooLarge => Err(answer_too_large()),
        }
    }
}

fn answer_too_large() -> Refused {
    Refused::TooLarge {
        what: "the answer".to_owned(),
        limit: format!("{RESULT_BYTES_MAX} bytes: name fewer batches or `positions`"),
    }
}

/// Reports whether these jobs of a batch have ended. Those of a batch that was pruned have. Reads no values.
pub async fn have_ended(
    store: &dyn Store,
    batch: BatchId,
    positions: &Positions,
) -> Result<bool, StoreError> {
    let states = JobState::ALL.into_iter().filter(|state| state.is_final());
    match jobs_in(store, batch, states.collect()).await? {
        Some(ended) => Ok(ended.positions.contains_all(positions)),
        None => Ok(jobs_in(store, batch, Vec::new()).await?.is_none()),
    }
}

/// The jobs of a batch in some states, in all if there are none; `None` if there are no such jobs.
async fn jobs_in(
    store: &dyn Store,
    batch: BatchId,
    states: Vec<JobState>,
) -> Result<Option<BatchPositions>, StoreError> {
    let filter = JobFilter {
        batch: Some(batch),
        states,
        ..JobFilter::default()
    };
    Ok(store.job_ids(&filter, None, 1).await?.pop())
}

/// Waits until jobs of a batch have ended, which `have_ended` checks.
pub async fn wait_until<F>(
    store: &dyn Store,
    batch: BatchId,
    have_ended: impl Fn() -> F,
) -> Result<(), StoreError>
where
    F: Future<Output = Result<bool, StoreError>>,
{
    if have_ended().await? {
        return Ok(());
    }
    let has_ended = || async { Ok(have_ended().await?.then_some(())) };
    look_until(store, batch, LOOK_EVERY, has_ended).await
}

/// Waits until a job has ended, and reads it. `None` if there is no such job.
///
/// # Errors
///
/// The store fails.
pub async fn job_end(store: &dyn Store, job: JobId) -> Result<Option<JobDetails>, StoreError> {
    let ended = || async {
        let found = store.job(job).await?;
        let is_open = found
            .as_ref()
            .is_some_and(|details| !details.row.state.is_final());
        Ok((!is_open).then_some(found))
    };
    look_until(store, job.batch, LOOK_AT_JOB_EVERY, ended).await
}

/// The words of an error about a job that a store does not have.
pub fn no_such_job(job: JobId) -> String {
    format!("job {job} does not exist, or was pruned")
}

/// Looks at jobs of a batch whenever some have ended, and at least once in `every`, until it finds what it looks for.
async fn look_until<T, F>(
    store: &dyn Store,
    batch: BatchId,
    every: Duration,
    look: impl Fn() -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<Option<T>, StoreError>>,
{
    let mut watch = store.watch_outcomes(batch);
    let mut look_after = LOOK_FIRST_AFTER;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        tokio::select! {
            () = watch.changed() => {}
            () = tokio::time::sleep(look_after) => look_after = (look_after * 2).min(every),
        }
    }
}

/// Reads the outcomes of batches or of a run, up to a limit of bytes.
pub async fn results(
    engine: &Engine,
    access: &Access,
    query: ResultsQuery,
) -> Result<Vec<Box<RawValue>>, Refused> {
    let store = &**engine.store();
    let wait = Duration::from_millis(query.wait_ms.unwrap_or_default());
    let mut batches = query.batches(store, access).await?;
    if !wait.is_zero() {
        // The answer has the jobs that have ended in time.
        let ended = tokio::time::timeout(wait, batches.all_ended(store)).await;
        ended.unwrap_or(Ok(()))?;
    }
    let (mut results, mut bytes) = (Vec::new(), 0);
    batches.bytes_max = RESULT_BYTES_MAX;
    while let Some(lines) = batches.next(store, access).await? {
        for (_, line) in lines {
            bytes += line.len();
            if bytes > RESULT_BYTES_MAX {
                return Err(answer_too_large());
            }
            // A line is JSON, because it consists of values that the store has checked.
            results.extend(RawValue::from_string(line.trim_end().to_owned()).ok());
        }
    }
    Ok(results)
}

/// The outcomes of one batch by position, one line each. Values stay in their packed form.
pub fn lines(outcomes: &BatchOutcomes) -> Vec<(u32, String)> {
    let line = |job: EndedJob<'_>| {
        let (position, report) = (job.position, job.report);
        let mut line = format!(
            "{{\"job\":\"{}:{position}\",\"state\":\"{}\",\"attempt\":{}",
            outcomes.batch, report.state, report.attempt
        );
        // Writing to a string cannot fail.
        if let Some(duration_us) = job.duration_us {
            let _ = write!(line, ",\"duration_us\":{duration_us}");
        }
        if let Some(value) = job.value {
            let _ = write!(line, ",\"value\":{value}");
        }
        if let Some(error) = job
            .failure
            .and_then(|failure| serde_json::to_string(&failure.error).ok())
        {
            let _ = write!(line, ",\"error\":{error}");
        }
        line.push_str("}\n");
        (position, line)
    };
    outcomes.jobs().into_iter().map(line).collect()
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
