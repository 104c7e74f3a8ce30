//! Single jobs, unpacked from their batches.

use std::collections::{BTreeSet, HashMap, HashSet};

use gristmill_model::limits::ESTIMATE_BATCHES_MAX;
use gristmill_model::{BatchId, JobId, JobState, PackedArray, Positions, ShownProgress, Timestamp};
use gristmill_store::query::Narrowed;
use gristmill_store::rules::keys::debounce::joined;
use gristmill_store::rules::lanes::group;
use gristmill_store::rules::pack::indexes_of;
use gristmill_store::rules::piece::{Common, Piece, count, in_states, pauses_of, unpack};
use gristmill_store::rules::progress::Told;
use gristmill_store::{BatchPositions, JobCounts, JobDetails, JobFilter, JobRow};
use serde_json::value::RawValue;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::claim::control::controls;
use crate::database::columns::number;
use crate::database::snapshot::Snapshot;
use crate::database::sums::{CheckedReport, REPORT_COLUMNS, batch_columns, damaged, read_batch, read_keys};
use crate::failure::Result;
use crate::graph::family::{children, parent_of};
use crate::query::batches::failures;
use crate::query::filter::{Candidates, LOOK_BATCHES_FIRST, LOOK_BATCHES_MAX};
use crate::query::piece::pieces;
use crate::query::prerequisite::{cause_of, prerequisites_of};
use crate::query::tag::{narrowed, tags_of};
use crate::submit::debounce::{ADDED, read_added};

const COMMON_COLUMNS: &str = "b.id, l.kind, l.queue, b.priority, b.submitted_at, l.job_group";

/// Reads a row that begins with [`COMMON_COLUMNS`].
fn read_common(row: &Row) -> Result<Common> {
    Ok(Common {
        batch: BatchId(row.try_get(0)?),
        kind: row.try_get::<_, &str>(1)?.into(),
        queue: row.try_get::<_, &str>(2)?.into(),
        priority: row.try_get(3)?,
        submitted_at: Timestamp(row.try_get(4)?),
        group: group(row.try_get::<_, &str>(5)?.into()),
    })
}

/// One job with all known details.
pub(crate) async fn job(snapshot: &Snapshot, now: Timestamp, id: JobId) -> Result<Option<JobDetails>> {
    let Ok(position) = i32::try_from(id.position) else {
        return Ok(None);
    };
    let sql = format!(
        "SELECT {COMMON_COLUMNS}, {} \
         FROM gristmill.batch b JOIN gristmill.lane l ON l.id = b.lane_id WHERE b.id = $1 AND b.count > $2",
        batch_columns!()
    );
    let (batch, job) = ([id.batch.0], [&id.batch.0 as &(dyn ToSql + Sync), &position]);
    let (common, mut pieces, failures) = tokio::try_join!(
        snapshot.query(&sql, &job),
        pieces(snapshot, now, &batch),
        failures(snapshot, id.batch, position),
    )?;
    let Some(row) = common.first() else {
        return Ok(None);
    };
    let piece = pieces
        .remove(&id.batch)
        .into_iter()
        .flatten()
        .find(|piece| piece.positions.contains(id.position))
        .ok_or_else(|| {
            damaged(
                id.batch,
                "batch",
                format!("job {id} is in no slice, lease or report"),
            )
        })?;
    let ended = ended(snapshot, id, &piece).await?;
    let last = failures.last();
    let batch = read_common(row)?;
    let (_, head, payloads) = read_batch(row, 6)?;
    let options = batch.options(head.options);
    let mut payload = payloads.get(id.position).unwrap_or_default().to_owned();
    if let Some(debounce) = options.unique.and_then(|unique| unique.debounce) {
        let added = read_added(&snapshot.query(ADDED, &[&vec![id.batch.0]]).await?)?;
        let added = added.get(&id.batch).and_then(|added| added.get(&id.position));
        payload = joined(&payload, added.map_or(&[], Vec::as_slice), debounce);
    }
    let key = match options.unique {
        Some(_) => key_of(snapshot, id.batch, id.position).await?,
        None => None,
    };
    let progress = match piece.claimed_at {
        Some(claimed_at) => match told(snapshot, &[id.batch]).await?.of(id, &piece, now) {
            Some(told) => Some(told),
            None => mean_duration_us(snapshot, id.batch)
                .await?
                .map(|mean_us| ShownProgress::estimated(claimed_at, mean_us, now)),
        },
        None => None,
    };
    let error = last.map(|last| last.error.message.clone());
    Ok(Some(JobDetails {
        row: batch.job(id.position, &piece, error, progress),
        payload: RawValue::from_string(payload)?,
        value: ended.value,
        options,
        key,
        pauses: pauses_of(&piece, &batch, &controls(snapshot, now).await?, now),
        tags: tags_of(snapshot, id.batch, position).await?,
        prerequisites: match piece.state {
            JobState::Blocked => prerequisites_of(snapshot, now, id).await?,
            _ => Vec::new(),
        },
        cause: match (piece.state, piece.report) {
            (JobState::Cancelled, Some(report)) => cause_of(snapshot, id.batch, report).await?,
            _ => None,
        },
        parent: parent_of(snapshot, id).await?,
        children: children_of(snapshot, now, id).await?,
        duration_us: ended.duration_us.or(last.map(|last| last.duration_us)),
        worker: piece.worker,
        log: ended.log,
        failures,
    }))
}

/// The progress that workers sent for the running jobs of batches.
async fn told(snapshot: &Snapshot, batches: &[BatchId]) -> Result<Told> {
    let mut told = Told::default();
    if batches.is_empty() {
        return Ok(told);
    }
    let ids: Vec<i64> = batches.iter().map(|batch| batch.0).collect();
    let rows = snapshot
        .query(
            "SELECT at, jobs FROM gristmill.progress WHERE worker_id IN \
             (SELECT worker_id FROM gristmill.held WHERE batch_id = ANY ($1))",
            &[&ids],
        )
        .await?;
    for row in &rows {
        told.add(Timestamp(row.try_get(0)?), row.try_get(1)?, batches)?;
    }
    Ok(told)
}

/// The recent mean duration of jobs of a batch's kind, queue and group. Microseconds.
async fn mean_duration_us(snapshot: &Snapshot, batch: BatchId) -> Result<Option<u64>> {
    let row = snapshot
        .query_opt(
            "SELECT (sum(r.durations_sum_us) / sum(r.count))::bigint FROM gristmill.batch b \
             JOIN gristmill.report r ON r.batch_id = b.id AND r.durations_sum_us IS NOT NULL \
             WHERE b.id > (SELECT max(id) FROM gristmill.batch) - $2 \
             AND b.lane_id = (SELECT lane_id FROM gristmill.batch WHERE id = $1)",
            &[&batch.0, &ESTIMATE_BATCHES_MAX],
        )
        .await?;
    let mean: Option<i64> = match row {
        Some(row) => row.try_get(0)?,
        None => None,
    };
    Ok(mean.map(i64::unsigned_abs))
}

/// How many children a job spawned last, by state.
async fn children_of(snapshot: &Snapshot, now: Timestamp, id: JobId) -> Result<Option<JobCounts>> {
    let own = Positions::from(id.position..id.position + 1);
    let all = children(snapshot, id.batch, &own).await?;
    let Some(own) = all.first() else {
        return Ok(None);
    };
    let batches: Vec<i64> = own.jobs.iter().map(|jobs| jobs.batch.0).collect();
    let pieces = pieces(snapshot, now, &batches).await?;
    let mut counts = JobCounts::default();
    for jobs in &own.jobs {
        if let Some(pieces) = pieces.get(&jobs.batch) {
            count(pieces, &[], &jobs.positions, &mut counts);
        }
    }
    Ok(Some(counts))
}

/// The deduplication key of a job.
async fn key_of(snapshot: &Snapshot, batch: BatchId, position: u32) -> Result<Option<String>> {
    let row = snapshot
        .query_opt(
            "SELECT scope, sum, keys FROM gristmill.keyed WHERE batch_id = $1",
            &[&batch.0],
        )
        .await?;
    match row {
        Some(row) => {
            let keys = read_keys(&row, batch, 0)?;
            let key = keys.get(position).map(serde_json::from_str);
            Ok(key.transpose()?.flatten())
        }
        None => Ok(None),
    }
}

/// The part of a report about one job.
#[derive(Default)]
struct Ended {
    value: Option<Box<RawValue>>,
    duration_us: Option<u32>,
    log: Option<String>,
}

async fn ended(snapshot: &Snapshot, id: JobId, piece: &Piece) -> Result<Ended> {
    let Some(report) = piece.report.and_then(|report| i32::try_from(report).ok()) else {
        return Ok(Ended::default());
    };
    let index = indexes_of(&Positions::from(id.position..id.position + 1), &piece.positions)
        .first()
        .unwrap_or(0);
    let sql = format!(
        "SELECT {REPORT_COLUMNS} FROM gristmill.reported WHERE batch_id = $1 AND first_position = $2"
    );
    let Some(row) = snapshot.query_opt(&sql, &[&id.batch.0, &report]).await? else {
        return Ok(Ended::default());
    };
    let stored = CheckedReport::read(&row)?;
    let values = stored.values.map(PackedArray::from_stored);
    let value = values.as_ref().and_then(|values| values.get(index));
    let durations: Vec<u32> = stored
        .durations
        .map(serde_json::from_str)
        .transpose()?
        .unwrap_or_default();
    let mut logs: HashMap<u32, String> = stored
        .logs
        .map(serde_json::from_str)
        .transpose()?
        .unwrap_or_default();
    Ok(Ended {
        value: value
            .map(|value| RawValue::from_string(value.to_owned()))
            .transpose()?,
        duration_us: durations.get(index as usize).copied(),
        log: logs.remove(&id.position),
    })
}

/// A page of matching jobs.
pub(crate) async fn jobs(
    snapshot: &Snapshot,
    now: Timestamp,
    filter: &JobFilter,
    after: Option<JobId>,
    limit: u32,
) -> Result<Vec<JobRow>> {
    let narrowed = narrowed(snapshot, filter).await?;
    let candidates = Candidates::new(filter, narrowed.as_ref(), &filter.states, COMMON_COLUMNS);
    let mut first = after.map_or(0, |job| job.batch.0);
    let mut look = LOOK_BATCHES_FIRST;
    let mut page = Vec::new();
    while page.len() < limit as usize {
        let rows = snapshot
            .query(candidates.sql(), &candidates.params(&first, &look))
            .await?;
        let batches: Vec<Common> = rows.iter().map(read_common).collect::<Result<_>>()?;
        let Some(last) = batches.last() else { break };
        first = last.batch.0 + 1;
        let meant = Meant {
            filter,
            narrowed: narrowed.as_ref(),
            after,
            limit,
        };
        add_jobs(snapshot, now, &meant, &batches, &mut page).await?;
        if (batches.len() as i64) < look {
            break;
        }
        look = (look * 2).min(LOOK_BATCHES_MAX);
    }
    Ok(page)
}

/// The rows of these waiting jobs, in this order.
pub(crate) async fn rows_of(snapshot: &Snapshot, found: &[(BatchId, Piece)]) -> Result<Vec<JobRow>> {
    let batches: HashSet<BatchId> = found.iter().map(|(batch, _)| *batch).collect();
    let ids: Vec<i64> = batches.iter().map(|batch| batch.0).collect();
    let sql = format!(
        "SELECT {COMMON_COLUMNS} FROM gristmill.batch b JOIN gristmill.lane l ON l.id = b.lane_id WHERE b.id = ANY ($1)"
    );
    let rows = snapshot.query(&sql, &[&ids]).await?;
    let commons = rows.iter().map(read_common).collect::<Result<Vec<_>>>()?;
    let commons: HashMap<BatchId, Common> = commons.into_iter().map(|one| (one.batch, one)).collect();
    let mut messages = failure_messages(snapshot, batches).await?;
    let mut all = Vec::new();
    for (batch, piece) in found {
        if let Some(common) = commons.get(batch) {
            let job = |position| common.job(position, piece, messages.remove(&(*batch, position)), None);
            all.extend(piece.positions.iter().map(job));
        }
    }
    Ok(all)
}

/// The jobs that a page asks for.
struct Meant<'f> {
    filter: &'f JobFilter,
    narrowed: Option<&'f Narrowed>,
    after: Option<JobId>,
    limit: u32,
}

/// The next matching batches after one, by id; their states still have to be checked. Returns at most `limit`.
pub(super) async fn matching(
    snapshot: &Snapshot,
    filter: &JobFilter,
    narrowed: Option<&Narrowed>,
    after: BatchId,
    batches_max: i64,
) -> Result<Vec<(BatchId, u32)>> {
    let candidates = Candidates::new(filter, narrowed, &filter.states, "b.id, b.count");
    let first = after.0 + 1;
    let rows = snapshot
        .query(candidates.sql(), &candidates.params(&first, &batches_max))
        .await?;
    rows.iter()
        .map(|row| Ok((BatchId(row.try_get(0)?), number(row, 1)?)))
        .collect()
}

/// The matching jobs, packed.
pub(crate) async fn job_ids(
    snapshot: &Snapshot,
    now: Timestamp,
    filter: &JobFilter,
    after: Option<BatchId>,
    batches_max: u32,
) -> Result<Vec<BatchPositions>> {
    let narrowed = narrowed(snapshot, filter).await?;
    let mut after = after.unwrap_or(BatchId(0));
    // A page may be empty only at the end, but many batches may have no matching jobs.
    loop {
        let batches = matching(snapshot, filter, narrowed.as_ref(), after, i64::from(batches_max)).await?;
        let Some((last, _)) = batches.last() else {
            return Ok(Vec::new());
        };
        after = *last;
        let found = ids_in(snapshot, now, filter, narrowed.as_ref(), batches).await?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
}

/// The matching jobs of these batches.
async fn ids_in(
    snapshot: &Snapshot,
    now: Timestamp,
    filter: &JobFilter,
    narrowed: Option<&Narrowed>,
    batches: Vec<(BatchId, u32)>,
) -> Result<Vec<BatchPositions>> {
    let pieces = if filter.states.is_empty() {
        HashMap::new()
    } else {
        let ids: Vec<i64> = batches.iter().map(|(batch, _)| batch.0).collect();
        pieces(snapshot, now, &ids).await?
    };
    let mut found = Vec::new();
    for (batch, count) in batches {
        let mut positions = if filter.states.is_empty() {
            Positions::all(count)
        } else {
            pieces
                .get(&batch)
                .map(|pieces| in_states(pieces, &filter.states))
                .unwrap_or_default()
        };
        if let Some(only) = narrowed.and_then(|narrowed| narrowed.get(&batch)) {
            positions = positions.intersection(only);
        }
        if !positions.is_empty() {
            found.push(BatchPositions { batch, positions });
        }
    }
    Ok(found)
}

/// Adds the matching jobs of the batches after one, until the page is full.
async fn add_jobs(
    snapshot: &Snapshot,
    now: Timestamp,
    meant: &Meant<'_>,
    batches: &[Common],
    page: &mut Vec<JobRow>,
) -> Result<()> {
    let ids: Vec<i64> = batches.iter().map(|batch| batch.batch.0).collect();
    let pieces = pieces(snapshot, now, &ids).await?;
    let mut found: Vec<(&Common, u32, &Piece)> = Vec::new();
    let left = meant.limit as usize - page.len();
    for batch in batches {
        let from = match meant.after {
            Some(after) if after.batch == batch.batch => after.position + 1,
            _ => 0,
        };
        let only = meant.narrowed.and_then(|narrowed| narrowed.get(&batch.batch));
        let jobs = pieces
            .get(&batch.batch)
            .map(|pieces| unpack(pieces, &meant.filter.states, only, from))
            .unwrap_or_default();
        found.extend(jobs.into_iter().map(|(position, piece)| (batch, position, piece)));
        if found.len() >= left {
            found.truncate(left);
            break;
        }
    }
    let failed: HashSet<BatchId> = found
        .iter()
        .filter(|(.., piece)| piece.state != JobState::Completed)
        .map(|(batch, ..)| batch.batch)
        .collect();
    let mut messages = failure_messages(snapshot, failed).await?;
    let running: BTreeSet<BatchId> = found
        .iter()
        .filter(|(.., piece)| piece.claimed_at.is_some())
        .map(|(batch, ..)| batch.batch)
        .collect();
    let running: Vec<BatchId> = running.into_iter().collect();
    let told = told(snapshot, &running).await?;
    page.extend(found.into_iter().map(|(batch, position, piece)| {
        let message = messages.remove(&(batch.batch, position));
        let job = JobId {
            batch: batch.batch,
            position,
        };
        batch.job(position, piece, message, told.of(job, piece, now))
    }));
    Ok(())
}

/// The message of each job's last failure.
async fn failure_messages(
    snapshot: &Snapshot,
    batches: HashSet<BatchId>,
) -> Result<HashMap<(BatchId, u32), String>> {
    if batches.is_empty() {
        return Ok(HashMap::new());
    }
    let batches: Vec<i64> = batches.into_iter().map(|batch| batch.0).collect();
    let rows = snapshot
        .query(
            "SELECT DISTINCT ON (batch_id, position) batch_id, position, error::json ->> 'message' \
             FROM gristmill.failure WHERE batch_id = ANY ($1) ORDER BY batch_id, position, lease_id DESC, attempt DESC",
            &[&batches],
        )
        .await?;
    rows.iter()
        .map(|row| Ok(((BatchId(row.try_get(0)?), number(row, 1)?), row.try_get(2)?)))
        .collect()
}
