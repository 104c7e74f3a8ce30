//! Extraction by a language model behind an OpenAI-compatible service.
//!
//! A JSON schema describes the requested answer. A malformed answer is sent back once, with the problem.

use async_trait::async_trait;
use serde_json::Value;

use crate::extract::{ChunkText, ExtractError, Extracted, Extractor, FailedExtraction};
use crate::knowledge::Extraction;
use crate::service::{ChatRequest, Limiter, OpenAiSettings, Service, ServiceError, Usage, parse_answer};

/// The model's instructions. A change of the text changes the [identity](Extractor::identity).
const INSTRUCTIONS: &str = "You extract knowledge from one part of a conversation or document, which the user sends. \
    Answer with JSON alone. `entities`: every specific person, place, work, organisation or thing that is named, with \
    its types in lower case and with facets for what is said of it. `actions`: what is done, with the verb's base \
    form, its tense, and the names of subject, object and indirect object, or `none`. `inverse_actions`: the same \
    actions as seen by the object, such as `be written by`. `topics`: what it is about, in short phrases.";

/// Characters of a malformed answer that the model is shown when it is asked to repair it.
const REPAIR_CHARACTERS: usize = 500;

/// An extractor that calls a model.
#[derive(Debug, Clone)]
pub struct OpenAiExtractor {
    service: Service,
    schema: Value,
    output_tokens_max: Option<u32>,
}

impl OpenAiExtractor {
    /// Makes an extractor that calls the service of `settings` within the limits of `limiter`.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Settings`] if the address is malformed.
    pub fn new(settings: OpenAiSettings, limiter: Limiter) -> Result<OpenAiExtractor, ServiceError> {
        OpenAiExtractor::of(Service::new(settings, limiter)?)
    }

    /// Makes an extractor that calls this service.
    ///
    /// # Errors
    ///
    /// The built-in schema is malformed.
    pub fn of(service: Service) -> Result<OpenAiExtractor, ServiceError> {
        let schema = serde_json::from_str(include_str!("extraction_schema.json"))
            .map_err(|error| ServiceError::Settings(format!("the schema of extractions: {error}")))?;
        Ok(OpenAiExtractor {
            service,
            schema,
            output_tokens_max: None,
        })
    }

    /// Limits the tokens of an answer, because small models may never stop.
    pub fn with_output_tokens_max(self, output_tokens_max: Option<u32>) -> OpenAiExtractor {
        OpenAiExtractor {
            output_tokens_max,
            ..self
        }
    }

    /// The service that it calls.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Asks for an extraction, and asks once more if the answer is malformed. Adds the cost to `usage`, even if it fails.
    async fn read(&self, chunk: &ChunkText, usage: &mut Usage) -> Result<Extraction, ExtractError> {
        let content = self.ask(INSTRUCTIONS, chunk, usage).await?;
        let error = match parse_answer::<Extraction>(&content) {
            Ok(extraction) => return Ok(extraction),
            Err(error) => error,
        };
        let begin: String = content.chars().take(REPAIR_CHARACTERS).collect();
        let instructions = format!(
            "{INSTRUCTIONS}\n\nYour last answer to this was not JSON of the schema: {error}. It began: {begin}\n\
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
