//! The extractions of all runs, in the engine's store. A chunk that was extracted once is never sent again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use gristmill_engine::{Engine, Kind};
use gristmill_model::limits::BATCH_BYTES_TARGET;
use gristmill_model::{BatchId, JobState, NewBatch, PackedBuilder, RunId};
use gristmill_store::{Change, JobFilter, NewRun, RunAdvance, RunState, Selection, Store, StoreError};

use crate::extract::ChunkText;
use crate::pipeline::job::{Extract, Outcome, completed_outcome, failed_outcome};
use crate::service::Usage;

/// The name of the run that owns the batches of extractions. Where several ingestions share a store, their runs' names
/// begin with it.
pub const RUN: &str = "memory: extractions";

/// Batches in one page of a run.
const PAGE_BATCHES: u32 = 1_000;

/// Maximum number of batches whose outcomes are kept in memory.
const BATCHES_KEPT_MAX: usize = 4;

/// A batch of which some chunks have no outcome yet.
struct UnderWay {
    keys: Vec<String>,
    /// Number of its chunks without an outcome.
    open: usize,
}

/// The index of all extractions.
pub struct Extractions {
    store: Arc<dyn Store>,
    run: gristmill_store::Run,
    /// The batch that holds the outcome of a chunk, by the chunk's key. Later outcomes replace earlier ones.
    batches: HashMap<String, BatchId>,
    /// The batch of a chunk that this run submitted and that has no outcome yet, by the chunk's key.
    submitted: HashMap<String, BatchId>,
    /// The batches of the submitted chunks, with the chunks' keys by position.
    under_way: HashMap<BatchId, UnderWay>,
    /// The outcomes of the batches that were read last.
    kept: VecDeque<(BatchId, HashMap<String, Outcome>)>,
}

impl Extractions {
    /// Finds the outcomes of earlier ingestions in this store. Cancels the unfinished jobs of earlier ingestions with
    /// this name: an ingestion that still needs one submits it again.
    pub async fn open(engine: Engine, name: Option<&str>) -> Result<Extractions, StoreError> {
        let store = engine.store().clone();
        let name = run_name(name);
        let run = match store.run(&name).await? {
            Some(run) => run,
            None => {
                let new = NewRun {
                    name: name.clone(),
                    description: "{}".to_owned(),
                };
                match store.create_run(new).await {
                    // Another ingestion created the run first.
                    Err(StoreError::RunExists(_)) => store.run(&name).await?.ok_or_else(|| {
                        StoreError::InvalidInput(format!("the run `{name}` was deleted while it was begun"))
                    })?,
                    created => created?,
                }
            }
        };
        let unfinished = JobFilter {
            states: JobState::ALL
                .into_iter()
                .filter(|state| !state.is_final())
                .collect(),
            run: Some(run.id),
            ..JobFilter::default()
        };
        store
            .change(Selection::Filter(unfinished), Change::Cancel)
            .await?;
        let mut extractions = Extractions {
            store,
            run,
            batches: HashMap::new(),
            submitted: HashMap::new(),
            under_way: HashMap::new(),
            kept: VecDeque::new(),
        };
        extractions.find_all().await?;
        Ok(extractions)
    }

    /// Finds the outcomes of all ingestions, including those for other knowledge bases.
    async fn find_all(&mut self) -> Result<(), StoreError> {
        let mut runs = self.store.runs().await?;
        runs.retain(|run| run.name.starts_with(RUN));
        // The earliest run comes first, because later outcomes replace earlier ones.
        for run in runs.iter().rev() {
            self.find(run.id).await?;
        }
        Ok(())
    }

    async fn find(&mut self, run: RunId) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let page = self.store.run_batches(run, after, PAGE_BATCHES).await?;
            let Some(last) = page.last() else { return Ok(()) };
            assert!(
                after.is_none_or(|before| before < last.batch),
                "pages of a run's batches ascend"
            );
            after = Some(last.batch);
            for row in page {
                for key in self.load(row.batch).await?.keys() {
                    self.batches.insert(key.clone(), row.batch);
                }
            }
        }
    }

    /// Reads the outcomes of one batch, by the chunks' keys.
    async fn load(&self, batch: BatchId) -> Result<HashMap<String, Outcome>, StoreError> {
        let Some(outcomes) = self.store.outcomes(batch).await? else {
            return Ok(HashMap::new());
        };
        let values = outcomes
            .reports
            .iter()
            .filter_map(|report| report.values.as_ref());
        let completed = values
            .flat_map(|values| values.items())
            .filter_map(completed_outcome);
        let failed = outcomes
            .errors
            .iter()
            .filter_map(|failure| failed_outcome(&failure.error));
        // What a wrong key or an exhausted quota left undone is asked for again.
        let failed = failed.filter(|outcome| !outcome.is_denied);
        Ok(completed
            .chain(failed)
            .map(|outcome| (outcome.key.clone(), outcome))
            .collect())
    }

    /// Records that the outcome of a submitted chunk is on disk.
    pub fn arrived(&mut self, key: &str) {
        let Some((key, batch)) = self.submitted.remove_entry(key) else {
            return;
        };
        if let Some(under_way) = self.under_way.get_mut(&batch) {
            assert!(
                under_way.open > 0,
                "a batch under way waits for at least one chunk"
            );
            under_way.open -= 1;
            if under_way.open == 0 {
                self.under_way.remove(&batch);
            }
        }
        self.batches.insert(key, batch);
    }

    /// Reads the outcomes of submitted chunks that have not [arrived](Extractions::arrived), no matter which worker
    /// reported them.
    pub async fn poll(&mut self) -> Result<Vec<Outcome>, StoreError> {
        let mut found = Vec::new();
        for (&batch, under_way) in &self.under_way {
            let Some(outcomes) = self.store.outcomes(batch).await? else {
                found.extend(self.lost(under_way, "was deleted from the store"));
                continue;
            };
            assert!(
                under_way.open <= under_way.keys.len(),
                "a batch waits for its own chunks only"
            );
            if outcomes.ended() as usize <= under_way.keys.len() - under_way.open {
                continue;
            }
            for job in outcomes.jobs() {
                let key = under_way.keys.get(job.position as usize);
                let Some(key) = key.filter(|key| self.submitted.contains_key(*key)) else {
                    continue;
                };
                match (job.value, job.failure, job.report.state) {
                    (Some(value), ..) => found.extend(completed_outcome(value)),
                    (_, Some(failure), _) => {
                        let told = failed_outcome(&failure.error).filter(|outcome| outcome.key == *key);
                        let failed = || without(key, &format!("failed: {}", failure.error.message));
                        found.push(told.unwrap_or_else(failed));
                    }
                    (.., JobState::Cancelled | JobState::Expired) => {
                        found.push(without(key, "was cancelled"))
                    }
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    /// Makes failures of a batch's open chunks, which will never have an outcome.
    fn lost(&self, under_way: &UnderWay, reason: &str) -> Vec<Outcome> {
        let open = under_way
            .keys
            .iter()
            .filter(|key| self.submitted.contains_key(*key));
        open.map(|key| without(key, reason)).collect()
    }

    /// Whether the outcome of a chunk is known.
    pub fn contains(&self, key: &str) -> bool {
        self.batches.contains_key(key)
    }

    /// Reads the outcome of a chunk, if there is one.
    pub async fn get(&mut self, key: &str) -> Result<Option<Outcome>, StoreError> {
        let Some(&batch) = self.batches.get(key) else {
            return Ok(None);
        };
        // A kept batch may have got more outcomes since it was read.
        let is_kept = |(kept, outcomes): &(BatchId, HashMap<String, Outcome>)| {
            *kept == batch && outcomes.contains_key(key)
        };
        if !self.kept.iter().any(is_kept) {
            self.kept.retain(|(kept, _)| *kept != batch);
            let outcomes = self.load(batch).await?;
            self.kept.push_front((batch, outcomes));
            self.kept.truncate(BATCHES_KEPT_MAX);
        }
        let found = self.kept.iter().find(|(kept, _)| *kept == batch);
        Ok(found.and_then(|(_, outcomes)| outcomes.get(key).cloned()))
    }

    /// Submits the extraction of chunks as one batch.
    pub async fn submit(&mut self, chunks: &[ChunkText]) -> Result<(), StoreError> {
        let mut payloads = PackedBuilder::new();
        let mut batches = Vec::new();
        for chunk in chunks {
            if payloads.bytes() >= BATCH_BYTES_TARGET {
                batches.push(batch(std::mem::take(&mut payloads)));
            }
            payloads.push_value(chunk)?;
        }
        if payloads.count() > 0 {
            batches.push(batch(payloads));
        }
        self.run.progress.jobs += chunks.len() as u64;
        let advance = RunAdvance {
            run: self.run.id,
            progress: self.run.progress,
            state: RunState::Submitting,
        };
        let counts: Vec<usize> = batches
            .iter()
            .map(|batch| batch.payloads.count() as usize)
            .collect();
        let ids = self.store.submit(batches, Some(advance)).await?;
        assert_eq!(ids.len(), counts.len(), "each submitted batch has an id");
        assert_eq!(
            counts.iter().sum::<usize>(),
            chunks.len(),
            "each chunk is submitted once"
        );
        let mut rest = chunks;
        for (id, count) in ids.into_iter().zip(counts) {
            let (own, others) = rest.split_at(count);
            rest = others;
            let keys: Vec<String> = own.iter().map(|chunk| chunk.key.clone()).collect();
            self.submitted.extend(keys.iter().map(|key| (key.clone(), id)));
            let open = keys.len();
            let before = self.under_way.insert(id, UnderWay { keys, open });
            assert!(before.is_none(), "a submitted batch has a new id");
        }
        Ok(())
    }
}

/// Makes the outcome of a chunk that no worker will extract.
fn without(key: &str, reason: &str) -> Outcome {
    Outcome {
        key: key.to_owned(),
        result: Err(format!("its extraction {reason}").into()),
        usage: Usage::default(),
        bytes: reason.len(),
        is_denied: false,
    }
}

/// The extracted knowledge, or the error as text.
pub type OutcomeResult = Result<Arc<crate::extract::Extracted>, Arc<str>>;

/// Names the run of the ingestions with this name.
pub(crate) fn run_name(name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{RUN} for {name}"),
        None => RUN.to_owned(),
    }
}

/// Makes a batch of extractions.
pub(crate) fn batch(payloads: PackedBuilder) -> NewBatch {
    NewBatch {
        queue: Extract::QUEUE.to_owned(),
        options: Extract::options(),
        ..NewBatch::new(Extract::NAME, payloads.finish())
    }
}
