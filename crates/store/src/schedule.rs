//! Schedules: rows with the next due moment.
//!
//! The engine reads due schedules once a second, or when the next one is due. [`Plan`](crate::rules::schedule::Plan)
//! plans the jobs that they submit. `model::recurrence` computes due moments.

use std::collections::BTreeMap;

use gristmill_model::batch::check_name;
use gristmill_model::{
    BatchId, BatchOptions, Hooks, JobId, KeyedBatch, NewBatch, OnDuplicate, PackedArray, PackedBuilder,
    Recurrence, RecurrenceRule, Tag, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::StoreError;

/// The action for moments that passed while no process ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = CatchUpName))]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum CatchUp {
    // A delay of up to `SCHEDULE_LATE_MS_MAX` counts as on time.
    /// Skip them.
    Skip,
    /// Submit one job for all of them.
    #[default]
    One,
    /// Submit one job for each.
    All,
}

/// The action while the last job has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = OverlapName))]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// Submit the next job too.
    #[default]
    Allow,
    /// Skip the moment.
    Skip,
    /// Cancel the last job, and submit the next.
    Replace,
}

/// A new or changed schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewSchedule {
    /// Its name. A stored schedule with this name is changed.
    pub name: String,
    /// The rule of its due moments.
    pub rule: RecurrenceRule,
    /// The kind of its jobs.
    pub kind: String,
    /// Their queue.
    pub queue: String,
    /// Their payload: an array of one item.
    pub payload: PackedArray,
    /// The options of the jobs. Moments in them are ignored.
    pub options: BatchOptions,
    /// The deduplication key of its jobs, by the rules of `options.unique`, or the default ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The time after the due moment at which a job expires that has not started, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after_ms: Option<u64>,
    /// The tags of its jobs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The handling of missed moments.
    #[serde(default)]
    pub catch_up: CatchUp,
    /// The action while the last job is open.
    #[serde(default)]
    pub overlap: Overlap,
}

/// A schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// The schedule as it was put.
    #[serde(flatten)]
    pub schedule: NewSchedule,
    /// The time at which it was created, or got its present rule. Intervals count from it.
    pub since: Timestamp,
    /// The next due moment; `None` while it is paused, and after the last one.
    pub next_at: Option<Timestamp>,
    /// The moment of its last job.
    pub last_at: Option<Timestamp>,
    /// Its last job, or the job that stands for it by its key.
    pub last_job: Option<JobId>,
    /// Number of submitted jobs. A job for which another job with its key stands does not count.
    pub fired: u64,
    /// The end of its pause; the end of time if the pause has no end.
    pub paused_until: Option<Timestamp>,
}

/// A change of schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleChange {
    /// Suspends them until a moment, or until they are resumed.
    Pause {
        /// The moment at which they resume by themselves.
        until: Option<Timestamp>,
    },
    /// Resumes them. Moments that passed meanwhile are left out.
    Resume,
    /// Submits a job of each now, even if paused. Their due moments stay unchanged.
    Trigger,
    /// Deletes them. Their jobs stay.
    Delete,
}

/// The result of one read of the schedules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fired {
    /// Number of due schedules.
    pub schedules: u64,
    /// The batches that they submitted, packed by kind, queue and options, with the number of their jobs.
    pub batches: Vec<(BatchId, u32)>,
    /// Number of all submitted jobs.
    pub jobs: u64,
    /// The next due moment. It is not after now if more schedules are due than one read takes.
    pub next_at: Option<Timestamp>,
}

/// The end of a pause without an end.
pub const NEVER: Timestamp = Timestamp(i64::MAX);

impl NewSchedule {
    /// Checks everything that can be checked without a store.
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

    /// The recurrence, counted from `since`.
    pub fn recurrence(&self, since: Timestamp) -> Result<Recurrence, StoreError> {
        let recurrence = self.rule.recurrence(since);
        recurrence.map_err(|error| self.refused(error.to_string()))
    }

    /// Makes a batch of its jobs that are due at `moment`.
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
            memos: None,
        }
    }

    /// The hooks, with the schedule's name for the summary. So batches with hooks are never shared with other schedules.
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
    /// The time from which the schedule counts and its next due moment, once it is `new`. A schedule with an unchanged
    /// rule continues, so that a program can put its schedules whenever it starts.
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

    /// The next due moment, not before `from`.
    pub fn next_from(&self, from: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let recurrence = self.schedule.recurrence(self.since)?;
        Ok(recurrence.next_after(from.plus_ms(-1)))
    }

    /// The first `count` moments from now on. The next due moment comes first, even if it has passed. There are none
    /// while it is paused without an end.
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
        // In Berlin, 2026-03-29 has no 02:30. The job is due at the end of the skipped hour.
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
        // One job makes up for all missed moments.
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
