//! Schedules: list, show, put and change them.

use std::collections::{BTreeMap, BTreeSet};

use gristmill_engine::Engine;
use gristmill_model::batch::DEFAULT_QUEUE;
use gristmill_model::limits::PAGE_ROWS_MAX;
use gristmill_model::{BatchOptions, PackedBuilder, PackedError, RecurrenceRule, Timestamp, bounded};
use gristmill_store::{CatchUp, NewSchedule, Overlap, Schedule, ScheduleChange, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::access::Access;
use crate::limits::{TAGS_READ_MAX, TIMESTAMP_MS_MAX};
use crate::options::{JobOptions, Priority, RetryOptions, UniqueOptions};
use crate::read::check_rows;
use crate::refused::Refused;

/// The default number of rows on a page.
const PAGE_ROWS: u32 = 100;

/// The number of next due moments in a view of a schedule.
const UPCOMING: usize = 5;

/// The listed schedules.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub struct SchedulesQuery {
    /// Only schedules with a name after this one.
    after: Option<String>,
    /// The maximum number.
    #[cfg_attr(feature = "schema", param(minimum = 1, maximum = 10_000))]
    limit: Option<u32>,
}

/// A schedule.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ScheduleView {
    /// Its name.
    schedule: String,
    /// Its recurrence.
    rule: RecurrenceRule,
    /// The kind of its jobs.
    kind: String,
    /// Their queue.
    queue: String,
    /// Their payload: any JSON. Null where it is hidden from the access.
    #[cfg_attr(feature = "schema", schema(value_type = serde_json::Value))]
    payload: Box<RawValue>,
    /// The deduplication key of its jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The action for moments that passed while no process ran.
    catch_up: CatchUp,
    /// The action while the last job has not ended.
    overlap: Overlap,
    /// Its next due moment, if any. Milliseconds since 1970.
    next_at: Option<i64>,
    /// Its next due moments by the clocks of its time zone, at most five, `next_at` first. Milliseconds since 1970.
    #[cfg_attr(feature = "schema", schema(max_items = 5))]
    upcoming: Vec<i64>,
    /// The due moment of its last job. Milliseconds since 1970.
    last_at: Option<i64>,
    /// The job that it submitted last.
    last_job: Option<String>,
    /// The number of jobs that it submitted.
    fired: u64,
    /// True while the schedule is paused.
    paused: bool,
}

impl ScheduleView {
    /// The current view of a schedule.
    pub fn of(row: Schedule, now: Timestamp) -> Result<Self, Refused> {
        let upcoming = row.upcoming(now, UPCOMING)?;
        let payload = row.schedule.payload.get(0).unwrap_or("null").to_owned();
        let unreadable = |error: serde_json::Error| {
            Refused::Store(StoreError::Database(format!(
                "the payload of schedule `{}` is damaged: {error}",
                row.schedule.name
            )))
        };
        Ok(ScheduleView {
            payload: RawValue::from_string(payload).map_err(unreadable)?,
            schedule: row.schedule.name,
            rule: row.schedule.rule,
            kind: row.schedule.kind,
            queue: row.schedule.queue,
            key: row.schedule.key,
            catch_up: row.schedule.catch_up,
            overlap: row.schedule.overlap,
            next_at: row.next_at.map(|moment| moment.0),
            upcoming: upcoming.into_iter().map(|moment| moment.0).collect(),
            last_at: row.last_at.map(|moment| moment.0),
            last_job: row.last_job.map(|job| job.to_string()),
            fired: row.fired,
            paused: row.paused_until.is_some(),
        })
    }

    /// Leaves out the payload of its jobs.
    pub fn hide(&mut self) {
        self.payload = RawValue::NULL.to_owned();
    }
}

/// A page of schedules.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Schedules {
    /// By name. A page that is not full is the last one.
    pub schedules: Vec<ScheduleView>,
}

/// A schedule to create or change.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ScheduleRequest<'a> {
    /// Its recurrence.
    rule: RecurrenceRule,
    /// The kind: selects the handler of its jobs.
    #[cfg_attr(
        feature = "schema",
        schema(min_length = 1, max_length = 200, example = "report")
    )]
    kind: String,
    /// The queue: selects the workers of the jobs; `default` by default.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    queue: Option<String>,
    /// The tenant that owns the jobs: limits, pauses and shares can apply to a group.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    group: Option<String>,
    /// The payload of its jobs: any JSON; `null` by default.
    #[serde(default, borrow)]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    payload: Option<&'a RawValue>,
    /// Higher is claimed first; 0 by default.
    #[serde(default)]
    priority: Option<Priority>,
    /// The time limit of one attempt. Milliseconds.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 316_224_000_000_i64))]
    timeout_ms: Option<u64>,
    /// A job that no worker has started this long after it was due expires. Milliseconds.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 316_224_000_000_i64))]
    expires_after_ms: Option<u64>,
    /// A job that has not completed this long after its first attempt began is not retried, and ends as dead.
    /// Milliseconds.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 316_224_000_000_i64))]
    complete_within_ms: Option<u64>,
    /// Reuses the value of a job of the same queue, kind, group and payload that completed within this time, if it also
    /// had this option. Milliseconds. Not with a key.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 316_224_000_000_i64))]
    cached_ms: Option<u64>,
    /// The deduplication key of its jobs. Not with hooks, and with no `overlap` but `allow`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    key: Option<String>,
    /// The rules of deduplication, for a schedule with a key; not `reject`.
    #[serde(default)]
    unique: Option<UniqueOptions>,
    /// The tags of its jobs: values by name.
    #[serde(default, deserialize_with = "bounded::texts::<_, TAGS_READ_MAX>")]
    #[cfg_attr(feature = "schema", schema(example = json!({"region": "eu"})))]
    tags: BTreeMap<String, String>,
    /// The retry policy.
    #[serde(default)]
    retry: Option<RetryOptions>,
    /// The action for moments that passed while no process ran; `one` by default.
    #[serde(default)]
    catch_up: CatchUp,
    /// The action while the last job has not ended; `allow` by default.
    #[serde(default)]
    overlap: Overlap,
    /// When its jobs have completed: the kind of a job that gets a summary as its payload, or a URL that a worker with
    /// `--http-hooks` posts the summary to.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 2000))]
    on_success: Option<String>,
    /// The same, when its jobs have ended and one has not completed.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 2000))]
    on_failure: Option<String>,
}

impl ScheduleRequest<'_> {
    /// The schedule of this name.
    pub fn check(self, name: String, access: &Access, now: Timestamp) -> Result<NewSchedule, Refused> {
        let options = JobOptions {
            priority: self.priority,
            timeout_ms: self.timeout_ms,
            complete_within_ms: self.complete_within_ms,
            cached_ms: self.cached_ms,
            retry: self.retry,
            group: self.group,
            on_success: self.on_success,
            on_failure: self.on_failure,
            ..JobOptions::default()
        };
        // The store refuses rules without a key.
        let unique = match (self.unique, &self.key) {
            (None, None) => None,
            (unique, _) => {
                let unique = unique.unwrap_or_default().check()?;
                access.check_key_scope(unique.scope)?;
                Some(unique)
            }
        };
        let mut payload = PackedBuilder::new();
        let text = self.payload.map_or("null", RawValue::get);
        payload.push(text).map_err(|error: PackedError| {
            Refused::invalid(format!("`payload`: {error}"), "give JSON within the limit")
        })?;
        Ok(NewSchedule {
            name,
            rule: self.rule,
            kind: self.kind,
            queue: self.queue.unwrap_or_else(|| DEFAULT_QUEUE.to_owned()),
            payload: payload.finish(),
            options: BatchOptions {
                unique,
                ..options.check(now)?
            },
            key: self.key,
            expires_after_ms: self.expires_after_ms,
            tags: self.tags,
            catch_up: self.catch_up,
            overlap: self.overlap,
        })
    }
}

/// The end of a schedule's pause.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PauseRequest {
    /// The end of the pause; by default, it ends when the schedule is resumed. Milliseconds since 1970.
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 253_402_300_799_999_i64))]
    until: Option<i64>,
}

impl PauseRequest {
    /// The change of the schedule.
    pub fn change(&self) -> Result<ScheduleChange, Refused> {
        match self.until {
            Some(until) if !(0..=TIMESTAMP_MS_MAX).contains(&until) => Err(Refused::invalid(
                format!("`until` is {until}"),
                format!("give 0 to {TIMESTAMP_MS_MAX}"),
            )),
            until => Ok(ScheduleChange::Pause {
                until: until.map(Timestamp),
            }),
        }
    }
}

fn not_found(name: &str) -> Refused {
    Refused::not_found("schedule", name)
}

/// Lists schedules.
pub async fn schedules(engine: &Engine, query: SchedulesQuery) -> Result<Schedules, Refused> {
    let limit = check_rows(query.limit, PAGE_ROWS, PAGE_ROWS_MAX)?;
    let rows = engine.store().schedules(query.after.as_deref(), limit).await?;
    let now = engine.clock().now();
    let shown = move |row| ScheduleView::of(row, now);
    // Finding the moments of thousands of expressions takes a while.
    let work = tokio::task::spawn_blocking(move || rows.into_iter().map(shown).collect::<Result<_, _>>());
    let schedules = work
        .await
        .map_err(|error| StoreError::Database(format!("the schedules cannot be shown: {error}")))?;
    Ok(Schedules {
        schedules: schedules?,
    })
}

/// Shows a schedule.
pub async fn schedule(engine: &Engine, name: &str) -> Result<ScheduleView, Refused> {
    let row = engine.store().schedule(name).await?;
    ScheduleView::of(row.ok_or_else(|| not_found(name))?, engine.clock().now())
}

/// Creates or changes a schedule.
pub async fn put_schedule(engine: &Engine, schedule: NewSchedule) -> Result<ScheduleView, Refused> {
    let name = schedule.name.clone();
    engine.store().put_schedules(vec![schedule]).await?;
    self::schedule(engine, &name).await
}

/// Pauses, resumes or triggers a schedule.
pub async fn change_schedule(
    engine: &Engine,
    name: &str,
    change: ScheduleChange,
) -> Result<ScheduleView, Refused> {
    changed(engine, name, change).await?;
    schedule(engine, name).await
}

/// Deletes a schedule.
pub async fn delete_schedule(engine: &Engine, name: &str) -> Result<(), Refused> {
    changed(engine, name, ScheduleChange::Delete).await
}

async fn changed(engine: &Engine, name: &str, change: ScheduleChange) -> Result<(), Refused> {
    let names = BTreeSet::from([name.to_owned()]);
    match engine.store().change_schedules(names, change).await? {
        0 => Err(not_found(name)),
        _ => Ok(()),
    }
}
