//! `POST /jobs`: one job or many.

use std::collections::BTreeMap;
use std::fmt;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use gristmill_model::batch::DEFAULT_QUEUE;
use gristmill_model::bounded::{self, List, Texts};
use gristmill_model::limits::{BATCH_BYTES_TARGET, BATCH_JOBS_MAX, JSON_DEPTH_MAX};
use gristmill_model::{
    After, BatchOptions, KeyedBatch, NewBatch, PackedBuilder, PackedError, Prerequisite, Tag, Timestamp,
    TraceParent, Unique, pack_tags,
};
use gristmill_store::StoreError;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::awaited::{Awaited, SubmitQuery};
use super::priority_name::PriorityName;
use super::submit_options::{AfterFailureName, RetryOptions, SubmitOptions, check_after, check_names};
use super::unique::UniqueOptions;
use crate::app::App;
use crate::body::{JsonBody, Query, even_null, json};
use crate::caller::Caller;
use crate::endpoints::has_batch;
use crate::error::{ApiError, Refusal};
use crate::limits::{AFTER_READ_MAX, ITEM_BYTES_MAX, JOBS_PER_REQUEST_MAX, JOBS_READ_MAX, TAGS_READ_MAX};

/// The header of a request that belongs to a trace.
const TRACEPARENT: &str = "traceparent";

/// Jobs of one batch of a submit.
pub const BATCH_JOBS: u32 = 1_000;

/// Jobs of one kind, either one `payload` or many `payloads`, with shared options.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest<'a> {
    /// The kind: selects the handler of the jobs.
    #[schema(min_length = 1, max_length = 200, example = "thumbnail")]
    kind: String,
    /// The queue: selects the workers of the jobs; `default` by default.
    #[schema(min_length = 1, max_length = 200)]
    #[serde(default)]
    queue: Option<String>,
    /// The payload of one job: any JSON.
    #[serde(default, borrow, deserialize_with = "even_null")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<&'a RawValue>,
    /// The payloads of many jobs.
    #[serde(
        default,
        borrow,
        deserialize_with = "bounded::optional_list::<_, _, JOBS_READ_MAX>"
    )]
    #[schema(value_type = Option<Vec<serde_json::Value>>, min_items = 1, max_items = 100_000)]
    payloads: Option<Vec<&'a RawValue>>,
    /// Higher is claimed first; 0 by default.
    #[serde(default)]
    priority: Option<PriorityName>,
    /// The earliest start. Milliseconds since 1970.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 253_402_300_799_999_i64)]
    run_at: Option<i64>,
    /// The delay before the jobs can be claimed, by the server's clock. Milliseconds. Not with `run_at`.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 316_224_000_000_i64)]
    delay_ms: Option<u64>,
    /// A job that no worker has started by this time expires. Milliseconds since 1970.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 253_402_300_799_999_i64)]
    expires_at: Option<i64>,
    /// The time limit of one attempt. Milliseconds.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 316_224_000_000_i64)]
    timeout_ms: Option<u64>,
    /// A job that has not completed this long after its first attempt began is not retried, and ends as dead.
    /// Milliseconds.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 316_224_000_000_i64)]
    complete_within_ms: Option<u64>,
    /// Reuses the value of a job of the same queue, kind, group and payload that completed within this time, if it
    /// also had this option. Milliseconds. Not with keys and `after`.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 316_224_000_000_i64)]
    cached_ms: Option<u64>,
    /// The retry policy.
    #[serde(default)]
    retry: Option<RetryOptions>,
    /// Names and values to find the jobs by, at most 32 for each job: one object for all jobs, or, with `payloads`, a
    /// list with one object for each.
    #[serde(default)]
    tags: Option<SubmitTags>,
    /// With `payload`: the job's deduplication key, which at most one open job has.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    key: Option<String>,
    /// With `payloads`: a deduplication key (or null) for each job.
    #[serde(default, deserialize_with = "bounded::optional_list::<_, _, JOBS_READ_MAX>")]
    #[schema(min_items = 1, max_items = 100_000)]
    keys: Option<Vec<Option<String>>>,
    /// The rules of deduplication.
    #[serde(default)]
    unique: Option<UniqueOptions>,
    /// The tenant or customer that owns the jobs: limits, pauses and shares can apply to a group.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    group: Option<String>,
    /// When all jobs of the submit have completed: the kind of a job that gets a summary as its payload, or a URL that a
    /// worker with `--http-hooks` posts the summary to. With at most 10,000 jobs, and not with keys.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 2000, example = "https://hooks.example/done")]
    on_success: Option<String>,
    /// The same, when all jobs of the submit have ended and one has not completed.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 2000)]
    on_failure: Option<String>,
    /// Prerequisites, which must end before the jobs can be claimed: batches (`42`), jobs (`42:7`) or parts of a batch
    /// (`42:0-499,731`), of any kind and queue.
    #[serde(default, deserialize_with = "bounded::optional_list::<_, _, AFTER_READ_MAX>")]
    #[schema(max_items = 1000, example = json!(["42:7"]))]
    after: Option<Vec<String>>,
    /// The action if a prerequisite ends without completing: `cancel` by default.
    #[serde(default)]
    after_failure: Option<AfterFailureName>,
}

/// The tags of the jobs.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum SubmitTags {
    /// Of all jobs.
    All(BTreeMap<String, String>),
    /// Tags of each job, in the order of the payloads: an object of texts, or null.
    #[schema(value_type = Vec<Object>)]
    Each(Vec<Option<BTreeMap<String, String>>>),
}

impl<'de> Deserialize<'de> for SubmitTags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TagsVisitor)
    }
}

/// Names the place of an error.
fn in_tags<E: serde::de::Error>(error: E) -> E {
    E::custom(format!("`tags`: {error}"))
}

/// Reads tags as they come, each within its limit.
struct TagsVisitor;

impl<'de> Visitor<'de> for TagsVisitor {
    type Value = SubmitTags;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("tags: an object of names and texts, or a list of such objects, one a payload")
    }

    fn visit_map<A: MapAccess<'de>>(self, tags: A) -> Result<SubmitTags, A::Error> {
        let tags = Texts::<TAGS_READ_MAX>::deserialize(MapAccessDeserializer::new(tags));
        Ok(SubmitTags::All(tags.map_err(in_tags)?.0))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, tags: A) -> Result<SubmitTags, A::Error> {
        type Each = List<Option<Texts<TAGS_READ_MAX>>, JOBS_READ_MAX>;
        let tags = Each::deserialize(SeqAccessDeserializer::new(tags)).map_err(in_tags)?;
        let each = tags.0.into_iter().map(|tags| tags.map(|tags| tags.0));
        Ok(SubmitTags::Each(each.collect()))
    }
}

/// One batch of a submit. Its jobs are `batch:0` to `batch:(count - 1)`, in the order of the payloads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmittedBatch {
    /// Its id.
    pub batch: i64,
    /// The position of its first job.
    pub first_position: u32,
    /// Its number of jobs.
    pub count: u32,
}

/// The submitted jobs, which are on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Submitted {
    /// The number of jobs.
    pub jobs: u64,
    /// The id of the first of them.
    #[schema(example = "42:0")]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub first: String,
    /// Their batches, in order.
    pub batches: Vec<SubmittedBatch>,
    /// For jobs with keys: the id of each, or of the job that stands for it, in order. (`jobs`, `first` and `batches`
    /// describe the stored jobs only.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
}

/// Cuts checked payloads into batches.
#[derive(Debug)]
pub struct BatchCutter {
    kind: String,
    queue: String,
    options: BatchOptions,
    after: Vec<After>,
    builder: PackedBuilder,
    batches: Vec<NewBatch>,
    jobs: usize,
    keys: Option<Keys>,
    tags: Vec<Tag>,
    /// Of each job of the batch that is being packed, where some have tags of their own.
    job_tags: Vec<BTreeMap<String, String>>,
}

/// The keys of a submit's jobs.
#[derive(Debug)]
struct Keys {
    unique: Unique,
    /// One a job, in order.
    all: std::vec::IntoIter<Option<String>>,
}

impl BatchCutter {
    /// A cutter for jobs of one kind and queue.
    pub fn new(kind: String, queue: String, options: BatchOptions) -> Self {
        let builder = PackedBuilder::with_item_bytes_max(ITEM_BYTES_MAX);
        BatchCutter {
            kind,
            queue,
            options,
            after: Vec::new(),
            builder,
            batches: Vec::new(),
            jobs: 0,
            keys: None,
            tags: Vec::new(),
            job_tags: Vec::new(),
        }
    }

    /// Gives all jobs the tags that are for all of them; returns those of each job.
    fn tags_of_each(
        &mut self,
        tags: Option<SubmitTags>,
        many: Option<usize>,
    ) -> Result<Vec<Option<BTreeMap<String, String>>>, ApiError> {
        match tags {
            None => Ok(Vec::new()),
            Some(SubmitTags::All(tags)) => {
                self.tags = tags
                    .into_iter()
                    .map(|(name, value)| Tag::all(name, value))
                    .collect();
                Ok(Vec::new())
            }
            Some(SubmitTags::Each(tags)) if many == Some(tags.len()) => Ok(tags),
            Some(SubmitTags::Each(tags)) => Err(ApiError::invalid(
                format!(
                    "the request has {} `tags` for {} `payloads`",
                    tags.len(),
                    many.unwrap_or(0)
                ),
                "give one object (or null) a payload, or one object for all",
            )),
        }
    }

    /// Adds one payload with tags of its own.
    pub fn push_tagged(
        &mut self,
        payload: &str,
        tags: BTreeMap<String, String>,
        place: impl Fn(usize) -> String,
    ) -> Result<(), ApiError> {
        self.push(payload, place)?;
        let others = self.builder.count() as usize - 1;
        self.job_tags.resize(others, BTreeMap::new());
        self.job_tags.push(tags);
        Ok(())
    }

    /// Gives the jobs keys, one each in their order.
    pub fn set_keys(&mut self, keys: Vec<Option<String>>, unique: Unique) {
        self.keys = Some(Keys {
            unique,
            all: keys.into_iter(),
        });
    }

    /// Puts the jobs into the trace that the request belongs to, if it is sampled. A wrong header does not count, as the
    /// specification wants it.
    pub fn trace(&mut self, headers: &HeaderMap) {
        let header = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
        let read = header.map(TraceParent::read).and_then(Result::ok);
        self.options.traceparent = read.flatten();
        for batch in &mut self.batches {
            batch.options.traceparent = self.options.traceparent;
        }
    }

    /// Lets the jobs wait.
    pub fn wait(&mut self, after: Vec<After>) {
        self.after = after;
    }

    /// Adds one payload; `place` says where it stands in the request.
    pub fn push(&mut self, payload: &str, place: impl Fn(usize) -> String) -> Result<(), ApiError> {
        if self.jobs >= JOBS_PER_REQUEST_MAX {
            return Err(ApiError::TooLarge {
                what: "the number of jobs in one request".to_owned(),
                limit: format!("{JOBS_PER_REQUEST_MAX} jobs"),
            });
        }
        if self.options.hooks.is_some() {
            // One batch, whose end is the end of all jobs.
            if self.builder.count() >= BATCH_JOBS_MAX {
                return Err(ApiError::TooLarge {
                    what: "the number of jobs in one request with `on_success` or `on_failure`".to_owned(),
                    limit: format!("{BATCH_JOBS_MAX} jobs"),
                });
            }
        } else if self.builder.count() >= BATCH_JOBS
            || (self.builder.count() > 0 && self.builder.bytes() + payload.len() > BATCH_BYTES_TARGET)
        {
            self.cut();
        }
        self.builder.push(payload).map_err(|error| match error {
            PackedError::ItemTooLarge { bytes, bytes_max, .. } => ApiError::TooLarge {
                what: format!("{} with {bytes} bytes", place(self.jobs)),
                limit: format!("{bytes_max} bytes"),
            },
            PackedError::NotJson { reason, .. } => ApiError::invalid(
                format!("{} is not JSON: {reason}", place(self.jobs)),
                "correct it; the request submitted nothing",
            ),
            PackedError::TooDeep { .. } => ApiError::invalid(
                format!("{} nests deeper than {JSON_DEPTH_MAX} levels", place(self.jobs)),
                "flatten it, or send it as text",
            ),
            other => ApiError::invalid(other.to_string(), "correct the request"),
        })?;
        self.jobs += 1;
        Ok(())
    }

    fn cut(&mut self) {
        let full = std::mem::replace(
            &mut self.builder,
            PackedBuilder::with_item_bytes_max(ITEM_BYTES_MAX),
        );
        let mut tags = self.tags.clone();
        if !self.job_tags.is_empty() {
            self.job_tags.resize(full.count() as usize, BTreeMap::new());
            tags.extend(pack_tags(&std::mem::take(&mut self.job_tags)));
        }
        self.batches.push(NewBatch {
            queue: self.queue.clone(),
            options: self.options.clone(),
            after: self.after.clone(),
            tags,
            ..NewBatch::new(self.kind.clone(), full.finish())
        });
    }

    /// Submits all of it or nothing.
    pub async fn submit(mut self, app: &App) -> Result<Submitted, ApiError> {
        if self.builder.count() > 0 {
            self.cut();
        }
        if let Some(keys) = self.keys.take()
            && !self.batches.is_empty()
        {
            return keys.submit(self.batches, app).await;
        }
        let jobs = self.jobs as u64;
        let counts: Vec<u32> = self.batches.iter().map(|batch| batch.payloads.count()).collect();
        let batches: Vec<SubmittedBatch> = match (self.batches.len(), jobs) {
            (0, _) => {
                return Err(ApiError::invalid(
                    "the request has no jobs",
                    "send at least one payload",
                ));
            }
            (1, 1) => {
                let job = app.engine.submit_one(self.batches.remove(0)).await?;
                vec![SubmittedBatch {
                    batch: job.batch.0,
                    first_position: job.position,
                    count: 1,
                }]
            }
            _ => {
                let ids = app.engine.submit_batches(self.batches).await?;
                let submitted = ids.into_iter().zip(counts);
                submitted
                    .map(|(batch, count)| SubmittedBatch {
                        batch: batch.0,
                        first_position: 0,
                        count,
                    })
                    .collect()
            }
        };
        app.metrics.submitted(jobs);
        let first = batches
            .first()
            .map(|first| format!("{}:{}", first.batch, first.first_position));
        Ok(Submitted {
            jobs,
            first: first.unwrap_or_default(),
            batches,
            ids: None,
        })
    }
}

/// Refuses prerequisites that the caller has no access to, as the store refuses those that do not exist.
async fn check_prerequisites(app: &App, caller: &Caller, after: &[After]) -> Result<(), ApiError> {
    for after in after {
        if let Prerequisite::Batch(batch) = after.prerequisite
            && !has_batch(app, caller, batch).await?
        {
            return Err(StoreError::PrerequisiteUnknown(batch).into());
        }
    }
    Ok(())
}

impl Keys {
    /// Submits batches whose jobs have these keys.
    async fn submit(mut self, batches: Vec<NewBatch>, app: &App) -> Result<Submitted, ApiError> {
        let mut keyed = Vec::with_capacity(batches.len());
        for batch in batches {
            let mut keys = PackedBuilder::new();
            for key in self.all.by_ref().take(batch.payloads.count() as usize) {
                keys.push_value(&key)
                    .map_err(|error| ApiError::invalid(error.to_string(), "correct the keys"))?;
            }
            keyed.push(KeyedBatch::new(batch, keys.finish(), self.unique));
        }
        let submitted = app.engine.submit_keyed(keyed).await?;
        let stored = submitted.iter().filter_map(|submitted| {
            Some(SubmittedBatch {
                batch: submitted.batch?.0,
                first_position: 0,
                count: submitted.count,
            })
        });
        let batches: Vec<SubmittedBatch> = stored.collect();
        let jobs = batches.iter().map(|batch| u64::from(batch.count)).sum();
        app.metrics.submitted(jobs);
        let ids = submitted.iter().flat_map(|submitted| &submitted.jobs);
        Ok(Submitted {
            jobs,
            first: batches
                .first()
                .map(|first| format!("{}:0", first.batch))
                .unwrap_or_default(),
            batches,
            ids: Some(ids.map(ToString::to_string).collect()),
        })
    }
}

/// Submit one job or many
///
/// The store accepts all jobs or none. Status 201 means that all jobs are on disk. With `wait`, the answer also has the
/// outcomes of the jobs that end in time.
#[utoipa::path(
    post,
    path = "/jobs",
    tag = "jobs",
    operation_id = "submit",
    params(
        SubmitQuery,
        ("traceparent" = Option<String>, Header, description = "The trace that the jobs belong to (W3C Trace Context)"),
    ),
    request_body = SubmitRequest,
    responses(
        (status = 201, description = "The jobs are on disk", body = Awaited),
        (status = "4XX", description = "Refused; nothing is stored", body = Refusal),
    )
)]
pub async fn submit(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<SubmitQuery>,
    headers: HeaderMap,
    mut body: JsonBody,
) -> Result<(StatusCode, Json<Awaited>), ApiError> {
    let (by, now) = (caller.clone(), app.clock().now());
    let read = body.read_with(move |bytes| json::<SubmitRequest<'_>>(bytes)?.cut(&by, now));
    let (mut cutter, after) = read.await?;
    let wait = query.wait(&app, cutter.jobs)?;
    check_prerequisites(&app, &caller, &after).await?;
    cutter.wait(after);
    cutter.trace(&headers);
    let submitted = cutter.submit(&app).await?;
    // The jobs are on disk: a wait for their outcomes takes no room for bodies.
    drop(body);
    let answer = match wait {
        Some(wait) => Awaited::new(&app, &caller, submitted, wait).await?,
        None => Awaited::without_results(submitted),
    };
    Ok((StatusCode::CREATED, Json(answer)))
}

impl SubmitRequest<'_> {
    /// Checks the request and packs its jobs. Their prerequisites are for the caller of this to check and to set.
    fn cut(self, caller: &Caller, now: Timestamp) -> Result<(BatchCutter, Vec<After>), ApiError> {
        let queue = self.queue.unwrap_or_else(|| DEFAULT_QUEUE.to_owned());
        check_names(&self.kind, &queue)?;
        caller.check_queue(&queue)?;
        let options = SubmitOptions {
            priority: self.priority,
            run_at: self.run_at,
            delay_ms: self.delay_ms,
            expires_at: self.expires_at,
            timeout_ms: self.timeout_ms,
            complete_within_ms: self.complete_within_ms,
            cached_ms: self.cached_ms,
            retry: self.retry,
            group: self.group,
            on_success: self.on_success,
            on_failure: self.on_failure,
        };
        let mut cutter = BatchCutter::new(self.kind, queue, options.check(now)?);
        let many = self.payloads.as_ref().map(Vec::len);
        if let Some(keys) = keys_of(self.key, self.keys, many)? {
            cutter.set_keys(keys, self.unique.unwrap_or_default().check(caller)?);
        } else if self.unique.is_some() {
            return Err(ApiError::invalid(
                "the request has `unique` without keys",
                "give `key` with `payload`, or `keys` with `payloads`",
            ));
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
                    let place = |index| format!("`payloads[{index}]`");
                    match each.next().flatten() {
                        None => cutter.push(payload.get(), place)?,
                        Some(tags) => cutter.push_tagged(payload.get(), tags, place)?,
                    }
                }
            }
            _ => {
                return Err(ApiError::invalid(
                    "a submit needs either `payload` or `payloads`",
                    "give `payload` for one job, or `payloads` (a list) for many",
                ));
            }
        }
        Ok((cutter, after))
    }
}

/// The keys of a request's jobs, of which there are `many`, where they are many.
fn keys_of(
    key: Option<String>,
    keys: Option<Vec<Option<String>>>,
    many: Option<usize>,
) -> Result<Option<Vec<Option<String>>>, ApiError> {
    match (key, keys, many) {
        (None, None, _) => Ok(None),
        (Some(key), None, None) => Ok(Some(vec![Some(key)])),
        (None, Some(keys), Some(jobs)) if keys.len() == jobs => Ok(Some(keys)),
        (None, Some(keys), Some(jobs)) => Err(ApiError::invalid(
            format!("the request has {} `keys` for {jobs} `payloads`", keys.len()),
            "give a key or null for each payload",
        )),
        _ => Err(ApiError::invalid(
            "`key` belongs to `payload`, and `keys` to `payloads`",
            "give `key` for one job, or `keys` (a list) for many",
        )),
    }
}
