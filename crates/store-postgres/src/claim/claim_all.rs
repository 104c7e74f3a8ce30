//! The most common claim of a worker that keeps up: it takes all due jobs, and they fit. It is one statement, which is
//! a transaction of its own and takes one round trip.

use std::sync::Arc;

use gristmill_model::limits::{LEASE_BYTES_TARGET, LEASE_JOBS_MAX};
use gristmill_model::{LeaseId, Timestamp, WorkerId};
use gristmill_store::rules::contents::Content;
use gristmill_store::rules::lanes::Lane;
use gristmill_store::{StoreError, Want};
use tokio_postgres::Row;

use crate::claim::{LANES_SOUGHT_MAX, again_at, heads, lane_ids};
use crate::commit::exchange::{Claimable, Outline};
use crate::database::connection::{Param, Pooled};
use crate::database::pools::Purpose;
use crate::database::rows::{Slice, Taken};
use crate::database::sums::read_batch_of;
use crate::database::{Attempt, Database, Known, to_the_end};
use crate::failure::{Failure, Remedy, Result};

/// The slices that one statement reads. If there are as many, the worker does not keep up.
const SLICES_MAX: i64 = 65;
/// Payloads of batches up to this size come with the claim, even if they are in memory.
const PAYLOAD_BYTES_MAX: i32 = 8 << 10;

/// Takes all due slices of some lanes under a lease, if they are few and no control applies.
const CLAIM_ALL: &str = heads!(include_str!("../statements/claim_all.sql"));

/// The slices that were claimed under a lease whose answer was lost.
const CLAIMED: &str = "SELECT batch_id, 0::bigint, lane_id, rank, run_at, expires_at, attempt, rescues, 1, positions, awaited, \
     family FROM gristmill.held WHERE lease_id = $1 ORDER BY rank, run_at, batch_id, first_position";

/// A claim that is retried until its result is known.
struct ClaimAll {
    database: Arc<Database>,
    worker: WorkerId,
    want: Want,
    lanes: Vec<Lane>,
    lease: i64,
}

impl Database {
    /// Claims all due jobs. `None` if one statement cannot do that; then nothing was claimed.
    pub async fn claim_all(
        self: &Arc<Self>,
        worker: WorkerId,
        want: &Want,
    ) -> std::result::Result<Option<Outline>, StoreError> {
        if !self.cache.keeps_up() || want.priority_min.is_some() {
            return Ok(None);
        }
        let Some(lanes) = self.cache.lanes().wanted_up_to(want, LANES_SOUGHT_MAX) else {
            return Ok(None);
        };
        let agings = self.cache.controls().agings(&lanes);
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

    /// A lease id that was never used.
    async fn spare_lease(&self) -> std::result::Result<i64, StoreError> {
        match self.cache.take_spare_lease() {
            Some(lease) => Ok(lease),
            None => {
                self.alone(Purpose::Work, async |connection: Pooled| {
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
        let cache = &self.database.cache;
        let claimed = match self.database.until_known(move || self.run_once()).await? {
            Known::Answered(claimed) => claimed,
            Known::Committed((), _) => return self.read_back().await.map(Some),
        };
        match &claimed {
            Some(outline) if outline.taken.is_empty() => cache.keep_spare_lease(self.lease),
            Some(outline) => cache.remember_claim(&outline.taken),
            None => {
                cache.keep_spare_lease(self.lease);
                cache.remember_keeping_up(false);
            }
        }
        Ok(claimed)
    }

    async fn run_once(&self) -> Attempt<Option<Outline>, ()> {
        let now = self.database.now();
        let sent = async {
            let mut connection = self.database.writer(Purpose::Work).await?;
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
            Box::new(self.database.cache.lane_id_max()),
            Box::new(i64::from(self.want.jobs_max.min(LEASE_JOBS_MAX))),
            Box::new(self.worker.0),
            Box::new(self.database.cache.controls().version()),
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
        let cache = &self.database.cache;
        let mut outline = Outline::new(LeaseId(self.lease), now);
        let again_at = verdict.try_get::<_, bool>(26)?.then(|| again_at(now));
        let next_at = verdict.try_get::<_, Option<i64>>(2)?.map(Timestamp);
        outline.next_at = next_at.into_iter().chain(again_at).min();
        if let Some(lease) = verdict.try_get(24)? {
            cache.keep_spare_lease(lease);
        }
        for row in rows {
            if row.try_get::<_, Option<i64>>(3)?.is_none() {
                continue;
            }
            if row.try_get::<_, Option<&str>>(23)?.is_some() {
                match read_batch_of(row, 15, [23, 25]) {
                    Ok((batch, head, payloads)) => {
                        let content = Content::new(Arc::new(head), Some(payloads));
                        cache.keep(batch, content.clone());
                        outline.contents.insert(batch, Claimable { content, only: None });
                    }
                    // The normal claim reads the payloads again, like large ones, and quarantines the batch.
                    Err(Failure::Refused(StoreError::Damaged { .. })) => {}
                    Err(failure) => return Err(failure),
                }
            }
            let slice = Slice::read(row, 3)?;
            let positions = slice.positions.clone();
            outline.add(cache, Taken { slice, positions });
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
            outline.add(&self.database.cache, Taken { slice, positions });
        }
        Ok(outline)
    }
}
