//! Deduplication keys: plans the action on each job whose key another open job has.
//!
//! A store finds the owners of a batch's keys with one statement. The plan is made here, and the store executes it in
//! the transaction of the submit. The keys of a batch are packed, and one statement for each report releases them. A
//! batch without keys never touches the tables of keys.

pub mod debounce;
pub(crate) mod part;
pub mod rerun;

use std::collections::{BTreeMap, HashMap};

use gristmill_model::{
    After, BatchId, JobId, KeyScope, KeyedBatch, NewBatch, OnDuplicate, Positions, Prerequisite,
};

use crate::StoreError;
use crate::rules::dependency::WaitingJobs;
use crate::rules::keys::part::{part_of, place_of};
pub use crate::rules::keys::rerun::Owner;
use crate::rules::keys::rerun::{PlannedRerun, Rerun};
use crate::rules::lanes::Lanes;

/// The result of submitting a batch whose jobs have keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedJobs {
    /// The batch of the stored jobs; `None` if other jobs stand for all of them.
    pub batch: Option<BatchId>,
    /// Number of stored jobs. Their positions count from 0, in the order of the submit.
    pub count: u32,
    /// For each submitted job in order: its id, or the id of the job that stands for it.
    pub jobs: Vec<JobId>,
}

impl SubmittedJobs {
    /// Makes the result of a batch that was stored completely.
    pub fn whole(batch: BatchId, count: u32) -> Self {
        SubmittedJobs {
            batch: Some(batch),
            count,
            jobs: (0..count).map(|position| JobId { batch, position }).collect(),
        }
    }
}

/// The fate of one submitted job.
#[derive(Debug, Clone, Copy)]
enum Target {
    /// The job is stored.
    Stored,
    /// A later job of its batch has the same key.
    Later(u32),
    /// Another job stands for it.
    Owner(JobId),
}

/// The plan for the jobs of a batch with keys.
#[derive(Debug)]
pub struct KeyPlan {
    targets: Vec<Target>,
    /// The indexes of the stored jobs in the batch.
    stored: Positions,
    /// The jobs that new ones replace.
    pub replaced: BTreeMap<BatchId, Positions>,
    /// The keys of the replaced jobs.
    pub replaced_keys: Vec<String>,
    /// The job that each new job replaces, by the new job's index in the batch.
    replacements: Vec<(u32, JobId)>,
    /// The open jobs that stand for skipped ones.
    pub skipped: BTreeMap<BatchId, Positions>,
    /// The jobs that run once more.
    pub reruns: Vec<PlannedRerun>,
}

/// The number of a key's scope: the first lane of its kind or queue. This lane is not deleted while keys of the scope are
/// stored.
pub fn scope_id(lanes: &Lanes, scope: KeyScope, batch: &NewBatch) -> Option<i64> {
    match scope {
        KeyScope::Kind => lanes.first_of_kind(&batch.kind).map(|lane| lane * 2),
        KeyScope::Queue => lanes.first_of_queue(&batch.queue).map(|lane| lane * 2 + 1),
    }
}

/// The keys of a batch to look for. A repeated key counts once, for its last job, and the key of a rejected job does
/// not count.
pub struct Wanted<'k> {
    /// The index of the last job with each key.
    pub last: HashMap<&'k str, u32>,
    keys: Vec<Option<&'k str>>,
}

impl<'k> Wanted<'k> {
    /// Gathers the keys of the jobs that can run.
    ///
    /// # Errors
    ///
    /// [`StoreError::DuplicateKey`] for a key that occurs twice, if duplicates are rejected.
    pub fn new(batch: &KeyedBatch, keys: &'k [Option<String>]) -> Result<Self, StoreError> {
        let mut keys: Vec<Option<&str>> = keys.iter().map(Option::as_deref).collect();
        for rejected in &batch.batch.rejected {
            keys[rejected.position as usize] = None;
        }
        let mut last = HashMap::with_capacity(keys.len());
        for (key, index) in keys.iter().zip(0..) {
            if let Some(key) = key
                && last.insert(*key, index).is_some()
                && batch.unique().on_duplicate == OnDuplicate::Reject
            {
                return Err(StoreError::DuplicateKey {
                    key: (*key).to_owned(),
                    owner: None,
                });
            }
        }
        Ok(Wanted { last, keys })
    }
}

impl KeyPlan {
    /// Plans the jobs of `batch`. `owners` has the owners of their keys, by index, and `running` has the owners that run.
    pub fn of(
        batch: &KeyedBatch,
        wanted: &Wanted<'_>,
        owners: &HashMap<u32, Owner>,
        running: &HashMap<BatchId, Positions>,
    ) -> Result<KeyPlan, StoreError> {
        let mut plan = KeyPlan {
            targets: Vec::with_capacity(wanted.keys.len()),
            stored: Positions::new(),
            replaced: BTreeMap::new(),
            replaced_keys: Vec::new(),
            replacements: Vec::new(),
            skipped: BTreeMap::new(),
            reruns: Vec::new(),
        };
        for (key, index) in wanted.keys.iter().zip(0..) {
            let target = match key {
                None => Target::Stored,
                Some(key) => match (wanted.last[key], owners.get(&index)) {
                    (last, _) if last != index => {
                        assert!(last > index, "the last job with a key follows the others");
                        Target::Later(last)
                    }
                    (_, None) => Target::Stored,
                    (_, Some(owner)) => plan.meet(batch, key, index, owner, running)?,
                },
            };
            if matches!(target, Target::Stored) {
                plan.stored.insert(index);
            }
            plan.targets.push(target);
        }
        assert_eq!(
            plan.targets.len(),
            batch.batch.payloads.count() as usize,
            "each job of the batch has a target"
        );
        assert!(
            plan.replacements
                .iter()
                .all(|(index, _)| plan.stored.contains(*index)),
            "only stored jobs replace others"
        );
        Ok(plan)
    }

    fn meet(
        &mut self,
        batch: &KeyedBatch,
        key: &str,
        index: u32,
        owner: &Owner,
        running: &HashMap<BatchId, Positions>,
    ) -> Result<Target, StoreError> {
        let JobId { batch: of, position } = owner.job;
        match batch.unique().on_duplicate {
            OnDuplicate::Reject => {
                return Err(StoreError::DuplicateKey {
                    key: key.to_owned(),
                    owner: Some(owner.job),
                });
            }
            OnDuplicate::Replace if owner.open => {
                self.replaced.entry(of).or_default().insert(position);
                self.replaced_keys.push(key.to_owned());
                self.replacements.push((index, owner.job));
                return Ok(Target::Stored);
            }
            OnDuplicate::Rerun if running.get(&of).is_some_and(|running| running.contains(position)) => {
                self.reruns.push(PlannedRerun {
                    key: key.to_owned(),
                    owner: owner.job,
                    rerun: Rerun::of(&batch.batch, index),
                });
            }
            OnDuplicate::Skip | OnDuplicate::Replace | OnDuplicate::Rerun => {
                if owner.open {
                    self.skipped.entry(of).or_default().insert(position);
                }
            }
        }
        Ok(Target::Owner(owner.job))
    }

    /// Selects the jobs to store, with the keys that they own; `None` if there are none.
    pub fn stored(&self, batch: &KeyedBatch) -> Result<Option<KeyedBatch>, StoreError> {
        if self.stored.is_empty() {
            return Ok(None);
        }
        Ok(Some(part_of(batch, &self.stored)?))
    }

    /// The new jobs that inherit the prerequisites of the jobs that they replace. `waiting` has those prerequisites, by
    /// batch.
    pub fn inherited(&self, waiting: &[(BatchId, WaitingJobs)]) -> Vec<WaitingJobs> {
        let inherited = waiting.iter().map(|(batch, waiting)| {
            let heirs = self.replacements.iter();
            let heirs = heirs.filter(|(_, of)| of.batch == *batch && waiting.positions.contains(of.position));
            WaitingJobs {
                positions: heirs.map(|(index, _)| place_of(&self.stored, *index)).collect(),
                edges: waiting.edges.clone(),
            }
        });
        assert!(self.replacements.len() <= self.stored.len() as usize);
        inherited
            .filter(|waiting| !waiting.positions.is_empty())
            .collect()
    }

    /// Makes the answer to the caller. `batch` holds the stored jobs.
    pub fn answer(&self, batch: Option<BatchId>) -> SubmittedJobs {
        let mut jobs: Vec<JobId> = Vec::with_capacity(self.targets.len());
        let unknown = JobId {
            batch: BatchId(0),
            position: 0,
        };
        let mut position = 0;
        for target in &self.targets {
            jobs.push(match (target, batch) {
                (Target::Stored, Some(batch)) => {
                    position += 1;
                    JobId {
                        batch,
                        position: position - 1,
                    }
                }
                (Target::Owner(job), _) => *job,
                (Target::Later(_) | Target::Stored, _) => unknown,
            });
        }
        assert!(
            batch.is_none() || position == self.stored.len(),
            "each stored job has a position in its batch"
        );
        assert_eq!(jobs.len(), self.targets.len(), "each job has an answer");
        for (index, target) in self.targets.iter().enumerate() {
            if let Target::Later(last) = target {
                jobs[index] = jobs[*last as usize];
            }
        }
        SubmittedJobs {
            batch,
            count: self.stored.len(),
            jobs,
        }
    }
}

/// The prerequisites of a batch in a submit, all of them stored. If it names an earlier batch of the submit, it waits
/// for the jobs that stand for the jobs of that batch. `submitted` has these.
pub fn stored_after(batch: &NewBatch, submitted: &[&SubmittedJobs]) -> Vec<After> {
    let mut stored = Vec::with_capacity(batch.after.len());
    for after in &batch.after {
        let Prerequisite::Earlier(place) = after.prerequisite else {
            stored.push(after.clone());
            continue;
        };
        assert!(place < submitted.len(), "a prerequisite is submitted first");
        let mut became: BTreeMap<BatchId, Positions> = BTreeMap::new();
        for (job, index) in submitted[place].jobs.iter().zip(0..) {
            if after
                .positions
                .as_ref()
                .is_none_or(|positions| positions.contains(index))
            {
                became.entry(job.batch).or_default().insert(job.position);
            }
        }
        stored.extend(became.into_iter().map(|(batch, positions)| After {
            positions: Some(positions),
            ..After::batch(batch).on_failure(after.on_failure)
        }));
    }
    stored
}
