//! Where the jobs of a batch stand.

use gristmill_model::{BatchId, Timestamp};
use gristmill_store::rules::piece::Piece;
use rusqlite::Connection;

use crate::columns::{read_pauses, read_positions, read_state};
use crate::failure::Result;
use crate::query::batches::report_ids;

/// Where all jobs of a batch stand.
pub(super) fn pieces(connection: &Connection, now: Timestamp, batch: BatchId) -> Result<Vec<Piece>> {
    let mut all = Vec::new();
    let mut statement = connection.prepare_cached(
        "SELECT positions, state, attempt, finished_at, worker, id FROM reported WHERE row_id BETWEEN ?1 AND ?2",
    )?;
    let mut rows = statement.query(report_ids(batch))?;
    while let Some(row) = rows.next()? {
        all.push(Piece {
            positions: read_positions(row, 0)?,
            state: read_state(row, 1)?,
            attempt: row.get(2)?,
            rank: None,
            run_at: None,
            pauses: None,
            finished_at: Some(Timestamp(row.get(3)?)),
            claimed_at: None,
            worker: row.get(4)?,
            report: Some(row.get(5)?),
        });
    }
    let mut statement = connection.prepare_cached(
        "SELECT s.positions, s.attempt, s.run_at, s.rank FROM batch b CROSS JOIN slice s ON s.lane_id = b.lane_id \
         AND s.rank = -b.priority AND s.run_at = b.run_at AND s.batch_id = b.id WHERE b.id = ?1 \
         UNION ALL SELECT positions, attempt, run_at, rank FROM slice WHERE strayed = 1 AND batch_id = ?1",
    )?;
    let mut rows = statement.query([batch.0])?;
    while let Some(row) = rows.next()? {
        let run_at = Timestamp(row.get(2)?);
        all.push(Piece::claimable(
            read_positions(row, 0)?,
            row.get(1)?,
            row.get(3)?,
            run_at,
            now,
        ));
    }
    let mut statement = connection.prepare_cached(
        "SELECT h.positions, h.attempt, h.rank, w.name, h.pauses, h.claimed_at FROM held h LEFT JOIN worker w ON w.id = h.worker_id \
         WHERE h.batch_id = ?1",
    )?;
    let mut rows = statement.query([batch.0])?;
    while let Some(row) = rows.next()? {
        let claimed_at: Option<i64> = row.get(5)?;
        all.push(Piece::running(
            read_positions(row, 0)?,
            row.get(1)?,
            row.get(2)?,
            claimed_at.map(Timestamp),
            row.get(3)?,
            read_pauses(row, 4)?,
        ));
    }
    let mut statement = connection
        .prepare_cached("SELECT positions, attempt, rank, pauses FROM blocked WHERE batch_id = ?1")?;
    let mut rows = statement.query([batch.0])?;
    while let Some(row) = rows.next()? {
        all.push(Piece::blocked(
            read_positions(row, 0)?,
            row.get(1)?,
            row.get(2)?,
            read_pauses(row, 3)?,
        ));
    }
    Ok(all)
}
