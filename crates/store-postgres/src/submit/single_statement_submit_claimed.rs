//! A lone submit while a worker of this process waits for such jobs: the statement that stores the batch puts it under
//! the worker's lease at once.

use std::sync::Arc;

use gristmill_model::limits::{LEASE_BYTES_TARGET, LEASE_JOBS_MAX};
use gristmill_model::{BatchId, Lease, LeaseId, LeasedSlice, Positions, Timestamp};
use gristmill_store::rules::deadline::Standing;
use gristmill_store::rules::lanes::{Lane, group};
use gristmill_store::rules::waiting::WaitingWorker;
use gristmill_store::{Exchanged, StoreError};
use tokio_postgres::Row;

use crate::claim::{LANES_SOUGHT_MAX, heads, lane_ids};
use crate::database::connection::Param;
use crate::database::{Database, Known};
use crate::failure::Result;
use crate::submit::single_statement_submit::{Lone, StoredLone};

/// Stores a batch like the plain statement, but under a lease of a waiting worker, unless a control applies.
const LONE_CLAIMED: &str = heads!(
    "$15",
    "$16",
    include_str!("../statements/single_statement_submit_claimed.sql")
);

/// The lease under which a batch is, all of it.
const LEASE: &str = "SELECT lease_id FROM gristmill.held WHERE batch_id = $1 AND worker_id = $2";

/// A waiting worker, and the lanes that it looks at.
#[derive(Debug)]
pub(crate) struct WaitingClaim {
    waiting: WaitingWorker,
    lanes: Vec<Lane>,
    lane_id_max: i32,
    control_version: i64,
    lane: Lane,
}

/// The lease under which a batch was stored, and when there will be more jobs.
type LeasedLone = (BatchId, Option<(LeaseId, Option<Timestamp>)>);

impl Database {
    /// Finds a worker that waits for this batch, unless a control applies.
    pub fn claim_for_waiting(&self, lone: &Lone<'_>) -> Option<WaitingClaim> {
        let now = lone.head.submitted_at;
        let expires_at = lone.batch.options.expires_at;
        if self.waiting.is_empty()
            || lone.head.run_at > now
            || expires_at.is_some_and(|moment| moment <= now)
            || lone.batch.payloads.as_str().len() > LEASE_BYTES_TARGET
        {
            return None;
        }
        let lane_id_max = self.cache.lane_id_max();
        let lane = self.cache.lanes().get(lone.head.lane_id).cloned()?;
        let (count, rank) = (lone.batch.payloads.count(), lone.head.rank());
        let mut looked_at = (Vec::new(), 0);
        let waiting = self.waiting.take(|waiting| {
            let want = &waiting.want;
            if !want.admits(&lane) || count > want.jobs_max.min(LEASE_JOBS_MAX) || rank > want.rank_max() {
                return false;
            }
            // With more lanes, one statement cannot see whether other jobs come first.
            let Some(lanes) = self.cache.lanes().wanted_up_to(want, LANES_SOUGHT_MAX) else {
                return false;
            };
            let mut controls = self.cache.controls();
            let agings = controls.agings(&lanes);
            looked_at = (lanes, controls.version());
            agings.is_some_and(|agings| agings.iter().all(Option::is_none))
        })?;
        let (lanes, control_version) = looked_at;
        Some(WaitingClaim {
            waiting,
            lanes,
            lane_id_max,
            control_version,
            lane,
        })
    }

    /// Stores a batch for a waiting worker, and hands the lease to it. `None` if the batch's lane is gone.
    pub async fn submit_claimed(
        self: &Arc<Self>,
        lone: Lone<'_>,
        claim: WaitingClaim,
    ) -> std::result::Result<Option<BatchId>, StoreError> {
        let known = {
            let claim = &claim;
            let params = move |writer: &str| claim.params(&lone, writer);
            self.until_known(move || self.send_lone(LONE_CLAIMED, params, read_leased))
                .await?
        };
        let WaitingClaim { waiting, lane, .. } = claim;
        let (batch, leased) = match known {
            Known::Answered(Some(answer)) => answer,
            Known::Answered(None) => return Ok(None),
            Known::Committed((), operation) => {
                let batch = BatchId(-operation);
                (batch, self.lease_of(batch, &waiting).await)
            }
        };
        if let Some((lease, next_run_at)) = leased
            && let Some(unclaimed) = waiting.answer(lone.leased(batch, lease, next_run_at, lane))
        {
            self.give_back(unclaimed);
        }
        Ok(Some(batch))
    }

    /// The lease under which a batch was stored, if the answer was lost. If that cannot be found out, the worker's jobs
    /// come back once it has ended.
    async fn lease_of(
        &self,
        batch: BatchId,
        waiting: &WaitingWorker,
    ) -> Option<(LeaseId, Option<Timestamp>)> {
        let worker = waiting.worker.0;
        let found = self
            .read(|snapshot| async move { snapshot.query(LEASE, &[&batch.0, &worker]).await })
            .await;
        let lease: i64 = found.ok()?.first()?.try_get(0).ok()?;
        Some((LeaseId(lease), None))
    }
}

impl WaitingClaim {
    fn params(&self, lone: &Lone<'_>, writer: &str) -> Vec<Param> {
        let mut params = lone.params(writer);
        params.push(Box::new(self.waiting.worker.0));
        params.push(Box::new(lane_ids(&self.lanes)));
        params.push(Box::new(self.waiting.want.rank_max()));
        params.push(Box::new(self.lane_id_max));
        params.push(Box::new(self.control_version));
        params
    }
}

impl Lone<'_> {
    /// The answer to the worker.
    fn leased(
        &self,
        batch: BatchId,
        lease: LeaseId,
        next_run_at: Option<Timestamp>,
        lane: Lane,
    ) -> Exchanged {
        let options = &self.batch.options;
        let standing = Standing {
            attempt: 1,
            rescues: 0,
            expires_at: options.expires_at,
        };
        let slice = LeasedSlice {
            lease,
            batch,
            kind: lane.kind,
            queue: lane.queue,
            group: group(lane.group),
            positions: Positions::all(self.batch.payloads.count()),
            payloads: self.batch.payloads.clone(),
            attempt: 1,
            rescues: 0,
            timeout_ms: standing.timeout_ms(options, self.head.submitted_at),
            priority: self.head.priority,
            retry: options.retry,
            submitted_at: self.head.submitted_at,
            memos: None,
            deadline: standing.deadline(options, self.head.submitted_at),
            // Other statements store batches with keys or tags.
            labels: None,
            traceparent: options.traceparent,
        };
        Exchanged {
            lease: Some(Lease {
                id: lease,
                slices: vec![slice],
            }),
            next_run_at,
            ..Exchanged::default()
        }
    }
}

fn read_leased(row: &Row) -> Result<StoredLone<LeasedLone>> {
    let batch = BatchId(-row.try_get::<_, i64>(0)?);
    let lease = row.try_get::<_, Option<i64>>(1)?.map(LeaseId);
    let next_run_at = row.try_get::<_, Option<i64>>(2)?.map(Timestamp);
    Ok(StoredLone {
        batch,
        wakes: lease.is_none(),
        answer: (batch, lease.map(|lease| (lease, next_run_at))),
    })
}
