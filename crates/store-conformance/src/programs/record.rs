//! The things that flows have seen and decided, over all of their runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The name of a flow, or of a node of one.
pub(super) type Id = String;

/// The decisions of one run of a flow.
pub(super) type Decisions = BTreeMap<Id, u64>;

/// The end of the names under which runs note the events that they have read.
const READ: &str = "@";

/// The name under which a run notes the event that a node has read.
pub(super) fn read_at(path: &str) -> Id {
    format!("{path}{READ}")
}

/// The records of all flows of a program.
#[derive(Debug, Default)]
pub(super) struct Record(Mutex<Records>);

#[derive(Debug, Default)]
pub(super) struct Records {
    /// The outcomes of steps, as text. A store never takes one back.
    pub seen: BTreeMap<Id, String>,
    /// The decisions that are stored: who won a race, local values, and the events that were read.
    pub decided: BTreeMap<Id, u64>,
    /// The node that has read each event, by the event's value. No two events have the same.
    readers: BTreeMap<u64, Id>,
    /// The decisions of runs that are not stored yet, by flow.
    pub pending: BTreeMap<Id, Decisions>,
    /// The nodes where a flow has stumbled.
    pub stumbled: BTreeSet<Id>,
    /// The number of local values.
    locals: u64,
    /// The first contradiction.
    pub contradiction: Option<String>,
}

impl Record {
    pub fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    /// Begins a run of a flow.
    pub fn begin(&mut self, flow: &str) {
        self.pending.insert(flow.to_owned(), BTreeMap::new());
    }

    /// Takes the decisions of the runs of these flows.
    pub fn take<'n>(&mut self, flows: impl Iterator<Item = &'n Id>) -> BTreeMap<Id, Decisions> {
        let taken = flows.filter_map(|flow| self.pending.remove_entry(flow));
        taken.collect()
    }

    /// The run of a flow is stored.
    pub fn store(&mut self, flow: &str) {
        for (id, decision) in self.pending.remove(flow).unwrap_or_default() {
            if let Some(before) = self.decided.insert(id.clone(), decision)
                && before != decision
            {
                self.contradict(format!("{id} was decided as {before}, and then as {decision}"));
            }
            if id.ends_with(READ)
                && let Some(before) = self.readers.insert(decision, id.clone())
                && before != id
            {
                self.contradict(format!(
                    "the event {decision} was read at {before}, and again at {id}"
                ));
            }
        }
    }

    /// Reports whether a stored run has read an event, by its value.
    pub fn has_read(&self, event: u64) -> bool {
        self.readers.contains_key(&event)
    }

    /// A flow sees an outcome.
    pub fn see(&mut self, id: &str, outcome: String) {
        match self.seen.get(id) {
            Some(before) if *before != outcome => {
                self.contradict(format!("{id} had the outcome {before}, and now has {outcome}"));
            }
            Some(_) => {}
            None => drop(self.seen.insert(id.to_owned(), outcome)),
        }
    }

    /// A flow decides. Whether it decides as before counts only if its run is stored: a worker whose lease is lost knows an
    /// old memo.
    pub fn decide(&mut self, flow: &str, id: &str, decision: u64) {
        let pending = self.pending.entry(flow.to_owned()).or_default();
        pending.insert(id.to_owned(), decision);
    }

    pub fn new_local(&mut self) -> u64 {
        self.locals += 1;
        self.locals
    }

    fn contradict(&mut self, what: String) {
        self.contradiction.get_or_insert(what);
    }
}
