//! Parents and children.
//!
//! Jobs that a report suspends become a part of their batch in `blocked`, all together. Their memos, and the owners of
//! their children, are stored packed beside them. As children end, the parents without open children become a
//! finalizing slice.

use std::collections::BTreeMap;

use gristmill_model::limits::GENERATIONS_MAX;
use gristmill_model::{
    BatchId, ChildBatch, JobError, JobId, JobState, NewBatch, OnChildFailure, PackedArray, Positions,
    Suspended, Timestamp, Wake,
};
use gristmill_store::query::Narrowed;
use gristmill_store::rules::ending::{Ending, FailedAttempt};
use gristmill_store::rules::family::flow::{place_of_flow, place_of_steps};
use gristmill_store::rules::family::spawning::{Inheritance, Parentage, cannot_spawn};
use gristmill_store::rules::family::{Brood, CHILDREN, Family, child_failed, latest};
use gristmill_store::rules::lanes::{Lane, LaneName, group};
use gristmill_store::rules::open::{Blocked, Held};
use gristmill_store::{BatchPositions, Children, Suspension};
use rusqlite::{Connection, params};

use crate::claim::slice::NewSlice;
use crate::columns::read_positions;
use crate::failure::{Failure, Result};
use crate::graph::dependency::{Ended, StoredEdge};
use crate::labels::tags_of_batch;
use crate::transaction::Transaction;

/// The next state of parents whose children have ended.
#[derive(Debug, Default)]
struct Verdict {
    /// The positions whose children have all ended.
    done: Positions,
    /// The positions with a failed child, and that child.
    failed: BTreeMap<u32, (JobId, JobState)>,
}

impl Transaction<'_> {
    /// Makes held jobs wait for new children. If the children cannot be stored, nothing is, and the jobs get the error.
    pub fn suspend(
        &mut self,
        held: &Held,
        suspended: &Suspended,
    ) -> Result<std::result::Result<(), JobError>> {
        let inheritance = self.inheritance_of(held.batch)?;
        let head = self.head(held.batch)?;
        let run_at = place_of_flow(suspended, held.run_at, self.now);
        let place = place_of_steps(suspended, run_at, self.now);
        let batches = inheritance.batches(self.now, place, &suspended.positions, &suspended.children);
        let batches = match batches {
            Ok(batches) => batches,
            Err(error) => return Ok(Err(cannot_spawn(&error))),
        };
        if let Err(error) = self.intern_lanes(&batches)? {
            return Ok(Err(error));
        }
        assert_eq!(
            suspended.memos.count(),
            suspended.positions.len(),
            "each suspended job has a memo"
        );
        let (number, is_anew) = (self.next_family(held.batch)?, suspended.begins_anew());
        let mut ended = Vec::new();
        let waiting = self.waiting_after(held.batch, suspended)?;
        // Before it waits, so that it does not wake for these.
        let given_up = self.cancel_descendants(waiting.given_up)?;
        self.settle(given_up)?;
        self.give_back_events(held.batch, &waiting.unread, is_anew, &mut ended)?;
        if is_anew {
            self.forget_steps(held.batch, &suspended.positions)?;
        }
        self.insert_suspension(held.batch, number, suspended)?;
        let blocked = Blocked {
            batch: held.batch,
            part: self.next_part(held.batch)?,
            attempt: held.attempt,
            rescues: held.rescues,
            expires_at: None,
            rank: held.rank,
            run_at: Some(run_at),
            pauses: held.pauses.clone(),
            family: Some(number),
            positions: waiting.positions,
        };
        self.block(&blocked, &[])?;
        for earlier in waiting.earlier {
            self.wait_for_children(&blocked, earlier)?;
        }
        let mut ids = Vec::with_capacity(batches.len());
        for (batch, children) in batches.iter().zip(&suspended.children) {
            let id = self.insert_batch(batch, &batch.payloads, None, &ids, &[])?;
            assert_eq!(
                children.shares.iter().sum::<u32>(),
                batch.payloads.count(),
                "the shares of children add up to their batch"
            );
            ids.push(id);
            self.insert_child_batch(id, (held.batch, number), children)?;
            if !blocked.positions.is_empty() {
                self.wait_for_children(&blocked, id)?;
            }
            self.deliver_kept((held.batch, &suspended.positions), id, children, &mut ended)?;
            // Some may have their values from the cache.
            if batch.options.cached_ms.is_some() {
                ended.push(self.ended_at_once(id)?);
            }
        }
        // A job without children does not wait. Nor does a flow with children that have ended while it ran.
        let childless = suspended.positions.difference(&blocked.positions);
        let slice = NewSlice {
            run_at,
            expires_at: None,
            family: Some(number),
            ..NewSlice::back(held, &head, &childless)
        };
        let slice = match is_anew {
            true => NewSlice {
                attempt: 1,
                rescues: 0,
                ..slice
            },
            false => slice,
        };
        self.bring_back(held, &head, &slice)?;
        self.settle(ended)?;
        Ok(Ok(()))
    }

    /// Stores that a batch has the children of a family.
    fn insert_child_batch(&self, id: BatchId, family: (BatchId, i64), children: &ChildBatch) -> Result<()> {
        let shares = serde_json::to_string(&children.shares)?;
        self.execute(
            "INSERT INTO child_batch (batch_id, parent_id, family, shares, together) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![id.0, family.0.0, family.1, shares, children.together],
        )?;
        if children.is_step {
            self.execute("INSERT INTO step_batch (batch_id) VALUES (?1)", [id.0])?;
        }
        Ok(())
    }

    /// Stores what jobs that are suspended together remember.
    pub fn insert_suspension(&self, batch: BatchId, family: i64, suspended: &Suspended) -> Result<()> {
        self.execute(
            "INSERT INTO suspension (batch_id, family, on_failure, flow, positions, memos, cleanup_ms) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                batch.0,
                family,
                suspended.on_failure.name(),
                suspended.flow.map(Wake::name),
                suspended.positions.to_string(),
                suspended.memos.as_str(),
                suspended.cleanup_ms.map(u64::cast_signed),
            ],
        )?;
        Ok(())
    }

    /// Makes the lanes of children. If there are too many, the parents get the error.
    pub fn intern_lanes(&mut self, batches: &[NewBatch]) -> Result<std::result::Result<(), JobError>> {
        for batch in batches {
            match self.memory.intern_lane(self.connection, LaneName::of(batch)) {
                Ok(_) => {}
                Err(Failure::Refused(error)) => return Ok(Err(cannot_spawn(&error))),
                Err(failure) => return Err(failure),
            }
        }
        Ok(Ok(()))
    }

    /// Makes parents wait for a batch of children.
    pub fn wait_for_children(&self, parents: &Blocked, children: BatchId) -> Result<()> {
        self.execute(
            "INSERT INTO edge (prerequisite_id, first_position, batch_id, part, on_failure) VALUES (?1, 0, ?2, ?3, ?4)",
            params![children.0, parents.batch.0, parents.part, CHILDREN],
        )?;
        Ok(())
    }

    pub fn inheritance_of(&mut self, batch: BatchId) -> Result<Inheritance> {
        let head = self.head(batch)?;
        let lane = self.lane_of(batch, head.lane_id)?;
        Ok(Inheritance {
            queue: lane.queue,
            group: group(lane.group),
            tags: tags_of_batch(self.connection, batch)?,
            generation: self.generation_of(batch)?,
        })
    }

    /// The number of generations above a batch.
    fn generation_of(&self, batch: BatchId) -> Result<u32> {
        let found = self.row(
            "WITH RECURSIVE ancestor (id, generation) AS ( \
             SELECT parent_id, 1 FROM child_batch WHERE batch_id = ?1 UNION ALL \
             SELECT c.parent_id, a.generation + 1 FROM ancestor a JOIN child_batch c ON c.batch_id = a.id \
             WHERE a.generation < ?2) SELECT coalesce(max(generation), 0) FROM ancestor",
            params![batch.0, GENERATIONS_MAX],
            |row| row.get(0),
        )?;
        Ok(found.unwrap_or(0))
    }

    /// The lane of a batch.
    pub fn lane_of(&mut self, batch: BatchId, lane_id: i64) -> Result<Lane> {
        if let Some(lane) = self.memory.lanes.get(lane_id) {
            return Ok(lane.clone());
        }
        self.memory.refresh_lanes(self.connection)?;
        let lane = self.memory.lanes.get(lane_id).cloned();
        lane.ok_or_else(|| Failure::Damaged(format!("batch {batch} has no lane")))
    }

    /// A new number for a family of a batch.
    fn next_family(&self, batch: BatchId) -> Result<i64> {
        let next = self.row(
            "SELECT coalesce(max(family), 0) + 1 FROM suspension WHERE batch_id = ?1",
            [batch.0],
            |row| row.get(0),
        )?;
        Ok(next.unwrap_or(1))
    }

    /// Makes parents without open children finalize, unless they are paused.
    fn finalize(&mut self, blocked: &Blocked, positions: &Positions) -> Result<()> {
        if positions.is_empty() {
            return Ok(());
        }
        let done = Blocked {
            part: self.next_part(blocked.batch)?,
            positions: positions.clone(),
            ..blocked.clone()
        };
        self.block(&done, &[])?;
        match done.pauses {
            None => self.let_be_claimed(&done),
            Some(_) => Ok(()),
        }
    }

    /// Continues parents whose children have ended. Returns the jobs that end with them.
    pub fn settle_children(&mut self, edge: &StoredEdge, ended: &Ended) -> Result<Vec<Ended>> {
        let Some(blocked) = self.blocked_part(edge)? else {
            return Ok(Vec::new());
        };
        let family = match blocked.family {
            Some(number) => family(self.connection, edge.batch, number)?,
            None => None,
        };
        let Some(mut family) = family else {
            return Err(Failure::Damaged(format!(
                "batch {} waits for no children",
                edge.batch
            )));
        };
        if family.flow.is_some() {
            family.broods = self.awaited_broods(edge.batch, edge.part)?;
        }
        let verdict = self.judge(&family, &blocked, ended)?;
        let failed: Positions = verdict.failed.keys().copied().collect();
        let gone = verdict.done.union(&failed);
        if gone.is_empty() {
            return Ok(Vec::new());
        }
        self.shorten_blocked(&blocked, &blocked.positions.difference(&gone))?;
        self.finalize(&blocked, &verdict.done)?;
        if failed.is_empty() {
            return Ok(Vec::new());
        }
        self.end_parents(&blocked, &family, &failed, &verdict.failed)
    }

    /// Decides what happens to the waiting parents of ended children.
    fn judge(&self, family: &Family, blocked: &Blocked, ended: &Ended) -> Result<Verdict> {
        let mut verdict = Verdict::default();
        let Some(brood) = family.broods.iter().find(|brood| brood.batch == ended.batch) else {
            return Ok(verdict);
        };
        let is_known = !ended.endings.is_empty();
        let over = match is_known {
            true => crate::graph::dependency::union(&ended.endings),
            false => brood.all(),
        };
        let touched = brood.parents_of(&over).intersection(&blocked.positions);
        if family.flow == Some(Wake::Any) {
            // What ended long before is no news.
            if is_known && !touched.is_empty() {
                let open = match brood.together {
                    true => self.open_of(brood.batch)?,
                    false => Positions::new(),
                };
                verdict.done = brood
                    .parents_with_news(&over, &open)
                    .intersection(&blocked.positions);
            }
            return Ok(verdict);
        }
        if touched.is_empty() {
            return Ok(verdict);
        }
        if family.on_failure == OnChildFailure::Fail {
            for (child, state) in self.unsuccessful(ended)? {
                let parent = brood.parent_of(child);
                if let Some(parent) = parent.filter(|parent| touched.contains(*parent)) {
                    let child = JobId {
                        batch: ended.batch,
                        position: child,
                    };
                    verdict.failed.entry(parent).or_insert((child, state));
                }
            }
        }
        let mut open: BTreeMap<BatchId, Positions> = BTreeMap::new();
        let candidates = touched
            .iter()
            .filter(|parent| !verdict.failed.contains_key(parent));
        for children in family.children_of_each(&candidates.collect()) {
            let mut is_done = true;
            // The children that were spawned last are open the longest.
            for jobs in children.jobs.iter().rev() {
                let open = match open.entry(jobs.batch) {
                    std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                    std::collections::btree_map::Entry::Vacant(place) => {
                        place.insert(self.open_of(jobs.batch)?)
                    }
                };
                is_done = open.intersection(&jobs.positions).is_empty();
                if !is_done {
                    break;
                }
            }
            if is_done {
                verdict.done.insert(children.parent);
            }
        }
        Ok(verdict)
    }

    /// The children that ended without completing, by position ascending.
    fn unsuccessful(&self, ended: &Ended) -> Result<Vec<(u32, JobState)>> {
        let looked_up;
        let endings = if ended.endings.is_empty() {
            looked_up = self.endings_of(ended.batch)?.by_state;
            &looked_up
        } else {
            &ended.endings
        };
        let mut all: Vec<(u32, JobState)> = endings
            .iter()
            .filter(|(state, _)| *state != JobState::Completed)
            .flat_map(|(state, positions)| positions.iter().map(|position| (position, *state)))
            .collect();
        all.sort_unstable_by_key(|(position, _)| *position);
        Ok(all)
    }

    /// The open jobs of a batch.
    pub fn open_of(&self, batch: BatchId) -> Result<Positions> {
        let mut open = Positions::new();
        for slice in self.slices_of(batch)? {
            open = open.union(&slice.positions);
        }
        for held in self.held_of(batch)? {
            open = open.union(&held.positions);
        }
        for blocked in self.blocked_of(batch)? {
            open = open.union(&blocked.positions);
        }
        Ok(open)
    }

    /// Ends parents with a failed child, and their other children.
    fn end_parents(
        &mut self,
        blocked: &Blocked,
        family: &Family,
        failed: &Positions,
        causes: &BTreeMap<u32, (JobId, JobState)>,
    ) -> Result<Vec<Ended>> {
        let lease = self.next_lease_id()?.0;
        for (parent, (child, state)) in causes {
            let error = child_failed(*child, *state);
            self.insert_failure(
                blocked.batch,
                &FailedAttempt::unreported(*parent, lease, blocked.attempt, &error),
            )?;
        }
        self.end_jobs(
            blocked.batch,
            failed,
            &Ending::of(JobState::Dead, blocked.attempt),
        )?;
        let mut ended = self.cancel_descendants(family.children_of(failed))?;
        ended.push(Ended {
            batch: blocked.batch,
            endings: vec![(JobState::Dead, failed.clone())],
        });
        Ok(ended)
    }

    /// The children of jobs that waited for them, and no longer do.
    pub fn children_of_blocked(
        &self,
        blocked: &Blocked,
        positions: &Positions,
    ) -> Result<Vec<BatchPositions>> {
        let family = match blocked.family {
            Some(number) => family(self.connection, blocked.batch, number)?,
            None => None,
        };
        match family {
            Some(family) if family.flow.is_some() => {
                let children = children_of_steps(self.connection, blocked.batch, positions)?;
                Ok(children
                    .into_values()
                    .flat_map(|children| children.jobs)
                    .collect())
            }
            Some(family) => Ok(family.children_of(positions)),
            None => Ok(Vec::new()),
        }
    }

    /// Cancels these open jobs and their descendants.
    pub fn cancel_descendants(&mut self, mut left: Vec<BatchPositions>) -> Result<Vec<Ended>> {
        let mut ended = Vec::new();
        while let Some(jobs) = left.pop() {
            let cancelled = self.cancel_in(jobs.batch, Some(&jobs.positions), &[])?;
            left.extend(cancelled.children);
            if !cancelled.endings.is_empty() {
                ended.push(Ended {
                    batch: jobs.batch,
                    endings: cancelled.endings,
                });
            }
        }
        Ok(ended)
    }

    /// The memos of jobs of a family that are claimed to finalize. A flow gets the memos of all of its steps.
    pub fn memos_of(&self, batch: BatchId, family: i64, positions: &Positions) -> Result<PackedArray> {
        let found = self.row(
            "SELECT positions, memos, flow FROM suspension WHERE batch_id = ?1 AND family = ?2",
            params![batch.0, family],
            |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, Option<String>>(2)?,
                ))
            },
        )?;
        let (parents, memos, flow) = found
            .ok_or_else(|| Failure::Damaged(format!("family {family} of batch {batch} remembers nothing")))?;
        if flow.is_some() {
            return self.joined_memos(batch, family, positions);
        }
        let parents: Positions = parents.parse()?;
        let memos = PackedArray::from_stored(memos).select(&parents.indexes_of(positions));
        if memos.count() == positions.len() {
            Ok(memos)
        } else {
            Err(Failure::Damaged(format!(
                "family {family} of batch {batch} has {} memos for {} jobs",
                memos.count(),
                positions.len()
            )))
        }
    }
}

/// The jobs of a batch that were suspended together, and their children.
pub(crate) fn family(connection: &Connection, batch: BatchId, number: i64) -> Result<Option<Family>> {
    let mut statement = connection.prepare_cached(
        "SELECT positions, on_failure, flow FROM suspension WHERE batch_id = ?1 AND family = ?2",
    )?;
    let mut rows = statement.query(params![batch.0, number])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let mut family = read_family(row, 0)?;
    family.broods = broods(connection, batch, number, &family.parents)?;
    Ok(Some(family))
}

/// Reads a suspension without its children, from the columns `positions`, `on_failure` and `flow`.
fn read_family(row: &rusqlite::Row<'_>, first: usize) -> Result<Family> {
    let on_failure: String = row.get(first + 1)?;
    Ok(Family {
        on_failure: on_failure
            .parse()
            .map_err(|error| Failure::Damaged(format!("a suspension: {error}")))?,
        flow: read_wake(row, first + 2)?,
        broods: Vec::new(),
        parents: read_positions(row, first)?,
    })
}

/// The batches of children of a family, whose parents these are.
pub(crate) fn broods(
    connection: &Connection,
    batch: BatchId,
    number: i64,
    parents: &Positions,
) -> Result<Vec<Brood>> {
    let mut statement = connection.prepare_cached(
        "SELECT batch_id, shares, parents FROM child_batch WHERE parent_id = ?1 AND family = ?2 ORDER BY batch_id",
    )?;
    let mut rows = statement.query(params![batch.0, number])?;
    let mut broods = Vec::new();
    while let Some(row) = rows.next()? {
        let own: Option<String> = row.get(2)?;
        let own = own.map(|text| text.parse()).transpose()?;
        broods.push(brood(row, own.as_ref().unwrap_or(parents))?);
    }
    Ok(broods)
}

/// Reads a batch of children and the shares of its parents: the first two columns of a row.
pub(crate) fn brood(row: &rusqlite::Row<'_>, parents: &Positions) -> Result<Brood> {
    let shares: Vec<u32> = serde_json::from_str(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?)?;
    Ok(Brood::of_shares(BatchId(row.get(0)?), parents.clone(), &shares))
}

/// The children that jobs of a batch spawned last. Of flows, all children.
pub(crate) fn children(
    connection: &Connection,
    batch: BatchId,
    parents: &Positions,
) -> Result<Vec<Children>> {
    let mut statement = connection.prepare_cached(
        "SELECT family, positions FROM suspension WHERE batch_id = ?1 ORDER BY family DESC",
    )?;
    let mut rows = statement.query([batch.0])?;
    let mut families: Vec<(i64, Positions)> = Vec::new();
    while let Some(row) = rows.next()? {
        families.push((row.get(0)?, read_positions(row, 1)?));
    }
    let mut all = Vec::new();
    let numbered = families.iter().map(|(number, positions)| (*number, positions));
    for (number, own) in latest(numbered, parents) {
        match family(connection, batch, number)? {
            Some(family) if family.flow.is_some() => {
                all.extend(children_of_steps(connection, batch, &own)?.into_values());
            }
            Some(family) => all.extend(family.children_of_each(&own)),
            None => {}
        }
    }
    all.sort_by_key(|children: &Children| children.parent);
    Ok(all)
}

/// All children that a job ever spawned, by batch.
pub(crate) fn all_children(connection: &Connection, parent: JobId) -> Result<Narrowed> {
    let mut statement =
        connection.prepare_cached("SELECT family, positions FROM suspension WHERE batch_id = ?1")?;
    let mut rows = statement.query([parent.batch.0])?;
    let mut children = Narrowed::new();
    while let Some(row) = rows.next()? {
        if !read_positions(row, 1)?.contains(parent.position) {
            continue;
        }
        if let Some(family) = family(connection, parent.batch, row.get(0)?)? {
            let own = family.children_of(&Positions::from(parent.position..parent.position + 1));
            children.extend(own.into_iter().map(|jobs| (jobs.batch, jobs.positions)));
        }
    }
    Ok(children)
}

/// The parent of a job that another job spawned.
pub(crate) fn parent_of(connection: &Connection, child: JobId) -> Result<Option<JobId>> {
    let parentage = parentage(connection, child.batch)?;
    Ok(parentage.and_then(|parentage| {
        let position = parentage.brood.parent_of(child.position)?;
        Some(JobId {
            batch: parentage.batch,
            position,
        })
    }))
}

/// The parent of a child, and its suspension by which it spawned the child.
pub(crate) fn suspension_of(connection: &Connection, child: JobId) -> Result<Option<(JobId, Suspension)>> {
    let mut statement = connection.prepare_cached(
        "SELECT c.parent_id, c.family, s.memos FROM child_batch c \
         JOIN suspension s ON s.batch_id = c.parent_id AND s.family = c.family WHERE c.batch_id = ?1",
    )?;
    let mut rows = statement.query([child.batch.0])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let batch = BatchId(row.get(0)?);
    let memos = PackedArray::from_stored(row.get::<_, String>(2)?);
    let found = family(connection, batch, row.get(1)?)?;
    let found = found.and_then(|family| family.suspension_of(&memos, child));
    Ok(found.map(|(position, suspension)| (JobId { batch, position }, suspension)))
}

/// The parents of the children in a batch, if it has children.
pub(crate) fn parentage(connection: &Connection, children: BatchId) -> Result<Option<Parentage>> {
    let mut statement = connection.prepare_cached(
        "SELECT c.parent_id, c.family, c.shares, coalesce(c.parents, s.positions), \
         (SELECT count(*) FROM child_batch o WHERE o.parent_id = c.parent_id AND o.family = c.family), \
         s.flow IS NOT NULL, b.run_at FROM child_batch c JOIN suspension s ON s.batch_id = c.parent_id AND s.family = c.family \
         JOIN batch b ON b.id = c.batch_id WHERE c.batch_id = ?1",
    )?;
    let mut rows = statement.query([children.0])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let shares: Vec<u32> = serde_json::from_str(row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?)?;
    Ok(Some(Parentage {
        batch: BatchId(row.get(0)?),
        family: row.get(1)?,
        is_flow: row.get(5)?,
        run_at: Timestamp(row.get(6)?),
        broods_count: usize::try_from(row.get::<_, i64>(4)?).unwrap_or(usize::MAX),
        brood: Brood::of_shares(children, read_positions(row, 3)?, &shares),
    }))
}

/// The families of a batch that are steps of flows, by number ascending.
pub(crate) const STEPS: &str =
    "SELECT family, positions FROM suspension WHERE batch_id = ?1 AND flow IS NOT NULL ORDER BY family";

/// The families of the steps that these jobs of a batch have taken, in order.
pub(crate) fn steps_of(connection: &Connection, batch: BatchId, jobs: &Positions) -> Result<Vec<Family>> {
    // One statement for all of them: a flow may have taken a thousand.
    let mut statement = connection.prepare_cached(
        "SELECT c.batch_id, c.shares, c.parents, s.family, s.positions, s.on_failure, s.flow, c.together FROM suspension s \
         LEFT JOIN child_batch c ON c.parent_id = s.batch_id AND c.family = s.family \
         WHERE s.batch_id = ?1 AND s.flow IS NOT NULL ORDER BY s.family, c.batch_id",
    )?;
    let mut rows = statement.query([batch.0])?;
    let mut families: Vec<Family> = Vec::new();
    let (mut last, mut is_theirs) = (None, false);
    while let Some(row) = rows.next()? {
        let number: i64 = row.get(3)?;
        if last.replace(number) != Some(number) {
            let family = read_family(row, 4)?;
            is_theirs = !family.parents.intersection(jobs).is_empty();
            families.extend(is_theirs.then_some(family));
        }
        let (true, Some(family)) = (is_theirs, families.last_mut()) else {
            continue;
        };
        if row.get::<_, Option<i64>>(0)?.is_some() {
            let own: Option<String> = row.get(2)?;
            let own = own.map(|text| text.parse()).transpose()?;
            let brood = brood(row, own.as_ref().unwrap_or(&family.parents))?;
            family.broods.push(brood.together(row.get(7)?));
        }
    }
    Ok(families)
}

/// The children of all steps that these jobs of a batch have taken.
pub(crate) fn children_of_steps(
    connection: &Connection,
    batch: BatchId,
    jobs: &Positions,
) -> Result<BTreeMap<u32, Children>> {
    let mut all: BTreeMap<u32, Children> = jobs.iter().map(|job| (job, Children::of_flow(job))).collect();
    for family in steps_of(connection, batch, jobs)? {
        for children in family.children_of_each(jobs) {
            if let Some(known) = all.get_mut(&children.parent) {
                known.add(children);
            }
        }
    }
    Ok(all)
}

/// Reads when a flow runs again.
pub(crate) fn read_wake(row: &rusqlite::Row<'_>, column: usize) -> Result<Option<Wake>> {
    let text: Option<String> = row.get(column)?;
    let wake = text.map(|text| text.parse()).transpose();
    wake.map_err(|error| Failure::Damaged(format!("a suspension: {error}")))
}
