//! One flow while it runs: the steps of its memo, the outcomes of its children, and what it begins.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use futures::task::ArcWake;
use gristmill_model::limits::{CHILD_BATCHES_MAX, FLOW_OPEN_STEPS_MAX, FLOW_STEPS_MAX};
use gristmill_model::{ChildBatch, JobError, JobId, PackedArray, PackedError, Spawn, Wake};
use gristmill_store::ChildOutcome;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::handler::flow::grouped::grouped;
use crate::handler::flow::memo::{Begin, Memo, StepEntry, runs};
use crate::sync::{AtomicBool, Ordering};

/// The name of steps that are sleeps. An event has its name after the same sign.
pub(super) const SLEEP: &str = "@sleep";

/// The name and the key of a step.
type Identity = (String, Option<String>);

/// A step.
#[derive(Debug)]
struct Record {
    entry: StepEntry,
    /// The number of its first child. Unknown for a step that begins now.
    first: usize,
    /// Number of children whose ends were not told.
    missing: usize,
    /// The task that awaits it.
    waker: Option<Waker>,
    /// The code waits for it no more.
    is_given_up: bool,
    /// The code has read its outcome.
    is_read: bool,
    /// The children of a step that begins now.
    children: Option<ChildBatch>,
}

/// A flow while it runs.
#[derive(Debug)]
pub(super) struct Instance {
    records: Vec<Record>,
    /// The steps of the memo that the code has not asked for, by identity, the oldest first.
    known: BTreeMap<Identity, VecDeque<usize>>,
    outcomes: Vec<ChildOutcome>,
    /// The step of each child whose end was not told.
    owners: Vec<Option<usize>>,
    /// Number of children that earlier suspensions had spawned, at the suspension that is replayed.
    spawned: usize,
    /// Number of children of each suspension.
    spawned_by: VecDeque<usize>,
    values: BTreeMap<String, VecDeque<Box<RawValue>>>,
    new_values: Vec<(String, Box<RawValue>)>,
    /// The error by which the flow fails, whatever its code does.
    pub error: Option<JobError>,
    /// Functions that run here and have not ended.
    pub locals_running: u32,
    /// What the instance began with, beside its payload.
    begun: Begin,
    /// The state with which it begins anew.
    next: Option<Box<RawValue>>,
}

impl Instance {
    pub fn new(mut begun: Begin, memos: &[Memo], own: Vec<ChildOutcome>) -> Result<Self, JobError> {
        let mut outcomes = std::mem::take(&mut begun.outcomes);
        outcomes.extend(own);
        let mut instance = Instance {
            records: Vec::new(),
            known: BTreeMap::new(),
            owners: Vec::with_capacity(outcomes.len()),
            outcomes,
            spawned: 0,
            spawned_by: VecDeque::new(),
            values: BTreeMap::new(),
            new_values: Vec::new(),
            error: None,
            locals_running: 0,
            begun,
            next: None,
        };
        for memo in memos {
            let before = instance.owners.len();
            for entry in &memo.steps {
                instance.know(entry.clone());
            }
            instance.spawned_by.push_back(instance.owners.len() - before);
            for (name, value) in &memo.values {
                let values = instance.values.entry(name.clone()).or_default();
                values.push_back(value.clone());
            }
        }
        if instance.owners.len() != instance.outcomes.len() {
            let (known, found) = (instance.owners.len(), instance.outcomes.len());
            return Err(failed(format!(
                "the memo of the flow has {known} children, and the store has {found}"
            )));
        }
        instance.spawned = instance.spawned_by.pop_front().unwrap_or(0);
        Ok(instance)
    }

    /// Adds a step of the memo.
    fn know(&mut self, entry: StepEntry) {
        let (number, missing) = (self.records.len(), entry.count.map_or(1, |count| count as usize));
        let identity = (entry.name.clone(), entry.key.clone());
        self.known.entry(identity).or_default().push_back(number);
        self.records.push(Record {
            first: self.owners.len(),
            missing,
            entry,
            waker: None,
            is_given_up: false,
            is_read: false,
            children: None,
        });
        assert_eq!(number + 1, self.records.len(), "steps are numbered in order");
        self.owners.extend(std::iter::repeat_n(Some(number), missing));
    }

    /// The step that the code asks for: of the memo, or a new one.
    pub fn begin(
        &mut self,
        children: ChildBatch,
        key: Option<&str>,
        count: Option<u32>,
        payloads: Result<PackedArray, PackedError>,
    ) -> usize {
        let payloads = match payloads {
            Ok(payloads) => payloads,
            Err(error) => {
                self.fail(format!(
                    "a payload of step {} cannot be stored: {error}",
                    children.kind
                ));
                PackedArray::from_stored("[null]")
            }
        };
        if count == Some(0) {
            // There is nothing to wait for, and nothing to remember.
            return self.add_empty(&children.kind);
        }
        let entry = StepEntry {
            name: children.kind.clone(),
            hash: crc32fast::hash(payloads.as_str().as_bytes()),
            key: key.map(str::to_owned),
            count,
        };
        let found = self.take(&entry.name, &entry.key);
        if let Some(number) = found {
            let known = &self.records[number].entry;
            if (known.hash, known.count) != (entry.hash, entry.count) {
                let StepEntry { name, key, .. } = &entry;
                let key = key
                    .as_ref()
                    .map_or_else(String::new, |key| format!(" (key {key:?})"));
                self.fail(format!(
                    "step {name}{key} had arguments of the hash {:08x}, and the code now gives it some of the hash {:08x}: the \
                     flow has begun this step; give the steps of a loop or a branch a key, or the changed flow another kind",
                    known.hash, entry.hash
                ));
            }
            return number;
        }
        let shares = vec![payloads.count()];
        self.add(
            entry,
            ChildBatch {
                // A step of several jobs is told once all have ended.
                together: count.is_some(),
                payloads,
                shares,
                ..children
            },
        )
    }

    /// The wait for a signal that the code asks for. Its time was decided when it began.
    pub fn begin_signal(&mut self, name: &str, children: ChildBatch) -> usize {
        self.take(name, &None).unwrap_or_else(|| {
            let entry = StepEntry {
                name: name.to_owned(),
                hash: 0,
                key: None,
                count: None,
            };
            self.add(entry, children)
        })
    }

    fn take(&mut self, name: &str, key: &Option<String>) -> Option<usize> {
        let known = self.known.get_mut(&(name.to_owned(), key.clone()))?;
        known.pop_front()
    }

    fn add(&mut self, entry: StepEntry, children: ChildBatch) -> usize {
        self.records.push(Record {
            first: usize::MAX,
            missing: children.payloads.count() as usize,
            entry,
            waker: None,
            is_given_up: false,
            is_read: false,
            children: Some(children),
        });
        self.records.len() - 1
    }

    /// Adds a step without jobs.
    fn add_empty(&mut self, name: &str) -> usize {
        self.records.push(Record {
            entry: StepEntry {
                name: name.to_owned(),
                hash: 0,
                key: None,
                count: Some(0),
            },
            first: 0,
            missing: 0,
            waker: None,
            is_given_up: false,
            is_read: false,
            children: None,
        });
        self.records.len() - 1
    }

    fn fail(&mut self, message: String) {
        self.error.get_or_insert_with(|| failed(message));
    }

    /// The code waits for a step no more.
    pub fn give_up(&mut self, record: usize) {
        self.records[record].is_given_up = true;
    }

    /// The outcomes of all children of a step, once their ends were told.
    pub fn outcomes(&mut self, record: usize, waker: &Waker) -> Option<&[ChildOutcome]> {
        let record = &mut self.records[record];
        if record.missing > 0 || record.children.is_some() {
            record.waker = Some(waker.clone());
            return None;
        }
        record.is_read = true;
        let count = record.entry.count.map_or(1, |count| count as usize);
        assert!(record.first + count <= self.outcomes.len(), "children exist");
        Some(&self.outcomes[record.first..record.first + count])
    }

    /// Tells the ends that a suspension had seen.
    pub fn deliver_seen(&mut self, memo: &Memo) -> Result<(), JobError> {
        match &memo.seen {
            None => (0..self.spawned).for_each(|child| self.deliver(child)),
            Some(seen) => {
                for child in seen.iter().flat_map(|run| run.numbers()) {
                    let child = child as usize;
                    if child >= self.outcomes.len() || !self.outcomes[child].has_ended() {
                        return Err(failed(format!(
                            "the memo has seen the end of child {child}, which has not ended"
                        )));
                    }
                    self.deliver(child);
                }
            }
        }
        self.spawned += self.spawned_by.pop_front().unwrap_or(0);
        Ok(())
    }

    /// Tells the ends of all children that have ended since the last suspension, and returns their numbers.
    pub fn deliver_new(&mut self) -> Vec<u32> {
        let is_new = |child: &usize| self.owners[*child].is_some() && self.outcomes[*child].has_ended();
        let seen: Vec<usize> = (0..self.outcomes.len()).filter(is_new).collect();
        debug_assert!(seen.is_sorted(), "children are seen in their order");
        seen.iter().for_each(|child| self.deliver(*child));
        seen.into_iter()
            .map(|child| u32::try_from(child).unwrap_or(u32::MAX))
            .collect()
    }

    fn deliver(&mut self, child: usize) {
        let Some(record) = self.owners[child].take() else {
            return;
        };
        let record = &mut self.records[record];
        assert!(record.missing > 0, "a child ends once");
        record.missing -= 1;
        if record.missing == 0
            && let Some(waker) = record.waker.take()
        {
            waker.wake();
        }
    }

    /// A value that was kept before.
    pub fn kept_value(&mut self, name: &str) -> Option<Box<RawValue>> {
        self.values.get_mut(name)?.pop_front()
    }

    /// Keeps a value.
    pub fn keep_value<V: Serialize>(&mut self, name: &str, value: &V) -> Result<(), JobError> {
        let value = serde_json::value::to_raw_value(value)
            .map_err(|error| failed(format!("the value of {name} cannot be kept: {error}")))?;
        self.new_values.push((name.to_owned(), value));
        Ok(())
    }

    /// How often the instance has begun anew.
    pub fn continued(&self) -> u64 {
        self.begun.count
    }

    /// Makes the instance begin anew with a state, once it has stopped.
    pub fn continue_with<S: Serialize + ?Sized>(&mut self, state: &S) {
        match serde_json::value::to_raw_value(state) {
            Ok(state) => self.next = Some(state),
            Err(error) => self.fail(format!(
                "the state with which the flow continues cannot be stored: {error}"
            )),
        }
    }

    /// Reports whether the code of the flow runs no further.
    pub fn is_over(&self) -> bool {
        self.error.is_some() || self.next.is_some()
    }

    /// What the instance begins anew with, if it does.
    pub fn begin_anew(&mut self) -> Option<Result<Spawn, JobError>> {
        let begin = Begin {
            state: Some(self.next.take()?),
            count: self.begun.count + 1,
            origin: self.begun.origin.clone(),
            ..Begin::default()
        };
        let memo = Memo {
            begin: Some(Box::new(begin)),
            ..Memo::default()
        };
        let spawn = flow_spawn(Vec::new(), &memo, Wake::Anew);
        // Earlier code may have begun a wait that this code does not ask for, and read its event.
        let unasked: BTreeSet<usize> = self.known.values().flatten().copied().collect();
        let given_up = self.unread_events(|number, record| record.missing > 0 || !unasked.contains(&number));
        Some(spawn.map(|spawn| Spawn { given_up, ..spawn }))
    }

    /// The waits for events that may have got one which the code has not read, among these. The store gives each event back
    /// once, so they may be named again in each suspension.
    fn unread_events(&self, is_meant: impl Fn(usize, &Record) -> bool) -> Vec<JobId> {
        let begun = self.records.iter().enumerate();
        let begun = begun.filter(|(_, record)| record.children.is_none());
        let waits = begun.filter(|(_, record)| is_event(&record.entry.name) && record.entry.count.is_none());
        let unread = waits.filter(|(number, record)| !record.is_read && is_meant(*number, record));
        unread
            .map(|(_, record)| self.outcomes[record.first].job)
            .collect()
    }

    /// What the flow waits for, and what it keeps.
    pub fn suspension(&mut self, seen: &[u32]) -> Result<Spawn, JobError> {
        let open_count = self.owners.iter().flatten().count();
        let mut open: Vec<usize> = self.owners.iter().flatten().copied().collect();
        open.dedup();
        open.retain(|record| !self.records[*record].is_given_up);
        let is_unwanted =
            |owner: &Option<usize>| owner.is_some_and(|record| self.records[record].is_given_up);
        let owned = self.owners.iter().zip(&self.outcomes);
        let given_up = owned.filter(|(owner, _)| is_unwanted(owner));
        let mut given_up: Vec<JobId> = given_up.map(|(_, outcome)| outcome.job).collect();
        // Those that are open are there.
        given_up.extend(self.unread_events(|_, record| record.is_given_up && record.missing == 0));
        let mut memo = Memo {
            seen: Some(runs(seen)),
            values: std::mem::take(&mut self.new_values),
            ..Memo::default()
        };
        let (mut begun, mut awaited) = (Vec::new(), open.len());
        for record in &mut self.records {
            if let Some(children) = record.children.take() {
                begun.push((record.entry.clone(), children));
                awaited += usize::from(!record.is_given_up);
            }
        }
        // A new step that is given up already is cancelled when the flow waits for the next time.
        let is_one = awaited == 1 && open.len() + begun.len() == 1;
        if awaited == 0 {
            return Err(failed(
                "the flow waits for nothing that will ever end: a flow awaits steps, events and sleeps of its `Flow`, \
                 and runs what else it awaits by `Flow::local`"
                    .to_owned(),
            ));
        }
        let (steps, children) = grouped(begun);
        memo.steps = steps;
        let new_count: usize = children.iter().map(|batch| batch.payloads.count() as usize).sum();
        if self.outcomes.len() + new_count > FLOW_STEPS_MAX as usize {
            return Err(failed(format!(
                "the flow has {} steps, of which {open_count} are open; the limit is {FLOW_STEPS_MAX}: \
                 continue with a state before, by `Flow::continue_with`",
                self.outcomes.len() + new_count
            )));
        }
        if open_count + new_count > FLOW_OPEN_STEPS_MAX as usize {
            return Err(failed(format!(
                "the flow has {} open steps at once; the limit is {FLOW_OPEN_STEPS_MAX}: wait for some before the next ones",
                open_count + new_count
            )));
        }
        if children.len() > CHILD_BATCHES_MAX {
            return Err(failed(format!(
                "the flow begins {} different groups of steps at once; the limit is {CHILD_BATCHES_MAX} (each event, sleep, step of \
                 several jobs, kind and set of options makes one; steps of one name without a key keep their order, so they may \
                 make more): give the steps keys, or wait for some first",
                children.len()
            )));
        }
        let wake = if is_one { Wake::All } else { Wake::Any };
        Ok(Spawn {
            given_up,
            ..flow_spawn(children, &memo, wake)?
        })
    }
}

/// Whether a step of this name is a wait for an event.
fn is_event(name: &str) -> bool {
    name.starts_with('@') && name != SLEEP
}

/// Makes a spawn that a flow answers with.
fn flow_spawn(children: Vec<ChildBatch>, memo: &Memo, wake: Wake) -> Result<Spawn, JobError> {
    let spawn = Spawn {
        children,
        ..Spawn::new()
    };
    let spawn = spawn.memo(memo).map_err(|error| {
        JobError::new("memo", format!("the memo of the flow cannot be stored: {error}")).permanent()
    })?;
    Ok(spawn.flow(wake))
}

fn failed(message: String) -> JobError {
    JobError::new("flow", message).permanent()
}

/// Notes that a flow was woken, and wakes the task that runs it.
pub(super) struct WokeSignal {
    is_woken: AtomicBool,
    task: Waker,
}

impl WokeSignal {
    pub fn new(task: Waker) -> Self {
        WokeSignal {
            is_woken: AtomicBool::new(false),
            task,
        }
    }

    /// Whether the flow was woken since the last call.
    pub fn take(&self) -> bool {
        self.is_woken.swap(false, Ordering::Relaxed)
    }
}

impl ArcWake for WokeSignal {
    fn wake_by_ref(signal: &Arc<Self>) {
        signal.is_woken.store(true, Ordering::Relaxed);
        signal.task.wake_by_ref();
    }
}
