//! The knowledge base that a server shows.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use gristmill_memory::knowledge as known;
use gristmill_memory::limits::MESSAGES_DEFAULT;
use gristmill_memory::recall::{Gain, RecallOptions, Recalled, RecalledMessage};
use gristmill_memory::{Memory, MemoryError};
use gristmill_server::Knowledge;
use gristmill_server::knowledge::{
    MemoryKnowledge, MemoryMessage, MemoryOverview, MemoryRecall, MemorySource, RecallError, RecallQuestion,
    ScorePart,
};
use gristmill_server::limits::RECALLED_TEXT_CHARACTERS_MAX;

use super::shown::knowledge_line;
use crate::arguments::memory::{KnowledgeArguments, ScopeArguments, parse_moment, parse_zone, source_name};
use crate::store::location::StoreLocation;

/// Opens the knowledge base of a server, which must exist.
pub async fn served_knowledge(named: Option<StoreLocation>) -> anyhow::Result<Option<Arc<dyn Knowledge>>> {
    let Some(knowledge) = named else {
        return Ok(None);
    };
    let memory = KnowledgeArguments { knowledge }.open().await?;
    Ok(Some(Arc::new(ServedKnowledge(memory))))
}

/// A knowledge base that is only read.
#[derive(Debug)]
struct ServedKnowledge(Memory);

impl ServedKnowledge {
    async fn look(&self, after: Option<String>, limit: usize) -> Result<MemoryOverview, MemoryError> {
        let stats = self.0.knowledge().stats().await?;
        let mut sources = self.0.knowledge().sources().await?;
        // A database may sort in another order than `after` does.
        sources.sort_by(|one, other| one.name.cmp(&other.name));
        let listed = sources
            .into_iter()
            .filter(|source| after.as_ref().is_none_or(|after| source.name > *after))
            .take(limit)
            .map(|source| MemorySource {
                source: source.name,
                format: source.format,
                messages: source.messages,
                complete: source.complete,
                ingested_at: source.ingested_at.0,
            });
        Ok(MemoryOverview {
            sources: listed.collect(),
            sources_total: stats.sources,
            messages: stats.messages,
            entities: stats.entities,
            actions: stats.actions,
            topics: stats.topics,
            failures: stats.failures,
            bytes: stats.bytes,
        })
    }
}

impl Knowledge for ServedKnowledge {
    fn overview(&self, after: Option<String>, limit: usize) -> BoxFuture<'_, Result<MemoryOverview, String>> {
        let look = self.look(after, limit);
        async move { look.await.map_err(|error| error.to_string()) }.boxed()
    }

    fn recall(&self, question: RecallQuestion) -> BoxFuture<'_, Result<MemoryRecall, RecallError>> {
        async move {
            let text = question.question.clone().unwrap_or_default();
            let options = options(question).map_err(RecallError::Question)?;
            let recalled = self.0.recall(&text, &options).await;
            Ok(shown(&recalled.map_err(|error| match error {
                MemoryError::SourceUnknown(_) | MemoryError::Invalid { .. } => {
                    RecallError::Question(error.to_string())
                }
                error => RecallError::Failed(error.to_string()),
            })?))
        }
        .boxed()
    }
}

/// The options of the command `recall` that a question names.
fn options(question: RecallQuestion) -> Result<RecallOptions, String> {
    let scope = ScopeArguments {
        limit: question.limit.unwrap_or(MESSAGES_DEFAULT) as u32,
        tags: question.tags,
        sources: question
            .sources
            .iter()
            .map(|source| source_name(source))
            .collect(),
        speakers: question.speakers,
        threads: question.threads,
        since: ScopeArguments::read("since", question.since.as_deref(), parse_moment)?,
        until: ScopeArguments::read("until", question.until.as_deref(), parse_moment)?,
        zone: ScopeArguments::read("zone", question.zone.as_deref(), parse_zone)?,
    };
    Ok(RecallOptions {
        refs_max: Some(scope.limit as usize),
        explain: question.explain.unwrap_or(false),
        ..scope.options()
    })
}

fn shown(recalled: &Recalled) -> MemoryRecall {
    let knowledge = recalled.distinct_knowledge();
    MemoryRecall {
        messages: recalled.messages.iter().map(message).collect(),
        knowledge: knowledge.iter().map(shown_knowledge).collect(),
    }
}

fn shown_knowledge(knowledge: &known::Knowledge) -> MemoryKnowledge {
    let line = knowledge_line(knowledge);
    let (kind, text) = line.split_once(' ').unwrap_or(("", &line));
    MemoryKnowledge {
        kind: kind.to_owned(),
        text: text.trim_start().to_owned(),
    }
}

fn score_part(gain: &Gain) -> ScorePart {
    ScorePart {
        part: gain.part.to_owned(),
        gain: gain.gain,
    }
}

fn message(recalled: &RecalledMessage) -> MemoryMessage {
    let stored = &recalled.message;
    let mut text = stored.message.text();
    let end = text.char_indices().nth(RECALLED_TEXT_CHARACTERS_MAX);
    let is_cut = end.is_some();
    if let Some((place, _)) = end {
        text.truncate(place);
    }
    MemoryMessage {
        source: stored.source.clone(),
        position: stored.position,
        speaker: stored.message.speaker.clone(),
        at: stored.message.moment.map(|moment| moment.at.0),
        subject: stored.message.subject.clone(),
        thread: stored.message.thread.clone(),
        score: recalled.score,
        explanation: recalled.explanation.iter().map(score_part).collect(),
        text,
        is_cut,
    }
}
