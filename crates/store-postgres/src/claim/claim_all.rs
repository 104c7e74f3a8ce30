//! The commonest claim of a worker that keeps up: all that is due, which fits. It is one statement, which is a transaction
//! of its own and takes one trip.

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

/// Slices that one statement looks at. Where there are as many, the worker does not keep up.
const SLICES_MAX: i64 = 65;
/// Payloads of batches of this size come with the claim, whether they are at hand or not.
const PAYLOAD_BYTES_MAX: i32 = 8 << 10;

/// Takes all due slices of some lanes under a lease, if that is little and nothing else has a say.
const CLAIM_ALL: &str = heads!(include_str!("../statements/claim_all.sql"));

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

    /// The id of a lease that there never was.
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
                    // It is read again with those that are large, and quarantined.
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
