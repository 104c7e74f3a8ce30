//! Schedules.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use gristmill_model::{BatchId, JobId, NewBatch, Positions, Timestamp};
use gristmill_store::hook::lanes_of_hooks;
use gristmill_store::rules::lanes::LaneName;
use gristmill_store::rules::schedule::{Plan, PlannedBatch};
use gristmill_store::schedule::{NEVER, Overlap};
use gristmill_store::{
    Change, Fired, NewSchedule, Schedule, ScheduleChange, Selection, StoreError, SubmittedJobs,
};
use tokio_postgres::Row;

use crate::database::snapshot::Snapshot;
use crate::database::transaction::Transaction;
use crate::failure::{Failure, Result};
use crate::graph::dependency::Ended;
use crate::multirange::Multirange;
use crate::submit::Circumstances;
use crate::submit::keys::Prepared;

const COLUMNS: &str =
    "definition, since, next_at, last_at, last_batch_id, last_position, fired, paused_until";

fn read(row: &Row) -> Result<Schedule> {
    let definition: &str = row.try_get(0)?;
    let moment = |column: usize| -> Result<Option<Timestamp>> {
        Ok(row.try_get::<_, Option<i64>>(column)?.map(Timestamp))
    };
    let last_job = match (
        row.try_get::<_, Option<i64>>(4)?,
        row.try_get::<_, Option<i32>>(5)?,
    ) {
        (Some(batch), Some(position)) => Some(JobId {
            batch: BatchId(batch),
            position: position.unsigned_abs(),
        }),
        _ => None,
    };
    Ok(Schedule {
        schedule: serde_json::from_str(definition)?,
        since: Timestamp(row.try_get(1)?),
        next_at: moment(2)?,
        last_at: moment(3)?,
        last_job,
        fired: row.try_get::<_, i64>(6)?.unsigned_abs(),
        paused_until: moment(7)?,
    })
}

/// Schedules by name, after `after`.
pub(crate) async fn schedules(snapshot: &Snapshot, after: Option<&str>, limit: u32) -> Result<Vec<Schedule>> {
    // By bytes, like in the other stores.
    let sql = format!(
        "SELECT {COLUMNS} FROM gristmill.schedule WHERE name COLLATE \"C\" > $1 ORDER BY name COLLATE \"C\" LIMIT $2"
    );
    let rows = snapshot
        .query(&sql, &[&after.unwrap_or_default(), &i64::from(limit)])
        .await?;
    rows.iter().map(read).collect()
}

/// The schedule of that name.
pub(crate) async fn schedule(snapshot: &Snapshot, name: &str) -> Result<Option<Schedule>> {
    let sql = format!("SELECT {COLUMNS} FROM gristmill.schedule WHERE name = $1");
    snapshot
        .query_opt(&sql, &[&name])
        .await?
        .as_ref()
        .map(read)
        .transpose()
}

/// When the next schedule is due.
pub(crate) async fn next_due(snapshot: &Snapshot) -> Result<Option<Timestamp>> {
    let row = snapshot.query_opt(NEXT_DUE, &[]).await?;
    let next: Option<i64> = row.map(|row| row.try_get(0)).transpose()?.flatten();
    Ok(next.map(Timestamp))
}

const NEXT_DUE: &str = "SELECT min(next_at) FROM gristmill.schedule WHERE next_at IS NOT NULL";

/// The changes of schedules' rows.
#[derive(Debug, Default)]
struct Changes {
    names: Vec<String>,
    next_at: Vec<Option<i64>>,
    last_at: Vec<Option<i64>>,
    last_batch: Vec<Option<i64>>,
    last_position: Vec<Option<i32>>,
    jobs: Vec<i64>,
    paused_until: Vec<Option<i64>>,
}

impl Transaction {
    async fn locked_schedules(&self, names: &[&str]) -> Result<Vec<Schedule>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM gristmill.schedule WHERE name = ANY ($1) ORDER BY name FOR UPDATE"
        );
        self.query(&sql, &[&names]).await?.iter().map(read).collect()
    }

    /// Makes schedules, or changes those with the same names; if two have one name, the last one counts.
    pub async fn put_schedules(&mut self, schedules: &[NewSchedule]) -> Result<()> {
        let new: BTreeMap<&str, &NewSchedule> =
            schedules.iter().map(|new| (new.name.as_str(), new)).collect();
        let names: Vec<&str> = new.keys().copied().collect();
        let known = self.locked_schedules(&names).await?;
        let known: HashMap<&str, &Schedule> = known
            .iter()
            .map(|row| (row.schedule.name.as_str(), row))
            .collect();
        let (mut definitions, mut since, mut next_at) = (Vec::new(), Vec::new(), Vec::new());
        for (name, new) in &new {
            if new.key.is_some() {
                // The scope of a key is the number of a lane, which must exist when the schedule is due.
                self.intern_lane(LaneName::of(&new.batch(new.payload.clone(), self.now)))
                    .await?;
            }
            let (counted_since, next) = Schedule::put(known.get(name).copied(), new, self.now)?;
            definitions.push(serde_json::to_string(new)?);
            since.push(counted_since.0);
            next_at.push(next.map(|moment| moment.0));
        }
        self.execute(
            "INSERT INTO gristmill.schedule (name, definition, since, next_at, fired) \
             SELECT unnest($1::text[]), unnest($2::text[]), unnest($3::bigint[]), unnest($4::bigint[]), 0 \
             ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, since = excluded.since, \
             next_at = excluded.next_at",
            &[&names, &definitions, &since, &next_at],
        )
        .await?;
        Ok(())
    }

    /// Submits the jobs of the due schedules that no other process fires at this moment.
    pub async fn fire_schedules(&mut self, limit: u32) -> Result<Fired> {
        let sql = format!(
            "SELECT {COLUMNS} FROM gristmill.schedule WHERE next_at <= $1 ORDER BY next_at LIMIT $2 FOR UPDATE SKIP LOCKED"
        );
        let rows = self.query(&sql, &[&self.now.0, &i64::from(limit)]).await?;
        let due = rows.iter().map(read).collect::<Result<Vec<Schedule>>>()?;
        let open = self.open_last_jobs(&due).await?;
        let plan = Plan::of(&due, &open, self.now)?;
        let mut fired = self.carry_out(&due, plan).await?;
        let next = self.query_opt(NEXT_DUE, &[]).await?;
        let next: Option<i64> = next.map(|row| row.try_get(0)).transpose()?.flatten();
        fired.next_at = next.map(Timestamp);
        Ok(fired)
    }

    async fn open_last_jobs(&self, rows: &[Schedule]) -> Result<HashSet<JobId>> {
        let asked = rows.iter().filter(|row| row.schedule.overlap != Overlap::Allow);
        let jobs: Vec<JobId> = asked.filter_map(|row| row.last_job).collect();
        if jobs.is_empty() {
            return Ok(HashSet::new());
        }
        let batches: Vec<i64> = jobs.iter().map(|job| job.batch.0).collect();
        let rows = self
            .query(
                "SELECT batch_id, positions FROM gristmill.slice WHERE batch_id = ANY ($1) \
                 UNION ALL SELECT batch_id, positions FROM gristmill.held WHERE batch_id = ANY ($1)",
                &[&batches],
            )
            .await?;
        let mut open: HashMap<i64, Positions> = HashMap::new();
        for row in &rows {
            let all = open.entry(row.try_get(0)?).or_default();
            *all = all.union(&row.try_get::<_, Multirange>(1)?.0);
        }
        let is_open = |job: &JobId| {
            open.get(&job.batch.0)
                .is_some_and(|positions| positions.contains(job.position))
        };
        Ok(jobs.into_iter().filter(is_open).collect())
    }

    async fn carry_out(&mut self, rows: &[Schedule], mut plan: Plan) -> Result<Fired> {
        // Locks of keys come before those of jobs.
        let keyed = self.keyed_batches(&plan).await?;
        self.lock_scopes(&keyed).await?;
        if !plan.cancelled.is_empty() {
            self.change(
                &Selection::Jobs(std::mem::take(&mut plan.cancelled)),
                &Change::Cancel,
            )
            .await?;
        }
        let mut of_keys = self.submit_keyed(&keyed).await?.into_iter();
        let mut ids = self
            .next_batch_ids(plan.batches.len() - keyed.len())
            .await?
            .into_iter();
        let mut submitted = Vec::with_capacity(plan.batches.len());
        let mut ended = Ended::default();
        for planned in &plan.batches {
            let jobs = match planned.keys {
                Some(_) => of_keys.next().map(|(jobs, _)| jobs),
                None => match ids.next() {
                    Some(id) => Some(self.submit_planned(id, &planned.batch, &mut ended).await?),
                    None => None,
                },
            };
            submitted
                .push(jobs.ok_or_else(|| Failure::Damaged("a batch of schedules got no id".to_owned()))?);
        }
        self.settle(ended).await?;
        let (fired, schedules) = plan.fired(&submitted);
        let mut changes = Changes::default();
        for ((row, planned), done) in rows.iter().zip(plan.schedules).zip(schedules) {
            changes.names.push(row.schedule.name.clone());
            changes.next_at.push(planned.next_at.map(|moment| moment.0));
            changes.last_at.push(planned.last_at.map(|moment| moment.0));
            changes.last_batch.push(done.last_job.map(|job| job.batch.0));
            changes.last_position.push(
                done.last_job
                    .map(|job| i32::try_from(job.position).unwrap_or(i32::MAX)),
            );
            changes.jobs.push(i64::try_from(done.jobs).unwrap_or(i64::MAX));
            changes
                .paused_until
                .push(planned.paused_until.map(|moment| moment.0));
        }
        self.update_schedules(&changes).await?;
        Ok(fired)
    }

    /// The planned batches whose jobs have keys, ready to be stored.
    async fn keyed_batches(&self, plan: &Plan) -> Result<Vec<Prepared>> {
        let mut prepared = Vec::new();
        for batch in plan.batches.iter().filter_map(PlannedBatch::keyed) {
            prepared.push(Prepared {
                keys: batch.check().map_err(StoreError::from)?,
                batch,
            });
        }
        if !prepared.is_empty() {
            // The lanes were made when the schedules were stored, perhaps by another process, and may have been deleted.
            self.refresh_lanes().await?;
        }
        Ok(prepared)
    }

    /// Stores a planned batch without keys.
    pub async fn submit_planned(
        &mut self,
        id: BatchId,
        batch: &NewBatch,
        ended: &mut Ended,
    ) -> Result<SubmittedJobs> {
        for name in lanes_of_hooks(batch) {
            self.intern_lane(name).await?;
        }
        let lane = self.intern_lane(LaneName::of(batch)).await?;
        let circumstances = Circumstances {
            hits: self.hits(batch).await?,
            ..Circumstances::default()
        };
        self.writes.submit(self.now, id, lane, batch, circumstances)?;
        // Jobs with cached values end at once.
        if batch.options.hooks.is_some() && batch.options.cached_ms.is_some() {
            ended.add_all(id);
        }
        Ok(SubmittedJobs::whole(id, batch.payloads.count()))
    }

    async fn update_schedules(&self, changes: &Changes) -> Result<()> {
        self.execute(
            "UPDATE gristmill.schedule s SET next_at = c.next_at, last_at = coalesce(c.last_at, s.last_at), \
             last_batch_id = coalesce(c.last_batch_id, s.last_batch_id), \
             last_position = coalesce(c.last_position, s.last_position), fired = s.fired + c.jobs, \
             paused_until = c.paused_until \
             FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::integer[], $6::bigint[], $7::bigint[]) \
             c (name, next_at, last_at, last_batch_id, last_position, jobs, paused_until) WHERE s.name = c.name",
            &[
                &changes.names,
                &changes.next_at,
                &changes.last_at,
                &changes.last_batch,
                &changes.last_position,
                &changes.jobs,
                &changes.paused_until,
            ],
        )
        .await?;
        Ok(())
    }

    /// Changes schedules. Returns how many of them exist.
    pub async fn change_schedules(
        &mut self,
        names: &BTreeSet<String>,
        change: ScheduleChange,
    ) -> Result<u64> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let rows = self.locked_schedules(&names).await?;
        let mut changes = Changes::default();
        match change {
            ScheduleChange::Delete => {
                self.execute("DELETE FROM gristmill.schedule WHERE name = ANY ($1)", &[&names])
                    .await?;
            }
            ScheduleChange::Trigger => {
                let open = self.open_last_jobs(&rows).await?;
                let plan = Plan::triggered(&rows, &open, self.now)?;
                self.carry_out(&rows, plan).await?;
            }
            ScheduleChange::Pause { until } => {
                let until = until.unwrap_or(NEVER);
                for row in &rows {
                    changes.push(row, row.next_from(until.max(self.now))?, Some(until));
                }
            }
            ScheduleChange::Resume => {
                for row in rows.iter().filter(|row| row.paused_until.is_some()) {
                    changes.push(row, row.next_from(self.now)?, None);
                }
            }
        }
        if !changes.names.is_empty() {
            self.update_schedules(&changes).await?;
        }
        Ok(rows.len() as u64)
    }
}

impl Changes {
    /// Adds a change of a schedule that is due at another moment and submits nothing.
    fn push(&mut self, row: &Schedule, next_at: Option<Timestamp>, paused_until: Option<Timestamp>) {
        self.names.push(row.schedule.name.clone());
        self.next_at.push(next_at.map(|moment| moment.0));
        self.paused_until.push(paused_until.map(|moment| moment.0));
        self.last_at.push(None);
        self.last_batch.push(None);
        self.last_position.push(None);
        self.jobs.push(0);
    }
}
