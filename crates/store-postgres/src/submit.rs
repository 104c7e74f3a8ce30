//! Stores batches.
//!
//! Submits are committed in groups: submits that come while others are in progress go into the next group. An invalid
//! submit is refused alone; if the database refuses a group, each submit is retried alone.

pub(crate) mod cache;
pub(crate) mod debounce;
pub(crate) mod keys;
pub(crate) mod lanes;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod single_statement_submit;
pub(crate) mod single_statement_submit_claimed;

use std::collections::HashSet;
use std::sync::Arc;

use deadpool_postgres::ClientWrapper;
use futures::FutureExt;
use gristmill_batching::{Committer, EndReason, Group, GroupCommitError, Responder};
use gristmill_model::{
    BatchId, BatchOptions, JobId, JobState, NewBatch, PackedArray, Positions, Prerequisite, Tag, Timestamp,
};
use gristmill_store::hook::lanes_of_hooks;
use gristmill_store::options::{options_text, stored_options};
use gristmill_store::rules::cache::Hits;
use gristmill_store::rules::contents::Content;
use gristmill_store::rules::dependency::{Beginning, WaitingJobs, stored_prerequisites};
use gristmill_store::rules::ending::{Ending, FailedAttempt};
use gristmill_store::rules::family::flow::{BEGINNING, beginning};
use gristmill_store::rules::lanes::LaneName;
use gristmill_store::rules::pack::{Merge, merge, packed};
use gristmill_store::{RunAdvance, StoreError};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

use crate::PostgresStore;
use crate::database::Database;
use crate::database::handle_cache::{BatchHead, lock};
use crate::database::pools::Purpose;
use crate::database::rows::NewSlice;
use crate::database::transaction::{Durability, Transaction};
use crate::database::writes::{NewBatchRow, Writes};
use crate::failure::{Failure, Result};
use crate::graph::dependency::{Ended, check_prerequisites};
use crate::limits::{SUBMITS_UNDER_WAY_MAX, TEXT_BYTES_MAX};

/// The approximate size of a small submit. Bytes.
const SUBMIT_BYTES: usize = 200;

/// A submit of a caller.
#[derive(Debug)]
pub(crate) enum Submit {
    /// A single job, to be packed with others.
    Single(Box<NewBatch>),
    /// Batches, all or none.
    Batches(Vec<NewBatch>, Option<RunAdvance>),
}

impl PostgresStore {
    /// Hands a submit to the task that commits groups of them, and waits for its answer.
    pub(crate) async fn hand_over(&self, submit: Submit, bytes: usize) -> SubmitReply {
        let submitter = lock(&self.submitter).clone();
        let submitter = submitter.ok_or(StoreError::Closed)?;
        match submitter.submit(submit, bytes + SUBMIT_BYTES).await {
            Ok(reply) => reply,
            Err(GroupCommitError::Closed) => Err(StoreError::Closed),
            Err(GroupCommitError::Abandoned) => Err(StoreError::Panicked(
                "a submit was given up in the middle of its transaction".to_owned(),
            )),
        }
    }
}

/// The answer to a submit.
#[derive(Debug)]
pub(crate) enum Submitted {
    Single(JobId),
    Batches(Vec<BatchId>),
}

pub(crate) type SubmitReply = std::result::Result<Submitted, StoreError>;

/// Batches that are stored as a whole.
#[derive(Debug)]
struct Unit {
    batches: Vec<NewBatch>,
    advance: Option<RunAdvance>,
}

/// The callers that wait for a unit.
#[derive(Debug)]
enum Waiting {
    /// One caller for each job.
    Singles(Vec<Responder<SubmitReply>>),
    Batches(Responder<SubmitReply>),
}

/// The result of a unit.
type Outcome = std::result::Result<Vec<BatchId>, StoreError>;

/// Commits one group of submits after the other, until all handles are gone or the store is closed.
pub(crate) async fn commit_groups(database: Arc<Database>, mut committer: Committer<Submit, SubmitReply>) {
    let under_way = Arc::new(Semaphore::new(SUBMITS_UNDER_WAY_MAX));
    // A run advances in the order of the calls.
    let advances = Arc::new(Mutex::new(()));
    while let Ok(permit) = under_way.clone().acquire_owned().await
        && let Some(group) = committer.next_group_async().await
    {
        let mut in_order = None;
        let (units, waiting) = units(group);
        if units.iter().any(|unit| unit.advance.is_some()) {
            in_order = Some(advances.clone().lock_owned().await);
        }
        assert_eq!(units.len(), waiting.len(), "each unit has a caller");
        let database = database.clone();
        tokio::spawn(async move {
            let outcomes = carry_out(&database, units).await;
            drop((permit, in_order));
            for (waiting, outcome) in waiting.into_iter().zip(outcomes) {
                if let (Waiting::Singles(singles), Ok(_)) = (&waiting, &outcome) {
                    // The submits were packed as they had gathered; there were no more.
                    let mut hops = database.cache.hops();
                    hops.record("submit", singles.len(), EndReason::Drained);
                }
                waiting.answer(outcome);
            }
        });
    }
    // Current submits are answered before the store counts as closed.
    let all = u32::try_from(SUBMITS_UNDER_WAY_MAX).unwrap_or(u32::MAX);
    drop(under_way.acquire_many(all).await);
}

/// Packs the submits that can be packed.
fn units(group: Group<Submit, SubmitReply>) -> (Vec<Unit>, Vec<Waiting>) {
    let mut merges: Vec<Merge<Responder<SubmitReply>>> = Vec::new();
    let (mut units, mut waiting) = (Vec::new(), Vec::new());
    for (submit, responder) in group {
        match submit {
            Submit::Single(single) => merge(&mut merges, *single, responder),
            Submit::Batches(batches, advance) => {
                units.push(Unit { batches, advance });
                waiting.push(Waiting::Batches(responder));
            }
        }
    }
    for mut merge in merges {
        let payloads = packed(&merge.singles);
        assert_eq!(
            payloads.count() as usize,
            merge.waiting.len(),
            "each caller of a packed batch has a job in it"
        );
        let batch = NewBatch {
            payloads,
            ..merge.singles.swap_remove(0)
        };
        units.push(Unit {
            batches: vec![batch],
            advance: None,
        });
        waiting.push(Waiting::Singles(merge.waiting));
    }
    (units, waiting)
}

impl Waiting {
    fn answer(self, outcome: Outcome) {
        match (self, outcome) {
            (Waiting::Batches(responder), outcome) => responder.reply(outcome.map(Submitted::Batches)),
            (Waiting::Singles(responders), Ok(batches)) => {
                assert_eq!(batches.len(), 1, "packed jobs are one batch");
                for (responder, position) in responders.into_iter().zip(0..) {
                    let batch = batches[0];
                    responder.reply(Ok(Submitted::Single(JobId { batch, position })));
                }
            }
            (Waiting::Singles(responders), Err(error)) => {
                for responder in responders {
                    responder.reply(Err(error.clone()));
                }
            }
        }
    }
}

/// Stores all units in one transaction, or each in its own if that fails.
async fn carry_out(database: &Arc<Database>, units: Vec<Unit>) -> Vec<Outcome> {
    let mut refusals = Vec::with_capacity(units.len());
    for unit in &units {
        refusals.push(database.prepare(&unit.batches).await.err());
    }
    let accepted: Vec<Arc<Unit>> = units
        .into_iter()
        .zip(&refusals)
        .filter(|(_, refusal)| refusal.is_none())
        .map(|(unit, _)| Arc::new(unit))
        .collect();
    let mut outcomes = match store(database, accepted.clone()).await {
        Ok(outcomes) => outcomes,
        Err(error) if accepted.len() == 1 || is_lasting(&error) => vec![Err(error); accepted.len()],
        Err(error) => {
            tracing::warn!(%error, units = accepted.len(), "a transaction was rolled back, its parts are tried one by one");
            let mut outcomes = Vec::new();
            for unit in accepted {
                outcomes.push(match store(database, vec![unit]).await {
                    Ok(mut outcome) => outcome.remove(0),
                    Err(error) => Err(error),
                });
            }
            outcomes
        }
    }
    .into_iter();
    let missing = || StoreError::Database("a submit was left without an answer".to_owned());
    refusals
        .into_iter()
        .map(|refusal| match refusal {
            Some(refusal) => Err(refusal),
            None => outcomes.next().unwrap_or_else(|| Err(missing())),
        })
        .collect()
}

/// Reports whether the parts of a group would meet the same error.
fn is_lasting(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Unreachable { .. } | StoreError::Unknown { .. } | StoreError::Closed
    )
}

/// Refuses texts that PostgreSQL cannot store.
pub(crate) fn check_texts(batch: &NewBatch) -> std::result::Result<(), StoreError> {
    let payloads = batch.payloads.as_str();
    if payloads.len() > TEXT_BYTES_MAX {
        return Err(StoreError::InvalidInput(format!(
            "a batch's payloads are {} bytes, and one row of PostgreSQL holds {TEXT_BYTES_MAX}: send them in smaller \
             batches",
            payloads.len()
        )));
    }
    let memos = batch.memos.as_ref().map_or("", PackedArray::as_str);
    if payloads.contains('\0') || memos.contains('\0') {
        Err(StoreError::InvalidInput(
            "a payload or a memo has a NUL character in it, which JSON writes as \\u0000".to_owned(),
        ))
    } else {
        Ok(())
    }
}

impl Database {
    /// Makes the new lanes of batches before they wait in line with others: a new lane may have to wait for the
    /// transaction of a SQL client. Works for one caller at a time, so that others find the same lanes made.
    pub async fn prepare_lanes(&self, batches: &[NewBatch]) -> std::result::Result<(), StoreError> {
        if self.knows_lanes(batches) {
            return Ok(());
        }
        // The wait for the turn counts, so that all waiters give up after the same time.
        let deadline = Instant::now() + self.lock_wait;
        let Ok(_turn) = tokio::time::timeout_at(deadline, self.new_lanes.lock()).await else {
            return Err(StoreError::Locked {
                path: self.address.as_str().into(),
                waited_ms: u64::try_from(self.lock_wait.as_millis()).unwrap_or(u64::MAX),
            });
        };
        if !self.knows_lanes(batches) {
            self.prepare_by(batches, deadline).await?;
        }
        Ok(())
    }

    fn knows_lanes(&self, batches: &[NewBatch]) -> bool {
        let lanes = self.cache.lanes();
        names(batches).all(|name| lanes.find(name).is_some())
    }

    /// Makes missing lanes of batches, and checks their texts for PostgreSQL.
    pub async fn prepare(&self, batches: &[NewBatch]) -> std::result::Result<(), StoreError> {
        self.prepare_by(batches, Instant::now() + self.lock_wait).await
    }

    async fn prepare_by(
        &self,
        batches: &[NewBatch],
        deadline: Instant,
    ) -> std::result::Result<(), StoreError> {
        batches.iter().try_for_each(check_texts)?;
        self.intern_lanes(names(batches), deadline).await
    }
}

/// The lanes that batches need, including those of their hooks.
fn names(batches: &[NewBatch]) -> impl Iterator<Item = LaneName<'_>> {
    batches
        .iter()
        .flat_map(|batch| lanes_of_hooks(batch).chain([LaneName::of(batch)]))
}

async fn store(
    database: &Arc<Database>,
    units: Vec<Arc<Unit>>,
) -> std::result::Result<Vec<Outcome>, StoreError> {
    let lone = match lone(&units) {
        Some(batch) => database.submit_lone(batch).await?,
        None => None,
    };
    let stored = match lone {
        _ if units.is_empty() => Vec::new(),
        Some(stored) => vec![Ok(vec![stored])],
        None => {
            let work = units.clone();
            database
                .write(Purpose::Work, Durability::Promised, move |transaction| {
                    let units = work.clone();
                    async move { transaction.submit(&units).await }.boxed()
                })
                .await?
        }
    };
    assert_eq!(stored.len(), units.len(), "each unit has an outcome");
    let mut outcomes = Vec::with_capacity(units.len());
    for (unit, stored) in units.iter().zip(stored) {
        outcomes.push(stored.map(|stored| {
            assert_eq!(stored.len(), unit.batches.len(), "each batch of a unit has an id");
            let batches = unit.batches.iter().zip(stored);
            batches
                .map(|(batch, (id, head))| {
                    let content = Content::new(Arc::new(head), Some(batch.payloads.clone()));
                    database.cache.keep(id, content);
                    id
                })
                .collect()
        }));
    }
    Ok(outcomes)
}

/// The only batch of all units, if it needs no more than [`Database::submit_lone`].
fn lone(units: &[Arc<Unit>]) -> Option<&NewBatch> {
    match units {
        [unit] if unit.advance.is_none() => match unit.batches.as_slice() {
            [batch] if is_lone(batch) => Some(batch),
            _ => None,
        },
        _ => None,
    }
}

type Stored = std::result::Result<Vec<(BatchId, BatchHead)>, StoreError>;

/// The data that is stored with a batch besides its own contents.
#[derive(Debug, Default)]
pub(crate) struct Circumstances<'a> {
    pub run: Option<i64>,
    /// The ids of the earlier batches in its submit.
    pub earlier: &'a [BatchId],
    /// Whether a later batch waits for it.
    pub is_awaited: bool,
    /// Jobs that wait for more prerequisites than the batch names.
    pub waiting: &'a [WaitingJobs],
    /// The bytes of its jobs' keys.
    pub key_bytes: usize,
    /// The cached values of its jobs.
    pub hits: Hits,
}

impl Transaction {
    /// Stores units, and advances their runs. A unit whose run is unknown is refused alone.
    async fn submit(&mut self, units: &[Arc<Unit>]) -> Result<Vec<Stored>> {
        let mut refusals = Vec::with_capacity(units.len());
        for unit in units {
            refusals.push(match &unit.advance {
                None => None,
                Some(advance) => match self.advance_run(advance).await {
                    Ok(()) => None,
                    Err(Failure::Refused(error)) => Some(error),
                    Err(failure) => return Err(failure),
                },
            });
        }
        let stored = self.lock_all_prerequisites(units, &mut refusals).await?;
        let accepted = units
            .iter()
            .zip(&refusals)
            .filter(|(_, refusal)| refusal.is_none());
        let count = accepted.map(|(unit, _)| unit.batches.len()).sum();
        // After the runs are locked, so that the ids of a run's batches ascend in the order of commits.
        let mut ids = self.next_batch_ids(count).await?.into_iter();
        let mut answers = Vec::with_capacity(units.len());
        let mut ended = Ended::default();
        for (unit, refusal) in units.iter().zip(refusals) {
            answers.push(match refusal {
                Some(refusal) => Err(refusal),
                None => Ok(self.insert_unit(unit, &mut ids, &mut ended).await?),
            });
        }
        assert!(ids.next().is_none(), "each id of a batch is used");
        if !stored.is_empty() {
            self.flush().await?;
            self.await_batches(&stored).await?;
            stored.iter().for_each(|batch| ended.add_all(BatchId(*batch)));
        }
        self.settle(ended).await?;
        Ok(answers)
    }

    /// Locks the prerequisites of the units. Refuses a unit with a missing prerequisite. Returns the stored batches.
    async fn lock_all_prerequisites(
        &self,
        units: &[Arc<Unit>],
        refusals: &mut [Option<StoreError>],
    ) -> Result<Vec<i64>> {
        let batches = units.iter().flat_map(|unit| &unit.batches);
        let stored = stored_prerequisites(batches);
        if stored.is_empty() {
            return Ok(Vec::new());
        }
        let mut stored: Vec<i64> = stored.into_keys().map(|batch| batch.0).collect();
        let counts = self.lock_prerequisites(&stored).await?;
        for (unit, refusal) in units.iter().zip(refusals) {
            if let (None, Err(error)) = (&refusal, check_prerequisites(unit.batches.iter(), &counts)) {
                // Its run has already advanced.
                if unit.advance.is_some() {
                    return Err(error.into());
                }
                *refusal = Some(error);
            }
        }
        stored.retain(|batch| counts.contains_key(&BatchId(*batch)));
        Ok(stored)
    }

    /// New ids, ascending.
    pub async fn next_batch_ids(&self, count: usize) -> Result<Vec<BatchId>> {
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let rows = self
            .query(
                "SELECT nextval('gristmill.batch_id') FROM generate_series(1, $1::integer)",
                &[&count],
            )
            .await?;
        let ids = rows.iter().map(|row| Ok(BatchId(row.try_get(0)?)));
        let ids: Vec<BatchId> = ids.collect::<Result<_>>()?;
        assert!(ids.is_sorted_by(|id, next| id < next), "ids of batches ascend");
        Ok(ids)
    }

    async fn insert_unit(
        &mut self,
        unit: &Unit,
        ids: &mut (impl Iterator<Item = BatchId> + Send),
        ended: &mut Ended,
    ) -> Result<Vec<(BatchId, BatchHead)>> {
        let run = unit.advance.as_ref().map(|advance| advance.run.0);
        let mut stored = Vec::with_capacity(unit.batches.len());
        let mut earlier = Vec::with_capacity(unit.batches.len());
        let awaited = awaited(unit.batches.iter());
        for (place, batch) in unit.batches.iter().enumerate() {
            let id = ids
                .next()
                .ok_or_else(|| Failure::Damaged("the sequence of batches gave too few ids".to_owned()))?;
            let is_awaited = awaited.contains(&place);
            let is_watched = is_awaited || batch.options.hooks.is_some();
            if is_watched && may_be_over(batch) {
                ended.add_all(id);
            }
            let circumstances = Circumstances {
                run,
                earlier: &earlier,
                is_awaited,
                waiting: &[],
                key_bytes: 0,
                hits: self.hits(batch).await?,
            };
            let lane = self.lane(LaneName::of(batch))?;
            let head = self.writes.submit(self.now, id, lane, batch, circumstances)?;
            assert!(earlier.last().is_none_or(|last| *last < id), "ids ascend");
            earlier.push(id);
            stored.push((id, head));
        }
        Ok(stored)
    }

    /// Stores a batch that waits for nothing and that nothing waits for.
    pub fn insert_batch(&mut self, id: BatchId, batch: &NewBatch) -> Result<()> {
        let lane = self.lane(LaneName::of(batch))?;
        self.writes
            .submit(self.now, id, lane, batch, Circumstances::default())?;
        Ok(())
    }
}

impl Writes {
    /// Stores a batch in this lane.
    pub fn submit(
        &mut self,
        now: Timestamp,
        id: BatchId,
        lane_id: i64,
        batch: &NewBatch,
        circumstances: Circumstances<'_>,
    ) -> Result<BatchHead> {
        let Circumstances {
            run,
            earlier,
            is_awaited,
            waiting,
            key_bytes,
            hits,
        } = circumstances;
        let head = BatchHead {
            job_bytes: job_bytes(batch, key_bytes),
            options: stored_options(batch, earlier).into_owned(),
            ..head_of(batch, lane_id, now)
        };
        self.insert_batch(NewBatchRow {
            id,
            run,
            head: &head,
            options: options_text(&head.options, !batch.tags.is_empty())?,
            payloads: &batch.payloads,
        });
        let count = batch.payloads.count();
        self.insert_tags(id, count, &batch.tags);
        if let Some(flows) = beginning(batch) {
            self.insert_suspension(id, BEGINNING, &flows);
        }
        let mut positions = Positions::all(count);
        if !batch.rejected.is_empty() {
            positions = positions.difference(&self.bury_rejected(now, id, batch)?);
        }
        if let Some((answered, ending)) = hits.ending(batch)? {
            self.insert_report(now, id, &answered, ending);
            positions = positions.difference(&answered);
        }
        let has_hooks = batch.options.hooks.is_some();
        if has_hooks {
            self.await_end(id);
        }
        let is_awaited = is_awaited || has_hooks;
        let begins = Beginning::of(id, batch, earlier, waiting, positions);
        for (part, edges) in &begins.blocked {
            self.block(part, edges);
        }
        if let Some(positions) = &begins.claimable {
            self.insert_slice(
                id,
                &head,
                NewSlice {
                    positions,
                    rank: head.rank(),
                    run_at: head.run_at,
                    attempt: 1,
                    rescues: 0,
                    expires_at: batch.options.expires_at,
                    is_awaited,
                    family: batch.memos.as_ref().map(|_| BEGINNING),
                },
            );
        }
        Ok(head)
    }

    /// Ends jobs that cannot run as dead.
    fn bury_rejected(&mut self, now: Timestamp, id: BatchId, batch: &NewBatch) -> Result<Positions> {
        let positions: Positions = batch.rejected.iter().map(|rejected| rejected.position).collect();
        for rejected in &batch.rejected {
            let failed = FailedAttempt::unreported(rejected.position, 0, 0, &rejected.error);
            self.insert_failure(now, id, &failed)?;
        }
        let ending = Ending::of(JobState::Dead, 0);
        self.insert_report(now, id, &positions, ending);
        Ok(positions)
    }
}

/// The time of the last submit.
pub(crate) async fn last_submit(client: &ClientWrapper) -> Result<Option<i64>> {
    let sql = "SELECT submitted_at FROM gristmill.batch ORDER BY id DESC LIMIT 1";
    let row = client.query_typed_opt(sql, &[]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// Reports whether some jobs of a batch may have ended as soon as it is stored.
pub(crate) fn may_be_over(batch: &NewBatch) -> bool {
    !batch.rejected.is_empty() || batch.options.cached_ms.is_some()
}

/// The head of a batch that is stored now.
pub(crate) fn head_of(batch: &NewBatch, lane_id: i64, now: Timestamp) -> BatchHead {
    BatchHead {
        lane_id,
        priority: batch.options.priority,
        submitted_at: now,
        run_at: batch.options.run_at.unwrap_or(now),
        options: batch.options.clone(),
        tagged: !batch.tags.is_empty(),
        job_bytes: job_bytes(batch, 0),
    }
}

/// The places in a submit of the batches that other batches of it wait for.
pub(crate) fn awaited<'a>(batches: impl Iterator<Item = &'a NewBatch>) -> HashSet<usize> {
    let after = batches.flat_map(|batch| &batch.after);
    let places = after.filter_map(|after| match after.prerequisite {
        Prerequisite::Earlier(place) => Some(place),
        Prerequisite::Batch(_) => None,
    });
    places.collect()
}

/// The mean bytes of one job, as `gristmill.batch_bytes` counts them.
fn job_bytes(batch: &NewBatch, key_bytes: usize) -> u32 {
    let tags = batch.tags.iter().map(Tag::weight_bytes);
    let bytes = batch.payloads.as_str().len() + key_bytes + tags.sum::<usize>();
    let mean = bytes / batch.payloads.count().max(1) as usize;
    u32::try_from(mean.max(1)).unwrap_or(u32::MAX)
}

/// Reports whether a batch needs only two rows. It names all fields of a batch, so that nobody forgets to check a new one.
fn is_lone(batch: &NewBatch) -> bool {
    let NewBatch {
        kind: _,
        queue: _,
        payloads: _,
        options,
        rejected,
        after,
        tags,
        memos,
    } = batch;
    let BatchOptions {
        priority: _,
        run_at: _,
        expires_at: _,
        timeout_ms: _,
        complete_within_ms: _,
        cached_ms,
        retry: _,
        unique,
        // It is part of the lane's name.
        group: _,
        hooks,
        signal,
        // Only a batch that is not submitted anew has them without `after`.
        prerequisites: _,
        traceparent: _,
    } = options;
    rejected.is_empty()
        && after.is_empty()
        && tags.is_empty()
        && unique.is_none()
        && cached_ms.is_none()
        && hooks.is_none()
        && signal.is_none()
        && memos.is_none()
}
