//! Static embeddings from a local folder in the form of model2vec: `model.safetensors` has a row of numbers for each
//! token, and `tokenizer.json` has the tokens. A text's vector is the mean of its tokens' rows.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use safetensors::tensor::SafeTensors;
use serde_json::Value;
use tokenizers::Tokenizer;

use crate::embed::files::{ModelFiles, TOKENIZER_FILE, numbers, token_ids};
use crate::embed::{EmbedError, Embedder, Vector, run_model};

/// Maximum texts of one call: enough to keep all processors busy, few enough to be stored soon.
const TEXTS_MAX: usize = 4_096;

/// Maximum bytes of one call.
const BYTES_MAX: usize = 4 << 20;

/// Minimum cosine at which one term may stand for another, with models of this kind.
const RELATED_COSINE_MIN: f64 = 0.7;

/// A mean of words says less than a sentence. The number was found like the [weights](crate::recall::Weights) of a ranking.
const WEIGHT: f64 = 0.4;

/// Maximum tokens of a text: the training limit of the models.
const TOKENS_MAX: usize = 512;

/// The name of this kind of model in the identity.
const KIND: &str = "model2vec";

/// The embedder of a local static model. Clones share one model.
#[derive(Clone)]
pub struct Model2VecEmbedder {
    model: Arc<Model>,
}

struct Model {
    identity: String,
    tokenizer: Tokenizer,
    /// The token that stands for unknown words. It has no meaning, so the mean leaves it out.
    unknown_token: Option<u32>,
    token_characters_median: usize,
    dimensions: usize,
    rows: Vec<f32>,
    /// The weight of each token; empty if the model has no weights.
    weights: Vec<f32>,
    /// The row of each token; empty if each token has a row of its own.
    mapping: Vec<usize>,
}

impl std::fmt::Debug for Model2VecEmbedder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Model2VecEmbedder")
            .field("identity", &self.model.identity)
            .field("dimensions", &self.model.dimensions)
            .finish_non_exhaustive()
    }
}

impl Model2VecEmbedder {
    /// Opens the model in a folder, with `model.safetensors` and `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// [`EmbedError::Model`], which names the missing or malformed file.
    pub fn open(folder: &Path) -> Result<Model2VecEmbedder, EmbedError> {
        let files = ModelFiles::read(folder)?;
        let tokenizer = files.tokenizer(TOKENS_MAX)?;
        let written: Value =
            serde_json::from_slice(&files.tokenizer).map_err(|error| files.wrong_tokenizer(&error))?;
        let wrong = |reason: String| files.wrong_tensors(reason);

        let tensors = SafeTensors::deserialize(&files.tensors)
            .map_err(|error| wrong(format!("it is not a safetensors file: {error}")))?;
        let embeddings = tensors
            .tensor("embeddings")
            .or_else(|_| tensors.tensor("embedding.weight"))
            .map_err(|_| {
                wrong("it has no tensor `embeddings`; it must be a model that model2vec wrote".to_owned())
            })?;
        let &[row_count, dimensions] = embeddings.shape() else {
            return Err(wrong(format!(
                "its embeddings have the shape {:?}; they must be one row for each token",
                embeddings.shape()
            )));
        };
        let optional = |name: &str| tensors.tensor(name).ok().map(|tensor| numbers(&tensor));
        let model = Model {
            identity: files.identity(KIND),
            unknown_token: unknown_token(&written, &tokenizer),
            token_characters_median: token_characters_median(&tokenizer),
            dimensions,
            rows: numbers(&embeddings).map_err(wrong)?,
            weights: optional("weights")
                .transpose()
                .map_err(wrong)?
                .unwrap_or_default(),
            mapping: optional("mapping")
                .transpose()
                .map_err(wrong)?
                .unwrap_or_default()
                .into_iter()
                .map(|row| row as usize)
                .collect(),
            tokenizer,
        };
        let tokens = token_ids(&model.tokenizer);
        let is_whole = if model.mapping.is_empty() {
            tokens == row_count
        } else {
            tokens == model.mapping.len() && model.mapping.iter().all(|&row| row < row_count)
        };
        if !is_whole || (!model.weights.is_empty() && model.weights.len() < tokens) {
            return Err(wrong(format!(
                "it has {row_count} rows, and {TOKENIZER_FILE} has {tokens} tokens; both must be of one model"
            )));
        }
        Ok(Model2VecEmbedder {
            model: Arc::new(model),
        })
    }
}

#[async_trait]
impl Embedder for Model2VecEmbedder {
    fn identity(&self) -> String {
        self.model.identity.clone()
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

    fn weight(&self) -> f64 {
        WEIGHT
    }

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vector>, EmbedError> {
        let model = self.model.clone();
        run_model(move || model.embed(&texts)).await
    }
}

impl Model {
    fn embed(&self, texts: &[String]) -> Result<Vec<Vector>, EmbedError> {
        let characters_max = TOKENS_MAX * self.token_characters_median;
        let cut: Vec<&str> = texts
            .iter()
            .map(|text| match text.char_indices().nth(characters_max) {
                Some((end, _)) => &text[..end],
                None => text,
            })
            .collect();
        let encodings = self
            .tokenizer
            .encode_batch_fast(cut, false)
            .map_err(|error| EmbedError::Vectors(format!("a text has no tokens: {error}")))?;
        Ok(encodings
            .iter()
            .map(|encoding| self.mean(encoding.get_ids()))
            .collect())
    }

    /// Computes the direction of the mean of the tokens' rows.
    fn mean(&self, tokens: &[u32]) -> Vector {
        let mut sum = vec![0.0_f32; self.dimensions];
        for &token in tokens.iter().filter(|token| Some(**token) != self.unknown_token) {
            let token = token as usize;
            let weight = self.weights.get(token).copied().unwrap_or(1.0);
            let row = if self.mapping.is_empty() {
                token
            } else {
                self.mapping[token]
            };
            let row = &self.rows[row * self.dimensions..][..self.dimensions];
            for (sum, number) in sum.iter_mut().zip(row) {
                *sum += weight * number;
            }
        }
        // The mean has the direction of the sum.
        Vector::new(sum)
    }
}

/// Finds the token for unknown words: by its text (WordPiece, WordLevel, BPE) or by its number (Unigram).
fn unknown_token(written: &Value, tokenizer: &Tokenizer) -> Option<u32> {
    let model = &written["model"];
    match model["unk_token"].as_str() {
        Some(text) => tokenizer.token_to_id(text),
        None => model["unk_id"].as_u64().and_then(|id| u32::try_from(id).ok()),
    }
}

fn token_characters_median(tokenizer: &Tokenizer) -> usize {
    let mut lengths: Vec<usize> = tokenizer
        .get_vocab(true)
        .keys()
        .map(|token| token.chars().count())
        .collect();
    lengths.sort_unstable();
    lengths.get(lengths.len() / 2).copied().unwrap_or(1).max(1)
}
