//! `gristmill stats`: totals, sizes, and the batches of each step with the reasons of their ends.

use gristmill_batching::EndReason;
use gristmill_store::StoreStats;

use crate::arguments::job::StatsArguments;
use crate::exit::Exit;
use crate::output::print_line;
use crate::output::progress::show_rate;
use crate::output::table::{Align, Table};
use crate::span::{show_bytes, show_count};

/// Runs the command.
pub async fn stats(arguments: StatsArguments) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    let stats = store.stats().await?;
    if arguments.json {
        print_line(&serde_json::to_string(&stats)?)?;
        return Ok(Exit::Done);
    }
    print_line(&[kinds(&stats), hops(&stats), sizes(&stats)].join("\n\n"))?;
    Ok(Exit::Done)
}

fn kinds(stats: &StoreStats) -> String {
    let mut table = Table::new(&[
        ("kind", Align::Left),
        ("queue", Align::Left),
        ("waiting", Align::Right),
        ("scheduled", Align::Right),
        ("blocked", Align::Right),
        ("paused", Align::Right),
        ("running", Align::Right),
        ("completed", Align::Right),
        ("dead", Align::Right),
        ("cancelled", Align::Right),
        ("expired", Align::Right),
    ]);
    for kind in &stats.kinds {
        let counts = &kind.counts;
        let numbers = [
            counts.waiting,
            counts.scheduled,
            counts.blocked,
            counts.paused,
            counts.running,
            counts.completed,
            counts.dead,
            counts.cancelled,
            counts.expired,
        ];
        let names = [kind.kind.to_string(), kind.queue.to_string()];
        table.row(names.into_iter().chain(numbers.map(show_count)));
    }
    table.text()
}

/// The batches of each step (submit, claim, run, commit): number, size, and number by end reason.
fn hops(stats: &StoreStats) -> String {
    let numbers = ["batches", "jobs", "mean", "largest"].map(|name| (name, Align::Right));
    let reasons = EndReason::ALL.map(|reason| (reason_shown(reason), Align::Right));
    let header: Vec<_> = [("step", Align::Left)]
        .into_iter()
        .chain(numbers)
        .chain(reasons)
        .collect();
    let mut table = Table::new(&header);
    for (hop, moved) in &stats.hops.hops {
        let numbers = [
            hop.clone(),
            show_count(moved.batches),
            show_count(moved.items),
            show_rate(moved.items_mean()),
            show_count(moved.items_max),
        ];
        let ended =
            EndReason::ALL.map(|reason| show_count(moved.end_reasons.get(&reason).copied().unwrap_or(0)));
        table.row(numbers.into_iter().chain(ended));
    }
    if table.is_empty() {
        "no batches moved yet".to_owned()
    } else {
        table.text()
    }
}

/// The reason why a batch is not larger, as a column's name.
fn reason_shown(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Drained => "queue empty",
        other => other.as_str(),
    }
}

fn sizes(stats: &StoreStats) -> String {
    let rows = [
        ("batches", stats.batches),
        ("slices", stats.slices),
        ("leases", stats.leases),
        ("reports", stats.reports),
        ("failures", stats.failures),
        ("workers", stats.workers),
    ];
    let rows = rows.map(|(name, count)| format!("{} {name}", show_count(count)));
    let total = format!("{} on disk: {}", show_bytes(stats.size_bytes), rows.join(", "));
    if stats.tables.is_empty() {
        return total;
    }
    let mut table = Table::new(&[
        ("table", Align::Left),
        ("rows", Align::Right),
        ("indexes", Align::Right),
        ("dead rows", Align::Right),
    ]);
    for size in &stats.tables {
        table.row([
            size.table.clone(),
            show_bytes(size.row_bytes),
            show_bytes(size.index_bytes),
            show_count(size.rows_dead),
        ]);
    }
    format!("{total}\n\n{}", table.text())
}
