//! Jobs that wait for others.
//!
//! Waiting jobs are rows of `blocked`, which claims do not read; each prerequisite of them is a row of `edge`. An
//! operation that ends jobs of an awaited batch settles the edges to them before it is committed.

use std::collections::VecDeque;

use gristmill_model::{BatchId, JobId, JobState, NewBatch, OnFailure, Positions, Timestamp};
use gristmill_store::FailedPrerequisite;
use gristmill_store::hook::{EndedBatch, HOOK, HOOK_PART};
use gristmill_store::rules::dependency::{
    Edge, WaitingJobs, check_stored, prerequisite_failed, stored_prerequisites,
};
use gristmill_store::rules::ending::{Ending, FailedAttempt};
use gristmill_store::rules::family::CHILDREN;
use gristmill_store::rules::open::Blocked;
use gristmill_store::rules::pauses::Pauses;
use rusqlite::params;

use crate::claim::slice::NewSlice;
use crate::columns::{read_pauses, read_positions, read_state, report_id};
use crate::failure::{Failure, Result};
use crate::transaction::Transaction;

/// The first number for parts that were split off others, or paused.
const SPLIT_PARTS_FIRST: u32 = 1 << 20;

/// Jobs of a batch that have ended in this operation.
#[derive(Debug)]
pub(crate) struct Ended {
    pub batch: BatchId,
    /// The states in which they ended. If this is empty, it is looked up.
    pub endings: Vec<(JobState, Positions)>,
}

impl Ended {
    /// Whatever of a batch has ended, perhaps long before. A flow that wakes on any child does not take that for news.
    pub fn looked_up(batch: BatchId) -> Self {
        Ended {
            batch,
            endings: Vec::new(),
        }
    }
}

/// A stored edge.
#[derive(Debug)]
pub(crate) struct StoredEdge {
    prerequisite: BatchId,
    first_position: u32,
    /// The waiting batch.
    pub batch: BatchId,
    pub part: u32,
    policy: Policy,
    positions: Option<Positions>,
}

/// The consequence of an edge, once the jobs it leads to have ended.
#[derive(Debug, Clone, Copy)]
enum Policy {
    /// Jobs wait for the prerequisites.
    Dependency(OnFailure),
    /// Parents wait for their children.
    Children,
    /// The store submits the hook of the batch.
    Hook,
}

/// How the jobs at an edge have ended.
#[derive(Debug, Clone, Copy)]
enum Met {
    Completed,
    /// Not all completed; this is the first that did not.
    Not(JobId, JobState),
}

/// Rows of `blocked` that meet a condition, as [`Transaction::all_blocked`] reads them.
macro_rules! select_blocked {
    ($condition:literal) => {
        concat!(
            "SELECT batch_id, part, attempt, rescues, expires_at, positions, rank, run_at, pauses, family FROM blocked WHERE ",
            $condition
        )
    };
}

pub(crate) use select_blocked;

impl Transaction<'_> {
    /// Refuses batches that wait for missing jobs.
    pub fn check_prerequisites<'b>(&self, batches: impl IntoIterator<Item = &'b NewBatch>) -> Result<()> {
        for (batch, last) in stored_prerequisites(batches) {
            let count = self.row("SELECT count FROM batch WHERE id = ?1", [batch.0], |row| {
                row.get(0)
            })?;
            check_stored(batch, count, last)?;
        }
        Ok(())
    }

    /// Makes jobs wait until all edges are settled.
    pub fn block(&self, blocked: &Blocked, edges: &[Edge]) -> Result<()> {
        if blocked.positions.is_empty() {
            return Ok(());
        }
        assert!(blocked.attempt > 0, "the attempt of a blocked job counts from 1");
        self.execute(
            "INSERT INTO blocked (batch_id, part, attempt, rescues, count, expires_at, positions, rank, run_at, \
             pauses, paused_until, family) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            params![
                blocked.batch.0,
                blocked.part,
                blocked.attempt,
                blocked.rescues,
                blocked.positions.len(),
                blocked.expires_at.map(|moment| moment.0),
                blocked.positions.to_string(),
                blocked.rank,
                blocked.run_at.map(|moment| moment.0),
                blocked.pauses.as_ref().map(serde_json::to_string).transpose()?,
                blocked.pauses.as_ref().and_then(Pauses::until).map(|until| until.0),
                blocked.family,
            ],
        )?;
        for edge in edges {
            let positions = edge.positions.as_ref();
            self.execute(
                "INSERT INTO edge (prerequisite_id, first_position, batch_id, part, on_failure, positions) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    edge.prerequisite.0,
                    positions.and_then(Positions::first).unwrap_or(0),
                    blocked.batch.0,
                    blocked.part,
                    edge.on_failure.name(),
                    positions.map(Positions::to_string),
                ],
            )?;
        }
        Ok(())
    }

    /// The waiting jobs of a batch.
    pub fn blocked_of(&self, batch: BatchId) -> Result<Vec<Blocked>> {
        self.all_blocked(select_blocked!("batch_id = ?1"), batch.0)
    }

    /// The prerequisites of jobs of a batch, by part; jobs that have begun are omitted.
    pub fn waiting_of(&self, batch: BatchId, positions: &Positions) -> Result<Vec<WaitingJobs>> {
        let mut all = Vec::new();
        for blocked in self.blocked_of(batch)? {
            let positions = blocked.positions.intersection(positions);
            if positions.is_empty() {
                continue;
            }
            let rows = self.rows(
                "SELECT prerequisite_id, on_failure, positions FROM edge WHERE batch_id = ?1 AND part = ?2",
                params![batch.0, blocked.part],
                |row| {
                    let texts: (String, Option<String>) = (row.get(1)?, row.get(2)?);
                    Ok((BatchId(row.get(0)?), texts))
                },
            )?;
            let mut edges = Vec::with_capacity(rows.len());
            for (prerequisite, (policy, only)) in rows {
                // Parents that wait for their children have begun.
                if let Policy::Dependency(on_failure) = read_policy(&policy)? {
                    edges.push(Edge {
                        prerequisite,
                        on_failure,
                        positions: only.map(|text| text.parse()).transpose()?,
                    });
                }
            }
            if !edges.is_empty() {
                all.push(WaitingJobs { positions, edges });
            }
        }
        Ok(all)
    }

    /// The jobs that waited for longer than they may.
    pub fn expired_blocked(&self) -> Result<Vec<Blocked>> {
        self.all_blocked(select_blocked!("expires_at <= ?1"), self.now.0)
    }

    pub fn all_blocked(&self, sql: &str, param: i64) -> Result<Vec<Blocked>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([param])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            all.push(Blocked {
                batch: BatchId(row.get(0)?),
                part: row.get(1)?,
                attempt: row.get(2)?,
                rescues: row.get(3)?,
                expires_at: row.get::<_, Option<i64>>(4)?.map(Timestamp),
                positions: read_positions(row, 5)?,
                rank: row.get(6)?,
                run_at: row.get::<_, Option<i64>>(7)?.map(Timestamp),
                pauses: read_pauses(row, 8)?,
                family: row.get(9)?,
            });
        }
        Ok(all)
    }

    /// Leaves `rest` of a waiting part. If nothing is left, its edges are deleted too.
    pub fn shorten_blocked(&self, blocked: &Blocked, rest: &Positions) -> Result<()> {
        debug_assert!(
            blocked.positions.contains_all(rest),
            "a part only loses blocked jobs"
        );
        if rest.is_empty() {
            self.execute(
                "DELETE FROM edge WHERE batch_id = ?1 AND part = ?2",
                params![blocked.batch.0, blocked.part],
            )?;
            self.execute(
                "DELETE FROM blocked WHERE batch_id = ?1 AND part = ?2",
                params![blocked.batch.0, blocked.part],
            )?;
        } else {
            self.execute(
                "UPDATE blocked SET positions = ?3, count = ?4 WHERE batch_id = ?1 AND part = ?2",
                params![blocked.batch.0, blocked.part, rest.to_string(), rest.len()],
            )?;
        }
        Ok(())
    }

    /// Splits some waiting positions off into a part of their own, which waits for the same. Returns that part.
    pub fn split_blocked(&self, blocked: &Blocked, positions: &Positions) -> Result<Blocked> {
        let rest = blocked.positions.difference(positions);
        if rest.is_empty() {
            return Ok(blocked.clone());
        }
        debug_assert!(
            blocked.positions.contains_all(positions),
            "only blocked jobs are split off"
        );
        let split = Blocked {
            part: self.next_part(blocked.batch)?,
            positions: positions.clone(),
            ..blocked.clone()
        };
        self.shorten_blocked(blocked, &rest)?;
        self.block(&split, &[])?;
        self.execute(
            "INSERT INTO edge (prerequisite_id, first_position, batch_id, part, on_failure, positions) \
             SELECT prerequisite_id, first_position, batch_id, ?3, on_failure, positions FROM edge \
             WHERE batch_id = ?1 AND part = ?2",
            params![blocked.batch.0, blocked.part, split.part],
        )?;
        Ok(split)
    }

    /// A number for a part that is split off another, or paused.
    pub fn next_part(&self, batch: BatchId) -> Result<u32> {
        let part = self.row(
            "SELECT coalesce(max(part) + 1, ?2) FROM blocked WHERE batch_id = ?1 AND part >= ?2",
            params![batch.0, SPLIT_PARTS_FIRST],
            |row| row.get(0),
        )?;
        Ok(part.unwrap_or(SPLIT_PARTS_FIRST))
    }

    /// Gives waiting jobs another place in line, for when they can be claimed.
    pub fn rank_blocked(&self, blocked: &Blocked, rank: i32) -> Result<()> {
        self.execute(
            "UPDATE blocked SET rank = ?3 WHERE batch_id = ?1 AND part = ?2",
            params![blocked.batch.0, blocked.part, rank],
        )?;
        Ok(())
    }

    /// Settles the edges to ended jobs, with all consequences. Jobs that fail because of that end in turn, one after
    /// the other, however long the chain.
    pub fn settle(&mut self, ended: Vec<Ended>) -> Result<()> {
        let mut left = VecDeque::from(ended);
        while let Some(ended) = left.pop_front() {
            let edges = self.edges_to(&ended)?;
            let mut looked = None;
            for edge in edges {
                let on_failure = match edge.policy {
                    Policy::Dependency(on_failure) => on_failure,
                    Policy::Children => {
                        left.extend(self.settle_children(&edge, &ended)?);
                        continue;
                    }
                    Policy::Hook => {
                        self.settle_hook(&edge)?;
                        continue;
                    }
                };
                let Some(met) = self.is_met(&edge, &ended.endings, &mut looked)? else {
                    continue;
                };
                // The waiting jobs may have ended by another edge of the same list.
                if !self.delete_edge(&edge, on_failure.name())? {
                    continue;
                }
                match met {
                    Met::Not(job, state) if on_failure != OnFailure::Ignore => {
                        left.extend(self.end_blocked(&edge, on_failure, job, state)?);
                    }
                    _ => self.unblock(&edge)?,
                }
            }
        }
        Ok(())
    }

    /// The edges that may be met now.
    fn edges_to(&self, ended: &Ended) -> Result<Vec<StoredEdge>> {
        let lasts = ended.endings.iter().filter_map(|(_, positions)| positions.last());
        let last = lasts.max().unwrap_or(u32::MAX);
        let mut statement = self.connection.prepare_cached(
            "SELECT prerequisite_id, first_position, batch_id, part, on_failure, positions FROM edge \
             WHERE prerequisite_id = ?1 AND first_position <= ?2",
        )?;
        let mut rows = statement.query(params![ended.batch.0, last])?;
        let mut edges = Vec::new();
        while let Some(row) = rows.next()? {
            let on_failure: String = row.get(4)?;
            let positions: Option<String> = row.get(5)?;
            edges.push(StoredEdge {
                prerequisite: BatchId(row.get(0)?),
                first_position: row.get(1)?,
                batch: BatchId(row.get(2)?),
                part: row.get(3)?,
                policy: read_policy(&on_failure)?,
                positions: positions.map(|text| text.parse()).transpose()?,
            });
        }
        Ok(edges)
    }

    fn delete_edge(&self, edge: &StoredEdge, policy: &str) -> Result<bool> {
        let deleted = self.execute(
            "DELETE FROM edge WHERE prerequisite_id = ?1 AND first_position = ?2 AND batch_id = ?3 AND part = ?4 \
             AND on_failure = ?5",
            params![
                edge.prerequisite.0,
                edge.first_position,
                edge.batch.0,
                edge.part,
                policy
            ],
        )?;
        Ok(deleted > 0)
    }

    /// How the jobs at an edge have ended; `None` while some are open. Looks up all ended jobs of their batch once, and
    /// only if the ones that ended now do not decide.
    fn is_met(
        &self,
        edge: &StoredEdge,
        now: &[(JobState, Positions)],
        looked: &mut Option<Endings>,
    ) -> Result<Option<Met>> {
        if let Some(positions) = &edge.positions
            && union(now).contains_all(positions)
        {
            return Ok(Some(met(edge, now)));
        }
        let known = match looked {
            Some(known) => known,
            None => looked.insert(self.endings_of(edge.prerequisite)?),
        };
        let is_met = match &edge.positions {
            Some(positions) => known.ended.contains_all(positions),
            None => known.ended.len() == known.count,
        };
        Ok(is_met.then(|| met(edge, &known.by_state)))
    }

    /// What has ended of a batch that is new.
    pub fn ended_at_once(&self, batch: BatchId) -> Result<Ended> {
        let endings = self.endings_of(batch)?.by_state;
        Ok(Ended { batch, endings })
    }

    /// How the jobs of a batch have ended so far.
    pub fn endings_of(&self, batch: BatchId) -> Result<Endings> {
        let count = self.row("SELECT count FROM batch WHERE id = ?1", [batch.0], |row| {
            row.get(0)
        })?;
        let mut by_state: Vec<(JobState, Positions)> = Vec::new();
        let mut statement = self
            .connection
            .prepare_cached("SELECT state, positions FROM report WHERE id BETWEEN ?1 AND ?2")?;
        let mut rows = statement.query([report_id(batch, 0), report_id(BatchId(batch.0 + 1), 0) - 1])?;
        while let Some(row) = rows.next()? {
            let (state, positions) = (read_state(row, 0)?, read_positions(row, 1)?);
            match by_state.iter_mut().find(|(other, _)| *other == state) {
                Some((_, all)) => *all = all.union(&positions),
                None => by_state.push((state, positions)),
            }
        }
        Ok(Endings {
            ended: union(&by_state),
            by_state,
            count: count.unwrap_or(0),
        })
    }

    /// Makes the end of a batch submit the job of its hook.
    pub fn await_end(&self, batch: BatchId) -> Result<()> {
        self.execute(
            "INSERT INTO edge (prerequisite_id, first_position, batch_id, part, on_failure) VALUES (?1, 0, ?1, ?2, ?3)",
            params![batch.0, HOOK_PART, HOOK],
        )?;
        Ok(())
    }

    /// Stores the job of a batch's hook once all jobs of the batch have ended.
    fn settle_hook(&mut self, edge: &StoredEdge) -> Result<()> {
        // There are few rows of open jobs, but there may be many reports.
        let batch = edge.prerequisite;
        if !self.open_of(batch)?.is_empty() || !self.delete_edge(edge, HOOK)? {
            return Ok(());
        }
        let head = self.head(batch)?;
        let lane = self.lane_of(batch, head.lane_id)?;
        let ended = EndedBatch {
            batch,
            kind: &lane.kind,
            queue: &lane.queue,
            submitted_at: head.submitted_at,
            options: &head.options,
        };
        let by_state = self.endings_of(batch)?.by_state.into_iter();
        let counts = by_state.map(|(state, positions)| (state, u64::from(positions.len())));
        if let Some(hook) = ended.hook(counts, self.now)? {
            self.insert_batch(&hook, &hook.payloads, None, &[], &[])?;
        }
        Ok(())
    }

    /// Makes waiting jobs claimable once they have no edge left.
    fn unblock(&mut self, edge: &StoredEdge) -> Result<()> {
        match self.blocked_part(edge)? {
            Some(blocked) if blocked.pauses.is_none() => self.let_be_claimed(&blocked),
            _ => Ok(()),
        }
    }

    /// Makes jobs claimable that nothing holds back, unless they still wait for others.
    pub fn let_be_claimed(&mut self, blocked: &Blocked) -> Result<()> {
        let waits_on: bool = self
            .row(
                "SELECT EXISTS (SELECT 1 FROM edge WHERE batch_id = ?1 AND part = ?2)",
                params![blocked.batch.0, blocked.part],
                |row| row.get(0),
            )?
            .unwrap_or(false);
        let head = self.head(blocked.batch)?;
        if waits_on || head.options.signal.is_some() {
            return Ok(());
        }
        self.shorten_blocked(blocked, &Positions::new())?;
        let slice = NewSlice {
            positions: &blocked.positions,
            rank: blocked.rank.map_or(head.rank(), i64::from),
            run_at: blocked.run_at.unwrap_or(head.run_at),
            attempt: blocked.attempt,
            rescues: blocked.rescues,
            expires_at: blocked.expires_at,
            family: blocked.family,
        };
        self.insert_slice(blocked.batch, &head, &slice)
    }

    /// Ends jobs whose prerequisites failed.
    fn end_blocked(
        &mut self,
        edge: &StoredEdge,
        on_failure: OnFailure,
        job: JobId,
        state: JobState,
    ) -> Result<Option<Ended>> {
        let Some(blocked) = self.blocked_part(edge)? else {
            return Ok(None);
        };
        self.shorten_blocked(&blocked, &Positions::new())?;
        // Dead on the attempt that it waited for, not on attempt 0: unlike a rejected job, it can be retried.
        let ending = match on_failure {
            OnFailure::Fail => Ending::of(JobState::Dead, blocked.attempt),
            OnFailure::Cancel | OnFailure::Ignore => Ending::of(JobState::Cancelled, blocked.attempt - 1),
        };
        if ending.state == JobState::Dead {
            let error = prerequisite_failed(job, state);
            for position in blocked.positions.iter() {
                self.insert_failure(blocked.batch, &FailedAttempt::unreported(position, 0, 0, &error))?;
            }
        }
        self.end_jobs(blocked.batch, &blocked.positions, &ending)?;
        if ending.state == JobState::Cancelled
            && let Some(first) = blocked.positions.first()
        {
            // A cancelled job has no failure that names the prerequisite.
            let cause = serde_json::to_string(&FailedPrerequisite { job, state })?;
            self.execute(
                "UPDATE report SET cause = ?2 WHERE id = ?1",
                params![report_id(blocked.batch, first), cause],
            )?;
        }
        Ok(Some(Ended {
            batch: blocked.batch,
            endings: vec![(ending.state, blocked.positions)],
        }))
    }

    pub fn blocked_part(&self, edge: &StoredEdge) -> Result<Option<Blocked>> {
        let all = self.blocked_of(edge.batch)?;
        Ok(all.into_iter().find(|blocked| blocked.part == edge.part))
    }
}

fn read_policy(text: &str) -> Result<Policy> {
    match text {
        CHILDREN => Ok(Policy::Children),
        HOOK => Ok(Policy::Hook),
        policy => match policy.parse() {
            Ok(policy) => Ok(Policy::Dependency(policy)),
            Err(error) => Err(Failure::Damaged(format!("an edge: {error}"))),
        },
    }
}

/// How the jobs of a batch have ended.
#[derive(Debug)]
pub(crate) struct Endings {
    pub by_state: Vec<(JobState, Positions)>,
    ended: Positions,
    /// The number of jobs in the batch.
    count: u32,
}

/// All of these positions.
pub(crate) fn union(endings: &[(JobState, Positions)]) -> Positions {
    let mut all = Positions::new();
    for (_, positions) in endings {
        all = all.union(positions);
    }
    all
}

fn met(edge: &StoredEdge, endings: &[(JobState, Positions)]) -> Met {
    let unsuccessful = endings.iter().filter(|(state, _)| *state != JobState::Completed);
    let first = unsuccessful.filter_map(|(state, positions)| {
        let first = match &edge.positions {
            Some(meant) => positions.intersection(meant).first(),
            None => positions.first(),
        };
        first.map(|position| (position, *state))
    });
    match first.min_by_key(|(position, _)| *position) {
        None => Met::Completed,
        Some((position, state)) => Met::Not(
            JobId {
                batch: edge.prerequisite,
                position,
            },
            state,
        ),
    }
}
