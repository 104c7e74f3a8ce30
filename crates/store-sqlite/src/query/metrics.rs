//! The figures for monitoring.

use std::collections::HashMap;

use gristmill_model::{BatchId, Timestamp};
use gristmill_store::metrics::{EndedJobs, LanesBuilder, by_lane};
use gristmill_store::{LaneMetrics, StoreMetrics};
use rusqlite::{Connection, params};

use crate::failure::Result;
use crate::transaction::Transaction;
use crate::worker::hops::hops_of;

/// Open jobs by lane: how many wait, are due and run, in how many rows, and when the oldest became due: a step of a flow stands
/// before its flow, but is due only since its batch was stored. Slices are in the order of lanes, so nothing is sorted, and one seek
/// finds the batch of each.
const OPEN: &str = "SELECT s.lane_id, sum(s.count), sum(iif(s.run_at <= ?1, s.count, 0)), 0, \
     min(iif(s.run_at <= ?1, max(s.run_at, b.submitted_at), NULL)), count(*) FROM slice s LEFT JOIN batch b ON b.id = s.batch_id \
     GROUP BY s.lane_id \
     UNION ALL SELECT b.lane_id, 0, 0, sum(h.count), NULL, count(*) FROM held h JOIN batch b ON b.id = h.batch_id GROUP BY 1 \
     UNION ALL SELECT b.lane_id, sum(w.count), 0, 0, NULL, count(*) FROM blocked w JOIN batch b ON b.id = w.batch_id GROUP BY 1";

/// The figures of the store.
pub(crate) fn metrics(connection: &Connection, now: Timestamp) -> Result<StoreMetrics> {
    let mut lanes = LanesBuilder::default();
    let mut statement = connection.prepare_cached(
        "SELECT l.id, l.kind, l.queue, s.ended FROM lane l LEFT JOIN lane_stat s ON s.lane_id = l.id",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let lane = lanes.lane(row.get(0)?);
        lane.kind = row.get(1)?;
        lane.queue = row.get(2)?;
        if let Some(ended) = row.get::<_, Option<String>>(3)? {
            lane.ended = serde_json::from_str(&ended)?;
        }
    }
    add_open(connection, now, &mut lanes)?;
    let number = |sql: &str| -> Result<u64> {
        let number: i64 = connection.query_row(sql, [], |row| row.get(0))?;
        Ok(number.unsigned_abs())
    };
    Ok(StoreMetrics {
        lanes: lanes.finish(),
        hops: hops_of(connection)?,
        workers: number("SELECT count(*) FROM worker")?,
        size_bytes: number("PRAGMA page_count")? * number("PRAGMA page_size")?,
    })
}

/// The open jobs by kind and queue.
pub(crate) fn open_lanes(connection: &Connection, now: Timestamp) -> Result<Vec<LaneMetrics>> {
    let mut lanes = LanesBuilder::default();
    let mut statement = connection.prepare_cached("SELECT id, kind, queue FROM lane")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let lane = lanes.lane(row.get(0)?);
        lane.kind = row.get(1)?;
        lane.queue = row.get(2)?;
    }
    add_open(connection, now, &mut lanes)?;
    Ok(lanes.finish())
}

/// Adds the open jobs of each lane.
fn add_open(connection: &Connection, now: Timestamp, lanes: &mut LanesBuilder) -> Result<()> {
    let mut statement = connection.prepare_cached(OPEN)?;
    let mut rows = statement.query([now.0])?;
    while let Some(row) = rows.next()? {
        let lane = lanes.lane(row.get(0)?);
        let jobs = |column| -> Result<u64> { Ok(row.get::<_, i64>(column)?.unsigned_abs()) };
        lane.waiting += jobs(1)?;
        lane.due += jobs(2)?;
        lane.running += jobs(3)?;
        lane.pieces += jobs(5)?;
        if let Some(at) = row.get::<_, Option<i64>>(4)? {
            lane.oldest_due_at = Some(Timestamp(at));
        }
    }
    Ok(())
}

impl Transaction<'_> {
    /// Adds ended jobs to the counts of their lanes.
    pub fn add_ended(&mut self, ended: &[(BatchId, EndedJobs)]) -> Result<()> {
        let mut lanes = HashMap::with_capacity(ended.len());
        for (batch, _) in ended {
            let lane = self.row("SELECT lane_id FROM batch WHERE id = ?1", [batch.0], |row| {
                row.get(0)
            })?;
            lanes.extend(lane.map(|lane: i64| (*batch, lane)));
        }
        for (lane, ended) in by_lane(ended, &lanes) {
            self.add_ended_of_lane(lane, &ended)?;
        }
        Ok(())
    }

    /// Adds ended jobs to the counts of a lane.
    pub fn add_ended_of_lane(&mut self, lane: i64, ended: &EndedJobs) -> Result<()> {
        let known: Option<String> =
            self.row("SELECT ended FROM lane_stat WHERE lane_id = ?1", [lane], |row| {
                row.get(0)
            })?;
        let mut total: EndedJobs = match known {
            Some(known) => serde_json::from_str(&known)?,
            None => EndedJobs::default(),
        };
        total.add(ended);
        self.execute(
            "INSERT OR REPLACE INTO lane_stat (lane_id, ended) VALUES (?1, ?2)",
            params![lane, serde_json::to_string(&total)?],
        )?;
        Ok(())
    }
}
