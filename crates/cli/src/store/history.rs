//! `gristmill history`: counts and durations of ended jobs.

use gristmill_model::{Clock, SystemClock, Timestamp};
use gristmill_store::{HistoryFilter, HistoryPeriod, HistoryRow};
use serde_json::json;

use crate::arguments::history::HistoryArguments;
use crate::exit::Exit;
use crate::output::print_line;
use crate::output::table::{Align, Table};
use crate::span::{milliseconds, show_count, show_microseconds};

/// Runs the command.
pub async fn history(arguments: HistoryArguments) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    let ago = |span| {
        SystemClock
            .now()
            .plus_ms(-i64::try_from(milliseconds(span)).unwrap_or(i64::MAX))
    };
    let filter = HistoryFilter {
        kind: arguments.kind,
        queue: arguments.queue,
        since: arguments.since.map(ago),
        until: arguments.until.map(ago),
        by: arguments.by,
    };
    let rows = store.history(&filter).await?;
    if arguments.json {
        for row in &rows {
            print_line(&line(row).to_string())?;
        }
    } else if rows.is_empty() {
        print_line("no job has ended in this period")?;
    } else {
        print_line(&table(&rows, arguments.by))?;
    }
    Ok(Exit::Done)
}

fn line(row: &HistoryRow) -> serde_json::Value {
    let durations = &row.durations;
    let duration = durations.mean_us().map(|mean_us| {
        json!({
            "mean_us": mean_us,
            "p50_us": durations.quantile_us(0.5),
            "p95_us": durations.quantile_us(0.95),
            "p99_us": durations.quantile_us(0.99),
        })
    });
    json!({
        "from": row.from.map(|from| from.to_string()),
        "kind": row.kind,
        "queue": row.queue,
        "completed": row.completed,
        "dead": row.dead,
        "cancelled": row.cancelled,
        "expired": row.expired,
        "duration": duration,
    })
}

fn table(rows: &[HistoryRow], by: HistoryPeriod) -> String {
    let numbers = [
        "completed",
        "dead",
        "cancelled",
        "expired",
        "mean",
        "p50",
        "p95",
        "p99",
    ];
    let names = [("kind", Align::Left), ("queue", Align::Left)];
    let from = (by != HistoryPeriod::All).then_some(("from (UTC)", Align::Left));
    let header: Vec<_> = from
        .into_iter()
        .chain(names)
        .chain(numbers.map(|name| (name, Align::Right)))
        .collect();
    let mut table = Table::new(&header);
    for row in rows {
        let names = [row.kind.to_string(), row.queue.to_string()];
        let counts = [row.completed, row.dead, row.cancelled, row.expired].map(show_count);
        let percentiles = [0.5, 0.95, 0.99].map(|part| row.durations.quantile_us(part).map(|us| us as f64));
        let durations = std::iter::once(row.durations.mean_us()).chain(percentiles);
        let cells = row.from.map(show_minute).into_iter().chain(names).chain(counts);
        table.row(cells.chain(durations.map(|us| us.map(show_microseconds).unwrap_or_default())));
    }
    table.text()
}

/// The start of a period, such as `2026-07-31T14:00`.
fn show_minute(moment: Timestamp) -> String {
    moment.to_string().chars().take(16).collect()
}
