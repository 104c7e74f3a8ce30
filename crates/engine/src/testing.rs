//! Tools for tests of programs that use the engine: a temporary store, and a clock that tests move by hand.
//!
//! ```
//! use std::time::Duration;
//! use gristmill_engine::{Job, JobError, Kind, testing::TestEngine};
//!
//! struct Greet;
//! impl Kind for Greet {
//!     const NAME: &'static str = "greet";
//!     type Payload = String;
//!     type Value = String;
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let engine = TestEngine::new().await;
//! engine.submit::<Greet>(&"Ada".to_owned()).await.unwrap();
//! engine.assert_submitted::<Greet>(&["Ada".to_owned()]).await;
//!
//! let mut worker = engine.worker();
//! worker.handle::<Greet, _, _>(|job: Job<String>| async move { Ok::<_, JobError>(format!("Hello, {}!", job.payload)) });
//! assert_eq!(engine.drain(&mut worker).await.completed, 1);
//! assert_eq!(engine.values::<Greet>().await, ["Hello, Ada!"]);
//!
//! engine.advance(Duration::from_secs(60)).await; // schedules that are due by then submit their jobs
//! # }
//! ```

use std::fmt::Debug;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gristmill_model::limits::PAGE_ROWS_MAX;
use gristmill_model::{JobState, ManualClock, Timestamp};
use gristmill_store::{JobDetails, JobFilter, Page};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore, Synchronous};
use gristmill_worker::WorkerSummary;

use crate::engine::Engine;
use crate::kind::Kind;
use crate::settings::EngineSettings;
use crate::work::WorkerBuilder;

/// The start of a test's clock: 2001-09-09T01:46:40Z.
const BEGINNING: Timestamp = Timestamp(1_000_000_000_000);

/// The system keeps files here in memory, if it has this folder.
const MEMORY: &str = "/dev/shm";

/// An engine for one test. It runs no housekeeping in the background: [`advance`](TestEngine::advance) does.
#[derive(Debug)]
pub struct TestEngine {
    engine: Engine,
    clock: Arc<ManualClock>,
    _folder: tempfile::TempDir,
}

impl Deref for TestEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl TestEngine {
    /// An engine on an empty store.
    ///
    /// # Panics
    ///
    /// Panics if the store cannot be created. The other calls also panic if the store fails, because the test cannot
    /// continue.
    pub async fn new() -> TestEngine {
        let folder = if Path::new(MEMORY).is_dir() {
            tempfile::tempdir_in(MEMORY)
        } else {
            tempfile::tempdir()
        };
        let folder = folder.expect("a folder for the test's store");
        let clock = Arc::new(ManualClock::new(BEGINNING));
        let options = SqliteOptions {
            clock: clock.clone(),
            synchronous: Synchronous::Normal,
            ..SqliteOptions::default()
        };
        let store =
            SqliteStore::open(folder.path().join("jobs.db"), options).expect("the test's store opens");
        let settings = EngineSettings {
            clock: clock.clone(),
            housekeeping: false,
            ..EngineSettings::default()
        };
        let engine = Engine::new(Arc::new(store), settings)
            .await
            .expect("the test's engine starts");
        TestEngine {
            engine,
            clock,
            _folder: folder,
        }
    }

    /// Advances the clock. Due schedules fire, and jobs that no worker started in time expire.
    pub async fn advance(&self, by: Duration) {
        self.clock
            .advance_ms(i64::try_from(by.as_millis()).expect("a span of less than a million years"));
        self.engine.fire_schedules().await.expect("the schedules fire");
        self.engine.store().expire().await.expect("jobs expire");
    }

    /// Runs all jobs of the worker's kinds that can be claimed now, and those that clean up after flows cancelled before. Delayed retries
    /// stay: advance the clock and drain again.
    pub async fn drain(&self, worker: &mut WorkerBuilder) -> WorkerSummary {
        self.engine.begin_cleanups().await.expect("the cleanups begin");
        worker.until_idle().run().await.expect("the worker ends")
    }

    /// The payloads of all jobs of `K` that were submitted and not deleted, in the order of their ids.
    pub async fn submitted<K: Kind>(&self) -> Vec<K::Payload> {
        let read = |details: JobDetails| {
            serde_json::from_str(details.payload.get()).expect("a payload fits the type of its kind")
        };
        self.jobs_of(K::NAME).await.into_iter().map(read).collect()
    }

    /// The values of all jobs of `K` that have completed, in the order of their ids.
    pub async fn values<K: Kind>(&self) -> Vec<K::Value> {
        let completed = |details: &JobDetails| details.row.state == JobState::Completed;
        let read = |details: JobDetails| {
            let value = details.value.expect("a completed job has a value");
            serde_json::from_str(value.get()).expect("a value fits the type of its kind")
        };
        self.jobs_of(K::NAME)
            .await
            .into_iter()
            .filter(completed)
            .map(read)
            .collect()
    }

    /// Fails the test unless exactly these payloads of `K` were submitted, in this order.
    #[track_caller]
    pub fn assert_submitted<'a, K: Kind>(
        &'a self,
        expected: &'a [K::Payload],
    ) -> impl Future<Output = ()> + 'a
    where
        K::Payload: PartialEq + Debug + Sync,
    {
        let caller = std::panic::Location::caller();
        async move {
            let submitted = self.submitted::<K>().await;
            assert!(
                submitted == expected,
                "at {caller}: jobs of kind `{}` were submitted as {submitted:?}, not as {expected:?}",
                K::NAME
            );
        }
    }

    async fn jobs_of(&self, kind: &str) -> Vec<JobDetails> {
        let filter = JobFilter {
            kind: Some(kind.to_owned()),
            ..JobFilter::default()
        };
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let page = Page {
                after,
                limit: PAGE_ROWS_MAX,
            };
            let rows = self.store().jobs(&filter, page).await.expect("jobs are listed");
            let Some(last) = rows.last() else { return all };
            after = Some(last.job);
            for row in &rows {
                all.extend(self.job(row.job).await.expect("a job is shown"));
            }
        }
    }
}
