//! The knowledge base that a server shows, where it has one. Only reading is possible.

use futures::future::BoxFuture;
use serde::Serialize;
use utoipa::ToSchema;

/// A knowledge base, as its operations show it.
pub trait Knowledge: Send + Sync + std::fmt::Debug + 'static {
    /// Its sources by name, after `after` (from the first if `None`), at most `limit`, and how much there is of everything. The
    /// error is for people.
    fn overview(&self, after: Option<String>, limit: usize) -> BoxFuture<'_, Result<MemoryOverview, String>>;

    /// What it has about a question, best first: at most `limit` messages, and as much knowledge. The error is for people.
    fn recall(&self, question: String, limit: usize) -> BoxFuture<'_, Result<MemoryRecall, String>>;
}

/// Sources, and how much there is of everything.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct MemoryOverview {
    /// Sources, by name.
    pub sources: Vec<MemorySource>,
    /// The number of all sources.
    pub sources_total: u64,
    /// Messages.
    pub messages: u64,
    /// Entities.
    pub entities: u64,
    /// Actions.
    pub actions: u64,
    /// Topics.
    pub topics: u64,
    /// Pieces of texts whose extraction failed.
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
    /// Which reader read it.
    #[schema(example = "vtt")]
    pub format: String,
    /// Its messages.
    pub messages: u32,
    /// Whether it has all of them.
    pub complete: bool,
    /// When it was ingested. Milliseconds since 1970.
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
    /// When it was said or sent. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<i64>,
    /// Its subject, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Its relevance; higher is better.
    pub score: f64,
    /// Its text, or the beginning of a long one.
    pub text: String,
    /// Whether the text goes on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// A piece of knowledge about a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct MemoryKnowledge {
    /// `entity`, `action`, `topic` or `tag`.
    #[schema(example = "entity")]
    pub kind: String,
    /// In words.
    pub text: String,
}
