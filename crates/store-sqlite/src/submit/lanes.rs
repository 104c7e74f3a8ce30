//! Queues, kinds and groups: reading and adding them.

use gristmill_store::Want;
use gristmill_store::rules::lanes::{Lane, LaneName};
use rusqlite::{Connection, params};

use crate::failure::Result;
use crate::query::ended::data_version;
use crate::transaction::Memory;

impl Memory {
    /// The lane of that name, made where there is none.
    pub fn intern_lane(&mut self, connection: &Connection, name: LaneName<'_>) -> Result<i64> {
        if let Some(id) = self.lanes.find(name) {
            return Ok(id);
        }
        self.refresh_lanes(connection)?;
        if let Some(id) = self.lanes.find(name) {
            return Ok(id);
        }
        self.lanes.check_room(name)?;
        connection
            .prepare_cached("INSERT INTO lane (queue, kind, job_group) VALUES (?1, ?2, ?3)")?
            .execute(params![name.queue, name.kind, name.group])?;
        self.refresh_lanes(connection)?;
        Ok(self.lanes.id_max())
    }

    /// The lanes that a worker wants to claim from.
    pub fn wanted_lanes(&mut self, connection: &Connection, want: &Want) -> Result<Vec<Lane>> {
        // As a rule nobody else has written since, and nothing is read.
        let data_version = data_version(connection)?;
        if self.data_version != Some(data_version) {
            self.refresh_lanes(connection)?;
            self.refresh_controls(connection)?;
            self.ranks.clear();
            self.data_version = Some(data_version);
        }
        Ok(self.lanes.wanted(want))
    }

    /// Reads the lanes that were added since the last look: as a rule none, at the cost of one seek.
    pub fn refresh_lanes(&mut self, connection: &Connection) -> Result<()> {
        let mut statement = connection
            .prepare_cached("SELECT id, queue, kind, job_group FROM lane WHERE id > ?1 ORDER BY id")?;
        let mut rows = statement.query([self.lanes.id_max()])?;
        while let Some(row) = rows.next()? {
            self.lanes.add(Lane {
                id: row.get(0)?,
                queue: row.get(1)?,
                kind: row.get(2)?,
                group: row.get(3)?,
            });
        }
        Ok(())
    }
}
