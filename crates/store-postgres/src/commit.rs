//! Commits reports.
//!
//! Nearly all reports complete positions that their lease still holds. One statement accepts all of these, and COMMIT
//! stores them. The others (failures, released jobs, reports whose lease lost some positions) are handled one by one,
//! with their rows of `held` locked.

pub(crate) mod compaction;
pub(crate) mod exchange;
pub(crate) mod exchange_group;

use std::collections::HashMap;
use std::sync::Arc;

use gristmill_model::{BatchId, JobState, LeaseId, Positions, Receipt, Report, Suspended, WorkerId};
use gristmill_store::StoreError;
use gristmill_store::rules::deadline::began_at;
use gristmill_store::rules::ending::{Ending, Failed, is_simple};
use gristmill_store::rules::open::Held;
use gristmill_store::rules::report_write::{FailedExtras, packed, with_failures, write_failed, writing};
use tokio_postgres::Row;

use crate::PostgresStore;
use crate::database::answers::Pending;
use crate::database::connection::Param;
use crate::database::handle_cache::{BatchHead, lock};
use crate::database::rows::NewSlice;
use crate::database::transaction::Transaction;
use crate::failure::{Failure, Remedy, Result};
use crate::graph::dependency::Ended;
use crate::graph::family::{EndedParents, Origins, Spawning};
use crate::graph::siblings::Spread;
use crate::limits::TEXT_BYTES_MAX;
use crate::multirange::Multirange;

/// Takes the positions `$5` out of the leases `$2` of the batches `$3` on the attempts `$4`, as far as the worker `$1`
/// holds all of a report's by one row. Flows that may leave children open are not among them.
/// Says which reports those were, counted from 1, and whether others wait for them.
const TAKE: &str = "WITH reported AS MATERIALIZED ( \
     SELECT * FROM unnest($2::bigint[], $3::bigint[], $4::integer[], $5::int4multirange[], $6::integer[]) \
     WITH ORDINALITY r (lease_id, batch_id, attempt, positions, count, number)), \
     gone AS (DELETE FROM gristmill.held h USING reported r WHERE h.lease_id = r.lease_id AND h.batch_id = r.batch_id \
     AND h.attempt = r.attempt AND h.worker_id = $1 AND h.positions = r.positions \
     AND (h.family IS NULL OR NOT gristmill.wakes_on_any(h.batch_id, h.family)) RETURNING r.number, h.awaited), \
     cut AS (UPDATE gristmill.held h SET positions = h.positions - r.positions, count = h.count - r.count FROM reported r \
     WHERE h.lease_id = r.lease_id AND h.batch_id = r.batch_id AND h.attempt = r.attempt AND h.worker_id = $1 \
     AND h.positions @> r.positions AND h.positions <> r.positions \
     AND (h.family IS NULL OR NOT gristmill.wakes_on_any(h.batch_id, h.family)) RETURNING r.number, h.awaited) \
     SELECT number, awaited FROM gone UNION ALL SELECT number, awaited FROM cut";

/// Refuses texts that PostgreSQL cannot store.
pub(crate) fn check_texts(report: &Report) -> std::result::Result<(), StoreError> {
    for suspended in &report.suspended {
        if suspended.memos.as_str().contains('\0') {
            return Err(StoreError::InvalidInput(format!(
                "a report of batch {} under lease {} has a memo with a NUL character in it, which JSON writes as \\u0000",
                report.batch, report.lease
            )));
        }
    }
    let Some(completed) = &report.completed else {
        return Ok(());
    };
    let values = completed.values.as_str();
    let place = format!("a report of batch {} under lease {}", report.batch, report.lease);
    if values.len() > TEXT_BYTES_MAX {
        return Err(StoreError::InvalidInput(format!(
            "{place} has {} bytes of values, and one row of PostgreSQL holds {TEXT_BYTES_MAX}: report in smaller parts",
            values.len()
        )));
    }
    if values.contains('\0') {
        Err(StoreError::InvalidInput(format!(
            "{place} has a value with a NUL character in it, which JSON writes as \\u0000"
        )))
    } else {
        Ok(())
    }
}

impl PostgresStore {
    /// Commits what was handed over, and closes the connections.
    pub(crate) async fn end_commits(&self) -> std::result::Result<(), StoreError> {
        drop(lock(&self.submitter).take());
        self.exchanger.close();
        let committing = std::mem::take(&mut *lock(&self.committing));
        let committed = futures::future::try_join_all(committing).await;
        self.database.close().await;
        match committed {
            Ok(_) => Ok(()),
            Err(_) => Err(StoreError::Panicked(
                "a task that commits submits or exchanges is gone".to_owned(),
            )),
        }
    }
}

impl Transaction {
    /// Sends the simple ones of these reports, to be accepted at once if possible.
    pub async fn send_reports(&self, worker: WorkerId, reports: &[&Report]) -> Result<Pending<Vec<Row>>> {
        let positions: Vec<Positions> = reports.iter().map(|report| report.positions()).collect();
        let params: Vec<Param> = vec![
            Box::new(worker.0),
            Box::new(reports.iter().map(|report| report.lease.0).collect::<Vec<_>>()),
            Box::new(reports.iter().map(|report| report.batch.0).collect::<Vec<_>>()),
            Box::new(
                reports
                    .iter()
                    .map(|report| report.attempt.cast_signed())
                    .collect::<Vec<_>>(),
            ),
            Box::new(positions.iter().cloned().map(Multirange).collect::<Vec<_>>()),
            Box::new(
                positions
                    .iter()
                    .map(|positions| positions.len().cast_signed())
                    .collect::<Vec<_>>(),
            ),
        ];
        self.send(TAKE, params).await
    }

    /// Stores a report that was accepted as a whole.
    pub fn store_completed(&mut self, worker: Option<&Arc<str>>, report: &Report) -> Result<Receipt> {
        self.freed();
        let accepted = report.positions();
        self.insert_completed(&accepted, worker, report)?;
        Ok(Receipt {
            accepted,
            ..Receipt::default()
        })
    }

    /// Commits the jobs of these reports that the leases still hold, and refuses the rest.
    pub async fn commit_reports(
        &mut self,
        worker: WorkerId,
        worker_name: Option<&Arc<str>>,
        reports: &[&Report],
        origins: &Origins,
        ended: &mut Ended,
    ) -> Result<Vec<Receipt>> {
        if reports.is_empty() {
            return Ok(Vec::new());
        }
        let mut back: Vec<BatchId> = reports
            .iter()
            .filter(|report| !is_simple(report))
            .map(|report| report.batch)
            .collect();
        // Parents of new siblings are locked against changes; their jobs can still end.
        let spread = reports.iter().filter(|report| !report.siblings.is_empty());
        let parentages = spread.filter_map(|report| origins.parentage(report.batch));
        back.extend(parentages.map(|parentage| parentage.batch));
        let leaves_open = self.lock_reported(worker, reports, &back).await?;
        let heads = self.heads(&back).await?;
        let keys: Vec<(LeaseId, BatchId, u32)> = reports
            .iter()
            .map(|report| (report.lease, report.batch, report.attempt))
            .collect();
        let mut rows = HeldRows::new(self.held_under(worker, &keys).await?);
        let mut receipts = Vec::with_capacity(reports.len());
        let mut commit = Commit {
            heads: &heads,
            origins,
            worker_name,
            spawning: Vec::new(),
            spread: Vec::new(),
            ended_parents: Vec::new(),
        };
        for report in reports {
            let refused_siblings = self.refused_siblings(report, origins)?;
            let report = with_failures(report, &refused_siblings);
            let failed_writes = if report.writes.is_empty() {
                FailedExtras::new()
            } else {
                self.carry_out_writes(&report, &rows.left_of(&report)).await?
            };
            let report = with_failures(&report, &failed_writes);
            let mut receipt = self.commit_one(&mut rows, &mut commit, &report, ended)?;
            let failed: Positions = failed_writes
                .into_keys()
                .chain(refused_siblings.into_keys())
                .collect();
            receipt.failed = failed.intersection(&receipt.accepted);
            commit.add_siblings(&report, &receipt.accepted);
            receipts.push(receipt);
        }
        assert_eq!(receipts.len(), reports.len(), "each report has a receipt");
        let Commit {
            spawning,
            spread,
            ended_parents,
            ..
        } = commit;
        for (held, rest) in rows.changed() {
            assert!(held.positions.contains_all(rest), "a lease only shrinks");
            self.writes.let_go(held, &held.positions.difference(rest));
        }
        let anew = self.suspend(spawning, ended).await?;
        self.spread(spread, origins, ended).await?;
        if leaves_open {
            self.cancel_left_open(ended_parents, ended).await?;
        }
        self.forget_steps(anew).await?;
        self.freed();
        Ok(receipts)
    }

    /// Carries out the writes of a report's jobs, as far as its lease still holds them. If that fails, it finds the
    /// jobs whose writes fail, and writes nothing of them.
    async fn carry_out_writes(&self, report: &Report, held: &Positions) -> Result<FailedExtras> {
        let mut failed = FailedExtras::new();
        let jobs = writing(report, held);
        if !jobs.is_empty() && self.write_of(report, &jobs).await?.is_some() {
            for position in jobs.iter() {
                let one = Positions::from(position..position + 1);
                if let Some(reason) = self.write_of(report, &one).await? {
                    failed.insert(position, write_failed(&reason));
                }
            }
        }
        Ok(failed)
    }

    /// Carries out the writes of these jobs, all or nothing. Returns the reason of a failure.
    async fn write_of(&self, report: &Report, jobs: &Positions) -> Result<Option<String>> {
        self.command("SAVEPOINT handler").await?;
        for (sql, items) in packed(report, jobs) {
            match self.write_with_json(&sql, &items).await {
                Ok(()) => {}
                // If the connection is lost or another transaction was in the way, the whole operation is retried.
                Err(failure) if failure.remedy() != Remedy::None => return Err(failure),
                Err(failure) => {
                    self.command("ROLLBACK TO handler").await?;
                    return Ok(Some(failure.reason()));
                }
            }
        }
        self.command("RELEASE handler").await?;
        Ok(None)
    }

    fn commit_one(
        &mut self,
        rows: &mut HeldRows,
        commit: &mut Commit<'_>,
        report: &Report,
        ended: &mut Ended,
    ) -> Result<Receipt> {
        let reported = report.positions();
        let mut receipt = Receipt::default();
        for (held, rest) in rows.under(report) {
            let accepted = rest.intersection(&reported);
            if accepted.is_empty() {
                continue;
            }
            debug_assert!(receipt.accepted.is_disjoint(&accepted), "disjoint");
            *rest = rest.difference(&accepted);
            let completed = report.completed.as_ref();
            let mut over = completed.map_or_else(Positions::new, |completed| {
                completed.positions.intersection(&accepted)
            });
            receipt.accepted = receipt.accepted.union(&accepted);
            let (heads, worker_name) = (commit.heads, commit.worker_name);
            let head = || {
                let head = heads.get(&held.batch);
                head.ok_or_else(|| Failure::Damaged(format!("batch {} has leases and no row", held.batch)))
            };
            let released = report.released.intersection(&accepted);
            if !released.is_empty() {
                self.writes
                    .give_back(self.now, held, head()?, &released, held.rescues, held.expires_at);
            }
            if !(report.failed.is_empty() && report.earlier.is_empty()) {
                let dead = self.commit_failures(held, head()?, &accepted, worker_name, report)?;
                over = over.union(&dead);
                receipt.dead = receipt.dead.union(&dead);
            }
            for suspended in &report.suspended {
                if let Some(suspended) = suspended.select(&accepted) {
                    let last = Held {
                        attempt: report.last_attempt(),
                        ..held.clone()
                    };
                    if let (true, Some(family)) = (suspended.begins_anew(), held.family) {
                        let anew = suspended.positions.clone();
                        commit.ended_parents.push((held.batch, family, anew));
                    }
                    let dead = self.commit_suspended(&last, head()?, suspended, commit)?;
                    over = over.union(&dead);
                    receipt.dead = receipt.dead.union(&dead);
                }
            }
            if held.is_awaited {
                ended.add(held.batch, &over);
            }
            if let (Some(family), false) = (held.family, over.is_empty()) {
                commit.ended_parents.push((held.batch, family, over));
            }
        }
        let worker_name = commit.worker_name;
        self.insert_completed(&receipt.accepted, worker_name, report)?;
        let ending = Ending {
            worker: worker_name.cloned(),
            ..Ending::of(JobState::Dead, report.last_attempt())
        };
        self.writes
            .insert_report(self.now, report.batch, &receipt.dead, ending);
        receipt.refused = reported.difference(&receipt.accepted);
        assert!(reported.contains_all(&receipt.accepted), "only they are accepted");
        assert!(receipt.accepted.contains_all(&receipt.dead), "only they die");
        assert_eq!(
            receipt.accepted.len() + receipt.refused.len(),
            reported.len(),
            "each reported job is accepted or refused"
        );
        Ok(receipt)
    }

    /// Makes accepted jobs of one claimed slice wait for children. Returns the jobs that are dead because their
    /// children cannot be stored.
    fn commit_suspended(
        &mut self,
        held: &Held,
        head: &Arc<BatchHead>,
        suspended: Suspended,
        commit: &mut Commit<'_>,
    ) -> Result<Positions> {
        match self.spawning(held, head, suspended, commit.origins)? {
            Ok(spawning) => {
                commit.spawning.push(spawning);
                Ok(Positions::new())
            }
            Err((dead, error)) => {
                let worker = commit.worker_name.map(|name| &**name);
                self.fail_spawning(held, &dead, &error, worker)?;
                Ok(dead)
            }
        }
    }

    fn insert_completed(
        &mut self,
        accepted: &Positions,
        worker: Option<&Arc<str>>,
        report: &Report,
    ) -> Result<()> {
        if let Some((positions, ending)) = Ending::completed(report, accepted, worker)? {
            self.writes
                .insert_report(self.now, report.batch, &positions, ending);
        }
        Ok(())
    }

    /// Stores the failed attempts of one claimed slice, makes those claimable that are to be retried, and returns the
    /// dead ones.
    fn commit_failures(
        &mut self,
        held: &Held,
        head: &BatchHead,
        accepted: &Positions,
        worker_name: Option<&Arc<str>>,
        report: &Report,
    ) -> Result<Positions> {
        let failed = Failed::of(
            report,
            accepted,
            worker_name.map(|name| &**name),
            head.options.retry,
            self.now,
            &mut **self.cache.rng(),
        );
        for attempt in &failed.attempts {
            self.writes.insert_failure(self.now, held.batch, attempt)?;
        }
        let durations = failed.attempts.iter().map(|attempt| attempt.duration_us);
        let expires_at = held
            .standing()
            .deadline(&head.options, began_at(self.now, durations));
        for (run_at, positions) in &failed.retried {
            self.writes.bring_back(
                self.now,
                held,
                head,
                NewSlice {
                    positions,
                    rank: held.rank.unwrap_or(head.rank()),
                    run_at: *run_at,
                    attempt: report.last_attempt() + 1,
                    rescues: held.rescues,
                    expires_at,
                    is_awaited: held.is_awaited,
                    family: held.family,
                },
            );
        }
        assert!(accepted.contains_all(&failed.dead), "only accepted jobs die");
        assert!(
            failed
                .retried
                .iter()
                .all(|(run_at, positions)| *run_at >= self.now && accepted.contains_all(positions)),
            "only accepted jobs are retried, and not in the past"
        );
        Ok(failed.dead)
    }
}

/// The state of a commit of reports.
struct Commit<'c> {
    heads: &'c HashMap<BatchId, Arc<BatchHead>>,
    origins: &'c Origins,
    worker_name: Option<&'c Arc<str>>,
    /// The children to store.
    spawning: Vec<Spawning>,
    /// The siblings to store.
    spread: Vec<Spread<'c>>,
    /// The jobs that ended after they had spawned children.
    ended_parents: EndedParents,
}

impl Commit<'_> {
    fn add_siblings(&mut self, report: &Report, accepted: &Positions) {
        let Some(parentage) = self.origins.parentage(report.batch) else {
            return;
        };
        let accepted = report.siblings.iter().filter_map(|all| all.select(accepted));
        for siblings in accepted.filter_map(|siblings| parentage.by_parent(&siblings)) {
            self.spread.push(Spread { parentage, siblings });
        }
    }
}

/// Rows of `held`, each with its remaining positions.
struct HeldRows(Vec<(Held, Positions)>);

impl HeldRows {
    fn new(rows: Vec<Held>) -> Self {
        HeldRows(
            rows.into_iter()
                .map(|held| {
                    let rest = held.positions.clone();
                    (held, rest)
                })
                .collect(),
        )
    }

    /// The rows to which a report belongs.
    fn under(&mut self, report: &Report) -> impl Iterator<Item = (&Held, &mut Positions)> {
        let key = (report.lease.0, report.batch, report.attempt);
        self.0
            .iter_mut()
            .filter(move |(held, _)| (held.lease, held.batch, held.attempt) == key)
            .map(|(held, rest)| (&*held, rest))
    }

    /// The positions that the lease of a report still holds.
    fn left_of(&self, report: &Report) -> Positions {
        let key = (report.lease.0, report.batch, report.attempt);
        let own = self
            .0
            .iter()
            .filter(|(held, _)| (held.lease, held.batch, held.attempt) == key);
        own.fold(Positions::new(), |all, (_, rest)| all.union(rest))
    }

    /// The changed rows, each with its remaining positions.
    fn changed(&self) -> impl Iterator<Item = (&Held, &Positions)> {
        self.0
            .iter()
            .filter(|(held, rest)| held.positions != *rest)
            .map(|(held, rest)| (held, rest))
    }
}
