//! `GET /stats`: totals of the store.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::queues::QueueCounts;
use crate::app::App;
use crate::body::{NoQuery, Query};
use crate::error::{ApiError, Refusal};

/// The batches that one hop moved.
#[derive(Debug, Serialize, ToSchema)]
pub struct HopView {
    /// Batches moved.
    batches: u64,
    /// Items of all batches together.
    items: u64,
    /// Items of the largest batch.
    items_max: u64,
    /// The mean number of items in a batch; 0 before the first.
    items_mean: f64,
    /// Batches by end reason: full, drained, bytes, deadline, limit.
    end_reasons: BTreeMap<String, u64>,
}

/// The size of a table on disk.
#[derive(Debug, Serialize, ToSchema)]
pub struct TableView {
    /// Its name.
    table: String,
    /// Bytes of its rows, long columns included.
    row_bytes: u64,
    /// Bytes of its indexes.
    index_bytes: u64,
    /// An estimate of its dead rows.
    rows_dead: u64,
}

/// Totals of the store.
#[derive(Debug, Serialize, ToSchema)]
pub struct Stats {
    /// Jobs by queue, kind and state.
    queues: Vec<QueueCounts>,
    /// Batches by hop (submit, claim, run, commit), since the store was made.
    hops: BTreeMap<String, HopView>,
    /// Registered workers.
    workers: u64,
    /// Submitted batches.
    batches: u64,
    /// Claimable pieces of them.
    slices: u64,
    /// Claims that are held.
    leases: u64,
    /// Packed outcomes.
    reports: u64,
    /// Failed attempts.
    failures: u64,
    /// Bytes of the database on disk.
    size_bytes: u64,
    /// The sizes of the tables, the largest first; empty for SQLite.
    tables: Vec<TableView>,
}

/// Show totals
#[utoipa::path(
    get,
    path = "/stats",
    tag = "watching",
    operation_id = "stats",
    responses(
        (status = 200, description = "Totals of the store", body = Stats),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn stats(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<Stats>, ApiError> {
    let stats = app.store().stats().await?;
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
    Ok(Json(Stats {
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
    }))
}
