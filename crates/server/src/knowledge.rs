//! The read-only knowledge base of a server that serves one.

use futures::future::BoxFuture;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

/// A knowledge base as its operations see it.
pub trait Knowledge: Send + Sync + std::fmt::Debug + 'static {
    /// At most `limit` sources by name, after `after` (from the first if `None`), and the totals. The error is a text
    /// for people.
    fn overview(&self, after: Option<String>, limit: usize) -> BoxFuture<'_, Result<MemoryOverview, String>>;

    /// At most `question.limit` messages about a question, best first, and as much knowledge.
    fn recall(&self, question: RecallQuestion) -> BoxFuture<'_, Result<MemoryRecall, RecallError>>;
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecallError {
    /// The question is not one: the text names the parameter, and the remedy.
    Question(String),
    /// The knowledge base failed. A text for people.
    Failed(String),
}

/// A question, with the options of `gristmill recall`.
#[derive(Debug, Clone, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RecallQuestion {
    /// The question, in plain words. Without one, the parameters below, except `limit`, `zone` and `explain`, say which messages
    /// to list.
    #[param(min_length = 1, max_length = 2000, example = "Who keeps bees?")]
    pub question: Option<String>,
    /// The maximum number of messages; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<usize>,
    /// Only messages with one of these tags.
    #[param(rename = "tag", style = Form, explode, required = false)]
    pub tags: Vec<String>,
    /// Only messages of one of these sources, or of sources in these folders.
    #[param(rename = "source", style = Form, explode, required = false)]
    pub sources: Vec<String>,
    /// Only messages of one of these speakers or senders, by one or more of the names.
    #[param(rename = "speaker", style = Form, explode, required = false)]
    pub speakers: Vec<String>,
    /// Only messages of one of these threads, as answers name them.
    #[param(rename = "thread", style = Form, explode, required = false)]
    pub threads: Vec<String>,
    /// Only messages from this time on.
    #[param(example = "2023-05-01T09:30:00Z")]
    pub since: Option<String>,
    /// Only messages before this time.
    #[param(example = "2023-06-01")]
    pub until: Option<String>,
    /// The offset from UTC of times in the question (`+` is `%2B` in a URL); the sources' offset by default.
    #[param(example = "+02:00")]
    pub zone: Option<String>,
    /// Tell the parts of each score.
    pub explain: Option<bool>,
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
    /// The thread to which it belongs, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Its relevance; higher is better.
    pub score: f64,
    /// The parts of the score, which is their sum, if they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub explanation: Vec<ScorePart>,
    /// Its text, or the beginning of a long one.
    pub text: String,
    /// True if the text is longer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// A part of a score.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ScorePart {
    /// The part, as in `gristmill recall --explain`.
    #[schema(example = "words")]
    pub part: String,
    /// The amount that it adds to the score; negative if it lowers the score.
    pub gain: f64,
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
