//! Flows: which of them wait after a step, and what wakes them.
//!
//! A flow is a job that suspends again and again. A step is a child; the same step of a thousand flows is one batch of
//! children. A suspension stores a memo with what is new since the one before, and no outcome: outcomes stay in the reports
//! of the children. The next run gets all memos and all outcomes, and replays the flow's code (`worker/src/handler/flow.rs`,
//! `python/gristmill/_flow/`). An event or a sleep is a child that no worker can claim: `send_events` completes it, or its
//! moment expires it.
//!
//! A flow suspends with new children, open children of earlier steps, or both. It waits in a row of `blocked`, as other
//! parents do, with an edge to each batch that has an open child of it. A flow that wakes on [`Wake::Any`] leaves the row
//! when one child ends, or all that are together, as those of a map are; its other children stay open. What ended while the
//! flow ran has no edge, so a step that suspends says how many ended children it has seen: a flow with more of them runs again
//! at once.
//!
//! A flow can have a memo from its beginning ([`beginning`]), such as that of a fork, which has steps of another flow in it.
//!
//! A flow that begins anew ([`Wake::Anew`]) leaves the families of its steps before: [`forgotten`] takes it out of the rows
//! of `suspension`. A family that all its flows have left is deleted, and the batches of its children are ordinary ones,
//! which a prune can delete. So a loop without end keeps what its last round has stored.
//!
//! A flow that is under way goes before those that have not begun: its steps, and the flow itself when it wakes, are claimed as if they
//! had waited since the flow could be claimed first ([`place_of_steps`]). Otherwise all flows of a large submit would begin before
//! the first one goes on, and none would still be in memory then. A flow that begins anew goes to the end of the line
//! ([`place_of_flow`]): a loop without end would else stand for ever before all that is submitted later.
//!
//! A flow may give up children of earlier steps, such as the losers of a race. Those that are open are cancelled before the
//! flow waits, so they do not wake it. An event that one of the others got was not read by the flow: it goes to the oldest wait
//! for it that is open, or back to the kept events, before those that were sent later. It goes back once, so a flow may name
//! such a child again in later suspensions.
//!
//! A cancel ends a flow at once: its key is free, and its parent goes on. A flow whose last step says for how long it may be cleaned up
//! after ([`Suspended::cleanup_ms`]) gets a row of `cleanup` in the same transaction. From that, an engine makes a new instance that
//! has all steps of the flow and is told of the cancel (`begin_cleanups`), and that takes no longer than it may. The row stays, because
//! a retry of the flow would undo what was cleaned up. Nothing cleans up after a cleanup.
//!
//! The time of a cleanup counts from its beginning. No claim tells the beginning: a look finds that an instance is not as it was
//! submitted any more ([`next_cleanup_look`]), and its time counts from that look. So it has all of its time, and up to one look more.

use std::collections::BTreeMap;

use gristmill_model::positions::by_batch;
use gristmill_model::{
    BatchId, JobId, NewBatch, OnChildFailure, PackedArray, Positions, Suspended, Timestamp, Wake,
};

use crate::rules::family::{Brood, Family};
use crate::{BatchPositions, StoreError, Suspension};

/// Jobs of flows that suspend, and their open children of earlier steps.
#[derive(Debug)]
pub struct EarlierSteps {
    /// The batches of children of all earlier steps of these jobs, each with the flows that still have children in it.
    pub broods: Vec<(Positions, Brood)>,
    /// The open jobs of each of these batches.
    pub open: BTreeMap<BatchId, Positions>,
}

/// The jobs that wait after a step, and what they wait for beside their new children.
#[derive(Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The jobs that wait. The others run again at once.
    pub positions: Positions,
    /// The batches of earlier children of which some stay open.
    pub earlier: Vec<BatchId>,
    /// The open children that the jobs give up. They are cancelled first.
    pub given_up: Vec<BatchPositions>,
    /// The ended children that the jobs give up, each with its flow, in ascending order for each flow. Events that they got go
    /// back.
    pub unread: Vec<(u32, JobId)>,
}

impl Waiting {
    /// The jobs that wait only for new children.
    pub fn for_new_children(suspended: &Suspended) -> Self {
        Waiting {
            positions: suspended.positions.select(&suspended.with_children()),
            earlier: Vec::new(),
            given_up: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// The jobs that wait for new children and for those of earlier steps. A flow that begins anew waits for nothing.
    pub fn of(suspended: &Suspended, earlier: &EarlierSteps) -> Self {
        assert_eq!(
            suspended.seen.len(),
            suspended.positions.len() as usize,
            "each flow says how many ended children it has seen"
        );
        let with_new = suspended.with_children();
        let mut positions = Positions::new();
        let mut given_up: BTreeMap<BatchId, Positions> = BTreeMap::new();
        let mut unread = Vec::new();
        for ((place, parent), seen) in (0..).zip(suspended.positions.iter()).zip(&suspended.seen) {
            let own = Positions::from(parent..parent + 1);
            let unwanted = suspended.given_up.get(place as usize);
            let unwanted = by_batch(unwanted.into_iter().flatten().copied());
            let (mut open_count, mut ended_count) = (0, 0);
            for (parents, brood) in &earlier.broods {
                let children = brood.of_parents(&own.intersection(parents));
                let open = earlier.open.get(&brood.batch);
                let mut open = open.map_or_else(Positions::new, |open| open.intersection(&children));
                if !brood.together || open.is_empty() {
                    ended_count += children.len() - open.len();
                }
                if let Some(unwanted) = unwanted.get(&brood.batch) {
                    let batch = brood.batch;
                    let over = unwanted.intersection(&children).difference(&open);
                    unread.extend(over.iter().map(|position| (parent, JobId { batch, position })));
                    let unwanted = unwanted.intersection(&open);
                    open = open.difference(&unwanted);
                    let all = given_up.entry(brood.batch).or_default();
                    *all = all.union(&unwanted);
                }
                open_count += open.len();
            }
            let is_news = suspended.flow == Some(Wake::Any) && ended_count > *seen;
            let may_wait = !is_news && !suspended.begins_anew();
            if may_wait && (open_count > 0 || with_new.contains(place)) {
                positions.insert(parent);
            }
        }
        debug_assert!(suspended.positions.contains_all(&positions));
        let is_open = |(parents, brood): &&(Positions, Brood)| {
            let own = brood.of_parents(&positions.intersection(parents));
            let waits_for = |open: &Positions| {
                let open = open.intersection(&own);
                given_up
                    .get(&brood.batch)
                    .map_or(!open.is_empty(), |unwanted| !open.difference(unwanted).is_empty())
            };
            earlier.open.get(&brood.batch).is_some_and(waits_for)
        };
        let batches = earlier
            .broods
            .iter()
            .filter(is_open)
            .map(|(_, brood)| brood.batch);
        let earlier = batches.collect();
        let given_up = given_up.into_iter().filter(|(_, unwanted)| !unwanted.is_empty());
        let given_up = given_up.map(BatchPositions::from);
        Waiting {
            earlier,
            given_up: given_up.collect(),
            unread,
            positions,
        }
    }
}

/// The moment that decides the place in line of these jobs when they are claimed for the next time. They were claimed now, from the
/// place of `run_at`. The slice or the blocked part of the jobs stores it, so later suspensions keep it.
pub fn place_of_flow(suspended: &Suspended, run_at: Timestamp, now: Timestamp) -> Timestamp {
    match suspended.begins_anew() {
        true => now,
        // A clock that was set back may have left the moment in the future.
        false => run_at.min(now),
    }
}

/// The moment that decides the place in line of the steps that these jobs begin now: just before their flows, which have the place of
/// `run_at`, so that they also come before flows of the same submit that have not begun. It is stored as the `run_at` of the steps'
/// batch, and may be before its submit. `None` for children of jobs that are no flows.
pub fn place_of_steps(suspended: &Suspended, run_at: Timestamp, now: Timestamp) -> Option<Timestamp> {
    suspended.flow?;
    let place = run_at.min(now).plus_ms(-1);
    Some(place.max(Timestamp(0)))
}

/// The number of looks at an instance that cleans up within its time.
const CLEANUP_LOOKS: i64 = 10;

/// The minimum time between two such looks, so that a store is not always looked at. Milliseconds.
const CLEANUP_LOOKS_EVERY_MS_MIN: i64 = 10;

/// The time of the next look whether an instance that may clean up for so long has begun: a small part of that time later. One that
/// waits for long is looked at more and more seldom.
pub fn next_cleanup_look(within_ms: i64, submitted_at: Timestamp, now: Timestamp) -> Timestamp {
    let longer_ms = within_ms.max(now.since_ms(submitted_at));
    now.plus_ms((longer_ms / CLEANUP_LOOKS).max(CLEANUP_LOOKS_EVERY_MS_MIN))
}

/// Makes the error of a retry that names a flow which is cleaned up after.
pub fn cannot_retry_cleaned_up(flow: JobId) -> StoreError {
    StoreError::InvalidInput(format!(
        "flow {flow} was cancelled and is cleaned up after, so it cannot be retried: fork it, or submit it again"
    ))
}

/// Makes the error of a retry that names a step of a flow: the flow may have used its outcome, and would get another one.
pub fn cannot_retry_step(step: JobId, flow: JobId) -> StoreError {
    StoreError::InvalidInput(format!(
        "job {step} is a step of flow {flow}, which may have used its outcome, so it cannot be retried: retry the flow, which \
         goes on after its last step, or submit it again"
    ))
}

/// The suspensions of some jobs of a batch, by position.
#[derive(Debug)]
pub struct BySuspended(BTreeMap<u32, Vec<Suspension>>);

impl BySuspended {
    /// None yet, for these jobs.
    pub fn of(jobs: &Positions) -> Self {
        BySuspended(jobs.iter().map(|job| (job, Vec::new())).collect())
    }

    /// Adds those of a family: of these jobs in it, whose memos are in their order. Families come in their order.
    pub fn add(&mut self, family: &Family, jobs: &Positions, memos: &PackedArray) {
        for (job, memo) in jobs.iter().zip(memos.items()) {
            self.0.entry(job).or_default().push(Suspension {
                memo: memo.to_owned(),
                flow: family.flow,
                children: family.children_of(&Positions::from(job..job + 1)),
            });
        }
    }

    /// Those of each job, in the order of the jobs.
    pub fn finish(self) -> Vec<Vec<Suspension>> {
        self.0.into_values().collect()
    }
}

/// The number of the family with which flows begin that have a memo from the start. Families of suspensions have higher ones.
pub const BEGINNING: i64 = 0;

/// The family with which the flows of a new batch begin, if they have memos from the start.
pub fn beginning(batch: &NewBatch) -> Option<Suspended> {
    batch.memos.as_ref().map(|memos| Suspended {
        positions: Positions::all(memos.count()),
        memos: memos.clone(),
        on_failure: OnChildFailure::Collect,
        flow: Some(Wake::Anew),
        seen: Vec::new(),
        given_up: Vec::new(),
        cleanup_ms: None,
        children: Vec::new(),
    })
}

/// The row of a family, once flows have left it that begin anew: the jobs that are still in it, and their memos. `None` where
/// all have left.
pub fn forgotten(
    parents: &Positions,
    memos: &PackedArray,
    gone: &Positions,
) -> Option<(Positions, PackedArray)> {
    let left = parents.difference(gone);
    let memos = memos.select(&parents.indexes_of(&left));
    Some((left, memos)).filter(|(left, _)| !left.is_empty())
}

/// Joins the memos of all steps of a flow to one JSON array. They are in the order of the steps.
pub fn join_memos<'m>(memos: impl IntoIterator<Item = &'m str>) -> String {
    let mut joined = String::from("[");
    for memo in memos {
        if joined.len() > 1 {
            joined.push(',');
        }
        joined.push_str(memo);
    }
    joined.push(']');
    joined
}

#[cfg(test)]
mod tests {
    use gristmill_model::{ChildBatch, Spawn};

    use super::*;

    #[test]
    fn a_flow_waits_unless_there_is_news() {
        let one = |position: u32, wake, seen, new: u32| {
            let payloads = vec![0; new as usize];
            let children = ChildBatch::of("step", payloads).unwrap();
            Suspended {
                seen: vec![seen],
                ..Suspended::one(
                    position,
                    Spawn {
                        children,
                        memo: Some(PackedArray::parse("[0]").unwrap()),
                        ..Spawn::new().flow(wake)
                    },
                )
            }
        };
        // The parents 3 and 5 have two and three earlier children in batch 8. Those at 1 and 4 are open.
        let earlier = EarlierSteps {
            broods: vec![(
                "3,5".parse().unwrap(),
                Brood::of_shares(BatchId(8), "2-3,5".parse().unwrap(), &[0, 2, 3]),
            )],
            open: [(BatchId(8), "1,4".parse().unwrap())].into(),
        };
        let waiting = |suspended: &Suspended| {
            let waiting = Waiting::of(suspended, &earlier);
            (waiting.positions.to_string(), waiting.earlier)
        };
        let waits = |position: &str| (position.to_owned(), vec![BatchId(8)]);
        assert_eq!(waiting(&one(3, Wake::Any, 1, 0)), waits("3"));
        assert_eq!(waiting(&one(3, Wake::Any, 0, 1)).0, "");
        assert_eq!(waiting(&one(5, Wake::Any, 1, 0)).0, "");
        assert_eq!(waiting(&one(5, Wake::All, 1, 0)), waits("5"));
        let giving_up = |position: u32, children: &[u32], new: u32| {
            let job = |position: &u32| JobId {
                batch: BatchId(8),
                position: *position,
            };
            let suspended = Suspended {
                given_up: vec![children.iter().map(job).collect()],
                ..one(position, Wake::Any, u32::MAX, new)
            };
            let waiting = Waiting::of(&suspended, &earlier);
            let given_up = waiting
                .given_up
                .iter()
                .map(|jobs| format!("{}:{}", jobs.batch, jobs.positions));
            let earlier = waiting.earlier.iter().map(ToString::to_string);
            let unread = waiting
                .unread
                .iter()
                .map(|(flow, child)| format!("{child} of {flow}"));
            (
                waiting.positions.to_string(),
                given_up
                    .chain(earlier)
                    .chain(unread)
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        };
        let told = |positions: &str, rest: &str| (positions.to_owned(), rest.to_owned());
        assert_eq!(giving_up(3, &[0], 1), told("3", "8 8:0 of 3"));
        assert_eq!(giving_up(3, &[0, 1, 4], 1), told("3", "8:1 8:0 of 3"));
        assert_eq!(
            giving_up(3, &[1], 0),
            told("", "8:1"),
            "nothing is left to wait for"
        );
        assert_eq!(giving_up(5, &[1, 4], 0), told("", "8:4"));
        let mut anew = one(5, Wake::Anew, u32::MAX, 0);
        anew.given_up = vec![vec!["8:3".parse().unwrap(), "8:4".parse().unwrap()]];
        let begun = Waiting::of(&anew, &earlier);
        assert_eq!((begun.positions.len(), begun.earlier.len()), (0, 0));
        assert_eq!(begun.unread, [(5, "8:3".parse().unwrap())]);
        // A job without earlier children waits for its new ones, or not at all.
        assert_eq!(waiting(&one(4, Wake::All, 0, 2)), ("4".to_owned(), vec![]));
        assert_eq!(waiting(&one(4, Wake::Any, 0, 0)).0, "");
    }

    #[test]
    fn flows_that_begin_anew_leave_a_family() {
        let parents: Positions = "3,5-6".parse().unwrap();
        let memos = PackedArray::parse("[30,50,60]").unwrap();
        let (left, memos) = forgotten(&parents, &memos, &"1-5".parse().unwrap()).unwrap();
        assert_eq!((left.to_string().as_str(), memos.as_str()), ("6", "[60]"));
        assert_eq!(forgotten(&left, &memos, &left), None);
    }

    #[test]
    fn memos_are_joined_in_order() {
        assert_eq!(join_memos([]), "[]");
        assert_eq!(join_memos(["1", "{\"a\":2}"]), "[1,{\"a\":2}]");
    }
}
