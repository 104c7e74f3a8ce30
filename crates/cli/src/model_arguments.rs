//! The command line of models: who extracts, who makes vectors, and how much may be asked of them.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::span::parse_span;

/// Who extracts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExtractorChoice {
    /// A model behind an OpenAI-compatible service.
    Openai,
    /// Rules: no network, the same answer for the same text; weaker than a model.
    Local,
}

/// Who makes vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmbedderChoice {
    /// Nobody.
    None,
    /// A model of the service.
    OpenAi(String),
    /// A static model in a folder.
    Model2Vec(PathBuf),
}

/// The model that is asked for vectors where none is named.
const EMBEDDING_MODEL_DEFAULT: &str = "text-embedding-3-small";

impl FromStr for EmbedderChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':').unwrap_or((text, "")) {
            ("none", "") => Ok(EmbedderChoice::None),
            ("openai", "") => Ok(EmbedderChoice::OpenAi(EMBEDDING_MODEL_DEFAULT.to_owned())),
            ("openai", model) => Ok(EmbedderChoice::OpenAi(model.to_owned())),
            ("model2vec", folder) if !folder.is_empty() => {
                Ok(EmbedderChoice::Model2Vec(PathBuf::from(folder)))
            }
            _ => Err("write none, openai, openai:MODEL or model2vec:FOLDER".to_owned()),
        }
    }
}

/// The model that is asked where none is named.
const MODEL_DEFAULT: &str = "gpt-4o";

/// Which model service is asked.
#[derive(Debug, Args)]
pub struct ServiceArguments {
    /// The model service, up to the version [default: OpenAI's]
    #[arg(long, value_name = "URL", env = "OPENAI_BASE_URL", hide_env_values = true)]
    pub base_url: Option<String>,
    /// The model
    #[arg(
        long,
        value_name = "NAME",
        env = "OPENAI_MODEL",
        hide_env_values = true,
        default_value = MODEL_DEFAULT
    )]
    pub model: String,
    /// How long one model call may take
    #[arg(long, value_name = "SPAN", default_value = "2m", value_parser = parse_span)]
    pub timeout: Duration,
}

/// How vectors are made.
#[derive(Debug, Args)]
pub struct EmbedderArguments {
    /// What makes vectors, by which terms and messages are found by meaning: none, openai, openai:MODEL, or
    /// model2vec:FOLDER for a static model on this machine
    #[arg(
        long,
        value_name = "EMBEDDER",
        default_value = "none",
        env = "GRISTMILL_EMBEDDER",
        hide_env_values = true
    )]
    pub embedder: EmbedderChoice,
    /// The service of the embedder, where it is not that of the model
    #[arg(
        long,
        value_name = "URL",
        env = "OPENAI_EMBEDDING_BASE_URL",
        hide_env_values = true
    )]
    pub embedding_base_url: Option<String>,
}

/// Model calls at once, where nothing else is said.
pub const CALLS_DEFAULT: u32 = 20;

/// How much a model service is asked.
#[derive(Debug, Args)]
pub struct CallArguments {
    /// Tokens a minute that the service allows, both ways [default: what its answers tell]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub tokens_per_minute: Option<u64>,
    /// Requests a minute that the service allows [default: what its answers tell]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests_per_minute: Option<u64>,
    /// Tokens of one chunk's extraction at most [default: the service's limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    pub output_tokens: Option<u32>,
}

/// What workers and agents take to run the extractions of ingestions elsewhere.
#[derive(Debug, Args)]
pub struct ExtractorArguments {
    /// Run the extractions of `gristmill ingest` too, from the queue `extract`: with the extractor and the model that
    /// the ingestion names
    #[arg(long, value_enum)]
    pub extractor: Option<ExtractorChoice>,
    /// The model service of --extractor openai, up to the version [default: OpenAI's]
    #[arg(long, value_name = "URL", env = "OPENAI_BASE_URL", hide_env_values = true)]
    pub model_url: Option<String>,
    /// Its model
    #[arg(
        long,
        value_name = "NAME",
        env = "OPENAI_MODEL",
        hide_env_values = true,
        default_value = MODEL_DEFAULT
    )]
    pub model: String,
    /// How long one model call may take
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
            model: self.model.clone(),
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
        assert_eq!(
            "model2vec:a/b".parse(),
            Ok(EmbedderChoice::Model2Vec(PathBuf::from("a/b")))
        );
        for wrong in ["", "model2vec", "model2vec:", "none:x", "gpt"] {
            assert!(wrong.parse::<EmbedderChoice>().is_err(), "{wrong}");
        }
    }
}
