//! Siblings: further children of their parents that children spawn.
//!
//! They are stored as one more batch of the family, before the edges to the jobs that the report ended are settled: so
//! a parent never finalizes without them.

use gristmill_model::{BatchId, NewBatch, Positions, Report, Siblings};
use gristmill_store::rules::family::CHILDREN;
use gristmill_store::rules::family::spawning::{Parentage, cannot_spawn, check_siblings};
use gristmill_store::rules::open::Blocked;
use gristmill_store::rules::report_write::FailedExtras;
use rusqlite::params;

use crate::failure::Result;
use crate::graph::dependency::Ended;
use crate::graph::family::parentage;
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// The jobs of a report whose siblings cannot be stored, with the reasons.
    pub fn refused_siblings(&mut self, report: &Report) -> Result<FailedExtras> {
        let mut refused = FailedExtras::new();
        if report.siblings.is_empty() {
            return Ok(refused);
        }
        let parentage = parentage(self.connection, report.batch)?;
        for siblings in &report.siblings {
            let mut checked = check_siblings(report.batch, siblings, parentage.as_ref());
            if let (Ok(()), Some(parentage)) = (&checked, &parentage) {
                let inheritance = self.inheritance_of(parentage.batch)?;
                let place = parentage.place_of_siblings(self.now);
                let batches = parentage.by_parent(siblings).map(|siblings| {
                    let batches =
                        inheritance.batches(self.now, place, &siblings.positions, &siblings.children);
                    batches.map_err(|error| cannot_spawn(&error))
                });
                checked = match batches {
                    Some(Ok(batches)) => self.intern_lanes(&batches)?,
                    Some(Err(error)) => Err(error),
                    None => Ok(()),
                };
            }
            if let Err(error) = checked {
                let positions = siblings.positions.iter();
                refused.extend(positions.map(|position| (position, error.clone())));
            }
        }
        Ok(refused)
    }

    /// Stores the siblings of accepted jobs, as far as their parents wait, or are flows that are open. Those that have their
    /// values from the cache have ended.
    pub fn spawn_siblings(&mut self, report: &Report, accepted: &Positions) -> Result<Vec<Ended>> {
        let mut ended = Vec::new();
        if report.siblings.is_empty() {
            return Ok(ended);
        }
        let Some(parentage) = parentage(self.connection, report.batch)? else {
            return Ok(ended);
        };
        let parts = match parentage.is_flow {
            true => self.parts_waiting_for(report.batch)?,
            false => Vec::new(),
        };
        let blocked = self.blocked_of(parentage.batch)?.into_iter();
        let waiting: Vec<Blocked> = blocked
            .filter(|blocked| match parentage.is_flow {
                true => parts.contains(&blocked.part),
                false => blocked.family == Some(parentage.family),
            })
            .collect();
        let parents = match parentage.is_flow {
            true => self.open_of(parentage.batch)?,
            false => waiting
                .iter()
                .fold(Positions::new(), |all, blocked| all.union(&blocked.positions)),
        };
        let accepted = report.siblings.iter().filter_map(|all| all.select(accepted));
        let by_parent = accepted.filter_map(|siblings| parentage.by_parent(&siblings)?.select(&parents));
        for siblings in by_parent.collect::<Vec<_>>() {
            ended.extend(self.add_to_family(&parentage, &waiting, &siblings)?);
        }
        Ok(ended)
    }

    /// The parts of the batch of their parents that wait for children.
    fn parts_waiting_for(&self, children: BatchId) -> Result<Vec<u32>> {
        self.rows(
            "SELECT part FROM edge WHERE prerequisite_id = ?1 AND on_failure = ?2",
            params![children.0, CHILDREN],
            |row| row.get(0),
        )
    }

    fn add_to_family(
        &mut self,
        parentage: &Parentage,
        waiting: &[Blocked],
        siblings: &Siblings,
    ) -> Result<Vec<Ended>> {
        let inheritance = self.inheritance_of(parentage.batch)?;
        let place = parentage.place_of_siblings(self.now);
        let batches: Vec<NewBatch> =
            inheritance.batches(self.now, place, &siblings.positions, &siblings.children)?;
        let (mut ids, mut ended): (Vec<BatchId>, Vec<Ended>) = (Vec::new(), Vec::new());
        for (batch, children) in batches.iter().zip(&siblings.children) {
            let id = self.insert_batch(batch, &batch.payloads, None, &ids, &[])?;
            ids.push(id);
            self.execute(
                "INSERT INTO child_batch (batch_id, parent_id, family, shares, parents) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![
                    id.0,
                    parentage.batch.0,
                    parentage.family,
                    serde_json::to_string(&children.shares)?,
                    siblings.positions.to_string(),
                ],
            )?;
            for blocked in waiting {
                if !blocked.positions.is_disjoint(&siblings.positions) {
                    self.wait_for_children(blocked, id)?;
                }
            }
            if batch.options.cached_ms.is_some() {
                ended.push(self.ended_at_once(id)?);
            }
        }
        Ok(ended)
    }
}
