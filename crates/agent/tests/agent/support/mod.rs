//! A server over a new SQLite store, for tests.

pub mod held_answer;
pub mod worker;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gristmill_agent::{HttpSource, HttpSourceOptions};
use gristmill_engine::{Engine, EngineSettings};
use gristmill_model::{BatchId, JobState, NewBatch, PackedBuilder, RetryPolicy, SplitMix64, SystemClock};
use gristmill_server::{ServeOptions, bind};
use gristmill_store::{JobFilter, Page, Store, Want};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The longest wait of a test for an event.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Server {
    pub engine: Engine,
    pub address: SocketAddr,
    folder: Arc<tempfile::TempDir>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    /// The server's own runtime, so that it can be killed with all of its connections.
    runtime: Option<tokio::runtime::Runtime>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Server {
    pub async fn start() -> Server {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Server::start_on(
            folder,
            ServeOptions {
                listen,
                ..ServeOptions::default()
            },
        )
        .await
    }

    pub async fn start_on(folder: Arc<tempfile::TempDir>, options: ServeOptions) -> Server {
        let engine = engine_on(&folder).await;
        let server = bind(engine.clone(), options).await.unwrap();
        let address = server.address();
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let task = runtime.spawn(async move {
            let ended = async {
                let _ = stopped.await;
            };
            server.run(ended).await.unwrap();
        });
        Server {
            engine,
            address,
            folder,
            stop: Some(stop),
            task,
            runtime: Some(runtime),
        }
    }

    pub fn folder(&self) -> Arc<tempfile::TempDir> {
        self.folder.clone()
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        self.engine.store()
    }

    pub fn options(&self) -> HttpSourceOptions {
        options_for(&format!("http://{}", self.address))
    }

    pub fn source(&self) -> HttpSource {
        source(self.options())
    }

    /// Ends like a killed process: no request is answered any more. The store is closed by itself.
    pub async fn kill(mut self) -> (SocketAddr, Arc<tempfile::TempDir>) {
        self.runtime.take().unwrap().shutdown_background();
        let _ = (&mut self.task).await;
        self.engine.close().await.unwrap();
        (self.address, self.folder())
    }

    /// Stops gracefully and closes the store.
    pub async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        tokio::time::timeout(PATIENCE, &mut self.task)
            .await
            .expect("the server stops in time")
            .unwrap();
        self.engine.close().await.unwrap();
    }
}

/// An engine over the SQLite store of a folder, without housekeeping, so that tests decide which workers are lost.
pub async fn engine_on(folder: &tempfile::TempDir) -> Engine {
    let store = SqliteStore::open(folder.path().join("gristmill.db"), SqliteOptions::default()).unwrap();
    let settings = EngineSettings {
        housekeeping: false,
        ..EngineSettings::default()
    };
    Engine::new(Arc::new(store), settings).await.unwrap()
}

pub fn options_for(base_url: &str) -> HttpSourceOptions {
    HttpSourceOptions {
        wait: Duration::from_secs(5),
        ..HttpSourceOptions::new(base_url)
    }
}

pub fn source(options: HttpSourceOptions) -> HttpSource {
    HttpSource::new(options, Arc::new(SystemClock), Box::new(SplitMix64::new(1))).unwrap()
}

/// A batch of `count` jobs whose payloads are their positions.
pub fn batch(kind: &str, count: u32) -> NewBatch {
    let mut payloads = PackedBuilder::new();
    (0..count).for_each(|position| payloads.push_value(&position).unwrap());
    let mut batch = NewBatch::new(kind, payloads.finish());
    batch.options.retry = RetryPolicy {
        attempts_max: 2,
        delay_ms: 0,
        ..RetryPolicy::default()
    };
    batch
}

pub fn want(jobs_max: u32) -> Option<Want> {
    Some(Want {
        jobs_max,
        queues: vec!["default".into()],
        kinds: Vec::new(),
        priority_min: None,
    })
}

pub async fn submit(engine: &Engine, batch: NewBatch) -> BatchId {
    engine.submit_batches(vec![batch]).await.unwrap()[0]
}

/// Checks that each job of the `double` batches has one outcome, and the right one.
pub async fn check_doubled(store: &dyn Store, ids: &[BatchId]) {
    for id in ids {
        for (position, state) in states(store, *id).await.into_iter().enumerate() {
            let expected = if position % 10 == 7 {
                JobState::Dead
            } else {
                JobState::Completed
            };
            assert_eq!(state, Some(expected), "{id}:{position}");
        }
        let values = values(store, *id).await;
        assert!(
            values
                .iter()
                .all(|(position, value)| *value == (2 * position).to_string())
        );
    }
}

/// The end of each job of a batch. Each position is in only one report.
pub async fn states(store: &dyn Store, batch: BatchId) -> Vec<Option<JobState>> {
    let outcomes = store.outcomes(batch).await.unwrap().unwrap();
    let mut states = vec![None; outcomes.count as usize];
    for report in &outcomes.reports {
        for position in report.positions.iter() {
            let before = states[position as usize].replace(report.state);
            assert_eq!(before, None, "job {batch}:{position} has two outcomes");
        }
    }
    states
}

/// The values of a batch's completed jobs by position.
pub async fn values(store: &dyn Store, batch: BatchId) -> Vec<(u32, String)> {
    let outcomes = store.outcomes(batch).await.unwrap().unwrap();
    let mut values = Vec::new();
    for report in &outcomes.reports {
        if let Some(packed) = &report.values {
            values.extend(report.positions.iter().zip(packed.items().map(str::to_owned)));
        }
    }
    values.sort();
    values
}

pub async fn rows(store: &dyn Store, batch: BatchId) -> Vec<gristmill_store::JobRow> {
    let filter = JobFilter {
        batch: Some(batch),
        ..JobFilter::default()
    };
    store
        .jobs(
            &filter,
            Page {
                after: None,
                limit: 10_000,
            },
        )
        .await
        .unwrap()
}
