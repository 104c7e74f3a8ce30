//! Ingestion: turns sources into committed knowledge.
//!
//! ```text
//! sources ─▶ chunks ─▶ known extractions ─▶ `extract` jobs ─▶ outcomes, on disk as they arrive
//!                                                                    │
//!                      progress ◀── in-order group commit, one writer ◀──┘
//! ```
//!
//! An extraction is a job of the engine. Its outcome is on disk before it is used, under a key of chunk, prompt and
//! model, and no later run asks for it again. The ingestion's own worker makes the calls. Workers of the same store or
//! behind its server may make them as well, or alone ([`job::ExtractHandler`]), and their outcomes are read from the
//! store. Messages are committed in reading order. All messages that became ready during a commit go into the next one.

pub mod assembly;
pub mod embedding;
pub mod erasure;
pub mod input;
pub mod job;
mod known_sources;
pub mod outcomes;
pub mod plan;
mod reading;
mod source_reader;
mod stream;
mod unread;
pub mod vector_lists;

use std::collections::HashMap;
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
    OUTCOMES_POLL_MS, OUTCOMES_QUEUED_MAX, OUTCOMES_SILENT_MS, VECTORS_COMPARED_MAX,
};
use crate::service::Usage;
use crate::source::{Format, ReadOptions};
use crate::store::{Change, KnowledgeStore};
use assembly::{Assembly, Ready};
use embedding::Embedding;
pub use input::{Followed, Input, IntoInput, NewInput};
use job::Outcome;
use known_sources::KnownSources;
use outcomes::Extractions;
use plan::{Plan, Planned};
use reading::arrived;
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

/// Options of an ingestion.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// Options of reading the sources.
    pub read: ReadOptions,
    /// The action when an extraction fails.
    pub on_failure: OnFailure,
    /// Whether to retry failed extractions of earlier runs.
    pub retry_failed: bool,
    /// Whether to replace unchanged sources too. Their extractions are not paid for again.
    pub replace: bool,
    /// Whether to delete the vectors of another embedder, and make new ones. Without it, another embedder is an error.
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

/// An event of an ingestion. Every event describes committed data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IngestEvent {
    /// A source is unchanged and was skipped.
    Skipped {
        /// The name of the source.
        source: String,
    },
    /// The file of a source has moved. The source has its name now.
    Moved {
        /// The earlier name.
        from: String,
        /// The name of the source.
        source: String,
    },
    /// A source has been surveyed.
    Planned {
        /// The name of the source.
        source: String,
        /// Number of chunks.
        chunks: usize,
        /// Number of chunks whose extraction is known, so that they need no call.
        known: usize,
    },
    /// A source cannot be read. The failure is recorded, and the other sources are ingested.
    Failed {
        /// The name of the source.
        source: String,
        /// The error.
        error: String,
    },
    /// A source has messages that cannot be read. The failures are recorded, and all its other messages are stored.
    Unread {
        /// The name of the source.
        source: String,
        /// Number of the messages.
        messages: u64,
        /// The errors, with source and place: as many as are recorded.
        errors: Vec<String>,
    },
    /// A source has no text, so that nothing of it can be found.
    WithoutText {
        /// The name of the source.
        source: String,
        /// The format as which it was read.
        format: Format,
    },
    /// One or more messages were committed. The event has the progress after the commit.
    Committed(Progress),
}

/// The progress of an ingestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Committed messages.
    pub messages: u64,
    /// Chunks of the committed messages.
    pub chunks: u64,
    /// Refs of the committed messages.
    pub refs: u64,
    /// Chunks whose extraction failed.
    pub failures: u64,
    /// Messages that cannot be read, of sources whose other messages are committed.
    pub unread: u64,
    /// Chunks of all sources.
    pub chunks_total: u64,
    /// The cost of this run's model calls.
    pub usage: Usage,
}

impl Progress {
    /// The progress since an earlier moment of the same ingestion.
    pub fn since(&self, earlier: &Progress) -> Progress {
        assert!(
            self.messages >= earlier.messages && self.chunks >= earlier.chunks && self.refs >= earlier.refs,
            "progress only grows"
        );
        Progress {
            messages: self.messages - earlier.messages,
            chunks: self.chunks - earlier.chunks,
            refs: self.refs - earlier.refs,
            failures: self.failures - earlier.failures,
            unread: self.unread - earlier.unread,
            chunks_total: self.chunks_total - earlier.chunks_total,
            usage: self.usage.since(&earlier.usage),
        }
    }
}

/// The result of an ingestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ingested {
    /// The progress at the end.
    pub progress: Progress,
    /// Sources that are unchanged.
    pub sources_skipped: u64,
    /// Sources that were replaced.
    pub sources_replaced: u64,
    /// Sources that could not be read.
    pub sources_failed: u64,
    /// Vectors that were made and stored.
    pub vectors: u64,
}

/// The reason why an ingestion ended early. Its commits are kept.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// A source or the knowledge base failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The engine or its store failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An extraction failed, and failures stop the ingestion.
    #[error("{source_name}, message {position}: {error}")]
    Failed {
        /// The name of the source.
        source_name: String,
        /// The position of the message in the source.
        position: u32,
        /// The error.
        error: String,
    },
    /// Vectors cannot be made. The messages and their knowledge are stored, and the next ingestion adds the vectors.
    #[error("{0}; messages and knowledge are stored; run the same command again to add the vectors")]
    Embed(#[from] EmbedError),
    /// The model service refuses all requests. Commits are kept, and the next ingestion asks again.
    #[error("{0}; commits are not lost; run the same command again to resume")]
    Denied(String),
    /// The ingestion was [stopped](IngestStopper::stop).
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
    /// Number of calls that its own worker makes at the same time; 0 if other workers make all calls.
    concurrency: usize,
    options: IngestOptions,
    /// The name that distinguishes it among ingestions that share a store of jobs.
    name: Option<String>,
    stop: Arc<watch::Sender<bool>>,
}

/// Stops an ingestion from another task.
#[derive(Debug, Clone)]
pub struct IngestStopper(Arc<watch::Sender<bool>>);

impl IngestStopper {
    /// Lets no new call begin, and ends the ingestion with [`IngestError::Stopped`] once all arrived outcomes are on disk.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Ingestion {
    /// Makes an ingestion that runs `concurrency` extractions at a time. An extractor with a limiter of its own gets
    /// twice as many, so that it never waits for a job.
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

    /// Sets a name that distinguishes the ingestion from ingestions for other knowledge bases in the same store of
    /// jobs. One ingestion with a name runs at a time: it cancels the unfinished jobs of an earlier one with this name.
    pub fn with_name(self, name: impl Into<String>) -> Ingestion {
        Ingestion {
            name: Some(name.into()),
            ..self
        }
    }

    /// Adds vectors to all terms and chunks, including those of earlier ingestions.
    pub fn with_embedder(self, embedder: Option<Arc<dyn Embedder>>) -> Ingestion {
        Ingestion { embedder, ..self }
    }

    /// Leaves the calls to workers of the same store, or to agents of its server, that run
    /// [`ExtractHandler`](job::ExtractHandler)s. Waits until there are any.
    pub fn with_calls_elsewhere(self) -> Ingestion {
        Ingestion {
            concurrency: 0,
            ..self
        }
    }

    /// Makes a stopper for this ingestion.
    pub fn stopper(&self) -> IngestStopper {
        IngestStopper(self.stop.clone())
    }

    /// Ingests sources in order. Takes each source when there is room for it. Calls `on_event` for committed data, from
    /// this task.
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
        // This precedes the worker, which would otherwise begin with the jobs that this cancels.
        let extractions = Extractions::open(self.engine.clone(), self.name.as_deref()).await?;
        let (outcome_sender, outcomes) = mpsc::channel(OUTCOMES_QUEUED_MAX);
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
            known: KnownSources::default(),
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
            // A commit that has begun is finished and reported, so that the totals name everything on disk.
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
            // If the worker failed, its error explains why no more outcomes arrive.
            (Ok(()) | Err(IngestError::Worker(_)), Err(error)) => Err(IngestError::Worker(error.to_string())),
            (Err(error), _) => Err(error),
            (Ok(()), Ok(())) => Ok(run.ingested),
        }
    }
}

impl Ingestion {
    /// Refuses an embedder other than the one that made the vectors, or deletes the vectors if the options allow it.
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
    /// The outcomes that the ingestion's own worker commits. When the channel is full, outcomes are read from the store
    /// instead.
    outcomes: mpsc::Receiver<Outcome>,
    /// The time at which the own worker's last outcome arrived.
    last_outcome_at: Option<Instant>,
    /// The slots of the assembly that wait for an extraction, by the chunk's key.
    waiting: HashMap<String, Vec<assembly::Slot>>,
    assembly: Assembly,
    unsubmitted: Vec<crate::extract::ChunkText>,
    committing: Option<tokio::task::JoinHandle<Result<Committed, MemoryError>>>,
    known: KnownSources,
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
        // A source may move when it is planned. Chunks that are retried are committed under its old name before that.
        let mut is_retrying = self.ingestion.options.retry_failed;
        let failures = self.ingestion.knowledge.source_failures().await?;
        self.known = KnownSources::of(&*self.ingestion.knowledge, self.ingestion, &failures).await?;
        if is_retrying {
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
            // Plan ahead while there is room, so that the model never waits for the reader.
            while !is_retrying && self.has_room(current.as_ref()) && !(is_read && current.is_none()) {
                if current.is_none() {
                    match inputs.next() {
                        Some(input) => {
                            let file = input.file();
                            let (name, place) = self.known.name_of(input.name(), file.as_ref()).await;
                            if self
                                .is_seen(name.as_deref(), place.as_deref(), file, on_event)
                                .await
                            {
                                continue;
                            }
                            current = self
                                .take_source(name, place, input.into_input(), on_event)
                                .await?;
                        }
                        None => {
                            self.known.note_seen(&*self.ingestion.knowledge).await?;
                            is_read = true;
                        }
                    }
                    continue;
                }
                if !self.read_on(&mut current, on_event).await? {
                    break;
                }
            }
            self.submit().await?;
            self.commit()?;
            if self.committing.is_none() && self.assembly.is_empty() {
                if std::mem::take(&mut is_retrying) {
                    continue;
                }
                if current.is_none() && is_read {
                    return Ok(());
                }
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
                    self.take(outcome)?;
                    while let Ok(outcome) = self.outcomes.try_recv() {
                        self.take(outcome)?;
                    }
                }
                () = tokio::time::sleep(until_poll), if !self.waiting.is_empty() => {
                    for outcome in self.extractions.poll().await? {
                        self.take(outcome)?;
                    }
                }
                arrived = arrived(&mut current, &*ingestion.knowledge), if has_room => arrived?,
            }
        }
    }

    /// Whether more messages may be planned. A source that replaces another is committed at once, so it is read to its
    /// end in any case.
    fn has_room(&self, current: Option<&Plan>) -> bool {
        let is_whole = current.is_some_and(Plan::is_replacement);
        is_whole || (self.assembly.chunks() < AHEAD_CHUNKS_MAX && self.assembly.bytes() < AHEAD_BYTES_MAX)
    }

    /// The time until the store is read for outcomes. The own worker sends its outcomes by itself, so the store is read
    /// only when that worker is silent, because other workers have taken the jobs.
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
        assert_eq!(slots.len(), planned.chunks.len(), "each chunk has a slot");
        for (text, slot) in planned.chunks.into_iter().zip(slots) {
            self.want(text, slot, false).await?;
        }
        Ok(())
    }

    /// Requests the extraction of a chunk for a slot: from an earlier run, from a job under way, or from a new job.
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

    fn take(&mut self, outcome: Outcome) -> Result<(), IngestError> {
        if let (true, Err(reason)) = (outcome.is_denied, &outcome.result) {
            return Err(IngestError::Denied(reason.to_string()));
        }
        self.extractions.arrived(&outcome.key);
        // The own worker may send an outcome that was already read from the store.
        let Some(slots) = self.waiting.remove(&outcome.key) else {
            return Ok(());
        };
        assert!(!slots.is_empty(), "a chunk is extracted for at least one slot");
        self.ingested.progress.usage.add(&outcome.usage);
        for slot in slots {
            self.assembly.fill(slot, &outcome);
        }
        Ok(())
    }

    /// Begins the next commit with all ready items, unless a commit is under way.
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
        assert!(
            ready.len() <= COMMIT_MESSAGES_MAX || ready.iter().any(Ready::begins_replacement),
            "only a replaced source may exceed the limit of a commit"
        );
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
        let told = committed.ready.iter().filter_map(Ready::unread);
        let told: Vec<IngestEvent> = told
            .map(|(source, unread)| {
                progress.unread += unread.messages;
                IngestEvent::Unread {
                    source: source.to_owned(),
                    messages: unread.messages,
                    errors: unread.errors(),
                }
            })
            .collect();
        told.iter().for_each(&mut *on_event);
        on_event(&IngestEvent::Committed(*progress));
        self.embedding.iter().for_each(Embedding::committed);
        Ok(())
    }
}

/// Waits for the commit under way; never returns if there is none.
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
