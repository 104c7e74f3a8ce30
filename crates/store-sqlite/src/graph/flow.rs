//! Flows: steps that wait for children of earlier steps, and events.

use std::collections::BTreeMap;

use gristmill_model::limits::KEPT_EVENTS_MAX;
use gristmill_model::signal::EVENT_KIND;
use gristmill_model::{
    BatchId, ChildBatch, JobId, JobState, PackedArray, Positions, Signal, Suspended, Wake,
};
use gristmill_store::rules::ending::Ending;
use gristmill_store::rules::family::flow::{BySuspended, EarlierSteps, Waiting, forgotten, join_memos};
use gristmill_store::rules::family::{Brood, latest};
use gristmill_store::{BatchPositions, FlowEvent, FlowEventReceipt, Suspension};
use rusqlite::{Connection, params};

use crate::columns::{read_positions, report_id};
use crate::failure::Result;
use crate::graph::dependency::Ended;
use crate::graph::family::{STEPS, brood, broods, children_of_steps, family, steps_of};
use crate::query::report_ids;
use crate::sums::{CheckedReport, REPORT_COLUMNS};
use crate::transaction::Transaction;

/// The suspensions of each of these jobs, in order.
pub(crate) fn suspensions(
    connection: &Connection,
    batch: BatchId,
    jobs: &Positions,
) -> Result<Vec<Vec<Suspension>>> {
    let mut statement = connection.prepare_cached(
        "SELECT family, positions, memos FROM suspension WHERE batch_id = ?1 ORDER BY family",
    )?;
    let mut rows = statement.query([batch.0])?;
    let mut all = BySuspended::of(jobs);
    while let Some(row) = rows.next()? {
        let parents = read_positions(row, 1)?;
        let own = parents.intersection(jobs);
        if own.is_empty() {
            continue;
        }
        let memos = PackedArray::from_stored(row.get::<_, String>(2)?).select(&parents.indexes_of(&own));
        if let Some(family) = family(connection, batch, row.get(0)?)? {
            all.add(&family, &own, &memos);
        }
    }
    Ok(all.finish())
}

impl Transaction<'_> {
    /// The jobs that wait after they have suspended, and for which earlier children.
    pub fn waiting_after(&self, batch: BatchId, suspended: &Suspended) -> Result<Waiting> {
        let is_anew = suspended.begins_anew() && suspended.given_up.is_empty();
        if suspended.seen.is_empty() || is_anew {
            return Ok(Waiting::for_new_children(suspended));
        }
        let mut earlier = EarlierSteps {
            broods: Vec::new(),
            open: BTreeMap::new(),
        };
        for family in steps_of(self.connection, batch, &suspended.positions)? {
            let broods = family.broods.into_iter();
            let broods = broods.map(|brood| (family.parents.clone(), brood));
            earlier.broods.extend(broods);
        }
        for (_, brood) in &earlier.broods {
            earlier.open.insert(brood.batch, self.open_of(brood.batch)?);
        }
        Ok(Waiting::of(suspended, &earlier))
    }

    /// The batches of children for which a part of a batch waits: those of its family, and of earlier steps.
    pub fn awaited_broods(&self, batch: BatchId, part: u32) -> Result<Vec<Brood>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT c.batch_id, c.shares, coalesce(c.parents, s.positions), c.together FROM edge e \
             JOIN child_batch c ON c.batch_id = e.prerequisite_id \
             JOIN suspension s ON s.batch_id = c.parent_id AND s.family = c.family \
             WHERE e.batch_id = ?1 AND e.part = ?2 AND e.on_failure = 'children' ORDER BY c.batch_id",
        )?;
        let mut rows = statement.query(params![batch.0, part])?;
        let mut broods = Vec::new();
        while let Some(row) = rows.next()? {
            broods.push(brood(row, &read_positions(row, 2)?)?.together(row.get(3)?));
        }
        Ok(broods)
    }

    /// The memos of all steps of these jobs, up to a family: a JSON array for each job.
    pub fn joined_memos(&self, batch: BatchId, last: i64, jobs: &Positions) -> Result<PackedArray> {
        let mut statement = self.connection.prepare_cached(
            "SELECT positions, memos FROM suspension WHERE batch_id = ?1 AND family <= ?2 AND flow IS NOT NULL \
             ORDER BY family",
        )?;
        let mut rows = statement.query(params![batch.0, last])?;
        let mut by_job: BTreeMap<u32, Vec<String>> = jobs.iter().map(|job| (job, Vec::new())).collect();
        while let Some(row) = rows.next()? {
            let positions = read_positions(row, 0)?;
            let own = positions.intersection(jobs);
            if own.is_empty() {
                continue;
            }
            let memos = PackedArray::from_stored(row.get::<_, String>(1)?);
            let memos = memos.select(&positions.indexes_of(&own));
            for (job, memo) in own.iter().zip(memos.items()) {
                by_job.entry(job).or_default().push(memo.to_owned());
            }
        }
        let joined = by_job
            .values()
            .map(|memos| join_memos(memos.iter().map(String::as_str)));
        let joined: Vec<String> = joined.collect();
        Ok(PackedArray::from_stored(format!("[{}]", joined.join("\n,"))))
    }

    /// The children that flows leave open if they end after they ran as this family. Only a flow that runs again when any
    /// child ends leaves some.
    pub fn left_open(
        &self,
        batch: BatchId,
        family: Option<i64>,
        jobs: &Positions,
    ) -> Result<Vec<BatchPositions>> {
        let Some(family) = family.filter(|_| !jobs.is_empty()) else {
            return Ok(Vec::new());
        };
        let wake = self.row(
            "SELECT flow FROM suspension WHERE batch_id = ?1 AND family = ?2",
            params![batch.0, family],
            |row| row.get::<_, Option<String>>(0),
        )?;
        if wake.flatten().as_deref() != Some(Wake::Any.name()) {
            return Ok(Vec::new());
        }
        let children = children_of_steps(self.connection, batch, jobs)?;
        Ok(children
            .into_values()
            .flat_map(|children| children.jobs)
            .collect())
    }

    /// Takes flows that begin anew out of the families of their steps, and forgets their failures.
    pub fn forget_steps(&self, batch: BatchId, flows: &Positions) -> Result<()> {
        let steps = self.rows(
            "SELECT family, positions, memos FROM suspension WHERE batch_id = ?1 AND flow IS NOT NULL",
            [batch.0],
            |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, String>(2)?,
                ))
            },
        )?;
        for (family, text, memos) in steps {
            let parents: Positions = text.parse()?;
            if parents.intersection(flows).is_empty() {
                continue;
            }
            let left = forgotten(&parents, &PackedArray::from_stored(memos), flows);
            for brood in broods(self.connection, batch, family, &parents)? {
                let is_left = match &left {
                    Some((left, _)) => brood.of_parents(left).is_empty(),
                    None => true,
                };
                if is_left {
                    self.execute("DELETE FROM child_batch WHERE batch_id = ?1", [brood.batch.0])?;
                }
            }
            let Some((left, memos)) = left else {
                self.execute(
                    "DELETE FROM suspension WHERE batch_id = ?1 AND family = ?2",
                    params![batch.0, family],
                )?;
                continue;
            };
            // The shares of the children are those of all who were in the family.
            self.execute(
                "UPDATE child_batch SET parents = ?3 WHERE parent_id = ?1 AND family = ?2 AND parents IS NULL",
                params![batch.0, family, text],
            )?;
            self.execute(
                "UPDATE suspension SET positions = ?3, memos = ?4 WHERE batch_id = ?1 AND family = ?2",
                params![batch.0, family, left.to_string(), memos.as_str()],
            )?;
        }
        for range in flows.ranges() {
            self.execute(
                "DELETE FROM failure WHERE batch_id = ?1 AND position >= ?2 AND position < ?3",
                params![batch.0, range.start, range.end],
            )?;
        }
        Ok(())
    }

    /// The family of the last step of each of these jobs that is a flow.
    pub fn last_steps(&self, batch: BatchId, jobs: &Positions) -> Result<Vec<(i64, Positions)>> {
        let mut steps = self.rows(STEPS, [batch.0], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
        })?;
        steps.reverse();
        let mut families: Vec<(i64, Positions)> = Vec::with_capacity(steps.len());
        for (number, positions) in steps {
            families.push((number, positions.parse()?));
        }
        Ok(latest(
            families.iter().map(|(number, positions)| (*number, positions)),
            jobs,
        ))
    }

    /// Sends events to flows.
    pub fn send_events(&mut self, events: &[FlowEvent]) -> Result<Vec<FlowEventReceipt>> {
        let mut receipts = Vec::with_capacity(events.len());
        let mut ended = Vec::new();
        for event in events {
            receipts.push(self.send_event(event, &mut ended)?);
        }
        self.settle(ended)?;
        Ok(receipts)
    }

    fn send_event(&mut self, event: &FlowEvent, ended: &mut Vec<Ended>) -> Result<FlowEventReceipt> {
        let flow = event.job;
        let count: Option<u32> =
            self.row("SELECT count FROM batch WHERE id = ?1", [flow.batch.0], |row| {
                row.get(0)
            })?;
        if count.is_none_or(|count| flow.position >= count) {
            return Ok(FlowEventReceipt::Unknown);
        }
        if let Some(waiting) = self.waiting_for_event(flow, &event.name)? {
            ended.push(self.end_by_event(waiting, event.value().clone())?);
            return Ok(FlowEventReceipt::Delivered);
        }
        if !self.open_of(flow.batch)?.contains(flow.position) {
            return Ok(FlowEventReceipt::Ended);
        }
        let kept = self.row(
            "SELECT count(*) FROM kept_event WHERE batch_id = ?1 AND position = ?2",
            params![flow.batch.0, flow.position],
            |row| row.get::<_, u32>(0),
        )?;
        if kept.unwrap_or(0) >= KEPT_EVENTS_MAX {
            return Ok(FlowEventReceipt::Full);
        }
        self.execute(
            "INSERT INTO kept_event (batch_id, position, name, value) VALUES (?1, ?2, ?3, ?4)",
            params![flow.batch.0, flow.position, event.name, event.value().as_str()],
        )?;
        Ok(FlowEventReceipt::Kept)
    }

    /// The oldest open job that waits for an event of a flow.
    fn waiting_for_event(&mut self, flow: JobId, name: &str) -> Result<Option<JobId>> {
        let own = Positions::from(flow.position..flow.position + 1);
        let mut candidates: Vec<BatchPositions> = Vec::new();
        {
            let mut statement = self.connection.prepare_cached(
                "SELECT c.batch_id, c.shares, coalesce(c.parents, s.positions) FROM child_batch c \
                 JOIN suspension s ON s.batch_id = c.parent_id AND s.family = c.family \
                 JOIN batch b ON b.id = c.batch_id JOIN lane l ON l.id = b.lane_id \
                 WHERE c.parent_id = ?1 AND l.kind = ?2 ORDER BY c.batch_id",
            )?;
            let mut rows = statement.query(params![flow.batch.0, EVENT_KIND])?;
            while let Some(row) = rows.next()? {
                let parents = read_positions(row, 2)?;
                if parents.contains(flow.position) {
                    let brood = brood(row, &parents)?;
                    candidates.push(BatchPositions {
                        positions: brood.of_parents(&own),
                        batch: brood.batch,
                    });
                }
            }
        }
        for BatchPositions { batch, positions } in candidates {
            let head = self.head(batch)?;
            let signal = head.options.signal.as_ref();
            if signal.and_then(Signal::event) != Some(name) {
                continue;
            }
            let open = self.open_of(batch)?.intersection(&positions);
            if let Some(position) = open.first() {
                return Ok(Some(JobId { batch, position }));
            }
        }
        Ok(None)
    }

    /// Ends a job that waits for an event.
    fn end_by_event(&mut self, job: JobId, value: PackedArray) -> Result<Ended> {
        let own = Positions::from(job.position..job.position + 1);
        let blocked = self.blocked_of(job.batch)?.into_iter();
        let blocked = blocked.filter(|blocked| blocked.positions.contains(job.position));
        for blocked in blocked.collect::<Vec<_>>() {
            self.shorten_blocked(&blocked, &blocked.positions.difference(&own))?;
        }
        self.end_jobs(job.batch, &own, &Ending::of_value(value))?;
        Ok(Ended {
            batch: job.batch,
            endings: vec![(JobState::Completed, own)],
        })
    }

    /// Gives the events that these ended children of flows got, and that the flows have not read, to the oldest open waits for
    /// them. Where none is open, they are kept, before those that were sent later. A flow that begins anew has no wait that
    /// stays open. The event of a child goes back once, however often flows name the child.
    pub fn give_back_events(
        &mut self,
        batch: BatchId,
        unread: &[(u32, JobId)],
        is_anew: bool,
        ended: &mut Vec<Ended>,
    ) -> Result<()> {
        if unread.is_empty() {
            return Ok(());
        }
        let first: Option<i64> = self.row("SELECT coalesce(min(id), 0) FROM kept_event", [], |row| {
            row.get(0)
        })?;
        let first = first.unwrap_or(0) - unread.len() as i64;
        for (number, (position, child)) in (first..).zip(unread) {
            let flow = JobId {
                batch,
                position: *position,
            };
            let head = self.head(child.batch)?;
            let Some(name) = head.options.signal.as_ref().and_then(Signal::event) else {
                continue;
            };
            let Some(value) = self.value_of_event(*child)? else {
                continue;
            };
            let returned = self.execute(
                "INSERT OR IGNORE INTO returned_event (batch_id, position) VALUES (?1, ?2)",
                params![child.batch.0, child.position],
            )?;
            if returned == 0 {
                continue;
            }
            let taker = match is_anew {
                true => None,
                false => self.waiting_for_event(flow, name)?,
            };
            match taker {
                Some(taker) => ended.push(self.end_by_event(taker, value)?),
                None => drop(self.execute(
                    "INSERT INTO kept_event (id, batch_id, position, name, value) VALUES (?1, ?2, ?3, ?4, ?5)",
                    params![number, batch.0, position, name, value.as_str()],
                )?),
            }
        }
        Ok(())
    }

    /// The value of an event, as a JSON array of one, if this job got one. Each such job has a report of its own.
    fn value_of_event(&self, child: JobId) -> Result<Option<PackedArray>> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {REPORT_COLUMNS} FROM reported WHERE row_id BETWEEN ?2 AND ?3 AND id = ?1 AND state = 'completed'"
        ))?;
        let [first, last] = report_ids(child.batch);
        let mut rows = statement.query([report_id(child.batch, child.position), first, last])?;
        let Some(row) = rows.next()? else {
            return Ok(None);
        };
        let stored = CheckedReport::read(child.batch, row)?;
        Ok(stored.values.map(PackedArray::from_stored))
    }

    /// Gives new jobs that wait for an event the kept events of their flows, the oldest first.
    pub fn deliver_kept(
        &mut self,
        flows: (BatchId, &Positions),
        id: BatchId,
        children: &ChildBatch,
        ended: &mut Vec<Ended>,
    ) -> Result<()> {
        let signal = children.options.signal.as_ref();
        let Some(name) = signal.and_then(Signal::event) else {
            return Ok(());
        };
        let brood = Brood::of_shares(id, flows.1.clone(), &children.shares);
        let mut left = brood.all();
        let kept = self.rows(
            "SELECT id, position, value FROM kept_event WHERE batch_id = ?1 AND name = ?2 ORDER BY id",
            params![flows.0.0, name],
            |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, u32>(1)?,
                    row.get::<_, String>(2)?,
                ))
            },
        )?;
        for (number, flow, value) in kept {
            let own = brood.of_parents(&Positions::from(flow..flow + 1));
            let Some(position) = own.intersection(&left).first() else {
                continue;
            };
            left = left.difference(&Positions::from(position..position + 1));
            self.execute("DELETE FROM kept_event WHERE id = ?1", [number])?;
            let job = JobId { batch: id, position };
            ended.push(self.end_by_event(job, PackedArray::from_stored(value))?);
        }
        Ok(())
    }
}
