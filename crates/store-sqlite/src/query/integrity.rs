//! Looks for damage, a part of the file at a time.

use gristmill_model::{BatchId, Positions, Timestamp};
use gristmill_store::StoreError;
use gristmill_store::integrity::{
    CHECKED_BATCHES_PER_PAGE_MAX, CHECKED_BYTES_PER_PAGE_TARGET, CheckPage, CheckPlace, DAMAGED,
    FINDINGS_PER_KIND_MAX, Finding, cached_sum, check_places,
};
use rusqlite::{Connection, OptionalExtension};

use crate::columns::read_state;
use crate::failure::{Failure, Result};
use crate::labels::{keys_of, tags_of_batch};
use crate::query::batches::{failures, payloads, report_ids};
use crate::query::piece::{TABLES, pieces_in};
use crate::query::totals::{RECOUNT, wrong_totals};
use crate::submit::lanes::read_lane;
use crate::sums::{CheckedReport, REPORT_COLUMNS, in_batch};
use crate::transaction::read_options;

/// Rows that belong to a missing batch, by table: the batches of some.
const STRAYS: [(&str, &str); 14] = [
    ("slice", "SELECT DISTINCT batch_id FROM slice"),
    ("held", "SELECT DISTINCT batch_id FROM held"),
    ("blocked", "SELECT DISTINCT batch_id FROM blocked"),
    ("report", "SELECT DISTINCT id >> 14 AS batch_id FROM report"),
    ("failure", "SELECT DISTINCT batch_id FROM failure"),
    ("keyed", "SELECT batch_id FROM keyed"),
    ("job_key", "SELECT DISTINCT batch_id FROM job_key WHERE open = 1"),
    ("tagged", "SELECT batch_id FROM tagged"),
    ("debounced", "SELECT DISTINCT batch_id FROM debounced"),
    ("edge", "SELECT DISTINCT batch_id FROM edge"),
    ("suspension", "SELECT DISTINCT batch_id FROM suspension"),
    ("step_batch", "SELECT batch_id FROM step_batch"),
    ("returned_event", "SELECT DISTINCT batch_id FROM returned_event"),
    ("cleanup", "SELECT DISTINCT batch_id FROM cleanup"),
];

/// Rows that point at another missing row: a table, the fault, and the batches of some.
const POINTERS: [(&str, &str, &str); 4] = [
    (
        "held",
        "a lease is held by a worker that is not registered",
        "SELECT DISTINCT batch_id FROM held h WHERE NOT EXISTS (SELECT 1 FROM worker WHERE id = h.worker_id)",
    ),
    (
        "batch",
        "its lane does not exist",
        "SELECT id FROM batch b WHERE NOT EXISTS (SELECT 1 FROM lane WHERE id = b.lane_id)",
    ),
    (
        "batch",
        "its run does not exist",
        "SELECT id FROM batch b WHERE run_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM run WHERE id = b.run_id)",
    ),
    (
        "report_durations",
        "its durations are not those of its report, so that histories are wrong",
        "SELECT d.id >> 14 FROM report_durations d LEFT JOIN report r ON r.id = d.id LEFT JOIN batch b ON b.id = d.id >> 14 \
         WHERE r.id IS NULL OR r.state <> 'completed' OR b.id IS NULL OR d.lane_id <> b.lane_id OR d.batch_count <> b.count \
         OR d.finished_at <> r.finished_at OR d.count <> iif(r.parts IS NULL, r.count, 0)",
    ),
];

/// Checks one part.
pub(crate) fn check(connection: &Connection, now: Timestamp, place: CheckPlace) -> Result<CheckPage> {
    match place {
        CheckPlace::File => check_file(connection),
        CheckPlace::Batches(after) => check_batches(connection, now, after),
        CheckPlace::Rest => check_rest(connection),
    }
}

/// Runs SQLite's own check.
fn check_file(connection: &Connection) -> Result<CheckPage> {
    let mut page = CheckPage {
        next: Some(CheckPlace::Batches(BatchId(0))),
        ..CheckPage::default()
    };
    let verdicts = texts(
        connection,
        &format!("PRAGMA integrity_check({FINDINGS_PER_KIND_MAX})"),
    );
    let verdicts = found(&mut page, "file", verdicts)?;
    let wrong = verdicts.into_iter().flatten().filter(|verdict| verdict != "ok");
    page.findings
        .extend(wrong.map(|verdict| Finding::beside("file", verdict)));
    let count = connection.query_row("SELECT count(*) FROM batch", [], |row| row.get::<_, i64>(0));
    let count = found(&mut page, "batch", count.map_err(Failure::from))?;
    page.batches_in_all = count.map_or(0, i64::unsigned_abs);
    Ok(page)
}

/// Checks the next batches and their rows.
fn check_batches(connection: &Connection, now: Timestamp, after: BatchId) -> Result<CheckPage> {
    let mut page = CheckPage::default();
    let ids = batches_after(connection, &mut page, after)?;
    let (mut bytes, mut last) = (0, after);
    for batch in &ids {
        let wrong = check_batch(connection, &mut page, now, *batch);
        bytes += found_in(&mut page, *batch, "batch", wrong)?.unwrap_or(0);
        page.batches += 1;
        last = *batch;
        if bytes >= CHECKED_BYTES_PER_PAGE_TARGET {
            break;
        }
    }
    page.next = if last > after {
        Some(CheckPlace::Batches(last))
    } else {
        Some(CheckPlace::Rest)
    };
    Ok(page)
}

/// The ids of the next batches, ascending, as far as they are readable.
fn batches_after(connection: &Connection, page: &mut CheckPage, after: BatchId) -> Result<Vec<BatchId>> {
    let mut statement =
        connection.prepare_cached("SELECT id FROM batch WHERE id > ?1 ORDER BY id LIMIT ?2")?;
    let mut rows = statement.query([after.0, i64::from(CHECKED_BATCHES_PER_PAGE_MAX)])?;
    let mut ids: Vec<BatchId> = Vec::new();
    loop {
        let next = rows.next().map_err(Failure::from).and_then(|row| match row {
            Some(row) => Ok(Some(BatchId(row.get(0)?))),
            None => Ok(None),
        });
        match found(page, "batch", next)? {
            Some(Some(id)) if id > ids.last().copied().unwrap_or(after) => ids.push(id),
            // A damaged tree may lead in circles.
            Some(Some(id)) => {
                let what = format!("batch {id} stands after a batch with a higher id");
                page.findings.push(Finding::beside("batch", what));
                return Ok(ids);
            }
            Some(None) | None => return Ok(ids),
        }
    }
}

/// Checks the rows of one batch. Returns the bytes of its payloads.
fn check_batch(connection: &Connection, page: &mut CheckPage, now: Timestamp, batch: BatchId) -> Result<u64> {
    let mut bytes = 0;
    let head = connection.query_row(
        "SELECT count, options FROM batch WHERE id = ?1",
        [batch.0],
        |row| {
            let options = read_options(row, 1).map(|options| options.unique.is_some());
            Ok((row.get::<_, u32>(0)?, options))
        },
    );
    let head = head.optional().map_err(Failure::from);
    let Some(Some((count, has_keys))) = found_in(page, batch, "batch", head)? else {
        return Ok(0);
    };
    let stored = payloads(connection, batch);
    if let Some(Some(payloads)) = found_in(page, batch, "batch", stored)? {
        bytes = payloads.as_str().len() as u64;
        if payloads.count() != count {
            let what = format!("it has {count} jobs and {} payloads", payloads.count());
            page.findings.push(Finding::of(batch, "batch", what));
        }
    }
    let keys = keys_of(connection, batch);
    let has_keys = found_in(page, batch, "batch", has_keys)?;
    if let Some(keys) = found_in(page, batch, "keyed", keys)? {
        let keys = keys.map(|keys| keys.keys.count());
        let wrong = match (has_keys, keys) {
            (Some(true), None) => Some("it has lost its keys".to_owned()),
            (_, Some(keys)) if keys != count => Some(format!("it has {count} jobs and {keys} keys")),
            _ => None,
        };
        page.findings
            .extend(wrong.map(|what| Finding::of(batch, "keyed", what)));
    }
    let tags = tags_of_batch(connection, batch);
    found_in(page, batch, "tagged", tags)?;
    let failed = failures(connection, batch, None);
    found_in(page, batch, "failure", failed)?;
    let reports = check_reports(connection, batch);
    found_in(page, batch, "report", reports)?;
    check_pieces(connection, page, now, batch, count)?;
    Ok(bytes)
}

fn check_reports(connection: &Connection, batch: BatchId) -> Result<()> {
    let sql = format!("SELECT {REPORT_COLUMNS} FROM reported WHERE row_id BETWEEN ?1 AND ?2 ORDER BY id");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(report_ids(batch))?;
    while let Some(row) = rows.next()? {
        let report = CheckedReport::read(batch, row)?;
        read_state(row, 1)?;
        let values = report.values.map(gristmill_model::PackedArray::from_stored);
        if let Some(values) = values.filter(|values| values.count() != report.positions.len()) {
            return Err(Failure::Damaged(format!(
                "a report of jobs `{}` has {} values",
                report.positions,
                values.count()
            )));
        }
    }
    Ok(())
}

/// Checks that each job of a batch is in one place, and reports those that are paused as damaged.
fn check_pieces(
    connection: &Connection,
    page: &mut CheckPage,
    now: Timestamp,
    batch: BatchId,
    count: u32,
) -> Result<()> {
    let (mut places, mut paused, mut is_readable) = (Vec::new(), Positions::new(), true);
    for table in TABLES {
        let pieces = pieces_in(connection, now, batch, table);
        let Some(pieces) = found_in(page, batch, table, pieces)? else {
            is_readable = false;
            continue;
        };
        for piece in pieces {
            if piece.pauses.is_some_and(|pauses| pauses.has(Some(DAMAGED))) {
                paused = paused.union(&piece.positions);
            }
            places.push((table, piece.positions));
        }
    }
    if is_readable {
        page.findings.extend(check_places(batch, count, &places));
    }
    if !paused.is_empty() {
        let what = format!("jobs {paused} are paused for the reason `{DAMAGED}`");
        page.findings.push(Finding::of(batch, "blocked", what));
    }
    Ok(())
}

/// Checks for rows that belong to no batch, or point at nothing.
fn check_rest(connection: &Connection) -> Result<CheckPage> {
    let mut page = CheckPage::default();
    for (table, all) in STRAYS {
        let sql = format!(
            "SELECT s.batch_id FROM ({all}) s WHERE NOT EXISTS (SELECT 1 FROM batch WHERE id = s.batch_id) \
             LIMIT {FINDINGS_PER_KIND_MAX}"
        );
        let strays = found(&mut page, table, numbers(connection, &sql))?;
        let strays = strays.into_iter().flatten().map(BatchId);
        page.findings
            .extend(strays.map(|batch| {
                Finding::of(batch, table, "there are rows of it, and the batch does not exist")
            }));
    }
    for (table, what, sql) in POINTERS {
        let sql = format!("{sql} LIMIT {FINDINGS_PER_KIND_MAX}");
        let batches = found(&mut page, table, numbers(connection, &sql))?;
        let batches = batches.into_iter().flatten().map(BatchId);
        page.findings
            .extend(batches.map(|batch| Finding::of(batch, table, what)));
    }
    let lanes = damaged_lanes(connection);
    for lane in found(&mut page, "lane", lanes)?.into_iter().flatten() {
        let what = format!(
            "the names of lane {lane} have changed since they were stored; no jobs are claimed from it"
        );
        page.findings.push(Finding::beside("lane", what));
    }
    let totals = wrong_totals(connection);
    for lane in found(&mut page, "lane_total", totals)?.into_iter().flatten() {
        let what = format!(
            "the totals of lane {lane} are not those of its batches; its completed jobs are counted wrong. {RECOUNT}"
        );
        page.findings.push(Finding::beside("lane_total", what));
    }
    let cached = damaged_values(connection);
    if let Some(damaged) = found(&mut page, "cached", cached)?.filter(|damaged| *damaged > 0) {
        let what = format!("{damaged} kept values have changed since they were stored; their jobs will run");
        page.findings.push(Finding::beside("cached", what));
    }
    Ok(page)
}

fn damaged_lanes(connection: &Connection) -> Result<Vec<i64>> {
    let mut statement = connection.prepare_cached("SELECT id, queue, kind, job_group, sum FROM lane")?;
    let mut rows = statement.query([])?;
    let mut damaged = Vec::new();
    while let Some(row) = rows.next()? {
        let is_whole = read_lane(row).is_ok_and(|lane| lane.is_some());
        if !is_whole {
            damaged.push(row.get(0)?);
        }
    }
    Ok(damaged)
}

fn damaged_values(connection: &Connection) -> Result<u64> {
    let mut statement = connection.prepare_cached("SELECT digest, value, sum FROM cached")?;
    let mut rows = statement.query([])?;
    let mut damaged = 0;
    while let Some(row) = rows.next()? {
        let text = |column| row.get_ref(column).map_err(Failure::from);
        let is_whole = match (text(0)?.as_str(), text(1)?.as_str(), row.get::<_, i64>(2)) {
            (Ok(digest), Ok(value), Ok(sum)) => cached_sum(digest, value) == sum,
            _ => false,
        };
        damaged += u64::from(!is_whole);
    }
    Ok(damaged)
}

fn texts(connection: &Connection, sql: &str) -> Result<Vec<String>> {
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn numbers(connection: &Connection, sql: &str) -> Result<Vec<i64>> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Returns what was read; `None` if it is damaged, which is added to the findings.
fn found<T>(page: &mut CheckPage, table: &str, read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(failure) => {
            let what = failure.of_row()?;
            page.findings.push(Finding::beside(table, what));
            Ok(None)
        }
    }
}

/// Does the same for rows of a batch.
fn found_in<T>(
    page: &mut CheckPage,
    batch: BatchId,
    table: &'static str,
    read: Result<T>,
) -> Result<Option<T>> {
    match in_batch(batch, table, read) {
        Err(Failure::Refused(StoreError::Damaged { batch, table, what })) => {
            let finding = Finding::of(batch, table, what);
            if !page.findings.contains(&finding) {
                page.findings.push(finding);
            }
            Ok(None)
        }
        read => read.map(Some),
    }
}
