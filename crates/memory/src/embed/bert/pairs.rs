//! A cross-encoder: a BERT model that reads a question and a text together, such as ms-marco-MiniLM-L-6-v2. It knows better than
//! vectors how well a text answers, and reads each text anew for each question.

use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;

use futures::future::try_join_all;
use tokenizers::Tokenizer;

use super::BertFiles;
use super::layers::{Bert, Head};
use crate::embed::{EmbedError, run_model};

/// Maximum tokens of a question and a text together. The work of a token grows with them, and texts of conversations are shorter.
const TOKENS_MAX: usize = 256;

/// The name of this kind of model in its identity.
const KIND: &str = "cross-encoder";

/// A local cross-encoder. Clones share one model.
#[derive(Clone)]
pub struct CrossEncoder {
    model: Arc<Model>,
}

struct Model {
    identity: String,
    tokenizer: Tokenizer,
    bert: Bert,
    head: Head,
}

impl std::fmt::Debug for CrossEncoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CrossEncoder")
            .field("identity", &self.model.identity)
            .finish_non_exhaustive()
    }
}

impl PartialEq for CrossEncoder {
    fn eq(&self, other: &Self) -> bool {
        self.model.identity == other.model.identity
    }
}

impl CrossEncoder {
    /// Opens the model in a folder: a BERT model with a head that gives one number.
    ///
    /// # Errors
    ///
    /// [`EmbedError::Model`], which names the missing or malformed file.
    pub fn open(folder: &Path) -> Result<CrossEncoder, EmbedError> {
        let read = BertFiles::read(folder, TOKENS_MAX)?;
        let tensors = read.tensors()?;
        let bert = read.bert(&tensors)?;
        let head = Head::read(&tensors, &read.config).map_err(|reason| read.wrong(reason))?;
        if bert.kinds() < 2 {
            return Err(read.wrong("it has one kind of text; a model that ranks has two".to_owned()));
        }
        Ok(CrossEncoder {
            model: Arc::new(Model {
                identity: read.files.identity(KIND),
                tokenizer: read.tokenizer,
                bert,
                head,
            }),
        })
    }

    /// Tells how well each text answers the question, in the same order. A higher number is better; numbers of two questions are not
    /// comparable.
    ///
    /// # Errors
    ///
    /// [`EmbedError::Vectors`] if the model has no number for a text.
    pub async fn scores(&self, question: &str, texts: Vec<String>) -> Result<Vec<f64>, EmbedError> {
        let count = texts.len();
        let at_once = count
            .div_ceil(available_parallelism().map_or(1, usize::from))
            .max(1);
        let parts = texts.chunks(at_once).map(|texts| {
            let (model, question, texts) = (self.model.clone(), question.to_owned(), texts.to_vec());
            run_model(move || model.scores(&question, &texts))
        });
        let scores: Vec<f64> = try_join_all(parts).await?.concat();
        assert_eq!(scores.len(), count, "each text has a score");
        if scores.iter().any(|score| score.is_nan()) {
            return Err(EmbedError::Vectors(format!(
                "the model {} has no number for a text; its file is damaged",
                self.model.identity
            )));
        }
        Ok(scores)
    }
}

impl Model {
    fn scores(&self, question: &str, texts: &[String]) -> Result<Vec<f64>, EmbedError> {
        let cut = |text: &str| text[..text.floor_char_boundary(text.len().min(TOKENS_MAX * 16))].to_owned();
        let question = cut(question);
        let mut tokens = Vec::with_capacity(texts.len());
        for text in texts {
            let encoding = self
                .tokenizer
                .encode_fast((question.as_str(), cut(text)), true)
                .map_err(|error| EmbedError::Vectors(format!("a text has no tokens: {error}")))?;
            tokens.push(self.bert.tokens_of(&encoding)?);
        }
        if let Some(empty) = tokens.iter().position(|tokens| tokens.ids.is_empty()) {
            return Err(EmbedError::Vectors(format!(
                "text {} has no tokens; the tokenizer of a model that ranks puts [CLS] before each pair",
                empty + 1
            )));
        }
        Ok(self.head.scores(&self.bert.outputs(&tokens)))
    }
}
