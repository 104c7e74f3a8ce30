//! The plan of due schedules: the jobs that they submit, packed by kind.
//!
//! The store submits the planned batches and updates the rows of the schedules in one transaction, so that no moment
//! fires twice.

use std::collections::{BTreeMap, HashSet};

use gristmill_model::limits::{
    BATCH_BYTES_TARGET, BATCH_JOBS_MAX, CATCH_UP_MOMENTS_MAX, SCHEDULE_LATE_MS_MAX,
};
use gristmill_model::{JobId, KeyedBatch, NewBatch, PackedArray, PackedBuilder, Recurrence, Timestamp};

use crate::StoreError;
use crate::rules::keys::SubmittedJobs;
use crate::schedule::{CatchUp, Fired, NewSchedule, Overlap, Schedule};

/// The action of a schedule in one read.
#[derive(Debug, PartialEq, Eq)]
pub struct Turn {
    /// The moments for which it submits a job.
    pub moments: Vec<Timestamp>,
    /// Its next due moment; `None` after the last one.
    pub next_at: Option<Timestamp>,
}

impl Turn {
    /// Plans a schedule that was due at `due`, at the time `now`.
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

/// The plan for the due schedules of one read.
#[derive(Debug, Default)]
pub struct Plan {
    /// The batches to submit.
    pub batches: Vec<PlannedBatch>,
    /// The jobs that the next ones replace.
    pub cancelled: Vec<JobId>,
    /// The new state of each schedule, in the given order.
    pub schedules: Vec<PlannedSchedule>,
}

/// A batch, with the schedule of each job by position.
#[derive(Debug)]
pub struct PlannedBatch {
    /// The batch.
    pub batch: NewBatch,
    /// The keys of its jobs, if they have keys.
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
    /// Its last job, or the job that stands for it.
    pub last_job: Option<JobId>,
    /// Number of stored jobs.
    pub jobs: u64,
}

impl PlannedBatch {
    /// The batch with the keys of its jobs; `None` if they have none.
    pub fn keyed(&self) -> Option<KeyedBatch> {
        let keys = self.keys.clone()?;
        let unique = self.batch.options.unique.unwrap_or_default();
        Some(KeyedBatch::new(self.batch.clone(), keys, unique))
    }
}

impl Plan {
    /// Plans schedules that are due at `now`. `open` has those of their last jobs that have not ended.
    pub fn of(due: &[Schedule], open: &HashSet<JobId>, now: Timestamp) -> Result<Plan, StoreError> {
        let turn = |row: &Schedule| {
            let recurrence = row.schedule.recurrence(row.since)?;
            let due_at = row.next_at.unwrap_or(now);
            Ok((Turn::of(&recurrence, row.schedule.catch_up, due_at, now), None))
        };
        Plan::of_turns(due, open, turn)
    }

    /// Plans schedules that are triggered at `now`: one job each. Their due moments stay unchanged.
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

    /// The result of the plan, for the submitted batches: in all, and for each schedule.
    pub fn fired(&self, submitted: &[SubmittedJobs]) -> (Fired, Vec<FiredSchedule>) {
        let mut fired = Fired {
            schedules: self.schedules.len() as u64,
            ..Fired::default()
        };
        assert_eq!(
            submitted.len(),
            self.batches.len(),
            "each planned batch is submitted"
        );
        let mut schedules = vec![FiredSchedule::default(); self.schedules.len()];
        for (submitted, planned) in submitted.iter().zip(&self.batches) {
            assert_eq!(
                submitted.jobs.len(),
                planned.schedules.len(),
                "each job has a schedule"
            );
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

    /// Plans the jobs of schedules. Jobs with the same kind, queue, options and tags are packed together.
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
                // Of several moments, only the last would remain.
                Overlap::Skip | Overlap::Replace => {
                    turn.moments.drain(..turn.moments.len().saturating_sub(1));
                }
            }
            if row.schedule.overlap == Overlap::Replace && !turn.moments.is_empty() {
                plan.cancelled.extend(last_open);
            }
            assert!(
                turn.moments.is_sorted_by(|moment, next| moment < next),
                "the moments of a turn ascend"
            );
            for moment in &turn.moments {
                packing.add(index, &row.schedule, *moment)?;
            }
            plan.schedules.push(PlannedSchedule {
                next_at: turn.next_at,
                paused_until,
                last_at: turn.moments.last().copied(),
            });
        }
        assert_eq!(plan.schedules.len(), rows.len(), "each schedule has a plan");
        plan.batches = packing.finish();
        Ok(plan)
    }
}

/// Jobs of schedules that are being packed.
#[derive(Debug, Default)]
struct Packing {
    /// The open batches, by kind, queue, options and tags.
    open: BTreeMap<(String, String, String, BTreeMap<String, String>), OpenBatch>,
    full: Vec<PlannedBatch>,
}

/// A batch that may get more jobs.
#[derive(Debug)]
struct OpenBatch {
    batch: NewBatch,
    payloads: PackedBuilder,
    /// The keys of all jobs, if the options have rules for keys.
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
        assert_eq!(
            self.payloads.count() as usize,
            self.schedules.len(),
            "each planned job has a schedule"
        );
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
    fn missed_moments_are_handled_by_the_policy() {
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
