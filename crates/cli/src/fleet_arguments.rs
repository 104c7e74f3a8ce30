//! The command line of servers, agents and their tokens.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use gristmill_model::batch::DEFAULT_QUEUE;
use gristmill_model::limits::LEASE_JOBS_MAX;
use gristmill_server::Role;

use crate::arguments::{ConcurrencyArguments, LeaseArguments, StoreArguments};
use crate::exit::EXIT_STATUS_HELP;
use crate::model_arguments::ExtractorArguments;
use crate::pressure_arguments::PressureArguments;
use crate::span::parse_span;

/// What a server does beside answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Serves, and runs jobs with its own scripts.
    Standalone,
    /// Serves only.
    Server,
}

const SERVE_HELP: &str = "\
Examples:
  gristmill serve
  gristmill serve --mode standalone resize.py --kind resize
  gristmill token create --role agent --group gpu --trust trust
  gristmill serve --listen 0.0.0.0:8378 --trust trust --tls-cert cert.pem --tls-key key.pem

The API is under /api/v1, and /api/v1/openapi.json describes it. Without --trust the server listens on
loopback only, and whoever reaches it there may do everything.";

/// `gristmill serve`.
#[derive(Debug, Args)]
#[command(after_help = format!("{SERVE_HELP}\n\n{EXIT_STATUS_HELP}"))]
pub struct ServeArguments {
    /// The scripts that a standalone server runs
    #[arg(value_name = "SCRIPT")]
    pub scripts: Vec<PathBuf>,
    /// Whether jobs are run here too [env: MODE] [default: standalone where there are scripts, else server]
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,
    /// The kind that a script runs, one for each in their order [default: script:FILE]
    #[arg(long = "kind", value_name = "KIND")]
    pub kinds: Vec<String>,
    /// A queue that the scripts take jobs from; may be repeated
    #[arg(long = "queue", value_name = "QUEUE", default_value = DEFAULT_QUEUE)]
    pub queues: Vec<String>,
    /// Where to listen; another address than loopback needs --trust
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:8378",
        env = "GRISTMILL_LISTEN"
    )]
    pub listen: SocketAddr,
    /// The folder of keys and tokens; see `gristmill token`
    #[arg(long, value_name = "DIR", env = "GRISTMILL_TRUST")]
    pub trust: Option<PathBuf>,
    /// The certificate for TLS, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub concurrency: ConcurrencyArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub lease: LeaseArguments,
    /// Say nothing
    #[arg(short, long)]
    pub quiet: bool,
}

const AGENT_HELP: &str = "\
Examples:
  gristmill agent resize.py --kind resize --base-url http://127.0.0.1:8378
  gristmill agent extract.ts --batch 10000 --queue slow -j 4 --base-url https://jobs.example:8378 --token-file token
  AGENT_TOKEN=… BASE_URL=https://a.example:8378,https://b.example:8378 gristmill agent a.py --batch 1000
  gristmill agent --extractor openai --concurrency 64 --batch 1000 --base-url https://jobs.example:8378 --token-file token

Without --batch one job is taken, run and reported after the other; -j, --concurrency and --threads let several be at
once. Of several servers of one store, the first is used until it does not answer, then the next one. The token stands in the environment
(AGENT_TOKEN) or in a file, which is read again when the token has expired; never among the arguments.";

/// `gristmill agent`.
#[derive(Debug, Args)]
#[command(after_help = format!("{AGENT_HELP}\n\n{EXIT_STATUS_HELP}"))]
pub struct AgentArguments {
    /// The scripts
    #[arg(required_unless_present = "extractor", value_name = "SCRIPT")]
    pub scripts: Vec<PathBuf>,
    /// The kind that a script runs, one for each in their order [default: script:FILE]
    #[arg(long = "kind", value_name = "KIND")]
    pub kinds: Vec<String>,
    /// A queue that the scripts take jobs from; may be repeated
    #[arg(long = "queue", value_name = "QUEUE", default_value = DEFAULT_QUEUE)]
    pub queues: Vec<String>,
    /// The server, or several of one store with commas between them; may be repeated [env: BASE_INTERNAL_URL, else
    /// BASE_URL] [default: http://127.0.0.1:8378]
    #[arg(long = "base-url", value_name = "URL", value_delimiter = ',')]
    pub base_urls: Vec<String>,
    /// The file that holds the token [default: the environment's AGENT_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Take and report jobs in batches, of up to so many [default: one job at a time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=LEASE_JOBS_MAX as i64))]
    pub batch: Option<u32>,
    /// The agent's name, for people [default: agent-PID]
    #[arg(long)]
    pub name: Option<String>,
    /// A certificate to check the server's against, PEM, beside those of the system
    #[arg(long, value_name = "FILE")]
    pub ca_cert: Option<PathBuf>,
    /// Send the token to another machine in clear text, on a network that you trust
    #[arg(long)]
    pub plain_http: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub concurrency: ConcurrencyArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub extractor: ExtractorArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub pressure: PressureArguments,
    /// End when nothing is left to run
    #[arg(long)]
    pub drain: bool,
    /// Print the totals at the end as JSON
    #[arg(long)]
    pub json: bool,
    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
}

const TOKEN_HELP: &str = "\
Examples:
  gristmill token create --role agent --group gpu --queue slow --expires 30d > token
  gristmill token create --role submit --group web --queue '*'
  gristmill token list
  gristmill token revoke 5f3a9c01d2e4b67788
  gristmill token rotate-key

The folder holds the signing keys (keys.json, secret) and the list of tokens (tokens.json). Servers that are
started with --trust on the same folder, or on a copy of it, see changes within a second.";

/// `gristmill token`.
#[derive(Debug, Args)]
#[command(after_help = format!("{TOKEN_HELP}\n\n{EXIT_STATUS_HELP}"))]
pub struct TokenArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// What is done with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it; makes the folder and its first key where there are none
    Create(TokenCreateArguments),
    /// List all tokens, without their signatures
    List(TokenListArguments),
    /// Refuse tokens from now on
    Revoke(TokenRevokeArguments),
    /// Sign new tokens with a new key; older tokens hold until they expire
    RotateKey(TrustArguments),
}

/// Where keys and tokens are kept.
#[derive(Debug, Args)]
pub struct TrustArguments {
    /// The folder of keys and tokens
    #[arg(
        long,
        value_name = "DIR",
        default_value = "gristmill-trust",
        env = "GRISTMILL_TRUST"
    )]
    pub trust: PathBuf,
}

/// `gristmill token create`.
#[derive(Debug, Args)]
pub struct TokenCreateArguments {
    /// What the token is for: admin, submit or agent
    #[arg(long)]
    pub role: Role,
    /// The worker group, or whoever submits
    #[arg(long, value_name = "NAME")]
    pub group: String,
    /// A queue that the token reaches; may be repeated; * for all
    #[arg(long = "queue", value_name = "QUEUE", default_value = DEFAULT_QUEUE)]
    pub queues: Vec<String>,
    /// How long the token holds
    #[arg(long, value_name = "SPAN", default_value = "30d", value_parser = parse_span)]
    pub expires: Duration,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub trust: TrustArguments,
}

/// `gristmill token list`.
#[derive(Debug, Args)]
pub struct TokenListArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub trust: TrustArguments,
    /// Print one JSON object a token
    #[arg(long)]
    pub json: bool,
}

/// `gristmill token revoke`.
#[derive(Debug, Args)]
pub struct TokenRevokeArguments {
    /// The tokens' ids, as `gristmill token list` shows them
    #[arg(required = true, value_name = "ID")]
    pub tokens: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub trust: TrustArguments,
}
