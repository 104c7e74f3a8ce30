//! Turns texts into vectors, whose cosine says how near two texts are in meaning.
//!
//! * [`openai`]: vectors of a model behind an OpenAI-compatible service.
//! * [`model2vec`]: vectors of a static model in a local folder: no network, thousands of texts a second.
//! * [`bert`]: vectors of a BERT model in a local folder, such as all-MiniLM-L6-v2: no network, better and slower. A
//!   [`CrossEncoder`] of that kind ranks texts instead.
//!
//! Without an embedder, related terms are found by their spelling, and messages by their words.

pub mod bert;
mod files;
pub mod lists;
pub mod model2vec;
pub mod openai;
pub mod vector;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use crate::service::ServiceError;
pub use bert::BertEmbedder;
pub use bert::pairs::CrossEncoder;
pub use model2vec::Model2VecEmbedder;
pub use openai::OpenAiEmbedder;
pub use vector::Vector;

/// Opens the local model in a folder: a BERT model if its `config.json` says so, or else a static one.
///
/// # Errors
///
/// [`EmbedError::Model`], which names the missing or malformed file.
pub fn open_local(folder: &Path) -> Result<Arc<dyn Embedder>, EmbedError> {
    if bert::is_bert(folder) {
        Ok(Arc::new(BertEmbedder::open(folder)?))
    } else {
        Ok(Arc::new(Model2VecEmbedder::open(folder)?))
    }
}

/// Runs a local model on a thread for blocking work, so that other tasks go on.
async fn run_model<T: Send + 'static>(
    compute: impl FnOnce() -> Result<T, EmbedError> + Send + 'static,
) -> Result<T, EmbedError> {
    match tokio::task::spawn_blocking(compute).await {
        Ok(computed) => computed,
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        Err(_) => Err(EmbedError::Vectors("the runtime was shut down".to_owned())),
    }
}

/// Computes vectors of texts.
#[async_trait]
pub trait Embedder: Send + Sync + std::fmt::Debug + 'static {
    /// Names the model. Vectors of two identities are never compared.
    fn identity(&self) -> String;

    /// Maximum number of texts in one call.
    fn texts_max(&self) -> usize;

    /// Maximum bytes of all texts in one call. A single longer text is a call of its own.
    fn bytes_max(&self) -> usize;

    /// Minimum cosine at which one term may stand for another.
    fn related_cosine_min(&self) -> f64;

    /// The weight of the vectors in a ranking: 1 for a model that reads a text in order.
    fn weight(&self) -> f64 {
        1.0
    }

    /// Computes the vectors of texts, in the same order, all with the same number of dimensions.
    ///
    /// # Errors
    ///
    /// [`EmbedError`], after all sensible retries.
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vector>, EmbedError>;
}

/// The reason why there are no vectors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// The service gave no answer.
    #[error("embeddings: {0}")]
    Service(#[from] ServiceError),
    /// The folder of a model is incomplete or malformed.
    #[error("{place}: {reason}")]
    Model {
        /// The folder or file.
        place: String,
        /// The problem, and the remedy.
        reason: String,
    },
    /// The vectors do not fit each other.
    #[error("embeddings: {0}")]
    Vectors(String),
}
