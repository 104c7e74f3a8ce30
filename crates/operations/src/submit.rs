//! The request of a submit, and the cutting of its payloads into batches.

pub mod spawned;
#[cfg(feature = "engine")]
pub mod submitted;

use std::collections::BTreeMap;
use std::fmt;

use gristmill_model::batch::DEFAULT_QUEUE;
use gristmill_model::bounded::{self, List, Texts};
use gristmill_model::limits::{BATCH_JOBS_MAX, JSON_DEPTH_MAX};
use gristmill_model::{
    After, BatchLimits, BatchOptions, KeyedBatch, NewBatch, OnFailure, PackedArray, PackedCutter,
    PackedError, Tag, Timestamp, TraceParent, Unique, pack_tags,
};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::limits::{AFTER_READ_MAX, JOBS_PER_REQUEST_MAX, JOBS_READ_MAX, TAGS_READ_MAX};
use crate::options::{
    Priority, RetryOptions, UniqueOptions, check_after, check_names, take_job_options, with_job_options,
};
use crate::refused::Refused;

with_job_options! {
    /// Jobs of one kind, either one `payload` or many `payloads`, with shared options.
    #[derive(Debug, Deserialize)]
    #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
    #[serde(deny_unknown_fields)]
    pub struct SubmitRequest<'a> {
        /// The kind: selects the handler of the jobs.
        #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200, example = "thumbnail"))]
        kind: String,
        /// The queue: selects the workers of the jobs; `default` by default.
        #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
        #[serde(default)]
        queue: Option<String>,
        /// The payload of one job: any JSON.
        #[serde(default, borrow, deserialize_with = "even_null")]
        #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
        payload: Option<&'a RawValue>,
        /// The payloads of many jobs.
        #[serde(
            default,
            borrow,
            deserialize_with = "bounded::optional_list::<_, _, JOBS_READ_MAX>"
        )]
        #[cfg_attr(
            feature = "schema",
            schema(value_type = Option<Vec<serde_json::Value>>, min_items = 1, max_items = 100_000)
        )]
        payloads: Option<Vec<&'a RawValue>>,
        /// Names and values to find the jobs by, at most 32 for each job: one object for all jobs, or, with `payloads`, a
        /// list with one object for each.
        #[serde(default)]
        tags: Option<JobTags>,
        /// With `payload`: the job's deduplication key, which at most one open job has.
        #[serde(default)]
        #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
        key: Option<String>,
        /// With `payloads`: a deduplication key (or null) for each job.
        #[serde(default, deserialize_with = "bounded::optional_list::<_, _, JOBS_READ_MAX>")]
        #[cfg_attr(feature = "schema", schema(min_items = 1, max_items = 100_000))]
        keys: Option<Vec<Option<String>>>,
        /// The rules of deduplication.
        #[serde(default)]
        unique: Option<UniqueOptions>,
        /// Prerequisites, which must end before the jobs can be claimed: batches (`42`), jobs (`42:7`) or parts of a batch
        /// (`42:0-499,731`), of any kind and queue.
        #[serde(default, deserialize_with = "bounded::optional_list::<_, _, AFTER_READ_MAX>")]
        #[cfg_attr(feature = "schema", schema(max_items = 1000, example = json!(["42:7"])))]
        after: Option<Vec<String>>,
        /// The action if a prerequisite ends without completing: `cancel` by default.
        #[serde(default)]
        after_failure: Option<OnFailure>,
    }
}

/// Reads a value that is present, even if it is `null`.
pub fn even_null<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The tags of the jobs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = SubmitTags))]
#[serde(untagged)]
pub enum JobTags {
    /// The same tags for all jobs.
    All(BTreeMap<String, String>),
    /// Tags of each job, in the order of the payloads: an object of texts, or null.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<Object>))]
    Each(Vec<Option<BTreeMap<String, String>>>),
}

impl<'de> Deserialize<'de> for JobTags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TagsVisitor)
    }
}

/// Adds the place to an error.
fn in_tags<E: serde::de::Error>(error: E) -> E {
    E::custom(format!("`tags`: {error}"))
}

/// Reads tags in pieces, each within its limit.
struct TagsVisitor;

impl<'de> Visitor<'de> for TagsVisitor {
    type Value = JobTags;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("tags: an object of names and texts, or a list of such objects, one a payload")
    }

    fn visit_map<A: MapAccess<'de>>(self, tags: A) -> Result<JobTags, A::Error> {
        let tags = Texts::<TAGS_READ_MAX>::deserialize(MapAccessDeserializer::new(tags));
        Ok(JobTags::All(tags.map_err(in_tags)?.0))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, tags: A) -> Result<JobTags, A::Error> {
        type Each = List<Option<Texts<TAGS_READ_MAX>>, JOBS_READ_MAX>;
        let tags = Each::deserialize(SeqAccessDeserializer::new(tags)).map_err(in_tags)?;
        let each = tags.0.into_iter().map(|tags| tags.map(|tags| tags.0));
        Ok(JobTags::Each(each.collect()))
    }
}

/// Cuts the payloads of one request into batches.
#[derive(Debug)]
pub struct JobCutter {
    /// A batch without jobs: the common part of all batches.
    template: NewBatch,
    cutter: PackedCutter,
    batches: Vec<NewBatch>,
    jobs: usize,
    /// The number of jobs in these batches.
    added: usize,
    keys: Option<Keys>,
    /// The tags of each job that is not in a batch yet, up to the last job with its own tags.
    job_tags: Vec<BTreeMap<String, String>>,
}

/// The keys of a request's jobs.
#[derive(Debug)]
struct Keys {
    unique: Unique,
    /// One key for each job, in order.
    all: std::vec::IntoIter<Option<String>>,
}

/// The batches of a request.
#[derive(Debug)]
pub enum Batches {
    /// Jobs without keys.
    Plain(Vec<NewBatch>),
    /// Jobs with keys.
    Keyed(Vec<KeyedBatch>),
}

impl JobCutter {
    /// A cutter for jobs of one kind and queue.
    pub fn new(kind: String, queue: String, options: BatchOptions) -> Self {
        // Jobs with hooks are one batch, so that the end of the batch is the end of all jobs.
        let limits = match options.hooks {
            Some(_) => BatchLimits {
                jobs_max: u32::MAX,
                bytes_max: usize::MAX,
            },
            None => BatchLimits::default(),
        };
        JobCutter {
            cutter: PackedCutter::new(limits),
            template: NewBatch {
                queue,
                options,
                ..NewBatch::new(kind, PackedArray::from_stored("[]"))
            },
            batches: Vec::new(),
            jobs: 0,
            added: 0,
            keys: None,
            job_tags: Vec::new(),
        }
    }

    /// The number of jobs so far.
    pub fn jobs(&self) -> usize {
        self.jobs
    }

    /// Sets the common tags of all jobs, and returns the tags of each job. `many` is the number of payloads if the
    /// request has a list of them.
    fn tags_of_each(
        &mut self,
        tags: Option<JobTags>,
        many: Option<usize>,
    ) -> Result<Vec<Option<BTreeMap<String, String>>>, Refused> {
        match tags {
            None => Ok(Vec::new()),
            Some(JobTags::All(tags)) => {
                self.template.tags = tags
                    .into_iter()
                    .map(|(name, value)| Tag::all(name, value))
                    .collect();
                Ok(Vec::new())
            }
            Some(JobTags::Each(tags)) if many == Some(tags.len()) => Ok(tags),
            Some(JobTags::Each(tags)) => Err(Refused::invalid(
                format!(
                    "the request has {} `tags` for {} `payloads`",
                    tags.len(),
                    many.unwrap_or(0)
                ),
                "give one object (or null) a payload, or one object for all",
            )),
        }
    }

    /// Puts the jobs into a trace.
    pub fn trace(&mut self, traceparent: Option<TraceParent>) {
        self.template.options.traceparent = traceparent;
        for batch in &mut self.batches {
            batch.options.traceparent = traceparent;
        }
    }

    /// Sets the prerequisites of the jobs.
    pub fn wait(&mut self, after: Vec<After>) {
        for batch in &mut self.batches {
            batch.after.clone_from(&after);
        }
        self.template.after = after;
    }

    /// Adds one payload. `place` describes its place in the request.
    pub fn push(&mut self, payload: &str, place: impl Fn(usize) -> String) -> Result<(), Refused> {
        self.push_tagged(payload, BTreeMap::new(), place)
    }

    /// Adds one payload with its own tags.
    pub fn push_tagged(
        &mut self,
        payload: &str,
        tags: BTreeMap<String, String>,
        place: impl Fn(usize) -> String,
    ) -> Result<(), Refused> {
        let too_many = |what: &str, limit: usize| Refused::TooLarge {
            what: format!("the number of jobs in one request{what}"),
            limit: format!("{limit} jobs"),
        };
        if self.jobs >= JOBS_PER_REQUEST_MAX {
            return Err(too_many("", JOBS_PER_REQUEST_MAX));
        }
        if self.template.options.hooks.is_some() && self.jobs >= BATCH_JOBS_MAX as usize {
            return Err(too_many(
                " with `on_success` or `on_failure`",
                BATCH_JOBS_MAX as usize,
            ));
        }
        let full = self.cutter.push(payload).map_err(|error| match error {
            PackedError::ItemTooLarge { bytes, bytes_max, .. } => Refused::TooLarge {
                what: format!("{} with {bytes} bytes", place(self.jobs)),
                limit: format!("{bytes_max} bytes"),
            },
            PackedError::NotJson { reason, .. } => Refused::invalid(
                format!("{} is not JSON: {reason}", place(self.jobs)),
                "correct it; the request submitted nothing",
            ),
            PackedError::TooDeep { .. } => Refused::invalid(
                format!("{} nests deeper than {JSON_DEPTH_MAX} levels", place(self.jobs)),
                "flatten it, or send it as text",
            ),
            other => Refused::invalid(other.to_string(), "correct the request"),
        })?;
        if !tags.is_empty() {
            self.job_tags.resize(self.jobs - self.added, BTreeMap::new());
            self.job_tags.push(tags);
        }
        self.jobs += 1;
        if let Some(full) = full {
            self.add(full);
        }
        Ok(())
    }

    /// Adds a batch with the first jobs that are not in a batch yet.
    fn add(&mut self, payloads: PackedArray) {
        let jobs = payloads.count() as usize;
        assert!(self.job_tags.len() <= self.jobs - self.added, "tags have jobs");
        let mut batch = NewBatch {
            payloads,
            ..self.template.clone()
        };
        if !self.job_tags.is_empty() {
            let rest = self.job_tags.split_off(jobs.min(self.job_tags.len()));
            let mut tags = std::mem::replace(&mut self.job_tags, rest);
            tags.resize(jobs, BTreeMap::new());
            batch.tags.extend(pack_tags(&tags));
        }
        assert!(self.added + jobs <= self.jobs, "a batch has pushed jobs");
        self.added += jobs;
        self.batches.push(batch);
    }

    /// The batches of all jobs: at least one.
    pub fn finish(mut self) -> Result<Batches, Refused> {
        if let Some(last) = self.cutter.rest() {
            self.add(last);
        }
        if self.batches.is_empty() {
            return Err(Refused::invalid(
                "the request has no jobs",
                "send at least one payload",
            ));
        }
        assert_eq!(self.added, self.jobs, "each job is in a batch");
        let Some(Keys { unique, mut all }) = self.keys else {
            return Ok(Batches::Plain(self.batches));
        };
        let keyed = self
            .batches
            .into_iter()
            .map(|batch| KeyedBatch::with_keys(batch, &mut all, unique));
        let keyed: Result<_, _> = keyed.collect();
        keyed
            .map(Batches::Keyed)
            .map_err(|error: PackedError| Refused::invalid(error.to_string(), "correct the keys"))
    }
}

impl SubmitRequest<'_> {
    /// The queue of the jobs.
    pub fn queue(&self) -> &str {
        self.queue.as_deref().unwrap_or(DEFAULT_QUEUE)
    }

    /// The rules of deduplication of jobs with keys. `None` for jobs without keys.
    pub fn unique(&self) -> Result<Option<Unique>, Refused> {
        match (self.key.is_some() || self.keys.is_some(), &self.unique) {
            (false, None) => Ok(None),
            (false, Some(_)) => Err(Refused::invalid(
                "the request has `unique` without keys",
                "give `key` with `payload`, or `keys` with `payloads`",
            )),
            (true, unique) => unique.unwrap_or_default().check().map(Some),
        }
    }

    /// Checks the request and packs its jobs. Returns their prerequisites, which the caller checks and sets.
    pub fn cut(mut self, now: Timestamp) -> Result<(JobCutter, Vec<After>), Refused> {
        check_names(&self.kind, self.queue())?;
        let (queue, options) = (self.queue().to_owned(), take_job_options!(self).check(now)?);
        let unique = self.unique()?;
        let mut cutter = JobCutter::new(self.kind, queue, options);
        let many = self.payloads.as_ref().map(Vec::len);
        if let (Some(all), Some(unique)) = (keys_of(self.key, self.keys, many)?, unique) {
            let all = all.into_iter();
            cutter.keys = Some(Keys { unique, all });
        }
        let after = check_after(
            self.after.as_deref().unwrap_or_default(),
            self.after_failure.unwrap_or_default(),
        )?;
        let mut each = cutter.tags_of_each(self.tags, many)?.into_iter();
        match (self.payload, self.payloads) {
            (Some(payload), None) => cutter.push(payload.get(), |_| "`payload`".to_owned())?,
            (None, Some(payloads)) => {
                for payload in payloads {
                    let tags = each.next().flatten().unwrap_or_default();
                    cutter.push_tagged(payload.get(), tags, |index| format!("`payloads[{index}]`"))?;
                }
            }
            _ => {
                return Err(Refused::invalid(
                    "a submit needs either `payload` or `payloads`",
                    "give `payload` for one job, or `payloads` (a list) for many",
                ));
            }
        }
        Ok((cutter, after))
    }
}

/// Returns the keys of a request's jobs. `many` is the number of jobs if the request has a list.
fn keys_of(
    key: Option<String>,
    keys: Option<Vec<Option<String>>>,
    many: Option<usize>,
) -> Result<Option<Vec<Option<String>>>, Refused> {
    match (key, keys, many) {
        (None, None, _) => Ok(None),
        (Some(key), None, None) => Ok(Some(vec![Some(key)])),
        (None, Some(keys), Some(jobs)) if keys.len() == jobs => Ok(Some(keys)),
        (None, Some(keys), Some(jobs)) => Err(Refused::invalid(
            format!("the request has {} `keys` for {jobs} `payloads`", keys.len()),
            "give a key or null for each payload",
        )),
        _ => Err(Refused::invalid(
            "`key` belongs to `payload`, and `keys` to `payloads`",
            "give `key` for one job, or `keys` (a list) for many",
        )),
    }
}
