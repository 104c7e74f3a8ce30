//! Siblings: further children of their parents that children spawn.
//!
//! They are stored as one more batch of the family, before `gristmill.settle` handles the jobs that the report ended:
//! so a parent never finalizes without them.

use std::collections::BTreeMap;

use gristmill_model::{BatchId, Positions, Report, Siblings};
use gristmill_store::rules::family::spawning::{Parentage, cannot_spawn, check_siblings};
use gristmill_store::rules::lanes::LaneName;
use gristmill_store::rules::report_write::FailedExtras;

use crate::database::columns::number;
use crate::database::transaction::Transaction;
use crate::failure::{Failure, Result};
use crate::graph::dependency::Ended;
use crate::graph::family::Origins;
use crate::multirange::Multirange;
use crate::submit::Circumstances;

/// The siblings that accepted jobs spawned, by the spawning jobs.
#[derive(Debug)]
pub(crate) struct Spread<'c> {
    pub parentage: &'c Parentage,
    pub siblings: Siblings,
}

/// The parents of the children in a batch.
#[derive(Debug, Default)]
struct Parents {
    /// The parts of their batch that wait.
    parts: Vec<(u32, Positions)>,
    /// Those that get siblings: all that wait; of flows, all that are open.
    positions: Positions,
}

/// Parts that wait for the children in the batches `$1`: for those of flows by their edges, since they may have taken a step
/// since; for others by their family, since parents that are paused before they finalize have no edges.
const WAITING: &str = "SELECT c.batch_id, b.part, b.positions FROM gristmill.child_batch c \
     JOIN gristmill.suspension s ON s.batch_id = c.parent_id AND s.family = c.family \
     JOIN gristmill.blocked b ON b.batch_id = c.parent_id AND CASE WHEN s.flow IS NULL THEN b.family = c.family \
     ELSE EXISTS (SELECT FROM gristmill.edge e WHERE e.prerequisite_id = c.batch_id AND e.batch_id = b.batch_id \
     AND e.part = b.part AND e.on_failure = 'children') END WHERE c.batch_id = ANY ($1)";

/// The open jobs of the batches `$1`.
const OPEN: &str = "SELECT s.batch_id, s.positions FROM gristmill.slice s WHERE s.batch_id = ANY ($1) \
     UNION ALL SELECT h.batch_id, h.positions FROM gristmill.held h WHERE h.batch_id = ANY ($1) \
     UNION ALL SELECT b.batch_id, b.positions FROM gristmill.blocked b WHERE b.batch_id = ANY ($1)";

impl Transaction {
    /// The jobs of a report whose siblings cannot be stored, with the reasons.
    pub fn refused_siblings(&self, report: &Report, origins: &Origins) -> Result<FailedExtras> {
        let mut refused = FailedExtras::new();
        for siblings in &report.siblings {
            let parentage = origins.parentage(report.batch);
            let mut checked = check_siblings(report.batch, siblings, parentage);
            if let (Ok(()), Some(parentage)) = (&checked, parentage)
                && let Some(siblings) = parentage.by_parent(siblings)
            {
                let inheritance = origins.inheritance(parentage.batch)?;
                let place = parentage.place_of_siblings(self.now);
                let prepared = self.prepared(inheritance, place, &siblings.positions, &siblings.children);
                checked = prepared.map(drop).map_err(|error| cannot_spawn(&error));
            }
            if let Err(error) = checked {
                let positions = siblings.positions.iter();
                refused.extend(positions.map(|position| (position, error.clone())));
            }
        }
        Ok(refused)
    }

    /// Stores siblings, as far as their parents wait, or are flows that are open. Those that have their values from the cache have ended.
    pub async fn spread(&mut self, all: Vec<Spread<'_>>, origins: &Origins, ended: &mut Ended) -> Result<()> {
        if all.is_empty() {
            return Ok(());
        }
        self.query("SELECT gristmill.lock_parents($1)", &[&ended.batches()])
            .await?;
        let parents = self.parents_of(&all).await?;
        for Spread { parentage, siblings } in all {
            let Some(parents) = parents.get(&parentage.brood.batch) else {
                continue;
            };
            if let Some(siblings) = siblings.select(&parents.positions) {
                self.add_to_family(parentage, &siblings, &parents.parts, origins, ended)
                    .await?;
            }
        }
        Ok(())
    }

    /// By the batch of their children.
    async fn parents_of(&self, all: &[Spread<'_>]) -> Result<BTreeMap<BatchId, Parents>> {
        let children: Vec<i64> = all.iter().map(|spread| spread.parentage.brood.batch.0).collect();
        let mut parents: BTreeMap<BatchId, Parents> = BTreeMap::new();
        for row in &self.query(WAITING, &[&children]).await? {
            let own = parents.entry(BatchId(row.try_get(0)?)).or_default();
            let positions = row.try_get::<_, Multirange>(2)?.0;
            own.positions = own.positions.union(&positions);
            own.parts.push((number(row, 1)?, positions));
        }
        let flows = all.iter().filter(|spread| spread.parentage.is_flow);
        let flows: Vec<i64> = flows.map(|spread| spread.parentage.batch.0).collect();
        if flows.is_empty() {
            return Ok(parents);
        }
        for row in &self.query(OPEN, &[&flows]).await? {
            let (batch, open) = (BatchId(row.try_get(0)?), row.try_get::<_, Multirange>(1)?.0);
            for spread in all {
                let Parentage { is_flow, brood, .. } = spread.parentage;
                if *is_flow && spread.parentage.batch == batch {
                    let own = parents.entry(brood.batch).or_default();
                    own.positions = own.positions.union(&open);
                }
            }
        }
        Ok(parents)
    }

    async fn add_to_family(
        &mut self,
        parentage: &Parentage,
        siblings: &Siblings,
        parts: &[(u32, Positions)],
        origins: &Origins,
        ended: &mut Ended,
    ) -> Result<()> {
        let inheritance = origins.inheritance(parentage.batch)?;
        let place = parentage.place_of_siblings(self.now);
        let batches = self.prepared(inheritance, place, &siblings.positions, &siblings.children)?;
        let ids = self.next_batch_ids(batches.len()).await?;
        for (number, (batch, children)) in batches.iter().zip(&siblings.children).enumerate() {
            let id = *ids
                .get(number)
                .ok_or_else(|| Failure::Damaged("the sequence of batches gave too few ids".to_owned()))?;
            let circumstances = Circumstances {
                earlier: &ids[..number],
                is_awaited: true,
                hits: self.hits(batch).await?,
                ..Circumstances::default()
            };
            let lane = self.lane(LaneName::of(batch))?;
            self.writes.submit(self.now, id, lane, batch, circumstances)?;
            let family = (parentage.batch, parentage.family);
            self.writes
                .insert_child_batch(id, family, Some(&siblings.positions), children);
            for (part, positions) in parts {
                if !positions.is_disjoint(&siblings.positions) {
                    self.writes.wait_for_children(parentage.batch, *part, id);
                }
            }
            if batch.options.cached_ms.is_some() {
                ended.add(id, &self.writes.ended_of(id));
            }
        }
        Ok(())
    }
}
