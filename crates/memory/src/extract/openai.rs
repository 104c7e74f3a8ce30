//! Extraction by a language model behind an OpenAI-compatible service.
//!
//! The answer is asked for by a JSON schema. One that cannot be read is sent back once with what is wrong with it.

use async_trait::async_trait;
use serde_json::Value;

use crate::extract::{ChunkText, ExtractError, Extracted, Extractor, FailedExtraction};
use crate::knowledge::Extraction;
use crate::service::{ChatRequest, Limiter, OpenAiSettings, Service, ServiceError, Usage, parse_answer};

/// The model's instructions. A changed text changes the [identity](Extractor::identity).
const INSTRUCTIONS: &str = "You extract knowledge from one part of a conversation or document, which the user sends. \
    Answer with JSON alone. `entities`: every specific person, place, work, organisation or thing that is named, with \
    its types in lower case and with facets for what is said of it. `actions`: what is done, with the verb's base \
    form, its tense, and the names of subject, object and indirect object, or `none`. `inverse_actions`: the same \
    actions as seen by the object, such as `be written by`. `topics`: what it is about, in short phrases.";

/// Characters of an answer that are shown to the model when it is asked to repair it.
const REPAIR_CHARACTERS: usize = 500;

/// The extractor that asks a model.
#[derive(Debug, Clone)]
pub struct OpenAiExtractor {
    service: Service,
    schema: Value,
    output_tokens_max: Option<u32>,
}

impl OpenAiExtractor {
    /// An extractor that asks the service of `settings` within what `limiter` allows.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Settings`] where the address is none.
    pub fn new(settings: OpenAiSettings, limiter: Limiter) -> Result<OpenAiExtractor, ServiceError> {
        OpenAiExtractor::of(Service::new(settings, limiter)?)
    }

    /// An extractor that asks a service.
    ///
    /// # Errors
    ///
    /// None that depends on the service.
    pub fn of(service: Service) -> Result<OpenAiExtractor, ServiceError> {
        let schema = serde_json::from_str(include_str!("extraction_schema.json"))
            .map_err(|error| ServiceError::Settings(format!("the schema of extractions: {error}")))?;
        Ok(OpenAiExtractor {
            service,
            schema,
            output_tokens_max: None,
        })
    }

    /// Limits the tokens of an answer: small models may never stop.
    pub fn with_output_tokens_max(self, output_tokens_max: Option<u32>) -> OpenAiExtractor {
        OpenAiExtractor {
            output_tokens_max,
            ..self
        }
    }

    /// The service that it asks.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Asks for an extraction, and once more where the answer is none. What that costs is added to `usage`, also
    /// where it fails.
    async fn read(&self, chunk: &ChunkText, usage: &mut Usage) -> Result<Extraction, ExtractError> {
        let content = self.ask(INSTRUCTIONS, chunk, usage).await?;
        let error = match parse_answer::<Extraction>(&content) {
            Ok(extraction) => return Ok(extraction),
            Err(error) => error,
        };
        let begin: String = content.chars().take(REPAIR_CHARACTERS).collect();
        let instructions = format!(
            "{INSTRUCTIONS}\n\nYour last answer to this was no JSON of the schema: {error}. It began: {begin}\n\
             Answer again, with all of it."
        );
        let repaired = self.ask(&instructions, chunk, usage).await?;
        parse_answer(&repaired).map_err(|reason| ExtractError::Malformed { reason })
    }

    async fn ask(
        &self,
        instructions: &str,
        chunk: &ChunkText,
        usage: &mut Usage,
    ) -> Result<String, ServiceError> {
        let request = ChatRequest {
            instructions,
            text: &chunk.text,
            schema_name: "extraction",
            schema: &self.schema,
            output_tokens_max: self.output_tokens_max,
        };
        self.service.chat(&request, usage).await
    }
}

#[async_trait]
impl Extractor for OpenAiExtractor {
    fn identity(&self) -> String {
        let prompt = crate::digest::of_parts(&[INSTRUCTIONS.as_bytes(), self.schema.to_string().as_bytes()]);
        format!("openai {} {}", self.service.model(), &prompt[..16])
    }

    async fn extract(&self, chunk: &ChunkText) -> Result<Extracted, FailedExtraction> {
        let mut usage = Usage::default();
        match self.read(chunk, &mut usage).await {
            Ok(extraction) => Ok(Extracted {
                key: chunk.key.clone(),
                extraction,
                usage,
            }),
            Err(error) => Err(FailedExtraction { error, usage }),
        }
    }
}
