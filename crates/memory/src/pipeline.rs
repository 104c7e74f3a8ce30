//! Ingestion: from sources to committed knowledge.
//!
//! ```text
//! sources ─▶ chunks ─▶ what is known already ─▶ `extract` jobs ─▶ outcomes, on disk as they come
//!                                                                    │
//!                      progress ◀── in-order group commit, one writer ◀──┘
//! ```
//!
//! An extraction is a job of the engine: its outcome is on disk before it is used, keyed by chunk, prompt and model,
//! and no later run asks for it again. The ingestion's own worker does the calls; others of the same store, or behind
//! its server, may do them as well or alone ([`job::ExtractHandler`]), and what they report is found in the store.
//! Messages are committed in reading order; whatever has gathered while the last
//! commit ran goes into the next one.

pub mod assembly;
pub mod embedding;
pub mod erasure;
pub mod input;
pub mod job;
pub mod outcomes;
pub mod plan;
mod reading;
mod source_reader;
mod stream;
pub mod vector_lists;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use gristmill_engine::{Engine, EngineError};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::embed::{EmbedError, Embedder};
use crate::error::MemoryError;
use crate::extract::Extractor;
use crate::limits::{
    AHEAD_BYTES_MAX, AHEAD_CHUNKS_MAX, BATCH_CHUNKS_MAX, COMMIT_BYTES_MAX, COMMIT_MESSAGES_MAX,
    OUTCOMES_POLL_MS, OUTCOMES_SILENT_MS, VECTORS_COMPARED_MAX,
};
use crate::service::Usage;
use crate::source::ReadOptions;
use crate::store::{Change, KnowledgeStore};
use assembly::{Assembly, Ready};
use embedding::Embedding;
pub use input::{Followed, Input, IntoInput, NewInput};
use job::Outcome;
use outcomes::Extractions;
use plan::{Plan, Planned};
use vector_lists::list_vectors;

/// The action when the extraction of a chunk fails permanently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// Record the failure, keep the message, and continue.
    #[default]
    Skip,
    /// Commit everything before it, and end the ingestion with its error.
    Stop,
}

/// How sources are ingested.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// How they are read.
    pub read: ReadOptions,
    /// The action when an extraction fails.
    pub on_failure: OnFailure,
    /// Whether to retry failed extractions of earlier runs.
    pub retry_failed: bool,
    /// Whether to replace sources that are there and unchanged, too. Their extractions are not paid for again.
    pub replace: bool,
    /// Whether to delete the vectors of another embedder, and make new ones. Without it, another embedder is refused.
    pub replace_vectors: bool,
}

impl Default for IngestOptions {
    fn default() -> Self {
        IngestOptions {
            read: ReadOptions::default(),
            on_failure: OnFailure::Skip,
            retry_failed: false,
            replace: false,
            replace_vectors: false,
        }
    }
}

/// The events of an ingestion. All of them are about committed data.
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
    /// A source cannot be read. That is recorded, and the others are ingested.
    Failed {
        /// Its name.
        source: String,
        /// The error.
        error: String,
    },
    /// A commit of one or more messages, and how far the ingestion is with it.
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
    /// The cost of this run's model calls.
    pub usage: Usage,
}

impl Progress {
    /// The progress since an earlier moment of the same ingestion.
    pub fn since(&self, earlier: &Progress) -> Progress {
        Progress {
            messages: self.messages - earlier.messages,
            chunks: self.chunks - earlier.chunks,
            refs: self.refs - earlier.refs,
            failures: self.failures - earlier.failures,
            chunks_total: self.chunks_total - earlier.chunks_total,
            usage: self.usage.since(&earlier.usage),
        }
    }
}

/// The result of an ingestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ingested {
    /// How far it came.
    pub progress: Progress,
    /// Sources that are unchanged.
    pub sources_skipped: u64,
    /// Sources that were replaced.
    pub sources_replaced: u64,
    /// Sources that could not be read.
    pub sources_failed: u64,
    /// Vectors that were made.
    pub vectors: u64,
}

/// An ingestion ended early. Its commits are kept.
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
        /// The error.
        error: String,
    },
    /// Vectors cannot be made. The messages and what is known of them are stored; the next ingestion makes up for the
    /// vectors.
    #[error("{0}; messages and knowledge are stored; run the same command again to add the vectors")]
    Embed(#[from] EmbedError),
    /// It was [stopped](IngestStopper::stop).
    #[error("the ingestion was stopped; run the same command again to resume")]
    Stopped,
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
    embedder: Option<Arc<dyn Embedder>>,
    /// Of the calls of its own worker; 0 where others do all of them.
    concurrency: usize,
    options: IngestOptions,
    /// Among the ingestions that share a store of jobs.
    name: Option<String>,
    stop: Arc<watch::Sender<bool>>,
}

/// Stops an ingestion from elsewhere.
#[derive(Debug, Clone)]
pub struct IngestStopper(Arc<watch::Sender<bool>>);

impl IngestStopper {
    /// Lets no new call begin, and ends the ingestion with [`IngestError::Stopped`] once all outcomes that have come
    /// are on disk.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
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
            embedder: None,
            concurrency: concurrency.max(1),
            options,
            name: None,
            stop: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Tells it apart from the ingestions for other knowledge bases that keep their jobs in the same store. One of a
    /// name runs at a time: it cancels what an earlier one of that name left undone.
    pub fn with_name(self, name: impl Into<String>) -> Ingestion {
        Ingestion {
            name: Some(name.into()),
            ..self
        }
    }

    /// Gives vectors to all terms and chunks too, those of earlier ingestions among them.
    pub fn with_embedder(self, embedder: Option<Arc<dyn Embedder>>) -> Ingestion {
        Ingestion { embedder, ..self }
    }

    /// Leaves the calls to others: to workers of the same store, or agents of its server, that run
    /// [`ExtractHandler`](job::ExtractHandler)s. It waits until there are any.
    pub fn with_calls_elsewhere(self) -> Ingestion {
        Ingestion {
            concurrency: 0,
            ..self
        }
    }

    /// Its stopper.
    pub fn stopper(&self) -> IngestStopper {
        IngestStopper(self.stop.clone())
    }

    /// Ingests sources in order, each taken when there is room for it. `on_event` is called for what is on disk, from this task.
    ///
    /// # Errors
    ///
    /// [`IngestError`]; commits are kept, and the same call resumes.
    pub async fn run<I>(
        &self,
        inputs: I,
        mut on_event: impl FnMut(&IngestEvent) + Send,
    ) -> Result<Ingested, IngestError>
    where
        I: IntoIterator<Item: IntoInput, IntoIter: Send>,
    {
        self.check_embedder().await?;
        // Before there is a worker: it would begin with the jobs that this cancels.
        let extractions = Extractions::open(self.engine.clone(), self.name.as_deref()).await?;
        let (outcome_sender, outcomes) = mpsc::unbounded_channel();
        let worker = (self.concurrency > 0).then(|| {
            job::start_worker(
                &self.engine,
                self.extractor.clone(),
                self.concurrency,
                outcome_sender,
            )
        });
        let embedder = self.embedder.clone();
        let mut run = Run {
            ingestion: self,
            embedding: embedder.map(|embedder| Embedding::start(self.knowledge.clone(), embedder)),
            extractions,
            outcomes,
            last_outcome_at: None,
            waiting: HashMap::new(),
            assembly: Assembly::new(),
            unsubmitted: Vec::new(),
            committing: None,
            failed_before: HashSet::new(),
            ingested: Ingested::default(),
        };
        let mut stop = self.stop.subscribe();
        let mut ended = tokio::select! {
            ended = run.ingest(inputs.into_iter(), &mut on_event) => ended,
            _ = stop.wait_for(|stop| *stop) => Err(IngestError::Stopped),
        };
        let worked = match worker {
            Some(worker) => {
                worker.stopper().stop();
                worker.join().await.map(|_| ())
            }
            None => Ok(()),
        };
        if run.committing.is_some() {
            // What has begun is finished, and told: the totals name all that is on disk.
            let told = match committed(&mut run.committing).await {
                Ok(committed) => run.count(committed, &mut on_event),
                Err(error) => Err(error),
            };
            run.committing = None;
            if let (Err(IngestError::Stopped), Err(error)) = (&ended, told) {
                ended = Err(error);
            }
        }
        if let Some(embedding) = run.embedding.take() {
            match &ended {
                Ok(()) => {
                    let embedded = tokio::select! {
                        embedded = embedding.finish() => embedded,
                        _ = stop.wait_for(|stop| *stop) => Err(IngestError::Stopped),
                    };
                    match embedded {
                        Ok(vectors) => run.ingested.vectors = vectors,
                        Err(error) => ended = Err(error),
                    }
                    if ended.is_ok() {
                        let listed = list_vectors(&*self.knowledge, VECTORS_COMPARED_MAX).await;
                        ended = listed.map(|_| ()).map_err(IngestError::from);
                    }
                }
                Err(_) => embedding.abort(),
            }
        }
        match (ended, worked) {
            // Where the worker failed, that is why there are no more outcomes.
            (Ok(()) | Err(IngestError::Worker(_)), Err(error)) => Err(IngestError::Worker(error.to_string())),
            (Err(error), _) => Err(error),
            (Ok(()), Ok(())) => Ok(run.ingested),
        }
    }
}

impl Ingestion {
    /// Refuses an embedder other than the one that made the vectors, or deletes them where the options say so.
    async fn check_embedder(&self) -> Result<(), MemoryError> {
        let Some(embedder) = &self.embedder else {
            return Ok(());
        };
        let Some(stored) = self.knowledge.embedder().await? else {
            return Ok(());
        };
        match stored.check(&embedder.identity()) {
            Err(_) if self.options.replace_vectors => self
                .knowledge
                .apply(vec![Change::ForgetVectors])
                .await
                .map(|_| ()),
            checked => checked,
        }
    }
}

/// An ingestion under way.
struct Run<'a> {
    ingestion: &'a Ingestion,
    embedding: Option<Embedding>,
    extractions: Extractions,
    /// The commits of the ingestion's own worker.
    outcomes: mpsc::UnboundedReceiver<Outcome>,
    /// The time of the own worker's last outcome.
    last_outcome_at: Option<Instant>,
    /// By a chunk's key: the slots of the assembly that wait for its extraction.
    waiting: HashMap<String, Vec<assembly::Slot>>,
    assembly: Assembly,
    unsubmitted: Vec<crate::extract::ChunkText>,
    committing: Option<tokio::task::JoinHandle<Result<Committed, MemoryError>>>,
    /// The sources that earlier runs could not read.
    failed_before: HashSet<String>,
    ingested: Ingested,
}

struct Committed {
    ready: Vec<Ready>,
    refs: u32,
}

impl Run<'_> {
    async fn ingest(
        &mut self,
        mut inputs: impl Iterator<Item: IntoInput> + Send,
        on_event: &mut (impl FnMut(&IngestEvent) + Send),
    ) -> Result<(), IngestError> {
        let mut current: Option<Plan> = None;
        let mut is_read = false;
        let failures = self.ingestion.knowledge.source_failures().await?;
        self.failed_before = failures.into_iter().map(|failure| failure.source).collect();
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
            while self.has_room(current.as_ref()) && !(is_read && current.is_none()) {
                if current.is_none() {
                    match inputs.next() {
                        Some(input) => {
                            let name = input.name();
                            current = self.take_source(name, input.into_input(), on_event).await?;
                        }
                        None => is_read = true,
                    }
                    continue;
                }
                if !self.read_on(&mut current, on_event).await? {
                    break;
                }
            }
            self.submit().await?;
            self.commit()?;
            if self.committing.is_none() && self.assembly.is_empty() && current.is_none() && is_read {
                return Ok(());
            }
            let until_poll = self.until_poll();
            let has_room = self.has_room(current.as_ref());
            let ingestion = self.ingestion;
            tokio::select! {
                biased;
                committed = committed(&mut self.committing), if self.committing.is_some() => {
                    self.committing = None;
                    self.count(committed?, on_event)?;
                }
                outcome = self.outcomes.recv(), if self.ingestion.concurrency > 0 => {
                    let Some(outcome) = outcome else {
                        return Err(IngestError::Worker("it was stopped".to_owned()));
                    };
                    self.last_outcome_at = Some(Instant::now());
                    self.take(outcome);
                    while let Ok(outcome) = self.outcomes.try_recv() {
                        self.take(outcome);
                    }
                }
                () = tokio::time::sleep(until_poll), if !self.waiting.is_empty() => {
                    for outcome in self.extractions.poll().await? {
                        self.take(outcome);
                    }
                }
                arrived = arrived(&mut current, &*ingestion.knowledge), if has_room => arrived?,
            }
        }
    }

    /// Whether more may be planned. A source that replaces another is committed at once, and so must be read to its
    /// end whatever is ahead.
    fn has_room(&self, current: Option<&Plan>) -> bool {
        let is_whole = current.is_some_and(Plan::is_replacement);
        is_whole || (self.assembly.chunks() < AHEAD_CHUNKS_MAX && self.assembly.bytes() < AHEAD_BYTES_MAX)
    }

    /// How long to wait before the store is asked for outcomes. The own worker tells of its outcomes by itself, so
    /// that it is asked only when that one is silent, as it is when others have taken the jobs.
    fn until_poll(&self) -> Duration {
        let poll = Duration::from_millis(OUTCOMES_POLL_MS);
        match self.last_outcome_at {
            Some(at) => {
                let silent_at = at + Duration::from_millis(OUTCOMES_SILENT_MS);
                poll.max(silent_at.saturating_duration_since(Instant::now()))
            }
            None => poll,
        }
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
            && !(again && outcome.result.is_err())
        {
            self.assembly.fill(slot, &outcome);
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
        self.extractions.arrived(&outcome.key);
        // What was found in the store may be told by the own worker, too.
        let Some(slots) = self.waiting.remove(&outcome.key) else {
            return;
        };
        self.ingested.progress.usage.add(&outcome.usage);
        for slot in slots {
            self.assembly.fill(slot, &outcome);
        }
    }

    /// Begins the next commit, of whatever is ready, when the last one is done.
    fn commit(&mut self) -> Result<(), IngestError> {
        if self.committing.is_some() {
            return Ok(());
        }
        let mut ready = self.assembly.take_ready(COMMIT_MESSAGES_MAX, COMMIT_BYTES_MAX);
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
        self.embedding.iter().for_each(Embedding::committed);
        Ok(())
    }
}

/// Waits for the next message of a source that is still written; for ever, where there is none.
async fn arrived(current: &mut Option<Plan>, knowledge: &dyn KnowledgeStore) -> Result<(), MemoryError> {
    match current {
        Some(plan) => plan.arrived(knowledge).await,
        None => std::future::pending().await,
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
