//! A small knowledge base for tests.

use futures::FutureExt;
use futures::future::BoxFuture;
use gristmill_server::Knowledge;
use gristmill_server::knowledge::{
    MemoryKnowledge, MemoryMessage, MemoryOverview, MemoryRecall, MemorySource,
};

/// It knows only about bees, from three sources. Questions about wasps fail.
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

    fn recall(&self, question: String, limit: usize) -> BoxFuture<'_, Result<MemoryRecall, String>> {
        async move {
            if question.contains("wasps") {
                return Err("the file /srv/kb.db is damaged".to_owned());
            }
            if !question.contains("bees") {
                return Ok(MemoryRecall::default());
            }
            let message = |position: u32| MemoryMessage {
                source: "bees.md".to_owned(),
                position,
                speaker: Some("Ada".to_owned()),
                at: None,
                subject: None,
                score: 1.0,
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
