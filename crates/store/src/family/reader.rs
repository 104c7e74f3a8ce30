//! Reads the outcomes of children.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gristmill_model::limits::PREREQUISITES_BYTES_MAX;
use gristmill_model::{Awaited, BatchId, JobError, JobId, JobState, PackedArray, Positions};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use crate::family::ChildOutcome;
use crate::{BatchOutcomes, OutcomesRead, OutcomesWanted, Store, StoreError};

/// Bytes of the values of completed children that a [`ChildReader`] keeps.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// Bytes of an entry of [`Kept`] beside its reports, about.
const ENTRY_BYTES: usize = 128;

/// Bytes of the outcomes of a batch of which all are read, and kept, though only some are wanted: others are wanted soon.
const WHOLE_BYTES_MAX: usize = 4 << 20;

/// Reads at a time of one [`ChildReader`]: each has its values in memory.
const READS_MAX: usize = 4;

/// Reads the outcomes of children, and keeps the values of those that it has read: the next step of their parents, and
/// other parents with children in the same batches, need them again.
#[derive(Debug)]
pub struct ChildReader {
    kept: Mutex<Kept>,
    reads: Semaphore,
}

impl Default for ChildReader {
    fn default() -> Self {
        ChildReader {
            kept: Mutex::default(),
            reads: Semaphore::new(READS_MAX),
        }
    }
}

/// The reason why the outcomes of prerequisites cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnreadPrerequisites {
    /// The batch is gone.
    #[error("batch {0} was deleted, such as by a prune, and its outcomes with it")]
    Deleted(BatchId),
    /// There are too many bytes.
    #[error(
        "the outcomes of the prerequisites have more than {PREREQUISITES_BYTES_MAX} bytes (PREREQUISITES_BYTES_MAX): \
         let them return less, such as the paths of files"
    )]
    TooLarge,
}

/// Completed jobs with their values.
type Completed = (Positions, Option<PackedArray>);

/// The answer of a [`ChildReader`] about a batch.
enum Found {
    Unknown,
    TooLarge,
    Outcomes(BTreeMap<u32, ChildOutcome>),
}

/// The completed children that were read last. They never change. Others may be retried.
#[derive(Debug, Default)]
struct Kept {
    by_batch: BTreeMap<BatchId, KeptBatch>,
    bytes: usize,
}

/// The completed jobs of one batch.
#[derive(Debug)]
struct KeptBatch {
    /// The number of all jobs of the batch.
    count: u32,
    reports: Vec<Completed>,
}

impl Kept {
    fn bytes_of(reports: &[Completed]) -> usize {
        let of_values =
            |values: &Option<PackedArray>| values.as_ref().map_or(0, |values| values.as_str().len());
        let of_report = |(_, values): &Completed| size_of::<Completed>() + of_values(values);
        ENTRY_BYTES + reports.iter().map(of_report).sum::<usize>()
    }

    fn keep(&mut self, batch: BatchId, count: u32, reports: Vec<Completed>) {
        let jobs: u32 = reports.iter().map(|(positions, _)| positions.len()).sum();
        assert!(
            jobs <= count,
            "{jobs} of the {count} jobs of batch {batch} have completed"
        );
        self.bytes += Self::bytes_of(&reports);
        let before = self.by_batch.insert(batch, KeptBatch { count, reports });
        self.bytes -= before.map_or(0, |before| Self::bytes_of(&before.reports));
        while self.bytes > KEPT_BYTES_MAX
            && let Some((_, oldest)) = self.by_batch.pop_first()
        {
            self.bytes -= Self::bytes_of(&oldest.reports);
        }
        assert!(
            self.bytes <= KEPT_BYTES_MAX || self.by_batch.is_empty(),
            "{} bytes of values are kept",
            self.bytes
        );
    }

    /// The outcomes of these jobs of a batch, or of all, if all of them are kept.
    fn outcomes(
        &self,
        batch: BatchId,
        wanted: Option<&Positions>,
    ) -> Option<Result<BTreeMap<u32, ChildOutcome>, StoreError>> {
        let KeptBatch { count, reports } = self.by_batch.get(&batch)?;
        let all = Positions::all(*count);
        let wanted = wanted.unwrap_or(&all);
        let mut outcomes = BTreeMap::new();
        for (positions, values) in reports {
            let added = add(
                &mut outcomes,
                batch,
                wanted,
                JobState::Completed,
                positions,
                values.as_ref(),
            );
            if let Err(error) = added {
                return Some(Err(error));
            }
        }
        (outcomes.len() == wanted.len() as usize).then_some(Ok(outcomes))
    }
}

impl ChildReader {
    /// Reads the outcomes of the children that these jobs of a batch spawned last, in the order of the jobs. The
    /// outcomes for each job are in ascending order of batch and position. Each batch of children is read at most once,
    /// even if many parents share it.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub async fn outcomes(
        &self,
        store: &dyn Store,
        batch: BatchId,
        parents: &Positions,
    ) -> Result<Vec<Vec<ChildOutcome>>, StoreError> {
        let families = store.children(batch, parents).await?;
        let batches: BTreeSet<BatchId> = families
            .iter()
            .flat_map(|family| family.jobs.iter().map(|jobs| jobs.batch))
            .collect();
        let mut ended: BTreeMap<BatchId, BTreeMap<u32, ChildOutcome>> = BTreeMap::new();
        for children in batches {
            let wanted = families.iter().flat_map(|family| &family.jobs);
            let wanted = wanted.filter(|jobs| jobs.batch == children);
            let wanted = wanted.fold(Positions::new(), |all, jobs| all.union(&jobs.positions));
            ended.insert(children, self.outcomes_of(store, children, &wanted).await?);
        }
        let mut by_parent: BTreeMap<u32, Vec<ChildOutcome>> = BTreeMap::new();
        for family in families {
            let all = by_parent.entry(family.parent).or_default();
            for jobs in family.jobs {
                let Some(ended) = ended.get_mut(&jobs.batch) else {
                    continue;
                };
                let together = family.together.contains(&jobs.batch);
                for position in jobs.positions.iter() {
                    let job = JobId {
                        batch: jobs.batch,
                        position,
                    };
                    let open = || family.is_flow.then(|| ChildOutcome::open(job, together));
                    all.extend(ended.remove(&position).or_else(open));
                }
            }
        }
        let parents = parents.iter();
        Ok(parents
            .map(|parent| by_parent.remove(&parent).unwrap_or_default())
            .collect())
    }

    /// Reads the outcomes of the prerequisites of a job's batch, in the order in which its submit named their batches. The jobs
    /// of a batch have the same ones, which are read once as long as they are kept.
    ///
    /// # Errors
    ///
    /// A prerequisite has been deleted, the outcomes exceed [`PREREQUISITES_BYTES_MAX`], or the store cannot be read.
    pub async fn prerequisites(
        &self,
        store: &dyn Store,
        job: JobId,
    ) -> Result<Result<Vec<ChildOutcome>, UnreadPrerequisites>, StoreError> {
        let Some(details) = store.job(job).await? else {
            return Ok(Err(UnreadPrerequisites::Deleted(job.batch)));
        };
        let mut all = Vec::new();
        let mut bytes = 0;
        for Awaited { batch, positions } in details.options.prerequisites {
            let wanted = OutcomesWanted {
                batch,
                positions,
                bytes_max: PREREQUISITES_BYTES_MAX - bytes,
                whole_bytes_max: WHOLE_BYTES_MAX.min(PREREQUISITES_BYTES_MAX - bytes),
            };
            let read = match self.read(store, wanted).await? {
                Found::Outcomes(outcomes) => outcomes,
                Found::Unknown => return Ok(Err(UnreadPrerequisites::Deleted(batch))),
                Found::TooLarge => return Ok(Err(UnreadPrerequisites::TooLarge)),
            };
            bytes += read.values().map(ChildOutcome::weight_bytes).sum::<usize>();
            if bytes > PREREQUISITES_BYTES_MAX {
                return Ok(Err(UnreadPrerequisites::TooLarge));
            }
            all.extend(read.into_values());
        }
        Ok(Ok(all))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The outcomes of these jobs of a batch, as far as they have ended.
    async fn outcomes_of(
        &self,
        store: &dyn Store,
        batch: BatchId,
        wanted: &Positions,
    ) -> Result<BTreeMap<u32, ChildOutcome>, StoreError> {
        let wanted = OutcomesWanted {
            batch,
            positions: Some(wanted.clone()),
            bytes_max: usize::MAX,
            whole_bytes_max: WHOLE_BYTES_MAX,
        };
        match self.read(store, wanted).await? {
            Found::Outcomes(outcomes) => Ok(outcomes),
            Found::Unknown => Ok(BTreeMap::new()),
            Found::TooLarge => Err(StoreError::Database(format!(
                "the outcomes of batch {batch} cannot be counted"
            ))),
        }
    }

    /// Reads these outcomes, as far as they are not kept. Those of a small batch are all read, and kept.
    async fn read(&self, store: &dyn Store, wanted: OutcomesWanted) -> Result<Found, StoreError> {
        let batch = wanted.batch;
        let kept = || self.kept().outcomes(batch, wanted.positions.as_ref());
        if let Some(outcomes) = kept() {
            return Ok(Found::Outcomes(outcomes?));
        }
        let _turn = self.reads.acquire().await;
        // Others may have read them meanwhile.
        if let Some(outcomes) = kept() {
            return Ok(Found::Outcomes(outcomes?));
        }
        let (read, is_whole) = match store.outcomes_of(&wanted).await? {
            OutcomesRead::Unknown => return Ok(Found::Unknown),
            OutcomesRead::TooLarge => return Ok(Found::TooLarge),
            OutcomesRead::Read(read) => (read, false),
            OutcomesRead::ReadWhole(read) => (read, true),
        };
        let (count, all) = (read.count, Positions::all(read.count));
        let outcomes = ended(&read, wanted.positions.as_ref().unwrap_or(&all))?;
        assert!(outcomes.len() <= count as usize, "a job has one outcome");
        if !is_whole {
            return Ok(Found::Outcomes(outcomes));
        }
        let completed = read.reports.into_iter();
        let completed = completed.filter(|report| report.state == JobState::Completed);
        let completed = completed.map(|report| (report.positions, report.values));
        self.kept().keep(batch, count, completed.collect());
        Ok(Found::Outcomes(outcomes))
    }
}

/// Reads the outcomes of children once, as [`ChildReader::outcomes`].
///
/// # Errors
///
/// The store cannot be read.
pub async fn child_outcomes(
    store: &dyn Store,
    batch: BatchId,
    parents: &Positions,
) -> Result<Vec<Vec<ChildOutcome>>, StoreError> {
    ChildReader::default().outcomes(store, batch, parents).await
}

fn ended(read: &BatchOutcomes, wanted: &Positions) -> Result<BTreeMap<u32, ChildOutcome>, StoreError> {
    let mut outcomes = BTreeMap::new();
    for report in &read.reports {
        let values = report.values.as_ref();
        add(
            &mut outcomes,
            read.batch,
            wanted,
            report.state,
            &report.positions,
            values,
        )?;
    }
    for failure in &read.errors {
        if let Some(outcome) = outcomes.get_mut(&failure.position) {
            outcome.error = Some(JobError::clone(&failure.error));
        }
    }
    Ok(outcomes)
}

/// Adds the outcomes of those jobs of a report that are wanted.
fn add(
    outcomes: &mut BTreeMap<u32, ChildOutcome>,
    batch: BatchId,
    wanted: &Positions,
    state: JobState,
    reported: &Positions,
    values: Option<&PackedArray>,
) -> Result<(), StoreError> {
    let positions = reported.intersection(wanted);
    let values = values.map(|values| values.select(&reported.indexes_of(&positions)));
    let mut values = values.iter().flat_map(PackedArray::items);
    for position in positions.iter() {
        let value = values.next().map(|value| RawValue::from_string(value.to_owned()));
        let outcome = ChildOutcome {
            job: JobId { batch, position },
            state,
            value: value.transpose().map_err(|error| {
                StoreError::Database(format!("the value of job {batch}:{position} is no JSON: {error}"))
            })?,
            error: None,
            together: false,
        };
        outcomes.insert(position, outcome);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(positions: &str, value: &str) -> Completed {
        let positions: Positions = positions.parse().unwrap();
        let values = vec![value; positions.len() as usize].join("\n,");
        (positions, Some(PackedArray::from_stored(format!("[{values}]"))))
    }

    #[test]
    fn kept_outcomes_are_given_only_where_all_are_known() {
        let mut kept = Kept::default();
        kept.keep(BatchId(1), 6, vec![completed("0-2", "7"), completed("5", "8")]);
        let value = |outcomes: &BTreeMap<u32, ChildOutcome>, position: u32| {
            outcomes[&position].value.as_ref().unwrap().get().to_owned()
        };
        let outcomes = kept
            .outcomes(BatchId(1), Some(&"1,5".parse().unwrap()))
            .unwrap()
            .unwrap();
        assert_eq!(outcomes.len(), 2);
        assert_eq!(
            (value(&outcomes, 1), value(&outcomes, 5)),
            ("7".to_owned(), "8".to_owned())
        );
        let some = |batch, positions: &str| kept.outcomes(BatchId(batch), Some(&positions.parse().unwrap()));
        assert!(some(1, "1,4").is_none());
        assert!(some(2, "1").is_none());
        assert!(kept.outcomes(BatchId(1), None).is_none());
        let mut kept = Kept::default();
        kept.keep(BatchId(1), 3, vec![completed("0-2", "7")]);
        assert_eq!(kept.outcomes(BatchId(1), None).unwrap().unwrap().len(), 3);
    }

    #[test]
    fn kept_values_are_bounded() {
        let mut kept = Kept::default();
        let large = "1".repeat(KEPT_BYTES_MAX / 3);
        for batch in 0..10 {
            kept.keep(BatchId(batch), 1, vec![completed("0", &large)]);
            assert!(kept.bytes <= KEPT_BYTES_MAX);
        }
        assert_eq!(
            kept.by_batch.keys().copied().collect::<Vec<_>>(),
            [BatchId(8), BatchId(9)]
        );
        kept.keep(BatchId(9), 1, Vec::new());
        kept.keep(BatchId(8), 1, Vec::new());
        assert_eq!(kept.bytes, 2 * ENTRY_BYTES);
        let many = i64::try_from(KEPT_BYTES_MAX / ENTRY_BYTES).unwrap();
        for batch in 0..many + 10 {
            kept.keep(BatchId(batch), 1, Vec::new());
        }
        assert_eq!(kept.by_batch.len(), KEPT_BYTES_MAX / ENTRY_BYTES);
    }
}
