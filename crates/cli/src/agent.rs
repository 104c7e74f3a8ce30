//! `gristmill agent`: runs jobs of a server with scripts.

use std::sync::Arc;

use anyhow::Context;
use gristmill_agent::{AgentToken, HttpSource, HttpSourceOptions, agent_settings};
use gristmill_engine::WorkerSettings;
use gristmill_model::{SplitMix64, SystemClock};
use gristmill_worker::Worker;

use crate::exit::Exit;
use crate::fleet_arguments::AgentArguments;
use crate::interrupt::Interrupt;
use crate::working::{Committed, Handlers, tell, until_done};

/// The environment's variable that holds the token: it would be seen by everybody among the arguments.
const TOKEN_VARIABLE: &str = "AGENT_TOKEN";

/// Runs the command.
pub async fn agent(arguments: AgentArguments) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen()?;
    let token = match &arguments.token_file {
        Some(path) => Some(AgentToken::from_file(path)?),
        None => std::env::var(TOKEN_VARIABLE)
            .ok()
            .filter(|text| !text.is_empty())
            .map(|text| AgentToken::new(&text))
            .transpose()
            .with_context(|| format!("{TOKEN_VARIABLE} cannot be used"))?,
    };
    let mut options = HttpSourceOptions::new(arguments.base_url.clone());
    if let Some(name) = &arguments.name {
        options.name.clone_from(name);
    }
    options.token = token;
    options.ca_certificate.clone_from(&arguments.ca_cert);
    options.allow_plain_http = arguments.plain_http;
    options.jobs_per_exchange_max = Some(arguments.batch.unwrap_or(1));
    // Two agents that lose the same server should not come back in step.
    let seed = u64::from(std::process::id());
    let source = HttpSource::new(options, Arc::new(SystemClock), Box::new(SplitMix64::new(seed)))?;

    let one_at_a_time = arguments.batch.is_none();
    let processes = if one_at_a_time {
        1
    } else {
        arguments.concurrency.processes()
    };
    let extracting = arguments.extractor.extracting().await?;
    let handlers =
        Handlers::of_scripts(&arguments.scripts, &arguments.kinds, &arguments.queues, processes).await?;
    let handlers = handlers.with_extractions(extracting)?;
    let settings = WorkerSettings {
        until_empty: arguments.drain,
        backpressure: arguments.pressure.backpressure(),
        ..handlers.settings()
    };
    let settings = agent_settings(settings, one_at_a_time);
    let committed = Arc::new(Committed::default());
    let mut worker = Worker::new(
        Arc::new(source),
        settings,
        committed.clone(),
        Arc::new(SystemClock),
    );
    for (kind, handler) in handlers.by_kind {
        worker.handle(kind, handler);
    }
    let (stopper, quiet) = (worker.stopper(), arguments.quiet);
    let summary = until_done(worker.run(), &stopper, &committed, &mut interrupt, quiet).await?;
    tell(&summary, &committed, &interrupt, arguments.json, quiet)
}
