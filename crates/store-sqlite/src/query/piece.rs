//! The places of the jobs of a batch.

use gristmill_model::{BatchId, Timestamp};
use gristmill_store::rules::piece::Piece;
use rusqlite::{Connection, OptionalExtension, Params, Row};

use crate::columns::{read_pauses, read_state};
use crate::failure::{Failure, Result};
use crate::query::batches::report_ids;
use crate::sums::{damaged, in_batch, is_report_of, read_counted, read_rank};

/// The places of all jobs of a batch.
pub(super) fn pieces(connection: &Connection, now: Timestamp, batch: BatchId) -> Result<Vec<Piece>> {
    let mut all = Vec::new();
    for table in TABLES {
        all.append(&mut pieces_in(connection, now, batch, table)?);
    }
    let mut statement = connection.prepare_cached("SELECT count FROM batch WHERE id = ?1")?;
    let count: Option<u32> = statement.query_row([batch.0], |row| row.get(0)).optional()?;
    let found: u32 = all.iter().map(|piece| piece.positions.len()).sum();
    match count {
        Some(count) if count != found => {
            let what = format!("it has {count} jobs, and its rows have {found}");
            Err(damaged(batch, "batch", what))
        }
        _ => Ok(all),
    }
}

/// The tables that have the places of jobs: each job is in one row of one of them.
pub(super) const TABLES: [&str; 4] = ["report", "slice", "held", "blocked"];

/// The places of the jobs of a batch that are in one of the [`TABLES`].
pub(super) fn pieces_in(
    connection: &Connection,
    now: Timestamp,
    batch: BatchId,
    table: &'static str,
) -> Result<Vec<Piece>> {
    let read = match table {
        "report" => read_pieces(
            connection,
            "SELECT positions, count, state, attempt, finished_at, worker, id FROM reported WHERE row_id BETWEEN ?1 AND ?2",
            report_ids(batch),
            |row| read_report(batch, row),
        ),
        "slice" => read_pieces(
            connection,
            "SELECT s.positions, s.count, s.attempt, s.run_at, s.rank FROM batch b CROSS JOIN slice s ON s.lane_id = b.lane_id \
             AND s.rank = -b.priority AND s.run_at = b.run_at AND s.batch_id = b.id WHERE b.id = ?1 \
             UNION ALL SELECT positions, count, attempt, run_at, rank FROM slice WHERE strayed = 1 AND batch_id = ?1",
            [batch.0],
            |row| {
                let (attempt, run_at) = (row.get(2)?, Timestamp(row.get(3)?));
                let positions = read_counted(row, 0, 1)?;
                Ok(Piece::claimable(
                    positions,
                    attempt,
                    read_rank(row, 4)?,
                    run_at,
                    now,
                ))
            },
        ),
        "held" => read_pieces(
            connection,
            "SELECT h.positions, h.count, h.attempt, h.rank, w.name, h.pauses, h.claimed_at FROM held h \
             LEFT JOIN worker w ON w.id = h.worker_id WHERE h.batch_id = ?1",
            [batch.0],
            |row| {
                let claimed_at: Option<i64> = row.get(6)?;
                let positions = read_counted(row, 0, 1)?;
                let (attempt, rank, worker) = (row.get(2)?, row.get(3)?, row.get(4)?);
                let claimed_at = claimed_at.map(Timestamp);
                Ok(Piece::running(
                    positions,
                    attempt,
                    rank,
                    claimed_at,
                    worker,
                    read_pauses(row, 5)?,
                ))
            },
        ),
        _ => read_pieces(
            connection,
            "SELECT positions, count, attempt, rank, pauses FROM blocked WHERE batch_id = ?1",
            [batch.0],
            |row| {
                let positions = read_counted(row, 0, 1)?;
                Ok(Piece::blocked(
                    positions,
                    row.get(2)?,
                    row.get(3)?,
                    read_pauses(row, 4)?,
                ))
            },
        ),
    };
    in_batch(batch, table, read)
}

fn read_report(batch: BatchId, row: &Row<'_>) -> Result<Piece> {
    let (positions, id): (_, i64) = (read_counted(row, 0, 1)?, row.get(6)?);
    if !is_report_of(id, batch, &positions) {
        return Err(Failure::Damaged(format!(
            "a report of jobs `{positions}` has the id {id}"
        )));
    }
    Ok(Piece {
        positions,
        state: read_state(row, 2)?,
        attempt: row.get(3)?,
        rank: None,
        run_at: None,
        pauses: None,
        finished_at: Some(Timestamp(row.get(4)?)),
        claimed_at: None,
        worker: row.get(5)?,
        report: Some(id),
    })
}

fn read_pieces(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    read: impl Fn(&Row<'_>) -> Result<Piece>,
) -> Result<Vec<Piece>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(read(row)?);
    }
    Ok(all)
}
