//! Ingestion: from sources to committed knowledge.
//!
//! ```text
//! sources ─▶ chunks ─▶ what is known already ─▶ `extract` jobs ─▶ outcomes, on disk as they come
//!                                                                    │
//!                      progress ◀── in-order group commit, one writer ◀──┘
//! ```
//!
//! An extraction is a job of the engine: its outcome is on disk before it is used, keyed by chunk, prompt and model,
//! and no later run asks for it again. Messages are committed in reading order; whatever has gathered while the last
//! commit ran goes into the next one.

pub mod assembly;
pub mod job;
pub mod outcomes;
pub mod plan;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use gristmill_engine::{Engine, EngineError};
use tokio::sync::mpsc;

use crate::error::MemoryError;
use crate::extract::{Extractor, Usage};
use crate::source::{Format, ReadOptions};
use crate::store::KnowledgeStore;
use assembly::{Assembly, Ready};
use job::Outcome;
use outcomes::Extractions;
use plan::{Plan, Planned};

/// Chunks that are submitted and not committed yet at most: bounds what is held in memory, and how far the model is
/// ahead of the commits.
const CHUNKS_AHEAD_MAX: usize = 8_000;

/// Chunks of one submitted batch at most.
const BATCH_CHUNKS_MAX: usize = 1_000;

/// Messages of one commit at most.
const COMMIT_MESSAGES_MAX: usize = 2_000;

/// What happens when the extraction of a chunk fails for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// The failure is recorded, its message is kept, and the rest goes on.
    #[default]
    Skip,
    /// What stands before it is committed, and the ingestion ends with its error.
    Stop,
}

/// A source to be ingested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInput {
    /// Its name, by which it is known in the knowledge base: its path, as it was given.
    pub name: String,
    /// How it is written.
    pub format: Format,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// How sources are ingested.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// How they are read.
    pub read: ReadOptions,
    /// What happens when an extraction fails.
    pub on_failure: OnFailure,
    /// Whether to extract again what failed in an earlier run.
    pub retry_failed: bool,
}

impl Default for IngestOptions {
    fn default() -> Self {
        IngestOptions {
            read: ReadOptions::default(),
            on_failure: OnFailure::Skip,
            retry_failed: false,
        }
    }
}

/// What an ingestion tells while it runs. All of it is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IngestEvent {
    /// A source is unchanged and was skipped.
    Skipped {
        /// Its name.
        source: String,
    },
    /// It is known how many chunks a source has, and how many of them need no call.
    Planned {
        /// Its name.
        source: String,
        /// Chunks.
        chunks: usize,
        /// Chunks whose extraction is known.
        known: usize,
    },
    /// A commit of one or more messages.
    Committed(Progress),
}

/// How far an ingestion is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Messages that are committed.
    pub messages: u64,
    /// Chunks of those.
    pub chunks: u64,
    /// Refs of those.
    pub refs: u64,
    /// Chunks whose extraction failed.
    pub failures: u64,
    /// Chunks of all sources.
    pub chunks_total: u64,
    /// What this run's model calls cost.
    pub usage: Usage,
}

/// What an ingestion did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ingested {
    /// How far it came.
    pub progress: Progress,
    /// Sources that are unchanged.
    pub sources_skipped: u64,
    /// Sources that were replaced.
    pub sources_replaced: u64,
}

/// Why an ingestion ended early. What was committed before is kept.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// A source or the knowledge base.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The engine or its store.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An extraction failed, and failures stop the ingestion.
    #[error("{source_name}, message {position}: {error}")]
    Failed {
        /// The source.
        source_name: String,
        /// The message's position in it.
        position: u32,
        /// What went wrong.
        error: String,
    },
    /// The worker that runs the extractions ended.
    #[error("the worker that runs the extractions ended: {0}")]
    Worker(String),
}

impl From<gristmill_store::StoreError> for IngestError {
    fn from(error: gristmill_store::StoreError) -> Self {
        IngestError::Engine(error.into())
    }
}

/// Ingests sources into a knowledge base, with extractions as jobs of an engine.
#[derive(Debug, Clone)]
pub struct Ingestion {
    knowledge: Arc<dyn KnowledgeStore>,
    engine: Engine,
    extractor: Arc<dyn Extractor>,
    concurrency: usize,
    options: IngestOptions,
}

impl Ingestion {
    /// An ingestion that runs `concurrency` extractions at once; an extractor with a limiter of its own gets twice as
    /// many, so that it never waits for a job.
    pub fn new(
        knowledge: Arc<dyn KnowledgeStore>,
        engine: Engine,
        extractor: Arc<dyn Extractor>,
        concurrency: usize,
        options: IngestOptions,
    ) -> Ingestion {
        Ingestion {
            knowledge,
            engine,
            extractor,
            concurrency: concurrency.max(1),
            options,
        }
    }

    /// Ingests sources in order. `on_event` is called for what is on disk, from this task.
    ///
    /// # Errors
    ///
    /// [`IngestError`]; what was committed before is kept, and the same call goes on from there.
    pub async fn run(
        &self,
        inputs: Vec<NewInput>,
        mut on_event: impl FnMut(&IngestEvent) + Send,
    ) -> Result<Ingested, IngestError> {
        // Before there is a worker: it would begin with the jobs that this cancels.
        let extractions = Extractions::open(self.engine.clone()).await?;
        let (outcome_sender, outcomes) = mpsc::unbounded_channel();
        let worker = job::start_worker(
            &self.engine,
            self.extractor.clone(),
            self.concurrency,
            outcome_sender,
        );
        let stopper = worker.stopper();
        let mut run = Run {
            ingestion: self,
            extractions,
            outcomes,
            waiting: HashMap::new(),
            assembly: Assembly::new(),
            unsubmitted: Vec::new(),
            committing: None,
            ingested: Ingested::default(),
        };
        let ended = run.ingest(inputs, &mut on_event).await;
        stopper.stop();
        let worked = worker.join().await;
        match (ended, worked) {
            (Ok(()), Err(error)) => Err(IngestError::Worker(error.to_string())),
            (Err(error), _) => Err(error),
            (Ok(()), Ok(_)) => Ok(run.ingested),
        }
    }
}

/// An ingestion under way.
struct Run<'a> {
    ingestion: &'a Ingestion,
    extractions: Extractions,
    outcomes: mpsc::UnboundedReceiver<Outcome>,
    /// By a chunk's key: the slots of the assembly that wait for its extraction.
    waiting: HashMap<String, Vec<assembly::Slot>>,
    assembly: Assembly,
    unsubmitted: Vec<crate::extract::ChunkText>,
    committing: Option<tokio::task::JoinHandle<Result<Committed, MemoryError>>>,
    ingested: Ingested,
}

struct Committed {
    ready: Vec<Ready>,
    refs: u32,
}

impl Run<'_> {
    async fn ingest(
        &mut self,
        inputs: Vec<NewInput>,
        on_event: &mut (impl FnMut(&IngestEvent) + Send),
    ) -> Result<(), IngestError> {
        let mut inputs: VecDeque<NewInput> = inputs.into();
        let mut current: Option<Plan> = None;
        if self.ingestion.options.retry_failed {
            let plan = plan::retry_failed(&*self.ingestion.knowledge, &*self.ingestion.extractor).await?;
            for learning in plan {
                let slot = self
                    .assembly
                    .learn(learning.source, learning.position, learning.chunk);
                self.ingested.progress.chunks_total += 1;
                self.want(learning.text, slot, true).await?;
            }
        }
        loop {
            // Plan ahead while there is room; the model must not wait for the reader.
            while self.assembly.chunks() < CHUNKS_AHEAD_MAX {
                if current.is_none() {
                    let Some(input) = inputs.pop_front() else { break };
                    current = self.plan(input, on_event).await?;
                    continue;
                }
                if let Some(plan) = &mut current
                    && let Some(planned) = plan.take_next()
                {
                    self.add(planned).await?;
                } else if let Some(plan) = current.take() {
                    self.assembly.end_source(plan.source(), plan.aliases);
                }
            }
            self.submit().await?;
            self.commit()?;
            if self.committing.is_none() && self.assembly.is_empty() && current.is_none() && inputs.is_empty()
            {
                return Ok(());
            }
            tokio::select! {
                biased;
                committed = committed(&mut self.committing), if self.committing.is_some() => {
                    self.committing = None;
                    self.count(committed?, on_event)?;
                }
                outcome = self.outcomes.recv() => {
                    let Some(outcome) = outcome else {
                        return Err(IngestError::Worker("it was stopped".to_owned()));
                    };
                    self.take(outcome);
                    while let Ok(outcome) = self.outcomes.try_recv() {
                        self.take(outcome);
                    }
                }
            }
        }
    }

    async fn plan(
        &mut self,
        input: NewInput,
        on_event: &mut (impl FnMut(&IngestEvent) + Send),
    ) -> Result<Option<Plan>, IngestError> {
        let ingestion = self.ingestion;
        let name = input.name.clone();
        let plan = Plan::new(
            &*ingestion.knowledge,
            input,
            &ingestion.options.read,
            &*ingestion.extractor,
            ingestion.engine.clock().now(),
        )
        .await?;
        let Some(plan) = plan else {
            self.ingested.sources_skipped += 1;
            on_event(&IngestEvent::Skipped { source: name });
            return Ok(None);
        };
        self.ingested.sources_replaced += u64::from(plan.is_replacement());
        let (mut chunks, mut known) = (0, 0);
        for key in plan.keys() {
            chunks += 1;
            known += usize::from(self.extractions.contains(key));
        }
        self.ingested.progress.chunks_total += chunks as u64;
        on_event(&IngestEvent::Planned {
            source: name,
            chunks,
            known,
        });
        self.assembly.begin_source(plan.beginning());
        Ok(Some(plan))
    }

    async fn add(&mut self, planned: Planned) -> Result<(), IngestError> {
        let slots = self
            .assembly
            .add(planned.message, planned.known, planned.chunks.len());
        for (text, slot) in planned.chunks.into_iter().zip(slots) {
            self.want(text, slot, false).await?;
        }
        Ok(())
    }

    /// Wants the extraction of a chunk for a slot: from an earlier run, from a job under way, or from a new job.
    async fn want(
        &mut self,
        chunk: crate::extract::ChunkText,
        slot: assembly::Slot,
        again: bool,
    ) -> Result<(), IngestError> {
        if let Some(waiting) = self.waiting.get_mut(&chunk.key) {
            waiting.push(slot);
            return Ok(());
        }
        if let Some(outcome) = self.extractions.get(&chunk.key).await?
            && !(again && outcome.is_err())
        {
            self.assembly.fill(slot, outcome);
            return Ok(());
        }
        self.waiting.insert(chunk.key.clone(), vec![slot]);
        self.unsubmitted.push(chunk);
        Ok(())
    }

    async fn submit(&mut self) -> Result<(), IngestError> {
        for chunks in std::mem::take(&mut self.unsubmitted).chunks(BATCH_CHUNKS_MAX) {
            self.extractions.submit(chunks).await?;
        }
        Ok(())
    }

    fn take(&mut self, outcome: Outcome) {
        let Outcome { key, result } = outcome;
        if let Ok(extracted) = &result {
            self.ingested.progress.usage.add(&extracted.usage);
        }
        self.extractions.arrived(&key);
        for slot in self.waiting.remove(&key).unwrap_or_default() {
            self.assembly.fill(slot, result.clone());
        }
    }

    /// Begins the next commit, of whatever is ready, when the last one is done.
    fn commit(&mut self) -> Result<(), IngestError> {
        if self.committing.is_some() {
            return Ok(());
        }
        let mut ready = self.assembly.take_ready(COMMIT_MESSAGES_MAX);
        if self.ingestion.options.on_failure == OnFailure::Stop
            && let Some(failed) = ready.iter().position(|ready| ready.failure().is_some())
        {
            ready.truncate(failed + 1);
            if failed == 0 {
                let (source_name, position, error) = ready[0].failure().unwrap_or_default();
                return Err(IngestError::Failed {
                    source_name,
                    position,
                    error,
                });
            }
            let last = ready.remove(failed);
            self.assembly.put_back(last);
        }
        if ready.is_empty() {
            return Ok(());
        }
        let knowledge = self.ingestion.knowledge.clone();
        let now = self.ingestion.engine.clock().now();
        self.committing = Some(tokio::spawn(async move {
            let changes = assembly::changes(&ready, now);
            let applied = knowledge.apply(changes).await?;
            Ok(Committed {
                ready,
                refs: applied.refs,
            })
        }));
        Ok(())
    }

    fn count(
        &mut self,
        committed: Committed,
        on_event: &mut (impl FnMut(&IngestEvent) + Send),
    ) -> Result<(), IngestError> {
        let progress = &mut self.ingested.progress;
        progress.refs += u64::from(committed.refs);
        for ready in &committed.ready {
            let (messages, chunks, failures) = ready.count();
            progress.messages += messages;
            progress.chunks += chunks;
            progress.failures += failures;
        }
        on_event(&IngestEvent::Committed(*progress));
        Ok(())
    }
}

/// Waits for a commit; for ever, where there is none.
async fn committed(
    committing: &mut Option<tokio::task::JoinHandle<Result<Committed, MemoryError>>>,
) -> Result<Committed, IngestError> {
    let Some(task) = committing else {
        return std::future::pending().await;
    };
    match task.await {
        Ok(committed) => Ok(committed?),
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        Err(ended) => Err(IngestError::Worker(ended.to_string())),
    }
}
