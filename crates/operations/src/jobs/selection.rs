//! The selection of jobs for a cancel, a retry or another change.

use std::collections::BTreeSet;

use gristmill_model::{BatchId, JobId, TagCondition, Timestamp, bounded};
use gristmill_store::{Changed, JobFilter, Selection, Store};
use serde::{Deserialize, Serialize};

use crate::access::{Access, has_batch, run_id};
use crate::limits::{NAMES_READ_MAX, SELECTED_JOBS_MAX};
use crate::read::{read_job, read_states};
use crate::refused::Refused;

/// A request that selects jobs, and has further fields of its own.
macro_rules! selecting {
    ($(#[$about:meta])* $name:ident { $($(#[$field_about:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// These jobs.
            #[serde(
                default,
                deserialize_with = "gristmill_model::bounded::optional_list::<_, _, {crate::limits::SELECTED_JOBS_READ_MAX}>"
            )]
            #[cfg_attr(feature = "schema", schema(max_items = 10_000, example = json!(["42:7", "42:8"])))]
            pub(super) jobs: Option<Vec<String>>,
            /// All matching jobs.
            #[serde(default)]
            pub(super) filter: Option<FilterRequest>,
            $($(#[$field_about])* $field: $type,)*
        }

        impl $name {
            /// Takes the selected jobs.
            pub fn selection(&mut self) -> SelectionRequest {
                SelectionRequest { jobs: self.jobs.take(), filter: self.filter.take() }
            }
        }
    };
}

pub(super) use selecting;

selecting! {
    /// Either jobs by id, or all matching jobs.
    SelectionRequest {}
}

/// Conditions that must all match; at least one is required.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
    pub states: Vec<String>,
    /// Only of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Only on this queue. Required for a token with several queues but not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Only of this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Only of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Only of this batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<i64>,
    /// Only jobs that were submitted at this time or later. Milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
    /// Only jobs that were submitted before this time. Milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
    /// Only with all of these tags: `name=value`, `name` (any value), or `name*` (a prefix of the name).
    #[serde(
        default,
        deserialize_with = "bounded::list::<_, _, NAMES_READ_MAX>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schema(max_items = 32, example = json!(["customer=7"])))]
    pub tags: Vec<String>,
    /// Only with this deduplication key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Only with a deduplication key that has this prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_prefix: Option<String>,
    /// Only children of this job, including siblings that its children spawned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(example = "42:7"))]
    pub parent: Option<String>,
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
    /// The jobs that it names.
    pub(super) fn named(&self) -> Result<BTreeSet<JobId>, Refused> {
        self.jobs.iter().flatten().map(|job| read_job(job)).collect()
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
        if self == FilterRequest::default() {
            return Err(Refused::invalid(
                "a filter without conditions would select all jobs",
                "name at least one: states, kind, queue, group, run, batch, since, until, tags, key, key_prefix or parent",
            ));
        }
        self.filter(store, access).await
    }

    /// The filter, within the caller's queues. Without conditions, it matches all jobs.
    ///
    /// # Errors
    ///
    /// A condition is wrong, the run does not exist, or the store fails.
    pub async fn filter(self, store: &dyn Store, access: &Access) -> Result<JobFilter, Refused> {
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
            no_steps: false,
        })
    }
}
