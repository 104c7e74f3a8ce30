//! Schedules.

use std::collections::{BTreeSet, HashSet};

use gristmill_model::{BatchId, JobId, Timestamp};
use gristmill_store::rules::schedule::Plan;
use gristmill_store::schedule::{NEVER, Overlap};
use gristmill_store::{Fired, NewSchedule, Schedule, ScheduleChange, Selection, StoreError, SubmittedJobs};
use rusqlite::{Connection, params};

use crate::failure::Result;
use crate::transaction::Transaction;

const COLUMNS: &str =
    "definition, since, next_at, last_at, last_batch_id, last_position, fired, paused_until";

fn read(row: &rusqlite::Row<'_>) -> Result<Schedule> {
    let definition = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
    let moment = |column: usize| -> Result<Option<Timestamp>> {
        Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp))
    };
    let last_job = match (row.get::<_, Option<i64>>(4)?, row.get::<_, Option<u32>>(5)?) {
        (Some(batch), Some(position)) => Some(JobId {
            batch: BatchId(batch),
            position,
        }),
        _ => None,
    };
    Ok(Schedule {
        schedule: serde_json::from_str(definition)?,
        since: Timestamp(row.get(1)?),
        next_at: moment(2)?,
        last_at: moment(3)?,
        last_job,
        fired: row.get::<_, i64>(6)?.unsigned_abs(),
        paused_until: moment(7)?,
    })
}

fn read_all(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<Vec<Schedule>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(read(row)?);
    }
    Ok(all)
}

/// Schedules by name, after `after`.
pub(crate) fn schedules(connection: &Connection, after: Option<&str>, limit: u32) -> Result<Vec<Schedule>> {
    let sql = format!("SELECT {COLUMNS} FROM schedule WHERE name > ?1 ORDER BY name LIMIT ?2");
    read_all(connection, &sql, params![after.unwrap_or_default(), limit])
}

/// The schedule of that name.
pub(crate) fn schedule(connection: &Connection, name: &str) -> Result<Option<Schedule>> {
    let sql = format!("SELECT {COLUMNS} FROM schedule WHERE name = ?1");
    Ok(read_all(connection, &sql, [name])?.pop())
}

/// When the next schedule is due.
pub(crate) fn next_due(connection: &Connection) -> Result<Option<Timestamp>> {
    let mut statement =
        connection.prepare_cached("SELECT min(next_at) FROM schedule WHERE next_at IS NOT NULL")?;
    let next: Option<i64> = statement.query_row([], |row| row.get(0))?;
    Ok(next.map(Timestamp))
}

impl Transaction<'_> {
    /// Makes schedules, or changes those with the same names.
    pub fn put_schedules(&mut self, schedules: &[NewSchedule]) -> Result<()> {
        for new in schedules {
            let known = schedule(self.connection, &new.name)?;
            let (since, next_at) = Schedule::put(known.as_ref(), new, self.now)?;
            self.execute(
                "INSERT INTO schedule (name, definition, since, next_at, fired) VALUES (?1, ?2, ?3, ?4, 0) \
                 ON CONFLICT (name) DO UPDATE SET definition = ?2, since = ?3, next_at = ?4",
                params![
                    new.name,
                    serde_json::to_string(new)?,
                    since.0,
                    next_at.map(|moment| moment.0)
                ],
            )?;
        }
        Ok(())
    }

    /// Submits the jobs of the schedules that are due.
    pub fn fire_schedules(&mut self, limit: u32) -> Result<Fired> {
        let sql = format!("SELECT {COLUMNS} FROM schedule WHERE next_at <= ?1 ORDER BY next_at LIMIT ?2");
        let due = read_all(self.connection, &sql, params![self.now.0, limit])?;
        let open = self.open_last_jobs(&due)?;
        let plan = Plan::of(&due, &open, self.now)?;
        let mut fired = self.carry_out(&due, plan)?;
        fired.next_at = next_due(self.connection)?;
        Ok(fired)
    }

    fn open_last_jobs(&self, due: &[Schedule]) -> Result<HashSet<JobId>> {
        let mut open = HashSet::new();
        let asked = due.iter().filter(|row| row.schedule.overlap != Overlap::Allow);
        for job in asked.filter_map(|row| row.last_job) {
            let slices = self.slices_of(job.batch)?;
            let held = self.held_of(job.batch)?;
            let mut positions = slices
                .iter()
                .map(|slice| &slice.positions)
                .chain(held.iter().map(|held| &held.positions));
            if positions.any(|positions| positions.contains(job.position)) {
                open.insert(job);
            }
        }
        Ok(open)
    }

    fn carry_out(&mut self, due: &[Schedule], mut plan: Plan) -> Result<Fired> {
        if !plan.cancelled.is_empty() {
            self.cancel(&Selection::Jobs(std::mem::take(&mut plan.cancelled)))?;
        }
        let mut submitted = Vec::with_capacity(plan.batches.len());
        for planned in &plan.batches {
            match planned.keyed() {
                Some(batch) => {
                    let keys = batch.check().map_err(StoreError::from)?;
                    submitted.extend(self.submit_keyed(&[batch], &[keys])?);
                }
                None => {
                    let ids = self.submit(std::slice::from_ref(&planned.batch), None)?;
                    let count = planned.batch.payloads.count();
                    submitted.extend(ids.into_iter().map(|id| SubmittedJobs::whole(id, count)));
                }
            }
        }
        let (fired, schedules) = plan.fired(&submitted);
        for ((row, planned), done) in due.iter().zip(plan.schedules).zip(schedules) {
            self.execute(
                "UPDATE schedule SET next_at = ?2, last_at = coalesce(?3, last_at), last_batch_id = coalesce(?4, last_batch_id), \
                 last_position = coalesce(?5, last_position), fired = fired + ?6, paused_until = ?7 WHERE name = ?1",
                params![
                    row.schedule.name,
                    planned.next_at.map(|moment| moment.0),
                    planned.last_at.map(|moment| moment.0),
                    done.last_job.map(|job| job.batch.0),
                    done.last_job.map(|job| job.position),
                    i64::try_from(done.jobs).unwrap_or(i64::MAX),
                    planned.paused_until.map(|moment| moment.0),
                ],
            )?;
        }
        Ok(fired)
    }

    /// Changes schedules. Returns how many of them exist.
    pub fn change_schedules(&mut self, names: &BTreeSet<String>, change: ScheduleChange) -> Result<u64> {
        let mut known = Vec::new();
        for name in names {
            known.extend(schedule(self.connection, name)?);
        }
        for row in &known {
            let name = &row.schedule.name;
            match change {
                ScheduleChange::Delete => {
                    self.execute("DELETE FROM schedule WHERE name = ?1", [name])?;
                }
                ScheduleChange::Pause { until } => {
                    let until = until.unwrap_or(NEVER);
                    let next_at = row.next_from(until.max(self.now))?;
                    self.execute(
                        "UPDATE schedule SET paused_until = ?2, next_at = ?3 WHERE name = ?1",
                        params![name, until.0, next_at.map(|moment| moment.0)],
                    )?;
                }
                ScheduleChange::Resume => {
                    let next_at = row.next_from(self.now)?;
                    self.execute(
                        "UPDATE schedule SET paused_until = NULL, next_at = ?2 WHERE name = ?1 AND paused_until IS NOT NULL",
                        params![name, next_at.map(|moment| moment.0)],
                    )?;
                }
                ScheduleChange::Trigger => {}
            }
        }
        if change == ScheduleChange::Trigger {
            let open = self.open_last_jobs(&known)?;
            self.carry_out(&known, Plan::triggered(&known, &open, self.now)?)?;
        }
        Ok(known.len() as u64)
    }
}
