//! One simulation: a store, all nodes, a time with faults, and the check at the end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gristmill_model::{Control, Effect, JobState, Scope};
use gristmill_store::{CheckPlace, JobFilter, Page, Store};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::checker::{Checker, LIMITED, Violation};
use crate::limits::{CLAIMABLE_WITHIN, CLIENTS, ENDS_WITHIN, LIMITED_JOBS_MAX};
use crate::store::FaultyStore;
use crate::world::World;
use crate::{clients, faults, nodes};

/// The pause between two looks at the unended jobs.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The largest number of scheduled jobs in one look.
const SCHEDULED_JOBS_MAX: u32 = 1_000;

/// The number of waiting jobs that a violation shows.
const SHOWN_JOBS_MAX: u32 = 3;

/// The result of a simulation.
#[derive(Debug, Serialize, Deserialize)]
pub struct Finding {
    /// The seed of the simulation.
    pub seed: u64,
    /// The duration by the virtual clock, in seconds.
    pub simulated_s: f64,
    /// The number of faults. Single lost and repeated messages do not count.
    pub faults: u64,
    /// The number of submitted jobs.
    pub jobs: u64,
    /// The number of flows that have seen the outcome of a step.
    pub flows: u64,
    /// The number of jobs that are dead because too many workers died with them.
    pub died_with_workers: u64,
    /// The hash of the trace.
    pub trace: String,
    /// The first broken promise.
    pub violation: Option<Violation>,
}

/// Simulates this long with faults, and then until all jobs have ended.
pub fn simulate(seed: u64, duration: Duration, folder: PathBuf, prints: bool) -> Finding {
    // The clock of the servers' metrics first compares the processor's time with the system's time. The system's time
    // must advance during this comparison.
    let _ = quanta::Instant::now();
    // From here on time is virtual.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system gives an event loop");
    let world = World::new(folder, seed, prints);
    let faults = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let died = runtime.block_on(async {
        tokio::select! {
            biased;
            () = world.violated.notified() => Ok(0),
            ended = live(&world, duration, &faults) => ended,
        }
    });
    let simulated_s = began.elapsed().as_secs_f64();
    let died_with_workers = match died {
        Ok(died) => died,
        Err(violation) => {
            world.require(Err(violation));
            0
        }
    };
    if world.violation().is_some() {
        world.print_trace();
    }
    // A task that still waits would wait forever.
    runtime.shutdown_background();
    let (jobs, flows) = world.check(|checker| checker.counts());
    Finding {
        seed,
        simulated_s,
        faults: faults.load(Ordering::Relaxed),
        jobs,
        flows,
        died_with_workers,
        trace: format!("{:016x}", world.trace_hash()),
        violation: world.violation(),
    }
}

async fn live(world: &Arc<World>, duration: Duration, faults: &Arc<AtomicU64>) -> Result<u64, Violation> {
    let observer = FaultyStore::open(world, "observer").map_err(|error| error.to_string())?;
    let limit = Control {
        scope: Scope {
            kind: Some(LIMITED.to_owned()),
            ..Scope::default()
        },
        effect: Effect::Concurrency {
            jobs_max: LIMITED_JOBS_MAX,
        },
    };
    let put = observer.put_controls(vec![limit]).await;
    put.map_err(|error| error.to_string())?;
    let nodes = nodes::start(world);
    let mut tasks = JoinSet::new();
    for client in 1..=CLIENTS {
        tasks.spawn(clients::submit(world.clone(), format!("client {client}")));
    }
    tasks.spawn(faults::make(
        world.clone(),
        nodes.clone(),
        observer.clone(),
        faults.clone(),
    ));
    tasks.spawn(watch_scheduled(world.clone(), observer.clone()));
    tokio::time::sleep(duration).await;
    tasks.shutdown().await;
    faults::mend(world, &nodes);
    world.note(format_args!("no more faults"));
    until_all_ended(&*observer).await?;
    compare(world, &*observer).await
}

/// Checks that a clock that was set back keeps no job from being claimable, until the task is aborted.
async fn watch_scheduled(world: Arc<World>, observer: Arc<FaultyStore>) {
    let filter = JobFilter {
        states: vec![JobState::Scheduled],
        ..JobFilter::default()
    };
    let page = Page {
        after: None,
        limit: SCHEDULED_JOBS_MAX,
    };
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if world.wall_clock.is_steady_for(CLAIMABLE_WITHIN) {
            let jobs = observer.jobs(&filter, page).await;
            world.require(
                jobs.map_err(|error| error.to_string())
                    .and_then(|jobs| Checker::scheduled(&jobs)),
            );
        }
    }
}

async fn until_all_ended(store: &dyn Store) -> Result<(), Violation> {
    let begun = Instant::now();
    loop {
        let counts = store.counts(&JobFilter::default()).await;
        let counts = counts.map_err(|error| error.to_string())?;
        if counts.ended() == counts.total() {
            return Ok(());
        }
        if begun.elapsed() > ENDS_WITHIN {
            let open = JobFilter {
                states: JobState::ALL
                    .into_iter()
                    .filter(|state| !state.is_final())
                    .collect(),
                ..JobFilter::default()
            };
            let page = Page {
                after: None,
                limit: SHOWN_JOBS_MAX,
            };
            let rows = store.jobs(&open, page).await.map_err(|error| error.to_string())?;
            return Err(format!(
                "{} of {} jobs still wait {} s after the last fault, such as {rows:?}",
                counts.total() - counts.ended(),
                counts.total(),
                ENDS_WITHIN.as_secs()
            ));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Compares the outcomes in the file with the accepted outcomes, and checks the file.
async fn compare(world: &World, store: &dyn Store) -> Result<u64, Violation> {
    let mut died = 0;
    for batch in world.check(|checker| checker.batches()) {
        let outcomes = store.outcomes(batch).await.map_err(|error| error.to_string())?;
        died += world.check(|checker| checker.compare(batch, outcomes.as_ref()))?;
    }
    world.check(|checker| checker.compare_died_with_workers(died))?;
    let mut place = Some(CheckPlace::default());
    while let Some(next) = place {
        let page = store.check(next).await.map_err(|error| error.to_string())?;
        if let Some(finding) = page.findings.first() {
            return Err(format!("the file is damaged: {finding:?}"));
        }
        place = page.next;
    }
    Ok(died)
}
