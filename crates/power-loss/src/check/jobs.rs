//! The check of a store of jobs.

use std::collections::{BTreeMap, BTreeSet};

use gristmill_model::{BatchId, JobId, JobState, Timestamp};
use gristmill_store::{BatchOutcomes, JobFilter, Run, RunState, Store};
use gristmill_store_sqlite::Synchronous;

use crate::check::{Fault, broken, integrity};
use crate::jobs;
use crate::limits::{EXCHANGES_MAX, ROWS_MAX};
use crate::note::{Ending, Promises};
use crate::volume::Volume;

/// The name of the run that the workload `run` makes.
pub const RUN: &str = "power-loss";

/// The number of the run's first line. All other jobs have lower numbers.
pub const RUN_NUMBERS_FROM: u64 = 1_000_000;

/// A number that no workload submits.
const FREE_NUMBER: u64 = 900_000;

/// Opens the store of an image, and compares it with the promises. A `deep` check then runs all jobs and compares again.
pub async fn check(volume: &Volume, promises: &Promises, deep: bool) -> Result<(), Fault> {
    let store = jobs::open(volume, Synchronous::Full).map_err(broken)?;
    integrity(volume, jobs::FILE)?;
    let found = Found::read(&store).await?;
    found.compare(promises)?;
    compare_run(&store, &found, promises).await?;
    check_new_id(&store, &found, promises).await?;
    if deep {
        empty(&store).await?;
        let found = Found::read(&store).await?;
        found.compare(promises)?;
        found.check_ends()?;
    }
    store.close().await.map_err(broken)?;
    if deep {
        integrity(volume, jobs::FILE)
    } else {
        Ok(())
    }
}

/// All jobs of a store.
#[derive(Debug, Default)]
pub struct Found {
    /// The jobs and their final states, by number.
    numbered: BTreeMap<u64, (JobId, Option<JobState>)>,
    /// The jobs without a number as payload, and their final states.
    others: BTreeMap<JobId, Option<JobState>>,
    batches: BTreeSet<BatchId>,
}

impl Found {
    /// Reads all batches and their outcomes.
    pub async fn read(store: &dyn Store) -> Result<Found, Fault> {
        let mut found = Found::default();
        let mut after = None;
        loop {
            let page = store
                .job_ids(&JobFilter::default(), after, ROWS_MAX)
                .await
                .map_err(broken)?;
            let Some(last) = page.last() else {
                return Ok(found);
            };
            after = Some(last.batch);
            for batch in page {
                found.add_batch(store, batch.batch).await?;
            }
        }
    }

    async fn add_batch(&mut self, store: &dyn Store, batch: BatchId) -> Result<(), Fault> {
        let payloads = store.payloads(batch).await.map_err(broken)?;
        let outcomes = store.outcomes(batch).await.map_err(broken)?;
        let (Some(payloads), Some(outcomes)) = (payloads, outcomes) else {
            return Err(Fault::Broken(format!("batch {batch} is listed, but missing")));
        };
        self.batches.insert(batch);
        let mut ends = ends(&outcomes)?;
        for (position, payload) in (0..).zip(payloads.items()) {
            let job = JobId { batch, position };
            let end = ends.remove(&position);
            let state = end.as_ref().map(|(state, _)| *state);
            let Ok(number) = payload.parse::<u64>() else {
                self.others.insert(job, state);
                continue;
            };
            if let Some((JobState::Completed, Some(value))) = &end
                && value != payload
            {
                return Err(Fault::Broken(format!(
                    "job {job} with payload {payload} has the value {value}"
                )));
            }
            if let Some((other, _)) = self.numbered.insert(number, (job, state)) {
                return Err(Fault::Doubled(format!(
                    "number {number} is job {other} and job {job}"
                )));
            }
        }
        match ends.first_key_value() {
            Some((position, _)) => Err(Fault::Broken(format!(
                "batch {batch} has an outcome for position {position}, but no job there"
            ))),
            None => Ok(()),
        }
    }

    /// Compares the jobs with the promises.
    pub fn compare(&self, promises: &Promises) -> Result<(), Fault> {
        let mut known: BTreeSet<&u64> = BTreeSet::new();
        for numbers in &promises.submits {
            let stored = numbers
                .iter()
                .filter(|number| self.numbered.contains_key(number))
                .count();
            if stored != 0 && stored != numbers.len() {
                return Err(Fault::Broken(format!(
                    "only {stored} of the {} jobs of a submit are stored",
                    numbers.len()
                )));
            }
            known.extend(numbers);
        }
        let stranger = self
            .numbered
            .keys()
            .find(|number| !known.contains(number) && **number != FREE_NUMBER);
        if let Some(number) = stranger {
            return Err(Fault::Doubled(format!(
                "number {number} is stored, but was deduplicated"
            )));
        }
        if let Some(number) = promises
            .submitted
            .iter()
            .find(|number| !self.numbered.contains_key(number))
        {
            return Err(Fault::Lost(format!(
                "number {number} was submitted, but is missing"
            )));
        }
        for (number, ending) in &promises.ended {
            let expected = match ending {
                Ending::Completed => JobState::Completed,
                Ending::Died => JobState::Dead,
                Ending::Cancelled => JobState::Cancelled,
            };
            let state = self.numbered.get(number).and_then(|(_, state)| *state);
            if state != Some(expected) {
                return Err(Fault::Lost(format!(
                    "number {number} ended as {expected:?}, but is {state:?}"
                )));
            }
        }
        Ok(())
    }

    /// Checks that every job has ended.
    fn check_ends(&self) -> Result<(), Fault> {
        let numbered = self.numbered.values().map(|(job, state)| (job, state));
        match numbered.chain(&self.others).find(|(_, state)| state.is_none()) {
            Some((job, _)) => Err(Fault::Lost(format!("job {job} never ends"))),
            None => Ok(()),
        }
    }
}

/// The final states and values of a batch's jobs, by position.
fn ends(outcomes: &BatchOutcomes) -> Result<BTreeMap<u32, (JobState, Option<String>)>, Fault> {
    let mut ends = BTreeMap::new();
    for report in &outcomes.reports {
        let mut values = report.values.iter().flat_map(|values| values.items());
        for position in report.positions.iter() {
            let value = values.next().map(str::to_owned);
            if ends.insert(position, (report.state, value)).is_some() {
                return Err(Fault::Doubled(format!(
                    "position {position} of batch {} has two outcomes",
                    outcomes.batch
                )));
            }
        }
    }
    Ok(ends)
}

/// Checks that the run's progress matches its jobs, and has reached the promised line.
async fn compare_run(store: &dyn Store, found: &Found, promises: &Promises) -> Result<(), Fault> {
    let run: Option<Run> = store.run(RUN).await.map_err(broken)?;
    let lines = run.as_ref().map_or(0, |run| run.progress.lines);
    if let Some(promised) = promises.run_lines
        && (run.is_none() || lines < promised)
    {
        return Err(Fault::Lost(format!(
            "the run was at line {promised}, but is at {lines}"
        )));
    }
    let stored: Vec<u64> = found
        .numbered
        .range(RUN_NUMBERS_FROM..)
        .map(|(number, _)| *number)
        .collect();
    let submitted: Vec<u64> = (RUN_NUMBERS_FROM..RUN_NUMBERS_FROM + lines).collect();
    if stored != submitted {
        return Err(Fault::Broken(format!(
            "the run is at line {lines}, but has {} jobs",
            stored.len()
        )));
    }
    let Some(run) = run else { return Ok(()) };
    let finished = run.state == RunState::Finished;
    if promises.run_finished && !finished {
        return Err(Fault::Lost("the run had finished, but has not".to_owned()));
    }
    if found.others.len() == usize::from(finished) {
        Ok(())
    } else {
        Err(Fault::Broken(format!(
            "the run has {} hooks, and finished is {finished}",
            found.others.len()
        )))
    }
}

/// Checks that the next batch gets a new id.
async fn check_new_id(store: &dyn Store, found: &Found, promises: &Promises) -> Result<(), Fault> {
    let new = store
        .submit(vec![jobs::batch(&[FREE_NUMBER])], None)
        .await
        .map_err(broken)?;
    let taken = |new: &&BatchId| found.batches.contains(*new) || new.0 <= promises.batch_max;
    match new.iter().find(taken) {
        Some(id) => Err(Fault::Doubled(format!("batch id {id} is used twice"))),
        None => Ok(()),
    }
}

/// Runs all jobs with a new worker, after the rescue of the workers from before the cut.
async fn empty(store: &dyn Store) -> Result<(), Fault> {
    let dead = store
        .workers()
        .await
        .map_err(broken)?
        .iter()
        .map(|row| row.id)
        .collect();
    store.rescue(Timestamp(0), dead).await.map_err(broken)?;
    let worker = store.register_worker(jobs::worker()).await.map_err(broken)?;
    let mut reports = Vec::new();
    for _ in 0..EXCHANGES_MAX {
        let exchanged = store
            .exchange(worker, reports, Some(jobs::want(100)))
            .await
            .map_err(broken)?;
        let Some(lease) = exchanged.lease else {
            return Ok(());
        };
        reports = lease
            .slices
            .iter()
            .map(|slice| jobs::completed(slice, &slice.positions))
            .collect();
    }
    Err(Fault::Broken(format!(
        "jobs are still left after {EXCHANGES_MAX} exchanges"
    )))
}
