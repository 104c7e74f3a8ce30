//! Jobs that are submitted repeatedly.

use std::collections::BTreeMap;
use std::time::Duration;

use gristmill_model::{BatchOptions, RecurrenceRule};
use gristmill_store::{CatchUp, NewSchedule, Overlap};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::firing::fire;
use crate::kind::{Kind, packed};

/// The options of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleOptions {
    /// The options of its jobs.
    pub batch: BatchOptions,
    /// The deduplication key of its jobs, by the rules of `batch.unique`, or the default ones.
    pub key: Option<String>,
    /// A job that no worker has started this long after it was due expires.
    pub expires_after: Option<Duration>,
    /// The tags of its jobs.
    pub tags: BTreeMap<String, String>,
    /// The action for moments that passed while no engine ran.
    pub catch_up: CatchUp,
    /// The action while the last job has not ended.
    pub overlap: Overlap,
}

impl ScheduleOptions {
    /// The options of a kind, with one job for all missed moments, and the next job beside the last.
    pub fn of<K: Kind>() -> ScheduleOptions {
        ScheduleOptions {
            batch: K::options(),
            key: None,
            expires_after: None,
            tags: BTreeMap::new(),
            catch_up: CatchUp::default(),
            overlap: Overlap::default(),
        }
    }
}

impl Engine {
    /// Submits a job of `K` at the times of `rule`, under a name. A second call with the same name changes the
    /// schedule. With an unchanged rule the next due time stays, so a program may put its schedules at each start.
    /// Pausing, triggering and deleting: [`Store::change_schedules`](gristmill_store::Store::change_schedules).
    pub async fn schedule<K: Kind>(
        &self,
        name: impl Into<String>,
        rule: RecurrenceRule,
        payload: &K::Payload,
        options: ScheduleOptions,
    ) -> Result<(), EngineError> {
        let expires_after_ms = options
            .expires_after
            .map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        let schedule = NewSchedule {
            name: name.into(),
            rule,
            kind: K::NAME.to_owned(),
            queue: K::QUEUE.to_owned(),
            payload: packed::<K>(payload)?,
            options: options.batch,
            key: options.key,
            expires_after_ms,
            tags: options.tags,
            catch_up: options.catch_up,
            overlap: options.overlap,
        };
        Ok(self.store().put_schedules(vec![schedule]).await?)
    }

    /// Submits the jobs of all schedules that are due now. Housekeeping also does this by itself.
    pub async fn fire_schedules(&self) -> Result<u64, EngineError> {
        let mut jobs = 0;
        loop {
            let fired = fire(&**self.store(), self.event_hub(), self.hops()).await?;
            jobs += fired.jobs;
            if fired.next_at.is_none_or(|next_at| next_at > self.clock().now()) {
                return Ok(jobs);
            }
        }
    }
}
