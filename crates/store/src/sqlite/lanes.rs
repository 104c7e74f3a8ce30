//! Pairs of queue and kind: reading and adding them.

use rusqlite::{Connection, params};

use super::failure::Result;
use super::transaction::Memory;
use crate::Want;
use crate::lanes::Lane;

impl Memory {
    /// The lane of a queue and a kind, made where there is none.
    pub fn intern_lane(&mut self, connection: &Connection, queue: &str, kind: &str) -> Result<i64> {
        if let Some(id) = self.lanes.find(queue, kind) {
            return Ok(id);
        }
        self.refresh_lanes(connection)?;
        if let Some(id) = self.lanes.find(queue, kind) {
            return Ok(id);
        }
        self.lanes.check_room(queue, kind)?;
        connection
            .prepare_cached("INSERT INTO lane (queue, kind) VALUES (?1, ?2)")?
            .execute(params![queue, kind])?;
        self.refresh_lanes(connection)?;
        Ok(self.lanes.id_max())
    }

    /// The lanes that a worker wants to claim from.
    pub fn wanted_lanes(&mut self, connection: &Connection, want: &Want) -> Result<Vec<Lane>> {
        self.refresh_lanes(connection)?;
        Ok(self.lanes.wanted(want))
    }

    /// Reads the lanes that were added since the last look: as a rule none, at the cost of one seek.
    fn refresh_lanes(&mut self, connection: &Connection) -> Result<()> {
        let mut statement =
            connection.prepare_cached("SELECT id, queue, kind FROM lane WHERE id > ?1 ORDER BY id")?;
        let mut rows = statement.query([self.lanes.id_max()])?;
        while let Some(row) = rows.next()? {
            self.lanes.add(Lane {
                id: row.get(0)?,
                queue: row.get(1)?,
                kind: row.get(2)?,
            });
        }
        Ok(())
    }
}
