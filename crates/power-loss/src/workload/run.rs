//! A run and a worker of the engine: submits and works like `gristmill run`.

use std::sync::Arc;

use gristmill_engine::{Engine, EngineSettings, Job, JobError, Kind, Observer};
use gristmill_model::{NewBatch, PackedArray, Positions, Receipt, Report};
use gristmill_store::run::RunProgress;
use gristmill_store::{NewRun, Run, RunAdvance, RunState, Store};
use gristmill_store_sqlite::Synchronous;

use crate::check::jobs::{RUN, RUN_NUMBERS_FROM};
use crate::error::RecordError;
use crate::jobs;
use crate::note::Note;
use crate::volume::Volume;

/// The number of times the program starts.
const SESSIONS: u64 = 3;

/// The number of batches that a session submits.
const BATCHES: u64 = 4;

/// The number of lines in a batch.
const LINES: u64 = 12;

struct Number;

impl Kind for Number {
    const NAME: &'static str = jobs::KIND;
    type Payload = u64;
    type Value = u64;
}

/// Notes the outcomes that the engine's worker committed.
struct Noter(Arc<Volume>);

impl Observer for Noter {
    fn committed(&self, report: &Report, receipt: &Receipt) {
        let Some(completed) = &report.completed else {
            return;
        };
        let accepted: Positions = completed.positions.intersection(&receipt.accepted);
        let accepted = completed.positions.indexes_of(&accepted);
        self.0.note(Note::Completed(jobs::numbers(
            &completed.values.select(&accepted),
        )));
    }
}

pub(super) async fn record(volume: &Arc<Volume>, synchronous: Synchronous) -> Result<(), RecordError> {
    for session in 0..SESSIONS {
        let store: Arc<dyn Store> = Arc::new(jobs::open(volume, synchronous)?);
        let settings = EngineSettings {
            housekeeping: false,
            ..EngineSettings::default()
        };
        let engine = Engine::new(store.clone(), settings).await?;
        let run = match store.run(RUN).await? {
            Some(run) => run,
            None => {
                let run = store.create_run(described()).await?;
                volume.note(Note::RunAt(0));
                run
            }
        };
        let last = session + 1 == SESSIONS;
        let running = worker(&engine, volume).start();
        let mut progress = run.progress;
        for batch in 0..BATCHES {
            let state = if last && batch + 1 == BATCHES {
                RunState::Submitted
            } else {
                RunState::Submitting
            };
            advance(volume, &*store, &run, &mut progress, state).await?;
        }
        running.join().await?;
        if last {
            worker(&engine, volume).run().await?;
            let hook = NewBatch::new("hook", PackedArray::parse("[\"finished\"]")?);
            store.finish_run(run.id, described(), hook).await?;
            volume.note(Note::RunFinished);
        }
        engine.close().await?;
    }
    Ok(())
}

fn described() -> NewRun {
    NewRun {
        name: RUN.to_owned(),
        description: "{}".to_owned(),
    }
}

/// A worker that ends when no jobs are left.
fn worker(engine: &Engine, volume: &Arc<Volume>) -> gristmill_engine::WorkerBuilder {
    let mut worker = engine.worker();
    worker
        .handle::<Number, _, _>(|job: Job<u64>| async move { Ok::<_, JobError>(job.payload) })
        .observer(Arc::new(Noter(volume.clone())))
        .until_empty();
    worker
}

async fn advance(
    volume: &Volume,
    store: &dyn Store,
    run: &Run,
    progress: &mut RunProgress,
    state: RunState,
) -> Result<(), RecordError> {
    let first = RUN_NUMBERS_FROM + progress.lines;
    let numbers: Vec<u64> = (first..first + LINES).collect();
    progress.lines += LINES;
    progress.jobs += LINES;
    progress.bytes += LINES * 8;
    volume.note(Note::Submitting(numbers.clone()));
    let advance = RunAdvance {
        run: run.id,
        progress: *progress,
        state,
    };
    let ids = store.submit(vec![jobs::batch(&numbers)], Some(advance)).await?;
    let batch = ids.iter().map(|id| id.0).max().unwrap_or_default();
    volume.note(Note::Submitted { numbers, batch });
    volume.note(Note::RunAt(progress.lines));
    Ok(())
}
