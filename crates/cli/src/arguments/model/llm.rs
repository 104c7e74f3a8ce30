//! The arguments of `gristmill llm`, and of programs that run its jobs.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gristmill_llm::provider::Provider;

use super::CALLS_DEFAULT;
use crate::arguments::run::ItemsArguments;
use crate::exit::EXIT_STATUS_HELP;
use crate::span::parse_span;

const LLM_HELP: &str = "\
An item is a prompt (a JSON string, or a line with --format lines), or a request: an object with `prompt`, `messages`
or `body`, and with `model`, `provider`, `system`, `schema`, `max_tokens`, `temperature` or `sample` of its own. With
--template, an item is any data, whose fields fill the template.

The key comes from OPENAI_API_KEY or ANTHROPIC_API_KEY, or from the file that OPENAI_API_KEY_FILE or
ANTHROPIC_API_KEY_FILE names. A result has the text or the JSON, the tokens and the cost:
{\"job\":\"1:7\",\"value\":{\"text\":…,\"model\":…,\"tokens\":{\"input\":9,\"output\":4,\"cached\":0},\"cost\":…,\"lane\":\"live\"}}

Examples:
  gristmill llm prompts.jsonl --model gpt-4o-mini --output answers.jsonl
  gristmill llm reviews.csv --template 'Is this review kind? {text}' --schema kind.json --model gpt-4o-mini
  gristmill llm questions.txt --format lines --provider anthropic --model claude-haiku-4-5 --max-tokens 500
  gristmill llm prompts.jsonl --model llama --base-url http://127.0.0.1:8080/v1 --concurrency 8

Run the same command again to resume after Ctrl-C, a crash or a reboot: answers that are stored are not asked for
again. After failures, run it with --retry-failed, with other options if they help. Equal requests of one batch are
sent once (a process knows the last 1,024 answers); a different `sample` in each lets a model answer the same several
times. A run stops at once when the provider refuses the key, and when more than half of at least 20 requests failed,
unless --halt says otherwise.";

/// `gristmill llm`.
#[derive(Debug, Args)]
#[command(after_help = format!("{LLM_HELP}\n\n{EXIT_STATUS_HELP}"))]
pub struct LlmArguments {
    /// The items: files, plain, .gz or .zst, or patterns such as 'data/*.jsonl'; - is standard input [default: standard
    /// input, if it is piped]
    #[arg(value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,
    /// The model of items that name none
    #[arg(short, long, value_name = "NAME")]
    pub model: Option<String>,
    /// The provider of items that name none: openai, also for compatible servers, or anthropic
    #[arg(long, value_name = "NAME", default_value = "openai")]
    pub provider: Provider,
    /// The base URL of the provider's service [default: OPENAI_BASE_URL or ANTHROPIC_BASE_URL of the environment, or the
    /// provider's own]
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// The prompt for each item; {} is the item, {field} a field of it; @FILE reads it from a file
    #[arg(long, value_name = "TEXT|@FILE")]
    pub template: Option<String>,
    /// The instructions of items that have none; @FILE reads them from a file
    #[arg(long, value_name = "TEXT|@FILE")]
    pub system: Option<String>,
    /// A file with the JSON schema of the answers; one that does not have its form fails
    #[arg(long, value_name = "FILE")]
    pub schema: Option<PathBuf>,
    /// Maximum tokens of an answer [default: the model's own limit; 4096 for anthropic]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: Option<u32>,
    /// The temperature [default: the model's own]
    #[arg(long, value_name = "NUMBER")]
    pub temperature: Option<f64>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub prices: PricesArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub items: ItemsArguments,
    /// Concurrent calls of each model
    #[arg(
        long,
        value_name = "N",
        default_value_t = CALLS_DEFAULT,
        value_parser = clap::value_parser!(u32).range(1..=4_096),
        help_heading = "Speed"
    )]
    pub concurrency: u32,
    /// The limit of tokens a minute, input and output [default: as the service reports]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Speed")]
    pub tokens_per_minute: Option<u64>,
    /// The limit of requests a minute [default: as the service reports]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Speed")]
    pub requests_per_minute: Option<u64>,
    /// Time limit of one call; the time in which a job waits for its turn does not count
    #[arg(long, value_name = "SPAN", default_value = "10m", value_parser = parse_span, help_heading = "Speed")]
    pub call_timeout: Duration,
}

/// The prices of models.
#[derive(Debug, Args)]
pub struct PricesArguments {
    /// A TOML file with the prices of a million tokens by model: [gpt-4o-mini] with input, output and perhaps cached
    #[arg(long, value_name = "FILE", env = "GRISTMILL_PRICES", hide_env_values = true)]
    pub prices: Option<PathBuf>,
}

/// Arguments of programs that run jobs of the kind `llm`.
#[derive(Debug, Args)]
pub struct LlmWorkerArguments {
    /// Run jobs of the kind llm, such as submitted requests to models; the providers' keys and addresses come from the
    /// environment (OPENAI_API_KEY, OPENAI_BASE_URL, ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL)
    #[arg(long)]
    pub llm: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub prices: PricesArguments,
}
