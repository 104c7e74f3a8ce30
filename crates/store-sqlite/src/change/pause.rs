//! Pauses of single jobs.
//!
//! Paused jobs are rows of `blocked`, which claims do not read, like jobs that wait for other jobs.

use gristmill_model::{BatchId, JobState, Positions, Timestamp};
use gristmill_store::integrity::DAMAGED;
use gristmill_store::rules::open::{Blocked, Held};
use gristmill_store::rules::pauses::Pauses;
use gristmill_store::{Changed, Selection};
use rusqlite::params;

use crate::SqliteStore;
use crate::change::{Meant, OPEN, is_meant, meant_of};
use crate::claim::slice::{NewSlice, Slice};
use crate::failure::{Failure, Result};
use crate::graph::dependency::select_blocked;
use crate::transaction::{BatchHead, Transaction};

/// A pause.
#[derive(Clone, Copy)]
struct Pause<'a> {
    reason: &'a str,
    until: Option<Timestamp>,
}

/// Returns `None` if rows are damaged.
fn readable<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Failure::Damaged(_)) => Ok(None),
        Err(failure) if failure.is_of_batch() => Ok(None),
        Err(failure) => Err(failure),
    }
}

impl SqliteStore {
    /// Pauses the open jobs of a batch that a query has found to be damaged.
    pub(crate) async fn quarantine(&self, batch: BatchId) {
        let work = move |transaction: &mut Transaction<'_>| transaction.quarantine(batch, None);
        if let Err(error) = self.write(0, work).await {
            tracing::warn!(%error, batch = batch.0, "a damaged batch is not paused; workers leave its damaged jobs alone");
        }
    }
}

impl Transaction<'_> {
    /// Keeps open jobs from being claimed.
    pub fn pause_jobs(
        &mut self,
        selection: &Selection,
        reason: &str,
        until: Option<Timestamp>,
    ) -> Result<Changed> {
        let meant = self.meant(selection, OPEN)?;
        let pause = Pause { reason, until };
        let mut changed = 0;
        for (batch, positions) in &meant.batches {
            changed += self.pause_in(*batch, positions.as_ref(), &meant, pause)?;
        }
        Ok(meant.changed(changed))
    }

    fn pause_in(
        &mut self,
        batch: BatchId,
        positions: Option<&Positions>,
        meant: &Meant,
        pause: Pause<'_>,
    ) -> Result<u64> {
        let Pause { reason, until } = pause;
        let mut paused = 0;
        // In this order, because the jobs that the next loop pauses become rows of `blocked`.
        for blocked in self.blocked_of(batch)? {
            let taken = meant_of(&blocked.positions, positions);
            if !taken.is_empty() && is_meant(blocked.state(), &meant.states) {
                let pauses = Pauses::with(blocked.pauses.as_ref(), reason, until)?;
                let split = self.split_blocked(&blocked, &taken)?;
                self.pause_blocked(&split, Some(&pauses))?;
                paused += u64::from(taken.len());
            }
        }
        for slice in self.slices_of(batch)? {
            let taken = meant_of(&slice.positions, positions);
            if !taken.is_empty() && is_meant(slice.state(self.now), &meant.states) {
                self.shorten(&slice, &slice.positions.difference(&taken))?;
                self.keep_back(batch, &slice.part(&taken), Pauses::with(None, reason, until)?)?;
                paused += u64::from(taken.len());
            }
        }
        for held in self.held_of(batch)? {
            let taken = meant_of(&held.positions, positions);
            if !taken.is_empty() && is_meant(JobState::Running, &meant.states) {
                let pauses = Pauses::with(held.pauses.as_ref(), reason, until)?;
                let split = self.split_held(&held, &taken)?;
                self.pause_held(&split, Some(&pauses))?;
                paused += u64::from(taken.len());
            }
        }
        Ok(paused)
    }

    /// Pauses the open jobs of a damaged batch, so that others continue. `found` is a slice of it: if the batch's own
    /// columns are damaged, they do not lead to its slices.
    pub fn quarantine(&mut self, batch: BatchId, found: Option<&Slice>) -> Result<()> {
        if let Some(slice) = found {
            self.shorten(slice, &Positions::new())?;
            self.keep_back(
                batch,
                &slice.part(&slice.positions),
                Pauses::with(None, DAMAGED, None)?,
            )?;
        }
        let slices = readable(self.slices_of(batch))?;
        for slice in slices.unwrap_or_default() {
            self.shorten(&slice, &Positions::new())?;
            self.keep_back(
                batch,
                &slice.part(&slice.positions),
                Pauses::with(None, DAMAGED, None)?,
            )?;
        }
        // Jobs that already have the maximum number of pauses stay as they are.
        for blocked in readable(self.blocked_of(batch))?.unwrap_or_default() {
            if let Ok(pauses) = Pauses::with(blocked.pauses.as_ref(), DAMAGED, None) {
                self.pause_blocked(&blocked, Some(&pauses))?;
            }
        }
        for held in readable(self.held_of(batch))?.unwrap_or_default() {
            if let Ok(pauses) = Pauses::with(held.pauses.as_ref(), DAMAGED, None) {
                self.pause_held(&held, Some(&pauses))?;
            }
        }
        Ok(())
    }

    /// Ends pauses of jobs.
    pub fn resume_jobs(&mut self, selection: &Selection, reason: Option<&str>) -> Result<Changed> {
        let paused = "b.id IN (SELECT batch_id FROM blocked WHERE pauses IS NOT NULL \
                      UNION SELECT batch_id FROM held WHERE pauses IS NOT NULL)";
        let meant = self.meant(selection, paused)?;
        let mut changed = 0;
        for (batch, positions) in &meant.batches {
            changed += self.resume_in(*batch, positions.as_ref(), &meant, reason)?;
        }
        Ok(meant.changed(changed))
    }

    fn resume_in(
        &mut self,
        batch: BatchId,
        positions: Option<&Positions>,
        meant: &Meant,
        reason: Option<&str>,
    ) -> Result<u64> {
        let mut resumed = 0;
        for blocked in self.blocked_of(batch)? {
            let taken = meant_of(&blocked.positions, positions);
            let pauses = blocked.pauses.as_ref().filter(|pauses| pauses.has(reason));
            if let Some(pauses) = pauses
                && !taken.is_empty()
                && is_meant(blocked.state(), &meant.states)
            {
                let split = self.split_blocked(&blocked, &taken)?;
                self.leave_paused(&split, pauses.without(reason, self.now))?;
                resumed += u64::from(taken.len());
            }
        }
        for held in self.held_of(batch)? {
            let taken = meant_of(&held.positions, positions);
            let pauses = held.pauses.as_ref().filter(|pauses| pauses.has(reason));
            if let Some(pauses) = pauses
                && !taken.is_empty()
                && is_meant(JobState::Running, &meant.states)
            {
                let split = self.split_held(&held, &taken)?;
                self.pause_held(&split, pauses.without(reason, self.now).as_ref())?;
                resumed += u64::from(taken.len());
            }
        }
        Ok(resumed)
    }

    /// Ends the expired pauses in `blocked`.
    pub fn end_pauses(&mut self) -> Result<()> {
        let over = self.all_blocked(select_blocked!("paused_until <= ?1"), self.now.0)?;
        for blocked in over {
            self.leave_paused(&blocked, None)?;
        }
        Ok(())
    }

    /// Makes returned positions claimable, or keeps them paused if they were paused meanwhile.
    pub fn bring_back(&mut self, held: &Held, head: &BatchHead, slice: &NewSlice<'_>) -> Result<()> {
        match &held.pauses {
            Some(pauses) if !pauses.are_over(self.now) && !slice.positions.is_empty() => {
                self.keep_back(held.batch, slice, pauses.clone())
            }
            _ => self.insert_slice(held.batch, head, slice),
        }
    }

    fn keep_back(&self, batch: BatchId, slice: &NewSlice<'_>, pauses: Pauses) -> Result<()> {
        let blocked = Blocked {
            batch,
            part: self.next_part(batch)?,
            attempt: slice.attempt,
            rescues: slice.rescues,
            expires_at: slice.expires_at,
            rank: i32::try_from(slice.rank).ok(),
            run_at: Some(slice.run_at),
            pauses: Some(pauses),
            family: slice.family,
            positions: slice.positions.clone(),
        };
        self.block(&blocked, &[])
    }

    /// Leaves these pauses of a blocked part. If there are none, its jobs can be claimed, unless they wait for others.
    fn leave_paused(&mut self, blocked: &Blocked, pauses: Option<Pauses>) -> Result<()> {
        self.pause_blocked(blocked, pauses.as_ref())?;
        match pauses {
            Some(_) => Ok(()),
            None => self.let_be_claimed(blocked),
        }
    }

    fn pause_blocked(&self, blocked: &Blocked, pauses: Option<&Pauses>) -> Result<()> {
        self.execute(
            "UPDATE blocked SET pauses = ?3, paused_until = ?4 WHERE batch_id = ?1 AND part = ?2",
            params![
                blocked.batch.0,
                blocked.part,
                pauses.map(serde_json::to_string).transpose()?,
                pauses.and_then(Pauses::until).map(|until| until.0),
            ],
        )?;
        Ok(())
    }

    fn pause_held(&self, held: &Held, pauses: Option<&Pauses>) -> Result<()> {
        self.execute(
            "UPDATE held SET pauses = ?5 \
             WHERE lease_id = ?1 AND batch_id = ?2 AND attempt = ?3 AND first_position = ?4",
            params![
                held.lease,
                held.batch.0,
                held.attempt,
                held.first_position,
                pauses.map(serde_json::to_string).transpose()?
            ],
        )?;
        Ok(())
    }
}
