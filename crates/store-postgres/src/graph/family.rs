//! Parents and children.
//!
//! Jobs of a report that suspends them become a part of their batch in `blocked`, all together; what they remember, and
//! which children are whose, stands packed beside them. As children end, `gristmill.settle` makes those of the parents that
//! have none open any more a slice that finalizes. What flows have beyond that is in `flow`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gristmill_model::limits::GENERATIONS_MAX;
use gristmill_model::{
    BatchId, ChildBatch, JobError, JobId, NewBatch, PackedArray, Positions, Report, Suspended, Tag,
    Timestamp, Wake,
};
use gristmill_store::rules::ending::FailedAttempt;
use gristmill_store::rules::family::flow::{place_of_flow, place_of_steps};
use gristmill_store::rules::family::spawning::{Inheritance, Parentage, cannot_spawn};
use gristmill_store::rules::family::{Brood, Family, latest};
use gristmill_store::rules::lanes::{LaneName, group};
use gristmill_store::rules::open::{Blocked, Held};
use gristmill_store::{Children, StoreError, Suspension};
use tokio_postgres::Row;

use crate::database::Database;
use crate::database::columns::number;
use crate::database::handle_cache::BatchHead;
use crate::database::rows::NewSlice;
use crate::database::snapshot::Snapshot;
use crate::database::transaction::Transaction;
use crate::failure::{Failure, Result};
use crate::graph::dependency::Ended;
use crate::multirange::Multirange;
use crate::submit::{Circumstances, check_texts};

/// The batches and tags of spawning jobs, read before their reports are committed. They never change.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    /// What children inherit, by the batch of their parents.
    inheritances: HashMap<BatchId, Inheritance>,
    /// The parents of children that spawned siblings, by the batch of the children.
    parentages: HashMap<BatchId, Parentage>,
}

impl Origins {
    pub fn inheritance(&self, batch: BatchId) -> Result<&Inheritance> {
        let found = self.inheritances.get(&batch);
        found.ok_or_else(|| Failure::Damaged(format!("batch {batch} has leases or children and no row")))
    }

    pub fn parentage(&self, batch: BatchId) -> Option<&Parentage> {
        self.parentages.get(&batch)
    }
}

/// Jobs that ended, or began anew, after they ran as a family.
pub(crate) type EndedParents = Vec<(BatchId, i64, Positions)>;

/// Accepted jobs that wait for new children.
#[derive(Debug)]
pub(crate) struct Spawning {
    pub held: Held,
    pub head: Arc<BatchHead>,
    pub suspended: Suspended,
    /// The batches of children.
    batches: Vec<NewBatch>,
}

impl Database {
    /// Reads the batches and tags of the jobs of these reports that spawn others. They never change, so this comes
    /// before the commit. Sends nothing if no job spawned any.
    pub async fn origins(&self, reports: &[Report]) -> std::result::Result<Origins, StoreError> {
        let of = |spawns: fn(&Report) -> bool| {
            let spawning = reports.iter().filter(|report| spawns(report));
            spawning.map(|report| report.batch.0).collect::<Vec<i64>>()
        };
        let parents = of(|report| !report.suspended.is_empty());
        let children = of(|report| !report.siblings.is_empty());
        if parents.is_empty() && children.is_empty() {
            return Ok(Origins::default());
        }
        self.read(|snapshot| {
            let (mut parents, children) = (parents.clone(), &children);
            async move {
                let parentages = if children.is_empty() {
                    HashMap::new()
                } else {
                    parentages(&snapshot, children).await?
                };
                parents.extend(parentages.values().map(|parentage| parentage.batch.0));
                Ok(Origins {
                    inheritances: inheritances(&snapshot, &parents).await?,
                    parentages,
                })
            }
        })
        .await
    }

    /// Makes the lanes that the children of these reports need. If that is refused, the jobs of the reports get the
    /// error when they are committed.
    pub async fn prepare_children(
        &self,
        reports: &[Report],
        origins: &Origins,
    ) -> std::result::Result<(), StoreError> {
        let now = self.now();
        for batch in reports.iter().flat_map(|report| batches_of(now, report, origins)) {
            match self.prepare(std::slice::from_ref(&batch)).await {
                Ok(_) | Err(StoreError::InvalidInput(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The batches of children of a report, as far as they can be.
fn batches_of(now: Timestamp, report: &Report, origins: &Origins) -> Vec<NewBatch> {
    let mut batches = Vec::new();
    if let Some(inheritance) = origins.inheritances.get(&report.batch) {
        for suspended in &report.suspended {
            let children = inheritance.batches(now, None, &suspended.positions, &suspended.children);
            batches.extend(children.unwrap_or_default());
        }
    }
    let Some(parentage) = origins.parentage(report.batch) else {
        return batches;
    };
    let by_parent = report.siblings.iter();
    for siblings in by_parent.filter_map(|siblings| parentage.by_parent(siblings)) {
        let inheritance = origins.inheritances.get(&parentage.batch);
        let children = inheritance
            .map(|inheritance| inheritance.batches(now, None, &siblings.positions, &siblings.children));
        batches.extend(children.and_then(std::result::Result::ok).unwrap_or_default());
    }
    batches
}

/// The parents of the children in these batches, if any.
async fn parentages(snapshot: &Snapshot, children: &[i64]) -> Result<HashMap<BatchId, Parentage>> {
    let rows = snapshot
        .query(
            "SELECT c.batch_id, c.parent_id, c.family, coalesce(c.parents, s.parents), c.bounds, \
             (SELECT count(*) FROM gristmill.child_batch o WHERE o.parent_id = c.parent_id AND o.family = c.family), \
             s.flow IS NOT NULL, b.run_at FROM gristmill.child_batch c \
             JOIN gristmill.suspension s ON s.batch_id = c.parent_id AND s.family = c.family \
             JOIN gristmill.batch b ON b.id = c.batch_id WHERE c.batch_id = ANY ($1)",
            &[&children],
        )
        .await?;
    let mut all = HashMap::new();
    for row in &rows {
        let children = BatchId(row.try_get(0)?);
        let bounds = unsigned(row.try_get(4)?).collect();
        let parentage = Parentage {
            batch: BatchId(row.try_get(1)?),
            family: row.try_get(2)?,
            is_flow: row.try_get(6)?,
            run_at: Timestamp(row.try_get(7)?),
            broods_count: usize::try_from(row.try_get::<_, i64>(5)?).unwrap_or(usize::MAX),
            brood: Brood::of_bounds(children, read_parents(row, 3)?, bounds),
        };
        all.insert(children, parentage);
    }
    Ok(all)
}

async fn inheritances(snapshot: &Snapshot, batches: &[i64]) -> Result<HashMap<BatchId, Inheritance>> {
    let lanes = snapshot
        .query(
            "SELECT b.id, l.queue, l.job_group, (WITH RECURSIVE ancestor (id, generation) AS ( \
             SELECT c.parent_id, 1 FROM gristmill.child_batch c WHERE c.batch_id = b.id UNION ALL \
             SELECT c.parent_id, a.generation + 1 FROM ancestor a \
             JOIN gristmill.child_batch c ON c.batch_id = a.id WHERE a.generation < $2) \
             SELECT coalesce(max(generation), 0) FROM ancestor) \
             FROM gristmill.batch b JOIN gristmill.lane l ON l.id = b.lane_id WHERE b.id = ANY ($1)",
            &[&batches, &GENERATIONS_MAX.cast_signed()],
        )
        .await?;
    let tags = snapshot
        .query(
            "SELECT batch_id, name, value, positions FROM gristmill.tag WHERE batch_id = ANY ($1) \
             ORDER BY batch_id, name, value",
            &[&batches],
        )
        .await?;
    let mut all = HashMap::new();
    for row in &lanes {
        let inheritance = Inheritance {
            queue: row.try_get::<_, &str>(1)?.into(),
            group: group(row.try_get::<_, &str>(2)?.into()),
            tags: Vec::new(),
            generation: number(row, 3)?,
        };
        all.insert(BatchId(row.try_get(0)?), inheritance);
    }
    for row in &tags {
        if let Some(inheritance) = all.get_mut(&BatchId(row.try_get(0)?)) {
            inheritance.tags.push(Tag {
                positions: row
                    .try_get::<_, Option<Multirange>>(3)?
                    .map(|positions| positions.0),
                ..Tag::all(row.try_get::<_, String>(1)?, row.try_get::<_, String>(2)?)
            });
        }
    }
    Ok(all)
}

impl Transaction {
    /// The children to store for accepted jobs of one claimed slice; or the error of the jobs.
    pub fn spawning(
        &self,
        held: &Held,
        head: &Arc<BatchHead>,
        suspended: Suspended,
        origins: &Origins,
    ) -> Result<std::result::Result<Spawning, (Positions, JobError)>> {
        let inheritance = origins.inheritance(held.batch)?;
        let run_at = place_of_flow(&suspended, held.run_at, self.now);
        let place = place_of_steps(&suspended, run_at, self.now);
        let prepared = self.prepared(inheritance, place, &suspended.positions, &suspended.children);
        Ok(match prepared {
            Ok(batches) => Ok(Spawning {
                held: held.clone(),
                head: head.clone(),
                suspended,
                batches,
            }),
            Err(error) => Err((suspended.positions, cannot_spawn(&error))),
        })
    }

    /// The batches of children to store. `place` is as in [`Inheritance::batches`].
    pub fn prepared(
        &self,
        inheritance: &Inheritance,
        place: Option<Timestamp>,
        parents: &Positions,
        children: &[ChildBatch],
    ) -> std::result::Result<Vec<NewBatch>, StoreError> {
        let batches = inheritance.batches(self.now, place, parents, children)?;
        for batch in &batches {
            check_texts(batch)?;
            let (name, lanes) = (LaneName::of(batch), self.cache.lanes());
            if lanes.find(name).is_none() {
                lanes.check_room(name)?;
            }
        }
        Ok(batches)
    }

    /// Stores the children, and makes their parents wait. Children with cached values end at once.
    /// Returns the flows that begin anew, with their new families.
    pub async fn suspend(&mut self, all: Vec<Spawning>, ended: &mut Ended) -> Result<EndedParents> {
        let mut anew = Vec::new();
        if all.is_empty() {
            return Ok(anew);
        }
        let batches = all.iter().map(|spawning| spawning.batches.len()).sum();
        let mut ids = self.next_batch_ids(batches).await?.into_iter();
        let families = i32::try_from(all.len()).unwrap_or(i32::MAX);
        let families = self
            .query(
                "SELECT nextval('gristmill.family'), nextval('gristmill.blocked_part')::integer \
                 FROM generate_series(1, $1::integer)",
                &[&families],
            )
            .await?;
        assert_eq!(families.len(), all.len(), "each suspension has a family");
        let mut awaiting = Vec::new();
        for (spawning, row) in all.into_iter().zip(&families) {
            let is_anew = spawning.suspended.begins_anew();
            if is_anew {
                let positions = spawning.suspended.positions.clone();
                anew.push((spawning.held.batch, row.try_get(0)?, positions));
            }
            let waiting = self
                .waiting_after(spawning.held.batch, &spawning.suspended)
                .await?;
            // Before it waits, so that it does not wake for these.
            self.give_up(waiting.given_up).await?;
            self.give_back_events(spawning.held.batch, &waiting.unread, is_anew, ended)
                .await?;
            let blocked = Blocked {
                batch: spawning.held.batch,
                part: number(row, 1)?,
                attempt: spawning.held.attempt,
                rescues: spawning.held.rescues,
                expires_at: None,
                rank: spawning.held.rank,
                run_at: Some(place_of_flow(&spawning.suspended, spawning.held.run_at, self.now)),
                pauses: spawning.held.pauses.clone(),
                family: row.try_get(0)?,
                positions: waiting.positions,
            };
            let new = self
                .suspend_one(&spawning, &blocked, row.try_get(0)?, &mut ids, ended)
                .await?;
            for earlier in waiting.earlier {
                self.writes
                    .wait_for_children(blocked.batch, blocked.part, earlier);
            }
            awaiting.extend(spawning.awaiting_events(&new));
        }
        assert!(ids.next().is_none(), "each id of a batch is used");
        self.deliver_kept(&awaiting, ended).await?;
        Ok(anew)
    }

    /// Returns the batches of children.
    async fn suspend_one(
        &mut self,
        spawning: &Spawning,
        blocked: &Blocked,
        family: i64,
        ids: &mut impl Iterator<Item = BatchId>,
        ended: &mut Ended,
    ) -> Result<Vec<BatchId>> {
        let Spawning {
            held,
            head,
            suspended,
            batches,
        } = spawning;
        self.writes.insert_suspension(held.batch, family, suspended);
        self.writes.block(blocked, &[]);
        let mut earlier = Vec::with_capacity(batches.len());
        for (batch, children) in batches.iter().zip(&suspended.children) {
            let id = ids
                .next()
                .ok_or_else(|| Failure::Damaged("the sequence of batches gave too few ids".to_owned()))?;
            let circumstances = Circumstances {
                earlier: &earlier,
                is_awaited: true,
                hits: self.hits(batch).await?,
                ..Circumstances::default()
            };
            let lane = self.lane(LaneName::of(batch))?;
            self.writes.submit(self.now, id, lane, batch, circumstances)?;
            self.writes
                .insert_child_batch(id, (held.batch, family), None, children);
            if !blocked.positions.is_empty() {
                self.writes.wait_for_children(held.batch, blocked.part, id);
            }
            if batch.options.cached_ms.is_some() {
                ended.add(id, &self.writes.ended_of(id));
            }
            earlier.push(id);
        }
        // A job without children does not wait. Nor does a flow with children that have ended while it ran.
        assert_eq!(earlier.len(), suspended.children.len(), "all are stored");
        assert!(suspended.positions.contains_all(&blocked.positions));
        let childless = suspended.positions.difference(&blocked.positions);
        let (attempt, rescues) = match suspended.begins_anew() {
            true => (1, 0),
            false => (held.attempt, held.rescues),
        };
        let slice = NewSlice {
            positions: &childless,
            rank: held.rank.unwrap_or(head.rank()),
            run_at: place_of_flow(suspended, held.run_at, self.now),
            attempt,
            rescues,
            expires_at: None,
            is_awaited: held.is_awaited,
            family: Some(family),
        };
        self.writes.bring_back(self.now, held, head, slice);
        Ok(earlier)
    }

    /// Fails jobs whose children cannot be stored.
    pub fn fail_spawning(
        &mut self,
        held: &Held,
        positions: &Positions,
        error: &JobError,
        worker: Option<&str>,
    ) -> Result<()> {
        for position in positions.iter() {
            let failed = FailedAttempt {
                worker,
                ..FailedAttempt::unreported(position, held.lease, held.attempt, error)
            };
            self.writes.insert_failure(self.now, held.batch, &failed)?;
        }
        Ok(())
    }
}

/// Reads a column of positions that is an array.
pub(crate) fn read_parents(row: &Row, column: usize) -> Result<Positions> {
    Ok(unsigned(row.try_get(column)?).collect())
}

pub(crate) fn unsigned(numbers: Vec<i32>) -> impl Iterator<Item = u32> {
    numbers.into_iter().map(i32::unsigned_abs)
}

/// The jobs of a batch that were suspended together, and their children. The latest first.
pub(crate) async fn families(snapshot: &Snapshot, batch: BatchId) -> Result<Vec<(i64, Family)>> {
    let rows = snapshot
        .query(
            "SELECT s.family, s.parents, s.on_failure, s.flow FROM gristmill.suspension s \
             WHERE s.batch_id = $1 ORDER BY s.family DESC",
            &[&batch.0],
        )
        .await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let broods = snapshot
        .query(
            "SELECT c.family, c.batch_id, c.bounds, c.parents, c.together FROM gristmill.child_batch c \
             WHERE c.parent_id = $1 ORDER BY c.batch_id",
            &[&batch.0],
        )
        .await?;
    read_families(&rows, &broods)
}

/// Reads families from rows of number, parents, policy and wake, with their batches of children, from rows of number, batch, bounds,
/// parents and whether they are together.
fn read_families(rows: &[Row], broods: &[Row]) -> Result<Vec<(i64, Family)>> {
    let mut by_family: HashMap<i64, Vec<&Row>> = HashMap::new();
    for brood in broods {
        by_family.entry(brood.try_get(0)?).or_default().push(brood);
    }
    let mut families = Vec::with_capacity(rows.len());
    for row in rows {
        let number: i64 = row.try_get(0)?;
        let on_failure: &str = row.try_get(2)?;
        let mut family = Family {
            parents: read_parents(row, 1)?,
            on_failure: on_failure
                .parse()
                .map_err(|error| Failure::Damaged(format!("a suspension: {error}")))?,
            flow: read_wake(row, 3)?,
            broods: Vec::new(),
        };
        for brood in by_family.remove(&number).unwrap_or_default() {
            let own: Option<Vec<i32>> = brood.try_get(3)?;
            let parents = own.map_or_else(|| family.parents.clone(), |own| unsigned(own).collect());
            let bounds = unsigned(brood.try_get(2)?).collect();
            let together = brood.try_get(4)?;
            let brood = Brood::of_bounds(BatchId(brood.try_get(1)?), parents, bounds);
            family.broods.push(brood.together(together));
        }
        families.push((number, family));
    }
    Ok(families)
}

/// The parent of a child, and its suspension by which it spawned the child.
pub(crate) async fn suspension_of(snapshot: &Snapshot, child: JobId) -> Result<Option<(JobId, Suspension)>> {
    let children = [&child.batch.0 as &(dyn tokio_postgres::types::ToSql + Sync)];
    let (rows, broods) = tokio::try_join!(
        snapshot.query(
            "SELECT s.family, s.parents, s.on_failure, s.flow, s.memos, s.batch_id FROM gristmill.child_batch c \
             JOIN gristmill.suspension s ON s.batch_id = c.parent_id AND s.family = c.family WHERE c.batch_id = $1",
            &children,
        ),
        snapshot.query(
            "SELECT o.family, o.batch_id, o.bounds, o.parents, o.together FROM gristmill.child_batch c \
             JOIN gristmill.child_batch o ON o.parent_id = c.parent_id AND o.family = c.family \
             WHERE c.batch_id = $1 ORDER BY o.batch_id",
            &children,
        ),
    )?;
    let (Some(row), Some((_, family))) = (rows.first(), read_families(&rows, &broods)?.pop()) else {
        return Ok(None);
    };
    let memos = PackedArray::from_stored(row.try_get::<_, &str>(4)?);
    let batch = BatchId(row.try_get(5)?);
    let found = family.suspension_of(&memos, child);
    Ok(found.map(|(position, suspension)| (JobId { batch, position }, suspension)))
}

/// The children that jobs of a batch spawned last. Of flows, all children.
pub(crate) async fn children(
    snapshot: &Snapshot,
    batch: BatchId,
    parents: &Positions,
) -> Result<Vec<Children>> {
    let families = families(snapshot, batch).await?;
    let mut all: Vec<Children> = Vec::new();
    let latest = latest(
        families.iter().map(|(_, family)| (family, &family.parents)),
        parents,
    );
    for (family, own) in latest {
        match family.flow {
            Some(_) => all.extend(children_of_steps(families.iter().map(|(_, family)| family), &own)),
            None => all.extend(family.children_of_each(&own)),
        }
    }
    all.sort_by_key(|children| children.parent);
    Ok(all)
}

/// The parent of a job that another job spawned.
pub(crate) async fn parent_of(snapshot: &Snapshot, child: JobId) -> Result<Option<JobId>> {
    let row = snapshot
        .query_opt(
            "SELECT c.parent_id, (coalesce(c.parents, s.parents))[width_bucket($2::integer, c.bounds)] \
             FROM gristmill.child_batch c JOIN gristmill.suspension s ON s.batch_id = c.parent_id AND s.family = c.family \
             WHERE c.batch_id = $1",
            &[&child.batch.0, &child.position.cast_signed()],
        )
        .await?;
    match row {
        Some(row) => Ok(Some(JobId {
            batch: BatchId(row.try_get(0)?),
            position: number(&row, 1)?,
        })),
        None => Ok(None),
    }
}

/// A column that says when a flow runs again.
pub(crate) fn read_wake(row: &Row, column: usize) -> Result<Option<Wake>> {
    let text: Option<&str> = row.try_get(column)?;
    let wake = text.map(str::parse).transpose();
    wake.map_err(|error| Failure::Damaged(format!("a suspension: {error}")))
}

/// The children of all steps that these flows of a batch have taken. `families` are those of the batch, the latest first.
fn children_of_steps<'f>(
    families: impl DoubleEndedIterator<Item = &'f Family>,
    flows: &Positions,
) -> Vec<Children> {
    let mut all: BTreeMap<u32, Children> = flows.iter().map(|flow| (flow, Children::of_flow(flow))).collect();
    for family in families.rev().filter(|family| family.flow.is_some()) {
        for children in family.children_of_each(flows) {
            if let Some(known) = all.get_mut(&children.parent) {
                known.add(children);
            }
        }
    }
    all.into_values().collect()
}
