//! Compacts the small reports of ended batches. The view `reported` returns them as they came.

use gristmill_model::limits::{
    COMPACTED_BATCHES_BACK, COMPACTED_BATCHES_PER_TRANSACTION, COMPACTED_BYTES_MAX, SMALL_REPORT_BYTES_MAX,
};
use gristmill_model::{BatchId, Positions};
use gristmill_store::StoreError;
use gristmill_store::rules::compaction::portion;
use rusqlite::{Connection, params};

use crate::SqliteStore;
use crate::columns::{POSITION_BITS, read_positions};
use crate::commit::DURATIONS_READ_MAX;
use crate::failure::Result;
use crate::query::report_ids;
use crate::transaction::Transaction;

/// Whether a report is small, and what it weighs in bytes.
const BYTES: &str = "coalesce(octet_length(r.durations), 0) + coalesce(octet_length(r.logs), 0) \
     + coalesce(octet_length(r.\"values\"), 0)";

/// The next batches to compact after this one, by id.
pub(crate) fn candidates(connection: &Connection, after: BatchId, reports_max: u32) -> Result<Vec<BatchId>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT b.id, total(iif(r.state = 'completed' AND r.parts IS NULL AND {BYTES} <= ?4, 1, 0)) AS reports, \
         total(iif(r.state = 'completed' AND r.parts IS NULL AND {BYTES} <= ?4, {BYTES}, 0)) AS bytes \
         FROM batch b CROSS JOIN report r ON r.id >= b.id << {POSITION_BITS} AND r.id < (b.id + 1) << {POSITION_BITS} \
         WHERE b.id > max(?1, (SELECT max(id) FROM batch) - ?2) \
         GROUP BY b.id HAVING sum(r.count) = b.count AND reports > ?3 AND bytes <= ?5 ORDER BY b.id LIMIT ?6"
    ))?;
    let rows = statement.query_map(
        params![
            after.0,
            COMPACTED_BATCHES_BACK,
            reports_max,
            SMALL_REPORT_BYTES_MAX,
            COMPACTED_BYTES_MAX,
            COMPACTED_BATCHES_PER_TRANSACTION
        ],
        |row| Ok((BatchId(row.get(0)?), row.get::<_, f64>(2)? as u64)),
    )?;
    Ok(portion(rows.collect::<rusqlite::Result<_>>()?))
}

/// The contents of a row that replaces several.
struct Merged {
    attempt: u32,
    count: u32,
    finished_at: i64,
    sum_us: i64,
    parts: String,
    bodies: String,
}

impl Transaction<'_> {
    /// Compacts those of the batches that are still ended. Returns how many reports it removed.
    pub fn compact(&self, batches: &[BatchId], reports_max: u32) -> Result<u64> {
        let mut gone = 0;
        for batch in batches {
            gone += self.compact_batch(*batch, reports_max)?;
        }
        Ok(gone)
    }

    fn compact_batch(&self, batch: BatchId, reports_max: u32) -> Result<u64> {
        let [first, last] = report_ids(batch);
        let is_ended: Option<bool> = self.row(
            "SELECT b.count = (SELECT coalesce(sum(count), 0) FROM report WHERE id BETWEEN ?2 AND ?3) FROM batch b \
             WHERE b.id = ?1",
            [batch.0, first, last],
            |row| row.get(0),
        )?;
        if is_ended != Some(true) {
            return Ok(0);
        }
        let small = format!(
            "SELECT r.* FROM report r WHERE r.id BETWEEN ?1 AND ?2 AND r.state = 'completed' AND r.parts IS NULL \
             AND {BYTES} <= {SMALL_REPORT_BYTES_MAX}"
        );
        let (mut ids, mut positions, mut bytes) = (Vec::new(), Positions::new(), 0);
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT r.id, r.positions, {BYTES} FROM ({small}) r ORDER BY r.id"
        ))?;
        let mut rows = statement.query([first, last])?;
        while let Some(row) = rows.next()? {
            ids.push(row.get::<_, i64>(0)?);
            positions = positions.union(&read_positions(row, 1)?);
            bytes += row.get::<_, i64>(2)?;
        }
        drop(rows);
        let Some(id) = ids.first().copied() else {
            return Ok(0);
        };
        if ids.len() <= reports_max as usize || bytes > i64::from(COMPACTED_BYTES_MAX) {
            return Ok(0);
        }
        let merged: Option<Merged> = self.row(
            &format!(
                "SELECT max(attempt), sum(count), max(finished_at), sum(sum_us), \
                 json_group_array(json_object('id', id, 'attempt', attempt, 'count', count, 'finished_at', finished_at, \
                 'worker', worker, 'positions', positions, 'sum', sum, 'sum_us', stored_us, 'buckets', buckets, 'short', \
                 iif(count <= {DURATIONS_READ_MAX} AND stored_us IS NULL, durations, NULL)) ORDER BY id), \
                 json_group_array(json_object('durations', durations, 'logs', logs, 'values', \"values\") ORDER BY id) FROM ( \
                 SELECT r.*, d.sum_us AS stored_us, d.buckets, \
                 coalesce(d.sum_us, (SELECT sum(value) FROM json_each(r.durations)), 0) AS sum_us \
                 FROM ({small}) r LEFT JOIN report_durations d ON d.id = r.id)"
            ),
            [first, last],
            |row| {
                Ok(Merged {
                    attempt: row.get(0)?,
                    count: row.get(1)?,
                    finished_at: row.get(2)?,
                    sum_us: row.get(3)?,
                    parts: row.get(4)?,
                    bodies: row.get(5)?,
                })
            },
        )?;
        let Some(merged) = merged else { return Ok(0) };
        for gone in &ids {
            self.execute("DELETE FROM report_durations WHERE id = ?1", [gone])?;
        }
        for gone in &ids[1..] {
            self.execute("DELETE FROM report WHERE id = ?1", [gone])?;
        }
        self.execute(
            "UPDATE report SET attempt = ?2, count = ?3, finished_at = ?4, parts = ?5, bodies = ?6, positions = ?7, \
             worker = NULL, sum = NULL, durations = NULL, logs = NULL, \"values\" = NULL WHERE id = ?1",
            params![
                id,
                merged.attempt,
                merged.count,
                merged.finished_at,
                merged.parts,
                merged.bodies,
                positions.to_string()
            ],
        )?;
        // For the mean of a kind; the parts have the buckets.
        self.execute(
            "INSERT INTO report_durations (id, lane_id, count, batch_count, finished_at, sum_us, buckets) \
             SELECT ?1, lane_id, 0, count, ?2, ?3, '' FROM batch WHERE id = ?4",
            params![id, merged.finished_at, merged.sum_us, batch.0],
        )?;
        Ok(ids.len() as u64 - 1)
    }
}

impl SqliteStore {
    /// Compacts the reports of one portion of batches after the other.
    pub(crate) async fn compact_in_portions(&self, reports_max: u32) -> std::result::Result<u64, StoreError> {
        let (mut total, mut after) = (0, BatchId(0));
        loop {
            let batches = self
                .read(move |connection| candidates(connection, after, reports_max))
                .await?;
            let Some(last) = batches.last() else {
                self.total_in_portions().await?;
                return Ok(total);
            };
            after = *last;
            total += self
                .write(0, move |transaction| transaction.compact(&batches, reports_max))
                .await?;
        }
    }
}
