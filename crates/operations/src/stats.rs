//! Totals of the store.

use std::collections::BTreeMap;

use gristmill_engine::Engine;
use gristmill_store::KindCounts;
use serde::Serialize;

use crate::refused::Refused;

/// The jobs of one kind on one queue, by state.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct QueueCounts {
    /// The queue.
    pub queue: String,
    /// The kind.
    pub kind: String,
    /// Ready to be claimed.
    waiting: u64,
    /// Waiting for their time.
    scheduled: u64,
    /// Waiting for other jobs.
    blocked: u64,
    /// Held by their own pauses.
    paused: u64,
    /// Held by a worker.
    running: u64,
    /// Ended with a value.
    completed: u64,
    /// Out of attempts.
    dead: u64,
    /// Ended by a cancel.
    cancelled: u64,
    /// Ended because no worker started them in time.
    expired: u64,
}

/// The batches of one hop.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HopView {
    /// The number of batches.
    batches: u64,
    /// The number of items in all batches.
    items: u64,
    /// The number of items in the largest batch.
    items_max: u64,
    /// The mean number of items in a batch; 0 before the first.
    items_mean: f64,
    /// Batches by end reason: full, drained, bytes, deadline, limit.
    end_reasons: BTreeMap<String, u64>,
}

/// The size of a table on disk.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TableView {
    /// Its name.
    table: String,
    /// The bytes of its rows, including long columns.
    row_bytes: u64,
    /// The bytes of its indexes.
    index_bytes: u64,
    /// An estimate of its dead rows.
    rows_dead: u64,
}

/// Totals of the store.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Stats {
    /// The jobs by queue, kind and state.
    queues: Vec<QueueCounts>,
    /// The batches by hop (submit, claim, run, commit), since the store was created.
    hops: BTreeMap<String, HopView>,
    /// The number of registered workers.
    workers: u64,
    /// The number of submitted batches.
    batches: u64,
    /// The number of claimable pieces of batches.
    slices: u64,
    /// The number of held claims.
    leases: u64,
    /// The number of packed outcomes.
    reports: u64,
    /// The number of failed attempts.
    failures: u64,
    /// The bytes of the database on disk.
    size_bytes: u64,
    /// The sizes of the tables, the largest first; empty for SQLite.
    tables: Vec<TableView>,
}

impl From<&KindCounts> for QueueCounts {
    fn from(kind: &KindCounts) -> Self {
        let counts = kind.counts;
        QueueCounts {
            queue: kind.queue.to_string(),
            kind: kind.kind.to_string(),
            waiting: counts.waiting,
            scheduled: counts.scheduled,
            blocked: counts.blocked,
            paused: counts.paused,
            running: counts.running,
            completed: counts.completed,
            dead: counts.dead,
            cancelled: counts.cancelled,
            expired: counts.expired,
        }
    }
}

/// Reads the totals of the store.
pub async fn stats(engine: &Engine) -> Result<Stats, Refused> {
    let stats = engine.store().stats().await?;
    let hops = stats.hops.hops.into_iter().map(|(hop, moved)| {
        let items_mean = moved.items_mean();
        let end_reasons = moved
            .end_reasons
            .into_iter()
            .map(|(reason, batches)| (reason.as_str().to_owned(), batches))
            .collect();
        let view = HopView {
            batches: moved.batches,
            items: moved.items,
            items_max: moved.items_max,
            items_mean,
            end_reasons,
        };
        (hop, view)
    });
    let tables = stats.tables.into_iter().map(|table| TableView {
        table: table.table,
        row_bytes: table.row_bytes,
        index_bytes: table.index_bytes,
        rows_dead: table.rows_dead,
    });
    Ok(Stats {
        queues: stats.kinds.iter().map(Into::into).collect(),
        hops: hops.collect(),
        workers: stats.workers,
        batches: stats.batches,
        slices: stats.slices,
        leases: stats.leases,
        reports: stats.reports,
        failures: stats.failures,
        size_bytes: stats.size_bytes,
        tables: tables.collect(),
    })
}
