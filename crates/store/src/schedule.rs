//! Schedules: rows with the next due moment.
//!
//! The engine reads due schedules once a second, or when the next one is due. [`Plan`](crate::rules::schedule::Plan) plans
//! the jobs that they submit. `model::recurrence` computes due moments.

use std::collections::BTreeMap;

use gristmill_model::batch::check_name;
use gristmill_model::{
    BatchId, BatchOptions, Hooks, JobId, KeyedBatch, NewBatch, OnDuplicate, PackedArray, PackedBuilder,
    Recurrence, RecurrenceRule, Tag, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::StoreError;

/// The handling of moments that passed while no process ran, or the store was unreachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CatchUp {
    /// They are left out. A delay of up to
    /// [`SCHEDULE_LATE_MS_MAX`](gristmill_model::limits::SCHEDULE_LATE_MS_MAX) counts as on time.
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
    /// The deduplication key of its jobs, by the rules of `options.unique`, or the default ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// A job that nobody has started so long after it was due ends as expired. Milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after_ms: Option<u64>,
    /// The tags of its jobs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
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
    /// The job that it submitted last, or that stands for it by its key.
    pub last_job: Option<JobId>,
    /// How many jobs it has submitted; one that another job with its key stands for does not count.
    pub fired: u64,
    /// Until when it is paused; the end of time where nobody said.
    pub paused_until: Option<Timestamp>,
}

/// A change of schedules.
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
        if self.payload.count() != 1 {
            return Err(self.refused(format!("it needs one payload, and has {}", self.payload.count())));
        }
        let batch = self.batch(self.payload.clone(), now);
        match &self.key {
            Some(key) => self.check_key(key, batch)?,
            None if self.options.unique.is_some() => {
                return Err(self.refused("its options say how keys are meant, and it has no key".to_owned()));
            }
            None => batch.check()?,
        }
        self.rule
            .check()
            .map_err(|error| self.refused(error.to_string()))?;
        self.recurrence(now)?;
        Ok(())
    }

    fn check_key(&self, key: &str, batch: NewBatch) -> Result<(), StoreError> {
        let unique = batch.options.unique.unwrap_or_default();
        if unique.on_duplicate == OnDuplicate::Reject {
            let problem = "`reject` refuses a submit, and a schedule has nobody to tell: choose `skip`, `replace` or `rerun`";
            return Err(self.refused(problem.to_owned()));
        }
        if self.overlap != Overlap::Allow {
            let problem = "its key and `overlap` both decide what happens while the last job is open: leave out one of them";
            return Err(self.refused(problem.to_owned()));
        }
        let mut keys = PackedBuilder::new();
        keys.push_value(key)?;
        KeyedBatch::new(batch, keys.finish(), unique).check()?;
        Ok(())
    }

    fn refused(&self, problem: String) -> StoreError {
        StoreError::InvalidInput(format!("schedule `{}`: {problem}", self.name))
    }

    /// When it is due, counted from `since`.
    pub fn recurrence(&self, since: Timestamp) -> Result<Recurrence, StoreError> {
        let recurrence = self.rule.recurrence(since);
        recurrence.map_err(|error| self.refused(error.to_string()))
    }

    /// Its jobs as a batch, due at `moment`.
    pub fn batch(&self, payloads: PackedArray, moment: Timestamp) -> NewBatch {
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
                hooks: self.hooks(),
                unique: self.key.as_ref().map(|_| self.options.unique.unwrap_or_default()),
                ..self.options.clone()
            },
            rejected: Vec::new(),
            after: Vec::new(),
            tags: self
                .tags
                .iter()
                .map(|(name, value)| Tag::all(name.as_str(), value.as_str()))
                .collect(),
        }
    }

    /// Its hooks, with its own name for the summary. Batches with hooks are thus never shared with other schedules.
    fn hooks(&self) -> Option<Box<Hooks>> {
        let hooks = self.options.hooks.as_deref()?;
        let name = hooks.name.clone().unwrap_or_else(|| self.name.clone());
        Some(Box::new(Hooks {
            name: Some(name),
            ..hooks.clone()
        }))
    }
}

impl Schedule {
    /// From when the schedule of this name counts, and when it is due next, once it is `new`. One whose rule is the
    /// same goes on as it was, so that a program can put its schedules whenever it starts.
    pub fn put(
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
    pub fn next_from(&self, from: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let recurrence = self.schedule.recurrence(self.since)?;
        Ok(recurrence.next_after(from.plus_ms(-1)))
    }

    /// Its first `count` moments from now on: the next one first, even if that has passed. None while it is paused without
    /// an end.
    pub fn upcoming(&self, now: Timestamp, count: usize) -> Result<Vec<Timestamp>, StoreError> {
        let recurrence = self.schedule.recurrence(self.since)?;
        let moments = std::iter::successors(self.next_at, |moment| recurrence.next_after(now.max(*moment)));
        Ok(moments.take(count).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upcoming_moments_follow_the_clocks_of_the_time_zone() {
        let new = |rule: RecurrenceRule| NewSchedule {
            name: "nightly".to_owned(),
            rule,
            kind: "report".to_owned(),
            queue: "default".to_owned(),
            payload: PackedArray::parse("[null]").unwrap(),
            options: BatchOptions::default(),
            key: None,
            expires_after_ms: None,
            tags: BTreeMap::new(),
            catch_up: CatchUp::One,
            overlap: Overlap::Allow,
        };
        let schedule = |rule: RecurrenceRule, next_at: Option<i64>| Schedule {
            schedule: new(rule),
            since: Timestamp(0),
            next_at: next_at.map(Timestamp),
            last_at: None,
            last_job: None,
            fired: 0,
            paused_until: None,
        };
        let shown = |schedule: &Schedule, now: i64| -> Vec<String> {
            let moments = schedule.upcoming(Timestamp(now), 3).unwrap();
            moments.iter().map(ToString::to_string).collect()
        };
        // In Berlin, 2026-03-29 has no 02:30: the job is due when the hour is over.
        let berlin = RecurrenceRule::Cron {
            expression: "30 2 * * *".to_owned(),
            time_zone: "Europe/Berlin".to_owned(),
        };
        let saturday = 1_774_661_400_000;
        assert_eq!(
            shown(&schedule(berlin.clone(), Some(saturday)), saturday - 1),
            [
                "2026-03-28T01:30:00.000Z",
                "2026-03-29T01:00:00.000Z",
                "2026-03-30T00:30:00.000Z"
            ]
        );
        // Of missed moments, one is made up for.
        let hourly = RecurrenceRule::Every {
            interval_ms: 3_600_000,
        };
        assert_eq!(
            shown(&schedule(hourly, Some(3_600_000)), 9_000_000),
            [
                "1970-01-01T01:00:00.000Z",
                "1970-01-01T03:00:00.000Z",
                "1970-01-01T04:00:00.000Z"
            ]
        );
        assert!(shown(&schedule(berlin, None), 0).is_empty(), "paused");
    }
}
