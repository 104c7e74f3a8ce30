//! `gristmill worker`: runs submitted jobs with scripts.

use std::sync::Arc;

use gristmill_engine::WorkerSettings;
use gristmill_model::batch::check_name;

use crate::arguments::WorkerArguments;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::open_store::engine_over;
use crate::working::{Committed, Scripts, tell, until_done};

/// Runs the command.
pub async fn worker(arguments: WorkerArguments) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen()?;
    for queue in &arguments.queues {
        check_name("queue", queue)?;
    }
    let processes = arguments.concurrency.processes();
    let scripts = Scripts::start(&arguments.scripts, &arguments.kinds, processes).await?;
    let settings = WorkerSettings {
        until_empty: arguments.drain,
        concurrency: scripts.concurrency(),
        ..WorkerSettings::default()
    };
    let engine = engine_over(arguments.store.open_or_create().await?, &arguments.lease).await?;
    let mut builder = engine.worker();
    builder
        .settings(settings)
        .queues(arguments.queues.iter().map(String::as_str));
    for (kind, handler) in scripts.handlers {
        builder.handler(kind, handler);
    }
    let committed = Arc::new(Committed::default());
    let running = builder.observer(committed.clone()).start();
    let stopper = running.stopper();
    let quiet = arguments.quiet;
    let ended = until_done(running.join(), &stopper, &committed, &mut interrupt, quiet).await;
    engine.close().await?;
    tell(&ended?, &committed, &interrupt, arguments.json, quiet)
}
