//! `gristmill worker`: runs submitted jobs with scripts.

use std::sync::Arc;

use gristmill_engine::{Engine, WorkerSettings};

#[cfg(feature = "full")]
use crate::arguments::model::CALLS_DEFAULT;
use crate::arguments::worker::WorkerArguments;
use crate::exit::Exit;
use crate::fleet::working::{Committed, Handlers, held_by_pauses, tell, until_done};
use crate::interrupt::Interrupt;
use crate::script::Keeping;
use crate::store::open::engine_over;

/// Runs the command.
pub async fn worker(arguments: WorkerArguments) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen_with_grace(arguments.stop.grace)?;
    let (engine, handlers) = tokio::select! {
        begun = begin(&arguments) => begun?,
        exit = interrupt.wait() => return Ok(exit),
    };
    let settings = WorkerSettings {
        until_empty: arguments.drain,
        backpressure: arguments.pressure.backpressure(),
        grace: arguments.stop.grace,
        ..handlers.settings()
    };
    let lanes = handlers.lanes();
    let mut builder = engine.worker();
    builder.settings(settings);
    for (kind, handler) in handlers.by_kind {
        builder.handler(kind, handler);
    }
    let committed = Arc::new(Committed::default());
    let running = builder.observer(committed.clone()).start();
    let stopper = running.stopper();
    let (stop, quiet) = (arguments.stop, arguments.quiet);
    let ended = until_done(running.join(), &stopper, &committed, &mut interrupt, stop, quiet).await;
    if arguments.drain && !quiet && ended.is_ok() {
        for line in held_by_pauses(&**engine.store(), &lanes).await? {
            say!("gristmill: left behind: {line}");
        }
    }
    engine.close().await?;
    tell(ended, &committed, &interrupt, arguments.json, quiet)
}

/// Starts the scripts, opens the store, and reports what is served.
async fn begin(arguments: &WorkerArguments) -> anyhow::Result<(Engine, Handlers)> {
    let concurrency = &arguments.concurrency;
    #[cfg(feature = "full")]
    let extracting = arguments.extractor.extracting(concurrency).await?;
    let (scripts, kinds, queues) = (&arguments.scripts, &arguments.kinds, &arguments.queues);
    let passed = &arguments.environment.passed;
    let keeping = Keeping::new(concurrency.of_scripts(), arguments.drain, arguments.reload);
    let handlers = Handlers::of_scripts(scripts, kinds, queues, keeping, passed).await?;
    #[cfg(feature = "full")]
    let handlers = handlers.with_extractions(extracting)?;
    #[cfg(feature = "full")]
    let handlers = handlers.with_webhooks(arguments.webhooks.handler()?, queues)?;
    #[cfg(feature = "full")]
    let handlers = {
        let limits = arguments.extractor.calls.limits(CALLS_DEFAULT);
        handlers.with_llm(arguments.llm.handler(concurrency, Some(limits))?, queues)?
    };
    let store = arguments.store.open_when_reachable(true).await?;
    if !arguments.quiet {
        say!("gristmill: {}", handlers.describe());
        let stats = store.stats().await?;
        if !arguments.drain {
            for line in held_by_pauses(&*store, &handlers.lanes()).await? {
                say!("gristmill: {line}");
            }
        }
        for line in handlers.unserved(&stats, &store.workers().await?) {
            say!("gristmill: warning: {line}");
        }
    }
    Ok((engine_over(store, &arguments.lease).await?, handlers))
}
