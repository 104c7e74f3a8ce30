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

/// The batches of one hop.
#[derive(Debug, Serialize, ToSchema)]
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
#[derive(Debug, Serialize, ToSchema)]
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
#[derive(Debug, Serialize, ToSchema)]
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
