//! Totals.
//!
//! Every job of a batch is in a slice, in a lease, in a report or in `blocked`. So the number of completed jobs is that
//! of the batches minus all others. The reports of successes, which are by far the most rows, are not read.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gristmill_batching::{BatchStats, EndReason, HopStats};
use gristmill_model::{BatchId, JobState, Timestamp};
use gristmill_store::rules::lanes::group;
use gristmill_store::rules::piece::count;
use gristmill_store::{BatchSummary, JobCounts, JobFilter, KindCounts, StoreStats, TableSize};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::database::columns::{number, read_state, sum};
use crate::database::snapshot::Snapshot;
use crate::failure::{Failure, Result};
use crate::limits::COUNTED_BATCHES_PER_STATEMENT;
use crate::query::filter::Conditions;
use crate::query::job::matching;
use crate::query::piece::pieces;
use crate::query::tag::narrowed;

/// The counted jobs.
#[derive(Debug, Default)]
struct Totals {
    by_lane: BTreeMap<i32, JobCounts>,
    batches: u64,
    slices: u64,
}

/// How many matching jobs there are, by state.
pub(crate) async fn counts(snapshot: &Snapshot, now: Timestamp, filter: &JobFilter) -> Result<JobCounts> {
    let mut total = JobCounts::default();
    if let Some(narrowed) = narrowed(snapshot, filter).await? {
        let batches = matching(snapshot, filter, Some(&narrowed), BatchId(0), i64::MAX).await?;
        for batches in batches.chunks(COUNTED_BATCHES_PER_STATEMENT) {
            let ids: Vec<i64> = batches.iter().map(|(batch, _)| batch.0).collect();
            for (batch, pieces) in pieces(snapshot, now, &ids).await? {
                count(&pieces, &filter.states, &narrowed[&batch], &mut total);
            }
        }
        return Ok(total);
    }
    for mut counts in totals(snapshot, now, filter).await?.by_lane.into_values() {
        for state in JobState::ALL {
            if filter.states.is_empty() || filter.states.contains(&state) {
                *total.get_mut(state) += *counts.get_mut(state);
            }
        }
    }
    Ok(total)
}

async fn totals(snapshot: &Snapshot, now: Timestamp, filter: &JobFilter) -> Result<Totals> {
    let counts_completed = filter.states.is_empty() || filter.states.contains(&JobState::Completed);
    let conditions = Conditions::of(filter);
    let on_batch = conditions.on("b");
    let (slices, on_slice) = if filter.names_batches() || filter.no_steps {
        (
            "gristmill.slice s JOIN gristmill.batch b ON b.id = s.batch_id",
            on_batch.clone(),
        )
    } else {
        ("gristmill.slice s", conditions.on("s"))
    };
    let batches = format!(
        "SELECT b.lane_id, sum(b.count), count(*) FROM gristmill.batch b WHERE {on_batch} GROUP BY b.lane_id"
    );
    let params = conditions.params();
    let slices = format!(
        "SELECT s.lane_id, CASE WHEN s.run_at <= ${} THEN 'waiting' ELSE 'scheduled' END, sum(s.count), count(*) \
         FROM {slices} WHERE {on_slice} GROUP BY 1, 2",
        params.len() + 1
    );
    let mut slices_params = params.clone();
    slices_params.push(&now.0);
    let held = format!(
        "SELECT b.lane_id, 'running', sum(h.count) FROM gristmill.held h \
         JOIN gristmill.batch b ON b.id = h.batch_id WHERE {on_batch} GROUP BY b.lane_id"
    );
    let blocked = format!(
        "SELECT b.lane_id, CASE WHEN w.pauses IS NULL THEN 'blocked' ELSE 'paused' END, sum(w.count) FROM gristmill.blocked w \
         JOIN gristmill.batch b ON b.id = w.batch_id WHERE {on_batch} GROUP BY 1, 2"
    );
    let unsuccessful = format!(
        "SELECT b.lane_id, r.state, sum(r.count) FROM gristmill.report r \
         JOIN gristmill.batch b ON b.id = r.batch_id WHERE r.state <> 'completed' AND {on_batch} GROUP BY b.lane_id, r.state"
    );
    let (slices, held, blocked, unsuccessful) = tokio::try_join!(
        snapshot.query(&slices, &slices_params),
        snapshot.query(&held, &params),
        snapshot.query(&blocked, &params),
        snapshot.query(&unsuccessful, &params),
    )?;
    let mut totals = Totals::default();
    for row in slices.iter().chain(&held).chain(&blocked).chain(&unsuccessful) {
        let counts = totals.by_lane.entry(row.try_get(0)?).or_default();
        *counts.get_mut(read_state(row, 1)?) += sum(row, 2)?;
    }
    for row in &slices {
        totals.slices += sum(row, 3)?;
    }
    if counts_completed {
        for row in snapshot.query(&batches, &params).await? {
            let lane: i32 = row.try_get(0)?;
            let counts = totals.by_lane.entry(lane).or_default();
            let (jobs, others) = (sum(&row, 1)?, counts.total());
            counts.completed = jobs.checked_sub(others).ok_or_else(|| {
                Failure::Damaged(format!(
                    "the batches of lane {lane} have {jobs} jobs, and {others} of them have not completed"
                ))
            })?;
            totals.batches += sum(&row, 2)?;
        }
    }
    Ok(totals)
}

/// The open and unsuccessful jobs of batches, by state.
const STATES_OF_BATCHES: &str = "SELECT batch_id, CASE WHEN run_at <= $2 THEN 'waiting' ELSE 'scheduled' END, sum(count) \
     FROM gristmill.slice WHERE batch_id = ANY ($1) GROUP BY 1, 2 \
     UNION ALL SELECT batch_id, 'running', sum(count) FROM gristmill.held WHERE batch_id = ANY ($1) GROUP BY 1 \
     UNION ALL SELECT batch_id, CASE WHEN pauses IS NULL THEN 'blocked' ELSE 'paused' END, sum(count) \
     FROM gristmill.blocked WHERE batch_id = ANY ($1) GROUP BY 1, 2 \
     UNION ALL SELECT batch_id, state, sum(count) FROM gristmill.report \
     WHERE batch_id = ANY ($1) AND state IN ('dead', 'cancelled', 'expired') AND state <> 'completed' GROUP BY 1, 2";

/// Summaries of these batches, with the states of their jobs.
pub(crate) async fn batch_summaries(
    snapshot: &Snapshot,
    now: Timestamp,
    batches: &[BatchId],
) -> Result<Vec<BatchSummary>> {
    let ids: Vec<i64> = batches.iter().map(|batch| batch.0).collect();
    let of_batches: [&(dyn ToSql + Sync); 1] = [&ids];
    let of_states: [&(dyn ToSql + Sync); 2] = [&ids, &now.0];
    let (rows, states) = tokio::try_join!(
        snapshot.query(
            "SELECT b.id, l.kind, l.queue, l.job_group, b.submitted_at, b.count FROM gristmill.batch b \
             JOIN gristmill.lane l ON l.id = b.lane_id WHERE b.id = ANY ($1) ORDER BY b.id",
            &of_batches,
        ),
        snapshot.query(STATES_OF_BATCHES, &of_states),
    )?;
    let mut counts: HashMap<BatchId, JobCounts> = HashMap::with_capacity(rows.len());
    for row in &states {
        let of_batch = counts.entry(BatchId(row.try_get(0)?)).or_default();
        *of_batch.get_mut(read_state(row, 1)?) += sum(row, 2)?;
    }
    let summary = |row: &Row| -> Result<BatchSummary> {
        let batch = BatchId(row.try_get(0)?);
        let mut counts = counts.remove(&batch).unwrap_or_default();
        let (jobs, others) = (u64::from(number(row, 5)?), counts.total());
        counts.completed = jobs.checked_sub(others).ok_or_else(|| {
            Failure::Damaged(format!(
                "batch {batch} has {jobs} jobs, and {others} of them have not completed"
            ))
        })?;
        Ok(BatchSummary {
            batch,
            kind: row.try_get::<_, &str>(1)?.into(),
            queue: row.try_get::<_, &str>(2)?.into(),
            group: group(row.try_get::<_, &str>(3)?.into()),
            submitted_at: Timestamp(row.try_get(4)?),
            counts,
        })
    };
    rows.iter().map(summary).collect()
}

/// The numbers of jobs by queue, kind and state.
pub(crate) async fn kind_counts(
    snapshot: &Snapshot,
    now: Timestamp,
    no_steps: bool,
) -> Result<Vec<KindCounts>> {
    let filter = JobFilter {
        no_steps,
        ..JobFilter::default()
    };
    let totals = totals(snapshot, now, &filter).await?;
    kinds_of(snapshot, &totals).await
}

/// Adds up the lanes of all groups of a kind and queue.
async fn kinds_of(snapshot: &Snapshot, totals: &Totals) -> Result<Vec<KindCounts>> {
    let mut kinds: Vec<KindCounts> = Vec::new();
    for row in snapshot
        .query(
            "SELECT id, kind, queue FROM gristmill.lane ORDER BY queue, kind",
            &[],
        )
        .await?
    {
        if let Some(counts) = totals.by_lane.get(&row.try_get(0)?) {
            let (kind, queue) = (row.try_get::<_, &str>(1)?, row.try_get::<_, &str>(2)?);
            match kinds.last_mut() {
                // The lane of another group.
                Some(last) if *last.kind == *kind && *last.queue == *queue => last.counts.add(counts),
                _ => kinds.push(KindCounts {
                    kind: Arc::from(kind),
                    queue: Arc::from(queue),
                    counts: *counts,
                }),
            }
        }
    }
    Ok(kinds)
}

/// The totals of the store.
pub(crate) async fn stats(snapshot: &Snapshot, now: Timestamp) -> Result<StoreStats> {
    let totals = totals(snapshot, now, &JobFilter::default()).await?;
    let kinds = kinds_of(snapshot, &totals).await?;
    let rows = snapshot
        .query(
            "SELECT (SELECT count(*) FROM gristmill.worker), (SELECT count(DISTINCT lease_id) FROM gristmill.held), \
             (SELECT count(*) FROM gristmill.report), (SELECT count(*) FROM gristmill.failure)",
            &[],
        )
        .await?;
    let row = rows
        .first()
        .ok_or_else(|| Failure::Damaged("a query without a table gave no row".to_owned()))?;
    let tables = tables(snapshot).await?;
    Ok(StoreStats {
        kinds,
        hops: hops(snapshot).await?,
        workers: sum(row, 0)?,
        batches: totals.batches,
        slices: totals.slices,
        leases: sum(row, 1)?,
        reports: sum(row, 2)?,
        failures: sum(row, 3)?,
        size_bytes: tables
            .iter()
            .map(|table| table.row_bytes + table.index_bytes)
            .sum(),
        tables,
    })
}

/// The sizes of the store's tables on disk, largest first.
async fn tables(snapshot: &Snapshot) -> Result<Vec<TableSize>> {
    let rows = snapshot
        .query(
            "SELECT relname::text, pg_table_size(oid), pg_indexes_size(oid), pg_stat_get_dead_tuples(oid) FROM pg_class \
             WHERE relnamespace = 'gristmill'::regnamespace AND relkind = 'r' ORDER BY pg_total_relation_size(oid) DESC, relname",
            &[],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(TableSize {
                table: row.try_get(0)?,
                row_bytes: sum(row, 1)?,
                index_bytes: sum(row, 2)?,
                rows_dead: sum(row, 3)?,
            })
        })
        .collect()
}

/// Batch statistics, totalled since the store was made.
pub(super) async fn hops(snapshot: &Snapshot) -> Result<BatchStats> {
    let rows = snapshot
        .query(
            "SELECT hop, batches, items, items_max, ended_full, ended_drained, ended_bytes, ended_deadline, ended_limit \
             FROM gristmill.hop_stat",
            &[],
        )
        .await?;
    let reasons = [
        EndReason::Full,
        EndReason::Drained,
        EndReason::Bytes,
        EndReason::Deadline,
        EndReason::Limit,
    ];
    let mut total = BatchStats::default();
    for row in &rows {
        let mut stats = HopStats {
            batches: sum(row, 1)?,
            items: sum(row, 2)?,
            items_max: sum(row, 3)?,
            ..HopStats::default()
        };
        for (column, reason) in (4..).zip(reasons) {
            let batches = sum(row, column)?;
            if batches > 0 {
                stats.end_reasons.insert(reason, batches);
            }
        }
        total.hops.insert(row.try_get(0)?, stats);
    }
    Ok(total)
}
