//! A small knowledge base for tests.

use futures::FutureExt;
use futures::future::BoxFuture;
use gristmill_server::Knowledge;
use gristmill_server::knowledge::{
    MemoryKnowledge, MemoryMessage, MemoryOverview, MemoryRecall, MemorySource, RecallError, RecallQuestion,
    ScorePart,
};

/// It knows only about bees, from three sources. Questions about wasps fail. Each of its messages names what was asked for.
#[derive(Debug)]
pub struct Bees;

impl Knowledge for Bees {
    fn overview(&self, after: Option<String>, limit: usize) -> BoxFuture<'_, Result<MemoryOverview, String>> {
        let sources = ["bees.md", "hives.md", "honey.md"].map(|name| MemorySource {
            source: name.to_owned(),
            format: "markdown".to_owned(),
            messages: 1,
            complete: true,
            ingested_at: 1_700_000_000_000,
        });
        let sources = sources
            .into_iter()
            .filter(|source| after.as_ref().is_none_or(|after| source.source > *after))
            .take(limit);
        let overview = MemoryOverview {
            sources: sources.collect(),
            sources_total: 3,
            messages: 3,
            ..MemoryOverview::default()
        };
        async move { Ok(overview) }.boxed()
    }

    fn recall(&self, question: RecallQuestion) -> BoxFuture<'_, Result<MemoryRecall, RecallError>> {
        async move {
            let text = question.question.clone().unwrap_or("bees".to_owned());
            if text.contains("wasps") {
                return Err(RecallError::Failed("the file /srv/kb.db is damaged".to_owned()));
            }
            if question.since.as_deref() == Some("soon") {
                return Err(RecallError::Question("`since` is `soon`".to_owned()));
            }
            if !text.contains("bees") {
                return Ok(MemoryRecall::default());
            }
            let limit = question.limit.unwrap();
            let explained = question.explain.unwrap_or(false).then(|| ScorePart {
                part: "words".to_owned(),
                gain: 1.0,
            });
            let asked = format!("{question:?}");
            let message = |position: u32| MemoryMessage {
                source: "bees.md".to_owned(),
                position,
                speaker: Some("Ada".to_owned()),
                at: None,
                subject: Some(asked.clone()),
                thread: None,
                score: 1.0,
                explanation: explained.clone().into_iter().collect(),
                text: "Ada keeps bees.".to_owned(),
                is_cut: false,
            };
            Ok(MemoryRecall {
                messages: (0..3).take(limit).map(message).collect(),
                knowledge: vec![MemoryKnowledge {
                    kind: "entity".to_owned(),
                    text: "Ada (person)".to_owned(),
                }],
            })
        }
        .boxed()
    }
}
