//! Queues, kinds and groups: reading and adding them.

use gristmill_store::StoreError;
use gristmill_store::rules::lanes::{LANES_MAX, Lane, LaneName, too_many};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use crate::database::Database;
use crate::database::connection::Connection;
use crate::database::handle_cache::HandleCache;
use crate::database::pools::Purpose;
use crate::database::transaction::Transaction;
use crate::failure::{Failure, Result};
use crate::limits::CONNECTED_WITHIN_MIN;

/// The version of the controls, if it is another, and the lanes that were added since the last look: a page of them.
pub(crate) const NEWS: &str = "SELECT 0, '', '', '', version FROM gristmill.control_version WHERE version <> $2 \
     UNION ALL (SELECT id, queue, kind, job_group, 0::bigint FROM gristmill.lane WHERE id > $1 ORDER BY id LIMIT 10000) ORDER BY 1";

/// Lanes in a page of [`NEWS`].
const NEWS_LANES_MAX: usize = 10_000;

/// What [`NEWS`] told.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// How many lanes are new.
    lanes: usize,
    pub control_version: Option<i64>,
}

impl News {
    /// Whether there are new lanes.
    pub fn has_lanes(&self) -> bool {
        self.lanes > 0
    }
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
            news.lanes += 1;
            lanes.add(Lane {
                id: i64::from(row.try_get::<_, i32>(0)?),
                queue: row.try_get::<_, &str>(1)?.into(),
                kind: row.try_get::<_, &str>(2)?.into(),
                group: row.try_get::<_, &str>(3)?.into(),
            });
        }
        Ok(news)
    }

    /// Reads the lanes that were added since the last look.
    pub async fn read_lanes(&self, connection: &Connection) -> Result<()> {
        loop {
            let version = self.controls().version();
            let rows = connection.rows(NEWS, &[&self.lane_id_max(), &version]).await?;
            if self.add_news(&rows)?.lanes < NEWS_LANES_MAX {
                return Ok(());
            }
        }
    }
}

impl Transaction {
    /// Reads the lanes that were added since the last look.
    pub async fn refresh_lanes(&self) -> Result<()> {
        self.cache.read_lanes(&self.connection).await
    }

    /// Takes in what was told, and the pages of lanes after it.
    pub async fn add_news(&self, rows: &[Row]) -> Result<News> {
        let news = self.cache.add_news(rows)?;
        if news.lanes >= NEWS_LANES_MAX {
            self.refresh_lanes().await?;
        }
        Ok(news)
    }
}

impl Database {
    /// The lane of that name, made where there is none before `deadline`.
    pub async fn intern_lane(
        &self,
        name: LaneName<'_>,
        deadline: Instant,
    ) -> std::result::Result<i64, StoreError> {
        if let Some(id) = self.cache.lanes().find(name) {
            return Ok(id);
        }
        let mut patience = self.patience();
        loop {
            let connected_by = deadline.max(Instant::now() + CONNECTED_WITHIN_MIN);
            let connection = timeout_at(connected_by, self.writer(Purpose::Change)).await;
            let interned = match connection.unwrap_or(Err(Failure::Crowded)) {
                Ok(connection) => self.intern_lane_by(&connection, name, deadline).await,
                Err(failure) => Err(failure),
            };
            match interned {
                Ok(id) => return Ok(id),
                Err(failure) => self.wait_after(failure, &mut patience).await?,
            }
        }
    }

    async fn intern_lane_by(
        &self,
        connection: &Connection,
        name: LaneName<'_>,
        deadline: Instant,
    ) -> Result<i64> {
        let lanes_max = i32::try_from(LANES_MAX).unwrap_or(i32::MAX);
        // Others may have waited in line before it, for the same lock: it has the rest of its time.
        let wait = deadline.saturating_duration_since(Instant::now());
        let wait_ms = wait.as_millis().max(1).to_string();
        let interned = connection
            .rows(
                "SELECT set_config('lock_timeout', $5, true), gristmill.intern_lane($1, $2, $3, $4)",
                &[&name.queue, &name.kind, &name.group, &lanes_max, &wait_ms],
            )
            .await;
        match interned {
            Err(Failure::Postgres(error)) if error.code() == Some(&SqlState::PROGRAM_LIMIT_EXCEEDED) => {
                return Err(too_many(name).into());
            }
            Err(failure) => return Err(failure),
            Ok(_) => {}
        }
        self.cache.read_lanes(connection).await?;
        let id = self.cache.lanes().find(name);
        id.ok_or_else(|| Failure::Damaged(format!("the lane of {name} is missing")))
    }
}
