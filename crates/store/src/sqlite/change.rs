//! Changing jobs from outside: cancel, retry, expiry.

use std::collections::BTreeMap;

use gristmill_model::{BatchId, JobId, JobState, Positions};
use rusqlite::{params, params_from_iter};

use super::commit::{POSITION_BITS, report_id};
use super::dependency::Ended;
use super::failure::Result;
use super::filter::BatchConditions;
use super::slice::NewSlice;
use super::tag::narrowed;
use super::transaction::{Transaction, read_positions};
use crate::ending::Ending;
use crate::{Changed, JobFilter, Selection};

/// Which jobs of which batches are meant.
struct Meant {
    /// All positions of a batch, where `None`.
    batches: Vec<(BatchId, Option<Positions>)>,
    states: Vec<JobState>,
    /// How many jobs were named one by one.
    named: u64,
}

impl Transaction<'_> {
    /// Cancels jobs that are not over.
    pub fn cancel(&mut self, selection: &Selection) -> Result<Changed> {
        let open = "b.id IN (SELECT batch_id FROM slice UNION SELECT batch_id FROM held UNION SELECT batch_id FROM blocked)";
        let meant = self.meant(selection, open)?;
        let mut changed = 0;
        let mut ended = Vec::new();
        for (batch, positions) in &meant.batches {
            let endings = self.cancel_in(*batch, positions.as_ref(), &meant.states)?;
            let cancelled = endings.iter().map(|(_, positions)| u64::from(positions.len()));
            changed += cancelled.sum::<u64>();
            ended.push(Ended {
                batch: *batch,
                endings,
            });
        }
        ended.retain(|ended| !ended.endings.is_empty());
        self.settle(ended)?;
        Ok(meant.changed(changed))
    }

    /// Makes dead, cancelled and expired jobs claimable again.
    pub fn retry(&mut self, selection: &Selection) -> Result<Changed> {
        let over = format!(
            "b.id IN (SELECT id >> {POSITION_BITS} FROM report \
             WHERE state IN ('dead', 'cancelled', 'expired') AND state <> 'completed')"
        );
        let meant = self.meant(selection, &over)?;
        let mut changed = 0;
        for (batch, positions) in &meant.batches {
            changed += self.retry_in(*batch, positions.as_ref(), &meant.states)?;
        }
        Ok(meant.changed(changed))
    }

    /// Ends jobs that nobody started in time. Returns how many.
    pub fn expire(&mut self) -> Result<u64> {
        let mut expired = 0;
        let mut ended = Vec::new();
        for slice in self.expired_slices()? {
            self.shorten(&slice, &Positions::new())?;
            let ending = Ending::of(JobState::Expired, slice.attempt - 1);
            self.end_jobs(slice.batch, &slice.positions, &ending)?;
            expired += u64::from(slice.positions.len());
            ended.push((slice.batch, slice.positions));
        }
        for blocked in self.expired_blocked()? {
            self.shorten_blocked(&blocked, &Positions::new())?;
            let ending = Ending::of(JobState::Expired, blocked.attempt - 1);
            self.end_jobs(blocked.batch, &blocked.positions, &ending)?;
            expired += u64::from(blocked.positions.len());
            ended.push((blocked.batch, blocked.positions));
        }
        let ended = ended.into_iter().map(|(batch, positions)| Ended {
            batch,
            endings: vec![(JobState::Expired, positions)],
        });
        self.settle(ended.collect())?;
        self.forget_keys()?;
        Ok(expired)
    }

    fn meant(&self, selection: &Selection, candidates: &str) -> Result<Meant> {
        match selection {
            Selection::Jobs(jobs) => Ok(Meant::named(jobs)),
            Selection::Filter(filter) => self.matching(filter, candidates),
        }
    }

    fn matching(&self, filter: &JobFilter, candidates: &str) -> Result<Meant> {
        let narrowed = narrowed(self.connection, filter)?;
        let conditions = BatchConditions::narrowed(filter, narrowed.as_ref());
        // Where a batch, a run, tags or keys are named, that is narrow enough.
        let candidates = if filter.batch.is_some() || filter.run.is_some() || narrowed.is_some() {
            "true"
        } else {
            candidates
        };
        let sql = format!(
            "SELECT b.id FROM batch b JOIN lane l ON l.id = b.lane_id WHERE {} AND {candidates} ORDER BY b.id",
            conditions.sql
        );
        let batches = self.rows(&sql, params_from_iter(conditions.params), |row| {
            let batch = BatchId(row.get(0)?);
            let positions = narrowed.as_ref().and_then(|narrowed| narrowed.get(&batch));
            Ok((batch, positions.cloned()))
        })?;
        Ok(Meant {
            batches,
            states: filter.states.clone(),
            named: 0,
        })
    }

    /// Cancels what is open of these positions of a batch (of all, where `None`), in one of these states. Returns what that
    /// was; what waits for it is left to the caller to settle.
    pub fn cancel_in(
        &mut self,
        batch: BatchId,
        positions: Option<&Positions>,
        states: &[JobState],
    ) -> Result<Vec<(JobState, Positions)>> {
        let mut cancelled: BTreeMap<u32, Positions> = BTreeMap::new();
        let mut add = |attempt: u32, positions: &Positions| {
            let all = cancelled.entry(attempt).or_default();
            *all = all.union(positions);
        };
        for slice in self.slices_of(batch)? {
            let state = if slice.run_at <= self.now {
                JobState::Waiting
            } else {
                JobState::Scheduled
            };
            let taken = meant_of(&slice.positions, positions);
            if !taken.is_empty() && is_meant(state, states) {
                self.shorten(&slice, &slice.positions.difference(&taken))?;
                // The attempt that comes next is not made any more.
                add(slice.attempt - 1, &taken);
            }
        }
        for blocked in self.blocked_of(batch)? {
            let taken = meant_of(&blocked.positions, positions);
            if !taken.is_empty() && is_meant(JobState::Blocked, states) {
                self.shorten_blocked(&blocked, &blocked.positions.difference(&taken))?;
                add(blocked.attempt - 1, &taken);
            }
        }
        for held in self.held_of(batch)? {
            let taken = meant_of(&held.positions, positions);
            if !taken.is_empty() && is_meant(JobState::Running, states) {
                self.let_go(&held, &taken)?;
                self.revoke(&held, &taken)?;
                add(held.attempt, &taken);
            }
        }
        for (attempt, positions) in &cancelled {
            self.end_jobs(batch, positions, &Ending::of(JobState::Cancelled, *attempt))?;
        }
        let endings = cancelled.into_values();
        Ok(endings
            .map(|positions| (JobState::Cancelled, positions))
            .collect())
    }

    /// Gives what waits of these positions of a batch a higher priority, if it is one.
    pub fn raise(&mut self, batch: BatchId, positions: &Positions, priority: i16) -> Result<()> {
        let rank = -i64::from(priority);
        for slice in self.slices_of(batch)? {
            let raised = slice.positions.intersection(positions);
            if rank < slice.rank && !raised.is_empty() {
                self.shorten(&slice, &slice.positions.difference(&raised))?;
                self.insert_ranked(&slice, rank, &raised)?;
            }
        }
        Ok(())
    }

    fn retry_in(
        &mut self,
        batch: BatchId,
        positions: Option<&Positions>,
        states: &[JobState],
    ) -> Result<u64> {
        // A job that was rejected (dead on attempt 0) cannot run, however often it is tried.
        let reports: Vec<(i64, JobState, Positions)> = {
            let mut statement = self.connection.prepare_cached(
                "SELECT id, state, positions FROM report WHERE id BETWEEN ?1 AND ?2 \
                 AND state <> 'completed' AND (state <> 'dead' OR attempt > 0)",
            )?;
            let mut rows = statement.query([report_id(batch, 0), report_id(BatchId(batch.0 + 1), 0) - 1])?;
            let mut all = Vec::new();
            while let Some(row) = rows.next()? {
                all.push((row.get(0)?, read_state(row, 1)?, read_positions(row, 2)?));
            }
            all
        };
        if reports.is_empty() {
            return Ok(0);
        }
        let others = self.taken_keys(batch)?;
        let mut retried = Positions::new();
        for (id, state, ended) in reports {
            let taken = meant_of(&ended, positions).difference(&others);
            if taken.is_empty() || !is_meant(state, states) {
                continue;
            }
            let rest = ended.difference(&taken);
            match rest.first() {
                None => self.execute("DELETE FROM report WHERE id = ?1", [id])?,
                Some(first) => self.execute(
                    "UPDATE report SET id = ?2, positions = ?3, count = ?4 WHERE id = ?1",
                    params![id, report_id(batch, first), rest.to_string(), rest.len()],
                )?,
            };
            retried = retried.union(&taken);
        }
        if !retried.is_empty() {
            let head = self.head(batch)?;
            let slice = NewSlice {
                positions: &retried,
                run_at: self.now,
                attempt: 1,
                rescues: 0,
                // Who asks for it now does not want it to expire at once.
                expires_at: None,
            };
            self.insert_slice(batch, &head, &slice)?;
            self.take_keys_again(batch, &retried)?;
        }
        Ok(u64::from(retried.len()))
    }
}

impl Meant {
    fn named(jobs: &[JobId]) -> Meant {
        let mut batches: BTreeMap<BatchId, Positions> = BTreeMap::new();
        for job in jobs {
            batches.entry(job.batch).or_default().insert(job.position);
        }
        Meant {
            named: batches.values().map(|positions| u64::from(positions.len())).sum(),
            batches: batches
                .into_iter()
                .map(|(batch, positions)| (batch, Some(positions)))
                .collect(),
            states: Vec::new(),
        }
    }

    fn changed(&self, changed: u64) -> Changed {
        Changed {
            changed,
            unchanged: self.named.saturating_sub(changed),
        }
    }
}

fn meant_of(positions: &Positions, meant: Option<&Positions>) -> Positions {
    meant.map_or_else(|| positions.clone(), |meant| positions.intersection(meant))
}

fn is_meant(state: JobState, states: &[JobState]) -> bool {
    states.is_empty() || states.contains(&state)
}

/// A column of states.
pub(super) fn read_state(row: &rusqlite::Row<'_>, column: usize) -> Result<JobState> {
    let text = row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?;
    text.parse()
        .map_err(|error: gristmill_model::state::ParseJobStateError| {
            super::failure::Failure::Damaged(error.to_string())
        })
}
