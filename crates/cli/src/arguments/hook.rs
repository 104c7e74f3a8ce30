//! The arguments of completion hooks.

use clap::Args;
use gristmill_model::{HookTarget, Hooks};

/// The recipients of a summary.
#[derive(Debug, Args)]
pub struct HookArguments {
    /// When all jobs have completed, submit a job of this kind with a summary as its payload; a URL instead of a kind
    /// gets the summary from a worker with --http-hooks
    #[arg(long, value_name = "KIND|URL")]
    pub on_success: Option<HookTarget>,
    /// The same, when all jobs have ended and one has failed or was cancelled
    #[arg(long, value_name = "KIND|URL")]
    pub on_failure: Option<HookTarget>,
}

impl HookArguments {
    /// The hooks, if there are any.
    pub fn hooks(&self) -> Option<Box<Hooks>> {
        Hooks::of(self.on_success.clone(), self.on_failure.clone())
    }
}
