//! The memo of a fork: a new instance that has the steps of another one up to a step.
//!
//! A fork has the outcomes of these steps in its first memo, so it needs no children of its own for them. A step
//! before the chosen one is left out, and begins again, if it has not ended, or if it was cancelled before the flow was told
//! so: the end of the flow cancelled it. Then later steps of the same identity are left out, too, because a step is known by
//! its number among those of its identity.
//!
//! The memo of a cleanup, an instance that cleans up after a cancelled flow, has all steps with their outcomes, as they are.

use std::collections::{BTreeMap, BTreeSet};

use gristmill_model::JobId;
use gristmill_model::JobState;
use gristmill_model::limits::VALUE_BYTES_MAX;
use gristmill_store::ChildOutcome;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::memo::{Run, StepEntry, runs};

/// The member of the part of a memo by which an instance is told that the flow was cancelled.
const CANCELLED: &str = "cancelled";

/// The largest number of steps that an error names.
const NAMED_STEPS_MAX: usize = 20;

/// A step of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepAt {
    /// The step with this number, from 0, as lists of steps show it.
    Number(u32),
    /// The first step with this name. An event has its own name.
    Named {
        /// The name.
        name: String,
        /// Its key; any key if `None`.
        key: Option<String>,
    },
}

/// The reason why a flow cannot be forked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotFork {
    /// There is no such job.
    #[error("it does not exist")]
    Unknown,
    /// It has not ended.
    #[error("it has not ended ({0}): cancel it, or wait for its end")]
    Open(JobState),
    /// The job is no flow.
    #[error("it is not a flow, or it ended before its first step")]
    NotAFlow,
    /// The flow has no such step.
    #[error("it has no {wanted}; its steps are {}", known.join(", "))]
    NoStep {
        /// The step that was asked for, as text.
        wanted: String,
        /// The first steps of the flow.
        known: Vec<String>,
    },
    /// The steps before the chosen one have too many bytes.
    #[error(
        "the steps before have {0} bytes of outcomes; the limit is {VALUE_BYTES_MAX}: fork it from an earlier step"
    )]
    TooLarge(usize),
}

/// The memo of one suspension. What a fork does not change stays as it is.
struct Part {
    steps: Vec<StepEntry>,
    seen: Option<Vec<Run>>,
    rest: BTreeMap<String, Box<RawValue>>,
}

/// What a flow begins with, with memos as they are stored.
#[derive(Default, Serialize, Deserialize)]
struct StoredBegin {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<Box<RawValue>>,
    #[serde(default)]
    count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    /// The cancelled flow after which the instance cleans up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancelled: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    memos: Vec<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    outcomes: Vec<ChildOutcome>,
}

/// A first memo.
#[derive(Serialize, Deserialize)]
struct First {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    begin: Option<StoredBegin>,
}

/// The steps that a fork has from its origin, as they are shown.
#[derive(Debug, Clone)]
pub struct KeptSteps {
    /// The instance from which they are.
    pub origin: Option<String>,
    /// How often the instance has begun anew.
    pub continued: u64,
    /// Whether it cleans up after its origin, which was cancelled.
    pub cleans_up: bool,
    /// The steps, in order.
    pub steps: Vec<StepEntry>,
    /// The outcomes of their jobs, in the order of the steps.
    pub outcomes: Vec<ChildOutcome>,
}

/// What the first memo of a flow says of its beginning. `None` if it begins with its payload alone.
pub fn kept_steps(first: &str) -> Option<KeptSteps> {
    let begin = serde_json::from_str::<First>(first).ok()?.begin?;
    let parts = begin.memos.iter().map(|memo| Part::read(memo.get()));
    let parts: Vec<Part> = parts.collect::<Option<_>>()?;
    Some(KeptSteps {
        origin: begin.origin,
        continued: begin.count,
        cleans_up: begin.cancelled.is_some(),
        steps: parts.into_iter().flat_map(|part| part.steps).collect(),
        outcomes: begin.outcomes,
    })
}

/// The memo of a fork of a flow, which begins again with a step. `memos` are those of the suspensions of the flow, and
/// `outcomes` those of its children, in order.
///
/// # Errors
///
/// The flow has no such step, names no steps, or its outcomes are too large.
pub fn fork_memo(
    origin: JobId,
    memos: &[&str],
    outcomes: Vec<ChildOutcome>,
    from: &StepAt,
) -> Result<String, CannotFork> {
    let (begin, parts, outcomes) = whole(memos, outcomes).ok_or(CannotFork::NotAFlow)?;
    let (last, place) = find(&parts, from)?;
    // From a step before the cancel, the fork of an instance that cleans up is an ordinary one.
    let is_told = parts[..last].iter().any(|part| part.rest.contains_key(CANCELLED));
    let (memos, outcomes) = kept(parts, outcomes, last, place).ok_or(CannotFork::NotAFlow)?;
    let first = First {
        begin: Some(StoredBegin {
            origin: Some(origin.to_string()),
            cancelled: begin.cancelled.filter(|_| is_told),
            memos,
            outcomes,
            ..begin
        }),
    };
    first.write()
}

/// The memo of an instance that cleans up after a cancelled flow. It has all steps of the flow, and is told of the cancel after the last
/// end that the flow was told.
///
/// # Errors
///
/// The memo is no flow's, or the outcomes are too large.
pub fn cleanup_memo(flow: JobId, memos: &[&str], outcomes: Vec<ChildOutcome>) -> Result<String, CannotFork> {
    let (begin, parts, outcomes) = whole(memos, outcomes).ok_or(CannotFork::NotAFlow)?;
    let memos = parts.into_iter().map(Part::write);
    let mut memos: Vec<_> = memos.collect::<Option<_>>().ok_or(CannotFork::NotAFlow)?;
    let told = RawValue::from_string(format!(r#"{{"{CANCELLED}":true,"seen":[]}}"#));
    memos.push(told.map_err(|_| CannotFork::NotAFlow)?);
    let first = First {
        begin: Some(StoredBegin {
            origin: Some(flow.to_string()),
            cancelled: Some(flow.to_string()),
            memos,
            outcomes,
            ..begin
        }),
    };
    first.write()
}

impl First {
    fn write(&self) -> Result<String, CannotFork> {
        let memo = serde_json::to_string(self).map_err(|_| CannotFork::NotAFlow)?;
        match memo.len() {
            bytes if bytes > VALUE_BYTES_MAX => Err(CannotFork::TooLarge(bytes)),
            _ => Ok(memo),
        }
    }
}

/// All parts of a memo and all outcomes, with those that the flow has from its own origin.
fn whole(memos: &[&str], own: Vec<ChildOutcome>) -> Option<(StoredBegin, Vec<Part>, Vec<ChildOutcome>)> {
    let (first, rest) = memos.split_first()?;
    let mut begin = serde_json::from_str::<First>(first).ok()?.begin;
    let own_memos = if begin.is_some() { rest } else { memos };
    let before = begin
        .iter_mut()
        .flat_map(|begin| std::mem::take(&mut begin.memos));
    let mut parts: Vec<Part> = before.map(|memo| Part::read(memo.get())).collect::<Option<_>>()?;
    for memo in own_memos {
        parts.push(Part::read(memo)?);
    }
    let mut begin = begin.unwrap_or_default();
    let mut outcomes = std::mem::take(&mut begin.outcomes);
    outcomes.extend(own);
    Some((begin, parts, outcomes))
}

impl Part {
    fn read(memo: &str) -> Option<Self> {
        let mut rest: BTreeMap<String, Box<RawValue>> = serde_json::from_str(memo).ok()?;
        let steps = rest
            .remove("steps")
            .map(|steps| serde_json::from_str(steps.get()));
        let seen = rest.remove("seen").map(|seen| serde_json::from_str(seen.get()));
        Some(Part {
            steps: steps.transpose().ok()?.unwrap_or_default(),
            seen: seen.transpose().ok()?,
            rest,
        })
    }

    fn write(mut self) -> Option<Box<RawValue>> {
        if !self.steps.is_empty() {
            self.rest
                .insert("steps".to_owned(), to_raw_value(&self.steps).ok()?);
        }
        if let Some(seen) = &self.seen {
            self.rest.insert("seen".to_owned(), to_raw_value(seen).ok()?);
        }
        to_raw_value(&self.rest).ok()
    }
}

/// The part that begins a step, and its place there.
fn find(parts: &[Part], from: &StepAt) -> Result<(usize, usize), CannotFork> {
    let numbered = parts.iter().enumerate().flat_map(|(number, part)| {
        let steps = part.steps.iter().enumerate();
        steps.map(move |(place, step)| (number, place, step))
    });
    // A step that was cancelled before it began has no job, and is not shown.
    let begun = numbered.filter(|(_, _, step)| step.count != Some(0));
    let is_meant = |index: usize, step: &StepEntry| match from {
        StepAt::Number(number) => index == *number as usize,
        StepAt::Named { name, key } => {
            let is_named = step.name == *name || step.name.strip_prefix('@') == Some(name.as_str());
            is_named && (key.is_none() || step.key == *key)
        }
    };
    let mut known: Vec<String> = Vec::new();
    for (index, (number, place, step)) in begun.enumerate() {
        if is_meant(index, step) {
            return Ok((number, place));
        }
        let key = step.key.as_ref().map(|key| format!(" (key {key})"));
        let shown = format!("{}{}", step.name.trim_start_matches('@'), key.unwrap_or_default());
        if known.len() < NAMED_STEPS_MAX && !known.contains(&shown) {
            known.push(shown);
        }
    }
    if known.is_empty() {
        return Err(CannotFork::NotAFlow);
    }
    let wanted = match from {
        StepAt::Number(number) => format!("step number {number}"),
        StepAt::Named { name, key: None } => format!("step `{name}`"),
        StepAt::Named { name, key: Some(key) } => format!("step `{name}` with the key `{key}`"),
    };
    Err(CannotFork::NoStep { wanted, known })
}

/// The memos up to a place of the part `last`, and the outcomes of the children that they keep.
fn kept(
    mut parts: Vec<Part>,
    outcomes: Vec<ChildOutcome>,
    last: usize,
    place: usize,
) -> Option<(Vec<Box<RawValue>>, Vec<ChildOutcome>)> {
    parts.truncate(last + 1);
    parts[last].steps.truncate(place);
    let told = told(&parts);
    let mut outcomes: Vec<Option<ChildOutcome>> = outcomes.into_iter().map(Some).collect();
    let mut kept: Vec<ChildOutcome> = Vec::new();
    let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
    let mut left_out: BTreeSet<(String, Option<String>)> = BTreeSet::new();
    let mut end = 0;
    for part in &mut parts {
        let mut is_whole = true;
        part.steps.retain(|step| {
            let children = end..end + step.count.unwrap_or(1);
            end = children.end;
            let has_ended = |child: u32| match outcomes.get(child as usize) {
                Some(Some(outcome)) => {
                    outcome.has_ended() && (outcome.state != JobState::Cancelled || told.contains(&child))
                }
                _ => false,
            };
            is_whole &= children.end as usize <= outcomes.len();
            let identity = (step.name.clone(), step.key.clone());
            if left_out.contains(&identity) || !children.clone().all(has_ended) {
                left_out.insert(identity);
                return false;
            }
            for child in children {
                numbers.insert(child, kept.len() as u32);
                kept.extend(outcomes[child as usize].take());
            }
            true
        });
        if !is_whole {
            return None;
        }
    }
    for part in &mut parts {
        if let Some(seen) = &mut part.seen {
            let all = seen.iter().flat_map(|run| run.numbers());
            let left: Vec<u32> = all.filter_map(|child| numbers.get(&child).copied()).collect();
            *seen = runs(&left);
        }
    }
    let memos = parts.into_iter().map(Part::write);
    Some((memos.collect::<Option<_>>()?, kept))
}

/// The children whose ends the flow was told.
fn told(parts: &[Part]) -> BTreeSet<u32> {
    let (mut told, mut spawned) = (BTreeSet::new(), 0);
    for (number, part) in parts.iter().enumerate() {
        match &part.seen {
            _ if number == 0 => {}
            Some(seen) => told.extend(seen.iter().flat_map(|run| run.numbers())),
            None => told.extend(0..spawned),
        }
        spawned += part.steps.iter().map(|step| step.count.unwrap_or(1)).sum::<u32>();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(states: &[JobState]) -> Vec<ChildOutcome> {
        let all = (0..).zip(states).map(|(position, state)| ChildOutcome {
            job: format!("5:{position}").parse().unwrap(),
            state: *state,
            value: None,
            error: None,
            together: false,
        });
        all.collect()
    }

    fn forked(memos: &[&str], states: &[JobState], from: &str) -> Result<String, String> {
        let (name, key) = from
            .split_once('/')
            .map_or((from, None), |(name, key)| (name, Some(key)));
        let from = match name.parse() {
            Ok(number) => StepAt::Number(number),
            Err(_) => StepAt::Named {
                name: name.to_owned(),
                key: key.map(str::to_owned),
            },
        };
        let memo = fork_memo("4:2".parse().unwrap(), memos, outcomes(states), &from);
        memo.map_err(|reason| reason.to_string())
    }

    fn shown(memo: &str) -> (String, Vec<String>) {
        let begin = serde_json::from_str::<First>(memo).unwrap().begin.unwrap();
        assert_eq!(begin.origin.as_deref(), Some("4:2"));
        let memos: Vec<&str> = begin.memos.iter().map(|memo| memo.get()).collect();
        let outcomes = begin.outcomes.iter().map(|outcome| outcome.job.to_string());
        (memos.join(" "), outcomes.collect())
    }

    const DONE: JobState = JobState::Completed;
    const CANCELLED: JobState = JobState::Cancelled;

    const MEMOS: [&str; 3] = [
        r#"{"steps":[["fetch",7],["@approve",0],["embed",9,"k",2]],"time":12345678901234567890}"#,
        r#"{"seen":[0,[2,4]],"steps":[["fetch",8],["save",1]],"values":[["now",1]]}"#,
        r#"{"seen":[5,4],"steps":[["last",3]]}"#,
    ];

    #[test]
    fn a_fork_has_what_came_before_its_step() {
        let states = [DONE, CANCELLED, DONE, DONE, DONE, DONE, CANCELLED];
        let memo = forked(&MEMOS, &states, "save").unwrap();
        // The event was cancelled by the end of the flow: the fork waits for it again.
        assert_eq!(
            shown(&memo),
            (
                concat!(
                    r#"{"steps":[["fetch",7],["embed",9,"k",2]],"time":12345678901234567890} "#,
                    r#"{"seen":[[0,3]],"steps":[["fetch",8]],"values":[["now",1]]}"#
                )
                .to_owned(),
                ["5:0", "5:2", "5:3", "5:4"].map(str::to_owned).to_vec()
            )
        );
        assert_eq!(forked(&MEMOS, &states, "4").unwrap(), memo, "by its number");
        let (memos, outcomes) = shown(&forked(&MEMOS, &states, "fetch").unwrap());
        assert_eq!(
            (memos.as_str(), outcomes.len()),
            (r#"{"time":12345678901234567890}"#, 0)
        );
        let (memos, outcomes) = shown(&forked(&MEMOS, &states, "embed/k").unwrap());
        assert!(
            memos.starts_with(r#"{"steps":[["fetch",7]]"#) && outcomes == ["5:0"],
            "{memos}"
        );
        // A fork of a fork has the steps of both.
        let own = r#"{"seen":[[0,3]],"steps":[["save",1]]}"#;
        let again = forked(&[&memo, own], &[DONE], "save").unwrap();
        assert_eq!(shown(&again).1, ["5:0", "5:2", "5:3", "5:4"]);
        let kept = kept_steps(&again).unwrap();
        assert_eq!((kept.steps.len(), kept.outcomes.len(), kept.continued), (3, 4, 0));
    }

    #[test]
    fn a_cleanup_has_all_steps_and_is_told_of_the_cancel() {
        let states = [DONE, CANCELLED, DONE, DONE, DONE, DONE, CANCELLED];
        let memo = cleanup_memo("4:2".parse().unwrap(), &MEMOS, outcomes(&states)).unwrap();
        let (memos, kept) = shown(&memo);
        assert!(memos.starts_with(MEMOS[0]), "{memos}");
        assert!(
            memos.ends_with(r#"{"seen":[5,4],"steps":[["last",3]]} {"cancelled":true,"seen":[]}"#),
            "{memos}"
        );
        assert_eq!(kept.len(), 7);
        let begin = |memo: &str| kept_steps(memo).unwrap();
        assert_eq!((begin(&memo).cleans_up, begin(&memo).steps.len()), (true, 6));
        // A fork from a step of the cleanup cleans up; one from a step before does not.
        let own = r#"{"steps":[["release",1]]}"#;
        let from = |name: &str| forked(&[&memo, own], &[DONE], name).unwrap();
        let begun = begin(&from("release"));
        assert!(begun.cleans_up);
        let begun = begin(&from("save"));
        assert_eq!((begun.cleans_up, begun.outcomes.len()), (false, 4));
    }

    #[test]
    fn a_step_that_is_left_out_takes_those_of_its_identity_with_it() {
        let states = [CANCELLED, DONE, DONE, DONE, DONE, DONE, DONE];
        let memos = [
            r#"{"steps":[["fetch",7],["@approve",0],["embed",9,"k",2]]}"#,
            r#"{"seen":[1],"steps":[["fetch",8],["save",1]]}"#,
            r#"{"seen":[4,5],"steps":[["last",3]]}"#,
        ];
        let (memos, outcomes) = shown(&forked(&memos, &states, "last").unwrap());
        assert_eq!(outcomes, ["5:1", "5:2", "5:3", "5:5"]);
        assert!(
            memos.ends_with(r#"{"seen":[0],"steps":[["save",1]]} {"seen":[3]}"#),
            "{memos}"
        );
    }

    #[test]
    fn what_cannot_be_forked_says_why() {
        let states = [DONE; 7];
        let refused = |from: &str| forked(&MEMOS, &states, from).unwrap_err();
        let known = "its steps are fetch, approve, embed (key k), save, last";
        assert_eq!(refused("sav"), format!("it has no step `sav`; {known}"));
        assert_eq!(
            refused("embed/x"),
            format!("it has no step `embed` with the key `x`; {known}")
        );
        assert_eq!(refused("7"), format!("it has no step number 7; {known}"));
        for memos in [&[][..], &["7"], &["[]"], &["{}"], &[r#"{"steps":[[1]]}"#]] {
            let refused = forked(memos, &[], "a").unwrap_err();
            assert_eq!(refused, "it is not a flow, or it ended before its first step");
        }
        // Children of which the memo says nothing.
        assert!(forked(&MEMOS, &[DONE], "last").is_err());
    }
}
