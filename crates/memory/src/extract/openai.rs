//! Extraction by a language model behind an OpenAI-compatible service.
//!
//! A JSON schema describes the requested answer. A malformed answer is sent back once, with the problem.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::extract::together::{self, Part, Parts, Together, Waiting};
use crate::extract::{ChunkText, ExtractError, Extracted, Extractor, FailedExtraction};
use crate::knowledge::Extraction;
use crate::service::{
    Answer, ChatRequest, Limiter, OpenAiSettings, Service, ServiceError, Usage, parse_answer,
};

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
    texts_per_call: usize,
    /// The schema of the answer for several texts.
    schema_of_all: Value,
    together: Arc<Together>,
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
        let schema: Value = serde_json::from_str(include_str!("extraction_schema.json"))
            .map_err(|error| ServiceError::Settings(format!("the schema of extractions: {error}")))?;
        Ok(OpenAiExtractor {
            service,
            schema_of_all: together::schema(&schema),
            schema,
            output_tokens_max: None,
            texts_per_call: 1,
            together: Arc::default(),
        })
    }

    /// Limits the tokens of an answer, because small models may never stop.
    pub fn with_output_tokens_max(self, output_tokens_max: Option<u32>) -> OpenAiExtractor {
        OpenAiExtractor {
            output_tokens_max,
            ..self
        }
    }

    /// Lets one call read so many short texts together, each with its own knowledge. They cost the instructions once.
    pub fn with_texts_per_call(self, texts_per_call: usize) -> OpenAiExtractor {
        OpenAiExtractor {
            texts_per_call: texts_per_call.max(1),
            ..self
        }
    }

    /// The service that it calls.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Asks for an extraction, and asks once more if the answer is malformed. Adds the cost to `usage`, even if it fails.
    async fn read(&self, chunk: &ChunkText, usage: &mut Usage) -> Result<Extraction, ExtractError> {
        let answer = self.ask(INSTRUCTIONS, chunk, usage).await?;
        let error = match answer.json::<Extraction>() {
            Ok(extraction) => return Ok(extraction),
            // The same request would be cut off again.
            Err(_) if answer.is_cut => return Err(ExtractError::Cut),
            Err(error) => error,
        };
        let begin: String = answer.content.chars().take(REPAIR_CHARACTERS).collect();
        let instructions = format!(
            "{INSTRUCTIONS}\n\nYour last answer to this was not JSON of the schema: {error}. It began: {begin}\n\
             Answer again, with all of it."
        );
        let repaired = self.ask(&instructions, chunk, usage).await?;
        parse_answer(&repaired.content).map_err(|reason| ExtractError::Malformed { reason })
    }

    async fn ask(
        &self,
        instructions: &str,
        chunk: &ChunkText,
        usage: &mut Usage,
    ) -> Result<Answer, ServiceError> {
        let request = ChatRequest {
            instructions,
            text: &chunk.text,
            schema_name: "extraction",
            schema: &self.schema,
            output_tokens_max: self.output_tokens_max,
        };
        self.service.answer(&request, usage).await
    }

    /// Reads a short text together with others that wait, in a call of this or of another extraction.
    async fn read_together(&self, chunk: &ChunkText, usage: &mut Usage) -> Part {
        loop {
            let (number, arrives) = self.together.add(&chunk.text);
            tokio::time::sleep(together::GATHERED_FOR).await;
            if let Some(texts) = self.together.take(number, self.texts_per_call) {
                if texts.len() > 1 {
                    self.read_all(texts, usage).await;
                } else {
                    return Part::Alone;
                }
            }
            // Without an answer, the extraction that made the call has been given up.
            if let Ok(part) = arrives.await {
                return part;
            }
        }
    }

    /// Reads several texts in one call, and sends each its part.
    async fn read_all(&self, texts: Vec<Waiting>, usage: &mut Usage) {
        let count = u32::try_from(texts.len()).unwrap_or(u32::MAX);
        let request = ChatRequest {
            instructions: &format!("{INSTRUCTIONS} {}", together::INSTRUCTIONS),
            text: &together::list(&texts),
            schema_name: "extractions",
            schema: &self.schema_of_all,
            output_tokens_max: self.output_tokens_max.map(|tokens| tokens.saturating_mul(count)),
        };
        let answered = self.service.answer(&request, usage).await;
        let parts: Vec<Part> = match answered {
            Ok(answer) => {
                let parts = parse_answer::<Parts>(&answer.content).map(|parts| parts.in_order(texts.len()));
                let parts = parts.unwrap_or_else(|_| vec![None; texts.len()]);
                parts
                    .into_iter()
                    .map(|part| part.map_or(Part::Alone, Part::Found))
                    .collect()
            }
            // One of the texts may be the reason.
            Err(ServiceError::Declined { .. } | ServiceError::Refused { .. }) => {
                texts.iter().map(|_| Part::Alone).collect()
            }
            Err(error) => texts.iter().map(|_| Part::Failed(error.clone())).collect(),
        };
        assert_eq!(parts.len(), texts.len(), "each text has a part");
        for (waiting, part) in texts.into_iter().zip(parts) {
            // Nobody waits for the part of an extraction that was given up.
            let _ = waiting.answer.send(part);
        }
    }
}

#[async_trait]
impl Extractor for OpenAiExtractor {
    fn identity(&self) -> String {
        let prompt = crate::digest::of_parts(&[INSTRUCTIONS.as_bytes(), self.schema.to_string().as_bytes()]);
        format!("openai {} {}", self.service.model(), &prompt[..16])
    }

    fn texts_at_once(&self) -> usize {
        self.texts_per_call
    }

    async fn extract(&self, chunk: &ChunkText) -> Result<Extracted, FailedExtraction> {
        let mut usage = Usage::default();
        let part = match self.texts_per_call > 1 && together::is_short(&chunk.text) {
            true => self.read_together(chunk, &mut usage).await,
            false => Part::Alone,
        };
        let read = match part {
            Part::Found(extraction) => Ok(extraction),
            Part::Alone => self.read(chunk, &mut usage).await,
            Part::Failed(error) => Err(error.into()),
        };
        match read {
            Ok(extraction) => Ok(Extracted {
                key: chunk.key.clone(),
                extraction,
                usage,
            }),
            Err(error) => Err(FailedExtraction { error, usage }),
        }
    }
}
