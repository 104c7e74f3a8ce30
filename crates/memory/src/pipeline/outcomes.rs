//! The extractions of all runs, in the engine's store: what was asked once is never asked again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use gristmill_engine::{Engine, Kind};
use gristmill_model::limits::BATCH_BYTES_TARGET;
use gristmill_model::{BatchId, JobState, NewBatch, PackedBuilder};
use gristmill_store::{JobFilter, NewRun, RunAdvance, RunState, Selection, Store, StoreError};

use crate::extract::ChunkText;
use crate::pipeline::job::{Extract, Outcome, completed_outcome, failed_outcome};

/// The run that all batches of extractions belong to.
const RUN: &str = "memory: extractions";

/// Batches that are asked for at once.
const PAGE_BATCHES: u32 = 1_000;

/// Batches whose outcomes are kept in memory.
const BATCHES_KEPT_MAX: usize = 4;

/// The extractions that there are.
pub struct Extractions {
    store: Arc<dyn Store>,
    run: gristmill_store::Run,
    /// By a chunk's key: the batch that its outcome is in. Later outcomes replace earlier ones.
    batches: HashMap<String, BatchId>,
    /// By the key of a chunk that was submitted in this run and has no outcome yet: its batch.
    submitted: HashMap<String, BatchId>,
    /// The latest batches that were looked into.
    kept: VecDeque<(BatchId, HashMap<String, Outcome>)>,
}

impl Extractions {
    /// Finds what earlier runs left. Jobs that they submitted and nobody has finished are cancelled: whoever still
    /// wants them submits them again.
    pub async fn open(engine: Engine) -> Result<Extractions, StoreError> {
        let store = engine.store().clone();
        let run = match store.run(RUN).await? {
            Some(run) => run,
            None => {
                let new = NewRun {
                    name: RUN.to_owned(),
                    description: "{}".to_owned(),
                };
                match store.create_run(new).await {
                    // Another ingestion was faster.
                    Err(StoreError::RunExists(_)) => store.run(RUN).await?.ok_or_else(|| {
                        StoreError::InvalidInput(format!("the run `{RUN}` was deleted while it was begun"))
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
        store.cancel(Selection::Filter(unfinished)).await?;
        let mut extractions = Extractions {
            store,
            run,
            batches: HashMap::new(),
            submitted: HashMap::new(),
            kept: VecDeque::new(),
        };
        extractions.find_all().await?;
        Ok(extractions)
    }

    async fn find_all(&mut self) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let page = self.store.run_batches(self.run.id, after, PAGE_BATCHES).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.batch);
            for row in page {
                for key in self.load(row.batch).await?.keys() {
                    self.batches.insert(key.clone(), row.batch);
                }
            }
        }
    }

    /// The outcomes of one batch, by the chunks' keys.
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
        Ok(completed
            .chain(failed)
            .map(|outcome| (outcome.key.clone(), outcome))
            .collect())
    }

    /// The outcome of a chunk that was submitted in this run is on disk.
    pub fn arrived(&mut self, key: &str) {
        if let Some((key, batch)) = self.submitted.remove_entry(key) {
            self.batches.insert(key, batch);
        }
    }

    /// Whether the outcome of a chunk is known.
    pub fn contains(&self, key: &str) -> bool {
        self.batches.contains_key(key)
    }

    /// The outcome of a chunk, if an earlier run had one.
    pub async fn get(&mut self, key: &str) -> Result<Option<OutcomeResult>, StoreError> {
        let Some(&batch) = self.batches.get(key) else {
            return Ok(None);
        };
        // One that was looked into may have had more outcomes since.
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
        Ok(found.and_then(|(_, outcomes)| Some(outcomes.get(key)?.result.clone())))
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
        let ids = ids
            .into_iter()
            .zip(counts)
            .flat_map(|(id, count)| std::iter::repeat_n(id, count));
        for (chunk, id) in chunks.iter().zip(ids) {
            self.submitted.insert(chunk.key.clone(), id);
        }
        Ok(())
    }
}

/// What was found, or the error in words.
pub type OutcomeResult = Result<Arc<crate::extract::Extracted>, Arc<str>>;

fn batch(payloads: PackedBuilder) -> NewBatch {
    NewBatch {
        queue: Extract::QUEUE.to_owned(),
        options: Extract::options(),
        ..NewBatch::new(Extract::NAME, payloads.finish())
    }
}
