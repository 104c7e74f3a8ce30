//! Workers: registration, heartbeats, exchanges, leaving, rescue.

pub(crate) mod ended_jobs;
pub(crate) mod hops;
pub(crate) mod live_output;
pub(crate) mod steady_clock;

use std::sync::Arc;

use gristmill_batching::BatchStats;
use gristmill_model::limits::RESCUES_MAX;
use gristmill_model::{JobState, Report, Timestamp, WorkerId};
use gristmill_store::rules::ending::{Ending, FailedAttempt};
use gristmill_store::rules::open::Held;
use gristmill_store::worker::too_many_rescues;
use gristmill_store::{Exchanged, Heartbeat, NewWorker, Rescued, StoreError, Want};
use rusqlite::params;

use crate::failure::Result;
use crate::graph::dependency::Ended;
use crate::transaction::Transaction;
use crate::worker::steady_clock::{Beat, WallTimes};

impl Transaction<'_> {
    /// Registers a worker.
    pub fn register_worker(&mut self, worker: &NewWorker, beat: &Beat) -> Result<WorkerId> {
        self.execute(
            "INSERT INTO worker \
             (name, host, process_id, process_started, started_at, heartbeat_at, boot, beat_ms, queues, kinds) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9)",
            params![
                worker.name,
                worker.host,
                worker.process_id,
                worker.process_started,
                self.now.0,
                beat.boot,
                beat.at_ms,
                serde_json::to_string(&worker.queues)?,
                serde_json::to_string(&worker.kinds)?
            ],
        )?;
        Ok(WorkerId(self.connection.last_insert_rowid()))
    }

    /// Commits reports, then claims.
    pub fn exchange(
        &mut self,
        worker: WorkerId,
        reports: &[Report],
        want: Option<&Want>,
    ) -> Result<Exchanged> {
        let name: Option<Arc<str>> =
            self.row("SELECT name FROM worker WHERE id = ?1", [worker.0], |row| {
                row.get(0)
            })?;
        if want.is_some() && name.is_none() {
            return Err(StoreError::WorkerUnknown(worker).into());
        }
        let mut exchanged = Exchanged::default();
        for report in reports {
            exchanged
                .receipts
                .push(self.commit(worker, name.as_ref(), report)?);
        }
        if let Some(want) = want {
            let claimed = self.claim(worker, want)?;
            exchanged.lease = claimed.lease;
            exchanged.next_run_at = claimed.next_run_at;
            exchanged.limited = claimed.limited;
        }
        Ok(exchanged)
    }

    /// Records that a worker lives; returns the jobs that it lost.
    pub fn heartbeat(&mut self, worker: WorkerId, hops: &BatchStats, beat: &Beat) -> Result<Heartbeat> {
        self.add_hops(hops)?;
        let drain: Option<bool> = self.row(
            "UPDATE worker SET heartbeat_at = ?2, boot = ?3, beat_ms = ?4 WHERE id = ?1 RETURNING drain_at IS NOT NULL",
            params![worker.0, self.now.0, beat.boot, beat.at_ms],
            |row| row.get(0),
        )?;
        Ok(Heartbeat {
            known: drain.is_some(),
            revoked: self.take_revoked(worker)?,
            followed: self.followed()?,
            drain: drain.unwrap_or_default(),
            held_back: None,
        })
    }

    /// Asks a worker to drain. Reports whether it is known.
    pub fn drain_worker(&mut self, worker: WorkerId) -> Result<bool> {
        let asked = self.execute(
            "UPDATE worker SET drain_at = coalesce(drain_at, ?2) WHERE id = ?1",
            [worker.0, self.now.0],
        )?;
        Ok(asked > 0)
    }

    /// Stores a worker's reports of its jobs' progress.
    pub fn put_progress(&self, worker: WorkerId, packed: &str) -> Result<()> {
        self.execute(
            "INSERT INTO progress (worker_id, at, jobs) SELECT id, ?2, ?3 FROM worker WHERE id = ?1 \
             ON CONFLICT (worker_id) DO UPDATE SET at = excluded.at, jobs = excluded.jobs",
            params![worker.0, self.now.0, packed],
        )?;
        Ok(())
    }

    /// Ends a worker; its jobs go back without a charged attempt.
    pub fn leave(&mut self, worker: WorkerId, hops: &BatchStats) -> Result<()> {
        self.add_hops(hops)?;
        for held in self.held_by(worker)? {
            self.let_go(&held, &held.positions)?;
            self.give_back(&held, &held.positions, held.rescues, held.expires_at)?;
        }
        self.forget_worker(worker)
    }

    /// Takes the leases of silent or dead workers, and deletes the workers.
    pub fn rescue(
        &mut self,
        silent_before: Timestamp,
        times: &WallTimes,
        dead: &[WorkerId],
    ) -> Result<Rescued> {
        let (mut rescued, mut ended) = (Rescued::default(), Vec::new());
        let workers: Vec<(i64, Timestamp)> = self.rows(
            "SELECT id, heartbeat_at, boot, beat_ms FROM worker ORDER BY id",
            [],
            |row| {
                let boot: String = row.get(2)?;
                Ok((row.get(0)?, times.of(&boot, row.get(3)?, Timestamp(row.get(1)?))))
            },
        )?;
        for (id, heartbeat_at) in workers {
            let worker = WorkerId(id);
            if heartbeat_at >= silent_before && !dead.contains(&worker) {
                continue;
            }
            for held in self.held_by(worker)? {
                self.rescue_held(&held, &mut rescued, &mut ended)?;
            }
            self.forget_worker(worker)?;
            rescued.workers.push(worker);
        }
        // Last, because the same worker may hold jobs that end with a dead job.
        self.settle(ended)?;
        Ok(rescued)
    }

    /// Makes what a dead worker held claimable again. Ends it as dead if that was too often.
    fn rescue_held(&mut self, held: &Held, rescued: &mut Rescued, ended: &mut Vec<Ended>) -> Result<()> {
        self.let_go(held, &held.positions)?;
        let jobs = u64::from(held.positions.len());
        if held.rescues < RESCUES_MAX {
            rescued.jobs += jobs;
            // Somebody may have started the jobs: they cannot expire any more.
            let head = self.head(held.batch)?;
            let expires_at = held.standing().deadline(&head.options, self.now);
            self.give_back(held, &held.positions, held.rescues + 1, expires_at)?;
            return Ok(());
        }
        rescued.dead += jobs;
        let error = too_many_rescues(held.rescues);
        for position in held.positions.iter() {
            self.insert_failure(
                held.batch,
                &FailedAttempt::unreported(position, held.lease, held.attempt, &error),
            )?;
        }
        self.end_jobs(
            held.batch,
            &held.positions,
            &Ending::of(JobState::Dead, held.attempt),
        )?;
        let left = self.left_open(held.batch, held.family, &held.positions)?;
        ended.extend(self.cancel_descendants(left)?);
        ended.push(Ended {
            batch: held.batch,
            endings: vec![(JobState::Dead, held.positions.clone())],
        });
        Ok(())
    }

    fn forget_worker(&self, worker: WorkerId) -> Result<()> {
        self.execute("DELETE FROM revoked WHERE worker_id = ?1", [worker.0])?;
        self.execute("DELETE FROM progress WHERE worker_id = ?1", [worker.0])?;
        self.execute("DELETE FROM worker WHERE id = ?1", [worker.0])?;
        Ok(())
    }
}
