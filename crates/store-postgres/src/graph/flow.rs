//! Flows: steps that wait for children of earlier steps, and events.

use std::collections::{BTreeMap, HashMap};

use gristmill_model::limits::RESCUES_MAX;
use gristmill_model::{BatchId, JobId, PackedArray, Positions, Report, Signal, Suspended, WorkerId};
use gristmill_store::rules::family::flow::{BySuspended, EarlierSteps, Waiting, forgotten, join_memos};
use gristmill_store::rules::family::{Brood, Family};
use gristmill_store::{BatchPositions, FlowEvent, FlowEventReceipt, Suspension};
use tokio_postgres::Row;

use crate::database::columns::sum;
use crate::database::rows::Taken;
use crate::database::snapshot::Snapshot;
use crate::database::transaction::Transaction;
use crate::failure::{Failure, Result};
use crate::graph::dependency::Ended;
use crate::graph::family::{EndedParents, Spawning, families, read_parents, read_wake, unsigned};
use crate::multirange::Multirange;

/// The suspensions with which these families of these batches run: their own, and those of earlier steps of flows.
const STEPS: &str = "SELECT k.number, s.parents, s.memos, own.flow \
     FROM unnest($1::bigint[], $2::bigint[], $3::int4multirange[]) WITH ORDINALITY k (batch_id, family, positions, number) \
     JOIN gristmill.suspension own ON own.batch_id = k.batch_id AND own.family = k.family \
     JOIN gristmill.suspension s ON s.batch_id = k.batch_id AND s.family <= k.family \
     AND (s.family = k.family OR (own.flow IS NOT NULL AND s.flow IS NOT NULL)) \
     WHERE EXISTS (SELECT FROM unnest(s.parents) p WHERE k.positions @> p) ORDER BY k.number, s.family";

/// The batches of children of all steps of the flows at `$2` of the batch `$1`, with the open jobs of each.
const EARLIER: &str = "SELECT c.batch_id, coalesce(c.parents, s.parents), c.bounds, s.parents, c.together, (SELECT range_agg(r) FROM ( \
     SELECT o.positions FROM gristmill.slice o WHERE o.batch_id = c.batch_id \
     UNION ALL SELECT o.positions FROM gristmill.held o WHERE o.batch_id = c.batch_id \
     UNION ALL SELECT o.positions FROM gristmill.blocked o WHERE o.batch_id = c.batch_id) o \
     CROSS JOIN LATERAL unnest(o.positions) r) \
     FROM gristmill.suspension s JOIN gristmill.child_batch c ON c.parent_id = s.batch_id AND c.family = s.family \
     WHERE s.batch_id = $1 AND s.flow IS NOT NULL AND s.parents && $2::integer[] ORDER BY c.batch_id";

impl Spawning {
    /// Those of the new batches of children that wait for events.
    pub fn awaiting_events(&self, new: &[BatchId]) -> Vec<i64> {
        let children = self.suspended.children.iter().zip(new);
        let awaiting = children.filter(|(children, _)| {
            let signal = children.options.signal.as_ref();
            signal.and_then(Signal::event).is_some()
        });
        awaiting.map(|(_, id)| id.0).collect()
    }
}

impl Transaction {
    /// Locks what these reports concern, before the rows of `held`: the batches `back`, and open children of flows. Returns
    /// whether there are such children.
    pub async fn lock_reported(
        &self,
        worker: WorkerId,
        reports: &[&Report],
        back: &[BatchId],
    ) -> Result<bool> {
        let leases: Vec<i64> = reports.iter().map(|report| report.lease.0).collect();
        let batches: Vec<i64> = reports.iter().map(|report| report.batch.0).collect();
        let attempts: Vec<i32> = reports
            .iter()
            .map(|report| report.attempt.cast_signed())
            .collect();
        let positions = reports.iter().map(|report| Multirange(report.positions()));
        let positions: Vec<Multirange> = positions.collect();
        let seeing = reports.iter().filter(|report| {
            let mut suspended = report.suspended.iter();
            suspended.any(|suspended| !suspended.seen.is_empty() || suspended.begins_anew())
        });
        let seeing: Vec<i64> = seeing.map(|report| report.batch.0).collect();
        let back: Vec<i64> = back.iter().map(|batch| batch.0).collect();
        let row = self
            .query_opt(
                "SELECT gristmill.lock_reported($1, $2, $3, $4, $5, $6, $7) IS NOT NULL",
                &[
                    &worker.0, &leases, &batches, &attempts, &positions, &seeing, &back,
                ],
            )
            .await?;
        row.map_or(Ok(false), |row| Ok(row.try_get(0)?))
    }

    /// Locks the batches of what a worker holds, before the rows of `held`, and open children of flows that are not rescued
    /// once more.
    pub async fn lock_held_by(&self, worker: WorkerId, batches: &[BatchId]) -> Result<()> {
        let batches: Vec<i64> = batches.iter().map(|batch| batch.0).collect();
        self.query(
            "SELECT gristmill.lock_reported($1, coalesce(array_agg(lease_id), '{}'), coalesce(array_agg(batch_id), '{}'), \
             coalesce(array_agg(attempt), '{}'), coalesce(array_agg(positions), '{}'), '{}', $2) FROM gristmill.held \
             WHERE worker_id = $1 AND family IS NOT NULL AND rescues >= $3",
            &[&worker.0, &batches, &RESCUES_MAX.cast_signed()],
        )
        .await?;
        Ok(())
    }

    /// Locks the open children of flows that expire now, before the rows of `slice` and `blocked`.
    pub async fn lock_left_by_expired(&self) -> Result<()> {
        self.query(
            "SELECT gristmill.lock_batches(array_agg(k.batch_id)) FROM ( \
             SELECT s.batch_id, s.family, s.positions FROM gristmill.slice s WHERE s.expires_at <= $1 AND s.family IS NOT NULL \
             UNION ALL SELECT w.batch_id, w.family, w.positions FROM gristmill.blocked w \
             WHERE w.expires_at <= $1 AND w.family IS NOT NULL) o \
             CROSS JOIN LATERAL gristmill.left_open(ARRAY[o.batch_id], ARRAY[o.family], ARRAY[o.positions]) k \
             HAVING count(*) > 0",
            &[&self.now.0],
        )
        .await?;
        Ok(())
    }

    /// The jobs that wait after they have suspended, and for which earlier children. These must be locked.
    pub async fn waiting_after(&self, batch: BatchId, suspended: &Suspended) -> Result<Waiting> {
        let is_anew = suspended.begins_anew() && suspended.given_up.is_empty();
        if suspended.seen.is_empty() || is_anew {
            return Ok(Waiting::for_new_children(suspended));
        }
        let flows: Vec<i32> = suspended.positions.iter().map(u32::cast_signed).collect();
        let mut earlier = EarlierSteps {
            broods: Vec::new(),
            open: BTreeMap::new(),
        };
        for row in &self.query(EARLIER, &[&batch.0, &flows]).await? {
            let children = BatchId(row.try_get(0)?);
            let bounds = unsigned(row.try_get(2)?).collect();
            let brood = Brood::of_bounds(children, read_parents(row, 1)?, bounds);
            let brood = brood.together(row.try_get(4)?);
            earlier.broods.push((read_parents(row, 3)?, brood));
            if let Some(open) = row.try_get::<_, Option<Multirange>>(5)? {
                earlier.open.insert(children, open.0);
            }
        }
        Ok(Waiting::of(suspended, &earlier))
    }

    /// Cancels open children that flows give up.
    pub async fn give_up(&mut self, children: Vec<BatchPositions>) -> Result<()> {
        if children.is_empty() {
            return Ok(());
        }
        self.flush().await?;
        let batches: Vec<i64> = children.iter().map(|jobs| jobs.batch.0).collect();
        let positions = children.into_iter().map(|jobs| Multirange(jobs.positions));
        let ended = self
            .cancel_trees(&batches, &positions.collect::<Vec<_>>())
            .await?;
        self.settle(ended).await?;
        Ok(())
    }

    /// Gives the events that these ended children of flows got, and that the flows have not read, to the oldest open waits for
    /// them, which must be locked. Where none is open, they are kept, before those that were sent later. A flow that begins
    /// anew has no wait that stays open.
    pub async fn give_back_events(
        &self,
        batch: BatchId,
        unread: &[(u32, JobId)],
        is_anew: bool,
        ended: &mut Ended,
    ) -> Result<()> {
        if unread.is_empty() {
            return Ok(());
        }
        let flows: Vec<i32> = unread.iter().map(|(flow, _)| flow.cast_signed()).collect();
        let children: Vec<i64> = unread.iter().map(|(_, child)| child.batch.0).collect();
        let positions = unread.iter().map(|(_, child)| child.position.cast_signed());
        let positions: Vec<i32> = positions.collect();
        let sql = "SELECT ended_ids, ended_positions FROM gristmill.give_back_events($1, $2, $3, $4, $5, $6)";
        let rows = self
            .query(
                sql,
                &[&batch.0, &flows, &children, &positions, &is_anew, &self.now.0],
            )
            .await?;
        for row in &rows {
            ended.add_columns(row, 0)?;
        }
        Ok(())
    }

    /// Gives new jobs that wait for events the kept events of their flows. The batches of the flows must be locked.
    pub async fn deliver_kept(&mut self, awaiting: &[i64], ended: &mut Ended) -> Result<()> {
        if awaiting.is_empty() {
            return Ok(());
        }
        self.flush().await?;
        let sql = "SELECT ended_ids, ended_positions FROM gristmill.deliver_kept($1, $2)";
        for row in &self.query(sql, &[&awaiting, &self.now.0]).await? {
            ended.add_columns(row, 0)?;
        }
        Ok(())
    }

    /// Cancels the children that ended flows have left open.
    pub async fn cancel_left_open(&mut self, parents: EndedParents, ended: &mut Ended) -> Result<()> {
        if parents.is_empty() {
            return Ok(());
        }
        self.flush().await?;
        self.writes.news.changed_slices = true;
        let (mut batches, mut families, mut positions) = (Vec::new(), Vec::new(), Vec::new());
        for (batch, family, own) in parents {
            batches.push(batch.0);
            families.push(family);
            positions.push(Multirange(own));
        }
        let sql = "SELECT ended_ids, ended_positions FROM gristmill.cancel_left_open($1, $2, $3, $4)";
        let rows = self
            .query(sql, &[&batches, &families, &positions, &self.now.0])
            .await?;
        for row in &rows {
            ended.add_columns(row, 0)?;
        }
        self.freed();
        Ok(())
    }

    /// Takes flows that begin anew out of the families of their steps before the given one, and forgets their failures.
    pub async fn forget_steps(&mut self, mut anew: EndedParents) -> Result<()> {
        if anew.is_empty() {
            return Ok(());
        }
        self.flush().await?;
        // All lock rows in one order.
        anew.sort_by_key(|(batch, family, _)| (*batch, *family));
        for (batch, last, flows) in anew {
            let positions = Multirange(flows.clone());
            let array: Vec<i32> = flows.iter().map(u32::cast_signed).collect();
            let steps = self
                .query(
                    "SELECT family, parents, memos FROM gristmill.suspension WHERE batch_id = $1 AND family < $2 \
                     AND flow IS NOT NULL AND parents && $3::integer[] ORDER BY family FOR UPDATE",
                    &[&batch.0, &last, &array],
                )
                .await?;
            for step in &steps {
                let family: i64 = step.try_get(0)?;
                let memos = PackedArray::from_stored(step.try_get::<_, &str>(2)?);
                let left = forgotten(&read_parents(step, 1)?, &memos, &flows);
                let (parents, memos): (Vec<i32>, &str) = match &left {
                    Some((left, memos)) => (left.iter().map(u32::cast_signed).collect(), memos.as_str()),
                    None => (Vec::new(), ""),
                };
                self.query(
                    "SELECT gristmill.narrow_family($1, $2, $3, $4)",
                    &[&batch.0, &family, &parents, &memos],
                )
                .await?;
            }
            self.query(
                "DELETE FROM gristmill.failure WHERE batch_id = $1 AND $2::int4multirange @> position",
                &[&batch.0, &positions],
            )
            .await?;
        }
        Ok(())
    }

    /// The memos of those of the claimed jobs that finalize, by their place among them. A flow gets the memos of all of its
    /// steps. Nothing is asked where none finalizes.
    pub async fn memos_of(&self, taken: &[Taken]) -> Result<HashMap<usize, PackedArray>> {
        let numbered = taken.iter().enumerate();
        let finalizing = numbered.filter_map(|(number, part)| Some((number, part, part.slice.family?)));
        let finalizing: Vec<(usize, &Taken, i64)> = finalizing.collect();
        if finalizing.is_empty() {
            return Ok(HashMap::new());
        }
        let (mut batches, mut numbers, mut positions) = (Vec::new(), Vec::new(), Vec::new());
        for (_, part, family) in &finalizing {
            batches.push(part.slice.batch.0);
            numbers.push(*family);
            positions.push(Multirange(part.positions.clone()));
        }
        let rows = self.query(STEPS, &[&batches, &numbers, &positions]).await?;
        let mut all = HashMap::new();
        for (number, (place, part, family)) in (1..).zip(finalizing) {
            let mut steps = Vec::new();
            for row in &rows {
                if row.try_get::<_, i64>(0)? == number {
                    steps.push(row);
                }
            }
            let memos = joined(&steps, &part.positions)?.ok_or_else(|| {
                Failure::Damaged(format!(
                    "family {family} of batch {} remembers nothing",
                    part.slice.batch
                ))
            })?;
            all.insert(place, memos);
        }
        Ok(all)
    }

    /// Sends events to flows.
    pub async fn send_events(&mut self, events: &[FlowEvent]) -> Result<Vec<FlowEventReceipt>> {
        let flows: Vec<i64> = events.iter().map(|event| event.job.batch.0).collect();
        let positions = events.iter().map(|event| i32::try_from(event.job.position));
        // No job has a position beyond the range.
        let positions: Vec<i32> = positions.map(|position| position.unwrap_or(i32::MAX)).collect();
        let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
        let values: Vec<&str> = events.iter().map(|event| event.value().as_str()).collect();
        let row = self
            .query_opt(
                "SELECT receipts, claimable FROM gristmill.send_events($1, $2, $3, $4, $5)",
                &[&flows, &positions, &names, &values, &self.now.0],
            )
            .await?;
        let row = row.ok_or_else(|| Failure::Damaged("events got no receipts".to_owned()))?;
        self.writes.news.woke |= sum(&row, 1)? > 0;
        let receipts: Vec<&str> = row.try_get(0)?;
        receipts.into_iter().map(read_receipt).collect()
    }
}

fn read_receipt(name: &str) -> Result<FlowEventReceipt> {
    match name {
        "delivered" => Ok(FlowEventReceipt::Delivered),
        "kept" => Ok(FlowEventReceipt::Kept),
        "ended" => Ok(FlowEventReceipt::Ended),
        "unknown" => Ok(FlowEventReceipt::Unknown),
        "full" => Ok(FlowEventReceipt::Full),
        _ => Err(Failure::Damaged(format!("an event became `{name}`"))),
    }
}

/// The memos of these jobs, from the rows of [`STEPS`] of one family. Of flows, a JSON array for each job. `None` where there
/// are no rows.
fn joined(steps: &[&Row], jobs: &Positions) -> Result<Option<PackedArray>> {
    let Some(last) = steps.last() else {
        return Ok(None);
    };
    let mut memos = Vec::with_capacity(steps.len());
    for step in steps {
        let parents = read_parents(step, 1)?;
        let own = parents.intersection(jobs);
        let all = PackedArray::from_stored(step.try_get::<_, &str>(2)?);
        memos.push((all.select(&parents.indexes_of(&own)), own));
    }
    if read_wake(last, 3)?.is_none() {
        return Ok(memos.pop().map(|(memos, _)| memos));
    }
    let mut by_job: BTreeMap<u32, Vec<&str>> = jobs.iter().map(|job| (job, Vec::new())).collect();
    for (memos, own) in &memos {
        for (job, memo) in own.iter().zip(memos.items()) {
            by_job.entry(job).or_default().push(memo);
        }
    }
    let joined: Vec<String> = by_job.into_values().map(join_memos).collect();
    Ok(Some(PackedArray::from_stored(format!(
        "[{}]",
        joined.join("\n,")
    ))))
}

/// The suspensions of each of these jobs, in order.
pub(crate) async fn suspensions(
    snapshot: &Snapshot,
    batch: BatchId,
    jobs: &Positions,
) -> Result<Vec<Vec<Suspension>>> {
    let array: Vec<i32> = jobs.iter().map(u32::cast_signed).collect();
    let rows = snapshot
        .query(
            "SELECT family, parents, memos FROM gristmill.suspension WHERE batch_id = $1 AND parents && $2::integer[] ORDER BY family",
            &[&batch.0, &array],
        )
        .await?;
    let families: HashMap<i64, Family> = families(snapshot, batch).await?.into_iter().collect();
    let mut all = BySuspended::of(jobs);
    for row in &rows {
        let parents = read_parents(row, 1)?;
        let own = parents.intersection(jobs);
        let memos = PackedArray::from_stored(row.try_get::<_, &str>(2)?).select(&parents.indexes_of(&own));
        let number: i64 = row.try_get(0)?;
        if let Some(family) = families.get(&number) {
            all.add(family, &own, &memos);
        }
    }
    Ok(all.finish())
}
