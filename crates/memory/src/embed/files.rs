//! The files of a local model: its tensors, its tokenizer, and the numbers in them.

use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorView};
use tokenizers::{PostProcessor, Tokenizer};

use crate::embed::EmbedError;

/// The file that holds the tensors.
pub(super) const TENSORS_FILE: &str = "model.safetensors";

/// The file that holds the tokenizer.
pub(super) const TOKENIZER_FILE: &str = "tokenizer.json";

/// Maximum bytes of a file of a model.
const MODEL_BYTES_MAX: u64 = 4 << 30;

/// The files that every local model has.
pub(super) struct ModelFiles {
    folder: PathBuf,
    pub(super) tensors: Vec<u8>,
    pub(super) tokenizer: Vec<u8>,
}

impl ModelFiles {
    /// Reads the files in a folder.
    pub(super) fn read(folder: &Path) -> Result<ModelFiles, EmbedError> {
        Ok(ModelFiles {
            folder: folder.to_path_buf(),
            tensors: read(&folder.join(TENSORS_FILE))?,
            tokenizer: read(&folder.join(TOKENIZER_FILE))?,
        })
    }

    /// Makes the tokenizer, which does not pad, and cuts each text at `tokens_max` tokens.
    pub(super) fn tokenizer(&self, tokens_max: usize) -> Result<Tokenizer, EmbedError> {
        let wrong = |error: Box<dyn std::error::Error + Send + Sync>| self.wrong_tokenizer(&*error);
        let mut tokenizer = Tokenizer::from_bytes(&self.tokenizer).map_err(wrong)?;
        tokenizer.with_padding(None);
        let processor = tokenizer.get_post_processor();
        let added = processor.map_or(0, |processor| {
            processor.added_tokens(false).max(processor.added_tokens(true))
        });
        if added >= tokens_max {
            return Err(EmbedError::Model {
                place: self.folder.join(TOKENIZER_FILE).display().to_string(),
                reason: format!(
                    "it adds up to {added} tokens to a text, and the model takes {tokens_max}, so that no text has room; both must be \
                     of one model"
                ),
            });
        }
        let truncation = tokenizers::TruncationParams {
            max_length: tokens_max,
            ..tokenizers::TruncationParams::default()
        };
        tokenizer.with_truncation(Some(truncation)).map_err(wrong)?;
        Ok(tokenizer)
    }

    /// Makes the error for a malformed tokenizer.
    pub(super) fn wrong_tokenizer(&self, error: &dyn std::error::Error) -> EmbedError {
        EmbedError::Model {
            place: self.folder.join(TOKENIZER_FILE).display().to_string(),
            reason: format!("it is not a tokenizer: {error}"),
        }
    }

    /// Makes the error for malformed tensors.
    pub(super) fn wrong_tensors(&self, reason: String) -> EmbedError {
        EmbedError::Model {
            place: self.folder.join(TENSORS_FILE).display().to_string(),
            reason,
        }
    }

    /// Joins the kind of the model, the folder's name, and a digest of the files.
    pub(super) fn identity(&self, kind: &str) -> String {
        let name = self.folder.canonicalize().ok();
        let name = name.as_deref().and_then(Path::file_name).unwrap_or_default();
        let digest = crate::digest::of_parts(&[&self.tensors, &self.tokenizer]);
        format!("{kind} {} {}", name.to_string_lossy(), &digest[..16])
    }
}

/// Finds the number that no token's id reaches. Ids may have gaps, so the number of tokens may be smaller.
pub(super) fn token_ids(tokenizer: &Tokenizer) -> usize {
    let last = tokenizer.get_vocab(true).into_values().max();
    last.map_or(0, |last| last as usize + 1)
}

/// Reads a file of a model.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, EmbedError> {
    let wrong = |reason: String| EmbedError::Model {
        place: path.display().to_string(),
        reason,
    };
    let missing = |error: std::io::Error| {
        wrong(format!(
            "{error}; the folder of a local model has {TENSORS_FILE} and {TOKENIZER_FILE}"
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

/// Converts the numbers of a tensor to 32-bit floats.
pub(super) fn numbers(tensor: &TensorView<'_>) -> Result<Vec<f32>, String> {
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

/// Converts a 16-bit float of IEEE 754.
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
