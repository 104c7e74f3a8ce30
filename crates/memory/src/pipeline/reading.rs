//! Takes the sources of an ingestion one after another, and their messages.

use std::collections::BTreeSet;

use crate::error::MemoryError;
use crate::limits::UNREAD_RECORDED_MAX;
use crate::pipeline::input::{Followed, Input, NewInput};
use crate::pipeline::plan::{Next, Plan, Planning};
use crate::pipeline::stream::FOLLOWED_DIGEST;
use crate::pipeline::unread::UnreadMessages;
use crate::pipeline::{IngestError, IngestEvent, OnFailure, Run};
use crate::source::{Content, Format};
use crate::store::{Change, KnowledgeStore};

/// Unchanged files after which other tasks get their turn.
const SEEN_AT_ONCE: u64 = 256;

impl Run<'_> {
    /// Reads the next message of the current source. Returns whether more may be readable at once.
    pub(super) async fn read_on(
        &mut self,
        current: &mut Option<Plan>,
        on_event: &mut (impl FnMut(&IngestEvent) + Send),
    ) -> Result<bool, IngestError> {
        let Some(plan) = current else { return Ok(true) };
        match plan.take_next().await {
            Ok(Next::Message(planned)) => {
                if plan.is_followed() {
                    self.ingested.progress.chunks_total += planned.chunks.len() as u64;
                }
                self.add(planned).await?;
            }
            Ok(Next::Unread(error)) => {
                if self.ingestion.options.on_failure == OnFailure::Stop {
                    return Err(error.into());
                }
                let source = plan.source();
                self.record_unread(source, error, on_event).await?;
            }
            Ok(Next::Later) => return Ok(false),
            Ok(Next::End) => {
                self.assembly.end_source(plan.source(), plan.ending());
                *current = None;
            }
            // Earlier messages are kept, and the next call continues after them.
            Err(error) if plan.is_followed() && self.ingestion.options.on_failure == OnFailure::Skip => {
                let source = plan.source();
                *current = None;
                let over = self.known.failures_of(&source, None);
                self.record_failure(&source, Some(error.to_string()), None, over)
                    .await?;
                self.tell_failed(source, error.to_string(), on_event);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// Plans a source. Records the failure if the source cannot be read.
    pub(super) async fn take_source(
        &mut self,
        name: Option<String>,
        place: Option<String>,
        input: Result<Input, MemoryError>,
        on_event: &mut (impl FnMut(&IngestEvent) + Send),
    ) -> Result<Option<Plan>, IngestError> {
        let planned = match input {
            Ok(input) => self.plan(input.named(name.clone()), on_event).await,
            Err(error) => Err(error.into()),
        };
        let Some(name) = name.filter(|_| self.ingestion.options.on_failure == OnFailure::Skip) else {
            return planned;
        };
        let error = match &planned {
            Err(IngestError::Memory(error @ (MemoryError::Invalid { .. } | MemoryError::File { .. }))) => {
                Some(error.to_string())
            }
            Err(_) => return planned,
            Ok(_) => None,
        };
        let over = self.known.failures_of(&name, place.as_deref());
        self.record_failure(&name, error.clone(), place, over).await?;
        let Some(error) = error else { return planned };
        self.tell_failed(name, error, on_event);
        Ok(None)
    }

    /// Records a line of a stream that is no message, behind the records that the source has. A line that is recorded
    /// already was read again.
    async fn record_unread(
        &mut self,
        source: String,
        error: MemoryError,
        on_event: &mut (impl FnMut(&IngestEvent) + Send),
    ) -> Result<(), MemoryError> {
        let mut unread = UnreadMessages::default();
        unread.add(error)?;
        let known = self.ingestion.knowledge.unread(Some(&source)).await?;
        let errors = unread.errors();
        let is_known = known.iter().any(|known| errors.contains(&known.error));
        if !is_known && known.len() < UNREAD_RECORDED_MAX {
            let change = Change::Unread {
                source: source.clone(),
                first: known.len() as u32,
                unread: unread.records(),
                at: self.ingestion.engine.clock().now(),
            };
            self.ingestion.knowledge.apply(vec![change]).await?;
        }
        self.tell_unread(source, &unread, on_event);
        Ok(())
    }

    fn tell_unread(
        &mut self,
        source: String,
        unread: &UnreadMessages,
        on_event: &mut (impl FnMut(&IngestEvent) + Send),
    ) {
        self.ingested.progress.unread += unread.messages;
        on_event(&IngestEvent::Unread {
            source,
            messages: unread.messages,
            errors: unread.errors(),
        });
    }

    /// Clears the records of failures that are over, and records the error of a source that cannot be read. The record of a file
    /// stays as it is if the source of its name is no file.
    async fn record_failure(
        &mut self,
        source: &str,
        error: Option<String>,
        place: Option<String>,
        over: BTreeSet<String>,
    ) -> Result<(), MemoryError> {
        let place = self.known.failed_place(source, place);
        let error = error.filter(|_| place.is_some() || !self.known.has_failed_file(source));
        let failed = error.is_some().then_some((source, place.as_deref()));
        self.known.note_failure(&over, failed);
        let failure = |source: String, error, place| Change::SourceFailure {
            source,
            error,
            place,
            at: self.ingestion.engine.clock().now(),
        };
        let mut changes: Vec<Change> = over
            .into_iter()
            .map(|source| failure(source, None, None))
            .collect();
        changes.extend(error.map(|error| failure(source.to_owned(), Some(error), place)));
        if !changes.is_empty() {
            self.ingestion.knowledge.apply(changes).await?;
        }
        Ok(())
    }

    fn tell_failed(
        &mut self,
        source: String,
        error: String,
        on_event: &mut (impl FnMut(&IngestEvent) + Send),
    ) {
        self.ingested.sources_failed += 1;
        on_event(&IngestEvent::Failed { source, error });
    }

    /// Treats a file as followed if its source was followed before, so that its lines are appended.
    async fn as_followed(&mut self, input: Input) -> Result<Input, MemoryError> {
        let whole = match input {
            Input::Whole(whole) if !self.ingestion.options.replace && whole.format == Format::JsonLines => {
                whole
            }
            other => return Ok(other),
        };
        let stored = self.ingestion.knowledge.source(&whole.name).await?;
        if stored.is_some_and(|stored| stored.digest == FOLLOWED_DIGEST) {
            Ok(Input::Followed(Followed {
                reader: whole.content.open()?,
                name: whole.name,
            }))
        } else {
            Ok(Input::Whole(whole))
        }
    }

    async fn plan(
        &mut self,
        input: Input,
        on_event: &mut (impl FnMut(&IngestEvent) + Send),
    ) -> Result<Option<Plan>, IngestError> {
        let plan = match self.as_followed(input).await? {
            Input::Followed(followed) => {
                let ingestion = self.ingestion;
                let (extractor, now) = (ingestion.extractor.clone(), ingestion.engine.clock().now());
                let options = &ingestion.options;
                Some(Plan::follow(&*ingestion.knowledge, followed, options, extractor, now).await?)
            }
            Input::Whole(whole) => self.plan_whole(whole, on_event).await?,
        };
        let Some(plan) = plan else { return Ok(None) };
        self.ingested.sources_replaced += u64::from(plan.is_replacement());
        let (chunks, known) = plan.chunks;
        self.ingested.progress.chunks_total += chunks as u64;
        on_event(&IngestEvent::Planned {
            source: plan.source(),
            chunks,
            known,
        });
        self.assembly.begin_source(plan.beginning());
        Ok(Some(plan))
    }

    /// Whether an input need not be opened: it is the file of a complete source, and unchanged by its stamp, or its source has
    /// moved in this ingestion.
    pub(super) async fn is_seen(
        &mut self,
        name: Option<&str>,
        place: Option<&str>,
        file: Option<Content>,
        on_event: &mut (impl FnMut(&IngestEvent) + Send),
    ) -> bool {
        let (Some(name), Some(file)) = (name, file) else {
            return false;
        };
        if self.known.has_moved(name, &file) {
            return true;
        }
        if !self.known.failures_of(name, place).is_empty() || !self.known.is_unchanged(name, &file) {
            return false;
        }
        self.ingested.sources_skipped += 1;
        on_event(&IngestEvent::Skipped {
            source: name.to_owned(),
        });
        if self.ingested.sources_skipped.is_multiple_of(SEEN_AT_ONCE) {
            // Another task may want to stop the ingestion.
            tokio::task::yield_now().await;
        }
        true
    }

    async fn plan_whole(
        &mut self,
        input: NewInput,
        on_event: &mut (impl FnMut(&IngestEvent) + Send),
    ) -> Result<Option<Plan>, IngestError> {
        let ingestion = self.ingestion;
        let (name, format) = (input.name.clone(), input.format);
        let mut from = None;
        let (extractions, known) = (&self.extractions, &mut self.known);
        let planning = Plan::of(
            &*ingestion.knowledge,
            input,
            &ingestion.options,
            ingestion.extractor.clone(),
            ingestion.engine.clock().now(),
            |key| extractions.contains(key),
            |new| {
                from = known.moved_from(new);
                from.clone()
            },
        )
        .await?;
        if let Some(from) = from {
            let source = name.clone();
            on_event(&IngestEvent::Moved { from, source });
        }
        match planning {
            Planning::Ingest(plan) => {
                if !plan.has_text() {
                    on_event(&IngestEvent::WithoutText { source: name, format });
                }
                Ok(Some(*plan))
            }
            Planning::Unchanged(unread, seen) => {
                self.known.seen(&*ingestion.knowledge, seen).await?;
                self.ingested.sources_skipped += 1;
                on_event(&IngestEvent::Skipped { source: name.clone() });
                if unread.messages > 0 {
                    self.tell_unread(name, &unread, on_event);
                }
                Ok(None)
            }
        }
    }
}

/// Waits for the next message of a source that is still being written; never returns if there is none.
pub(super) async fn arrived(
    current: &mut Option<Plan>,
    knowledge: &dyn KnowledgeStore,
) -> Result<(), MemoryError> {
    match current {
        Some(plan) => plan.arrived(knowledge).await,
        None => std::future::pending().await,
    }
}
