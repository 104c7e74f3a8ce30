//! Looks for damage, a part of the database at a time, and adds the checksums of rows that SQL functions wrote.

use std::collections::HashMap;

use gristmill_model::{BatchId, JobState, PackedArray, Positions, Timestamp};
use gristmill_store::StoreError;
use gristmill_store::integrity::{
    CHECKED_BATCHES_PER_PAGE_MAX, CHECKED_BYTES_PER_PAGE_TARGET, CheckPage, CheckPlace, DAMAGED,
    FINDINGS_PER_KIND_MAX, Finding, cached_sum, check_places, keys_sum,
};
use gristmill_store::rules::piece::Piece;

use crate::database::Database;
use crate::database::columns::{read_state, sum};
use crate::database::connection::Pooled;
use crate::database::pools::Purpose;
use crate::database::snapshot::Snapshot;
use crate::database::sums::{
    CheckedReport, REPORT_COLUMNS, batch_columns, batch_sum, in_batch, read_batch, read_keys,
};
use crate::failure::{Failure, Result};
use crate::limits::SUMS_ADDED_AT_ONCE;
use crate::query::pieces;

/// Rows that belong to a batch which does not exist, by table: the batches of some.
const STRAYS: [(&str, &str); 15] = [
    ("slice", "SELECT DISTINCT batch_id FROM gristmill.slice"),
    ("held", "SELECT DISTINCT batch_id FROM gristmill.held"),
    ("blocked", "SELECT DISTINCT batch_id FROM gristmill.blocked"),
    ("report", "SELECT DISTINCT batch_id FROM gristmill.report"),
    ("failure", "SELECT DISTINCT batch_id FROM gristmill.failure"),
    ("keyed", "SELECT batch_id FROM gristmill.keyed"),
    (
        "job_key",
        "SELECT DISTINCT batch_id FROM gristmill.job_key WHERE open",
    ),
    ("tag", "SELECT DISTINCT batch_id FROM gristmill.tag"),
    ("debounced", "SELECT DISTINCT batch_id FROM gristmill.debounced"),
    ("edge", "SELECT DISTINCT batch_id FROM gristmill.edge"),
    ("suspension", "SELECT DISTINCT batch_id FROM gristmill.suspension"),
    ("kept_event", "SELECT DISTINCT batch_id FROM gristmill.kept_event"),
    ("step_batch", "SELECT batch_id FROM gristmill.step_batch"),
    (
        "returned_event",
        "SELECT DISTINCT batch_id FROM gristmill.returned_event",
    ),
    ("cleanup", "SELECT DISTINCT batch_id FROM gristmill.cleanup"),
];

/// Rows that point at another missing row: a table, the fault, and the batches of some.
const POINTERS: [(&str, &str, &str); 3] = [
    (
        "held",
        "a lease is held by a worker that is not registered",
        "SELECT DISTINCT batch_id FROM gristmill.held h WHERE NOT EXISTS (SELECT FROM gristmill.worker w WHERE w.id = h.worker_id)",
    ),
    (
        "batch",
        "its lane does not exist",
        "SELECT id FROM gristmill.batch b WHERE NOT EXISTS (SELECT FROM gristmill.lane l WHERE l.id = b.lane_id)",
    ),
    (
        "batch",
        "its run does not exist",
        "SELECT id FROM gristmill.batch b WHERE run_id IS NOT NULL \
         AND NOT EXISTS (SELECT FROM gristmill.run r WHERE r.id = b.run_id)",
    ),
];

impl Database {
    /// Checks one part.
    pub async fn check(&self, place: CheckPlace) -> std::result::Result<CheckPage, StoreError> {
        match place {
            CheckPlace::File => {
                let all = self.read(|snapshot| async move {
                    let row = snapshot
                        .query_opt("SELECT count(*) FROM gristmill.batch", &[])
                        .await?;
                    row.map_or(Ok(0), |row| sum(&row, 0))
                });
                Ok(CheckPage {
                    batches_in_all: all.await?,
                    next: Some(CheckPlace::Batches(BatchId(0))),
                    ..CheckPage::default()
                })
            }
            CheckPlace::Batches(after) => {
                match self.check_batches(after, CHECKED_BATCHES_PER_PAGE_MAX).await {
                    // PostgreSQL itself cannot read a row.
                    Err(StoreError::Database(_)) => self.check_one(after).await,
                    page => page,
                }
            }
            CheckPlace::Rest => {
                self.read(|snapshot| async move { check_rest(&snapshot).await })
                    .await
            }
        }
    }

    /// Checks the next batches and their rows.
    async fn check_batches(
        &self,
        after: BatchId,
        batches_max: u32,
    ) -> std::result::Result<CheckPage, StoreError> {
        let now = self.now();
        self.read(|snapshot| async move { check_batches(&snapshot, now, after, batches_max).await })
            .await
    }

    /// Checks the next batch alone. If it cannot be read, that is the finding.
    async fn check_one(&self, after: BatchId) -> std::result::Result<CheckPage, StoreError> {
        let reason = match self.check_batches(after, 1).await {
            Err(StoreError::Database(reason)) => reason,
            page => return page,
        };
        let next = self.read(|snapshot| async move {
            let sql = "SELECT min(id) FROM gristmill.batch WHERE id > $1";
            let row = snapshot.query_opt(sql, &[&after.0]).await?;
            Ok(row
                .map(|row| row.try_get::<_, Option<i64>>(0))
                .transpose()?
                .flatten())
        });
        let Some(batch) = next.await?.map(BatchId) else {
            return Err(StoreError::Database(reason));
        };
        Ok(CheckPage {
            findings: vec![Finding::of(batch, "batch", reason)],
            batches: 1,
            next: Some(CheckPlace::Batches(batch)),
            ..CheckPage::default()
        })
    }

    /// Adds the checksums of batches and keys that SQL functions have stored.
    pub async fn add_sums(&self) -> std::result::Result<(), StoreError> {
        loop {
            let added = self.alone(Purpose::Work, async |connection: Pooled| {
                Ok(add_to_batches(&connection).await? + add_to_keys(&connection).await?)
            });
            if added.await? == 0 {
                return Ok(());
            }
        }
    }
}

async fn add_to_batches(connection: &Pooled) -> Result<u64> {
    let sql = concat!(
        "SELECT ",
        batch_columns!(),
        " FROM gristmill.batch b WHERE b.sum IS NULL ORDER BY b.id LIMIT $1"
    );
    let (mut batches, mut sums) = (Vec::new(), Vec::new());
    for row in &connection.rows(sql, &[&SUMS_ADDED_AT_ONCE]).await? {
        let (batch, head, payloads) = read_batch(row, 0)?;
        batches.push(batch.0);
        sums.push(batch_sum(&head, row.try_get(5)?, &payloads));
    }
    if batches.is_empty() {
        return Ok(0);
    }
    let sql = "UPDATE gristmill.batch b SET sum = k.sum FROM unnest($1::bigint[], $2::bigint[]) k (id, sum) \
         WHERE b.id = k.id AND b.sum IS NULL";
    connection.execute_prepared(sql, &[&batches, &sums]).await
}

async fn add_to_keys(connection: &Pooled) -> Result<u64> {
    let sql =
        "SELECT batch_id, scope, keys FROM gristmill.keyed WHERE sum IS NULL ORDER BY batch_id LIMIT $1";
    let (mut batches, mut sums) = (Vec::new(), Vec::new());
    for row in &connection.rows(sql, &[&SUMS_ADDED_AT_ONCE]).await? {
        let (batch, scope) = (BatchId(row.try_get(0)?), row.try_get::<_, i32>(1)?);
        batches.push(batch.0);
        sums.push(keys_sum(batch, i64::from(scope), row.try_get(2)?));
    }
    if batches.is_empty() {
        return Ok(0);
    }
    let sql = "UPDATE gristmill.keyed b SET sum = k.sum FROM unnest($1::bigint[], $2::bigint[]) k (id, sum) \
         WHERE b.batch_id = k.id AND b.sum IS NULL";
    connection.execute_prepared(sql, &[&batches, &sums]).await
}

async fn check_batches(
    snapshot: &Snapshot,
    now: Timestamp,
    after: BatchId,
    batches_max: u32,
) -> Result<CheckPage> {
    let mut page = CheckPage::default();
    let rows = snapshot
        .query(
            "SELECT id, count, octet_length(payloads)::bigint FROM gristmill.batch WHERE id > $1 ORDER BY id LIMIT $2",
            &[&after.0, &i64::from(batches_max)],
        )
        .await?;
    let (mut ids, mut counts, mut bytes) = (Vec::new(), HashMap::new(), 0);
    for row in &rows {
        let id: i64 = row.try_get(0)?;
        ids.push(id);
        counts.insert(BatchId(id), row.try_get::<_, i32>(1)?.unsigned_abs());
        bytes += sum(row, 2)?;
        if bytes >= CHECKED_BYTES_PER_PAGE_TARGET {
            break;
        }
    }
    page.next = match ids.last() {
        Some(last) => Some(CheckPlace::Batches(BatchId(*last))),
        None => Some(CheckPlace::Rest),
    };
    page.batches = ids.len() as u64;
    check_heads(snapshot, &mut page, &ids).await?;
    for id in &ids {
        check_reports(snapshot, &mut page, BatchId(*id)).await?;
    }
    let mut pieces = pieces(snapshot, now, &ids).await?;
    for id in &ids {
        let batch = BatchId(*id);
        let pieces = pieces.remove(&batch).unwrap_or_default();
        check_pieces(&mut page, batch, counts[&batch], pieces);
    }
    Ok(page)
}

/// Checks the payloads and the keys of batches.
async fn check_heads(snapshot: &Snapshot, page: &mut CheckPage, ids: &[i64]) -> Result<()> {
    let sql = concat!(
        "SELECT ",
        batch_columns!(),
        ", k.scope, k.sum, k.keys FROM gristmill.batch b LEFT JOIN gristmill.keyed k ON k.batch_id = b.id \
         WHERE b.id = ANY ($1) ORDER BY b.id"
    );
    for row in &snapshot.query(sql, &[&ids]).await? {
        let (batch, count) = (BatchId(row.try_get(0)?), row.try_get::<_, i32>(7)?.unsigned_abs());
        let mut has_keys = false;
        if let Some((_, head, payloads)) = found(page, read_batch(row, 0))? {
            has_keys = head.options.unique.is_some();
            if payloads.count() != count {
                let what = format!("it has {count} jobs and {} payloads", payloads.count());
                page.findings.push(Finding::of(batch, "batch", what));
            }
        }
        let keys = match row.try_get::<_, Option<i32>>(10)? {
            Some(_) => found(page, read_keys(row, batch, 10))?.map(|keys| keys.count()),
            None if has_keys => {
                page.findings
                    .push(Finding::of(batch, "keyed", "it has lost its keys"));
                None
            }
            None => None,
        };
        if let Some(keys) = keys.filter(|keys| *keys != count) {
            let what = format!("it has {count} jobs and {keys} keys");
            page.findings.push(Finding::of(batch, "keyed", what));
        }
    }
    Ok(())
}

async fn check_reports(snapshot: &Snapshot, page: &mut CheckPage, batch: BatchId) -> Result<()> {
    let sql = format!(
        "SELECT {REPORT_COLUMNS} FROM gristmill.reported WHERE batch_id = $1 ORDER BY first_position"
    );
    for row in &snapshot.query(&sql, &[&batch.0]).await? {
        found(page, in_batch(batch, "report", read_state(row, 1)))?;
        let Some(report) = found(page, CheckedReport::read(row))? else {
            continue;
        };
        let values = report.values.map(PackedArray::from_stored);
        if let Some(values) = values.filter(|values| values.count() != report.positions.len()) {
            let what = format!(
                "a report of jobs `{}` has {} values",
                report.positions,
                values.count()
            );
            page.findings.push(Finding::of(batch, "report", what));
        }
    }
    Ok(())
}

/// Checks that each job of a batch is in one place, and reports those that are paused as damaged.
fn check_pieces(page: &mut CheckPage, batch: BatchId, count: u32, pieces: Vec<Piece>) {
    let (mut places, mut paused) = (Vec::new(), Positions::new());
    for piece in pieces {
        if piece.pauses.is_some_and(|pauses| pauses.has(Some(DAMAGED))) {
            paused = paused.union(&piece.positions);
        }
        let table = match piece.state {
            JobState::Waiting | JobState::Scheduled => "slice",
            JobState::Running => "held",
            JobState::Blocked | JobState::Paused => "blocked",
            _ => "report",
        };
        places.push((table, piece.positions));
    }
    page.findings.extend(check_places(batch, count, &places));
    if !paused.is_empty() {
        let what = format!("jobs {paused} are paused for the reason `{DAMAGED}`");
        page.findings.push(Finding::of(batch, "blocked", what));
    }
}

/// Checks for rows that belong to no batch, or point at nothing.
async fn check_rest(snapshot: &Snapshot) -> Result<CheckPage> {
    let mut page = CheckPage::default();
    for (table, all) in STRAYS {
        let sql = format!(
            "SELECT s.batch_id FROM ({all}) s WHERE NOT EXISTS (SELECT FROM gristmill.batch b WHERE b.id = s.batch_id) \
             LIMIT {FINDINGS_PER_KIND_MAX}"
        );
        for row in &snapshot.query(&sql, &[]).await? {
            let what = "there are rows of it, and the batch does not exist";
            page.findings
                .push(Finding::of(BatchId(row.try_get(0)?), table, what));
        }
    }
    for (table, what, sql) in POINTERS {
        let sql = format!("{sql} LIMIT {FINDINGS_PER_KIND_MAX}");
        for row in &snapshot.query(&sql, &[]).await? {
            page.findings
                .push(Finding::of(BatchId(row.try_get(0)?), table, what));
        }
    }
    let damaged = damaged_values(snapshot).await?;
    if damaged > 0 {
        let what = format!("{damaged} kept values have changed since they were stored; their jobs will run");
        page.findings.push(Finding::beside("cached", what));
    }
    Ok(page)
}

async fn damaged_values(snapshot: &Snapshot) -> Result<u64> {
    let (mut damaged, mut after) = (0, String::new());
    loop {
        let rows = snapshot
            .query(
                "SELECT digest, value, sum FROM gristmill.cached WHERE digest > $1 ORDER BY digest LIMIT $2",
                &[&after, &i64::from(CHECKED_BATCHES_PER_PAGE_MAX)],
            )
            .await?;
        let Some(last) = rows.last() else {
            return Ok(damaged);
        };
        for row in &rows {
            let sum = cached_sum(row.try_get(0)?, row.try_get(1)?);
            damaged += u64::from(sum != row.try_get::<_, i64>(2)?);
        }
        after = last.try_get(0)?;
    }
}

/// Returns what was read; `None` if it is damaged, which is added to the findings.
fn found<T>(page: &mut CheckPage, read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(Failure::Refused(StoreError::Damaged { batch, table, what })) => {
            page.findings.push(Finding::of(batch, table, what));
            Ok(None)
        }
        read => read.map(Some),
    }
}
