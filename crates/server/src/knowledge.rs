//! The read-only knowledge base of a server that serves one.

use futures::future::BoxFuture;
use serde::Serialize;
use utoipa::ToSchema;

/// A knowledge base as its operations see it.
pub trait Knowledge: Send + Sync + std::fmt::Debug + 'static {
    /// At most `limit` sources by name, after `after` (from the first if `None`), and the totals. The error is a text
    /// for people.
    fn overview(&self, after: Option<String>, limit: usize) -> BoxFuture<'_, Result<MemoryOverview, String>>;

    /// At most `limit` messages about a question, best first, and as much knowledge. The error is a text for people.
    fn recall(&self, question: String, limit: usize) -> BoxFuture<'_, Result<MemoryRecall, String>>;
}

/// Sources and totals.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct MemoryOverview {
    /// Sources, by name.
    pub sources: Vec<MemorySource>,
    /// The number of all sources.
    pub sources_total: u64,
    /// The number of messages.
    pub messages: u64,
    /// The number of entities.
    pub entities: u64,
    /// The number of actions.
    pub actions: u64,
    /// The number of topics.
    pub topics: u64,
    /// The number of chunks whose extraction failed.
    pub failures: u64,
    /// Its size. Bytes.
    pub bytes: u64,
}

/// One source.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct MemorySource {
    /// Its name.
    #[schema(example = "talk.vtt")]
    pub source: String,
    /// The reader that read it.
    #[schema(example = "vtt")]
    pub format: String,
    /// The number of its messages.
    pub messages: u32,
    /// True if all of its messages are stored.
    pub complete: bool,
    /// The time of its ingestion. Milliseconds since 1970.
    pub ingested_at: i64,
}

/// The results of a question.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct MemoryRecall {
    /// Messages, best first.
    pub messages: Vec<MemoryMessage>,
    /// Entities, actions and topics, best first.
    pub knowledge: Vec<MemoryKnowledge>,
}

/// A message that answers a question.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct MemoryMessage {
    /// Its source.
    pub source: String,
    /// Its position in the source, from 0.
    pub position: u32,
    /// Its speaker or sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
    /// The time of the message. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<i64>,
    /// Its subject, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Its relevance; higher is better.
    pub score: f64,
    /// Its text, or the beginning of a long one.
    pub text: String,
    /// True if the text is longer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// A piece of knowledge about a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct MemoryKnowledge {
    /// `entity`, `action`, `topic` or `tag`.
    #[schema(example = "entity")]
    pub kind: String,
    /// The knowledge in words.
    pub text: String,
}
