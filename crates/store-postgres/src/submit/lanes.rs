//! Queues, kinds and groups: reading and adding them.

use gristmill_store::StoreError;
use gristmill_store::rules::lanes::{LANES_MAX, Lane, LaneName, too_many};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use crate::database::Database;
use crate::database::connection::Connection;
use crate::database::handle_cache::HandleCache;
use crate::database::pools::Purpose;
use crate::database::transaction::Transaction;
use crate::failure::{Failure, Result};

/// The lanes that were added since the last look, and the version of the controls, if it is another.
pub(crate) const NEWS: &str = "SELECT id, queue, kind, job_group, 0::bigint FROM gristmill.lane WHERE id > $1 \
     UNION ALL SELECT 0, '', '', '', version FROM gristmill.control_version WHERE version <> $2 ORDER BY 1";

/// What [`NEWS`] told.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Whether there are new lanes.
    pub lanes: bool,
    pub control_version: Option<i64>,
}

impl HandleCache {
    /// The first parameter of [`NEWS`].
    pub fn lane_id_max(&self) -> i32 {
        i32::try_from(self.lanes().id_max()).unwrap_or(i32::MAX)
    }

    /// Adds lanes that were read.
    pub fn add_news(&self, rows: &[Row]) -> Result<News> {
        let (mut news, mut lanes) = (News::default(), self.lanes());
        for row in rows {
            let version: i64 = row.try_get(4)?;
            if row.try_get::<_, i32>(0)? == 0 {
                news.control_version = Some(version);
                continue;
            }
            news.lanes = true;
            lanes.add(Lane {
                id: i64::from(row.try_get::<_, i32>(0)?),
                queue: row.try_get::<_, &str>(1)?.into(),
                kind: row.try_get::<_, &str>(2)?.into(),
                group: row.try_get::<_, &str>(3)?.into(),
            });
        }
        Ok(news)
    }
}

impl Transaction {
    /// Reads the lanes that were added since the last look.
    pub async fn refresh_lanes(&self) -> Result<()> {
        let version = self.cache.controls().version();
        let rows = self.query(NEWS, &[&self.cache.lane_id_max(), &version]).await?;
        self.cache.add_news(&rows)?;
        Ok(())
    }
}

impl Database {
    /// The lane of that name, made where there is none.
    pub async fn intern_lane(&self, name: LaneName<'_>) -> std::result::Result<i64, StoreError> {
        if let Some(id) = self.cache.lanes().find(name) {
            return Ok(id);
        }
        self.alone(Purpose::Change, |connection| async move {
            self.intern_lane_by(&connection, name).await
        })
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
        let version = self.cache.controls().version();
        let rows = connection
            .rows(NEWS, &[&self.cache.lane_id_max(), &version])
            .await?;
        self.cache.add_news(&rows)?;
        let id = self.cache.lanes().find(name);
        id.ok_or_else(|| Failure::Damaged(format!("the lane of {name} is missing")))
    }
}
