//! From the text of a chunk to knowledge.
//!
//! * [`known`]: what a message tells of itself, with no model: who said it to whom, and what it is about.
//! * [`local`]: an extractor by rules: no network, the same answer for the same text.
//! * [`openai`]: an extractor that asks a model, within the limits of the [`limiter`].

pub mod known;
pub mod local;
pub mod openai;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::knowledge::Extraction;
use crate::service::ServiceError;
pub use crate::service::limiter::{self, Limiter, LimiterSettings};
pub use crate::service::{OpenAiSettings, Usage};
pub use local::LocalExtractor;
pub use openai::OpenAiExtractor;

/// Extracts knowledge from the text of a chunk.
#[async_trait]
pub trait Extractor: Send + Sync + std::fmt::Debug + 'static {
    /// The model and the prompt, as one text. The same text, model and prompt are never sent twice.
    fn identity(&self) -> String;

    /// Whether it depends on the speaker. If not, the same words of two speakers are extracted once.
    fn reads_speaker(&self) -> bool {
        false
    }

    /// The chunk of a message as it is to be extracted.
    fn chunk(&self, text: &str, speaker: Option<&str>) -> ChunkText {
        ChunkText::new(text, speaker.filter(|_| self.reads_speaker()), &self.identity())
    }

    /// Extracts the knowledge of one chunk.
    ///
    /// # Errors
    ///
    /// [`FailedExtraction`], after all tries that make sense.
    async fn extract(&self, chunk: &ChunkText) -> Result<Extracted, FailedExtraction>;
}

/// A chunk as an extractor gets it: the payload of an `extract` job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkText {
    /// The digest of the text, the speaker and the [identity](Extractor::identity).
    pub key: String,
    /// The text.
    pub text: String,
    /// The speaker: the meaning of `I`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
}

impl ChunkText {
    /// A chunk of a message, for an extractor of this identity.
    pub fn new(text: &str, speaker: Option<&str>, identity: &str) -> ChunkText {
        let parts = [text, speaker.unwrap_or_default(), identity];
        ChunkText {
            key: crate::digest::of_parts(&parts.map(str::as_bytes)),
            text: text.to_owned(),
            speaker: speaker.map(str::to_owned),
        }
    }
}

/// The knowledge of an extractor, and its cost: the value of an `extract` job.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Extracted {
    /// The chunk's key.
    pub key: String,
    /// The knowledge.
    pub extraction: Extraction,
    /// The cost.
    #[serde(default)]
    pub usage: Usage,
}

/// An extraction that came to nothing. The calls for it are paid for all the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct FailedExtraction {
    /// Why.
    #[source]
    pub error: ExtractError,
    /// The cost.
    pub usage: Usage,
}

/// Why nothing could be extracted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtractError {
    /// The service gave no answer.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The answer has not the form that was asked for, also after the repair attempt.
    #[error("the model's answer is not an extraction, and neither is the repaired one: {reason}")]
    Malformed {
        /// The problem.
        reason: String,
    },
}

impl ExtractError {
    /// The word that groups errors of this kind: `refused`, `unavailable`, `malformed`, `settings`.
    pub const fn kind(&self) -> &'static str {
        match self {
            ExtractError::Service(error) => error.kind(),
            ExtractError::Malformed { .. } => "malformed",
        }
    }
}
