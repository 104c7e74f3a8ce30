//! Children: jobs that a running job spawns. Their parent waits for them without a slot.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::batch::check_after;
use crate::batch::{BatchOptions, InvalidBatch, NewBatch};
use crate::bounded;
use crate::clock::Timestamp;
use crate::dependency::{After, OnFailure};
use crate::flow::Wake;
use crate::id::JobId;
use crate::limits::{BATCH_JOBS_MAX, CHILD_BATCHES_MAX, CLEANUP_MS_MAX, MEMO_BYTES_MAX, TAGS_PER_JOB_MAX};
use crate::packed::cutter::{BatchLimits, PackedCutter};
use crate::packed::{PackedArray, PackedBuilder, PackedError};
use crate::positions::Positions;
use crate::signal::Signal;
use crate::tag::Tag;

/// Batches of children that are read from an untrusted text: one more than a job may spawn, so that the check names
/// that limit.
pub(crate) const CHILD_BATCHES_READ_MAX: usize = CHILD_BATCHES_MAX + 1;

/// Numbers of seen children that are read from an untrusted text: one for each job of a batch.
const SEEN_READ_MAX: usize = BATCH_JOBS_MAX as usize;

/// Tags that are read from an untrusted text: one more than a job may have, for the same reason.
const TAGS_READ_MAX: usize = TAGS_PER_JOB_MAX as usize + 1;

/// The action on a parent when its child ends without completing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnChildFailure {
    /// The other children are cancelled. The parent is dead, with an error that names the child.
    #[default]
    Fail,
    /// The parent still waits for the other children, and decides when it finalizes.
    Collect,
}

impl OnChildFailure {
    /// The policy's name.
    pub const fn name(self) -> &'static str {
        match self {
            OnChildFailure::Fail => "fail",
            OnChildFailure::Collect => "collect",
        }
    }
}

impl fmt::Display for OnChildFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The text is not a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an action on a child's failure: give fail or collect")]
pub struct ParseOnChildFailureError(String);

impl FromStr for OnChildFailure {
    type Err = ParseOnChildFailureError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [OnChildFailure::Fail, OnChildFailure::Collect]
            .into_iter()
            .find(|policy| policy.name() == text)
            .ok_or_else(|| ParseOnChildFailureError(text.to_owned()))
    }
}

/// Earlier children of the same parent, for which children wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildAfter {
    /// The index of their batch among the parent's batches of children, from 0. It precedes the batch that waits.
    pub place: usize,
    /// The action on the dependents if one of them does not complete.
    #[serde(default)]
    pub on_failure: OnFailure,
}

/// Children of one kind. They inherit the tags of their parent, except for tags of which they have a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildBatch {
    /// The name of the handler that runs them.
    pub kind: String,
    /// The queue of the children; the parent's queue if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The payload of each child.
    pub payloads: PackedArray,
    /// The options of all children. The group defaults to the parent's.
    #[serde(default)]
    pub options: BatchOptions,
    /// The time from now after which the children expire, in milliseconds. Children of many parents share a batch if they
    /// expire after the same time; a moment in `options` differs from parent to parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// Whether the flow goes on only once all of its children in this batch have ended, as those of a map do. Otherwise the end
    /// of each may wake it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub together: bool,
    /// Whether they are steps of a flow that have its kind, as those of scripts have. They are not counted as flows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_step: bool,
    /// The tags of all children.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "bounded::texts::<_, TAGS_READ_MAX>"
    )]
    pub tags: BTreeMap<String, String>,
    /// The prerequisites of the children. Only allowed if all children have the same parent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<ChildAfter>,
    /// The number of children of each parent, in the order of the parents. The children are in the same order.
    pub shares: Vec<u32>,
}

impl ChildBatch {
    /// Makes children of one parent, with default options.
    pub fn new(kind: impl Into<String>, payloads: PackedArray) -> Self {
        ChildBatch {
            kind: kind.into(),
            queue: None,
            shares: vec![payloads.count()],
            payloads,
            options: BatchOptions::default(),
            expires_in_ms: None,
            together: false,
            is_step: false,
            tags: BTreeMap::new(),
            after: Vec::new(),
        }
    }

    /// Makes a child that no worker runs: `signal` ends it, and it expires after a time if one is given.
    pub fn of_signal(signal: Signal, expires_in_ms: Option<u64>) -> Self {
        let mut children = ChildBatch::new(signal.kind(), PackedArray::from_stored("[null]"));
        children.options.signal = Some(signal);
        children.expires_in_ms = expires_in_ms;
        children
    }

    /// Makes children of one parent, one for each payload, in as many batches as necessary.
    ///
    /// # Errors
    ///
    /// A payload is not JSON, or exceeds its limit.
    pub fn of<P: Serialize>(
        kind: &str,
        payloads: impl IntoIterator<Item = P>,
    ) -> Result<Vec<Self>, PackedError> {
        // A job has a limit of batches of children, and they are claimed only once all are stored.
        let packed = PackedCutter::cut_values(BatchLimits::FULL, payloads)?;
        let batches = packed.into_iter().map(|payloads| ChildBatch::new(kind, payloads));
        Ok(batches.collect())
    }

    /// Makes the batch that is stored `now`. `queue` and `group` are the parents'. `inherited` has their tags, each with the
    /// indexes of the parents that have it (all parents if it has none).
    pub fn to_batch(&self, now: Timestamp, queue: &str, group: Option<&str>, inherited: &[Tag]) -> NewBatch {
        let mut options = self.options.clone();
        if let Some(expires_in_ms) = self.expires_in_ms {
            let after_ms = i64::try_from(expires_in_ms).unwrap_or(i64::MAX);
            options.expires_at = Some(now.plus_ms(after_ms));
        }
        // The store sets them. A worker's report could name jobs of others.
        options.prerequisites.clear();
        options.group = options.group.or_else(|| group.map(str::to_owned));
        let own = self.tags.iter().map(|(name, value)| Tag::all(name, value));
        let others = inherited.iter().filter(|tag| !self.tags.contains_key(&tag.name));
        let passed_on = others.filter_map(|tag| self.passed_on(tag));
        NewBatch {
            queue: self.queue.clone().unwrap_or_else(|| queue.to_owned()),
            options,
            after: self
                .after
                .iter()
                .map(|after| After::earlier(after.place).on_failure(after.on_failure))
                .collect(),
            tags: own.chain(passed_on).collect(),
            ..NewBatch::new(&self.kind, self.payloads.clone())
        }
    }

    fn passed_on(&self, tag: &Tag) -> Option<Tag> {
        let positions = match &tag.positions {
            None => None,
            Some(parents) => {
                let mut positions = Positions::new();
                for (place, range) in (0..).zip(ranges(&self.shares)) {
                    if parents.contains(place) && !range.is_empty() {
                        positions.insert_range(range);
                    }
                }
                Some(positions)
            }
        };
        if positions.as_ref().is_some_and(Positions::is_empty) {
            return None;
        }
        Some(Tag {
            positions: positions.filter(|positions| positions.len() < self.payloads.count()),
            ..tag.clone()
        })
    }

    /// Approximate number of bytes.
    pub(crate) fn weight_bytes(&self) -> usize {
        self.payloads.as_str().len() + 4 * self.shares.len() + 200
    }

    /// Reports whether these children and others can share a batch.
    pub fn is_like(&self, other: &ChildBatch) -> bool {
        self.kind == other.kind
            && self.queue == other.queue
            && self.options == other.options
            && self.expires_in_ms == other.expires_in_ms
            && self.together == other.together
            && self.is_step == other.is_step
            && self.tags == other.tags
            && self.after.is_empty()
            && other.after.is_empty()
    }

    /// Selects the children of some parents.
    fn select(&self, parents: &Positions) -> ChildBatch {
        let mut positions = Positions::new();
        let mut shares = Vec::with_capacity(parents.len() as usize);
        for (place, range) in (0..).zip(ranges(&self.shares)) {
            if parents.contains(place) {
                shares.push(range.end - range.start);
                if !range.is_empty() {
                    positions.insert_range(range);
                }
            }
        }
        ChildBatch {
            payloads: self.payloads.select(&positions),
            shares,
            ..self.clone()
        }
    }
}

/// The range of each parent's children, in the order of the parents.
pub fn ranges(shares: &[u32]) -> impl Iterator<Item = Range<u32>> + '_ {
    let mut end = 0;
    shares.iter().map(move |share| {
        let start = end;
        end += share;
        start..end
    })
}

/// Children that a handler spawns for its running job. The job then waits for them. Once all have ended, it runs once
/// more to finalize, with its memo and their outcomes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spawn {
    /// The children, each batch with one share.
    pub children: Vec<ChildBatch>,
    /// The action on a child's failure.
    pub on_failure: OnChildFailure,
    /// The memo for the finalizing run, as JSON; `null` if `None`.
    pub memo: Option<PackedArray>,
    /// For a step of a flow, when it runs again. A flow's next run gets the memos and the children of all of its steps, in
    /// order, and the outcomes of those that have ended. Open children stay open when a flow runs again, and are
    /// cancelled when it ends. Failed children are left to the flow.
    pub flow: Option<Wake>,
    /// For a step of a flow: the children of earlier steps that the flow gives up. Those that are open are cancelled, and wake
    /// the flow no more. An event that one of the others got goes back, once: to another wait for it, or to the kept events.
    pub given_up: Vec<JobId>,
    /// For a step of a flow: the time for which an instance may clean up after the flow if it is cancelled after this step. `None`
    /// where none does.
    pub cleanup_ms: Option<u64>,
}

impl Spawn {
    /// Makes a spawn without children.
    pub fn new() -> Self {
        Spawn::default()
    }

    /// Adds children of a kind, one for each payload.
    ///
    /// # Errors
    ///
    /// A payload is not JSON, or exceeds its limit.
    pub fn children<P: Serialize>(
        mut self,
        kind: &str,
        payloads: impl IntoIterator<Item = P>,
    ) -> Result<Self, PackedError> {
        self.children.extend(ChildBatch::of(kind, payloads)?);
        Ok(self)
    }

    /// Adds children with options of their own.
    pub fn batch(mut self, children: ChildBatch) -> Self {
        self.children.push(children);
        self
    }

    /// Sets the memo, which the job gets when it finalizes.
    ///
    /// # Errors
    ///
    /// The memo cannot be written as JSON, or exceeds its limit.
    pub fn memo<M: Serialize + ?Sized>(mut self, memo: &M) -> Result<Self, PackedError> {
        let mut builder = PackedBuilder::with_item_bytes_max(MEMO_BYTES_MAX);
        builder.push_value(memo)?;
        self.memo = Some(builder.finish());
        Ok(self)
    }

    /// Sets the action on a child's failure.
    pub fn on_failure(mut self, on_failure: OnChildFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Makes it a step of a flow.
    pub fn flow(mut self, wake: Wake) -> Self {
        self.flow = Some(wake);
        self.on_failure = OnChildFailure::Collect;
        self
    }
}

/// Jobs of a report that wait for new children. Positions ascend, and memos and shares are in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspended {
    /// The positions of the jobs.
    pub positions: Positions,
    /// The memo of each job.
    pub memos: PackedArray,
    /// The action on the parent when a child fails.
    #[serde(default)]
    pub on_failure: OnChildFailure,
    /// For steps of flows, when they run again. See [`Spawn::flow`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<Wake>,
    /// For flows with open children of earlier steps, or that give up some: the number of ended children that each job has
    /// seen, without those that are together with open ones. Empty if no job has such children.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, SEEN_READ_MAX>"
    )]
    pub seen: Vec<u32>,
    /// The children of earlier steps that each job gives up. See [`Spawn::given_up`]. Empty if no job gives up any, and where
    /// `seen` is empty.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, SEEN_READ_MAX>"
    )]
    pub given_up: Vec<Vec<JobId>>,
    /// For steps of flows, how long an instance may clean up after a cancel. See [`Spawn::cleanup_ms`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleanup_ms: Option<u64>,
    /// The children of the jobs.
    #[serde(default, deserialize_with = "bounded::list::<_, _, CHILD_BATCHES_READ_MAX>")]
    pub children: Vec<ChildBatch>,
}

/// The reason why jobs cannot be suspended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSpawn {
    /// There are more or fewer memos, or shares of a batch, than jobs.
    #[error("{found} {what} for {parents} jobs that wait for children")]
    Count {
        /// `memos` or `shares of children`.
        what: &'static str,
        /// Number of memos or shares.
        found: usize,
        /// Number of jobs.
        parents: u32,
    },
    /// A memo is too long.
    #[error("the memo has {0} bytes; the limit is {MEMO_BYTES_MAX}: store a reference instead")]
    Memo(usize),
    /// There are more batches than a job may spawn.
    #[error(
        "a job spawns at most {CHILD_BATCHES_MAX} batches of children; this one has {0}: put more jobs into one"
    )]
    TooManyBatches(usize),
    /// The shares of a batch do not add up to its children.
    #[error("child batch {place} has {jobs} jobs, but its shares sum to {shared}")]
    Shares {
        /// The index of the batch.
        place: usize,
        /// Number of its jobs.
        jobs: u32,
        /// The sum of the shares.
        shared: u64,
    },
    /// Only flows have open children of earlier steps.
    #[error("a job that is no flow has seen children of earlier steps")]
    SeenWithoutFlow,
    /// A flow that begins anew waits for nothing.
    #[error("a flow that begins anew has children: begin them when it runs again")]
    ChildrenOfAnew,
    /// The time for a cleanup is out of range, or the job is no flow.
    #[error("cleanup_ms is {0}: give a flow 1 to {CLEANUP_MS_MAX}, and no other job")]
    Cleanup(u64),
    /// Children of several parents have prerequisites.
    #[error("child batch {0} has prerequisites, so all its jobs must have one parent")]
    AfterShared(usize),
    /// A batch of children is invalid.
    #[error("child batch {place}: {reason}")]
    Batch {
        /// The index of the batch.
        place: usize,
        /// The problem.
        reason: InvalidBatch,
    },
    /// A batch does not follow its prerequisites.
    #[error("the children: {0}")]
    After(InvalidBatch),
}

impl Suspended {
    /// Makes one job that waits for its children.
    pub fn one(position: u32, spawn: Spawn) -> Self {
        let null = || PackedArray::from_stored("[null]");
        Suspended {
            positions: Positions::from(position..position + 1),
            memos: spawn.memo.unwrap_or_else(null),
            on_failure: spawn.on_failure,
            flow: spawn.flow,
            seen: Vec::new(),
            given_up: match spawn.given_up.is_empty() {
                true => Vec::new(),
                false => vec![spawn.given_up],
            },
            cleanup_ms: spawn.cleanup_ms,
            children: spawn.children,
        }
    }

    /// Checks everything that can be checked without a store.
    ///
    /// # Errors
    ///
    /// The first problem.
    pub fn check(&self) -> Result<(), InvalidSpawn> {
        let parents = self.positions.len();
        let count = |what, found: usize| {
            if found == parents as usize {
                Ok(())
            } else {
                Err(InvalidSpawn::Count { what, found, parents })
            }
        };
        count("memos", self.memos.count() as usize)?;
        if !self.seen.is_empty() {
            count("numbers of seen children", self.seen.len())?;
        }
        if !self.given_up.is_empty() {
            count("lists of given up children", self.given_up.len())?;
        }
        if self.flow.is_none() && !self.seen.is_empty() {
            return Err(InvalidSpawn::SeenWithoutFlow);
        }
        if self.begins_anew() && !self.children.is_empty() {
            return Err(InvalidSpawn::ChildrenOfAnew);
        }
        if let Some(cleanup_ms) = self.cleanup_ms
            && (self.flow.is_none() || !(1..=CLEANUP_MS_MAX).contains(&cleanup_ms))
        {
            return Err(InvalidSpawn::Cleanup(cleanup_ms));
        }
        if let Some(memo) = self.memos.items().find(|memo| memo.len() > MEMO_BYTES_MAX) {
            return Err(InvalidSpawn::Memo(memo.len()));
        }
        if self.children.len() > CHILD_BATCHES_MAX {
            return Err(InvalidSpawn::TooManyBatches(self.children.len()));
        }
        let mut batches = Vec::with_capacity(self.children.len());
        for (place, children) in self.children.iter().enumerate() {
            count("shares of children", children.shares.len())?;
            let shared = children.shares.iter().map(|share| u64::from(*share)).sum();
            let jobs = children.payloads.count();
            if shared != u64::from(jobs) {
                return Err(InvalidSpawn::Shares { place, jobs, shared });
            }
            if parents > 1 && !children.after.is_empty() {
                return Err(InvalidSpawn::AfterShared(place));
            }
            let batch = children.to_batch(Timestamp(0), crate::batch::DEFAULT_QUEUE, None, &[]);
            batch
                .check()
                .map_err(|reason| InvalidSpawn::Batch { place, reason })?;
            batches.push(batch);
        }
        check_after(&batches).map_err(InvalidSpawn::After)
    }

    /// Whether these are flows that begin anew.
    pub fn begins_anew(&self) -> bool {
        self.flow == Some(Wake::Anew)
    }

    /// Selects the jobs at these positions; `None` if there are none.
    pub fn select(&self, positions: &Positions) -> Option<Suspended> {
        let positions = self.positions.intersection(positions);
        if positions.is_empty() {
            return None;
        }
        if positions == self.positions {
            return Some(self.clone());
        }
        let places = self.positions.indexes_of(&positions);
        let children = self.children.iter().map(|children| children.select(&places));
        Some(Suspended {
            memos: self.memos.select(&places),
            on_failure: self.on_failure,
            flow: self.flow,
            seen: at_places(&self.seen, &places),
            given_up: at_places(&self.given_up, &places),
            cleanup_ms: self.cleanup_ms,
            children: children
                .filter(|children| children.payloads.count() > 0)
                .collect(),
            positions,
        })
    }

    /// The indexes of the parents that have children, from 0.
    pub fn with_children(&self) -> Positions {
        let mut places = Positions::new();
        for children in &self.children {
            for (place, share) in (0..).zip(&children.shares) {
                if *share > 0 {
                    places.insert(place);
                }
            }
        }
        places
    }

    /// Approximate number of bytes.
    pub fn weight_bytes(&self) -> usize {
        let children = self.children.iter().map(ChildBatch::weight_bytes);
        self.memos.as_str().len() + children.sum::<usize>()
    }
}

/// Those of the entries of each job at these places; none if there are none.
fn at_places<T: Clone>(all: &[T], places: &Positions) -> Vec<T> {
    let chosen = places.iter().filter_map(|place| all.get(place as usize));
    chosen.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(position: u32, payloads: &[u32]) -> Suspended {
        let spawn = Spawn::new().children("part", payloads).unwrap();
        Suspended::one(position, spawn.memo(&position).unwrap())
    }

    #[test]
    fn children_of_many_parents_share_batches() {
        let packed = Suspended::pack(vec![one(5, &[50]), one(2, &[20, 21]), one(9, &[90, 91, 92])]);
        assert_eq!(packed.len(), 1);
        let all = &packed[0];
        all.check().unwrap();
        assert_eq!(all.positions.to_string(), "2,5,9");
        assert_eq!(all.memos.as_str(), "[2\n,5\n,9]");
        assert_eq!(all.children.len(), 1);
        assert_eq!(all.children[0].shares, [2, 1, 3]);
        assert_eq!(all.children[0].payloads.as_str(), "[20\n,21\n,50\n,90\n,91\n,92]");
        let some = all.select(&"5-8".parse().unwrap()).unwrap();
        assert_eq!(some, one(5, &[50]));
        assert_eq!(all.select(&"0-1".parse().unwrap()), None);
    }

    #[test]
    fn different_or_too_many_children_stay_apart() {
        let mut collecting = one(1, &[1]);
        collecting.on_failure = OnChildFailure::Collect;
        let mut other = one(2, &[2]);
        other.children[0].kind = "other".to_owned();
        let many: Vec<u32> = (0..BATCH_JOBS_MAX).collect();
        let packed = Suspended::pack(vec![
            one(0, &[0]),
            collecting,
            other,
            one(3, &many),
            one(4, &[4]),
            one(5, &[]),
        ]);
        let positions: Vec<String> = packed.iter().map(|packed| packed.positions.to_string()).collect();
        assert_eq!(positions, ["0,4", "1", "2", "3", "5"]);
        packed.iter().for_each(|packed| packed.check().unwrap());
        assert_eq!(packed[4].with_children().to_string(), "");
    }

    #[test]
    fn children_in_stages_have_one_parent() {
        let staged = |position| {
            let mut last = ChildBatch::new("last", PackedArray::parse("[0]").unwrap());
            last.after = vec![ChildAfter {
                place: 0,
                on_failure: OnFailure::Ignore,
            }];
            let spawn = Spawn::new().children("first", [1, 2]).unwrap().batch(last);
            Suspended::one(position, spawn)
        };
        let packed = Suspended::pack(vec![staged(0), staged(1)]);
        assert_eq!(packed.len(), 2);
        packed[0].check().unwrap();
        let mut wrong = staged(0);
        wrong.children.swap(0, 1);
        assert!(matches!(wrong.check(), Err(InvalidSpawn::After(_))));
    }

    #[test]
    fn invalid_spawns_are_refused_by_name() {
        let check = |change: &dyn Fn(&mut Suspended)| {
            let mut wrong = one(0, &[1, 2]);
            change(&mut wrong);
            wrong.check().unwrap_err().to_string()
        };
        assert!(
            check(&|wrong| wrong.children[0].shares = vec![1]).contains("2 jobs, but its shares sum to 1")
        );
        assert!(
            check(&|wrong| wrong.children[0].shares = vec![1, 1]).contains("2 shares of children for 1 jobs")
        );
        assert!(check(&|wrong| wrong.children[0].kind.clear()).contains("child batch 0"));
        assert!(check(&|wrong| wrong.flow = Some(Wake::Anew)).contains("begins anew has children"));
        assert!(check(&|wrong| wrong.cleanup_ms = Some(1)).contains("cleanup_ms is 1: give a flow"));
        assert!(
            check(&|wrong| (wrong.flow, wrong.cleanup_ms) = (Some(Wake::All), Some(0)))
                .contains("cleanup_ms is 0")
        );
        let two = PackedArray::parse("[1,2]").unwrap();
        assert!(check(&|wrong| wrong.memos = two.clone()).contains("2 memos for 1 jobs"));
        let long = format!("[\"{}\"]", "x".repeat(MEMO_BYTES_MAX));
        let long = PackedArray::from_stored(long);
        assert!(check(&|wrong| wrong.memos = long.clone()).contains("the limit is"));
    }

    #[test]
    fn children_have_the_tags_of_their_parents() {
        let mut packed = Suspended::pack(vec![one(0, &[1, 2]), one(1, &[3]), one(2, &[4])]).remove(0);
        packed.children[0].tags = [("own".to_owned(), "child".to_owned())].into();
        let tag = |name: &str, value: &str, positions: Option<&str>| Tag {
            positions: positions.map(|positions| positions.parse().unwrap()),
            ..Tag::all(name, value)
        };
        let inherited = [
            tag("all", "a", None),
            tag("some", "b", Some("0,2")),
            tag("own", "parent", None),
            tag("none", "c", Some("7")),
        ];
        let batch = packed.children[0].to_batch(Timestamp(0), "fast", Some("tenant"), &inherited);
        batch.check().unwrap();
        assert_eq!(
            (batch.queue.as_str(), batch.options.group.as_deref()),
            ("fast", Some("tenant"))
        );
        let tags = [
            tag("own", "child", None),
            tag("all", "a", None),
            tag("some", "b", Some("0-1,3")),
        ];
        assert_eq!(batch.tags, tags);
    }
}
