//! The arguments of models: extractor, embedder, service and limits.

pub mod llm;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::span::parse_span;

/// The extractor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExtractorChoice {
    /// A model behind an OpenAI-compatible service.
    Openai,
    /// Rules: no network, the same answer for the same text; weaker than a model.
    Local,
}

/// A model on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalModel {
    /// A model in a folder.
    Folder(PathBuf),
    /// A model in the folder with this name among the user's models.
    Named(String),
}

impl LocalModel {
    /// Parses the folder or the name of a model. A folder has a slash or begins with a point.
    fn parse(text: &str) -> Option<LocalModel> {
        let is_name = |text: &str| {
            !text.is_empty()
                && text
                    .chars()
                    .all(|letter| letter.is_alphanumeric() || "-_.".contains(letter))
        };
        match text {
            _ if text.contains('/') || text.starts_with('.') => Some(LocalModel::Folder(PathBuf::from(text))),
            _ if is_name(text) => Some(LocalModel::Named(text.to_owned())),
            _ => None,
        }
    }
}

/// The embedder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmbedderChoice {
    /// No embedder.
    None,
    /// A model of the service.
    OpenAi(String),
    /// A model on this machine.
    Local(LocalModel),
}

/// The default embedding model.
const EMBEDDING_MODEL_DEFAULT: &str = "text-embedding-3-small";

impl FromStr for EmbedderChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':').unwrap_or((text, "")) {
            ("none", "") => Ok(EmbedderChoice::None),
            ("openai", "") => Ok(EmbedderChoice::OpenAi(EMBEDDING_MODEL_DEFAULT.to_owned())),
            ("openai", model) => Ok(EmbedderChoice::OpenAi(model.to_owned())),
            _ => LocalModel::parse(text).map(EmbedderChoice::Local).ok_or_else(|| {
                "write none, openai, openai:MODEL, the folder of a model such as ./minilm, or the name of one"
                    .to_owned()
            }),
        }
    }
}

/// The second ranking of the first messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RerankChoice {
    /// No second ranking.
    None,
    /// The model of the service ranks them, in one call.
    Model,
    /// A cross-encoder on this machine ranks them.
    Local(LocalModel),
}

impl FromStr for RerankChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(RerankChoice::None),
            "model" => Ok(RerankChoice::Model),
            _ => LocalModel::parse(text).map(RerankChoice::Local).ok_or_else(|| {
                "write none, model, the folder of a cross-encoder such as ./reranker, or the name of one"
                    .to_owned()
            }),
        }
    }
}

/// The default model.
const MODEL_DEFAULT: &str = "gpt-4o";

/// The model service.
#[derive(Debug, Args)]
pub struct ServiceArguments {
    /// The base URL of the model service, including the version [default: OpenAI's]
    #[arg(long, value_name = "URL", env = "OPENAI_BASE_URL", hide_env_values = true)]
    pub base_url: Option<String>,
    /// The model [default: gpt-4o]
    #[arg(long, value_name = "NAME", env = "OPENAI_MODEL", hide_env_values = true)]
    pub model: Option<String>,
    /// Time limit of one model call
    #[arg(long, value_name = "SPAN", default_value = "2m", value_parser = parse_span)]
    pub timeout: Duration,
}

impl ServiceArguments {
    /// Whether the user names a model or its address. A key alone names none: it may be there for another program.
    pub fn is_named(&self) -> bool {
        self.base_url.is_some() || self.model.is_some()
    }

    /// The model's name.
    pub fn model(&self) -> String {
        self.model.clone().unwrap_or_else(|| MODEL_DEFAULT.to_owned())
    }
}

/// The embedder's arguments.
#[derive(Debug, Args)]
pub struct EmbedderArguments {
    /// The embedder, to find terms and messages by meaning: none, openai, openai:MODEL, or a model on this machine,
    /// by its folder (./minilm) or its name (minilm) among the folders in $GRISTMILL_MODELS, which is
    /// ~/.local/share/gristmill/models by default
    #[arg(
        long,
        value_name = "EMBEDDER",
        default_value = "none",
        env = "GRISTMILL_EMBEDDER",
        hide_env_values = true
    )]
    pub embedder: EmbedderChoice,
    /// The base URL of the embedding service [default: the model service's]
    #[arg(
        long,
        value_name = "URL",
        env = "OPENAI_EMBEDDING_BASE_URL",
        hide_env_values = true
    )]
    pub embedding_base_url: Option<String>,
}

/// The default number of concurrent model calls.
pub const CALLS_DEFAULT: u32 = 20;

/// The default number of short texts that one call reads. The instructions are paid for once for all of them.
const TEXTS_PER_CALL_DEFAULT: u32 = 20;

/// The limits of a model service.
#[derive(Debug, Args)]
pub struct CallArguments {
    /// The service's limit of tokens a minute, input and output [default: as the service reports]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub tokens_per_minute: Option<u64>,
    /// The service's limit of requests a minute [default: as the service reports]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests_per_minute: Option<u64>,
    /// The maximum number of output tokens for one chunk [default: the service's limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    pub output_tokens: Option<u32>,
    /// The maximum number of short texts, such as lines of a chat, that one call reads together
    #[arg(
        long,
        value_name = "N",
        env = "GRISTMILL_TEXTS_PER_CALL",
        hide_env_values = true,
        default_value_t = TEXTS_PER_CALL_DEFAULT,
        value_parser = clap::value_parser!(u32).range(1..=100)
    )]
    pub texts_per_call: u32,
}

/// Arguments of workers and agents that run the extractions of an ingestion.
#[derive(Debug, Args)]
pub struct ExtractorArguments {
    /// Also run the extractions of `gristmill ingest`, from the queue `extract`; use the ingestion's extractor and model
    #[arg(long, value_enum)]
    pub extractor: Option<ExtractorChoice>,
    /// The base URL of the service of --extractor openai, including the version [default: OpenAI's]
    #[arg(long, value_name = "URL", env = "OPENAI_BASE_URL", hide_env_values = true)]
    pub model_url: Option<String>,
    /// The service's model
    #[arg(
        long,
        value_name = "NAME",
        env = "OPENAI_MODEL",
        hide_env_values = true,
        default_value = MODEL_DEFAULT
    )]
    pub model: String,
    /// Time limit of one model call
    #[arg(long, value_name = "SPAN", default_value = "2m", value_parser = parse_span)]
    pub model_timeout: Duration,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub calls: CallArguments,
}

impl ExtractorArguments {
    /// The model service.
    pub fn service(&self) -> ServiceArguments {
        ServiceArguments {
            base_url: self.model_url.clone(),
            model: Some(self.model.clone()),
            timeout: self.model_timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_embedders() {
        assert_eq!("none".parse(), Ok(EmbedderChoice::None));
        assert_eq!("openai:m:1".parse(), Ok(EmbedderChoice::OpenAi("m:1".to_owned())));
        for folder in ["./minilm", "/srv/a:b", "../models/minilm", "a/b"] {
            let local = LocalModel::Folder(PathBuf::from(folder));
            assert_eq!(folder.parse(), Ok(EmbedderChoice::Local(local.clone())));
            assert_eq!(folder.parse(), Ok(RerankChoice::Local(local)));
        }
        let named = LocalModel::Named("minilm".to_owned());
        assert_eq!("minilm".parse(), Ok(EmbedderChoice::Local(named.clone())));
        assert_eq!("minilm".parse(), Ok(RerankChoice::Local(named)));
        assert_eq!("model".parse(), Ok(RerankChoice::Model));
        for wrong in ["", "model2vec:a", "none:x", "gpt:4", "mini lm"] {
            assert!(wrong.parse::<EmbedderChoice>().is_err(), "{wrong}");
            assert!(wrong.parse::<RerankChoice>().is_err(), "{wrong}");
        }
    }
}
