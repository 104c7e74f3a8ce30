//! The memo that a flow stores when it suspends.

use gristmill_model::JobError;
use gristmill_store::ChildOutcome;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The memo of one suspension. It has what is new since the suspension before.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Memo {
    /// The steps that began, in the order of their children.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepEntry>,
    /// The children whose ends were told since the suspension before, in that order. If it is missing, those are all
    /// children that were spawned before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Vec<Run>>,
    /// The values of functions that ran here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<(String, Box<RawValue>)>,
    /// Of the first memo of an instance that does not begin with its payload alone: what it begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Box<Begin>>,
}

/// What an instance begins with that continues itself, or that has steps of another instance.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Begin {
    /// The state with which the instance continues. It stands in place of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Box<RawValue>>,
    /// How often the instance has begun anew.
    #[serde(default)]
    pub count: u64,
    /// The instance from which the steps are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The memos of these steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memos: Vec<Memo>,
    /// The outcomes of these steps, in the order of their children.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outcomes: Vec<ChildOutcome>,
}

impl Begin {
    /// Takes what an instance begins with out of its memos, and puts the memos of the steps that it has from another one in
    /// front of its own.
    pub fn take(memos: &mut Vec<Memo>) -> Self {
        let first = memos.first_mut();
        let Some(begin) = first.and_then(|memo| memo.begin.take()) else {
            return Begin::default();
        };
        let mut begin = *begin;
        drop(memos.splice(..1, std::mem::take(&mut begin.memos)));
        begin
    }
}

/// A step: `[name, hash]`, `[name, hash, key]`, or `[name, hash, key, count]` for the step of several jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepEntry {
    /// The name of the step.
    pub name: String,
    /// The checksum of the payloads.
    pub hash: u32,
    /// The key that tells the step from others of the name.
    pub key: Option<String>,
    /// The number of jobs, for the step of several.
    pub count: Option<u32>,
}

/// Reads the steps that the memo of one suspension names, in the order of their children. `None` for a memo that is not
/// of a flow.
pub fn named_steps(memo: &str) -> Option<Vec<StepEntry>> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        steps: Vec<StepEntry>,
    }
    serde_json::from_str::<Named>(memo).ok().map(|named| named.steps)
}

/// One number, or the numbers from a first one to before an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Run {
    One(u32),
    Range(u32, u32),
}

impl Run {
    pub fn numbers(self) -> std::ops::Range<u32> {
        match self {
            Run::One(number) => number..number.saturating_add(1),
            Run::Range(first, end) => first..end,
        }
    }
}

/// Packs numbers as runs, in their order.
pub(super) fn runs(numbers: &[u32]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(last) if last.numbers().end == *number => {
                *last = Run::Range(last.numbers().start, number + 1)
            }
            _ => runs.push(Run::One(*number)),
        }
    }
    runs
}

impl Serialize for StepEntry {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (&self.key, self.count) {
            (None, None) => (&self.name, self.hash).serialize(serializer),
            (key, None) => (&self.name, self.hash, key).serialize(serializer),
            (key, Some(count)) => (&self.name, self.hash, key, count).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for StepEntry {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Vec::<Value>::deserialize(deserializer)?;
        let given = |place: usize| fields.get(place).filter(|field| !field.is_null());
        let number = |field: &Value| u32::try_from(field.as_u64()?).ok();
        let read = || {
            Some(StepEntry {
                name: given(0)?.as_str()?.to_owned(),
                hash: number(given(1)?)?,
                key: match given(2) {
                    None => None,
                    Some(key) => Some(key.as_str()?.to_owned()),
                },
                count: match given(3) {
                    None => None,
                    Some(count) => Some(number(count)?),
                },
            })
        };
        read().ok_or_else(|| {
            serde::de::Error::custom("a step has a name and a hash, and perhaps a key and a count")
        })
    }
}

/// The memos of all suspensions of a flow.
pub(super) fn read_all(memos: Option<&str>) -> Result<Vec<Memo>, JobError> {
    memos.map_or_else(|| Ok(Vec::new()), |memos| read("the memo of the flow", memos))
}

/// Reads JSON that a flow kept.
pub(super) fn read<T: DeserializeOwned>(what: &str, json: &str) -> Result<T, JobError> {
    serde_json::from_str(json).map_err(|error| {
        JobError::new("flow", format!("{what} does not match its type: {error}")).permanent()
    })
}
