//! Workers: registration, heartbeats, leaving, rescue; and expiry.

mod ended_jobs;
pub(crate) mod live_output;
pub(crate) mod wake;

use std::collections::HashMap;
use std::sync::Arc;

use gristmill_batching::BatchStats;
use gristmill_model::limits::RESCUES_MAX;
use gristmill_model::{BatchId, BatchOptions, JobState, Timestamp, WorkerId};
use gristmill_store::live_output::all_followed;
use gristmill_store::rules::deadline::{Standing, too_late};
use gristmill_store::rules::ending::{Ending, FailedAttempt};
use gristmill_store::rules::open::Held;
use gristmill_store::{Heartbeat, NewWorker, Rescued};

use crate::database::handle_cache::BatchHead;
use crate::database::transaction::Transaction;
use crate::failure::{Failure, Result};
use crate::graph::dependency::Ended;
use crate::graph::family::EndedParents;
use crate::limits::{EXPIRED_SLICES_PER_TRANSACTION, IDLE_IN_TRANSACTION};

impl Transaction {
    /// Registers a worker.
    pub async fn register_worker(&mut self, worker: &NewWorker) -> Result<WorkerId> {
        let [queues, kinds] = [&worker.queues, &worker.kinds]
            .map(|names| names.iter().map(|name| &**name).collect::<Vec<&str>>());
        let row = self
            .query_opt(
                "INSERT INTO gristmill.worker \
                 (name, host, process_id, process_started, started_at, heartbeat_at, queues, kinds) \
                 VALUES ($1, $2, $3, $4, $5, $5, $6, $7) RETURNING id",
                &[
                    &worker.name,
                    &worker.host,
                    &i64::from(worker.process_id),
                    &worker.process_started,
                    &self.now.0,
                    &queues,
                    &kinds,
                ],
            )
            .await?;
        let row = row.ok_or_else(|| Failure::Damaged("a new worker got no id".to_owned()))?;
        Ok(WorkerId(row.try_get(0)?))
    }

    /// Records that a worker lives; returns the jobs that it lost.
    pub async fn heartbeat(&mut self, worker: WorkerId, hops: &BatchStats) -> Result<Heartbeat> {
        self.add_hops(hops);
        let row = self
            .query_opt(
                "UPDATE gristmill.worker SET heartbeat_at = greatest(heartbeat_at, $2) WHERE id = $1 RETURNING \
                 (SELECT array_agg(followed ORDER BY id) FROM gristmill.following WHERE until > $2), drain_at IS NOT NULL",
                &[&worker.0, &self.now.0],
            )
            .await?;
        let (followed, drain): (Option<Vec<String>>, bool) = match &row {
            Some(row) => (row.try_get(0)?, row.try_get(1)?),
            None => (None, false),
        };
        Ok(Heartbeat {
            known: row.is_some(),
            revoked: self.take_revoked(worker).await?,
            followed: all_followed(followed.iter().flatten().map(String::as_str))?,
            drain,
            held_back: None,
        })
    }

    /// Asks a worker to drain. Reports whether it is known.
    pub async fn drain_worker(&mut self, worker: WorkerId) -> Result<bool> {
        let asked = self
            .execute(
                "UPDATE gristmill.worker SET drain_at = coalesce(drain_at, $2) WHERE id = $1",
                &[&worker.0, &self.now.0],
            )
            .await?;
        Ok(asked > 0)
    }

    /// Stores a worker's reports of its jobs' progress.
    pub async fn put_progress(&self, worker: WorkerId, packed: &str) -> Result<()> {
        self.execute(
            "INSERT INTO gristmill.progress (worker_id, at, jobs) SELECT id, $2, $3 FROM gristmill.worker WHERE id = $1 \
             ON CONFLICT (worker_id) DO UPDATE SET at = excluded.at, jobs = excluded.jobs",
            &[&worker.0, &self.now.0, &packed],
        )
        .await?;
        Ok(())
    }

    /// Adds the counts of a caller since its last call.
    pub fn add_hops(&mut self, hops: &BatchStats) {
        self.writes.hops.merge(hops);
    }

    /// Ends a worker; its jobs go back without a charged attempt.
    pub async fn leave(&mut self, worker: WorkerId, hops: &BatchStats) -> Result<()> {
        self.add_hops(hops);
        self.query(
            "SELECT id FROM gristmill.worker WHERE id = $1 FOR UPDATE",
            &[&worker.0],
        )
        .await?;
        let (all, heads) = self.take_all_from(worker).await?;
        for held in &all {
            let head = head_of(&heads, held)?;
            self.writes.let_go(held, &held.positions);
            self.writes.give_back(
                self.now,
                held,
                head,
                &held.positions,
                held.rescues,
                held.expires_at,
            );
        }
        self.freed();
        self.forget_workers(&[worker]).await
    }

    /// All jobs that a worker holds, locked, with the heads of their batches. The worker must be locked.
    async fn take_all_from(&self, worker: WorkerId) -> Result<(Vec<Held>, HashMap<BatchId, Arc<BatchHead>>)> {
        let batches = self.batches_held_by(worker).await?;
        if batches.is_empty() {
            return Ok((Vec::new(), HashMap::new()));
        }
        self.lock_held_by(worker, &batches).await?;
        let all = self.held_by(worker).await?;
        let heads = self.heads(&batches).await?;
        Ok((all, heads))
    }

    /// Takes the leases of silent or dead workers, and deletes the workers.
    pub async fn rescue(&mut self, silent_before: Timestamp, dead: &[WorkerId]) -> Result<Rescued> {
        let mut rescued = Rescued::default();
        let mut ended = Ended::default();
        let mut ended_parents = EndedParents::new();
        let dead: Vec<i64> = dead.iter().map(|worker| worker.0).collect();
        let rows = self
            .query(
                "SELECT id FROM gristmill.worker WHERE heartbeat_at < $1 OR id = ANY ($2) ORDER BY id \
                 FOR UPDATE SKIP LOCKED",
                &[&silent_before.0, &dead],
            )
            .await?;
        self.end_stuck_writers(silent_before, &dead, rows.len()).await?;
        for row in &rows {
            let worker = WorkerId(row.try_get(0)?);
            let (all, heads) = self.take_all_from(worker).await?;
            for held in &all {
                self.rescue_held(held, head_of(&heads, held)?, &mut rescued)?;
                if held.rescues < RESCUES_MAX {
                    continue;
                }
                if held.is_awaited {
                    ended.add(held.batch, &held.positions);
                }
                let family = held
                    .family
                    .map(|family| (held.batch, family, held.positions.clone()));
                ended_parents.extend(family);
            }
            rescued.workers.push(worker);
        }
        self.freed();
        self.forget_workers(&rescued.workers).await?;
        self.cancel_left_open(ended_parents, &mut ended).await?;
        self.settle(ended).await?;
        Ok(rescued)
    }

    /// The rescue does not wait for a silent worker that is in the middle of an operation, because others have to be
    /// rescued. If it is stuck there (for example because its process was stopped), this ends its connection, and the
    /// next rescue finds it. The server does that by itself, but not while it waits on a local socket for an answer to
    /// be taken.
    async fn end_stuck_writers(&self, silent_before: Timestamp, dead: &[i64], found: usize) -> Result<()> {
        let row = self
            .query_opt(
                "SELECT count(*) FROM gristmill.worker WHERE heartbeat_at < $1 OR id = ANY ($2)",
                &[&silent_before.0, &dead],
            )
            .await?;
        let silent: i64 = row.map_or(Ok(0), |row| row.try_get(0))?;
        if silent <= found as i64 {
            return Ok(());
        }
        let ended = self
            .query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE datname = current_database() AND usename = current_user AND application_name LIKE 'gristmill %' \
                 AND pid <> pg_backend_pid() AND xact_start IS NOT NULL AND wait_event_type = 'Client' \
                 AND state_change < clock_timestamp() - make_interval(secs => $1)",
                &[&IDLE_IN_TRANSACTION.as_secs_f64()],
            )
            .await?;
        if !ended.is_empty() {
            tracing::warn!(
                connections = ended.len(),
                "ended connections that were stuck in an operation"
            );
        }
        Ok(())
    }

    fn rescue_held(&mut self, held: &Held, head: &BatchHead, rescued: &mut Rescued) -> Result<()> {
        self.writes.let_go(held, &held.positions);
        let jobs = u64::from(held.positions.len());
        if held.rescues < RESCUES_MAX {
            rescued.jobs += jobs;
            // Somebody may have started the jobs: they cannot expire any more.
            let expires_at = held.standing().deadline(&head.options, self.now);
            self.writes.give_back(
                self.now,
                held,
                head,
                &held.positions,
                held.rescues + 1,
                expires_at,
            );
            return Ok(());
        }
        rescued.dead += jobs;
        let error = gristmill_store::worker::too_many_rescues(held.rescues);
        for position in held.positions.iter() {
            let failed = FailedAttempt::unreported(position, held.lease, held.attempt, &error);
            self.writes.insert_failure(self.now, held.batch, &failed)?;
        }
        let ending = Ending::of(JobState::Dead, held.attempt);
        self.writes
            .insert_report(self.now, held.batch, &held.positions, ending);
        Ok(())
    }

    /// Deletes workers, which must be locked, and rows that were left for workers that are gone already.
    async fn forget_workers(&self, workers: &[WorkerId]) -> Result<()> {
        let ids: Vec<i64> = workers.iter().map(|worker| worker.0).collect();
        self.execute("DELETE FROM gristmill.worker WHERE id = ANY ($1)", &[&ids])
            .await?;
        self.execute(
            "DELETE FROM gristmill.progress WHERE worker_id = ANY ($1)",
            &[&ids],
        )
        .await?;
        self.execute(
            "DELETE FROM gristmill.revoked r WHERE NOT EXISTS (SELECT FROM gristmill.worker w WHERE w.id = r.worker_id)",
            &[],
        )
        .await?;
        Ok(())
    }

    /// Ends jobs that were not claimed in time.
    async fn end_late(
        &mut self,
        batch: BatchId,
        positions: &gristmill_model::Positions,
        standing: Standing,
    ) -> Result<()> {
        if standing.has_begun() {
            let heads = self.heads(&[batch]).await?;
            let error = too_late(
                heads
                    .get(&batch)
                    .map_or(&BatchOptions::default(), |head| &head.options),
            );
            // After all earlier attempts of the jobs.
            let row = self
                .query_opt("SELECT nextval('gristmill.lease_id')", &[])
                .await?;
            let lease: i64 = row.map_or(Ok(0), |row| row.try_get(0))?;
            for position in positions.iter() {
                let failed = standing.failure(position, lease, &error);
                self.writes.insert_failure(self.now, batch, &failed)?;
            }
        }
        self.writes
            .insert_report(self.now, batch, positions, standing.ending());
        Ok(())
    }

    /// Ends some jobs that nobody started in time. Returns how many, and whether there may be more.
    pub async fn expire(&mut self) -> Result<(u64, bool)> {
        self.lock_left_by_expired().await?;
        let slices = self.expired_slices(EXPIRED_SLICES_PER_TRANSACTION).await?;
        let mut expired = 0;
        let mut ended = Ended::default();
        let mut ended_parents = EndedParents::new();
        for slice in &slices {
            self.writes.shorten(slice, &gristmill_model::Positions::new());
            self.end_late(slice.batch, &slice.positions, slice.standing())
                .await?;
            expired += u64::from(slice.positions.len());
            if slice.is_awaited {
                ended.add(slice.batch, &slice.positions);
            }
            let family = slice
                .family
                .map(|family| (slice.batch, family, slice.positions.clone()));
            ended_parents.extend(family);
        }
        let waiting = self.expired_blocked(EXPIRED_SLICES_PER_TRANSACTION).await?;
        for blocked in &waiting {
            self.writes.unblock(blocked);
            self.end_late(blocked.batch, &blocked.positions, blocked.standing())
                .await?;
            expired += u64::from(blocked.positions.len());
            ended.add(blocked.batch, &blocked.positions);
            let family = blocked
                .family
                .map(|family| (blocked.batch, family, blocked.positions.clone()));
            ended_parents.extend(family);
        }
        self.cancel_left_open(ended_parents, &mut ended).await?;
        self.settle(ended).await?;
        self.end_pauses().await?;
        // Jobs that waited behind expired ones are due at once.
        self.release_keys().await?;
        self.forget_keys().await?;
        self.forget_values().await?;
        self.stop_listening().await?;
        self.forget_output().await?;
        let most = slices.len().max(waiting.len());
        Ok((expired, most as i64 == EXPIRED_SLICES_PER_TRANSACTION))
    }
}

fn head_of<'h>(heads: &'h HashMap<BatchId, Arc<BatchHead>>, held: &Held) -> Result<&'h BatchHead> {
    let head = heads.get(&held.batch).map(|head| &**head);
    head.ok_or_else(|| Failure::Damaged(format!("batch {} has leases and no row", held.batch)))
}
