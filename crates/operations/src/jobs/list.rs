//! Jobs that match, a page at a time, and their number.

use std::sync::Arc;

use gristmill_engine::Engine;
use gristmill_model::ShownProgress;
use gristmill_model::limits::{NEXT_JOBS_MAX, PAGE_ROWS_MAX};
use gristmill_store::{JobCounts, JobFilter, JobRow, Page, Store, Want};
use serde::{Deserialize, Serialize};

use super::search::search;
use super::selection::FilterRequest;
use crate::access::Access;
use crate::limits::SEARCH_ROWS_MAX;
use crate::read::{check_rows, read_job};
use crate::refused::Refused;

/// The default number of jobs on a page.
const PAGE_ROWS: u32 = 100;

/// The listed jobs. An omitted condition matches all.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", into_params(parameter_in = Query))]
pub struct JobsQuery {
    /// Only in these states, separated by commas: blocked, waiting, scheduled, paused, running, completed,
    /// dead, cancelled, expired.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(example = "dead,expired"))]
    states: Option<String>,
    /// Only of this kind.
    #[serde(default)]
    kind: Option<String>,
    /// Only on this queue. Required for a token with several queues but not all.
    #[serde(default)]
    queue: Option<String>,
    /// Only of this group.
    #[serde(default)]
    group: Option<String>,
    /// Only of this run.
    #[serde(default)]
    run: Option<String>,
    /// Only of this batch.
    #[serde(default)]
    batch: Option<i64>,
    /// Only jobs that were submitted at this time or later. Milliseconds since 1970.
    #[serde(default)]
    since: Option<i64>,
    /// Only jobs that were submitted before this time. Milliseconds since 1970.
    #[serde(default)]
    until: Option<i64>,
    /// Only with all of these tags, separated by commas: `name=value`, `name` (any value), or `name*` (a prefix of the
    /// name).
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(example = "customer=7"))]
    tags: Option<String>,
    /// Only with this deduplication key.
    #[serde(default)]
    key: Option<String>,
    /// Only with a deduplication key that has this prefix.
    #[serde(default)]
    key_prefix: Option<String>,
    /// Only children of this job, including siblings that its children spawned.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(example = "42:7"))]
    parent: Option<String>,
    /// Only jobs after this one: `next` of the previous page.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(example = "42:7"))]
    pub after: Option<String>,
    /// The maximum number of jobs (for ids: of batches) on the page; 100 by default.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(minimum = 1, maximum = 10_000))]
    limit: Option<u32>,
    /// With `true`, the newest jobs first, by their ids, without further pages.
    #[serde(default)]
    newest: Option<bool>,
    /// With `true`, the waiting jobs that workers would get next, in the order of claims, by priorities, pauses, limits, shares and
    /// aging, whatever the size of their payloads. Without further pages, at most 1,000. `queue` and `kind` are the only conditions.
    #[serde(default)]
    next: Option<bool>,
    /// Only jobs with this text in the payload, the value or the error of an ended job; ASCII letters match in both
    /// cases. The newest first, at most 100, among the newest 100,000 jobs in at most 1,000 batches.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(min_length = 1, max_length = 200))]
    text: Option<String>,
}

/// The progress of a running job.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProgressView {
    /// From 0 to 1, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    fraction: Option<f64>,
    /// The finished work, in the handler's unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<u64>,
    /// The total work, in the same unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    /// The handler's message.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// The rate per second, in the unit of `done`, or of the fraction if only that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_per_s: Option<f64>,
    /// The estimated time left. Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_ms: Option<u64>,
    /// The time of the worker's report. Milliseconds since 1970.
    at: i64,
    /// True if this is an estimate from other jobs of the kind, because the handler reports nothing.
    estimated: bool,
}

impl From<ShownProgress> for ProgressView {
    fn from(shown: ShownProgress) -> Self {
        ProgressView {
            fraction: shown.progress.fraction,
            done: shown.progress.done,
            total: shown.progress.total,
            message: shown.progress.message,
            rate_per_s: shown.rate_per_s,
            left_ms: shown.left_ms,
            at: shown.at.0,
            estimated: shown.estimated,
        }
    }
}

impl JobsQuery {
    /// Reports whether the request asks for a page.
    pub fn is_paged(&self) -> bool {
        self.after.is_some() || self.limit.is_some() || self.newest.is_some() || self.next.is_some()
    }

    /// Refuses `text` and `next` for operations on all matching jobs, because these choose a few jobs.
    pub fn check_all(&self) -> Result<(), Refused> {
        let name = match (&self.text, self.next) {
            (Some(_), _) => "`text` searches only the newest jobs",
            (None, Some(_)) => "`next` lists only the jobs of the next claim",
            (None, None) => return Ok(()),
        };
        Err(Refused::invalid(
            format!("{name}, so this operation does not take it"),
            "use it with `GET /jobs`",
        ))
    }

    /// What the next claim wants, within the caller's queues.
    fn want(self, access: &Access) -> Result<Want, Refused> {
        let jobs_max = check_rows(self.limit, PAGE_ROWS, NEXT_JOBS_MAX)?;
        let (queue, kind) = (self.queue.clone(), self.kind.clone());
        let known = JobsQuery {
            next: self.next,
            limit: self.limit,
            queue: queue.clone(),
            kind: kind.clone(),
            ..JobsQuery::default()
        };
        if self != known {
            return Err(Refused::invalid(
                "`next` takes no condition but `queue` and `kind`, because a claim has no others",
                "omit the others, and `after` and `newest`",
            ));
        }
        Ok(Want {
            jobs_max,
            queues: access.filter_queue(queue)?.map(Arc::from).into_iter().collect(),
            kinds: kind.map(Arc::from).into_iter().collect(),
            priority_min: None,
        })
    }

    /// The filter of the request, within the caller's queues.
    pub async fn filter(self, store: &dyn Store, access: &Access) -> Result<JobFilter, Refused> {
        let tags = self.tags.iter().flat_map(|tags| tags.split(','));
        let conditions = FilterRequest {
            states: self.states.into_iter().collect(),
            kind: self.kind,
            queue: self.queue,
            group: self.group,
            run: self.run,
            batch: self.batch,
            since: self.since,
            until: self.until,
            tags: tags.map(str::to_owned).collect(),
            key: self.key,
            key_prefix: self.key_prefix,
            parent: self.parent,
        };
        conditions.filter(store, access).await
    }

    /// The number of rows on the page.
    pub fn rows(&self) -> Result<u32, Refused> {
        check_rows(self.limit, PAGE_ROWS, PAGE_ROWS_MAX)
    }

    /// Whether the request searches a text, which reads payloads.
    pub fn is_search(&self) -> bool {
        self.text.is_some()
    }
}

/// One job in a listing.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobSummary {
    /// Its id.
    #[cfg_attr(feature = "schema", schema(example = "42:7"))]
    job: String,
    /// Its kind.
    kind: String,
    /// Its queue.
    queue: String,
    /// Its group, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// Its state.
    #[cfg_attr(feature = "schema", schema(example = "completed"))]
    state: String,
    /// The running, last or next attempt, from 1; 0 without any.
    attempt: u32,
    /// Higher is claimed first.
    priority: i16,
    /// The time of its submit. Milliseconds since 1970.
    submitted_at: i64,
    /// The time from which it can be claimed, while it waits. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<i64>,
    /// The time of its end. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<i64>,
    /// The time of its claim, while it runs. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    claimed_at: Option<i64>,
    /// Its progress, while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<ProgressView>,
    /// The message of its last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The extent of a search for a text.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Searched {
    /// The number of jobs that match the other conditions and were searched, the newest first.
    jobs: u64,
    /// True if all such jobs were searched, so that no older job has the text.
    all: bool,
}

/// A page of jobs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobsPage {
    /// By id ascending; with `newest` and with `text`, descending; with `next`, in the order of claims.
    jobs: Vec<JobSummary>,
    /// The extent of the search, if the request has `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    searched: Option<Searched>,
    /// The `after` of the next page, if there may be more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl From<JobRow> for JobSummary {
    fn from(row: JobRow) -> Self {
        JobSummary {
            job: row.job.to_string(),
            kind: row.kind.to_string(),
            queue: row.queue.to_string(),
            group: row.group.map(|group| group.to_string()),
            state: row.state.name().to_owned(),
            attempt: row.attempt,
            priority: row.priority,
            submitted_at: row.submitted_at.0,
            run_at: row.run_at.map(|at| at.0),
            finished_at: row.finished_at.map(|at| at.0),
            claimed_at: row.claimed_at.map(|at| at.0),
            progress: row.progress.map(Into::into),
            error: row.error,
        }
    }
}

/// The number of matching jobs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Counted {
    /// All of them.
    jobs: u64,
    /// Their number by state.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    states: JobCounts,
}

/// Lists jobs.
pub async fn jobs(engine: &Engine, access: &Access, query: JobsQuery) -> Result<JobsPage, Refused> {
    let store = &**engine.store();
    if query.text.is_some() {
        return found(store, access, query).await;
    }
    if query.next == Some(true) {
        let rows = store.next_jobs(&query.want(access)?).await?;
        return Ok(JobsPage {
            jobs: rows.into_iter().map(Into::into).collect(),
            searched: None,
            next: None,
        });
    }
    let limit = query.rows()?;
    let after = query.after.as_deref().map(read_job).transpose()?;
    let newest = query.newest.unwrap_or(false);
    if newest && after.is_some() {
        return Err(Refused::invalid(
            "`newest` and `after` exclude each other",
            "omit `after`; give a larger `limit`, or `until`, for older jobs",
        ));
    }
    let filter = query.filter(store, access).await?;
    let rows = if newest {
        store.newest_jobs(&filter, limit).await?
    } else {
        store.jobs(&filter, Page { after, limit }).await?
    };
    assert!(rows.len() <= limit as usize, "a page has at most {limit} jobs");
    let next = rows
        .last()
        .filter(|_| !newest && rows.len() == limit as usize)
        .map(|row| row.job.to_string());
    Ok(JobsPage {
        jobs: rows.into_iter().map(Into::into).collect(),
        searched: None,
        next,
    })
}

/// Finds the newest jobs with the text of the request.
async fn found(store: &dyn Store, access: &Access, mut query: JobsQuery) -> Result<JobsPage, Refused> {
    let limit = query.limit.unwrap_or(SEARCH_ROWS_MAX);
    if query.next == Some(true) {
        return Err(Refused::invalid(
            "`text` and `next` exclude each other",
            "omit one of them",
        ));
    }
    if query.after.is_some() || limit == 0 || limit > SEARCH_ROWS_MAX {
        return Err(Refused::invalid(
            "a search for `text` has no further pages and at most 100 jobs",
            format!(
                "omit `after`, give a `limit` of 1 to {SEARCH_ROWS_MAX}, or search with `until` for older jobs"
            ),
        ));
    }
    let text = query.text.take().unwrap_or_default();
    let filter = query.filter(store, access).await?;
    let found = search(store, &filter, &text, limit as usize).await?;
    Ok(JobsPage {
        jobs: found.rows.into_iter().map(Into::into).collect(),
        searched: Some(Searched {
            jobs: found.searched,
            all: found.is_all,
        }),
        next: None,
    })
}

/// Counts jobs.
pub async fn count_jobs(engine: &Engine, access: &Access, query: JobsQuery) -> Result<Counted, Refused> {
    query.check_all()?;
    if query.is_paged() {
        return Err(Refused::invalid(
            "a count has no pages",
            "omit `after`, `limit`, `newest` and `next`",
        ));
    }
    let filter = query.filter(&**engine.store(), access).await?;
    let states = engine.store().counts(&filter).await?;
    Ok(Counted {
        jobs: states.total(),
        states,
    })
}
