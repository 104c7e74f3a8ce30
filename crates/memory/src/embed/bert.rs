//! BERT models in a local folder: `config.json`, `model.safetensors` and `tokenizer.json`.
//!
//! An embedder, such as all-MiniLM-L6-v2 of sentence-transformers, gives a text the mean of the last layer's outputs for its tokens.
//! A [cross-encoder](pairs), such as ms-marco-MiniLM-L-6-v2, reads a question together with a text, and says how well the text answers.

mod layers;
pub mod pairs;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use safetensors::tensor::SafeTensors;
use serde::Deserialize;
use serde_json::Value;
use tokenizers::{Encoding, Tokenizer};

use crate::embed::files::{ModelFiles, TOKENIZER_FILE, read, token_ids};
use crate::embed::{EmbedError, Embedder, Vector, run_model};
use layers::{Bert, Tokens};

/// Maximum texts of one call. The number is small, so that vectors reach the disk soon and all processors have calls.
const TEXTS_MAX: usize = 128;

/// Maximum bytes of one call: about 4,000 tokens, whose largest intermediate state takes 25 MB.
const BYTES_MAX: usize = 16 << 10;

/// Minimum cosine at which one term may stand for another, with models of this kind.
const RELATED_COSINE_MIN: f64 = 0.7;

/// Maximum tokens of a text: all-MiniLM-L6-v2 was made for as many. The work of a token grows with them.
const TOKENS_MAX: usize = 256;

/// The file that names the kind of a model.
const CONFIG_FILE: &str = "config.json";

/// The name of this kind of model in `config.json` and in the identity.
const KIND: &str = "bert";

/// The embedder of a local BERT model. Clones share one model.
#[derive(Clone)]
pub struct BertEmbedder {
    model: Arc<Model>,
}

struct Model {
    identity: String,
    tokenizer: Tokenizer,
    bert: Bert,
}

/// The part of `config.json` that describes the shape of a model.
#[derive(Debug, Clone, Deserialize)]
struct Config {
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    max_position_embeddings: usize,
    layer_norm_eps: f32,
    hidden_act: String,
}

/// Whether `config.json` in a folder names a BERT model.
pub(super) fn is_bert(folder: &Path) -> bool {
    let config = std::fs::read(folder.join(CONFIG_FILE)).unwrap_or_default();
    serde_json::from_slice::<Value>(&config).is_ok_and(|config| config["model_type"] == KIND)
}

impl std::fmt::Debug for BertEmbedder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("BertEmbedder")
            .field("identity", &self.model.identity)
            .finish_non_exhaustive()
    }
}

/// The files of a BERT model.
struct BertFiles {
    config: Config,
    files: ModelFiles,
    tokenizer: Tokenizer,
}

impl BertFiles {
    /// Reads the files in a folder. The tokenizer cuts each text at `tokens_max` tokens.
    fn read(folder: &Path, tokens_max: usize) -> Result<BertFiles, EmbedError> {
        let config_path = folder.join(CONFIG_FILE);
        let wrong_config = |reason: String| EmbedError::Model {
            place: config_path.display().to_string(),
            reason,
        };
        let config: Config = serde_json::from_slice(&read(&config_path)?)
            .map_err(|error| wrong_config(format!("it does not describe a BERT model: {error}")))?;
        if config.hidden_act != "gelu" {
            return Err(wrong_config(format!(
                "its hidden_act is {:?}; only models with \"gelu\" are read",
                config.hidden_act
            )));
        }
        if config.num_attention_heads == 0 || !config.hidden_size.is_multiple_of(config.num_attention_heads) {
            return Err(wrong_config(format!(
                "{} heads do not share {} dimensions equally",
                config.num_attention_heads, config.hidden_size
            )));
        }
        let files = ModelFiles::read(folder)?;
        let tokenizer = files.tokenizer(tokens_max.min(config.max_position_embeddings))?;
        Ok(BertFiles {
            config,
            files,
            tokenizer,
        })
    }

    /// The tensors.
    fn tensors(&self) -> Result<SafeTensors<'_>, EmbedError> {
        SafeTensors::deserialize(&self.files.tensors)
            .map_err(|error| self.wrong(format!("it is not a safetensors file: {error}")))
    }

    /// The layers, which have a row for each token of the tokenizer.
    fn bert(&self, tensors: &SafeTensors<'_>) -> Result<Bert, EmbedError> {
        let bert = Bert::read(tensors, &self.config).map_err(|reason| self.wrong(reason))?;
        let tokens = token_ids(&self.tokenizer);
        if tokens > bert.tokens() {
            return Err(self.wrong(format!(
                "it has {} rows of words, and the tokenizer has ids up to {tokens}; both must be of one model",
                bert.tokens()
            )));
        }
        Ok(bert)
    }

    fn wrong(&self, reason: String) -> EmbedError {
        self.files.wrong_tensors(reason)
    }
}

impl BertEmbedder {
    /// Opens the model in a folder.
    ///
    /// # Errors
    ///
    /// [`EmbedError::Model`], which names the missing or malformed file.
    pub fn open(folder: &Path) -> Result<BertEmbedder, EmbedError> {
        let read = BertFiles::read(folder, TOKENS_MAX)?;
        let bert = read.bert(&read.tensors()?)?;
        Ok(BertEmbedder {
            model: Arc::new(Model {
                identity: read.files.identity(KIND),
                tokenizer: read.tokenizer,
                bert,
            }),
        })
    }
}

#[async_trait]
impl Embedder for BertEmbedder {
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
        run_model(move || model.embed(texts)).await
    }
}

impl Bert {
    /// The tokens of a text or a pair of texts. A tokenizer may add tokens that are none of its words, which only a text shows.
    fn tokens_of(&self, encoding: &Encoding) -> Result<Tokens, EmbedError> {
        let ids = encoding.get_ids();
        let last = ids.iter().max().map_or(0, |&last| last as usize);
        if last >= self.tokens() || ids.len() > self.positions() {
            return Err(EmbedError::Vectors(format!(
                "{TOKENIZER_FILE} makes {} tokens of a text, the last with the id {last}; the model has {} positions and {} rows of words; \
                 both must be of one model",
                ids.len(),
                self.positions(),
                self.tokens()
            )));
        }
        Ok(Tokens {
            ids: ids.to_vec(),
            kinds: encoding.get_type_ids().iter().map(|&kind| kind.min(1)).collect(),
        })
    }
}

impl Model {
    fn embed(&self, texts: Vec<String>) -> Result<Vec<Vector>, EmbedError> {
        let mut tokens = Vec::with_capacity(texts.len());
        for text in texts {
            // A token has a few letters, so a longer text is cut at the maximum number of tokens anyway.
            let end = text.floor_char_boundary(text.len().min(TOKENS_MAX * 16));
            let encoding = self.tokenizer.encode_fast(&text[..end], true);
            let encoding =
                encoding.map_err(|error| EmbedError::Vectors(format!("a text has no tokens: {error}")))?;
            tokens.push(Tokens {
                kinds: vec![0; encoding.get_ids().len()],
                ..self.bert.tokens_of(&encoding)?
            });
        }
        Ok(self.bert.outputs(&tokens).means())
    }
}
