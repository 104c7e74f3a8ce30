//! Queues, kinds and groups: reading and adding them.

use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::connection::Connection;
use super::database::Database;
use super::failure::{Failure, Result};
use super::memory::Memory;
use crate::StoreError;
use crate::lanes::{LANES_MAX, Lane, LaneName, too_many};

/// The lanes that were added since the last look.
pub(super) const NEW_LANES: &str =
    "SELECT id, queue, kind, job_group FROM gristmill.lane WHERE id > $1 ORDER BY id";

impl Memory {
    /// The parameter of [`NEW_LANES`].
    pub fn lane_id_max(&self) -> i32 {
        i32::try_from(self.lanes().id_max()).unwrap_or(i32::MAX)
    }

    /// Adds lanes that were read. Whether there were any.
    pub fn add_lanes(&self, rows: &[Row]) -> Result<bool> {
        let mut lanes = self.lanes();
        for row in rows {
            lanes.add(Lane {
                id: i64::from(row.try_get::<_, i32>(0)?),
                queue: row.try_get::<_, &str>(1)?.into(),
                kind: row.try_get::<_, &str>(2)?.into(),
                group: row.try_get::<_, &str>(3)?.into(),
            });
        }
        Ok(!rows.is_empty())
    }
}

impl Database {
    /// The lane of that name, made where there is none.
    pub async fn intern_lane(&self, name: LaneName<'_>) -> std::result::Result<i64, StoreError> {
        if let Some(id) = self.memory.lanes().find(name) {
            return Ok(id);
        }
        self.alone(|connection| async move { self.intern_lane_by(&connection, name).await })
            .await
    }

    async fn intern_lane_by(&self, connection: &Connection, name: LaneName<'_>) -> Result<i64> {
        let lanes_max = i32::try_from(LANES_MAX).unwrap_or(i32::MAX);
        let interned = connection
            .rows(
                "SELECT gristmill.intern_lane($1, $2, $3, $4)",
                &[&name.queue, &name.kind, &name.group, &lanes_max],
            )
            .await;
        match interned {
            Err(Failure::Postgres(error)) if error.code() == Some(&SqlState::PROGRAM_LIMIT_EXCEEDED) => {
                return Err(too_many(name).into());
            }
            Err(failure) => return Err(failure),
            Ok(_) => {}
        }
        let rows = connection.rows(NEW_LANES, &[&self.memory.lane_id_max()]).await?;
        self.memory.add_lanes(&rows)?;
        let id = self.memory.lanes().find(name);
        id.ok_or_else(|| Failure::Damaged(format!("the lane of {name} is missing")))
    }
}
