//! Debounced jobs of the reference.

use gristmill_model::{BatchId, Debounce, DebouncedPayloads, JobId, KeyedBatch, NewBatch, Timestamp};
use gristmill_store::SubmittedJobs;

use crate::machine::reference::keys::{Behind, Owner};
use crate::machine::reference::{Created, Job, Place, Reference};

impl Reference {
    /// Submits debounced jobs. `id` is the batch of the stored jobs, if the store stored any.
    pub fn submit_debounced(
        &mut self,
        id: Option<BatchId>,
        batch: &KeyedBatch,
        keys: &[String],
        debounce: Debounce,
        now: Timestamp,
    ) -> SubmittedJobs {
        let unknown = JobId {
            batch: BatchId(0),
            position: 0,
        };
        let mut submitted = SubmittedJobs {
            batch: None,
            count: 0,
            jobs: vec![unknown; keys.len()],
        };
        let payloads: Vec<&str> = batch.batch.payloads.items().collect();
        for (index, key) in keys.iter().enumerate() {
            if keys[index + 1..].contains(key) {
                continue;
            }
            let places: Vec<usize> = (0..keys.len()).filter(|place| keys[*place] == *key).collect();
            let added: Vec<&str> = match debounce.payloads {
                DebouncedPayloads::Last => vec![payloads[index]],
                DebouncedPayloads::Merged => places.iter().map(|place| payloads[*place]).collect(),
            };
            let job = match self.meet(key, &added, batch, debounce, now) {
                Some(owner) => owner,
                None => {
                    let Some(id) = id else {
                        panic!("the key {key} is free, but nothing was stored");
                    };
                    submitted.count += 1;
                    submitted.batch = Some(id);
                    let job = JobId {
                        batch: id,
                        position: submitted.count - 1,
                    };
                    let payload = payload_of(&added, debounce);
                    let new = delayed(&batch.batch, debounce, now, now);
                    self.insert_debounced(job, key, &new, &payload, now);
                    job
                }
            };
            places.iter().for_each(|place| submitted.jobs[*place] = job);
        }
        submitted
    }

    /// Adds payloads to the job that has their key, or keeps them behind it. Returns this job, or `None` if the key is free.
    fn meet(
        &mut self,
        key: &str,
        added: &[&str],
        batch: &KeyedBatch,
        debounce: Debounce,
        now: Timestamp,
    ) -> Option<JobId> {
        let kept = self.keys.get_mut(&(batch.batch.kind.clone(), key.to_owned()));
        let owner = kept.filter(|owner| owner.is_open || owner.behind.is_some())?;
        let job = self.jobs.get_mut(&owner.job).filter(|_| owner.is_open);
        let is_free = owner.behind.is_none();
        if let Some(job) = job {
            if is_free && job.takes(debounce) {
                job.payload = with_added(&job.payload, added, debounce);
                job.run_at = ready_at(debounce, job.submitted_at, now);
                if job.is_claimable() {
                    job.rank = job.rank.min(-batch.batch.options.priority);
                }
                return Some(owner.job);
            }
            if job.is_claimable() {
                job.rank = job.rank.min(-batch.batch.options.priority);
            }
        }
        let earlier = owner.behind.take();
        let is_alike =
            |behind: &Behind| debounce_of(&behind.new).is_some_and(|of| of.payloads == debounce.payloads);
        let earlier = earlier.filter(is_alike);
        let first_at = earlier.as_ref().map_or(now, |behind| behind.first_at);
        owner.behind = Some(Behind {
            key: key.to_owned(),
            new: delayed(&batch.batch, debounce, first_at, now),
            payload: match earlier {
                Some(behind) => with_added(&behind.payload, added, debounce),
                None => payload_of(added, debounce),
            },
            first_at,
        });
        Some(owner.job)
    }

    fn insert_debounced(&mut self, id: JobId, key: &str, new: &NewBatch, payload: &str, now: Timestamp) {
        self.insert_job(id, new, payload, Some(key.to_owned()), Vec::new(), now);
        self.keys
            .insert((new.kind.clone(), key.to_owned()), Owner::of(id, None));
    }

    /// Submits the payloads that waited behind ended jobs.
    pub(super) fn run_again(&mut self, created: &mut Created, now: Timestamp) {
        for behind in std::mem::take(&mut self.again) {
            let id = created.take(&behind.new.kind, &behind.payload);
            self.insert_debounced(id, &behind.key, &behind.new, &behind.payload, now);
        }
    }
}

impl Job {
    /// Reports whether the job takes more payloads: it has not started, and has the same debounce rules.
    fn takes(&self, debounce: Debounce) -> bool {
        matches!(self.place, Place::Ready | Place::Blocked)
            && !self.has_begun()
            && self.parenthood.is_none()
            && self.debounce.is_some_and(|own| own.payloads == debounce.payloads)
    }
}

fn debounce_of(batch: &NewBatch) -> Option<Debounce> {
    batch.options.unique.and_then(|unique| unique.debounce)
}

fn delayed(batch: &NewBatch, debounce: Debounce, first: Timestamp, last: Timestamp) -> NewBatch {
    let mut batch = batch.clone();
    batch.options.run_at = Some(ready_at(debounce, first, last));
    batch
}

fn ready_at(debounce: Debounce, first: Timestamp, last: Timestamp) -> Timestamp {
    let quiet = last.plus_ms(debounce.delay_ms as i64);
    let longest = debounce
        .wait_ms_max
        .map(|wait_ms_max| first.plus_ms(wait_ms_max as i64));
    longest.map_or(quiet, |longest| longest.min(quiet))
}

fn payload_of(added: &[&str], debounce: Debounce) -> String {
    match debounce.payloads {
        DebouncedPayloads::Last => added.concat(),
        DebouncedPayloads::Merged => format!("[{}]", added.join(",")),
    }
}

fn with_added(payload: &str, added: &[&str], debounce: Debounce) -> String {
    match debounce.payloads {
        DebouncedPayloads::Last => added.concat(),
        DebouncedPayloads::Merged => format!("{},{}]", &payload[..payload.len() - 1], added.join(",")),
    }
}
