//! Pairs of queue and kind, by number.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, params};

use super::failure::Result;
use super::limits::LANES_MAX;
use crate::{StoreError, Want};

/// A queue and a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lane {
    pub id: i64,
    pub queue: Arc<str>,
    pub kind: Arc<str>,
}

/// The lanes that are known. Lanes are never deleted, so nothing here goes stale but by a rollback;
/// another process may have added some.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    by_id: HashMap<i64, Lane>,
    by_queue: HashMap<Arc<str>, HashMap<Arc<str>, i64>>,
    id_max: i64,
}

impl Lanes {
    /// The lane of a queue and a kind, made where there is none.
    pub fn intern(&mut self, connection: &Connection, queue: &str, kind: &str) -> Result<i64> {
        if let Some(id) = self.find(queue, kind) {
            return Ok(id);
        }
        self.refresh(connection)?;
        if let Some(id) = self.find(queue, kind) {
            return Ok(id);
        }
        if self.by_id.len() >= LANES_MAX {
            return Err(StoreError::InvalidInput(format!(
                "the store has {LANES_MAX} pairs of queue and kind already, and `{queue}` with `{kind}` would be one \
                 more: put what varies into the payload"
            ))
            .into());
        }
        connection
            .prepare_cached("INSERT INTO lane (queue, kind) VALUES (?1, ?2)")?
            .execute(params![queue, kind])?;
        self.refresh(connection)?;
        Ok(self.id_max)
    }

    /// The lanes that a worker wants to claim from.
    pub fn wanted(&mut self, connection: &Connection, want: &Want) -> Result<Vec<Lane>> {
        self.refresh(connection)?;
        let mut ids = Vec::new();
        for queue in &want.queues {
            let Some(kinds) = self.by_queue.get(queue) else {
                continue;
            };
            if want.kinds.is_empty() {
                ids.extend(kinds.values().copied());
            } else {
                ids.extend(want.kinds.iter().filter_map(|kind| kinds.get(kind).copied()));
            }
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids.iter().filter_map(|id| self.by_id.get(id).cloned()).collect())
    }

    fn find(&self, queue: &str, kind: &str) -> Option<i64> {
        self.by_queue.get(queue)?.get(kind).copied()
    }

    /// Reads the lanes that were added since the last look: as a rule none, at the cost of one seek.
    fn refresh(&mut self, connection: &Connection) -> Result<()> {
        let mut statement =
            connection.prepare_cached("SELECT id, queue, kind FROM lane WHERE id > ?1 ORDER BY id")?;
        let mut rows = statement.query([self.id_max])?;
        while let Some(row) = rows.next()? {
            let lane = Lane {
                id: row.get(0)?,
                queue: row.get(1)?,
                kind: row.get(2)?,
            };
            self.id_max = lane.id;
            self.by_queue
                .entry(lane.queue.clone())
                .or_default()
                .insert(lane.kind.clone(), lane.id);
            self.by_id.insert(lane.id, lane);
        }
        Ok(())
    }
}
