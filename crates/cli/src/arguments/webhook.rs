//! The arguments of webhooks.

use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use gristmill_engine::Handler;
use gristmill_model::{SystemClock, WEBHOOK_SECRET_VARIABLE};
use gristmill_webhook::{AllowedHost, WebhookOptions, webhook_handler};

use crate::arguments::container::variable;

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
