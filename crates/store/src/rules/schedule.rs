//! The plan of due schedules: the jobs that they submit, packed by kind.
//!
//! The store submits the planned batches and updates the rows of the schedules in one transaction, so that no moment fires
//! twice.

use std::collections::{BTreeMap, HashSet};

use gristmill_model::limits::{
    BATCH_BYTES_TARGET, BATCH_JOBS_MAX, CATCH_UP_MOMENTS_MAX, SCHEDULE_LATE_MS_MAX,
};
use gristmill_model::{JobId, KeyedBatch, NewBatch, PackedArray, PackedBuilder, Recurrence, Timestamp};

use crate::StoreError;
use crate::rules::keys::SubmittedJobs;
use crate::schedule::{CatchUp, Fired, NewSchedule, Overlap, Schedule};

/// What a schedule does at one look.
#[derive(Debug, PartialEq, Eq)]
pub struct Turn {
    /// The moments for which it submits a job.
    pub moments: Vec<Timestamp>,
    /// Its next due moment; `None` after the last one.
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
pub struct Plan {
    /// The batches to submit.
    pub batches: Vec<PlannedBatch>,
    /// Jobs that make room for the next.
    pub cancelled: Vec<JobId>,
    /// What becomes of each schedule, in the order in which they were given.
    pub schedules: Vec<PlannedSchedule>,
}

/// A batch, with the schedule of each job by position.
#[derive(Debug)]
pub struct PlannedBatch {
    /// The batch.
    pub batch: NewBatch,
    /// The keys of its jobs, where they have some.
    pub keys: Option<PackedArray>,
    /// The schedules, as indexes into the due schedules.
    pub schedules: Vec<usize>,
}

/// The new state of a due schedule.
#[derive(Debug)]
pub struct PlannedSchedule {
    /// Its next due moment; `None` after the last one.
    pub next_at: Option<Timestamp>,
    /// The end of its pause.
    pub paused_until: Option<Timestamp>,
    /// The moment for which it submits last, if it submits.
    pub last_at: Option<Timestamp>,
}

/// The jobs that a schedule has submitted.
#[derive(Debug, Clone, Copy, Default)]
pub struct FiredSchedule {
    /// Its last job, or the one that stands for it.
    pub last_job: Option<JobId>,
    /// How many jobs were stored.
    pub jobs: u64,
}

impl PlannedBatch {
    /// The batch with the keys of its jobs; `None` where they have none.
    pub fn keyed(&self) -> Option<KeyedBatch> {
        let keys = self.keys.clone()?;
        let unique = self.batch.options.unique.unwrap_or_default();
        Some(KeyedBatch::new(self.batch.clone(), keys, unique))
    }
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

    /// The result of the plan, given what became of its batches: in all, and for each schedule.
    pub fn fired(&self, submitted: &[SubmittedJobs]) -> (Fired, Vec<FiredSchedule>) {
        let mut fired = Fired {
            schedules: self.schedules.len() as u64,
            ..Fired::default()
        };
        let mut schedules = vec![FiredSchedule::default(); self.schedules.len()];
        for (submitted, planned) in submitted.iter().zip(&self.batches) {
            for (job, &index) in submitted.jobs.iter().zip(&planned.schedules) {
                schedules[index].last_job = Some(*job);
                schedules[index].jobs += u64::from(submitted.batch == Some(job.batch));
            }
            fired
                .batches
                .extend(submitted.batch.map(|batch| (batch, submitted.count)));
            fired.jobs += u64::from(submitted.count);
        }
        (fired, schedules)
    }

    /// The jobs of all schedules with one kind, queue, options and tags are packed together.
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
            });
        }
        plan.batches = packing.finish();
        Ok(plan)
    }
}

/// Jobs of schedules on their way into batches.
#[derive(Debug, Default)]
struct Packing {
    /// By kind, queue, options and tags.
    open: BTreeMap<(String, String, String, BTreeMap<String, String>), OpenBatch>,
    full: Vec<PlannedBatch>,
}

/// A batch that may get more jobs.
#[derive(Debug)]
struct OpenBatch {
    batch: NewBatch,
    payloads: PackedBuilder,
    /// Of all jobs, where the options say how keys are meant.
    keys: PackedBuilder,
    schedules: Vec<usize>,
}

impl Packing {
    fn add(&mut self, index: usize, schedule: &NewSchedule, moment: Timestamp) -> Result<(), StoreError> {
        let batch = schedule.batch(PackedBuilder::new().finish(), moment);
        let options = serde_json::to_string(&batch.options)
            .map_err(|error| StoreError::InvalidInput(format!("schedule `{}`: {error}", schedule.name)))?;
        let key = (
            batch.kind.clone(),
            batch.queue.clone(),
            options,
            schedule.tags.clone(),
        );
        let open = self.open.entry(key.clone()).or_insert_with(|| OpenBatch {
            batch,
            payloads: PackedBuilder::new(),
            keys: PackedBuilder::new(),
            schedules: Vec::new(),
        });
        open.payloads.extend(&schedule.payload);
        if let Some(key) = &schedule.key {
            open.keys.push_value(key)?;
        }
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
            keys: self.batch.options.unique.map(|_| self.keys.finish()),
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
