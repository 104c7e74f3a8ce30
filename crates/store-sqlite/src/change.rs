//! Changes of jobs from outside: cancel, retry, expiry.

pub(crate) mod pause;
pub(crate) mod priority;
pub(crate) mod prune;
mod set_back;
mod shrink;

use std::collections::BTreeMap;

use gristmill_model::positions::by_batch;
use gristmill_model::{BatchId, JobId, JobState, Positions};
use gristmill_store::rules::deadline::{Standing, too_late};
use gristmill_store::rules::ending::Ending;
use gristmill_store::rules::family::flow::{cannot_retry_cleaned_up, cannot_retry_step};
use gristmill_store::{BatchPositions, Change, Changed, JobFilter, Selection};
use rusqlite::{params, params_from_iter};

use crate::claim::slice::NewSlice;
use crate::columns::{POSITION_BITS, read_positions, read_state, report_id};
use crate::failure::Result;
use crate::graph::dependency::Ended;
use crate::graph::family::parentage;
use crate::query::filter::BatchConditions;
use crate::query::tag::narrowed;
use crate::transaction::Transaction;

/// The jobs of a selection, by batch.
pub(crate) struct Meant {
    /// The positions of each batch; `None` for all of them.
    pub batches: Vec<(BatchId, Option<Positions>)>,
    pub states: Vec<JobState>,
    /// How many jobs were named, instead of found by a filter.
    named: u64,
}

/// A report of jobs that did not complete.
struct EndedRow {
    id: i64,
    batch: BatchId,
    state: JobState,
    attempt: u32,
    finished_at: i64,
    worker: Option<String>,
    positions: Positions,
}

/// Reports of jobs that can be retried. A job that was rejected (dead on attempt 0) cannot run, however often it is tried.
const RETRIED: &str = "state <> 'completed' AND (state <> 'dead' OR attempt > 0)";

/// Batches that have open jobs.
pub(crate) const OPEN: &str =
    "b.id IN (SELECT batch_id FROM slice UNION SELECT batch_id FROM held UNION SELECT batch_id FROM blocked)";

/// The cancelled jobs of a batch.
#[derive(Debug)]
pub(crate) struct Cancelled {
    pub endings: Vec<(JobState, Positions)>,
    /// The children that some of them waited for.
    pub children: Vec<BatchPositions>,
}

impl Transaction<'_> {
    /// Changes jobs.
    pub fn change(&mut self, selection: &Selection, change: &Change) -> Result<Changed> {
        match change {
            Change::Cancel => self.cancel(selection),
            Change::Retry => self.retry(selection),
            Change::Discard => self.discard(selection),
            Change::Prioritise(priority) => self.prioritise(selection, *priority),
            Change::Pause { reason, until } => self.pause_jobs(selection, reason, *until),
            Change::Resume { reason } => self.resume_jobs(selection, reason.as_deref()),
        }
    }

    /// Cancels open jobs.
    pub fn cancel(&mut self, selection: &Selection) -> Result<Changed> {
        let meant = self.meant(selection, OPEN)?;
        let mut changed = 0;
        let (mut ended, mut children) = (Vec::new(), Vec::new());
        let spares_cleanups = selection.spares_cleanups();
        for (batch, positions) in &meant.batches {
            // A cancel by conditions can be repeated, and cancels the flows alone.
            if spares_cleanups && self.cleans_up(*batch)? {
                continue;
            }
            let cancelled = self.cancel_in(*batch, positions.as_ref(), &meant.states)?;
            let counts = cancelled.endings.iter();
            changed += counts
                .map(|(_, positions)| u64::from(positions.len()))
                .sum::<u64>();
            children.extend(cancelled.children);
            ended.push(Ended {
                batch: *batch,
                endings: cancelled.endings,
            });
        }
        ended.retain(|ended| !ended.endings.is_empty());
        ended.extend(self.cancel_descendants(children)?);
        self.settle(ended)?;
        Ok(meant.changed(changed))
    }

    /// Makes dead, cancelled and expired jobs claimable again.
    fn retry(&mut self, selection: &Selection) -> Result<Changed> {
        let over = format!(
            "b.id IN (SELECT id >> {POSITION_BITS} FROM report \
             WHERE state IN ('dead', 'cancelled', 'expired') AND state <> 'completed')"
        );
        let meant = self.meant(selection, &over)?;
        if let Selection::Jobs(_) = selection {
            self.refuse_steps(&meant)?;
            self.refuse_cleaned_up(&meant)?;
        }
        let mut changed = 0;
        for (batch, positions) in &meant.batches {
            changed += self.retry_in(*batch, positions.as_ref(), &meant.states)?;
        }
        Ok(meant.changed(changed))
    }

    /// Ends dead jobs as cancelled.
    fn discard(&mut self, selection: &Selection) -> Result<Changed> {
        let dead = format!(
            "b.id IN (SELECT id >> {POSITION_BITS} FROM report WHERE state = 'dead' AND state <> 'completed')"
        );
        let meant = self.meant(selection, &dead)?;
        let mut changed = 0;
        if is_meant(JobState::Dead, &meant.states) {
            for (batch, positions) in &meant.batches {
                changed += self.discard_in(*batch, positions.as_ref())?;
            }
        }
        Ok(meant.changed(changed))
    }

    /// Ends jobs that nobody started in time. Returns how many.
    pub fn expire(&mut self) -> Result<u64> {
        let mut expired = 0;
        let (mut ended, mut left_open) = (Vec::new(), Vec::new());
        for slice in self.expired_slices()? {
            self.shorten(&slice, &Positions::new())?;
            left_open.extend(self.left_open(slice.batch, slice.family, &slice.positions)?);
            let state = self.end_late(slice.batch, &slice.positions, slice.standing())?;
            expired += u64::from(slice.positions.len());
            ended.push((slice.batch, state, slice.positions));
        }
        for blocked in self.expired_blocked()? {
            self.shorten_blocked(&blocked, &Positions::new())?;
            left_open.extend(self.left_open(blocked.batch, blocked.family, &blocked.positions)?);
            let state = self.end_late(blocked.batch, &blocked.positions, blocked.standing())?;
            expired += u64::from(blocked.positions.len());
            ended.push((blocked.batch, state, blocked.positions));
        }
        let ended = ended.into_iter().map(|(batch, state, positions)| Ended {
            batch,
            endings: vec![(state, positions)],
        });
        let mut all: Vec<Ended> = ended.collect();
        all.extend(self.cancel_descendants(left_open)?);
        self.settle(all)?;
        self.end_pauses()?;
        self.forget_keys()?;
        self.forget_values()?;
        self.stop_listening()?;
        self.forget_output()?;
        Ok(expired)
    }

    /// Ends jobs that were not claimed in time. Returns how they ended.
    fn end_late(&mut self, batch: BatchId, positions: &Positions, standing: Standing) -> Result<JobState> {
        if standing.has_begun() {
            let error = too_late(&self.head(batch)?.options);
            // After all earlier attempts of the jobs.
            let lease = self.next_lease_id()?.0;
            for position in positions.iter() {
                self.insert_failure(batch, &standing.failure(position, lease, &error))?;
            }
        }
        let ending = standing.ending();
        self.end_jobs(batch, positions, &ending)?;
        Ok(ending.state)
    }

    pub fn meant(&self, selection: &Selection, candidates: &str) -> Result<Meant> {
        match selection {
            Selection::Jobs(jobs) => Ok(Meant::named(jobs)),
            Selection::Packed { jobs, states } => Ok(Meant::packed(jobs, states)),
            Selection::Filter(filter) => self.matching(filter, candidates),
        }
    }

    fn matching(&self, filter: &JobFilter, candidates: &str) -> Result<Meant> {
        let narrowed = narrowed(self.connection, filter)?;
        let conditions = BatchConditions::narrowed(filter, narrowed.as_ref());
        // A filter by batch, run, tags or keys is narrow enough.
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

    /// Cancels the open jobs among these positions of a batch (all, if `None`), in one of these states. Returns these
    /// jobs. The caller cancels their children, and settles the edges to them.
    pub fn cancel_in(
        &mut self,
        batch: BatchId,
        positions: Option<&Positions>,
        states: &[JobState],
    ) -> Result<Cancelled> {
        let mut children = Vec::new();
        let mut flows = Vec::new();
        let mut cancelled: BTreeMap<u32, Positions> = BTreeMap::new();
        let mut add = |attempt: u32, positions: &Positions| {
            let all = cancelled.entry(attempt).or_default();
            *all = all.union(positions);
        };
        for slice in self.slices_of(batch)? {
            let taken = meant_of(&slice.positions, positions);
            if !taken.is_empty() && is_meant(slice.state(self.now), states) {
                self.shorten(&slice, &slice.positions.difference(&taken))?;
                children.extend(self.left_open(batch, slice.family, &taken)?);
                // The attempt that comes next is not made any more.
                add(slice.attempt - 1, &taken);
                flows.push((slice.family, false, taken));
            }
        }
        for blocked in self.blocked_of(batch)? {
            let taken = meant_of(&blocked.positions, positions);
            if !taken.is_empty() && is_meant(blocked.state(), states) {
                self.shorten_blocked(&blocked, &blocked.positions.difference(&taken))?;
                children.extend(self.children_of_blocked(&blocked, &taken)?);
                add(blocked.attempt - 1, &taken);
                flows.push((blocked.family, false, taken));
            }
        }
        for held in self.held_of(batch)? {
            let taken = meant_of(&held.positions, positions);
            if !taken.is_empty() && is_meant(JobState::Running, states) {
                self.let_go(&held, &taken)?;
                self.revoke(&held, &taken)?;
                children.extend(self.left_open(batch, held.family, &taken)?);
                add(held.attempt, &taken);
                // The worker runs it until it learns of the cancel.
                flows.push((held.family, true, taken));
            }
        }
        self.note_cleanups(batch, &flows)?;
        debug_assert!(cancelled.values().all(|positions| !positions.is_empty()));
        for (attempt, positions) in &cancelled {
            self.end_jobs(batch, positions, &Ending::of(JobState::Cancelled, *attempt))?;
        }
        let endings = cancelled.into_values();
        Ok(Cancelled {
            endings: endings
                .map(|positions| (JobState::Cancelled, positions))
                .collect(),
            children,
        })
    }

    /// Cancels the dead jobs among these positions of a batch (all, if `None`). Returns their number.
    fn discard_in(&mut self, batch: BatchId, positions: Option<&Positions>) -> Result<u64> {
        let dead = self.rows_of_reports(batch, "state = 'dead' AND state <> 'completed'")?;
        let mut discarded = 0;
        for report in dead {
            let taken = meant_of(&report.positions, positions);
            let Some(first) = taken.first() else {
                continue;
            };
            discarded += u64::from(taken.len());
            self.shorten_report(&report, &report.positions.difference(&taken))?;
            self.execute(
                "INSERT INTO report (id, state, attempt, count, finished_at, worker, positions) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    report_id(batch, first),
                    JobState::Cancelled.name(),
                    report.attempt,
                    taken.len(),
                    report.finished_at,
                    report.worker,
                    taken.to_string(),
                ],
            )?;
        }
        Ok(discarded)
    }

    /// The reports of a batch that meet a condition, without their values.
    fn rows_of_reports(&self, batch: BatchId, condition: &str) -> Result<Vec<EndedRow>> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT id, state, attempt, finished_at, worker, positions FROM report WHERE id BETWEEN ?1 AND ?2 \
             AND {condition}"
        ))?;
        let mut rows = statement.query([report_id(batch, 0), report_id(BatchId(batch.0 + 1), 0) - 1])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            all.push(EndedRow {
                id: row.get(0)?,
                batch,
                state: read_state(row, 1)?,
                attempt: row.get(2)?,
                finished_at: row.get(3)?,
                worker: row.get(4)?,
                positions: read_positions(row, 5)?,
            });
        }
        Ok(all)
    }

    /// Leaves `rest` of a report of jobs that did not complete.
    fn shorten_report(&self, report: &EndedRow, rest: &Positions) -> Result<()> {
        match rest.first() {
            None => self.execute("DELETE FROM report WHERE id = ?1", [report.id])?,
            Some(first) => self.execute(
                "UPDATE report SET id = ?2, positions = ?3, count = ?4 WHERE id = ?1",
                params![
                    report.id,
                    report_id(report.batch, first),
                    rest.to_string(),
                    rest.len()
                ],
            )?,
        };
        Ok(())
    }

    /// The jobs of a batch that were dead from the start and then discarded: they can never run.
    fn rejected_of(&self, batch: BatchId) -> Result<Positions> {
        let rejected = self.rows(
            "SELECT position FROM failure WHERE batch_id = ?1 AND lease_id = 0 AND attempt = 0 \
             AND error ->> '$.type' <> 'prerequisite'",
            [batch.0],
            |row| row.get(0),
        )?;
        Ok(rejected.into_iter().collect())
    }

    /// Refuses to retry named jobs if one of them is a step of a flow that has ended.
    fn refuse_steps(&self, meant: &Meant) -> Result<()> {
        for (batch, positions) in &meant.batches {
            let parentage = parentage(self.connection, *batch)?.filter(|parentage| parentage.is_flow);
            let Some(parentage) = parentage else {
                continue;
            };
            for report in self.rows_of_reports(*batch, RETRIED)? {
                let step = meant_of(&report.positions, positions.as_ref()).first();
                let found = step.and_then(|step| Some((step, parentage.brood.parent_of(step)?)));
                if let Some((step, flow)) = found {
                    let job = |batch, position| JobId { batch, position };
                    let error = cannot_retry_step(job(*batch, step), job(parentage.batch, flow));
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// Refuses to retry named flows if one of them is cleaned up after.
    fn refuse_cleaned_up(&self, meant: &Meant) -> Result<()> {
        for (batch, positions) in &meant.batches {
            let found = meant_of(&self.cleaned_up(*batch)?, positions.as_ref()).first();
            if let Some(position) = found {
                let batch = *batch;
                return Err(cannot_retry_cleaned_up(JobId { batch, position }).into());
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
        let reports = self.rows_of_reports(batch, RETRIED)?;
        // Nothing can run jobs that wait for a signal. A flow may have used the outcomes of its steps.
        if reports.is_empty()
            || self.head(batch)?.options.signal.is_some()
            || parentage(self.connection, batch)?.is_some_and(|parentage| parentage.is_flow)
        {
            return Ok(0);
        }
        let others = self.taken_keys(batch)?.union(&self.cleaned_up(batch)?);
        let mut retried = Positions::new();
        for report in reports {
            let mut taken = meant_of(&report.positions, positions).difference(&others);
            if report.state == JobState::Cancelled && report.attempt == 0 {
                taken = taken.difference(&self.rejected_of(batch)?);
            }
            if taken.is_empty() || !is_meant(report.state, states) {
                continue;
            }
            self.shorten_report(&report, &report.positions.difference(&taken))?;
            retried = retried.union(&taken);
        }
        if !retried.is_empty() {
            let head = self.head(batch)?;
            // A flow goes on after its last step.
            let flows = self.last_steps(batch, &retried)?;
            let goes_on = flows
                .iter()
                .fold(Positions::new(), |all, (_, flows)| all.union(flows));
            let others = retried.difference(&goes_on);
            assert_eq!(goes_on.len() + others.len(), retried.len(), "one or the other");
            let flows = flows.iter().map(|(family, flows)| (Some(*family), flows));
            for (family, positions) in flows.chain([(None, &others)]) {
                if positions.is_empty() {
                    continue;
                }
                let slice = NewSlice {
                    positions,
                    rank: head.rank(),
                    run_at: self.now,
                    attempt: 1,
                    rescues: 0,
                    // The caller wants the job to run: it must not expire at once.
                    expires_at: None,
                    family,
                };
                self.insert_slice(batch, &head, &slice)?;
            }
            self.take_keys_again(batch, &retried)?;
        }
        Ok(u64::from(retried.len()))
    }
}

impl Meant {
    fn named(jobs: &[JobId]) -> Meant {
        let batches = by_batch(jobs.iter().copied());
        Meant {
            named: batches.values().map(|positions| u64::from(positions.len())).sum(),
            batches: batches
                .into_iter()
                .map(|(batch, positions)| (batch, Some(positions)))
                .collect(),
            states: Vec::new(),
        }
    }

    fn packed(jobs: &[BatchPositions], states: &[JobState]) -> Meant {
        let packed = jobs.iter();
        Meant {
            named: packed.clone().map(|jobs| u64::from(jobs.positions.len())).sum(),
            batches: packed
                .map(|jobs| (jobs.batch, Some(jobs.positions.clone())))
                .collect(),
            states: states.to_vec(),
        }
    }

    pub fn changed(&self, changed: u64) -> Changed {
        Changed {
            changed,
            unchanged: self.named.saturating_sub(changed),
        }
    }
}

pub(crate) fn meant_of(positions: &Positions, meant: Option<&Positions>) -> Positions {
    meant.map_or_else(|| positions.clone(), |meant| positions.intersection(meant))
}

pub(crate) fn is_meant(state: JobState, states: &[JobState]) -> bool {
    states.is_empty() || states.contains(&state)
}
