//! The arguments of `gristmill worker`.

use std::path::PathBuf;

use clap::Args;

#[cfg(feature = "full")]
use crate::arguments::model::ExtractorArguments;
#[cfg(feature = "full")]
use crate::arguments::model::llm::LlmWorkerArguments;
use crate::arguments::pressure::PressureArguments;
use crate::arguments::shared::{
    ConcurrencyArguments, EnvironmentArguments, LeaseArguments, StopArguments, StoreArguments,
};
#[cfg(feature = "full")]
use crate::arguments::webhook::WebhookArguments;
use crate::exit::EXIT_STATUS_HELP;

const WORKER_HELP: &str = "\
Examples:
  gristmill worker resize.py
  gristmill worker extract.ts --queue slow --queue default -j 4
  gristmill worker fetch.py --threads 16
  gristmill worker call.ts -j 2 --concurrency 200
  gristmill worker a.py b.py --kind a --kind b --drain
  gristmill worker --llm --concurrency 64 --prices prices.toml
  gristmill worker --extractor openai --model gpt-4o-mini --concurrency 64 --store postgresql://jobs@db.example/jobs";

/// `gristmill worker`.
#[derive(Debug, Args)]
#[command(after_help = format!("{WORKER_HELP}\n\n{EXIT_STATUS_HELP}"))]
pub struct WorkerArguments {
    /// The scripts
    #[cfg_attr(feature = "full", arg(required_unless_present_any = ["extractor", "http_hooks", "llm"], value_name = "SCRIPT"))]
    #[cfg_attr(not(feature = "full"), arg(required = true, value_name = "SCRIPT"))]
    pub scripts: Vec<PathBuf>,
    /// The kind of each script, in the order of the scripts [default: the file's name without its suffix]
    #[arg(long = "kind", value_name = "KIND")]
    pub kinds: Vec<String>,
    /// A queue to claim jobs from; repeatable
    #[arg(long = "queue", value_name = "QUEUE", default_value = gristmill_model::batch::DEFAULT_QUEUE)]
    pub queues: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub concurrency: ConcurrencyArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub environment: EnvironmentArguments,
    #[cfg(feature = "full")]
    #[command(flatten)]
    #[allow(missing_docs)]
    pub extractor: ExtractorArguments,
    #[cfg(feature = "full")]
    #[command(flatten)]
    #[allow(missing_docs)]
    pub webhooks: WebhookArguments,
    #[cfg(feature = "full")]
    #[command(flatten)]
    #[allow(missing_docs)]
    pub llm: LlmWorkerArguments,
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
    pub store: StoreArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub lease: LeaseArguments,
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
