//! Shared parts of commands that run submitted jobs: handlers, progress, end.

use std::collections::HashSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use gristmill_engine::{Handler, Observer, SourceError, Stopper, WorkerSettings, WorkerSummary};
use gristmill_model::batch::check_name;
use gristmill_model::{Receipt, Report};
use gristmill_store::{Store, StoreStats, WorkerRow};
use serde_json::json;

use crate::arguments::shared::StopArguments;
use crate::exit::Exit;
use crate::interrupt::{CLOSE_MAX, Interrupt, how_it_ends, summary_of};
use crate::output::print_line;
use crate::output::progress::{Progress, Snapshot};
use crate::pauses::{Pauses, describe_held};
use crate::run::is_of_run;
use crate::script::{Keeping, check_concurrency, detect, start};
use crate::span::{show_count, show_number_of};

/// The largest number of warnings about jobs that no worker serves.
const UNSERVED_LINES_MAX: usize = 10;

/// The largest number of lines about paused jobs.
const HELD_LINES_MAX: usize = 10;

/// The committed jobs, for the progress.
#[derive(Debug, Default)]
pub struct Committed {
    completed: AtomicU64,
    dead: AtomicU64,
    retried: AtomicU64,
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
    }
}

impl Committed {
    fn look(&self) -> Snapshot {
        let [completed, failed, retried] =
            [&self.completed, &self.dead, &self.retried].map(|count| count.load(Ordering::Relaxed));
        Snapshot {
            completed,
            failed,
            retried,
            ..Snapshot::default()
        }
    }
}

/// The handlers: started scripts and the program's own.
pub struct Handlers {
    /// The handlers by kind.
    pub by_kind: Vec<(String, Arc<dyn Handler>)>,
    /// The queues of their jobs.
    pub(super) queues: Vec<Arc<str>>,
    /// The amount of work that a worker with these handlers wants to hold, as time.
    pub(super) buffer_target: Duration,
}

impl Handlers {
    /// Starts scripts with `kinds` in their order, or with their own kinds. Their jobs are in `queues`. The scripts get
    /// the `passed` secrets of the environment.
    pub async fn of_scripts(
        scripts: &[PathBuf],
        kinds: &[String],
        queues: &[String],
        keeping: Keeping,
        passed: &[String],
    ) -> anyhow::Result<Handlers> {
        let mut handlers = Handlers {
            by_kind: Vec::new(),
            queues: Vec::new(),
            buffer_target: WorkerSettings::default().buffer_target,
        };
        for queue in queues {
            check_name("queue", queue)?;
        }
        let scripts_of = kinds_of(scripts, kinds)?;
        if !scripts.is_empty() {
            check_concurrency(scripts_of.iter().map(|(_, script)| script), &keeping.concurrency)?;
        }
        for (kind, script) in scripts_of {
            let script = script.passing(passed);
            handlers.by_kind.push((kind, start(script, keeping).await?));
        }
        if !scripts.is_empty() {
            handlers.queues = queues.iter().map(|queue| queue.as_str().into()).collect();
        }
        Ok(handlers)
    }

    /// Serves a queue, too.
    #[cfg(feature = "full")]
    pub fn serve_queue(&mut self, queue: &str) {
        if !self.queues.iter().any(|served| &**served == queue) {
            self.queues.push(queue.into());
        }
    }

    /// Describes the served kinds and queues.
    pub fn describe(&self) -> String {
        let listed = |names: Vec<&str>, one: &str, many: &str| match names.as_slice() {
            [name] => format!("{one} {name}"),
            names => format!("{many} {}", names.join(", ")),
        };
        let kinds = self.by_kind.iter().map(|(kind, _)| kind.as_str()).collect();
        let queues = self.queues.iter().map(|queue| &**queue).collect();
        format!(
            "serves {} on {}",
            listed(kinds, "the kind", "the kinds"),
            listed(queues, "the queue", "the queues")
        )
    }

    /// The served queues and kinds.
    pub fn lanes(&self) -> Vec<(Arc<str>, Arc<str>)> {
        let of_queue = |queue: &Arc<str>| {
            let queue = queue.clone();
            let kinds = self.by_kind.iter();
            kinds.map(move |(kind, _)| (queue.clone(), kind.as_str().into()))
        };
        self.queues.iter().flat_map(of_queue).collect()
    }

    /// Reports whether a handler runs jobs of this kind and queue.
    fn serve(&self, kind: &str, queue: &str) -> bool {
        self.by_kind.iter().any(|(served, _)| served == kind)
            && self.queues.iter().any(|served| &**served == queue)
    }

    /// Describes claimable jobs that neither a handler here nor one of `workers` runs: one line for each kind and
    /// queue, at most [`UNSERVED_LINES_MAX`]. Jobs of runs do not count: each run has its own queue, which only `run`
    /// serves.
    pub fn unserved(&self, stats: &StoreStats, workers: &[WorkerRow]) -> Vec<String> {
        let waiting = stats.kinds.iter().filter(|lane| {
            lane.counts.waiting > 0
                && !is_of_run(&lane.queue)
                && !self.serve(&lane.kind, &lane.queue)
                && !workers
                    .iter()
                    .any(|row| row.worker.may_serve(&lane.queue, &lane.kind))
        });
        let lines = waiting.map(|lane| {
            let noun = if lane.counts.waiting == 1 {
                "job waits"
            } else {
                "jobs wait"
            };
            format!(
                "{} {noun} that no worker serves: kind {}, queue {}",
                show_count(lane.counts.waiting),
                lane.kind,
                lane.queue
            )
        });
        lines.take(UNSERVED_LINES_MAX).collect()
    }

    /// The settings of a worker with these handlers. Each handler's own concurrency limit applies in addition to the worker's.
    pub fn settings(&self) -> WorkerSettings {
        let own = self
            .by_kind
            .iter()
            .filter_map(|(_, handler)| handler.capacity().runners);
        WorkerSettings {
            queues: self.queues.clone(),
            concurrency: own.sum::<usize>().max(1),
            buffer_target: self.buffer_target,
            ..WorkerSettings::default()
        }
    }
}

/// Describes the jobs of these queues and kinds that pauses hold, in at most [`HELD_LINES_MAX`] lines.
pub async fn held_by_pauses(
    store: &dyn Store,
    lanes: &[(Arc<str>, Arc<str>)],
) -> anyhow::Result<Vec<String>> {
    let pauses = Pauses::of(store).await?;
    let mut lines = Vec::new();
    for (queue, kind) in lanes {
        if lines.len() >= HELD_LINES_MAX {
            break;
        }
        lines.extend(describe_held(store, &pauses, queue, kind).await?);
    }
    lines.truncate(HELD_LINES_MAX);
    Ok(lines)
}

/// The kind of each script.
fn kinds_of(
    scripts: &[PathBuf],
    kinds: &[String],
) -> anyhow::Result<Vec<(String, gristmill_runtime::Script)>> {
    if !kinds.is_empty() && kinds.len() != scripts.len() {
        bail!(
            "{} scripts and {} kinds: give one --kind for each script, in their order, or none",
            scripts.len(),
            kinds.len()
        );
    }
    let mut seen = HashSet::new();
    let mut pairs = Vec::new();
    for (index, path) in scripts.iter().enumerate() {
        let script = detect(Some(path), &[], None)?;
        let kind = match kinds.get(index) {
            Some(kind) => kind.clone(),
            None => stem_of(path)?,
        };
        check_name("kind", &kind)?;
        if !seen.insert(kind.clone()) {
            bail!("two scripts have the kind `{kind}`; give each its own --kind");
        }
        pairs.push((kind, script));
    }
    Ok(pairs)
}

/// The default kind of a script's jobs: its file's name without the suffix.
fn stem_of(path: &Path) -> anyhow::Result<String> {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    stem.map(str::to_owned).with_context(|| {
        format!(
            "{} has no name in UTF-8; name its kind with --kind",
            path.display()
        )
    })
}

/// Runs `work` to its end, shows its progress, and stops it when the program is asked to end.
pub async fn until_done(
    work: impl Future<Output = Result<WorkerSummary, SourceError>>,
    stopper: &Stopper,
    committed: &Committed,
    interrupt: &mut Interrupt,
    stop: StopArguments,
    quiet: bool,
) -> Result<WorkerSummary, SourceError> {
    let progress = Progress::new(quiet, false);
    tokio::pin!(work);
    let show = progress.show(|| committed.look());
    tokio::pin!(show);
    let mut asked = false;
    loop {
        tokio::select! {
            ended = &mut work => {
                interrupt.end_within(CLOSE_MAX);
                break ended;
            }
            () = &mut show => {}
            _ = interrupt.wait(), if !asked => {
                asked = true;
                if !quiet {
                    say!("\ngristmill: {}; press Ctrl-C again to exit immediately", how_it_ends(stop));
                }
                stopper.stop();
            }
        }
    }
}

/// Prints the totals, and returns the exit status.
pub fn tell(
    ended: Result<WorkerSummary, SourceError>,
    committed: &Committed,
    interrupt: &Interrupt,
    as_json: bool,
    quiet: bool,
) -> anyhow::Result<Exit> {
    let summary = summary_of(ended, interrupt)?.unwrap_or_default();
    let dead = committed.dead.load(Ordering::Relaxed);
    if as_json {
        let totals = json!({
            "completed": summary.completed,
            "failed_attempts": summary.failed,
            "dead": dead,
            "refused": summary.refused,
        });
        print_line(&totals.to_string())?;
    } else if !quiet {
        say!(
            "{} completed, failed attempts: {}, dead: {}",
            show_number_of(summary.completed, "job"),
            show_count(summary.failed),
            show_count(dead)
        );
    }
    Ok(match (interrupt.asked(), dead) {
        (Some(exit), _) => exit,
        (None, 0) => Exit::Done,
        (None, _) => Exit::SomeFailed,
    })
}
