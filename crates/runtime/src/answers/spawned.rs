//! What a job spawns, as a script says it. It is read apart from its frame, since a mistake in it fails the job, and not the process.

use std::collections::BTreeMap;

use gristmill_model::bounded::near::with_near_name;
use gristmill_model::{
    Backoff, BatchOptions, ChildBatch, Hooks, OnChildFailure, PackedArray, RetryPolicy, Spawn, Timestamp,
    TraceParent,
};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The body of a spawn.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptSpawn {
    children: Vec<ScriptChildren>,
    /// A packed array of one.
    memo: PackedArray,
    #[serde(default)]
    on_failure: OnChildFailure,
}

/// Children of one kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptChildren {
    /// That of the parent, where `None`.
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    queue: Option<String>,
    payloads: PackedArray,
    #[serde(default)]
    options: Option<ScriptOptions>,
    #[serde(default)]
    tags: Option<BTreeMap<String, String>>,
}

/// The options of children: those of a batch that children can have. Each is known, or an error.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ScriptOptions {
    priority: i16,
    run_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    timeout_ms: Option<u64>,
    complete_within_ms: Option<u64>,
    cached_ms: Option<u64>,
    retry: ScriptRetry,
    group: Option<String>,
    hooks: Option<Box<Hooks>>,
    traceparent: Option<TraceParent>,
}

/// The retry policy; each field has a default.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ScriptRetry {
    attempts_max: Option<u32>,
    backoff: Option<Backoff>,
    delay_ms: Option<u64>,
    delay_ms_max: Option<u64>,
}

impl ScriptRetry {
    fn policy(&self) -> RetryPolicy {
        let default = RetryPolicy::default();
        RetryPolicy {
            attempts_max: self.attempts_max.unwrap_or(default.attempts_max),
            backoff: self.backoff.unwrap_or(default.backoff),
            delay_ms: self.delay_ms.unwrap_or(default.delay_ms),
            delay_ms_max: self.delay_ms_max.unwrap_or(default.delay_ms_max),
        }
    }
}

impl ScriptOptions {
    fn options(self) -> BatchOptions {
        BatchOptions {
            priority: self.priority,
            run_at: self.run_at,
            expires_at: self.expires_at,
            timeout_ms: self.timeout_ms,
            complete_within_ms: self.complete_within_ms,
            cached_ms: self.cached_ms,
            retry: self.retry.policy(),
            unique: None,
            group: self.group,
            hooks: self.hooks,
            traceparent: self.traceparent,
        }
    }
}

impl ScriptChildren {
    fn into_batch(self, kind: &str) -> ChildBatch {
        ChildBatch {
            queue: self.queue,
            options: self.options.unwrap_or_default().options(),
            tags: self.tags.unwrap_or_default(),
            ..ChildBatch::new(self.kind.as_deref().unwrap_or(kind), self.payloads)
        }
    }
}

/// The children of a job of `kind`.
pub(crate) fn spawn(body: &RawValue, kind: &str) -> Result<Spawn, String> {
    let read: ScriptSpawn = read(body, "spawn")?;
    let children = read
        .children
        .into_iter()
        .map(|children| children.into_batch(kind));
    Ok(Spawn {
        children: children.collect(),
        on_failure: read.on_failure,
        memo: Some(read.memo),
    })
}

/// The siblings of a job of `kind`.
pub(crate) fn siblings(body: &RawValue, kind: &str) -> Result<Vec<ChildBatch>, String> {
    let read: Vec<ScriptChildren> = read(body, "done")?;
    Ok(read
        .into_iter()
        .map(|children| children.into_batch(kind))
        .collect())
}

fn read<'a, T: Deserialize<'a>>(body: &'a RawValue, call: &str) -> Result<T, String> {
    serde_json::from_str(body.get()).map_err(|error| {
        let message = error.to_string();
        // The script never sees the text whose columns are counted.
        let problem = message
            .rsplit_once(" at line ")
            .map_or(&*message, |(problem, _)| problem);
        format!("gristmill.{call}: {}", with_near_name(problem))
    })
}
