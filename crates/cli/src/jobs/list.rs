//! `gristmill jobs`: lists jobs.

use std::sync::Arc;

use gristmill_model::limits::NEXT_JOBS_MAX;
use gristmill_store::{JobFilter, JobRow, Page, Store, Want};

use crate::arguments::job::JobsArguments;
use crate::exit::Exit;
use crate::jobs::show::percent;
use crate::output::json::print_json;
use crate::output::print_line;
use crate::output::table::{Align, Table, cut};
use crate::pauses::{Pauses, show_pauses};

/// The number of batches in one query for the ids of their jobs.
const IDS_BATCHES_PER_PAGE: u32 = 1_000;

/// The number of characters of an error to show.
const ERROR_CHARS_MAX: usize = 80;

/// Runs the command.
pub async fn jobs(arguments: JobsArguments) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    let filter = arguments.filter.resolve(&*store).await?;
    if arguments.ids {
        return print_ids(&*store, &filter).await;
    }
    if arguments.count {
        let counts = store.counts(&filter).await?;
        print_line(&if arguments.json {
            serde_json::to_string(&counts)?
        } else {
            counts.total().to_string()
        })?;
        return Ok(Exit::Done);
    }
    // One extra row shows whether there is a next page.
    let page = Page {
        after: arguments.after,
        limit: arguments.limit + 1,
    };
    let mut rows = if arguments.newest {
        store.newest_jobs(&filter, page.limit).await?
    } else if arguments.next {
        store.next_jobs(&next_want(filter, arguments.limit)?).await?
    } else {
        store.jobs(&filter, page).await?
    };
    let has_more = rows.len() > arguments.limit as usize;
    rows.truncate(arguments.limit as usize);
    let pauses = Pauses::of(&*store).await?;
    store.close().await?;
    if arguments.json {
        for row in &rows {
            let mut shown = serde_json::to_value(row)?;
            shown["pauses"] = serde_json::to_value(pauses.of_job(row))?;
            print_json(&shown)?;
        }
    } else if rows.is_empty() && arguments.next {
        say!(
            "no job can be claimed now; `gristmill jobs --state waiting` names the pauses that hold waiting jobs"
        );
    } else if rows.is_empty() {
        say!("no job matches");
    } else {
        print_line(&table(&rows, &pauses).text())?;
    }
    match rows.last().filter(|_| has_more) {
        Some(_) if arguments.newest => say!("older jobs match: give a larger --limit, or --until"),
        Some(last) => say!("more jobs match: add --after {}", last.job),
        None => {}
    }
    Ok(Exit::Done)
}

/// A claim of the jobs of a filter, which has no other conditions than a claim.
fn next_want(filter: JobFilter, limit: u32) -> anyhow::Result<Want> {
    anyhow::ensure!(
        limit <= NEXT_JOBS_MAX,
        "--next lists at most {NEXT_JOBS_MAX} jobs, as many as one claim takes at least: give a smaller --limit"
    );
    Ok(Want {
        jobs_max: limit,
        queues: filter.queue.map(Arc::from).into_iter().collect(),
        kinds: filter.kind.map(Arc::from).into_iter().collect(),
        priority_min: None,
    })
}

/// The job's state, with its progress or the pauses that hold it.
fn state(row: &JobRow, pauses: &Pauses) -> String {
    let fraction = row.progress.as_ref().and_then(|shown| shown.progress.fraction);
    let held = pauses.of_job(row);
    match fraction {
        Some(fraction) => format!("{}, {}", row.state, percent(fraction)),
        None if !held.is_empty() => format!("{}, paused: {}", row.state, show_pauses(&held)),
        None => row.state.to_string(),
    }
}

/// Prints the ids of all matching jobs, one line for each batch.
async fn print_ids(store: &dyn Store, filter: &JobFilter) -> anyhow::Result<Exit> {
    let mut after = None;
    loop {
        let page = store.job_ids(filter, after, IDS_BATCHES_PER_PAGE).await?;
        let Some(last) = page.last() else {
            return Ok(Exit::Done);
        };
        after = Some(last.batch);
        for found in &page {
            print_line(&format!("{}:{}", found.batch, found.positions))?;
        }
    }
}

fn table(rows: &[JobRow], pauses: &Pauses) -> Table {
    let mut table = Table::new(&[
        ("job", Align::Left),
        ("kind", Align::Left),
        ("queue", Align::Left),
        ("state", Align::Left),
        ("attempt", Align::Right),
        ("when", Align::Left),
        ("error", Align::Left),
    ]);
    for row in rows {
        let when = row.finished_at.or(row.run_at).unwrap_or(row.submitted_at);
        table.row([
            row.job.to_string(),
            row.kind.to_string(),
            row.queue.to_string(),
            state(row, pauses),
            row.attempt.to_string(),
            when.to_string(),
            row.error
                .as_deref()
                .map(|error| cut(error, ERROR_CHARS_MAX))
                .unwrap_or_default(),
        ]);
    }
    table
}
