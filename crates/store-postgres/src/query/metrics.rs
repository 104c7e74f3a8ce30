//! The figures for monitoring.

use std::collections::{BTreeMap, HashMap};

use gristmill_model::{BatchId, Timestamp};
use gristmill_store::metrics::{EndedJobs, LanesBuilder, by_lane};
use gristmill_store::{LaneMetrics, StoreMetrics};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::database::columns::sum;
use crate::database::snapshot::Snapshot;
use crate::database::transaction::Transaction;
use crate::failure::Result;
use crate::query::counts::hops;

/// Open jobs by lane: how many wait, are due and run, in how many rows, and when the oldest became due: a step of
/// a flow stands before its flow, but is due only since its batch was stored.
const OPEN: &str = "SELECT s.lane_id, sum(s.count)::bigint, coalesce(sum(s.count) FILTER (WHERE s.run_at <= $1), 0)::bigint, 0::bigint, \
     min(greatest(s.run_at, b.submitted_at)) FILTER (WHERE s.run_at <= $1), count(*) FROM gristmill.slice s \
     LEFT JOIN gristmill.batch b ON b.id = s.batch_id GROUP BY 1 \
     UNION ALL SELECT b.lane_id, 0, 0, sum(h.count)::bigint, NULL, count(*) FROM gristmill.held h \
     JOIN gristmill.batch b ON b.id = h.batch_id GROUP BY 1 \
     UNION ALL SELECT b.lane_id, sum(w.count)::bigint, 0, 0, NULL, count(*) FROM gristmill.blocked w \
     JOIN gristmill.batch b ON b.id = w.batch_id GROUP BY 1";

/// The figures of the store.
pub(crate) async fn metrics(snapshot: &Snapshot, now: Timestamp) -> Result<StoreMetrics> {
    let mut lanes = LanesBuilder::default();
    let rows = snapshot
        .query(
            "SELECT l.id, l.kind, l.queue, s.ended FROM gristmill.lane l \
             LEFT JOIN gristmill.lane_stat s ON s.lane_id = l.id",
            &[],
        )
        .await?;
    for row in &rows {
        let lane = lanes.lane(row.try_get::<_, i32>(0)?.into());
        lane.kind = row.try_get::<_, &str>(1)?.into();
        lane.queue = row.try_get::<_, &str>(2)?.into();
        if let Some(ended) = row.try_get::<_, Option<&str>>(3)? {
            lane.ended = serde_json::from_str(ended)?;
        }
    }
    add_open(&mut lanes, &snapshot.query(OPEN, &[&now.0]).await?)?;
    let rows = snapshot
        .query(
            "SELECT (SELECT count(*) FROM gristmill.worker), (SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint \
             FROM pg_class WHERE relnamespace = 'gristmill'::regnamespace AND relkind = 'r')",
            &[],
        )
        .await?;
    let (mut workers, mut size_bytes) = (0, 0);
    for row in &rows {
        (workers, size_bytes) = (sum(row, 0)?, sum(row, 1)?);
    }
    Ok(StoreMetrics {
        lanes: lanes.finish(),
        hops: hops(snapshot).await?,
        workers,
        size_bytes,
    })
}

/// The open jobs by kind and queue.
pub(crate) async fn open_lanes(snapshot: &Snapshot, now: Timestamp) -> Result<Vec<LaneMetrics>> {
    let moment = [&now.0 as &(dyn ToSql + Sync)];
    let (names, open) = tokio::try_join!(
        snapshot.query("SELECT id, kind, queue FROM gristmill.lane", &[]),
        snapshot.query(OPEN, &moment),
    )?;
    let mut lanes = LanesBuilder::default();
    for row in &names {
        let lane = lanes.lane(row.try_get::<_, i32>(0)?.into());
        lane.kind = row.try_get::<_, &str>(1)?.into();
        lane.queue = row.try_get::<_, &str>(2)?.into();
    }
    add_open(&mut lanes, &open)?;
    Ok(lanes.finish())
}

/// Adds the open jobs of each lane, from the rows of [`OPEN`].
fn add_open(lanes: &mut LanesBuilder, rows: &[Row]) -> Result<()> {
    for row in rows {
        let lane = lanes.lane(row.try_get::<_, i32>(0)?.into());
        lane.waiting += sum(row, 1)?;
        lane.due += sum(row, 2)?;
        lane.running += sum(row, 3)?;
        lane.pieces += sum(row, 5)?;
        if let Some(at) = row.try_get::<_, Option<i64>>(4)? {
            lane.oldest_due_at = Some(Timestamp(at));
        }
    }
    Ok(())
}

impl Transaction {
    /// Adds ended jobs to the counts of their lanes. Locks the rows of the lanes in order.
    pub async fn add_ended(&mut self, ended: &[(BatchId, EndedJobs)]) -> Result<()> {
        let batches: Vec<i64> = ended.iter().map(|(batch, _)| batch.0).collect();
        let rows = self
            .query(
                "SELECT id, lane_id FROM gristmill.batch WHERE id = ANY ($1)",
                &[&batches],
            )
            .await?;
        let mut lanes = HashMap::with_capacity(rows.len());
        for row in &rows {
            lanes.insert(BatchId(row.try_get(0)?), row.try_get::<_, i32>(1)?.into());
        }
        self.add_ended_of_lanes(by_lane(ended, &lanes)).await
    }

    /// Moves the counts of ended jobs of these lanes, which are deleted, to other lanes of their queues and kinds.
    pub async fn hand_on_ended(&mut self, lanes: &[i32]) -> Result<()> {
        let rows = self
            .query(
                "WITH gone AS (DELETE FROM gristmill.lane_stat WHERE lane_id = ANY ($1) RETURNING lane_id, ended), \
                 ended AS (SELECT l.queue, l.kind, array_agg(g.ended) AS ended FROM gone g JOIN gristmill.lane l ON l.id = g.lane_id \
                 GROUP BY 1, 2) \
                 SELECT heir.id, e.ended FROM ended e CROSS JOIN LATERAL ( \
                 SELECT l.id FROM gristmill.lane l WHERE l.queue = e.queue AND l.kind = e.kind AND NOT l.retired \
                 ORDER BY l.job_group LIMIT 1) heir",
                &[&lanes],
            )
            .await?;
        let mut totals: BTreeMap<i64, EndedJobs> = BTreeMap::new();
        for row in &rows {
            let total = totals.entry(row.try_get::<_, i32>(0)?.into()).or_default();
            for ended in row.try_get::<_, Vec<&str>>(1)? {
                total.add(&serde_json::from_str(ended)?);
            }
        }
        self.add_ended_of_lanes(totals).await
    }

    async fn add_ended_of_lanes(&mut self, mut totals: BTreeMap<i64, EndedJobs>) -> Result<()> {
        if totals.is_empty() {
            return Ok(());
        }
        let ids: Vec<i32> = totals
            .keys()
            .filter_map(|lane| i32::try_from(*lane).ok())
            .collect();
        let nothing = serde_json::to_string(&EndedJobs::default())?;
        self.execute(
            "INSERT INTO gristmill.lane_stat (lane_id, ended) SELECT id, $2 FROM unnest($1::integer[]) id ORDER BY id \
             ON CONFLICT DO NOTHING",
            &[&ids, &nothing],
        )
        .await?;
        let known = self
            .query(
                "SELECT lane_id, ended FROM gristmill.lane_stat WHERE lane_id = ANY ($1) ORDER BY lane_id FOR UPDATE",
                &[&ids],
            )
            .await?;
        for row in &known {
            let known: EndedJobs = serde_json::from_str(row.try_get(1)?)?;
            totals
                .entry(row.try_get::<_, i32>(0)?.into())
                .or_default()
                .add(&known);
        }
        let texts = totals.values().map(serde_json::to_string);
        let texts: Vec<String> = texts.collect::<serde_json::Result<_>>()?;
        self.execute(
            "UPDATE gristmill.lane_stat s SET ended = n.ended FROM unnest($1::integer[], $2::text[]) n (id, ended) \
             WHERE s.lane_id = n.id",
            &[&ids, &texts],
        )
        .await?;
        Ok(())
    }
}
