//! The commonest claim of a worker that keeps up: all that is due, which fits. It is one statement, which is a transaction
//! of its own and takes one trip.

use std::sync::Arc;

use gristmill_model::limits::{LEASE_BYTES_TARGET, LEASE_JOBS_MAX};
use gristmill_model::{LeaseId, PackedArray, Timestamp, WorkerId};
use tokio_postgres::Row;

use super::claim::{Taken, heads, lane_ids};
use super::connection::{Param, Pooled};
use super::database::{Attempt, Database, Known, to_the_end};
use super::exchange::{Claimable, Outline};
use super::failure::{Failure, Remedy, Result};
use super::slice::Slice;
use super::transaction::read_head;
use crate::contents::Content;
use crate::lanes::Lane;
use crate::{StoreError, Want};

/// Slices that one statement looks at. Where there are as many, the worker does not keep up.
const SLICES_MAX: i64 = 65;
/// Payloads of batches of this size come with the claim, whether they are at hand or not.
const PAYLOAD_BYTES_MAX: i32 = 8 << 10;

/// Takes the due slices of the lanes `$1` at `$2` under the lease `$10` of the worker `$8`, if there are fewer than `$5`
/// with at most `$7` jobs of `$4` bytes in all, none that finalizes, no lanes after `$6`, and no other controls than those
/// of the version `$9`. Gives a row a slice, each with the id of another lease, or one without. `$3` is the highest rank, `$11` and `$12` are the mark.
const CLAIM_ALL: &str = heads!(
    ", registered AS MATERIALIZED (SELECT id FROM gristmill.worker WHERE id = $8 FOR KEY SHARE), \
     due AS MATERIALIZED (SELECT s.* FROM head h CROSS JOIN LATERAL ( \
     SELECT s.batch_id, s.id, s.count, s.job_bytes, s.family FROM gristmill.slice s \
     WHERE s.lane_id = h.lane_id AND s.rank = h.rank AND s.run_at <= $2 AND (s.expires_at IS NULL OR s.expires_at > $2) \
     ORDER BY s.run_at, s.batch_id, lower(s.positions) LIMIT $5) s WHERE h.rank IS NOT NULL LIMIT $5), \
     verdict AS MATERIALIZED (SELECT EXISTS (SELECT FROM registered) AS registered, count(*) < $5 \
     AND coalesce(sum(count) <= $7::bigint AND sum(count::bigint * job_bytes)::bigint <= $4::bigint AND bool_and(family IS NULL), true) \
     AND NOT EXISTS (SELECT FROM gristmill.lane WHERE id > $6) \
     AND NOT EXISTS (SELECT FROM gristmill.control_version WHERE version <> $9) AS fits FROM due), \
     taken AS MATERIALIZED (SELECT t.* FROM verdict v JOIN due d ON v.registered AND v.fits \
     CROSS JOIN LATERAL (SELECT * FROM gristmill.slice s WHERE s.batch_id = d.batch_id AND s.id = d.id \
     FOR UPDATE SKIP LOCKED) t), \
     gone AS (DELETE FROM gristmill.slice s USING unnest(ARRAY(SELECT batch_id FROM taken), ARRAY(SELECT id FROM taken)) \
     k (batch_id, id) WHERE s.batch_id = k.batch_id AND s.id = k.id), \
     held AS (INSERT INTO gristmill.held (lease_id, batch_id, attempt, first_position, worker_id, run_at, expires_at, \
     rescues, count, lane_id, positions, awaited, rank, claimed_at, family) \
     SELECT $10::bigint, batch_id, attempt, lower(positions), $8, run_at, expires_at, rescues, count, lane_id, positions, awaited, \
     rank, $2, family FROM taken), \
     marked AS (INSERT INTO gristmill.writer (id, operation) VALUES ($11, $12) \
     ON CONFLICT (id) DO UPDATE SET operation = excluded.operation, at = excluded.at \
     RETURNING set_config('synchronous_commit', 'off', true)) \
     SELECT v.registered, v.fits, CASE WHEN v.fits THEN (SELECT min(s.run_at) FROM head h CROSS JOIN LATERAL ( \
     SELECT s.run_at FROM gristmill.slice s WHERE s.lane_id = h.lane_id AND s.rank = h.rank AND s.run_at > $2 \
     ORDER BY s.run_at LIMIT 1) s WHERE h.rank IS NOT NULL) END, \
     t.batch_id, t.id, t.lane_id, t.rank, t.run_at, t.expires_at, t.attempt, t.rescues, t.job_bytes, t.positions, \
     t.awaited, t.family, b.id, b.lane_id, b.priority, b.submitted_at, b.run_at, b.options, octet_length(b.payloads), \
     b.count, CASE WHEN octet_length(b.payloads) <= $13 THEN b.payloads END, \
     (SELECT nextval('gristmill.lease_id') WHERE EXISTS (SELECT FROM taken)) \
     FROM marked CROSS JOIN verdict v LEFT JOIN (taken t CROSS JOIN LATERAL \
     (SELECT * FROM gristmill.batch WHERE id = t.batch_id OFFSET 0) b) ON true \
     ORDER BY t.rank, t.run_at, t.batch_id, lower(t.positions)"
);

/// What was claimed under a lease whose answer was lost.
const CLAIMED: &str = "SELECT batch_id, 0::bigint, lane_id, rank, run_at, expires_at, attempt, rescues, 1, positions, awaited, \
     family FROM gristmill.held WHERE lease_id = $1 ORDER BY rank, run_at, batch_id, first_position";

/// A claim that is tried until it is known what became of it.
struct ClaimAll {
    database: Arc<Database>,
    worker: WorkerId,
    want: Want,
    lanes: Vec<Lane>,
    lease: i64,
}

impl Database {
    /// Claims all that is due. `None` where that is not for one statement, and nothing was claimed.
    pub async fn claim_all(
        self: &Arc<Self>,
        worker: WorkerId,
        want: &Want,
    ) -> std::result::Result<Option<Outline>, StoreError> {
        if !self.memory.keeps_up() || want.priority_min.is_some() {
            return Ok(None);
        }
        let lanes = self.memory.lanes().wanted(want);
        let agings = self.memory.controls().agings(&lanes);
        if agings.is_none_or(|agings| agings.iter().any(Option::is_some)) {
            return Ok(None);
        }
        let (database, want) = (self.clone(), want.clone());
        to_the_end(async move {
            let lease = database.spare_lease().await?;
            let claim = ClaimAll {
                database,
                worker,
                want,
                lanes,
                lease,
            };
            claim.run().await
        })
        .await
    }

    /// The id of a lease that there never was.
    async fn spare_lease(&self) -> std::result::Result<i64, StoreError> {
        match self.memory.take_spare_lease() {
            Some(lease) => Ok(lease),
            None => {
                self.alone(async |connection: Pooled| {
                    let rows = connection
                        .rows("SELECT nextval('gristmill.lease_id')", &[])
                        .await?;
                    Ok(rows.first().map_or(Ok(0), |row| row.try_get(0))?)
                })
                .await
            }
        }
    }
}

impl ClaimAll {
    async fn run(&self) -> std::result::Result<Option<Outline>, StoreError> {
        let memory = &self.database.memory;
        let claimed = match self.database.until_known(move || self.run_once()).await? {
            Known::Answered(claimed) => claimed,
            Known::Committed((), _) => return self.read_back().await.map(Some),
        };
        match &claimed {
            Some(outline) if outline.taken.is_empty() => memory.keep_spare_lease(self.lease),
            Some(outline) => memory.remember_claim(&outline.taken),
            None => {
                memory.keep_spare_lease(self.lease);
                memory.remember_keeping_up(false);
            }
        }
        Ok(claimed)
    }

    async fn run_once(&self) -> Attempt<Option<Outline>, ()> {
        let now = self.database.now();
        let sent = async {
            let mut connection = self.database.writer().await?;
            let writer = connection.writer()?;
            writer.operation += 1;
            let mark = writer.mark();
            let params = self.params(now, &mark.writer, writer.operation);
            let answer = connection.send(CLAIM_ALL, params).await?;
            connection.is_amid = true;
            Ok((connection, mark, answer))
        };
        let (mut connection, mark, answer) = match sent.await {
            Ok(sent) => sent,
            Err(failure) => return Attempt::Failed(failure),
        };
        match answer.await {
            Ok(rows) => {
                connection.is_amid = false;
                match self.outline(now, &rows) {
                    Ok(outline) => Attempt::Done(outline),
                    Err(failure) => Attempt::Failed(failure),
                }
            }
            Err(failure) if failure.remedy() == Remedy::Reconnect => Attempt::Unknown((), mark, failure),
            Err(failure) => {
                connection.is_amid = false;
                Attempt::Failed(failure)
            }
        }
    }

    fn params(&self, now: Timestamp, writer: &str, operation: i64) -> Vec<Param> {
        vec![
            Box::new(lane_ids(&self.lanes)),
            Box::new(now.0),
            Box::new(self.want.rank_max()),
            Box::new(LEASE_BYTES_TARGET as i64),
            Box::new(SLICES_MAX),
            Box::new(self.database.memory.lane_id_max()),
            Box::new(i64::from(self.want.jobs_max.min(LEASE_JOBS_MAX))),
            Box::new(self.worker.0),
            Box::new(self.database.memory.controls().version()),
            Box::new(self.lease),
            Box::new(writer.to_owned()),
            Box::new(operation),
            Box::new(PAYLOAD_BYTES_MAX),
        ]
    }

    fn outline(&self, now: Timestamp, rows: &[Row]) -> Result<Option<Outline>> {
        let verdict = rows
            .first()
            .ok_or_else(|| Failure::Damaged("a claim gave no row".to_owned()))?;
        if !verdict.try_get::<_, bool>(0)? {
            return Err(StoreError::WorkerUnknown(self.worker).into());
        }
        if !verdict.try_get::<_, bool>(1)? {
            return Ok(None);
        }
        let memory = &self.database.memory;
        let mut outline = Outline::new(LeaseId(self.lease), now);
        outline.next_at = verdict.try_get::<_, Option<i64>>(2)?.map(Timestamp);
        if let Some(lease) = verdict.try_get(24)? {
            memory.keep_spare_lease(lease);
        }
        for row in rows {
            if row.try_get::<_, Option<i64>>(3)?.is_none() {
                continue;
            }
            if let Some(payloads) = row.try_get::<_, Option<&str>>(23)? {
                let (batch, head) = read_head(row, 15)?;
                let content = Content::new(Arc::new(head), Some(PackedArray::from_stored(payloads)));
                memory.keep(batch, content.clone());
                outline.contents.insert(batch, Claimable { content, only: None });
            }
            let slice = Slice::read(row, 3)?;
            let positions = slice.positions.clone();
            outline.add(memory, Taken { slice, positions });
        }
        Ok(Some(outline))
    }

    async fn read_back(&self) -> std::result::Result<Outline, StoreError> {
        let lease = self.lease;
        let rows = self
            .database
            .read(|snapshot| async move { snapshot.query(CLAIMED, &[&lease]).await })
            .await?;
        let mut outline = Outline::new(LeaseId(lease), self.database.now());
        for row in &rows {
            let slice = Slice::read(row, 0).map_err(|failure| failure.at(self.database.address.as_str()))?;
            let positions = slice.positions.clone();
            outline.add(&self.database.memory, Taken { slice, positions });
        }
        Ok(outline)
    }
}
