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

/// Waiting parts of batches of parents, by batch and family.
type Waiting = BTreeMap<(BatchId, i64), Vec<(u32, Positions)>>;

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
                let prepared = self.prepared(inheritance, &siblings.positions, &siblings.children);
                checked = prepared.map(drop).map_err(|error| cannot_spawn(&error));
            }
            if let Err(error) = checked {
                let positions = siblings.positions.iter();
                refused.extend(positions.map(|position| (position, error.clone())));
            }
        }
        Ok(refused)
    }

    /// Stores siblings, as far as their parents wait. Siblings with cached values end at once.
    pub async fn spread(&mut self, all: Vec<Spread<'_>>, origins: &Origins, ended: &mut Ended) -> Result<()> {
        if all.is_empty() {
            return Ok(());
        }
        self.query("SELECT gristmill.lock_parents($1)", &[&ended.batches()])
            .await?;
        let waiting = self.waiting_parents(&all).await?;
        for Spread { parentage, siblings } in all {
            let Some(parts) = waiting.get(&(parentage.batch, parentage.family)) else {
                continue;
            };
            let positions = parts
                .iter()
                .fold(Positions::new(), |all, (_, part)| all.union(part));
            if let Some(siblings) = siblings.select(&positions) {
                self.add_to_family(parentage, &siblings, parts, origins, ended)
                    .await?;
            }
        }
        Ok(())
    }

    async fn waiting_parents(&self, all: &[Spread<'_>]) -> Result<Waiting> {
        let keys = all
            .iter()
            .map(|spread| (spread.parentage.batch.0, spread.parentage.family));
        let (batches, families): (Vec<i64>, Vec<i64>) = keys.unzip();
        let rows = self
            .query(
                "SELECT b.batch_id, b.family, b.part, b.positions FROM gristmill.blocked b \
                 JOIN (SELECT DISTINCT * FROM unnest($1::bigint[], $2::bigint[]) k (batch_id, family)) k \
                 USING (batch_id, family)",
                &[&batches, &families],
            )
            .await?;
        let mut waiting = Waiting::new();
        for row in &rows {
            let key = (BatchId(row.try_get(0)?), row.try_get(1)?);
            let part = (number(row, 2)?, row.try_get::<_, Multirange>(3)?.0);
            waiting.entry(key).or_default().push(part);
        }
        Ok(waiting)
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
        let batches = self.prepared(inheritance, &siblings.positions, &siblings.children)?;
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
                if !positions.intersection(&siblings.positions).is_empty() {
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
