//! Debouncing: jobs with the same key become one job, which waits until submits stop.
//!
//! While a debounced job has not started, further jobs with its key are added to it as rows of `debounced`, and it is
//! postponed. The claim of its batch merges the payloads. The plan is made here, and the stores execute it.

use std::collections::{BTreeMap, HashMap};

use gristmill_model::limits::{DEBOUNCED_BYTES_MAX, DEBOUNCED_PAYLOADS_MAX};
use gristmill_model::{
    BatchId, Debounce, DebouncedPayloads, JobId, KeyedBatch, NewBatch, PackedArray, PackedBuilder, Positions,
    Timestamp, Unique,
};

use crate::rules::keys::part::part_of;
use crate::rules::keys::rerun::{Owner, PlannedRerun, Rerun, Waiting, read};
use crate::{StoreError, SubmittedJobs};

/// A batch in which each key occurs once.
#[derive(Debug)]
pub struct Collapsed {
    /// The batch as it is stored if no other job stands for any of its jobs.
    pub batch: KeyedBatch,
    /// The keys of its jobs.
    pub keys: Vec<Option<String>>,
    /// The text that each job adds to a job with its key: a payload, or several joined by commas.
    pub added: Vec<String>,
    /// Number of payloads in each text.
    pub counts: Vec<u32>,
    /// The index of the job that each submitted job became.
    places: Vec<u32>,
}

/// Debounced payloads whose keys other jobs own.
#[derive(Debug, Default)]
pub struct Met {
    /// The jobs that take a payload, each with the index of the payload.
    pub taking: Vec<(u32, JobId)>,
    /// The payloads that wait behind other jobs.
    pub behind: Vec<PlannedRerun>,
}

impl Collapsed {
    /// Merges jobs with the same key, at the place of the last one.
    pub fn of(batch: &KeyedBatch, keys: &[Option<String>], debounce: Debounce) -> Result<Self, StoreError> {
        let mut keys = keys.to_vec();
        for rejected in &batch.batch.rejected {
            keys[rejected.position as usize] = None;
        }
        let mut last: HashMap<&str, usize> = HashMap::new();
        for (index, key) in keys.iter().enumerate() {
            if let Some(key) = key {
                last.insert(key, index);
            }
        }
        let stays = |index: usize| keys[index].as_deref().is_none_or(|key| last[key] == index);
        let kept: Positions = (0..keys.len())
            .filter(|index| stays(*index))
            .map(|index| index as u32)
            .collect();
        let place_of: HashMap<u32, u32> = kept.iter().zip(0..).collect();
        let place = |index: usize| {
            let last = keys[index].as_deref().map_or(index, |key| last[key]);
            place_of[&(last as u32)]
        };
        let places: Vec<u32> = (0..keys.len()).map(place).collect();
        let mut added = vec![String::new(); place_of.len()];
        let mut counts = vec![0; added.len()];
        for (payload, place) in batch.batch.payloads.items().zip(&places) {
            let text = &mut added[*place as usize];
            if debounce.payloads == DebouncedPayloads::Last {
                text.clear();
            } else if !text.is_empty() {
                text.push(',');
            }
            text.push_str(payload);
            counts[*place as usize] += 1;
        }
        assert_eq!(
            counts.iter().sum::<u32>(),
            batch.batch.payloads.count(),
            "each payload becomes part of one job"
        );
        assert!(counts.iter().all(|count| *count > 0), "each job has a payload");
        let mut collapsed = Collapsed {
            batch: part_of(batch, &kept)?,
            keys: kept.iter().map(|index| keys[index as usize].clone()).collect(),
            added,
            counts,
            places,
        };
        assert_eq!(collapsed.keys.len(), collapsed.added.len());
        collapsed.wrap(debounce)?;
        Ok(collapsed)
    }

    /// Makes arrays of payloads that are merged. Rejected jobs stay as they are.
    fn wrap(&mut self, debounce: Debounce) -> Result<(), StoreError> {
        if debounce.payloads == DebouncedPayloads::Last {
            return Ok(());
        }
        let rejected = &self.batch.batch.rejected;
        let mut payloads = PackedBuilder::new().of_wrapped();
        for (text, place) in self.added.iter().zip(0..) {
            if rejected.iter().any(|rejected| rejected.position == place) {
                payloads.push(text)?;
            } else {
                payloads.push(&format!("[{text}]"))?;
            }
        }
        assert_eq!(payloads.count(), self.batch.batch.payloads.count());
        self.batch.batch.payloads = payloads.finish();
        Ok(())
    }

    /// Delays the jobs from now on.
    pub fn delay(&mut self, debounce: Debounce, now: Timestamp) {
        self.batch.batch.options.run_at = Some(ready_at(debounce, now, now));
    }

    /// The owners that take payloads if they have not started: no job waits behind them, they are debounced in the same
    /// way, and they have room. `stored` gives the rules and the time of the submit of a batch, and `sizes` has the
    /// sizes that were added to its jobs.
    pub fn takers(
        &self,
        debounce: Debounce,
        owners: &HashMap<u32, Owner>,
        sizes: &Sizes,
        now: Timestamp,
        stored: impl Fn(BatchId) -> Option<(Option<Unique>, Timestamp)>,
    ) -> Takers {
        let mut takers = Takers::new();
        for (place, owner) in owners
            .iter()
            .filter(|(_, owner)| owner.open && owner.rerun.is_none())
        {
            let (count, added) = (self.counts[*place as usize], &self.added[*place as usize]);
            let stored = stored(owner.job.batch);
            if let Some((unique, submitted_at)) = stored
                && is_alike(unique, &self.batch.batch)
                && has_room(debounce, sizes.get(&owner.job), count, added)
            {
                let run_at = ready_at(debounce, submitted_at, now);
                let (positions, _) = takers
                    .entry(owner.job.batch)
                    .or_insert_with(|| (Positions::new(), run_at));
                positions.insert(owner.job.position);
            }
        }
        takers
    }

    /// Divides the payloads: owners among the `unstarted` jobs take theirs, and the others wait behind their owners.
    pub fn meet(
        &self,
        debounce: Debounce,
        owners: &HashMap<u32, Owner>,
        unstarted: &HashMap<BatchId, Positions>,
        now: Timestamp,
    ) -> Result<Met, StoreError> {
        let mut met = Met::default();
        for (place, owner) in owners {
            let unstarted = unstarted.get(&owner.job.batch);
            if unstarted.is_some_and(|unstarted| unstarted.contains(owner.job.position)) {
                met.taking.push((*place, owner.job));
            } else {
                met.behind.push(self.behind(*place, owner, debounce, now)?);
            }
        }
        assert_eq!(
            met.taking.len() + met.behind.len(),
            owners.len(),
            "each owner takes a payload or has it wait behind it"
        );
        Ok(met)
    }

    /// Makes the job for a payload that the owner of its key cannot take. Earlier payloads behind the same owner stay
    /// with it, if they are debounced in the same way.
    fn behind(
        &self,
        place: u32,
        owner: &Owner,
        debounce: Debounce,
        now: Timestamp,
    ) -> Result<PlannedRerun, StoreError> {
        let index = place as usize;
        let key = self.keys[index].clone().unwrap_or_default();
        let mut rerun = Rerun::of(&self.batch.batch, place);
        let mut waiting = Waiting {
            first_at: now,
            count: self.counts[index],
        };
        let earlier = owner.rerun.as_deref().map(read).transpose()?;
        let earlier = earlier.filter(|earlier| is_alike(earlier.options.unique, &self.batch.batch));
        if let Some(earlier) = &earlier
            && let Some(known) = earlier.debounced
        {
            waiting.first_at = known.first_at;
            if debounce.payloads == DebouncedPayloads::Merged {
                let added = &self.added[index];
                let size = (known.count, earlier.payload.as_str().len());
                if !has_room(debounce, Some(&size), waiting.count, added) {
                    let owner = owner.job;
                    return Err(StoreError::KeyFull { key, owner });
                }
                waiting.count += known.count;
                let merged = earlier.payload.items().next().unwrap_or("[]");
                let mut payload = PackedBuilder::new().of_wrapped();
                payload.push(&joined(merged, std::slice::from_ref(added), debounce))?;
                rerun.payload = payload.finish();
            }
        }
        assert!(waiting.first_at <= now, "a debounce began in the past");
        rerun.options.run_at = Some(ready_at(debounce, waiting.first_at, now));
        rerun.debounced = Some(waiting);
        Ok(PlannedRerun {
            key,
            owner: owner.job,
            rerun,
        })
    }

    /// Makes the answer to the caller from the answer for the collapsed batch.
    pub fn answer(&self, submitted: SubmittedJobs) -> SubmittedJobs {
        let jobs = self.places.iter().map(|place| submitted.jobs[*place as usize]);
        SubmittedJobs {
            jobs: jobs.collect(),
            ..submitted
        }
    }
}

/// The time from which a job can be claimed. `first` and `last` are the submits of its first and last payloads.
fn ready_at(debounce: Debounce, first: Timestamp, last: Timestamp) -> Timestamp {
    let after = |from: Timestamp, span_ms: u64| from.plus_ms(i64::try_from(span_ms).unwrap_or(i64::MAX));
    let quiet = after(last, debounce.delay_ms);
    match debounce.wait_ms_max {
        Some(wait_ms_max) => quiet.min(after(first, wait_ms_max)),
        None => quiet,
    }
}

/// The payloads that were added to jobs: their number and bytes.
pub type Sizes = HashMap<JobId, (u32, usize)>;

/// Whether a job of this size can take further payloads.
fn has_room(debounce: Debounce, size: Option<&(u32, usize)>, count: u32, added: &str) -> bool {
    let (payloads, bytes) = size.copied().unwrap_or_default();
    debounce.payloads == DebouncedPayloads::Last
        || (payloads + count < DEBOUNCED_PAYLOADS_MAX && bytes + added.len() < DEBOUNCED_BYTES_MAX)
}

/// Payloads that were added to jobs of a batch, in order, by position.
pub type Added = BTreeMap<u32, Vec<String>>;

/// The payloads of these jobs of a batch, merged with the added ones.
pub fn with_added(
    payloads: &PackedArray,
    positions: &Positions,
    added: &Added,
    debounce: Debounce,
) -> Result<PackedArray, StoreError> {
    assert_eq!(payloads.count(), positions.len(), "each job has a payload");
    let mut all = PackedBuilder::new().of_wrapped();
    for (payload, position) in payloads.items().zip(positions.iter()) {
        match added.get(&position) {
            None => all.push(payload)?,
            Some(added) => all.push(&joined(payload, added, debounce))?,
        }
    }
    assert_eq!(all.count(), payloads.count(), "each payload stays one");
    Ok(all.finish())
}

/// A job's payload, merged with the added ones.
pub fn joined(payload: &str, added: &[String], debounce: Debounce) -> String {
    match (debounce.payloads, added.last()) {
        (DebouncedPayloads::Last, Some(last)) => last.clone(),
        (DebouncedPayloads::Merged, Some(_)) => {
            let first = payload.strip_suffix(']').unwrap_or(payload);
            format!("{first},{}]", added.join(","))
        }
        (_, None) => payload.to_owned(),
    }
}

/// Jobs that take payloads if they have not started, and the time from which they can be claimed then.
type Takers = BTreeMap<BatchId, (Positions, Timestamp)>;

/// Whether a stored batch is debounced like a new one.
fn is_alike(stored: Option<Unique>, new: &NewBatch) -> bool {
    let payloads = |unique: Option<Unique>| unique?.debounce.map(|debounce| debounce.payloads);
    payloads(stored).is_some() && payloads(stored) == payloads(new.options.unique)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debounce(payloads: DebouncedPayloads) -> Debounce {
        Debounce {
            delay_ms: 10,
            wait_ms_max: Some(25),
            payloads,
        }
    }

    fn collapsed(payloads: DebouncedPayloads) -> Collapsed {
        let debounce = debounce(payloads);
        let unique = Unique {
            debounce: Some(debounce),
            ..Unique::default()
        };
        let jobs = NewBatch::new("work", PackedArray::parse("[1,[2],3,4]").unwrap());
        let keys = PackedArray::parse(r#"["a","b","a","b"]"#).unwrap();
        let batch = KeyedBatch::new(jobs, keys, unique);
        let keys = batch.check().unwrap();
        Collapsed::of(&batch, &keys, debounce).unwrap()
    }

    #[test]
    fn jobs_with_the_same_key_become_one() {
        let last = collapsed(DebouncedPayloads::Last);
        assert_eq!(last.batch.batch.payloads, PackedArray::parse("[3,4]").unwrap());
        assert_eq!(last.places, [0, 1, 0, 1]);
        let merged = collapsed(DebouncedPayloads::Merged);
        assert_eq!(
            merged.batch.batch.payloads,
            PackedArray::parse("[[1,3],[[2],4]]").unwrap()
        );
        assert_eq!(
            (merged.added.as_slice(), merged.counts.as_slice()),
            (["1,3", "[2],4"].map(str::to_owned).as_slice(), [2, 2].as_slice())
        );
    }

    #[test]
    fn payloads_are_added_in_order() {
        let added = ["5".to_owned(), "[6],7".to_owned()];
        assert_eq!(
            joined("[1]", &added, debounce(DebouncedPayloads::Merged)),
            "[1,5,[6],7]"
        );
        assert_eq!(
            joined("[[1]]", &added[..1], debounce(DebouncedPayloads::Merged)),
            "[[1],5]"
        );
        assert_eq!(joined("1", &added[..1], debounce(DebouncedPayloads::Last)), "5");
    }

    #[test]
    fn the_longest_wait_ends_the_delay() {
        let debounce = debounce(DebouncedPayloads::Last);
        let at = |last| ready_at(debounce, Timestamp(100), Timestamp(last)).0;
        assert_eq!([at(100), at(110), at(120), at(200)], [110, 120, 125, 125]);
    }
}
