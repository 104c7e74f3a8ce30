//! Vectors from a model behind an OpenAI-compatible service.

use async_trait::async_trait;

use crate::embed::{EmbedError, Embedder, Vector};
use crate::service::Service;

/// Maximum texts of one call: OpenAI's limit.
const TEXTS_MAX: usize = 2_048;

/// Maximum bytes of one call: about half of the 300,000 tokens that OpenAI allows.
const BYTES_MAX: usize = 512 << 10;

/// Minimum cosine at which one term may stand for another, with models of this kind.
const RELATED_COSINE_MIN: f64 = 0.7;

/// An embedder that calls a service.
#[derive(Debug, Clone)]
pub struct OpenAiEmbedder {
    service: Service,
}

impl OpenAiEmbedder {
    /// Makes an embedder that calls this service.
    pub fn of(service: Service) -> OpenAiEmbedder {
        OpenAiEmbedder { service }
    }

    /// The service that it calls.
    pub fn service(&self) -> &Service {
        &self.service
    }
}

#[async_trait]
impl Embedder for OpenAiEmbedder {
    fn identity(&self) -> String {
        format!("openai {}", self.service.model())
    }

    fn texts_max(&self) -> usize {
        TEXTS_MAX
    }

    fn bytes_max(&self) -> usize {
        BYTES_MAX
    }

    fn related_cosine_min(&self) -> f64 {
        RELATED_COSINE_MIN
    }

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vector>, EmbedError> {
        let numbers = self.service.embeddings(&texts).await?;
        let dimensions = numbers.first().map_or(0, Vec::len);
        if let Some(other) = numbers.iter().find(|numbers| numbers.len() != dimensions) {
            return Err(EmbedError::Vectors(format!(
                "the service gave vectors of {dimensions} and of {} dimensions",
                other.len()
            )));
        }
        Ok(numbers.into_iter().map(Vector::new).collect())
    }
}
