//! Cached values of jobs, for jobs of the same lane with the same payload.

use gristmill_model::{BatchId, JobState, NewBatch, PackedArray, Positions};
use gristmill_store::integrity::cached_sum;
use gristmill_store::rules::cache::{Hits, Lookup, kept, kept_until};
use gristmill_store::rules::ending::Ending;
use rusqlite::params;

use crate::failure::Result;
use crate::limits::FORGOTTEN_KEYS_PER_TRANSACTION;
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Ends the jobs of a new batch that have cached values, and returns them.
    pub fn answer_from_cache(
        &mut self,
        id: BatchId,
        batch: &NewBatch,
        payloads: &PackedArray,
    ) -> Result<Positions> {
        let Some(lookup) = Lookup::of(batch, payloads, self.now) else {
            return Ok(Positions::new());
        };
        let found = self.rows(
            "SELECT j.key, c.value, c.digest, c.sum FROM json_each(?1) j CROSS JOIN cached c ON c.digest = j.value \
             WHERE c.stored_at > ?2",
            params![serde_json::to_string(&lookup.digests)?, lookup.stored_after.0],
            |row| {
                let value: String = row.get(1)?;
                let sum = cached_sum(row.get_ref(2)?.as_str()?, &value);
                Ok((row.get::<_, u32>(0)?, value, sum == row.get::<_, i64>(3)?))
            },
        )?;
        let mut hits = Hits::default();
        // If a value is damaged, its job runs, which stores the value again.
        for (position, value, _) in found.into_iter().filter(|(_, _, is_whole)| *is_whole) {
            hits.add(position, value);
        }
        match hits.ending(batch)? {
            None => Ok(Positions::new()),
            Some((positions, ending)) => {
                self.insert_report(id, &positions, &ending)?;
                Ok(positions)
            }
        }
    }

    /// Stores the values of completed jobs, if their batch is cached.
    pub fn keep_values(&mut self, batch: BatchId, positions: &Positions, ending: &Ending) -> Result<()> {
        let (Some(values), JobState::Completed) = (&ending.values, ending.state) else {
            return Ok(());
        };
        let head = self.head(batch)?;
        let Some(cached_ms) = head.options.cached_ms else {
            return Ok(());
        };
        let lane = self.lane_of(batch, head.lane_id)?;
        let Some(payloads) = self.with_payloads(batch)?.payloads else {
            return Ok(());
        };
        let kept = kept(lane.name(), &payloads, positions, values);
        let rows: Vec<(&str, &str, i64)> = kept
            .iter()
            .map(|(digest, value)| (digest.as_str(), value.as_str(), cached_sum(digest, value)))
            .collect();
        self.execute(
            "INSERT INTO cached (digest, stored_at, until, value, sum) \
             SELECT value ->> 0, ?1, ?2, value ->> 1, value ->> 2 FROM json_each(?3) WHERE true \
             ON CONFLICT (digest) DO UPDATE SET stored_at = excluded.stored_at, value = excluded.value, \
             sum = excluded.sum, until = max(until, excluded.until)",
            params![
                self.now.0,
                kept_until(self.now, cached_ms).0,
                serde_json::to_string(&rows)?,
            ],
        )?;
        Ok(())
    }

    /// Deletes some expired values.
    pub fn forget_values(&mut self) -> Result<()> {
        self.execute(
            "DELETE FROM cached WHERE rowid IN (SELECT rowid FROM cached WHERE until <= ?1 ORDER BY until LIMIT ?2)",
            params![self.now.0, FORGOTTEN_KEYS_PER_TRANSACTION],
        )?;
        Ok(())
    }
}
