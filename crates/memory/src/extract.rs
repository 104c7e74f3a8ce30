//! Turns the text of a chunk into knowledge.
//!
//! * [`known`]: knowledge from a message's own fields, without a model: its speaker, listeners and subject.
//! * [`local`]: an extractor by rules, without a network. The same text always gives the same knowledge.
//! * [`openai`]: an extractor that calls a model, within the limits of the [`limiter`].

pub mod known;
pub mod local;
pub mod openai;
mod together;

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
    /// Names the model and the prompt. The same text with the same identity is never sent twice.
    fn identity(&self) -> String;

    /// Whether the extraction depends on the speaker. If not, the same words of two speakers are extracted once.
    fn reads_speaker(&self) -> bool {
        false
    }

    /// Number of texts that one call may read together.
    fn texts_at_once(&self) -> usize {
        1
    }

    /// Makes the chunk that is to be extracted from a text.
    fn chunk(&self, text: &str, speaker: Option<&str>) -> ChunkText {
        ChunkText::new(text, speaker.filter(|_| self.reads_speaker()), &self.identity())
    }

    /// Extracts the knowledge of one chunk.
    ///
    /// # Errors
    ///
    /// [`FailedExtraction`], after all sensible retries.
    async fn extract(&self, chunk: &ChunkText) -> Result<Extracted, FailedExtraction>;
}

/// A chunk in the form that extractors get: the payload of an `extract` job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkText {
    /// The digest of the text, the speaker and the [identity](Extractor::identity).
    pub key: String,
    /// The text.
    pub text: String,
    /// The speaker, whom `I` means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
}

impl ChunkText {
    /// Makes a chunk for an extractor with this identity.
    pub fn new(text: &str, speaker: Option<&str>, identity: &str) -> ChunkText {
        let parts = [text, speaker.unwrap_or_default(), identity];
        ChunkText {
            key: crate::digest::of_parts(&parts.map(str::as_bytes)),
            text: text.to_owned(),
            speaker: speaker.map(str::to_owned),
        }
    }
}

/// The knowledge from one chunk, and its cost: the value of an `extract` job.
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

/// A failed extraction. Its calls have a cost all the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct FailedExtraction {
    /// The reason.
    #[source]
    pub error: ExtractError,
    /// The cost.
    pub usage: Usage,
}

/// The reason for a failed extraction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtractError {
    /// The service gave no answer.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The limit of tokens cut the answer off.
    #[error(
        "the model's answer was cut off at its limit of tokens; raise --output-tokens, or make chunks shorter with \
         --chunk-characters"
    )]
    Cut,
    /// The answer does not have the requested form, even after a repair attempt.
    #[error("the model's answer is not an extraction, and neither is the repaired one: {reason}")]
    Malformed {
        /// The problem.
        reason: String,
    },
}

impl ExtractError {
    /// The word that groups errors of this kind: that of the service's error, `cut` or `malformed`.
    pub const fn kind(&self) -> &'static str {
        match self {
            ExtractError::Service(error) => error.kind(),
            ExtractError::Cut => "cut",
            ExtractError::Malformed { .. } => "malformed",
        }
    }
}
