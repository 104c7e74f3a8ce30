//! Checks of input that need no store.

use gristmill_model::batch::check_after;
use gristmill_model::limits::{REPEATS_MAX, TAG_CONDITIONS_MAX};
use gristmill_model::{KeyedBatch, NewBatch, Report, Timestamp};

use crate::rules::pauses::check_pause;
use crate::{Change, JobFilter, Selection, StoreError};

/// Checks a submit without the store.
pub fn check_batches(batches: &[NewBatch]) -> Result<(), StoreError> {
    for batch in batches {
        check_batch(batch)?;
    }
    Ok(check_after(batches)?)
}

/// Checks a batch without the store.
fn check_batch(batch: &NewBatch) -> Result<(), StoreError> {
    batch.check()?;
    check_rest(batch)
}

/// Checks batches with keys without the store, and reads the keys of each.
pub fn check_keyed(batches: &[KeyedBatch]) -> Result<Vec<Vec<Option<String>>>, StoreError> {
    let keys = batches.iter().map(|batch| {
        let keys = batch.check()?;
        check_rest(&batch.batch)?;
        check_no_memos(&batch.batch)?;
        Ok(keys)
    });
    let keys = keys.collect::<Result<_, StoreError>>()?;
    check_after(batches)?;
    Ok(keys)
}

fn check_rest(batch: &NewBatch) -> Result<(), StoreError> {
    let mut previous = None;
    for rejected in &batch.rejected {
        if rejected.position >= batch.payloads.count()
            || previous.is_some_and(|position| position >= rejected.position)
        {
            return Err(StoreError::InvalidInput(format!(
                "rejected jobs need ascending positions below the batch's {} jobs; position {} violates this",
                batch.payloads.count(),
                rejected.position
            )));
        }
        previous = Some(rejected.position);
    }
    let moments = [
        ("run_at", batch.options.run_at),
        ("expires_at", batch.options.expires_at),
    ];
    for (name, moment) in moments {
        if moment.is_some_and(|Timestamp(moment)| moment < 0) {
            return Err(StoreError::InvalidInput(format!(
                "{name} is in milliseconds since 1970, at least 0"
            )));
        }
    }
    Ok(())
}

/// Refuses a filter with too many conditions.
pub fn check_filter(filter: &JobFilter) -> Result<(), StoreError> {
    match filter.tags.len() {
        count if count > TAG_CONDITIONS_MAX => Err(StoreError::InvalidInput(format!(
            "a filter has at most {TAG_CONDITIONS_MAX} conditions on tags; this one has {count}"
        ))),
        _ => Ok(()),
    }
}

/// Refuses a selection with too many conditions, and an invalid pause.
pub fn check_change(selection: &Selection, change: &Change) -> Result<(), StoreError> {
    if let Change::Pause { reason, until } = change {
        check_pause(reason, *until)?;
    }
    match selection {
        Selection::Jobs(_) | Selection::Packed { .. } => Ok(()),
        Selection::Filter(filter) => check_filter(filter),
    }
}

/// Checks a single job without the store.
pub fn check_single(job: &NewBatch) -> Result<(), StoreError> {
    check_batches(std::slice::from_ref(job))?;
    check_no_memos(job)?;
    match job.payloads.count() {
        1 => Ok(()),
        count => Err(StoreError::InvalidInput(format!(
            "a single submit needs one payload; this one has {count}: submit them as a batch"
        ))),
    }
}

/// Refuses memos where jobs are packed anew, or left out.
fn check_no_memos(batch: &NewBatch) -> Result<(), StoreError> {
    match batch.memos {
        None => Ok(()),
        Some(_) => Err(StoreError::InvalidInput(
            "flows that begin with memos are submitted as batches without keys".to_owned(),
        )),
    }
}

/// Checks a report without the store.
pub fn check_report(report: &Report) -> Result<(), StoreError> {
    let refuse = |reason: String| {
        Err(StoreError::InvalidInput(format!(
            "a report of batch {} under lease {} {reason}",
            report.batch, report.lease
        )))
    };
    let mut answered = report.released.len();
    if let Some(completed) = &report.completed {
        let (jobs, values) = (completed.positions.len(), completed.values.count());
        answered += jobs;
        if jobs != values || jobs as usize != completed.durations_us.len() {
            return refuse(format!(
                "has {values} values and {} durations for {jobs} completed jobs",
                completed.durations_us.len()
            ));
        }
    }
    answered += report.failed.len() as u32;
    for suspended in &report.suspended {
        answered += suspended.positions.len();
        if let Err(error) = suspended.check() {
            return refuse(format!("suspends jobs in an invalid way: {error}"));
        }
    }
    if report.positions().len() != answered {
        return refuse("names a position twice".to_owned());
    }
    if report.repeats > 0 || !report.earlier.is_empty() {
        check_earlier(report).or_else(refuse)?;
    }
    let completed = report.completed.as_ref().map(|completed| &completed.positions);
    let writes = |position| completed.is_some_and(|completed| completed.contains(position));
    if !report.writes.iter().all(|write| writes(write.position)) {
        return refuse("writes for jobs that it does not complete".to_owned());
    }
    for siblings in &report.siblings {
        if !completed.is_some_and(|completed| completed.contains_all(&siblings.positions)) {
            return refuse("spawns siblings of jobs that it does not complete".to_owned());
        }
        if let Err(error) = siblings.check() {
            return refuse(format!("spawns invalid siblings: {error}"));
        }
    }
    if !report.logs.is_sorted_by(|log, next| log.position < next.position) {
        return refuse("has logs that are not in ascending order of position".to_owned());
    }
    Ok(())
}

/// Checks the attempts before the last one: equally many for each job, each once and in order.
fn check_earlier(report: &Report) -> Result<(), String> {
    if report.repeats > REPEATS_MAX {
        return Err(format!(
            "says that its jobs ran again {} times; the limit is {REPEATS_MAX}",
            report.repeats
        ));
    }
    if !report.released.is_empty() {
        return Err("releases jobs that have run: report them as failed".to_owned());
    }
    let attempts = report.attempt..report.last_attempt();
    let expected = report
        .positions()
        .iter()
        .flat_map(|position| attempts.clone().map(move |attempt| (position, attempt)))
        .collect::<Vec<_>>();
    let found = report
        .earlier
        .iter()
        .map(|earlier| (earlier.position, earlier.attempt));
    if found.eq(expected) {
        return Ok(());
    }
    Err(format!(
        "must list {} earlier failures of each job, by position and attempt",
        report.repeats
    ))
}
