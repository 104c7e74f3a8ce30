//! The children that a script spawns. They are read separately from their frame, because a mistake in them fails the
//! job, not the process.

use std::collections::BTreeMap;

use gristmill_model::bounded::near::with_near_name;
use gristmill_model::{
    ChildBatch, CutList, JobId, OnChildFailure, PackedArray, Signal, Spawn, Timestamp, Wake,
};
use gristmill_operations::JobOptions;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The body of a spawn.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptSpawn {
    children: Vec<ScriptChildren>,
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
struct ScriptChildren {
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

impl ScriptChildren {
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
fn batches(children: Vec<ScriptChildren>, kind: &str, call: &str) -> Result<Vec<ChildBatch>, String> {
    let mut all = Vec::new();
    for children in children {
        let batches = children.into_batches(kind);
        all.extend(batches.map_err(|problem| format!("gristmill.{call}: {problem}"))?);
    }
    Ok(all)
}

/// The children of a job of `kind`.
pub(crate) fn spawn(body: &RawValue, kind: &str) -> Result<Spawn, String> {
    let read: ScriptSpawn = read(body, "spawn")?;
    Ok(Spawn {
        children: batches(read.children, kind, "spawn")?,
        on_failure: read.on_failure,
        memo: Some(read.memo),
        flow: read.flow.then_some(read.wake),
        given_up: read.given_up,
    })
}

/// Tells `null` from a field that is missing.
fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The siblings of a job of `kind`.
pub(crate) fn siblings(body: &RawValue, kind: &str) -> Result<Vec<ChildBatch>, String> {
    batches(read(body, "done")?, kind, "done")
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
