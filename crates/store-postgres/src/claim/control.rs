//! Controls: storing them, and reading the values that claims depend on.

use std::collections::HashMap;
use std::sync::Arc;

use gristmill_model::limits::CONTROLS_MAX;
use gristmill_model::{Control, Effect, Timestamp};
use gristmill_store::rules::admission::{Needs, Usage};
use gristmill_store::rules::controls::{ControlFilter, Controls, StoredControl, too_many_controls};
use gristmill_store::rules::lanes::Lane;
use tokio_postgres::Row;

use crate::claim::Reads;
use crate::database::answers::Pending;
use crate::database::connection::Param;
use crate::database::snapshot::Snapshot;
use crate::database::transaction::Transaction;
use crate::failure::Result;

const ALL: &str = "SELECT id, definition FROM gristmill.control ORDER BY id";

/// Locks these controls, so that only one claim at a time works under them.
const EXCLUDE: &str = "SELECT FROM gristmill.control WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE";

/// The number of held jobs, by lane.
const HELD: &str =
    "SELECT lane_id, sum(count)::bigint FROM gristmill.held WHERE lane_id IS NOT NULL GROUP BY lane_id";

/// The buckets of these controls and groups.
const BUCKETS: &str = "SELECT b.control_id, b.job_group, b.empty_at_ns FROM unnest($1::bigint[], $2::text[]) k (control_id, job_group) \
     JOIN gristmill.bucket b ON b.control_id = k.control_id AND b.job_group = k.job_group";

/// All controls, for a look that keeps nothing in memory.
pub(super) async fn all_controls(reads: &impl Reads) -> Result<Controls> {
    let rows = reads.send(ALL, Vec::new()).await?.await?;
    let mut controls = Controls::default();
    controls.replace(1, rows.iter().map(read).collect::<Result<Vec<_>>>()?);
    Ok(controls)
}

/// Reads the usage of the limits, after the answer to `turn`.
pub(super) async fn usage(
    reads: &impl Reads,
    needs: &Needs,
    turn: Option<Pending<Vec<Row>>>,
    lane: impl Fn(i64) -> Option<Lane>,
) -> Result<Usage> {
    let mut usage = Usage::default();
    let held = if needs.held {
        Some(reads.send(HELD, Vec::new()).await?)
    } else {
        None
    };
    let buckets = if needs.buckets.is_empty() {
        None
    } else {
        let ids: Vec<i64> = needs.buckets.iter().map(|key| key.0).collect();
        let groups: Vec<String> = needs.buckets.iter().map(|key| key.1.to_string()).collect();
        let params: Vec<Param> = vec![Box::new(ids), Box::new(groups)];
        Some(reads.send(BUCKETS, params).await?)
    };
    if let Some(turn) = turn {
        turn.await?;
    }
    if let Some(held) = held {
        for row in &held.await? {
            let (id, jobs): (i32, i64) = (row.try_get(0)?, row.try_get(1)?);
            let jobs = u32::try_from(jobs).unwrap_or(u32::MAX);
            usage.held.extend(lane(i64::from(id)).map(|lane| (lane, jobs)));
        }
    }
    if let Some(buckets) = buckets {
        for row in &buckets.await? {
            let group: Arc<str> = row.try_get::<_, &str>(1)?.into();
            usage.buckets.insert((row.try_get(0)?, group), row.try_get(2)?);
        }
    }
    Ok(usage)
}

fn read(row: &Row) -> Result<StoredControl> {
    Ok(StoredControl {
        id: row.try_get(0)?,
        control: serde_json::from_str(row.try_get(1)?)?,
    })
}

/// All controls except expired pauses, oldest first.
pub(crate) async fn controls(snapshot: &Snapshot, now: Timestamp) -> Result<Vec<Control>> {
    let rows = snapshot.query(ALL, &[]).await?;
    let mut all = Vec::with_capacity(rows.len());
    for row in &rows {
        let control = read(row)?.control;
        if !is_over(&control, now) {
            all.push(control);
        }
    }
    Ok(all)
}

fn is_over(control: &Control, now: Timestamp) -> bool {
    matches!(control.effect, Effect::Pause { until: Some(until), .. } if until <= now)
}

impl Transaction {
    /// Reads the controls again and records their version.
    pub async fn read_controls(&self, version: i64) -> Result<()> {
        let rows = self.query(ALL, &[]).await?;
        let all = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
        self.cache.controls().replace(version, all);
        Ok(())
    }

    /// Sets controls; each replaces the one with its key.
    pub async fn put_controls(&mut self, controls: &[Control]) -> Result<()> {
        self.raise_control_version().await?;
        // If two have the same key, the last one counts.
        let last: HashMap<String, usize> = controls.iter().map(Control::key).zip(0..).collect();
        let (mut keys, mut definitions) = (Vec::new(), Vec::new());
        for (index, control) in controls.iter().enumerate() {
            let key = control.key();
            if last.get(&key) == Some(&index) {
                keys.push(key);
                definitions.push(serde_json::to_string(control)?);
            }
        }
        self.execute(
            "INSERT INTO gristmill.control (key, definition) SELECT unnest($1::text[]), unnest($2::text[]) \
             ON CONFLICT (key) DO UPDATE SET definition = excluded.definition",
            &[&keys, &definitions],
        )
        .await?;
        let count = self
            .query_opt("SELECT count(*) FROM gristmill.control", &[])
            .await?;
        let count: i64 = count.map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
        if count.unsigned_abs() > CONTROLS_MAX as u64 {
            Err(too_many_controls().into())
        } else {
            Ok(())
        }
    }

    /// Deletes controls. Returns their number.
    pub async fn delete_controls(&mut self, filter: &ControlFilter) -> Result<u64> {
        self.raise_control_version().await?;
        let mut deleted = 0;
        let mut ids = Vec::new();
        for row in &self.query(ALL, &[]).await? {
            let stored = read(row)?;
            let is_meant = filter.admits(&stored.control);
            // Expired pauses are deleted too.
            if is_meant || is_over(&stored.control, self.now) {
                ids.push(stored.id);
                deleted += u64::from(is_meant);
            }
        }
        self.execute("DELETE FROM gristmill.control WHERE id = ANY ($1)", &[&ids])
            .await?;
        self.execute(
            "DELETE FROM gristmill.bucket WHERE control_id = ANY ($1)",
            &[&ids],
        )
        .await?;
        Ok(deleted)
    }

    /// Locks the controls against concurrent changes.
    async fn raise_control_version(&mut self) -> Result<()> {
        self.execute("UPDATE gristmill.control_version SET version = version + 1", &[])
            .await?;
        self.writes.news.woke = true;
        Ok(())
    }

    /// Reads the usage of the limits, once it is this claim's turn.
    pub async fn usage(&self, needs: &Needs) -> Result<Usage> {
        // Sent together; each statement sees everything that was committed before its turn.
        let exclude = if needs.exclusive.is_empty() {
            None
        } else {
            Some(
                self.send(EXCLUDE, vec![Box::new(needs.exclusive.clone())])
                    .await?,
            )
        };
        let lane = |id| self.cache.lanes().get(id).cloned();
        usage(self, needs, exclude, lane).await
    }

    /// Records that lanes may have free slots.
    pub fn freed(&mut self) {
        self.writes.news.freed |= self.cache.controls().limits_concurrency();
    }
}
