//! Stores batches.

pub(crate) mod cache;
pub(crate) mod debounce;
pub(crate) mod keys;
pub(crate) mod lanes;
pub(crate) mod run;
pub(crate) mod schedule;

use std::sync::OnceLock;

use gristmill_batching::EndReason;
use gristmill_model::{BatchId, JobId, JobState, NewBatch, PackedArray, Positions, RunId, Timestamp};
use gristmill_store::RunAdvance;
use gristmill_store::hook::lanes_of_hooks;
use gristmill_store::integrity::BatchColumns;
use gristmill_store::options::{options_text, stored_options};
use gristmill_store::rules::dependency::{Beginning, WaitingJobs, stored_prerequisites};
use gristmill_store::rules::ending::{Ending, FailedAttempt};
use gristmill_store::rules::family::flow::{BEGINNING, beginning};
use gristmill_store::rules::lanes::LaneName;
use gristmill_store::rules::pack::packed;
use rusqlite::{Connection, OptionalExtension, params};

use crate::claim::slice::NewSlice;
use crate::failure::{Failure, Result};
use crate::graph::dependency::Ended;
use crate::transaction::{BatchHead, Transaction};

impl Transaction<'_> {
    /// Stores batches and, with `advance`, advances their run.
    pub fn submit(&mut self, batches: &[NewBatch], advance: Option<&RunAdvance>) -> Result<Vec<BatchId>> {
        self.check_prerequisites(batches)?;
        if let Some(advance) = advance {
            self.advance_run(advance)?;
        }
        let run = advance.map(|advance| advance.run);
        let mut ids = Vec::with_capacity(batches.len());
        for batch in batches {
            ids.push(self.insert_batch(batch, &batch.payloads, run, &ids, &[])?);
        }
        assert_eq!(ids.len(), batches.len(), "each batch has an id");
        self.settle_submitted(batches, &ids)?;
        Ok(ids)
    }

    /// Stores single jobs of one kind with equal options as one batch.
    pub fn submit_singles(&mut self, singles: &[NewBatch]) -> Result<Vec<JobId>> {
        let Some(first) = singles.first() else {
            return Ok(Vec::new());
        };
        self.check_prerequisites(std::slice::from_ref(first))?;
        let batch = self.insert_batch(first, &packed(singles), None, &[], &[])?;
        self.settle_submitted(std::slice::from_ref(first), &[batch])?;
        // Single submits are packed with all that have gathered; there were no more.
        self.memory
            .hops
            .record("submit", singles.len(), EndReason::Drained);
        let positions = 0..singles.len() as u32;
        Ok(positions.map(|position| JobId { batch, position }).collect())
    }

    /// Stores a batch. `earlier` has the ids of the earlier batches in its submit; `waiting` has jobs of it that wait
    /// for more prerequisites than the batch names.
    pub fn insert_batch(
        &mut self,
        batch: &NewBatch,
        payloads: &PackedArray,
        run: Option<RunId>,
        earlier: &[BatchId],
        waiting: &[WaitingJobs],
    ) -> Result<BatchId> {
        let lane_id = self.memory.intern_lane(self.connection, LaneName::of(batch))?;
        for name in lanes_of_hooks(batch) {
            self.memory.intern_lane(self.connection, name)?;
        }
        let options = stored_options(batch, earlier);
        let options_text = options_text(&options, !batch.tags.is_empty())?;
        let id = self.next_batch_id()?;
        assert!(
            earlier.last().is_none_or(|last| *last < id),
            "batch ids ascend from {earlier:?}, but the next is {id}"
        );
        let run_at = options.run_at.unwrap_or(self.now);
        self.insert_row(&BatchColumns {
            id: id.0,
            run_id: run.map(|run| run.0),
            lane_id,
            count: payloads.count(),
            priority: i64::from(options.priority),
            submitted_at: self.now.0,
            run_at: run_at.0,
            options: options_text.as_deref(),
            payloads: payloads.as_str(),
        })?;
        let head = BatchHead {
            lane_id,
            count: payloads.count(),
            priority: i64::from(options.priority),
            submitted_at: self.now,
            run_at,
            options: options.clone().into_owned(),
            tagged: !batch.tags.is_empty(),
            keys: OnceLock::new(),
        };
        if !batch.tags.is_empty() {
            self.insert_tags(id, payloads.count(), &batch.tags)?;
        }
        if let Some(flows) = beginning(batch) {
            self.insert_suspension(id, BEGINNING, &flows)?;
        }
        let mut positions = Positions::all(payloads.count());
        if !batch.rejected.is_empty() {
            positions = positions.difference(&self.bury_rejected(id, batch)?);
        }
        if options.cached_ms.is_some() {
            positions = positions.difference(&self.answer_from_cache(id, batch, payloads)?);
        }
        if options.hooks.is_some() {
            self.await_end(id)?;
        }
        assert!(positions.last().is_none_or(|last| last < payloads.count()));
        let begins = Beginning::of(id, batch, earlier, waiting, positions);
        for (part, edges) in &begins.blocked {
            self.block(part, edges)?;
        }
        if let Some(positions) = &begins.claimable {
            let slice = NewSlice {
                positions,
                rank: head.rank(),
                run_at,
                attempt: 1,
                rescues: 0,
                expires_at: options.expires_at,
                family: batch.memos.as_ref().map(|_| BEGINNING),
            };
            self.insert_slice(id, &head, &slice)?;
        }
        self.keep(id, head, payloads);
        Ok(id)
    }

    fn insert_row(&self, row: &BatchColumns<'_>) -> Result<()> {
        self.execute(
            "INSERT INTO batch (id, lane_id, run_id, count, priority, submitted_at, run_at, options, payloads, sum) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                row.id,
                row.lane_id,
                row.run_id,
                row.count,
                row.priority,
                row.submitted_at,
                row.run_at,
                row.options,
                row.payloads,
                row.sum(),
            ],
        )?;
        Ok(())
    }

    /// Settles edges to ended jobs: those of stored batches, and those of the same submit that were rejected or have
    /// cached values.
    pub fn settle_submitted(&mut self, batches: &[NewBatch], ids: &[BatchId]) -> Result<()> {
        let is_awaited = |batch: &NewBatch| !batch.after.is_empty() || batch.options.hooks.is_some();
        if !batches.iter().any(is_awaited) {
            return Ok(());
        }
        let stored = stored_prerequisites(batches).into_keys();
        let over = batches.iter().zip(ids);
        let over = over
            .filter(|(batch, _)| !batch.rejected.is_empty() || batch.options.cached_ms.is_some())
            .map(|(_, id)| *id);
        let ended = stored.chain(over).map(Ended::looked_up);
        self.settle(ended.collect())
    }

    /// The id after all batch ids that were ever given. The write lock is held, so nobody else gives it.
    fn next_batch_id(&self) -> Result<BatchId> {
        let id = self.row(
            "SELECT max(next_value, (SELECT coalesce(max(id), 0) + 1 FROM batch)) FROM sequence WHERE name = 'batch'",
            [],
            |row| row.get(0),
        )?;
        let id = id.ok_or_else(|| Failure::Damaged("the sequence of batches is missing".to_owned()))?;
        Ok(BatchId(id))
    }

    /// Ends jobs that cannot run as dead.
    fn bury_rejected(&mut self, id: BatchId, batch: &NewBatch) -> Result<Positions> {
        let positions: Positions = batch.rejected.iter().map(|rejected| rejected.position).collect();
        for rejected in &batch.rejected {
            self.insert_failure(
                id,
                &FailedAttempt::unreported(rejected.position, 0, 0, &rejected.error),
            )?;
        }
        self.insert_report(id, &positions, &Ending::of(JobState::Dead, 0))?;
        Ok(positions)
    }
}

/// The time of the last submit.
pub(crate) fn last_submit(connection: &Connection) -> Result<Option<Timestamp>> {
    let sql = "SELECT submitted_at FROM batch ORDER BY id DESC LIMIT 1";
    Ok(connection
        .query_row(sql, [], |row| row.get(0))
        .optional()?
        .map(Timestamp))
}
