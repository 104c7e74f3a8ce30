//! The arguments of completion hooks.

use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use gristmill_engine::Handler;
use gristmill_model::{HookTarget, Hooks, SystemClock, WEBHOOK_SECRET_VARIABLE};
use gristmill_webhook::{AllowedHost, WebhookOptions, webhook_handler};

use crate::arguments::container::variable;

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

/// The hosts of webhooks.
#[derive(Debug, Args)]
pub struct WebhookArguments {
    /// Run jobs of the kind http, such as the URLs of --on-success: post their summaries to this host, as in
    /// hooks.example:8443; repeatable; no other host gets requests. The secret in GRISTMILL_HOOK_SECRET signs them
    #[arg(long, value_name = "HOST")]
    pub http_hooks: Vec<AllowedHost>,
}

impl WebhookArguments {
    /// The handler of webhooks, if a host is allowed.
    pub fn handler(&self) -> anyhow::Result<Option<Arc<dyn Handler>>> {
        if self.http_hooks.is_empty() {
            return Ok(None);
        }
        let secret = variable(WEBHOOK_SECRET_VARIABLE)?;
        let secret = secret.with_context(|| {
            format!("--http-hooks signs its requests: set {WEBHOOK_SECRET_VARIABLE}, for example to the output of openssl rand -base64 32")
        })?;
        let options = WebhookOptions {
            allowed: self.http_hooks.clone(),
            secret: secret
                .parse()
                .with_context(|| format!("the environment's {WEBHOOK_SECRET_VARIABLE}"))?,
            clock: Arc::new(SystemClock),
        };
        Ok(Some(webhook_handler(options)?))
    }
}
