//! Keeps events for listeners, and reads them. Triggers write them (`schema/events.sql`), so that none is missed,
//! whichever client changes the jobs. There are no triggers while nobody listens.

use std::sync::Arc;

use gristmill_model::limits::{EVENTS_FORGOTTEN_PER_TRANSACTION, EVENTS_KEPT_MAX, EVENTS_KEPT_MS};
use gristmill_model::{BatchId, Timestamp, WorkerId};
use gristmill_store::event::{EventCursor, EventPage, EventRow};
use rusqlite::{Connection, OptionalExtension, params};

use crate::columns::read_positions;
use crate::failure::Result;
use crate::transaction::Transaction;

/// Makes the triggers.
pub(crate) const LISTEN: &str = include_str!("../schema/events.sql");

/// Drops the triggers.
const STOP_LISTENING: &str = "DROP TRIGGER IF EXISTS event_of_batch; DROP TRIGGER IF EXISTS event_of_report; \
     DROP TRIGGER IF EXISTS event_of_failure; \
     DROP TRIGGER IF EXISTS event_of_progress; DROP TRIGGER IF EXISTS event_of_further_progress;";

/// Drops the triggers of a new layout if nobody listens.
pub(crate) fn keep_triggers_for_listeners(connection: &Connection) -> rusqlite::Result<()> {
    let listeners: i64 = connection.query_row("SELECT count(*) FROM listening", [], |row| row.get(0))?;
    match listeners {
        0 => connection.execute_batch(STOP_LISTENING),
        _ => Ok(()),
    }
}

fn cursor(id: i64) -> EventCursor {
    EventCursor { transaction: 0, id }
}

impl Transaction<'_> {
    /// Begins to keep events; returns the place after the last one.
    pub fn listen(&self) -> Result<EventCursor> {
        let last: Option<i64> = self.row(
            "SELECT seq FROM sqlite_sequence WHERE name = 'event'",
            [],
            |row| row.get(0),
        )?;
        let last = last.unwrap_or(0);
        self.connection.execute_batch(LISTEN)?;
        self.execute(
            "INSERT INTO listening (id, until, kept_after) VALUES (1, ?1, ?2) \
             ON CONFLICT (id) DO UPDATE SET until = max(until, excluded.until)",
            params![self.now.0.saturating_add(EVENTS_KEPT_MS), last],
        )?;
        self.forget_old_events(last)?;
        Ok(cursor(last))
    }

    fn forget_old_events(&self, last: i64) -> Result<()> {
        let old: Option<i64> = self
            .row(
                "SELECT max(id) FROM (SELECT id, at FROM event ORDER BY id LIMIT ?3) WHERE at < ?1 OR id <= ?2",
                params![
                    self.now.0.saturating_sub(EVENTS_KEPT_MS),
                    last - EVENTS_KEPT_MAX,
                    EVENTS_FORGOTTEN_PER_TRANSACTION
                ],
                |row| row.get(0),
            )?
            .flatten();
        if let Some(old) = old {
            self.execute("DELETE FROM event WHERE id <= ?1", [old])?;
            self.execute("UPDATE listening SET kept_after = max(kept_after, ?1)", [old])?;
        }
        Ok(())
    }

    /// Stops keeping events if nobody has listened for long.
    pub fn stop_listening(&self) -> Result<()> {
        if self.execute("DELETE FROM listening WHERE until < ?1", [self.now.0])? > 0 {
            self.connection.execute_batch(STOP_LISTENING)?;
            self.execute("DELETE FROM event", [])?;
        }
        Ok(())
    }
}

/// The events after a place.
pub(crate) fn events(
    connection: &Connection,
    after: Option<EventCursor>,
    limit: u32,
    now: Timestamp,
) -> Result<EventPage> {
    let mut statement = connection.prepare_cached("SELECT kept_after FROM listening")?;
    let kept_after: Option<i64> = statement.query_row([], |row| row.get(0)).optional()?;
    let Some(kept_after) = kept_after else {
        return Ok(EventPage::nothing(after));
    };
    let mut page = EventPage::begin(after, cursor(kept_after), now);
    let mut statement = connection.prepare_cached(
        "SELECT e.id, e.at, e.type, e.batch_id, coalesce(e.attempt, 0), e.run_at, coalesce(e.worker_id, 0), \
         coalesce(e.positions, ''), e.detail, l.kind, l.queue FROM event e LEFT JOIN batch b ON b.id = e.batch_id \
         LEFT JOIN lane l ON l.id = b.lane_id WHERE e.id > ?1 ORDER BY e.id LIMIT ?2",
    )?;
    let mut rows = statement.query(params![page.next.id, limit])?;
    while let Some(row) = rows.next()? {
        page.next = cursor(row.get(0)?);
        let event = EventRow {
            cursor: page.next,
            at: Timestamp(row.get(1)?),
            name: row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?,
            batch: row.get::<_, Option<i64>>(3)?.map(BatchId),
            attempt: row.get(4)?,
            run_at: row.get::<_, Option<i64>>(5)?.map(Timestamp),
            worker: WorkerId(row.get(6)?),
            positions: read_positions(row, 7)?,
            detail: row.get_ref(8)?.as_str_or_null().map_err(rusqlite::Error::from)?,
            kind: row.get::<_, Option<Arc<str>>>(9)?,
            queue: row.get::<_, Option<Arc<str>>>(10)?,
        };
        event.add_to(&mut page.events)?;
    }
    Ok(page)
}
