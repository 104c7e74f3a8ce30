//! The selection of jobs for a cancel, a retry or another change.

use std::collections::BTreeSet;

use gristmill_model::{BatchId, JobId, TagCondition, Timestamp, bounded};
use gristmill_store::{Changed, JobFilter, Selection, Store};
use serde::{Deserialize, Serialize};

use crate::access::{Access, has_batch, run_id};
use crate::limits::{NAMES_READ_MAX, SELECTED_JOBS_MAX, SELECTED_JOBS_READ_MAX};
use crate::read::{read_job, read_states};
use crate::refused::Refused;

/// Either jobs by id, or all matching jobs.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SelectionRequest {
    /// These jobs.
    #[serde(
        default,
        deserialize_with = "bounded::optional_list::<_, _, SELECTED_JOBS_READ_MAX>"
    )]
    #[cfg_attr(feature = "schema", schema(max_items = 10_000, example = json!(["42:7", "42:8"])))]
    jobs: Option<Vec<String>>,
    /// All matching jobs.
    #[serde(default)]
    filter: Option<FilterRequest>,
}

/// Conditions that must all match; at least one is required.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FilterRequest {
    /// Only in one of these states.
    #[serde(
        default,
        deserialize_with = "bounded::list::<_, _, NAMES_READ_MAX>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schema(example = json!(["dead"])))]
    states: Vec<String>,
    /// Only of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// Only on this queue. Required for a token with several queues but not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Only of this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// Only of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    /// Only of this batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    batch: Option<i64>,
    /// Only jobs that were submitted at this time or later. Milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<i64>,
    /// Only jobs that were submitted before this time. Milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<i64>,
    /// Only with all of these tags: `name=value`, `name` (any value), or `name*` (a prefix of the name).
    #[serde(
        default,
        deserialize_with = "bounded::list::<_, _, NAMES_READ_MAX>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schema(max_items = 32, example = json!(["customer=7"])))]
    tags: Vec<String>,
    /// Only with this deduplication key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Only with a deduplication key that has this prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_prefix: Option<String>,
    /// Only children of this job, including siblings that its children spawned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(example = "42:7"))]
    parent: Option<String>,
}

/// The result of a change.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ChangedView {
    /// The number of changed jobs.
    changed: u64,
    /// The number of named jobs that do not exist or are in another state.
    unchanged: u64,
}

impl From<Changed> for ChangedView {
    fn from(changed: Changed) -> Self {
        ChangedView {
            changed: changed.changed,
            unchanged: changed.unchanged,
        }
    }
}

impl SelectionRequest {
    /// The selection of jobs within a larger request.
    pub fn new(jobs: Option<Vec<String>>, filter: Option<FilterRequest>) -> Self {
        SelectionRequest { jobs, filter }
    }

    /// The selection, within the caller's queues.
    pub async fn check(self, store: &dyn Store, access: &Access) -> Result<Selection, Refused> {
        match (self.jobs, self.filter) {
            (Some(jobs), None) => by_id(store, access, &jobs).await,
            (None, Some(filter)) => Ok(Selection::Filter(filter.check(store, access).await?)),
            _ => Err(Refused::invalid(
                "a selection needs either `jobs` or `filter`",
                "give `jobs` (a list of ids), or `filter` (an object)",
            )),
        }
    }
}

async fn by_id(store: &dyn Store, access: &Access, jobs: &[String]) -> Result<Selection, Refused> {
    if jobs.len() > SELECTED_JOBS_MAX {
        return Err(Refused::TooLarge {
            what: "the number of jobs in one selection".to_owned(),
            limit: format!("{SELECTED_JOBS_MAX} jobs"),
        });
    }
    let mut jobs: Vec<JobId> = jobs.iter().map(|job| read_job(job)).collect::<Result<_, _>>()?;
    let batches: BTreeSet<BatchId> = jobs.iter().map(|job| job.batch).collect();
    let mut own = BTreeSet::new();
    for batch in batches {
        if has_batch(store, access, batch).await? {
            own.insert(batch);
        }
    }
    // Jobs outside of the caller's queues do not change, just as missing jobs do not.
    jobs.retain(|job| own.contains(&job.batch));
    Ok(Selection::Jobs(jobs))
}

impl FilterRequest {
    /// The filter, within the caller's queues.
    pub async fn check(self, store: &dyn Store, access: &Access) -> Result<JobFilter, Refused> {
        let named = !self.states.is_empty()
            || self.kind.is_some()
            || self.queue.is_some()
            || self.group.is_some()
            || self.run.is_some()
            || self.batch.is_some()
            || self.since.is_some()
            || self.until.is_some()
            || !self.tags.is_empty()
            || self.key.is_some()
            || self.key_prefix.is_some()
            || self.parent.is_some();
        if !named {
            return Err(Refused::invalid(
                "a filter without conditions would select all jobs",
                "name at least one: states, kind, queue, group, run, batch, since, until, tags, key, key_prefix or parent",
            ));
        }
        let states: Result<Vec<_>, _> = self.states.iter().map(|state| read_states(state)).collect();
        Ok(JobFilter {
            states: states?.concat(),
            kind: self.kind,
            queue: access.filter_queue(self.queue)?,
            group: self.group,
            run: match self.run {
                Some(run) => Some(run_id(store, access, &run).await?),
                None => None,
            },
            batch: self.batch.map(BatchId),
            submitted_since: self.since.map(Timestamp),
            submitted_until: self.until.map(Timestamp),
            key: self.key,
            key_prefix: self.key_prefix,
            tags: self.tags.iter().map(|text| TagCondition::parse(text)).collect(),
            parent: self.parent.as_deref().map(read_job).transpose()?,
        })
    }
}
