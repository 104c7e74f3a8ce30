//! Static embeddings from a local folder, as model2vec writes them: a row of numbers for each token, in
//! `model.safetensors`, and the tokens in `tokenizer.json`. A text's vector is the mean of its tokens' rows.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::Value;
use tokenizers::Tokenizer;

use crate::embed::{EmbedError, Embedder, Vector};

/// Texts of one call at most: enough to keep all processors busy, few enough to be stored soon.
const TEXTS_MAX: usize = 4_096;

/// Bytes of one call at most.
const BYTES_MAX: usize = 4 << 20;

/// The cosine from which on a term may stand for another, with models of this kind.
const RELATED_COSINE_MIN: f64 = 0.7;

/// The maximum number of tokens of a text: the models' training limit.
const TOKENS_MAX: usize = 512;

/// Bytes of a model's file at most.
const MODEL_BYTES_MAX: u64 = 4 << 30;

/// The embedder of a local model. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Model2VecEmbedder {
    model: Arc<Model>,
}

struct Model {
    identity: String,
    tokenizer: Tokenizer,
    /// A token that stands for whatever has none of its own, and says nothing.
    unknown_token: Option<u32>,
    token_characters_median: usize,
    dimensions: usize,
    rows: Vec<f32>,
    /// The weight of each token, where the model has weights.
    weights: Vec<f32>,
    /// The row of each token, where several tokens share one.
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
    /// The model in a folder, with `model.safetensors` and `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// [`EmbedError::Model`] with the file that is missing or does not have its form.
    pub fn open(folder: &Path) -> Result<Model2VecEmbedder, EmbedError> {
        let tensors_path = folder.join("model.safetensors");
        let tokenizer_path = folder.join("tokenizer.json");
        let tensors_bytes = read(&tensors_path)?;
        let tokenizer_bytes = read(&tokenizer_path)?;
        let wrong = |reason: String| EmbedError::Model {
            place: tensors_path.display().to_string(),
            reason,
        };
        let wrong_tokenizer = |reason: String| EmbedError::Model {
            place: tokenizer_path.display().to_string(),
            reason: format!("it is not a tokenizer: {reason}"),
        };
        let mut tokenizer =
            Tokenizer::from_bytes(&tokenizer_bytes).map_err(|error| wrong_tokenizer(error.to_string()))?;
        tokenizer.with_padding(None);
        let truncation = tokenizers::TruncationParams {
            max_length: TOKENS_MAX,
            ..tokenizers::TruncationParams::default()
        };
        tokenizer
            .with_truncation(Some(truncation))
            .map_err(|error| wrong_tokenizer(error.to_string()))?;
        let written: Value =
            serde_json::from_slice(&tokenizer_bytes).map_err(|error| wrong_tokenizer(error.to_string()))?;

        let tensors = SafeTensors::deserialize(&tensors_bytes)
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
            identity: identity(folder, &tensors_bytes, &tokenizer_bytes),
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
        let tokens = model.tokenizer.get_vocab_size(true);
        let is_whole = match model.mapping.is_empty() {
            true => tokens == row_count,
            false => tokens == model.mapping.len() && model.mapping.iter().all(|&row| row < row_count),
        };
        if !is_whole || (!model.weights.is_empty() && model.weights.len() < tokens) {
            return Err(wrong(format!(
                "it has {row_count} rows, and {} has {tokens} tokens; both must be of one model",
                tokenizer_path.display()
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

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vector>, EmbedError> {
        let model = self.model.clone();
        match tokio::task::spawn_blocking(move || model.embed(&texts)).await {
            Ok(vectors) => vectors,
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(_) => Err(EmbedError::Vectors("the runtime was shut down".to_owned())),
        }
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

    /// The mean of the tokens' rows.
    fn mean(&self, tokens: &[u32]) -> Vector {
        let mut sum = vec![0.0_f32; self.dimensions];
        for &token in tokens.iter().filter(|token| Some(**token) != self.unknown_token) {
            let token = token as usize;
            let weight = self.weights.get(token).copied().unwrap_or(1.0);
            let row = match self.mapping.is_empty() {
                true => token,
                false => self.mapping[token],
            };
            let row = &self.rows[row * self.dimensions..][..self.dimensions];
            for (sum, number) in sum.iter_mut().zip(row) {
                *sum += weight * number;
            }
        }
        // The mean and the sum have one direction.
        Vector::new(sum)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, EmbedError> {
    let wrong = |reason: String| EmbedError::Model {
        place: path.display().to_string(),
        reason,
    };
    let missing = |error: std::io::Error| {
        wrong(format!(
            "{error}; the folder of a model2vec model has model.safetensors and tokenizer.json"
        ))
    };
    let bytes = std::fs::metadata(path).map_err(missing)?.len();
    if bytes > MODEL_BYTES_MAX {
        return Err(wrong(format!(
            "it has {bytes} bytes; the limit is {MODEL_BYTES_MAX}"
        )));
    }
    std::fs::read(path).map_err(missing)
}

/// The folder's name, and a digest of what is in it.
fn identity(folder: &Path, tensors: &[u8], tokenizer: &[u8]) -> String {
    let name = folder.canonicalize().ok();
    let name = name.as_deref().and_then(Path::file_name).unwrap_or_default();
    let digest = crate::digest::of_parts(&[tensors, tokenizer]);
    format!("model2vec {} {}", name.to_string_lossy(), &digest[..16])
}

/// The token for what is unknown: told by its text (WordPiece, WordLevel, BPE) or by its number (Unigram).
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

/// The numbers of a tensor, as 32-bit floats.
fn numbers(tensor: &TensorView<'_>) -> Result<Vec<f32>, String> {
    fn each<const N: usize>(bytes: &[u8], convert: impl Fn([u8; N]) -> f32) -> Vec<f32> {
        let (whole, _) = bytes.as_chunks::<N>();
        whole.iter().map(|&number| convert(number)).collect()
    }
    let bytes = tensor.data();
    Ok(match tensor.dtype() {
        Dtype::F32 => each(bytes, f32::from_le_bytes),
        Dtype::F64 => each(bytes, |number| f64::from_le_bytes(number) as f32),
        Dtype::F16 => each(bytes, |number| half_to_f32(u16::from_le_bytes(number))),
        Dtype::BF16 => each(bytes, |number| {
            f32::from_bits(u32::from(u16::from_le_bytes(number)) << 16)
        }),
        Dtype::I8 => each(bytes, |[number]| f32::from(number as i8)),
        Dtype::I32 => each(bytes, |number| i32::from_le_bytes(number) as f32),
        Dtype::I64 => each(bytes, |number| i64::from_le_bytes(number) as f32),
        other => return Err(format!("it has numbers of type {other:?}, which is not read")),
    })
}

/// A 16-bit float of IEEE 754.
fn half_to_f32(half: u16) -> f32 {
    let sign = if half >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(half >> 10 & 0x1f), f32::from(half & 0x3ff));
    match exponent {
        0 => sign * fraction * 2.0_f32.powi(-24),
        0x1f if fraction == 0.0 => sign * f32::INFINITY,
        0x1f => f32::NAN,
        exponent => sign * (1.0 + fraction / 1_024.0) * 2.0_f32.powi(exponent - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_16_bit_floats() {
        for (bits, expected) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_95),
            (0x0001, 5.960_464_5e-8),
            (0x7bff, 65_504.0),
            (0x8000, 0.0),
        ] {
            assert_eq!(half_to_f32(bits), expected, "{bits:#06x}");
        }
        assert!(half_to_f32(0x7e00).is_nan() && half_to_f32(0x7c00).is_infinite());
    }
}
