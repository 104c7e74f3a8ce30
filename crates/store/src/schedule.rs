//! Schedules: rows with the next due moment.
//!
//! The engine reads due schedules once a second, or when the next one is due. This module plans the jobs that they
//! submit, packed by kind; the store submits them and updates the rows in one transaction, so that no moment fires
//! twice. `model::recurrence` computes due moments.

use std::collections::{BTreeMap, HashSet};

use gristmill_model::batch::check_name;
use gristmill_model::limits::{
    BATCH_BYTES_TARGET, BATCH_JOBS_MAX, CATCH_UP_MOMENTS_MAX, SCHEDULE_LATE_MS_MAX,
};
use gristmill_model::{
    BatchId, BatchOptions, JobId, NewBatch, PackedArray, PackedBuilder, Recurrence, RecurrenceRule, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::StoreError;

/// What becomes of moments that passed while nobody looked: no process ran, or the store was away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CatchUp {
    /// They are left out. What is noticed within
    /// [`SCHEDULE_LATE_MS_MAX`] counts as met.
    Skip,
    /// One job for all of them.
    #[default]
    One,
    /// A job for each.
    All,
}

/// What a schedule does when it is due and its last job is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// It submits the next one beside it.
    #[default]
    Allow,
    /// It leaves this moment out.
    Skip,
    /// It cancels the last one and submits the next.
    Replace,
}

/// A schedule as it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewSchedule {
    /// Its name: one of the same name is changed.
    pub name: String,
    /// When it is due.
    pub rule: RecurrenceRule,
    /// The kind of its jobs.
    pub kind: String,
    /// Their queue.
    pub queue: String,
    /// Their payload: an array of one item.
    pub payload: PackedArray,
    /// What holds for them; moments in it are not used.
    pub options: BatchOptions,
    /// A job that nobody has started so long after it was due ends as expired. Milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after_ms: Option<u64>,
    /// What becomes of missed moments.
    #[serde(default)]
    pub catch_up: CatchUp,
    /// What happens while the last job is not over.
    #[serde(default)]
    pub overlap: Overlap,
}

/// A schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// As it was made.
    #[serde(flatten)]
    pub schedule: NewSchedule,
    /// When it was made, or got its present rule: intervals are counted from here.
    pub since: Timestamp,
    /// When it is due next; `None` while it is paused, and where it never is again.
    pub next_at: Option<Timestamp>,
    /// The moment for which it submitted last.
    pub last_at: Option<Timestamp>,
    /// The job that it submitted last.
    pub last_job: Option<JobId>,
    /// How many jobs it has submitted.
    pub fired: u64,
    /// Until when it is paused; the end of time where nobody said.
    pub paused_until: Option<Timestamp>,
}

/// What is done to schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleChange {
    /// They are due no more until this moment, or until they are resumed.
    Pause {
        /// When they go on by themselves.
        until: Option<Timestamp>,
    },
    /// They go on. Moments that passed meanwhile are left out.
    Resume,
    /// They submit a job now, whether paused or not, and are due as before.
    Trigger,
    /// They are gone; their jobs stay.
    Delete,
}

/// What one look at the schedules did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fired {
    /// Schedules that were due.
    pub schedules: u64,
    /// The batches that they submitted, packed by kind, queue and options, with the number of their jobs.
    pub batches: Vec<(BatchId, u32)>,
    /// Jobs in all of them.
    pub jobs: u64,
    /// When the next one is due: not after now where there are more than one look takes.
    pub next_at: Option<Timestamp>,
}

/// When a paused schedule goes on by itself, where nobody said.
pub const NEVER: Timestamp = Timestamp(i64::MAX);

impl NewSchedule {
    /// Checks all that can be checked without a store.
    pub fn check(&self, now: Timestamp) -> Result<(), StoreError> {
        check_name("schedule", &self.name)?;
        self.batch(self.payload.clone(), now).check()?;
        if self.payload.count() != 1 {
            return Err(StoreError::InvalidInput(format!(
                "schedule `{}` needs one payload; this one has {}",
                self.name,
                self.payload.count()
            )));
        }
        self.recurrence(now)?;
        Ok(())
    }

    /// When it is due, counted from `since`.
    pub fn recurrence(&self, since: Timestamp) -> Result<Recurrence, StoreError> {
        let recurrence = self.rule.recurrence(since);
        recurrence.map_err(|error| StoreError::InvalidInput(format!("schedule `{}`: {error}", self.name)))
    }

    /// Its jobs as a batch, due at `moment`.
    pub(crate) fn batch(&self, payloads: PackedArray, moment: Timestamp) -> NewBatch {
        let expires_after_ms = self
            .expires_after_ms
            .map(|after_ms| i64::try_from(after_ms).unwrap_or(i64::MAX));
        NewBatch {
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            payloads,
            options: BatchOptions {
                run_at: None,
                expires_at: expires_after_ms.map(|after_ms| moment.plus_ms(after_ms)),
                ..self.options.clone()
            },
            rejected: Vec::new(),
            after: Vec::new(),
            tags: Vec::new(),
        }
    }
}

impl Schedule {
    /// From when the schedule of this name counts, and when it is due next, once it is `new`. One whose rule is the
    /// same goes on as it was, so that a program can put its schedules whenever it starts.
    pub(crate) fn put(
        known: Option<&Schedule>,
        new: &NewSchedule,
        now: Timestamp,
    ) -> Result<(Timestamp, Option<Timestamp>), StoreError> {
        match known {
            Some(known) if known.schedule.rule == new.rule => Ok((known.since, known.next_at)),
            known => {
                let paused_until = known.and_then(|known| known.paused_until);
                let from = paused_until.map_or(now, |until| until.max(now));
                Ok((now, new.recurrence(now)?.next_after(from)))
            }
        }
    }

    /// When it is due next, not before `from`.
    pub(crate) fn next_from(&self, from: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let recurrence = self.schedule.recurrence(self.since)?;
        Ok(recurrence.next_after(from.plus_ms(-1)))
    }
}

/// What a schedule does at one look.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The moments for which it submits a job.
    pub moments: Vec<Timestamp>,
    pub next_at: Option<Timestamp>,
}

impl Turn {
    /// What a schedule that was due at `due` does at `now`.
    pub fn of(recurrence: &Recurrence, catch_up: CatchUp, due: Timestamp, now: Timestamp) -> Turn {
        let after_now = || recurrence.next_after(now);
        match catch_up {
            CatchUp::One => Turn {
                moments: vec![due],
                next_at: after_now(),
            },
            CatchUp::Skip => {
                let from = due.max(now.plus_ms(-SCHEDULE_LATE_MS_MAX));
                let met = recurrence.between(from.plus_ms(-1), now, CATCH_UP_MOMENTS_MAX);
                Turn {
                    moments: met.last().copied().into_iter().collect(),
                    next_at: after_now(),
                }
            }
            CatchUp::All => {
                let moments = recurrence.between(due.plus_ms(-1), now, CATCH_UP_MOMENTS_MAX);
                let next_at = moments
                    .last()
                    .map_or_else(after_now, |last| recurrence.next_after(*last));
                Turn { moments, next_at }
            }
        }
    }
}

/// What one look does with the schedules that are due.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// What is submitted.
    pub batches: Vec<PlannedBatch>,
    /// Jobs that make room for the next.
    pub cancelled: Vec<JobId>,
    /// What becomes of each schedule, in the order in which they were given.
    pub schedules: Vec<PlannedSchedule>,
}

/// A batch, with the schedule of each job by position.
#[derive(Debug)]
pub(crate) struct PlannedBatch {
    pub batch: NewBatch,
    pub schedules: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct PlannedSchedule {
    pub next_at: Option<Timestamp>,
    pub paused_until: Option<Timestamp>,
    /// The moment for which it submits last, if it submits.
    pub last_at: Option<Timestamp>,
    pub jobs: u64,
}

impl Plan {
    /// What schedules that are due at `now` do, where `open` are those of their last jobs that are not over.
    pub fn of(due: &[Schedule], open: &HashSet<JobId>, now: Timestamp) -> Result<Plan, StoreError> {
        let turn = |row: &Schedule| {
            let recurrence = row.schedule.recurrence(row.since)?;
            let due_at = row.next_at.unwrap_or(now);
            Ok((Turn::of(&recurrence, row.schedule.catch_up, due_at, now), None))
        };
        Plan::of_turns(due, open, turn)
    }

    /// What schedules do that are told to at `now`: one job each, and they stay due as they were.
    pub fn triggered(rows: &[Schedule], open: &HashSet<JobId>, now: Timestamp) -> Result<Plan, StoreError> {
        let turn = |row: &Schedule| {
            let turn = Turn {
                moments: vec![now],
                next_at: row.next_at,
            };
            Ok((turn, row.paused_until))
        };
        Plan::of_turns(rows, open, turn)
    }

    /// What was done, once the batches have these ids: in all, and the job that each schedule submitted last.
    pub fn fired(&self, ids: &[BatchId]) -> (Fired, Vec<Option<JobId>>) {
        let mut fired = Fired {
            schedules: self.schedules.len() as u64,
            ..Fired::default()
        };
        let mut last_jobs = vec![None; self.schedules.len()];
        for (&batch, planned) in ids.iter().zip(&self.batches) {
            for (position, &index) in (0..).zip(&planned.schedules) {
                last_jobs[index] = Some(JobId { batch, position });
            }
            let jobs = planned.batch.payloads.count();
            fired.batches.push((batch, jobs));
            fired.jobs += u64::from(jobs);
        }
        (fired, last_jobs)
    }

    /// The jobs of all schedules with one kind, queue and options are packed together.
    fn of_turns(
        rows: &[Schedule],
        open: &HashSet<JobId>,
        turn: impl Fn(&Schedule) -> Result<(Turn, Option<Timestamp>), StoreError>,
    ) -> Result<Plan, StoreError> {
        let mut plan = Plan::default();
        let mut packing = Packing::default();
        for (index, row) in rows.iter().enumerate() {
            let (mut turn, paused_until) = turn(row)?;
            let last_open = row.last_job.filter(|job| open.contains(job));
            match row.schedule.overlap {
                Overlap::Allow => {}
                Overlap::Skip if last_open.is_some() => turn.moments.clear(),
                // Of several at once, only the last would be left.
                Overlap::Skip | Overlap::Replace => {
                    turn.moments.drain(..turn.moments.len().saturating_sub(1));
                }
            }
            if row.schedule.overlap == Overlap::Replace && !turn.moments.is_empty() {
                plan.cancelled.extend(last_open);
            }
            for moment in &turn.moments {
                packing.add(index, &row.schedule, *moment)?;
            }
            plan.schedules.push(PlannedSchedule {
                next_at: turn.next_at,
                paused_until,
                last_at: turn.moments.last().copied(),
                jobs: turn.moments.len() as u64,
            });
        }
        plan.batches = packing.finish();
        Ok(plan)
    }
}

/// Jobs of schedules on their way into batches.
#[derive(Debug, Default)]
struct Packing {
    /// By kind, queue and options.
    open: BTreeMap<(String, String, String), OpenBatch>,
    full: Vec<PlannedBatch>,
}

/// A batch that may get more jobs.
#[derive(Debug)]
struct OpenBatch {
    batch: NewBatch,
    payloads: PackedBuilder,
    schedules: Vec<usize>,
}

impl Packing {
    fn add(&mut self, index: usize, schedule: &NewSchedule, moment: Timestamp) -> Result<(), StoreError> {
        let batch = schedule.batch(PackedBuilder::new().finish(), moment);
        let options = serde_json::to_string(&batch.options)
            .map_err(|error| StoreError::InvalidInput(format!("schedule `{}`: {error}", schedule.name)))?;
        let key = (batch.kind.clone(), batch.queue.clone(), options);
        let open = self.open.entry(key.clone()).or_insert_with(|| OpenBatch {
            batch,
            payloads: PackedBuilder::new(),
            schedules: Vec::new(),
        });
        open.payloads.extend(&schedule.payload);
        open.schedules.push(index);
        let is_full = open.payloads.count() >= BATCH_JOBS_MAX || open.payloads.bytes() >= BATCH_BYTES_TARGET;
        if is_full && let Some(open) = self.open.remove(&key) {
            self.full.push(open.close());
        }
        Ok(())
    }

    fn finish(self) -> Vec<PlannedBatch> {
        let rest = self.open.into_values().map(OpenBatch::close);
        self.full.into_iter().chain(rest).collect()
    }
}

impl OpenBatch {
    fn close(self) -> PlannedBatch {
        PlannedBatch {
            batch: NewBatch {
                payloads: self.payloads.finish(),
                ..self.batch
            },
            schedules: self.schedules,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_moments_are_made_up_for_as_wished() {
        let every = Recurrence::every(10_000, Timestamp(0)).unwrap();
        let turn = |catch_up, due, now| {
            let turn = Turn::of(&every, catch_up, Timestamp(due), Timestamp(now));
            let moments: Vec<i64> = turn.moments.iter().map(|moment| moment.0).collect();
            (moments, turn.next_at.unwrap().0)
        };
        for catch_up in [CatchUp::Skip, CatchUp::One, CatchUp::All] {
            assert_eq!(turn(catch_up, 10_000, 10_000), (vec![10_000], 20_000), "on time");
            assert_eq!(
                turn(catch_up, 10_000, 19_999),
                (vec![10_000], 20_000),
                "a little late"
            );
        }
        assert_eq!(turn(CatchUp::One, 10_000, 105_000), (vec![10_000], 110_000));
        assert_eq!(turn(CatchUp::Skip, 10_000, 105_000), (vec![100_000], 110_000));
        let (moments, next_at) = turn(CatchUp::All, 10_000, 105_000);
        assert_eq!(
            (moments.len(), moments.last(), next_at),
            (10, Some(&100_000), 110_000)
        );
        let (moments, next_at) = turn(CatchUp::All, 10_000, 1_000_000_000);
        assert_eq!(
            (moments.len(), next_at),
            (CATCH_UP_MOMENTS_MAX, 10_000 * (CATCH_UP_MOMENTS_MAX as i64 + 1))
        );

        let hourly = Recurrence::cron("0 * * * *", "UTC").unwrap();
        let late = Turn::of(
            &hourly,
            CatchUp::Skip,
            Timestamp(3_600_000),
            Timestamp(3_600_000 + SCHEDULE_LATE_MS_MAX + 1),
        );
        assert_eq!(
            (late.moments.len(), late.next_at),
            (0, Some(Timestamp(7_200_000)))
        );
    }
}
