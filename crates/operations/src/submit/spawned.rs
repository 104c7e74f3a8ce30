//! The children that a job in another language spawns: of a script, of the package for Node, of a worker of the HTTP API. They are
//! read separately from the outcomes of others, because a mistake in them concerns their job alone.

use std::collections::BTreeMap;

use gristmill_model::bounded::near::with_near_name;
use gristmill_model::bounded::{self, Texts};
use gristmill_model::limits::{CHILD_BATCHES_MAX, FLOW_STEPS_MAX};
use gristmill_model::{
    ChildBatch, CutList, JobId, OnChildFailure, PackedArray, Siblings, Signal, Spawn, Suspended, Timestamp,
    Wake,
};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::limits::{TAGS_READ_MAX, TIMESTAMP_MS_MAX};
use crate::options::JobOptions;

/// Children of one spawn that are read: one more than a job may have, so that the check names that limit.
const CHILDREN_READ_MAX: usize = CHILD_BATCHES_MAX + 1;

/// Children to give up that are read: all that a flow may have.
const GIVEN_UP_READ_MAX: usize = FLOW_STEPS_MAX as usize;

/// The body of a spawn.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpawnRequest {
    #[serde(deserialize_with = "bounded::list::<_, _, CHILDREN_READ_MAX>")]
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
    wake: Option<Wake>,
    /// The children of earlier steps that the flow gives up. See [`Spawn::given_up`].
    #[serde(default, deserialize_with = "bounded::list::<_, _, GIVEN_UP_READ_MAX>")]
    given_up: Vec<JobId>,
    /// How long an instance may clean up after a cancel of the flow. See [`Spawn::cleanup_ms`].
    #[serde(default)]
    cleanup_ms: Option<u64>,
}

impl SpawnRequest {
    fn into_spawn(self, kind: &str) -> Result<Spawn, String> {
        if !self.flow && (self.wake.is_some() || !self.given_up.is_empty()) {
            return Err(
                "gristmill.spawn: `wake` and `given_up` are for flows: give `flow`: true, too".to_owned(),
            );
        }
        Ok(Spawn {
            children: batches(self.children, kind, "spawn")?,
            on_failure: self.on_failure,
            memo: Some(self.memo),
            flow: self.flow.then(|| self.wake.unwrap_or_default()),
            given_up: self.given_up,
            cleanup_ms: self.cleanup_ms,
        })
    }
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
    tags: Option<Texts<TAGS_READ_MAX>>,
}

impl ChildrenRequest {
    /// The children of a parent of `kind`, in as many batches as needed.
    fn into_batches(self, kind: &str) -> Result<Vec<ChildBatch>, String> {
        self.check_form()?;
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
        let tags = self.tags.map_or_else(BTreeMap::new, |tags| tags.0);
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

    /// Refuses what would be ignored, because it is about children of the other form, and times out of range.
    fn check_form(&self) -> Result<(), String> {
        let foreign = match self.event {
            Some(_) => [
                ("kind", self.kind.is_some()),
                ("queue", self.queue.is_some()),
                ("options", self.options.is_some()),
                ("tags", self.tags.is_some()),
                ("together", self.together),
                ("step", self.step),
                (
                    "payloads",
                    self.payloads.0.iter().map(PackedArray::count).sum::<u32>() > 1,
                ),
            ]
            .into_iter()
            .find(|(_, given)| *given),
            None => [
                ("delay_ms", self.delay_ms.is_some()),
                ("until_ms", self.until_ms.is_some()),
            ]
            .into_iter()
            .find(|(_, given)| *given),
        };
        if let Some((name, _)) = foreign {
            return Err(match self.event {
                Some(_) => format!(
                    "`{name}` is for jobs, and this one waits for `event`: give its `payloads` as [null], and the limit of the wait as \
                     `delay_ms` or `until_ms`"
                ),
                None => format!(
                    "`{name}` is for waits: give `event`, too, or `options` with `run_at` or `expires_at`"
                ),
            });
        }
        if self.delay_ms.is_some() && self.until_ms.is_some() {
            return Err("a wait has both `delay_ms` and `until_ms`: give one of them".to_owned());
        }
        let delay_ms = self.delay_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        for (name, ms) in [
            ("delay_ms", delay_ms),
            ("until_ms", self.until_ms.map(|moment| moment.0)),
        ] {
            if let Some(ms) = ms.filter(|ms| !(0..=TIMESTAMP_MS_MAX).contains(ms)) {
                return Err(format!("`{name}` is {ms}: give 0 to {TIMESTAMP_MS_MAX}"));
            }
        }
        Ok(())
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

/// The children and the memo of the job of `kind` at a position.
///
/// # Errors
///
/// The problem, which concerns this job alone.
pub fn read_spawn(position: u32, body: &RawValue, kind: &str) -> Result<Suspended, String> {
    let read: SpawnRequest = read(body, "spawn")?;
    let suspended = Suspended::one(position, read.into_spawn(kind)?);
    let checked = suspended.check();
    checked.map(|()| suspended).map_err(|error| error.to_string())
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
    let read: bounded::List<ChildrenRequest, CHILDREN_READ_MAX> = read(body, "done")?;
    let siblings = Siblings::one(0, batches(read.0, kind, "done")?);
    let checked = siblings.check();
    checked
        .map(|()| siblings.children)
        .map_err(|error| error.to_string())
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
