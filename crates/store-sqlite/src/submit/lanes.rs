//! Queues, kinds and groups: reading and adding them.

use gristmill_store::Want;
use gristmill_store::integrity::lane_sum;
use gristmill_store::rules::lanes::{Lane, LaneName, Lanes};
use rusqlite::{Connection, params};

use crate::failure::Result;
use crate::query::ended::data_version;
use crate::transaction::Memory;

impl Memory {
    /// The lane of this name; it is made if it is missing.
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
            .prepare_cached("INSERT INTO lane (queue, kind, job_group, sum) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![
                name.queue,
                name.kind,
                name.group,
                lane_sum([name.queue, name.kind, name.group])
            ])?;
        self.refresh_lanes(connection)?;
        Ok(self.lanes.id_max())
    }

    /// The lanes from which a worker wants to claim, up to a maximum.
    pub fn wanted_lanes(
        &mut self,
        connection: &Connection,
        want: &Want,
        lanes_max: usize,
    ) -> Result<Option<Vec<Lane>>> {
        // Usually nobody else has written since, and nothing is read.
        let data_version = data_version(connection)?;
        if self.data_version != Some(data_version) {
            self.refresh_lanes(connection)?;
            self.refresh_controls(connection)?;
            self.ranks.clear();
            self.data_version = Some(data_version);
        }
        Ok(self.lanes.wanted_up_to(want, lanes_max))
    }

    /// Forgets all lanes, to be read again, if some were deleted since they were read.
    pub fn forget_deleted_lanes(&mut self, connection: &Connection) -> Result<()> {
        let mut statement =
            connection.prepare_cached("SELECT next_value FROM sequence WHERE name = 'lanes_deleted'")?;
        let deleted = Some(statement.query_row([], |row| row.get(0))?);
        if self.lanes_deleted != deleted {
            self.lanes = Lanes::default();
            self.lanes_deleted = deleted;
            // The next claim reads them again.
            self.data_version = None;
        }
        Ok(())
    }

    /// Reads the lanes that were added since the last look; usually none, which costs one seek. Nothing is claimed from
    /// a damaged lane, because its jobs may be of another kind.
    pub fn refresh_lanes(&mut self, connection: &Connection) -> Result<()> {
        let mut statement = connection
            .prepare_cached("SELECT id, queue, kind, job_group, sum FROM lane WHERE id > ?1 ORDER BY id")?;
        let mut rows = statement.query([self.lanes.id_max()])?;
        while let Some(row) = rows.next()? {
            match read_lane(row) {
                Ok(Some(lane)) => self.lanes.add(lane),
                Ok(None) => tracing::error!("a lane is damaged; no jobs are claimed from it"),
                Err(failure) => {
                    let reason = failure.of_row()?;
                    tracing::error!(reason, "a lane is damaged; no jobs are claimed from it");
                }
            }
        }
        Ok(())
    }
}

/// Reads id, queue, kind, group and checksum of a lane; `None` if the checksum is wrong.
pub(crate) fn read_lane(row: &rusqlite::Row<'_>) -> Result<Option<Lane>> {
    let lane = Lane {
        id: row.get(0)?,
        queue: row.get(1)?,
        kind: row.get(2)?,
        group: row.get(3)?,
    };
    let sum = lane_sum([&lane.queue, &lane.kind, &lane.group]);
    Ok((sum == row.get::<_, i64>(4)?).then_some(lane))
}
