//! `gristmill llm`: a model is asked for every item of an input, durably. And workers that run such jobs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use gristmill_engine::Handler;
use gristmill_llm::job::{Endpoint, LlmHandler, LlmSettings};
use gristmill_llm::limits::DENIED_PAUSE;
use gristmill_llm::service::limiter::LimiterSettings;

use crate::arguments::model::CALLS_DEFAULT;
use crate::arguments::model::llm::{LlmArguments, LlmWorkerArguments};
use crate::arguments::run::Halt;
use crate::arguments::shared::ConcurrencyArguments;
use crate::exit::Exit;
use crate::run::{ModelWork, Work, run_items};

/// The time limit of one call of a worker. The providers' own packages have the same.
const CALL_TIMEOUT: Duration = Duration::from_secs(600);

/// The failures after which a run stops, unless others are given. Each attempt costs money.
const HALT_DEFAULT: Halt = Halt::Percent(50.0);

/// Runs the command.
pub async fn llm(mut arguments: LlmArguments) -> anyhow::Result<Exit> {
    let work = ModelWork::of(&arguments)?;
    arguments.items.halt = arguments.items.halt.or(Some(HALT_DEFAULT));
    run_items(arguments.items, arguments.inputs, Work::Model(Box::new(work))).await
}

impl LlmWorkerArguments {
    /// The handler of requests to models, if they are wanted. `limits` are those of the calls.
    pub fn handler(
        &self,
        concurrency: &ConcurrencyArguments,
        limits: Option<LimiterSettings>,
    ) -> anyhow::Result<Option<Arc<dyn Handler>>> {
        if !self.llm {
            return Ok(None);
        }
        let endpoints = Endpoint::all(None);
        if endpoints.is_empty() {
            bail!(
                "--llm calls models: set OPENAI_API_KEY or ANTHROPIC_API_KEY (or one of them with _FILE) in the environment, or \
                 OPENAI_BASE_URL for a service that needs no key"
            );
        }
        let settings = LlmSettings {
            endpoints,
            timeout: CALL_TIMEOUT,
            limits: LimiterSettings {
                concurrency: concurrency.concurrency.unwrap_or(CALLS_DEFAULT) as usize,
                ..limits.unwrap_or_default()
            },
            prices: self.prices.read()?,
            denied_pause: Some(DENIED_PAUSE),
        };
        let handler = LlmHandler::new(settings);
        let mut denied = handler.denied();
        tokio::spawn(async move {
            while denied.changed().await.is_ok() {
                let reason = denied.borrow_and_update().clone().unwrap_or_default();
                say!(
                    "gristmill: warning: {reason}; jobs of this provider wait, and it is asked again every {} s",
                    DENIED_PAUSE.as_secs()
                );
            }
        });
        Ok(Some(Arc::new(handler)))
    }
}
