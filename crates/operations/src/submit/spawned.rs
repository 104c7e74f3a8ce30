//! The children that a job in another language spawns: of a script, of the package for Node, of a worker of the HTTP API. They are
//! read separately from the outcomes of others, because a mistake in them concerns their job alone.

use std::collections::BTreeMap;

use gristmill_model::bounded::near::with_near_name;
use gristmill_model::{
    ChildBatch, CutList, JobId, OnChildFailure, PackedArray, Siblings, Signal, Spawn, Suspended, Timestamp,
    Wake,
};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::options::JobOptions;

/// The body of a spawn.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpawnRequest {
    children: Vec<ChildrenRequest>,
    /// The memo, as a packed array with one item.
    memo: PackedArray,
    #[serde(default)]
    on_failure: OnChildFailure,
    /// Whether the job is a flow. See [`Spawn::flow`].
    #[serde(default)]
    flow: bool,
    /// For a flow, when it runs again. One that begins anew has no children.
    #[serde(default)]
    wake: Wake,
    /// The children of earlier steps that the flow gives up. See [`Spawn::given_up`].
    #[serde(default)]
    given_up: Vec<JobId>,
}

/// Children of one kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChildrenRequest {
    /// The kind. `None` means the kind of the parent.
    #[serde(default)]
    kind: Option<String>,
    /// In place of a kind: the signal that ends the children. `null` stands for time, a text for an event of this name.
    #[serde(default, deserialize_with = "some")]
    event: Option<Option<String>>,
    /// For children that wait for a signal: the time after which they expire, in milliseconds.
    #[serde(default)]
    delay_ms: Option<u64>,
    /// For children that wait for a signal: the moment at which they expire, in milliseconds since 1970.
    #[serde(default)]
    until_ms: Option<Timestamp>,
    /// Whether the flow goes on only once all of them have ended.
    #[serde(default)]
    together: bool,
    /// Whether they are steps of a flow that run under its kind, and not flows.
    #[serde(default)]
    step: bool,
    #[serde(default)]
    queue: Option<String>,
    payloads: CutList,
    #[serde(default)]
    options: Option<JobOptions>,
    #[serde(default)]
    tags: Option<BTreeMap<String, String>>,
}

impl ChildrenRequest {
    /// The children of a parent of `kind`, in as many batches as needed.
    fn into_batches(self, kind: &str) -> Result<Vec<ChildBatch>, String> {
        if let Some(event) = self.event {
            let signal = event.map_or(Signal::Time, Signal::Event);
            let mut children = ChildBatch::of_signal(signal, self.delay_ms);
            children.options.expires_at = self.until_ms;
            return Ok(vec![children]);
        }
        let options = self.options.unwrap_or_default();
        if options.delay_ms.is_some() {
            return Err(
                "`delay_ms` is for submits: children take `run_at`, in milliseconds since 1970".to_owned(),
            );
        }
        // Without a delay, no option depends on the current time.
        let options = options.check(Timestamp(0)).map_err(|refused| refused.told())?;
        let tags = self.tags.unwrap_or_default();
        let batches = self.payloads.0.into_iter().map(|payloads| ChildBatch {
            queue: self.queue.clone(),
            options: options.clone(),
            together: self.together,
            is_step: self.step && self.kind.is_none(),
            tags: tags.clone(),
            ..ChildBatch::new(self.kind.as_deref().unwrap_or(kind), payloads)
        });
        Ok(batches.collect())
    }
}

/// The batches of all children of one call.
fn batches(children: Vec<ChildrenRequest>, kind: &str, call: &str) -> Result<Vec<ChildBatch>, String> {
    let mut all = Vec::new();
    for children in children {
        let batches = children.into_batches(kind);
        all.extend(batches.map_err(|problem| format!("gristmill.{call}: {problem}"))?);
    }
    Ok(all)
}

/// The children and the memo of a job of `kind`.
///
/// # Errors
///
/// The problem, which concerns this job alone.
pub fn read_spawn(body: &RawValue, kind: &str) -> Result<Spawn, String> {
    let read: SpawnRequest = read(body, "spawn")?;
    let spawn = Spawn {
        children: batches(read.children, kind, "spawn")?,
        on_failure: read.on_failure,
        memo: Some(read.memo),
        flow: read.flow.then_some(read.wake),
        given_up: read.given_up,
    };
    let checked = Suspended::one(0, spawn.clone()).check();
    checked.map(|()| spawn).map_err(|error| error.to_string())
}

/// Tells `null` from a field that is missing.
fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The siblings of a job of `kind`.
///
/// # Errors
///
/// The problem, which concerns this job alone.
pub fn read_siblings(body: &RawValue, kind: &str) -> Result<Vec<ChildBatch>, String> {
    let siblings = batches(read(body, "done")?, kind, "done")?;
    let checked = Siblings::one(0, siblings.clone()).check();
    checked.map(|()| siblings).map_err(|error| error.to_string())
}

fn read<'a, T: Deserialize<'a>>(body: &'a RawValue, call: &str) -> Result<T, String> {
    serde_json::from_str(body.get()).map_err(|error| {
        let message = error.to_string();
        // The script does not see the text whose columns are counted.
        let problem = message
            .rsplit_once(" at line ")
            .map_or(&*message, |(problem, _)| problem);
        format!("gristmill.{call}: {}", with_near_name(problem))
    })
}
