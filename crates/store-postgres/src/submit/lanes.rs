//! Queues, kinds and groups: reading and adding them.

use std::collections::BTreeSet;

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
use crate::limits::{CONNECTED_WITHIN_MIN, LANES_PER_STATEMENT};

/// The version of the controls, if it changed, and a page of the lanes that were added since the last look.
pub(crate) const NEWS: &str = "SELECT 0, '', '', '', version FROM gristmill.control_version WHERE version <> $2 \
     UNION ALL (SELECT id, queue, kind, job_group, 0::bigint FROM gristmill.lane WHERE id > $1 ORDER BY id LIMIT 10000) ORDER BY 1";

/// Makes the lanes of the queues `$1`, the kinds `$2` and the groups `$3`, up to `$4` in all. Waits for a lock for `$5`
/// milliseconds.
const INTERN: &str = "SELECT n.number, CASE WHEN (SELECT set_config('lock_timeout', $5, true)) IS NOT NULL THEN \
     gristmill.intern_lane(n.queue, n.kind, n.job_group, $4) END \
     FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY n (queue, kind, job_group, number)";

/// Lanes in a page of [`NEWS`].
const NEWS_LANES_MAX: usize = 10_000;

/// The contents of [`NEWS`].
#[derive(Debug, Default)]
pub(crate) struct News {
    /// The number of new lanes.
    lanes: usize,
    pub control_version: Option<i64>,
}

impl News {
    /// Reports whether there are new lanes.
    pub fn has_lanes(&self) -> bool {
        self.lanes > 0
    }
}

impl HandleCache {
    /// The first parameter of [`NEWS`].
    pub fn lane_id_max(&self) -> i32 {
        i32::try_from(self.lanes().id_max()).unwrap_or(i32::MAX)
    }

    /// The lane of this name. Fails if it is no longer known; it was known when the operation was prepared.
    pub fn lane(&self, name: LaneName<'_>) -> Result<i64> {
        let gone = || {
            Failure::LanesGone(vec![Lane {
                id: 0,
                queue: name.queue.into(),
                kind: name.kind.into(),
                group: name.group.into(),
            }])
        };
        self.lanes().find(name).ok_or_else(gone)
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
    /// The lane in which this transaction stores a batch. It exists already.
    pub fn lane(&mut self, name: LaneName<'_>) -> Result<i64> {
        let lane = self.cache.lane(name)?;
        self.lanes_used.insert(lane);
        Ok(lane)
    }

    /// Returns `failure`; if a lane was missing, with the lanes of the batches of this transaction.
    pub fn lanes_gone(cache: &HandleCache, lanes_used: &BTreeSet<i64>, failure: Failure) -> Failure {
        if failure.lane_gone() {
            let lanes = cache.lanes();
            Failure::LanesGone(
                lanes_used
                    .iter()
                    .filter_map(|id| lanes.get(*id).cloned())
                    .collect(),
            )
        } else {
            failure
        }
    }

    /// Makes the lane of this name if it is missing, within this transaction.
    pub async fn intern_lane(&self, name: LaneName<'_>) -> Result<i64> {
        let lanes_max = i32::try_from(LANES_MAX).unwrap_or(i32::MAX);
        let rows = self
            .query(
                "SELECT gristmill.intern_lane($1, $2, $3, $4)",
                &[&name.queue, &name.kind, &name.group, &lanes_max],
            )
            .await?;
        Ok(i64::from(rows[0].try_get::<_, i32>(0)?))
    }

    /// Reads the lanes that were added since the last look.
    pub async fn refresh_lanes(&self) -> Result<()> {
        self.cache.read_lanes(&self.connection).await
    }

    /// Adds new lanes, and reads the pages of lanes after them.
    pub async fn add_news(&self, rows: &[Row]) -> Result<News> {
        let news = self.cache.add_news(rows)?;
        if news.lanes >= NEWS_LANES_MAX {
            self.refresh_lanes().await?;
        }
        Ok(news)
    }
}

impl Database {
    /// Finds out which of the known lanes still exist, and makes the missing ones of these again.
    pub async fn restore_lanes(&self, gone: &[Lane]) -> std::result::Result<(), StoreError> {
        self.recheck_lanes().await?;
        let deadline = Instant::now() + self.lock_wait;
        match self.intern_lanes(gone.iter().map(Lane::name), deadline).await {
            // The submit that needs the lane gets the error.
            Err(StoreError::InvalidInput(_)) => Ok(()),
            restored => restored,
        }
    }

    /// Forgets deleted lanes, if there may be many of them.
    pub async fn forget_stale_lanes(&self) {
        let may_be_stale = self.cache.lanes().may_be_stale();
        if may_be_stale && let Err(error) = self.recheck_lanes().await {
            tracing::debug!(%error, "it is not known which kinds, queues and groups exist still");
        }
    }

    /// Forgets the lanes that were deleted.
    pub async fn recheck_lanes(&self) -> std::result::Result<(), StoreError> {
        let known = self
            .read(|snapshot| async move {
                let rows = snapshot
                    .query("SELECT id, retired FROM gristmill.lane", &[])
                    .await?;
                let known = rows
                    .iter()
                    .map(|row| Ok((i64::from(row.try_get::<_, i32>(0)?), row.try_get(1)?)));
                known.collect::<Result<Vec<(i64, bool)>>>()
            })
            .await?;
        self.cache.lanes().keep(&known);
        Ok(())
    }

    /// Makes the lanes of these names if they are missing, before `deadline`.
    pub async fn intern_lanes<'n>(
        &self,
        names: impl Iterator<Item = LaneName<'n>>,
        deadline: Instant,
    ) -> std::result::Result<(), StoreError> {
        let missing: Vec<LaneName<'n>> = {
            let (lanes, mut seen) = (self.cache.lanes(), BTreeSet::new());
            names
                .filter(|name| lanes.find(*name).is_none() && seen.insert(*name))
                .collect()
        };
        for part in missing.chunks(LANES_PER_STATEMENT) {
            let mut patience = self.patience();
            loop {
                let connected_by = deadline.max(Instant::now() + CONNECTED_WITHIN_MIN);
                let connection = timeout_at(connected_by, self.writer(Purpose::Change)).await;
                let interned = match connection.unwrap_or(Err(Failure::Crowded)) {
                    Ok(connection) => self.intern_lanes_by(&connection, part, deadline).await,
                    Err(failure) => Err(failure),
                };
                match interned {
                    Ok(()) => break,
                    Err(failure) => self.wait_after(failure, &mut patience).await?,
                }
            }
        }
        Ok(())
    }

    async fn intern_lanes_by(
        &self,
        connection: &Connection,
        names: &[LaneName<'_>],
        deadline: Instant,
    ) -> Result<()> {
        let lanes_max = i32::try_from(LANES_MAX).unwrap_or(i32::MAX);
        // Others may have waited in line before it for the same lock: it has the rest of its time.
        let wait = deadline.saturating_duration_since(Instant::now());
        let wait_ms = wait.as_millis().max(1).to_string();
        let column = |part: fn(&LaneName<'_>) -> String| names.iter().map(part).collect::<Vec<_>>();
        let interned = connection
            .rows(
                INTERN,
                &[
                    &column(|name| name.queue.to_owned()),
                    &column(|name| name.kind.to_owned()),
                    &column(|name| name.group.to_owned()),
                    &lanes_max,
                    &wait_ms,
                ],
            )
            .await;
        let rows = match interned {
            Err(Failure::Postgres(error)) if error.code() == Some(&SqlState::PROGRAM_LIMIT_EXCEEDED) => {
                self.cache.lanes().refused();
                let first = names
                    .iter()
                    .copied()
                    .find(|name| self.cache.lanes().find(*name).is_none());
                return Err(first.map_or(Failure::Overtaken, |name| too_many(name).into()));
            }
            rows => rows?,
        };
        // Reads the earlier ones first, so that a process that knows a lane knows all before it.
        self.cache.read_lanes(connection).await?;
        let mut lanes = self.cache.lanes();
        for row in &rows {
            let number = usize::try_from(row.try_get::<_, i64>(0)? - 1).unwrap_or(usize::MAX);
            if let Some(name) = names.get(number) {
                lanes.add(Lane {
                    id: i64::from(row.try_get::<_, i32>(1)?),
                    queue: name.queue.into(),
                    kind: name.kind.into(),
                    group: name.group.into(),
                });
            }
        }
        Ok(())
    }
}
