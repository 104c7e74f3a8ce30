//! `gristmill worker`: runs submitted jobs with scripts.

use std::ops::ControlFlow;
use std::sync::Arc;

use gristmill_engine::WorkerSettings;

use crate::arguments::worker::WorkerArguments;
use crate::exit::Exit;
use crate::fleet::working::{Committed, Handlers, held_by_pauses, tell, until_done};
use crate::interrupt::Interrupt;
use crate::store::open::engine_over;

/// Runs the command.
pub async fn worker(arguments: WorkerArguments) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen()?;
    let concurrency = &arguments.concurrency;
    #[cfg(feature = "full")]
    let extracting = arguments.extractor.extracting(concurrency).await?;
    let (scripts, kinds, queues) = (&arguments.scripts, &arguments.kinds, &arguments.queues);
    let passed = &arguments.environment.passed;
    let handlers = Handlers::of_scripts(scripts, kinds, queues, concurrency.of_scripts(), passed).await?;
    #[cfg(feature = "full")]
    let handlers = handlers.with_extractions(extracting)?;
    #[cfg(feature = "full")]
    let handlers = handlers.with_webhooks(arguments.webhooks.handler()?, queues)?;
    let settings = WorkerSettings {
        until_empty: arguments.drain,
        backpressure: arguments.pressure.backpressure(),
        ..handlers.settings()
    };
    let store = match arguments.store.open_when_reachable(&mut interrupt).await? {
        ControlFlow::Continue(store) => store,
        ControlFlow::Break(exit) => return Ok(exit),
    };
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
    let lanes = handlers.lanes();
    let engine = engine_over(store, &arguments.lease).await?;
    let mut builder = engine.worker();
    builder.settings(settings);
    for (kind, handler) in handlers.by_kind {
        builder.handler(kind, handler);
    }
    let committed = Arc::new(Committed::default());
    let running = builder.observer(committed.clone()).start();
    let stopper = running.stopper();
    let quiet = arguments.quiet;
    let ended = until_done(running.join(), &stopper, &committed, &mut interrupt, quiet).await;
    if arguments.drain && !quiet && ended.is_ok() {
        for line in held_by_pauses(&**engine.store(), &lanes).await? {
            say!("gristmill: left behind: {line}");
        }
    }
    engine.close().await?;
    tell(&ended?, &committed, &interrupt, arguments.json, quiet)
}
