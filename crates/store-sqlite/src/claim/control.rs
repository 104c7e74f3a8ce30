//! Controls: storing them, and reading the values that claims depend on.

use std::sync::Arc;

use gristmill_model::limits::CONTROLS_MAX;
use gristmill_model::{Control, Effect, Timestamp};
use gristmill_store::rules::admission::{Needs, Usage};
use gristmill_store::rules::controls::{ControlFilter, StoredControl, too_many_controls};
use rusqlite::{Connection, params};

use crate::failure::Result;
use crate::transaction::{Memory, Transaction};

/// All stored controls, oldest first.
fn stored(connection: &Connection) -> Result<Vec<StoredControl>> {
    let mut statement = connection.prepare_cached("SELECT id, definition FROM control ORDER BY id")?;
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let definition = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        all.push(StoredControl {
            id: row.get(0)?,
            control: serde_json::from_str(definition)?,
        });
    }
    Ok(all)
}

/// All controls except expired pauses, oldest first.
pub(crate) fn controls(connection: &Connection, now: Timestamp) -> Result<Vec<Control>> {
    let all = stored(connection)?.into_iter().map(|stored| stored.control);
    Ok(all.filter(|control| !is_over(control, now)).collect())
}

fn is_over(control: &Control, now: Timestamp) -> bool {
    matches!(control.effect, Effect::Pause { until: Some(until), .. } if until <= now)
}

impl Memory {
    /// Reads the controls again if somebody has changed them.
    pub fn refresh_controls(&mut self, connection: &Connection) -> Result<()> {
        let mut statement =
            connection.prepare_cached("SELECT next_value FROM sequence WHERE name = 'control_version'")?;
        let version: i64 = statement.query_row([], |row| row.get(0))?;
        if version != self.controls.version() {
            self.controls.replace(version, stored(connection)?);
        }
        Ok(())
    }
}

impl Transaction<'_> {
    /// Sets controls; each replaces the one with its key.
    pub fn put_controls(&mut self, controls: &[Control]) -> Result<()> {
        for control in controls {
            self.execute(
                "INSERT INTO control (key, definition) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET definition = ?2",
                params![control.key(), serde_json::to_string(control)?],
            )?;
        }
        let count = self.row("SELECT count(*) FROM control", [], |row| row.get::<_, i64>(0))?;
        if count.unwrap_or(0).unsigned_abs() > CONTROLS_MAX as u64 {
            return Err(too_many_controls().into());
        }
        self.controls_changed()
    }

    /// Deletes controls. Returns their number.
    pub fn delete_controls(&mut self, filter: &ControlFilter) -> Result<u64> {
        let mut deleted = 0;
        for stored in stored(self.connection)? {
            let is_meant = filter.admits(&stored.control);
            // Expired pauses are deleted too.
            if is_meant || is_over(&stored.control, self.now) {
                self.execute("DELETE FROM control WHERE id = ?1", [stored.id])?;
                self.execute("DELETE FROM bucket WHERE control_id = ?1", [stored.id])?;
                deleted += u64::from(is_meant);
            }
        }
        self.controls_changed()?;
        Ok(deleted)
    }

    fn controls_changed(&mut self) -> Result<()> {
        self.execute(
            "UPDATE sequence SET next_value = next_value + 1 WHERE name = 'control_version'",
            [],
        )?;
        self.memory.refresh_controls(self.connection)?;
        self.woke = true;
        Ok(())
    }

    /// Reads the values that a claim depends on.
    pub fn usage(&mut self, needs: &Needs) -> Result<Usage> {
        let mut usage = Usage::default();
        if needs.held {
            let rows = self.rows(
                "SELECT lane_id, sum(count) FROM held GROUP BY lane_id",
                [],
                |row| Ok((row.get::<_, i64>(0)?, row.get::<_, u32>(1)?)),
            )?;
            let lane = |(id, jobs)| self.memory.lanes.get(id).cloned().map(|lane| (lane, jobs));
            usage.held = rows.into_iter().filter_map(lane).collect();
        }
        if !needs.buckets.is_empty() {
            let keys: Vec<(i64, &str)> = needs.buckets.iter().map(|key| (key.0, &*key.1)).collect();
            let rows = self.rows(
                "SELECT b.control_id, b.job_group, b.empty_at_ns FROM json_each(?1) k \
                 CROSS JOIN bucket b ON b.control_id = k.value ->> 0 AND b.job_group = k.value ->> 1",
                [serde_json::to_string(&keys)?],
                |row| Ok(((row.get(0)?, row.get::<_, Arc<str>>(1)?), row.get(2)?)),
            )?;
            usage.buckets = rows.into_iter().collect();
        }
        Ok(usage)
    }

    /// Records that lanes may have free slots.
    pub fn freed(&mut self) {
        self.freed |= self.memory.controls.limits_concurrency();
    }
}
