//! The API of a knowledge base: open, ingest, recall, ask.

use std::sync::Arc;

use gristmill_engine::Engine;

use crate::ask::{Answer, AskOptions, ask};
use crate::embed::Embedder;
use crate::error::MemoryError;
use crate::extract::Extractor;
use crate::pipeline::{IngestError, IngestEvent, IngestOptions, Ingested, Ingestion, IntoInput};
use crate::place::Place;
use crate::recall::{RecallOptions, Recalled, Relations, recall_query};
use crate::service::Service;
use crate::store::KnowledgeStore;

/// A knowledge base with its embedder and its store of jobs. Clones share them.
///
/// ```
/// use std::sync::Arc;
///
/// use gristmill_memory::extract::LocalExtractor;
/// use gristmill_memory::pipeline::{IngestEvent, IngestOptions, NewInput};
/// use gristmill_memory::{Memory, RecallOptions};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("kb.db").display().to_string();
/// let memory = Memory::open(&path).await?;
///
/// let notes = NewInput::from_bytes("notes.md", b"# Bees\n\nAda King keeps bees in London.\n".to_vec());
/// let extractor = Arc::new(LocalExtractor);
/// let ingested = memory
///     .ingest(vec![notes], extractor, 4, IngestOptions::default(), |event| {
///         if let IngestEvent::Committed(progress) = event {
///             println!("{} messages are on disk", progress.messages);
///         }
///     })
///     .await?;
/// assert_eq!(ingested.progress.messages, 1);
///
/// let recalled = memory.recall("Who keeps bees?", &RecallOptions::default()).await?;
/// assert!(recalled.messages[0].message.message.text().contains("Ada King"));
/// # Ok(())
/// # }
/// ```
///
/// With a model, [`Memory::ask`] answers:
///
/// ```no_run
/// # async fn example(memory: gristmill_memory::Memory) -> Result<(), Box<dyn std::error::Error>> {
/// use gristmill_memory::ask::AskOptions;
/// use gristmill_memory::extract::{Limiter, LimiterSettings};
/// use gristmill_memory::service::{OpenAiSettings, Service};
///
/// let settings = OpenAiSettings::from_environment()?.ok_or("set OPENAI_API_KEY")?;
/// let service = Service::new(settings, Limiter::new(LimiterSettings::default()))?;
/// let answer = memory.ask(&service, "Who keeps bees?", &AskOptions::default()).await?;
/// println!("{} ({} sources)", answer.text, answer.citations.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Memory {
    knowledge: Arc<dyn KnowledgeStore>,
    embedder: Option<Arc<dyn Embedder>>,
    jobs: Place,
}

impl Memory {
    /// Opens the knowledge base at a path or address. Creates a missing one.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] if the place holds something else, or cannot be opened.
    pub async fn open(place: &str) -> Result<Memory, MemoryError> {
        Memory::open_place(&Place::of(place), true).await
    }

    /// Opens the existing knowledge base at a path or address.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Missing`], and the errors of [`Memory::open`].
    pub async fn open_existing(place: &str) -> Result<Memory, MemoryError> {
        Memory::open_place(&Place::of(place), false).await
    }

    /// Opens the knowledge base at a place. Creates a missing one if `create` is set.
    ///
    /// # Errors
    ///
    /// The errors of [`Memory::open_existing`].
    pub async fn open_place(place: &Place, create: bool) -> Result<Memory, MemoryError> {
        Ok(Memory {
            knowledge: place.open(create).await?,
            embedder: None,
            jobs: place.jobs(),
        })
    }

    /// Adds vectors to all ingested texts, and recalls by meaning too.
    pub fn with_embedder(self, embedder: Option<Arc<dyn Embedder>>) -> Memory {
        Memory { embedder, ..self }
    }

    /// Keeps the extraction jobs in another store than [`Place::jobs`].
    pub fn with_jobs(self, jobs: Place) -> Memory {
        Memory { jobs, ..self }
    }

    /// The underlying store.
    pub fn knowledge(&self) -> &Arc<dyn KnowledgeStore> {
        &self.knowledge
    }

    /// Ingests sources, with up to `concurrency` extractions at a time. Calls `on_event` for committed data. The same
    /// call resumes after an earlier one that ended early.
    ///
    /// # Errors
    ///
    /// [`IngestError`]; commits are kept.
    pub async fn ingest<I>(
        &self,
        inputs: I,
        extractor: Arc<dyn Extractor>,
        concurrency: usize,
        options: IngestOptions,
        on_event: impl FnMut(&IngestEvent) + Send,
    ) -> Result<Ingested, IngestError>
    where
        I: IntoIterator<Item: IntoInput, IntoIter: Send>,
    {
        let engine = self.jobs.open_engine().await?;
        let ingestion = self.ingestion(engine.clone(), extractor, concurrency, options);
        let ingested = ingestion.run(inputs, on_event).await;
        engine.close().await?;
        ingested
    }

    /// Makes an ingestion that keeps its jobs in an open engine.
    pub fn ingestion(
        &self,
        engine: Engine,
        extractor: Arc<dyn Extractor>,
        concurrency: usize,
        options: IngestOptions,
    ) -> Ingestion {
        Ingestion::new(self.knowledge.clone(), engine, extractor, concurrency, options)
            .with_embedder(self.embedder.clone())
    }

    /// Recalls knowledge and messages for a question. Rules parse the question. No model is called, except for the
    /// vectors of an embedder.
    ///
    /// # Errors
    ///
    /// Errors of the store or the embedder.
    pub async fn recall(&self, question: &str, options: &RecallOptions) -> Result<Recalled, MemoryError> {
        recall_query(&*self.knowledge, question, None, &self.relations(), options).await
    }

    /// Answers a question with the model of `service`, from recalled messages.
    ///
    /// # Errors
    ///
    /// The errors of [`ask`].
    pub async fn ask(
        &self,
        service: &Service,
        question: &str,
        options: &AskOptions,
    ) -> Result<Answer, MemoryError> {
        ask(&*self.knowledge, service, question, &self.relations(), options).await
    }

    /// The source of related terms.
    pub fn relations(&self) -> Relations<'_> {
        match &self.embedder {
            Some(embedder) => Relations::Embedded(&**embedder),
            None => Relations::Stored,
        }
    }
}
