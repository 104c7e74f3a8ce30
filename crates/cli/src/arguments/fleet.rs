//! The command line of servers, agents and their tokens.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use gristmill_model::batch::DEFAULT_QUEUE;
use gristmill_model::limits::LEASE_JOBS_MAX;
use gristmill_server::Role;

use crate::arguments::memory::parse_knowledge;
use crate::arguments::model::ExtractorArguments;
use crate::arguments::model::llm::LlmWorkerArguments;
use crate::arguments::pressure::PressureArguments;
use crate::arguments::shared::{
    ConcurrencyArguments, EnvironmentArguments, LeaseArguments, StopArguments, StoreArguments, Synchronous,
};
use crate::arguments::webhook::WebhookArguments;
use crate::exit::EXIT_STATUS_HELP;
use crate::span::parse_span;
use crate::store::location::StoreLocation;

/// The commands of servers and agents.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Serve the HTTP API, for clients and agents
    Serve(ServeArguments),
    /// Show a store in the browser
    Dashboard(DashboardArguments),
    /// Run a server's jobs with scripts until Ctrl-C
    Agent(AgentArguments),
    /// Create, list and revoke a server's tokens
    Token(TokenArguments),
}

/// The mode of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Serve, and run jobs with scripts.
    Standalone,
    /// Serve only.
    Server,
}

const SERVE_HELP: &str = "\
Examples:
  gristmill serve
  gristmill serve --mode standalone resize.py --kind resize
  gristmill token create --role agent --group gpu --trust trust
  gristmill serve --listen 0.0.0.0:8378 --trust trust --tls-cert cert.pem --tls-key key.pem

The API is under /api/v1, and /api/v1/openapi.json describes it. Without --trust, the server listens on
loopback only and gives every caller full access.";

/// `gristmill serve`.
#[derive(Debug, Args)]
#[command(after_help = format!("{SERVE_HELP}\n\n{EXIT_STATUS_HELP}"))]
pub struct ServeArguments {
    /// The scripts of a standalone server
    #[arg(value_name = "SCRIPT")]
    pub scripts: Vec<PathBuf>,
    /// Serve only, or run jobs too [env: MODE] [default: standalone with scripts, --http-hooks or --llm, else server]
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,
    /// The kind of each script, in the order of the scripts [default: the file's name without its suffix]
    #[arg(long = "kind", value_name = "KIND")]
    pub kinds: Vec<String>,
    /// A queue to claim jobs from; repeatable
    #[arg(long = "queue", value_name = "QUEUE", default_value = DEFAULT_QUEUE)]
    pub queues: Vec<String>,
    /// The address to listen on; other addresses than loopback need --trust
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:8378",
        env = "GRISTMILL_LISTEN"
    )]
    pub listen: SocketAddr,
    /// The folder of keys and tokens: see `gristmill token`
    #[arg(long, value_name = "DIR", env = "GRISTMILL_TRUST")]
    pub trust: Option<PathBuf>,
    /// The TLS certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub concurrency: ConcurrencyArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub environment: EnvironmentArguments,
    /// Replace a script's processes when it changes, or a module of its own that it imports at its start; without this,
    /// all of them are replaced when one has to be
    #[arg(long)]
    pub reload: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub webhooks: WebhookArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub llm: LlmWorkerArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub lease: LeaseArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub stop: StopArguments,
    /// A knowledge base to show on the page Memory: a file, or postgresql://user@host/database
    #[arg(long, value_name = "KB", value_parser = parse_knowledge)]
    pub memory: Option<StoreLocation>,
    /// Show payloads, values, tracebacks and logs of jobs to tokens for `monitor`, too
    #[arg(long, requires = "trust")]
    pub monitors_see_payloads: bool,
    /// Print nothing
    #[arg(short, long)]
    pub quiet: bool,
}

const DASHBOARD_HELP: &str = "\
Examples:
  gristmill dashboard
  gristmill dashboard jobs.db --listen 127.0.0.1:8400
  gristmill dashboard postgresql://user@host/database --no-open

The page is served on loopback alone, until Ctrl-C. `gristmill serve` has the same page at its address.";

/// `gristmill dashboard`.
#[derive(Debug, Args)]
#[command(after_help = format!("{DASHBOARD_HELP}\n\n{EXIT_STATUS_HELP}"))]
pub struct DashboardArguments {
    /// The store: a file, or a database such as postgresql://user@host/database
    #[arg(
        value_name = "STORE",
        default_value = "gristmill.db",
        env = "GRISTMILL_STORE",
        hide_env_values = true,
        value_parser = OsStringValueParser::new().try_map(|text| StoreLocation::parse(&text))
    )]
    pub location: StoreLocation,
    /// The store, by the name of this option in all other commands
    #[arg(
        long = "store",
        value_name = "STORE",
        hide = true,
        value_parser = OsStringValueParser::new().try_map(|text| StoreLocation::parse(&text))
    )]
    pub named: Option<StoreLocation>,
    /// The loopback address to listen on; port 0 stands for a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// A knowledge base to show on the page Memory: a file, or postgresql://user@host/database
    #[arg(long, value_name = "KB", value_parser = parse_knowledge)]
    pub memory: Option<StoreLocation>,
    /// Print the address only
    #[arg(long)]
    pub no_open: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub lease: LeaseArguments,
}

impl DashboardArguments {
    /// The store, with full durability.
    pub fn store(&self) -> StoreArguments {
        StoreArguments {
            store: self.named.as_ref().unwrap_or(&self.location).clone(),
            synchronous: Synchronous::Full,
        }
    }
}

const AGENT_HELP: &str = "\
Examples:
  gristmill agent resize.py --kind resize --base-url http://127.0.0.1:8378
  gristmill agent extract.ts --batch 10000 --queue slow -j 4 --base-url https://jobs.example:8378 --token-file token
  AGENT_TOKEN=… BASE_URL=https://a.example:8378,https://b.example:8378 gristmill agent a.py --batch 1000
  gristmill agent --extractor openai --concurrency 64 --batch 1000 --base-url https://jobs.example:8378 --token-file token

Without --batch, the agent claims, runs and reports one job after the other; -j, --concurrency and --threads raise the
number. The agent uses the first server until it fails to answer, then the next one. The token comes from the
environment (AGENT_TOKEN) or a file, never from an argument. The agent reads the file again when the token has expired.";

/// `gristmill agent`.
#[derive(Debug, Args)]
#[command(after_help = format!("{AGENT_HELP}\n\n{EXIT_STATUS_HELP}"))]
pub struct AgentArguments {
    /// The scripts
    #[arg(required_unless_present = "extractor", value_name = "SCRIPT")]
    pub scripts: Vec<PathBuf>,
    /// The kind of each script, in the order of the scripts [default: the file's name without its suffix]
    #[arg(long = "kind", value_name = "KIND")]
    pub kinds: Vec<String>,
    /// A queue to claim jobs from; repeatable
    #[arg(long = "queue", value_name = "QUEUE", default_value = DEFAULT_QUEUE)]
    pub queues: Vec<String>,
    /// The server, or several servers of one store, separated by commas; repeatable [env: BASE_INTERNAL_URL, else
    /// BASE_URL] [default: http://127.0.0.1:8378]
    #[arg(long = "base-url", value_name = "URL", value_delimiter = ',')]
    pub base_urls: Vec<String>,
    /// The file with the token [default: the environment variable AGENT_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Claim and report jobs in batches of up to N [default: one job at a time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=LEASE_JOBS_MAX as i64))]
    pub batch: Option<u32>,
    /// The agent's display name [default: agent-PID]
    #[arg(long)]
    pub name: Option<String>,
    /// A CA certificate to verify the server with, as PEM, in addition to the system's
    #[arg(long, value_name = "FILE")]
    pub ca_cert: Option<PathBuf>,
    /// Allow a token in clear text over plain HTTP to another machine: only on a trusted network
    #[arg(long)]
    pub plain_http: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub concurrency: ConcurrencyArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub environment: EnvironmentArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub extractor: ExtractorArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub pressure: PressureArguments,
    /// Replace a script's processes when it changes, or a module of its own that it imports at its start; without this,
    /// all of them are replaced when one has to be
    #[arg(long)]
    pub reload: bool,
    /// Exit when nothing is left to run
    #[arg(long)]
    pub drain: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub stop: StopArguments,
    /// Print the totals as JSON at the end
    #[arg(long)]
    pub json: bool,
    /// Print no progress
    #[arg(short, long)]
    pub quiet: bool,
}

const TOKEN_HELP: &str = "\
Examples:
  gristmill token create --role agent --group gpu --queue slow --expires 30d > token
  gristmill token create --role submit --group web --queue '*'
  gristmill token create --event 42:7 approve --group ada --expires 2d
  gristmill token list
  gristmill token revoke 5f3a9c01d2e4b67788
  gristmill token rotate-key

The folder holds the signing keys (keys.json, secret) and the list of tokens (tokens.json). Servers with
--trust on the same folder, or on a copy of it, see changes within a second.";

/// `gristmill token`.
#[derive(Debug, Args)]
#[command(after_help = format!("{TOKEN_HELP}\n\n{EXIT_STATUS_HELP}"))]
pub struct TokenArguments {
    /// The command.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// The commands over tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token and print it; creates the folder and its first key if needed
    Create(TokenCreateArguments),
    /// List all tokens, without their signatures
    List(TokenListArguments),
    /// Revoke tokens
    Revoke(TokenRevokeArguments),
    /// Sign new tokens with a new key; existing tokens stay valid until they expire
    RotateKey(TokenRotateKeyArguments),
}

/// The folder of keys and tokens.
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
    /// The token's role: admin, operator, submit, agent or monitor
    #[arg(long, required_unless_present = "event")]
    pub role: Option<Role>,
    /// The worker group, or the submitting program
    #[arg(long, value_name = "NAME")]
    pub group: String,
    /// A queue that the token gives access to; repeatable; * for all
    #[arg(long = "queue", value_name = "QUEUE", default_value = DEFAULT_QUEUE)]
    pub queues: Vec<String>,
    /// Allow nothing but sending this event to this flow, as in --event 42:7 approve
    #[arg(long, num_args = 2, value_names = ["JOB", "NAME"], conflicts_with_all = ["role", "queues"])]
    pub event: Vec<String>,
    /// The token's lifetime
    #[arg(long, value_name = "SPAN", default_value = "30d", value_parser = parse_span)]
    pub expires: Duration,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub trust: TrustArguments,
    /// Print the token and its record as JSON
    #[arg(long)]
    pub json: bool,
}

/// `gristmill token list`.
#[derive(Debug, Args)]
pub struct TokenListArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub trust: TrustArguments,
    /// Print one JSON line for each token
    #[arg(long)]
    pub json: bool,
}

/// `gristmill token revoke`.
#[derive(Debug, Args)]
pub struct TokenRevokeArguments {
    /// The tokens' ids: see `gristmill token list`
    #[arg(required = true, value_name = "ID")]
    pub tokens: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub trust: TrustArguments,
    /// Print one JSON line for each token
    #[arg(long)]
    pub json: bool,
}

/// `gristmill token rotate-key`.
#[derive(Debug, Args)]
pub struct TokenRotateKeyArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub trust: TrustArguments,
    /// Print the key's id as JSON
    #[arg(long)]
    pub json: bool,
}
