//! `gristmill queues`, `gristmill workers` and `gristmill drain`: the jobs on queues, and the workers that run them.

use std::sync::Arc;

use anyhow::bail;
use gristmill_model::{JobState, WorkerId};

use crate::arguments::job::{DrainArguments, QueuesArguments, WorkersArguments};
use crate::exit::Exit;
use crate::output::json::print_json;
use crate::output::print_line;
use crate::output::table::{Align, Table};
use crate::pauses::{Pauses, show_pauses};
use crate::run::is_of_run;
use crate::span::{show_count, show_number_of};

/// The states that `gristmill queues` shows.
const STATES: [JobState; 7] = [
    JobState::Waiting,
    JobState::Scheduled,
    JobState::Blocked,
    JobState::Paused,
    JobState::Running,
    JobState::Completed,
    JobState::Dead,
];

/// Runs `gristmill queues`.
pub async fn queues(arguments: QueuesArguments) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    let mut kinds = store.stats().await?.kinds;
    let pauses = Pauses::of(&*store).await?;
    store.close().await?;
    // Queues of ended runs get no more jobs. `runs` lists these runs.
    kinds.retain(|lane| !is_of_run(&lane.queue) || lane.counts.ended() < lane.counts.total());
    kinds.sort_by(|a, b| (&a.queue, &a.kind).cmp(&(&b.queue, &b.kind)));
    if arguments.json {
        for kind in &kinds {
            let mut shown = serde_json::to_value(kind)?;
            shown["pauses"] = serde_json::to_value(pauses.of_lane(&kind.queue, &kind.kind))?;
            print_json(&shown)?;
        }
        return Ok(Exit::Done);
    }
    let states = STATES.map(|state| (state.name(), Align::Right));
    let header: Vec<_> = [("queue", Align::Left), ("kind", Align::Left)]
        .into_iter()
        .chain(states)
        .chain([("paused by", Align::Left)])
        .collect();
    let mut table = Table::new(&header);
    for kind in kinds {
        let mut counts = kind.counts;
        let held = show_pauses(&pauses.of_lane(&kind.queue, &kind.kind));
        let numbers = STATES.map(|state| show_count(*counts.get_mut(state)));
        table.row(
            [kind.queue.to_string(), kind.kind.to_string()]
                .into_iter()
                .chain(numbers)
                .chain([held]),
        );
    }
    if table.is_empty() {
        say!("no queue has a job");
    } else {
        print_line(&table.text())?;
    }
    Ok(Exit::Done)
}

/// The queues or kinds that a worker serves. `any` if it names none.
fn show_names(names: &[Arc<str>]) -> String {
    match names {
        [] => "any".to_owned(),
        names => names.join(", "),
    }
}

/// Runs `gristmill workers`.
pub async fn workers(arguments: WorkersArguments) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    let rows = store.workers().await?;
    store.close().await?;
    if arguments.json {
        for row in &rows {
            print_json(row)?;
        }
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&[
        ("worker", Align::Right),
        ("name", Align::Left),
        ("host", Align::Left),
        ("process", Align::Right),
        ("state", Align::Left),
        ("jobs", Align::Right),
        ("queues", Align::Left),
        ("kinds", Align::Left),
        ("started", Align::Left),
        ("last heartbeat", Align::Left),
    ]);
    for row in rows {
        table.row([
            row.id.to_string(),
            row.worker.name,
            row.worker.host,
            row.worker.process_id.to_string(),
            if row.drain_at.is_some() { "draining" } else { "" }.to_owned(),
            show_count(row.jobs_held),
            show_names(&row.worker.queues),
            show_names(&row.worker.kinds),
            row.started_at.to_string(),
            row.heartbeat_at.to_string(),
        ]);
    }
    if table.is_empty() {
        say!("no worker is registered");
    } else {
        print_line(&table.text())?;
    }
    Ok(Exit::Done)
}

/// Runs `gristmill drain`.
pub async fn drain(arguments: DrainArguments) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    let mut unknown = Vec::new();
    for worker in &arguments.workers {
        if !store.drain_worker(WorkerId(*worker)).await? {
            unknown.push(worker.to_string());
        }
    }
    store.close().await?;
    if !unknown.is_empty() {
        bail!(
            "no worker has the id {}: `gristmill workers` lists the registered ones",
            unknown.join(", ")
        );
    }
    let asked = show_number_of(arguments.workers.len() as u64, "worker");
    print_line(&format!("{asked} asked to drain"))?;
    Ok(Exit::Done)
}
