//! `gristmill serve`: the HTTP API over a store. In the mode standalone, a worker runs in the same process.

use std::sync::Arc;

use anyhow::bail;
use gristmill_engine::{Engine, WorkerSettings};
use gristmill_server::{ServeOptions, TlsFiles, bind};

use crate::arguments::container::{MODE_VARIABLE, variable};
use crate::arguments::fleet::{Mode, ServeArguments};
use crate::exit::Exit;
use crate::fleet::working::{Committed, Handlers};
use crate::interrupt::{CLOSE_MAX, Interrupt, how_it_ends, summary_of};
use crate::memory::served::served_knowledge;
use crate::script::Keeping;
use crate::store::open::engine_over;
use crate::telemetry::Telemetry;

/// The mode in the environment, if it names one.
fn mode_of_environment() -> anyhow::Result<Option<Mode>> {
    match variable(MODE_VARIABLE)?.as_deref() {
        None => Ok(None),
        Some("standalone") => Ok(Some(Mode::Standalone)),
        Some("server") => Ok(Some(Mode::Server)),
        Some(other) => bail!(
            "the environment's {MODE_VARIABLE} is `{other}`, which a server cannot be: unset it, set it to standalone or \
             server, or write --mode"
        ),
    }
}

async fn open(arguments: &ServeArguments) -> anyhow::Result<Engine> {
    let store = arguments.store.open_when_reachable(false).await?;
    engine_over(store, &arguments.lease).await
}

/// Runs the command.
pub async fn serve(arguments: ServeArguments, telemetry: Option<&Telemetry>) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen_with_grace(arguments.stop.grace)?;
    let webhooks = arguments.webhooks.handler()?;
    let llm = arguments.llm.handler(&arguments.concurrency, None)?;
    let runs_jobs = !arguments.scripts.is_empty() || webhooks.is_some() || llm.is_some();
    let mode = match arguments.mode {
        Some(mode) => mode,
        None => mode_of_environment()?.unwrap_or(if runs_jobs { Mode::Standalone } else { Mode::Server }),
    };
    let handlers = match (mode, runs_jobs) {
        (Mode::Server, false) => None,
        (Mode::Server, true) => bail!(
            "--mode server runs no jobs: use --mode standalone, start agents with these scripts, or start gristmill worker with \
             --http-hooks or --llm"
        ),
        (Mode::Standalone, false) => {
            bail!("--mode standalone needs scripts, --http-hooks or --llm: name them, or use --mode server")
        }
        (Mode::Standalone, true) => {
            let (scripts, queues) = (&arguments.scripts, &arguments.queues);
            let keeping = Keeping::new(arguments.concurrency.of_scripts(), false, arguments.reload);
            let (kinds, passed) = (&arguments.kinds, &arguments.environment.passed);
            let handlers = Handlers::of_scripts(scripts, kinds, queues, keeping, passed).await?;
            Some(handlers.with_webhooks(webhooks, queues)?.with_llm(llm, queues)?)
        }
    };
    let engine = tokio::select! {
        engine = open(&arguments) => engine?,
        exit = interrupt.wait() => return Ok(exit),
    };
    let tls = arguments.tls_cert.zip(arguments.tls_key);
    let knowledge = served_knowledge(arguments.memory).await?;
    let options = ServeOptions {
        listen: arguments.listen,
        trust: arguments.trust,
        tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
        knowledge,
        monitors_see_payloads: arguments.monitors_see_payloads,
        ..ServeOptions::default()
    };
    let server = bind(engine.clone(), options).await?;
    if let Some(telemetry) = telemetry {
        telemetry.push_metrics(server.metrics_reader());
    }
    if !arguments.quiet {
        say!("gristmill: listening on {}", server.base_url());
    }
    let worker = handlers.map(|handlers| {
        let mut builder = engine.worker();
        builder
            .settings(WorkerSettings {
                grace: arguments.stop.grace,
                ..handlers.settings()
            })
            .observer(Arc::new(Committed::default()));
        for (kind, handler) in handlers.by_kind {
            builder.handler(kind, handler);
        }
        builder.start()
    });
    let mut asked = interrupt.clone();
    let stopper = worker.as_ref().map(|worker| worker.stopper());
    let (stop, quiet, works) = (arguments.stop, arguments.quiet, worker.is_some());
    let served = server
        .run(async move {
            asked.wait().await;
            if !quiet && works {
                say!(
                    "\ngristmill: {}; press Ctrl-C again to exit immediately",
                    how_it_ends(stop)
                );
            }
            // The worker finishes its running jobs while the server answers its last requests.
            if let Some(stopper) = stopper {
                stopper.stop();
            }
        })
        .await;
    let worked = match worker {
        Some(worker) => summary_of(worker.stop().await, &interrupt).map(|_| ()),
        None => Ok(()),
    };
    interrupt.end_within(CLOSE_MAX);
    engine.close().await?;
    served?;
    worked?;
    Ok(interrupt.wait().await)
}
