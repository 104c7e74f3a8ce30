//! From texts to vectors: how near two of them are in meaning.
//!
//! * [`openai`]: vectors of a model behind an OpenAI-compatible service.
//! * [`model2vec`]: vectors of a static model in a local folder: no network, thousands of texts a second.
//! * [`bert`]: vectors of a BERT model in a local folder, such as all-MiniLM-L6-v2: no network, better and slower.
//!
//! Without an embedder, related terms are found by how they are written and messages by their words.

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
pub use model2vec::Model2VecEmbedder;
pub use openai::OpenAiEmbedder;
pub use vector::Vector;

/// Opens the local model in a folder: a BERT model where its `config.json` says so, or else a static one.
///
/// # Errors
///
/// [`EmbedError::Model`] with the file that is missing or does not have its form.
pub fn open_local(folder: &Path) -> Result<Arc<dyn Embedder>, EmbedError> {
    match bert::is_bert(folder) {
        true => Ok(Arc::new(BertEmbedder::open(folder)?)),
        false => Ok(Arc::new(Model2VecEmbedder::open(folder)?)),
    }
}

/// Runs a local model on a thread for long work, so that other tasks go on.
async fn run_model(
    embed: impl FnOnce() -> Result<Vec<Vector>, EmbedError> + Send + 'static,
) -> Result<Vec<Vector>, EmbedError> {
    match tokio::task::spawn_blocking(embed).await {
        Ok(vectors) => vectors,
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        Err(_) => Err(EmbedError::Vectors("the runtime was shut down".to_owned())),
    }
}

/// Computes vectors of texts.
#[async_trait]
pub trait Embedder: Send + Sync + std::fmt::Debug + 'static {
    /// The model, as one text. Vectors of two identities are never compared.
    fn identity(&self) -> String;

    /// Texts of one call at most.
    fn texts_max(&self) -> usize;

    /// Bytes of all texts of one call at most; a single longer text is a call of its own.
    fn bytes_max(&self) -> usize;

    /// The cosine from which on a term may stand for another.
    fn related_cosine_min(&self) -> f64;

    /// How much the nearness of its vectors counts in a ranking: 1 for a model that reads a text in order.
    fn weight(&self) -> f64 {
        1.0
    }

    /// The vectors of texts, in the same order, all of the same number of dimensions.
    ///
    /// # Errors
    ///
    /// [`EmbedError`], after all tries that make sense.
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vector>, EmbedError>;
}

/// Why there are no vectors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// The service gave no answer.
    #[error("embeddings: {0}")]
    Service(#[from] ServiceError),
    /// The folder of a model is incomplete.
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
