//! Limits under a whole engine and its worker, on both stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gristmill_engine::{Engine, EngineSettings, Job, JobError, Kind, RetryPolicy};
use gristmill_model::{BatchOptions, Control, Effect, NewBatch, PackedArray, Scope};
use gristmill_private_postgres::shared;
use gristmill_store::Store;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore, Synchronous};

struct Number;

impl Kind for Number {
    const NAME: &'static str = "number";
    type Payload = i64;
    type Value = ();

    fn options() -> BatchOptions {
        BatchOptions {
            retry: RetryPolicy::NEVER,
            ..BatchOptions::default()
        }
    }
}

/// Runs a check on an engine over each store.
async fn on_both_stores<F: Future<Output = ()>>(check: impl Fn(Engine) -> F) {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions {
        synchronous: Synchronous::Normal,
        ..SqliteOptions::default()
    };
    let sqlite = SqliteStore::open(folder.path().join("jobs.db"), options).unwrap();
    let url = shared().create_database().unwrap();
    let postgres = PostgresStore::open(&url, PostgresOptions::default())
        .await
        .unwrap();
    let stores: [Arc<dyn Store>; 2] = [Arc::new(sqlite), Arc::new(postgres)];
    for store in stores {
        let settings = EngineSettings {
            housekeeping: false,
            ..EngineSettings::default()
        };
        let engine = Engine::new(store, settings).await.unwrap();
        check(engine.clone()).await;
        engine.close().await.unwrap();
    }
}

async fn limit(engine: &Engine, scope: Scope, jobs_max: u32) {
    let effect = Effect::Concurrency { jobs_max };
    let control = Control { scope, effect };
    engine.store().put_controls(vec![control]).await.unwrap();
}

/// A handler that panics gives its slot of a limit back, however often it panics. The jobs behind it run.
#[tokio::test]
async fn a_panic_leaks_no_slot() {
    on_both_stores(|engine| async move {
        limit(&engine, Scope::default(), 1).await;
        let numbers: Vec<i64> = (0..20).collect();
        engine.submit_many::<Number>(&numbers).await.unwrap();
        let mut worker = engine.worker();
        worker.handle::<Number, _, _>(|job: Job<i64>| async move {
            assert!(job.payload % 2 == 0, "odd");
            Ok::<_, JobError>(())
        });
        let summary = worker.until_empty().run().await.unwrap();
        assert_eq!((summary.completed, summary.failed), (10, 10));
    })
    .await;
}

/// With any number of small and large batches in any number of groups, no group runs more than its limit at once, and
/// all jobs run.
#[tokio::test]
async fn saturated_groups_are_drained_within_their_limits() {
    const GROUPS: usize = 20;
    const LIMIT: u32 = 3;
    on_both_stores(|engine| async move {
        let scope = Scope {
            each_group: true,
            ..Scope::default()
        };
        limit(&engine, scope, LIMIT).await;
        let mut batches = Vec::new();
        for (number, jobs) in [1, 40, 7].into_iter().cycle().take(3 * GROUPS).enumerate() {
            let group = number % GROUPS;
            let payloads = PackedArray::repeat(&group.to_string(), jobs).unwrap();
            let mut batch = NewBatch::new(Number::NAME, payloads);
            batch.options.group = Some(format!("group {group}"));
            batches.push(batch);
        }
        let jobs: u32 = batches.iter().map(|batch| batch.payloads.count()).sum();
        engine.submit_batches(batches).await.unwrap();
        let running: Arc<Vec<AtomicU32>> = Arc::new((0..GROUPS).map(|_| AtomicU32::new(0)).collect());
        let mut worker = engine.worker();
        worker.concurrency(8).handle::<Number, _, _>({
            let running = running.clone();
            move |job: Job<i64>| {
                let running = running.clone();
                async move {
                    let group = &running[job.payload as usize];
                    let before = group.fetch_add(1, Ordering::SeqCst);
                    // Other tasks run meanwhile.
                    tokio::task::yield_now().await;
                    group.fetch_sub(1, Ordering::SeqCst);
                    if before < LIMIT {
                        Ok(())
                    } else {
                        Err(JobError::new("limit", "too many at once"))
                    }
                }
            }
        });
        let summary = worker.until_empty().run().await.unwrap();
        assert_eq!((summary.completed, summary.failed), (u64::from(jobs), 0));
    })
    .await;
}
