//! `gristmill agent`: runs jobs of a server with scripts.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use gristmill_agent::{AgentToken, HttpSource, HttpSourceOptions, ServerListener, agent_settings};
use gristmill_engine::WorkerSettings;
use gristmill_model::{SplitMix64, SystemClock};
use gristmill_worker::Worker;

use crate::arguments::container::variable;
use crate::arguments::fleet::AgentArguments;
use crate::arguments::shared::ConcurrencyArguments;
use crate::exit::Exit;
use crate::fleet::working::{Committed, Handlers, tell, until_done};
use crate::interrupt::Interrupt;
use crate::script::Keeping;

/// The environment variable with the token. Every user of the machine could read it among the arguments.
const TOKEN_VARIABLE: &str = "AGENT_TOKEN";

/// The default server.
const BASE_URL_DEFAULT: &str = "http://127.0.0.1:8378";

/// The variables that name servers. The first one that is set decides. If there are two addresses, programs beside the
/// server use the internal one.
const BASE_URL_VARIABLES: [&str; 2] = ["BASE_INTERNAL_URL", "BASE_URL"];

/// The servers that the arguments or the environment name, if any.
fn servers(written: &[String]) -> anyhow::Result<Vec<String>> {
    let mut named: Vec<String> = separated(&written.join(","));
    for name in BASE_URL_VARIABLES {
        if named.is_empty()
            && let Some(text) = variable(name)?
        {
            named = separated(&text);
        }
    }
    Ok(named)
}

/// The token for servers, from the file or from the environment.
pub fn token(file: Option<&Path>) -> anyhow::Result<Option<AgentToken>> {
    match file {
        Some(path) => Ok(Some(AgentToken::from_file(path)?)),
        None => std::env::var(TOKEN_VARIABLE)
            .ok()
            .filter(|text| !text.is_empty())
            .map(|text| AgentToken::new(&text))
            .transpose()
            .with_context(|| format!("{TOKEN_VARIABLE} cannot be used")),
    }
}

fn separated(text: &str) -> Vec<String> {
    let words = text.split(|letter: char| letter == ',' || letter.is_whitespace());
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

async fn handlers(
    arguments: &AgentArguments,
    concurrency: &ConcurrencyArguments,
) -> anyhow::Result<Handlers> {
    let extracting = arguments.extractor.extracting(concurrency).await?;
    let (scripts, kinds, queues) = (&arguments.scripts, &arguments.kinds, &arguments.queues);
    let passed = &arguments.environment.passed;
    let keeping = Keeping::new(concurrency.of_scripts(), arguments.drain, arguments.reload);
    let handlers = Handlers::of_scripts(scripts, kinds, queues, keeping, passed).await?;
    handlers.with_extractions(extracting)
}

/// Runs the command.
pub async fn agent(arguments: AgentArguments) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen_with_grace(arguments.stop.grace)?;
    let token = token(arguments.token_file.as_deref())?;
    let mut base_urls = servers(&arguments.base_urls)?;
    if base_urls.is_empty() {
        base_urls.push(BASE_URL_DEFAULT.to_owned());
    }
    let mut options = HttpSourceOptions {
        base_urls,
        ..HttpSourceOptions::new("")
    };
    if !arguments.quiet {
        options.listener = Some(ServerListener::new(|news| say!("gristmill: {news}")));
    }
    if let Some(name) = &arguments.name {
        options.name.clone_from(name);
    }
    options.token = token;
    options.ca_certificate.clone_from(&arguments.ca_cert);
    options.allow_plain_http = arguments.plain_http;
    options.jobs_per_exchange_max = Some(arguments.batch.unwrap_or(1));
    // Two agents that lose the same server should not return in step.
    let seed = u64::from(std::process::id());
    let source = HttpSource::new(options, Arc::new(SystemClock), Box::new(SplitMix64::new(seed)))?;

    let one_at_a_time = arguments.batch.is_none();
    let concurrency = if one_at_a_time {
        arguments.concurrency.one_at_a_time()
    } else {
        arguments.concurrency.clone()
    };
    let handlers = tokio::select! {
        handlers = handlers(&arguments, &concurrency) => handlers?,
        exit = interrupt.wait() => return Ok(exit),
    };
    if !arguments.quiet {
        say!("gristmill: {}", handlers.describe());
    }
    let settings = WorkerSettings {
        until_empty: arguments.drain,
        backpressure: arguments.pressure.backpressure(),
        grace: arguments.stop.grace,
        ..handlers.settings()
    };
    let slots = arguments.scripts.len() * concurrency.of_scripts().processes
        + usize::from(arguments.extractor.extractor.is_some())
            * concurrency.of_scripts().concurrency as usize;
    let settings = agent_settings(settings, one_at_a_time.then_some(slots));
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
    let (stopper, stop, quiet) = (worker.stopper(), arguments.stop, arguments.quiet);
    let ended = until_done(worker.run(), &stopper, &committed, &mut interrupt, stop, quiet).await;
    tell(ended, &committed, &interrupt, arguments.json, quiet)
}
