//! `gristmill worker`: runs submitted jobs with scripts.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, bail};
use gristmill_engine::{Observer, WorkerSettings, WorkerSummary};
use gristmill_model::batch::check_name;
use gristmill_model::{Receipt, Report};
use serde_json::json;

use crate::arguments::WorkerArguments;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::open_store::engine_over;
use crate::output::print_line;
use crate::progress::{Progress, Snapshot};
use crate::run::{ScriptIdentity, kind_of};
use crate::script::{detect, start};
use crate::span::show_count;

/// What the worker has committed, for its progress.
#[derive(Debug, Default)]
struct Committed {
    completed: AtomicU64,
    dead: AtomicU64,
    retried: AtomicU64,
    reports: AtomicU64,
}

impl Observer for Committed {
    fn committed(&self, report: &Report, receipt: &Receipt) {
        let failed = report
            .failed
            .iter()
            .filter(|failed| receipt.accepted.contains(failed.position))
            .count() as u64;
        let dead = u64::from(receipt.dead.len());
        let completed = report.completed.as_ref().map_or(0, |completed| {
            completed.positions.len() - completed.positions.intersection(&receipt.refused).len()
        });
        self.completed.fetch_add(completed.into(), Ordering::Relaxed);
        self.dead.fetch_add(dead, Ordering::Relaxed);
        self.retried
            .fetch_add(failed.saturating_sub(dead), Ordering::Relaxed);
        self.reports.fetch_add(1, Ordering::Relaxed);
    }
}

impl Committed {
    fn look(&self) -> Snapshot {
        let [completed, failed, retried, reports] =
            [&self.completed, &self.dead, &self.retried, &self.reports]
                .map(|count| count.load(Ordering::Relaxed));
        Snapshot {
            completed,
            failed,
            retried,
            batch_jobs_mean: if reports > 0 {
                (completed + failed) as f64 / reports as f64
            } else {
                0.0
            },
            ..Snapshot::default()
        }
    }
}

/// Runs the command.
pub async fn worker(arguments: WorkerArguments) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen()?;
    for queue in &arguments.queues {
        check_name("queue", queue)?;
    }
    let processes = arguments.concurrency.processes();
    let mut handlers = Vec::new();
    for (kind, script) in kinds(&arguments)? {
        handlers.push((kind, start(script, processes).await?));
    }
    // Each script's own bound holds beside this one.
    let concurrency = handlers
        .iter()
        .filter_map(|(_, handler)| handler.concurrency())
        .sum::<usize>()
        .max(1);
    let settings = WorkerSettings {
        until_empty: arguments.drain,
        concurrency,
        ..WorkerSettings::default()
    };
    let engine = engine_over(arguments.store.open_or_create()?).await?;
    let mut builder = engine.worker();
    builder
        .settings(settings)
        .queues(arguments.queues.iter().map(String::as_str));
    for (kind, handler) in handlers {
        builder.handler(kind, handler);
    }
    let committed = Arc::new(Committed::default());
    let running = builder.observer(committed.clone()).start();
    let stopper = running.stopper();
    let progress = Progress::new(arguments.quiet, false);
    let ended = {
        let work = running.join();
        tokio::pin!(work);
        let show = progress.show(|| committed.look());
        tokio::pin!(show);
        let mut asked = false;
        loop {
            tokio::select! {
                ended = &mut work => break ended,
                () = &mut show => {}
                _ = interrupt.wait(), if !asked => {
                    asked = true;
                    if !arguments.quiet {
                        eprintln!("\ngristmill: finishing what is running; once more to leave at once");
                    }
                    stopper.stop();
                }
            }
        }
    };
    engine.close().await?;
    let summary = ended?;
    tell(&arguments, &summary, &committed)?;
    Ok(
        match (interrupt.asked(), committed.dead.load(Ordering::Relaxed)) {
            (Some(exit), _) => exit,
            (None, 0) => Exit::Done,
            (None, _) => Exit::SomeFailed,
        },
    )
}

/// Which script runs which kind.
fn kinds(arguments: &WorkerArguments) -> anyhow::Result<Vec<(String, gristmill_runtime::Script)>> {
    if !arguments.kinds.is_empty() && arguments.kinds.len() != arguments.scripts.len() {
        bail!(
            "there are {} scripts and {} kinds: give one --kind for each script, in their order, or none",
            arguments.scripts.len(),
            arguments.kinds.len()
        );
    }
    let mut seen = HashSet::new();
    let mut pairs = Vec::new();
    for (index, path) in arguments.scripts.iter().enumerate() {
        let script = detect(Some(path), &[])?;
        let kind = match arguments.kinds.get(index) {
            Some(kind) => kind.clone(),
            None => {
                let identity = ScriptIdentity::read(script.path(), Vec::new());
                kind_of(&identity.with_context(|| format!("{} cannot be read", path.display()))?)
            }
        };
        check_name("kind", &kind)?;
        if !seen.insert(kind.clone()) {
            bail!("two scripts are to run the kind `{kind}`; give each its own --kind");
        }
        pairs.push((kind, script));
    }
    Ok(pairs)
}

fn tell(arguments: &WorkerArguments, summary: &WorkerSummary, committed: &Committed) -> anyhow::Result<()> {
    let dead = committed.dead.load(Ordering::Relaxed);
    if arguments.json {
        let totals = json!({
            "completed": summary.completed,
            "failed_attempts": summary.failed,
            "dead": dead,
            "refused": summary.refused,
        });
        return Ok(print_line(&totals.to_string())?);
    }
    if !arguments.quiet {
        eprintln!(
            "{} jobs completed, {} attempts failed, {} jobs are dead",
            show_count(summary.completed),
            show_count(summary.failed),
            show_count(dead)
        );
    }
    Ok(())
}
