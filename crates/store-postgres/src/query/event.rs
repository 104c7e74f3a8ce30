//! Keeps events for listeners, and reads them. Triggers write them (`schema/events.sql`), so that none is missed,
//! whichever client changes the jobs.

use gristmill_model::limits::{EVENTS_FORGOTTEN_PER_TRANSACTION, EVENTS_KEPT_MAX, EVENTS_KEPT_MS};
use gristmill_model::{BatchId, Timestamp, WorkerId};
use gristmill_store::event::{EventCursor, EventPage, EventRow};

use crate::database::columns::number;
use crate::database::snapshot::Snapshot;
use crate::database::transaction::Transaction;
use crate::failure::Result;
use crate::multirange::Multirange;

/// The oldest open transaction, or the next one. All transactions below it have ended.
const HORIZON: &str = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint";

/// Begins or continues to listen until `$1`; all events after the transaction `$2` are kept.
const LISTEN: &str = "INSERT INTO gristmill.listening AS l (id, until, kept_after_xid, kept_after_id) \
     VALUES (1, $1, $2, $3) ON CONFLICT (id) DO UPDATE SET until = greatest(l.until, excluded.until)";

/// Deletes those of the first `$3` events that are from before `$1`, and those beyond the first `$2`.
const FORGET: &str = "WITH first AS (SELECT xid, id, at FROM gristmill.event ORDER BY xid, id LIMIT $3), \
     last AS (SELECT id FROM gristmill.event ORDER BY xid DESC, id DESC LIMIT 1), \
     gone AS (DELETE FROM gristmill.event e USING first f, last l \
     WHERE e.xid = f.xid AND e.id = f.id AND (f.at < $1 OR f.id <= l.id - $2) RETURNING e.xid, e.id) \
     UPDATE gristmill.listening SET (kept_after_xid, kept_after_id) = ( \
     SELECT g.xid::text::bigint, g.id FROM gone g ORDER BY g.xid DESC, g.id DESC LIMIT 1) \
     WHERE EXISTS (SELECT FROM gone g WHERE (g.xid::text::bigint, g.id) > (kept_after_xid, kept_after_id))";

/// Events after the transaction `$1` and the id `$2`, of decided transactions.
const EVENTS: &str = "SELECT e.xid::text::bigint, e.id, e.at, e.type, e.batch_id, coalesce(e.attempt, 0), e.run_at, \
     coalesce(e.worker_id, 0), coalesce(e.positions, '{}'), e.detail, l.kind, l.queue \
     FROM (SELECT * FROM gristmill.event WHERE (xid, id) > ($1::bigint::text::xid8, $2) \
     AND xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xid, id LIMIT $3) e \
     LEFT JOIN gristmill.batch b ON b.id = e.batch_id LEFT JOIN gristmill.lane l ON l.id = b.lane_id \
     ORDER BY e.xid, e.id";

impl Transaction {
    /// Begins to keep events; returns the place after the last past event.
    pub async fn listen(&self) -> Result<EventCursor> {
        let row = self.query_opt(HORIZON, &[]).await?;
        let horizon: i64 = row.map_or(Ok(0), |row| row.try_get(0))?;
        let now = EventCursor {
            transaction: horizon - 1,
            id: i64::MAX,
        };
        self.execute(
            LISTEN,
            &[
                &self.now.0.saturating_add(EVENTS_KEPT_MS),
                &now.transaction,
                &now.id,
            ],
        )
        .await?;
        self.execute(
            FORGET,
            &[
                &self.now.0.saturating_sub(EVENTS_KEPT_MS),
                &EVENTS_KEPT_MAX,
                &EVENTS_FORGOTTEN_PER_TRANSACTION,
            ],
        )
        .await?;
        Ok(now)
    }

    /// Stops keeping events if nobody has listened for long.
    pub async fn stop_listening(&self) -> Result<()> {
        let ended = self
            .execute("DELETE FROM gristmill.listening WHERE until < $1", &[&self.now.0])
            .await?;
        if ended > 0 {
            self.execute("DELETE FROM gristmill.event", &[]).await?;
        }
        Ok(())
    }
}

/// The events after a place.
pub(crate) async fn events(
    snapshot: &Snapshot,
    after: Option<EventCursor>,
    limit: u32,
    now: Timestamp,
) -> Result<EventPage> {
    let row = snapshot
        .query_opt(
            "SELECT kept_after_xid, kept_after_id FROM gristmill.listening",
            &[],
        )
        .await?;
    let Some(row) = row else {
        return Ok(EventPage::nothing(after));
    };
    let kept_after = EventCursor {
        transaction: row.try_get(0)?,
        id: row.try_get(1)?,
    };
    let mut page = EventPage::begin(after, kept_after, now);
    let rows = snapshot
        .query(
            EVENTS,
            &[&page.next.transaction, &page.next.id, &i64::from(limit)],
        )
        .await?;
    for row in &rows {
        page.next = EventCursor {
            transaction: row.try_get(0)?,
            id: row.try_get(1)?,
        };
        let event = EventRow {
            cursor: page.next,
            at: Timestamp(row.try_get(2)?),
            name: row.try_get(3)?,
            batch: row.try_get::<_, Option<i64>>(4)?.map(BatchId),
            attempt: number(row, 5)?,
            run_at: row.try_get::<_, Option<i64>>(6)?.map(Timestamp),
            worker: WorkerId(row.try_get(7)?),
            positions: row.try_get::<_, Multirange>(8)?.0,
            detail: row.try_get(9)?,
            kind: row.try_get::<_, Option<&str>>(10)?.map(Into::into),
            queue: row.try_get::<_, Option<&str>>(11)?.map(Into::into),
        };
        event.add_to(&mut page.events)?;
    }
    Ok(page)
}
