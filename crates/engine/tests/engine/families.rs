//! Jobs that spawn others and wait for them, over a real SQLite store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gristmill_engine::{
    Engine, EngineSettings, Finalizing, Job, JobError, Kind, OnChildFailure, Spawn, Step,
};
use gristmill_model::JobState;
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};

use crate::support::{Square, square};

/// An engine on its own store, and the folder, which is deleted when it is dropped.
async fn fixture() -> (Engine, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(folder.path().join("jobs.db"), SqliteOptions::default());
    let settings = EngineSettings {
        housekeeping: false,
        ..EngineSettings::default()
    };
    let store = Arc::new(store.expect("the store opens"));
    let engine = Engine::new(store, settings).await;
    (engine.expect("the engine starts"), folder)
}

/// The sum of the squares below a number. Each square is a child.
struct SumOfSquares;

impl Kind for SumOfSquares {
    const NAME: &'static str = "sum";
    type Payload = i64;
    type Value = i64;
}

async fn spread(job: Job<i64>) -> Result<Step<i64>, JobError> {
    let children = Spawn::new()
        .children(Square::NAME, 0..job.payload)
        .and_then(|spawn| spawn.memo(&format!("below {}", job.payload)));
    let children = children.map_err(|error| JobError::new("spawn", error.to_string()))?;
    Ok(Step::Wait(children))
}

async fn add_up(finalizing: Finalizing<i64, String>) -> Result<Step<i64>, JobError> {
    assert_eq!(finalizing.memo, format!("below {}", finalizing.job.payload));
    let squares: Vec<i64> = finalizing.values()?;
    Ok(Step::Done(squares.iter().sum()))
}

#[tokio::test]
async fn parents_wait_for_their_children_and_finalize() {
    let (engine, _folder) = fixture().await;
    let numbers: Vec<i64> = (0..50).collect();
    let parents = engine.submit_many::<SumOfSquares>(&numbers).await.unwrap();
    let mut worker = engine.worker();
    worker.handle_parent::<SumOfSquares, String, _, _, _, _>(spread, add_up);
    worker.handle::<Square, _, _>(square);
    let summary = worker.until_empty().run().await.unwrap();
    let children: i64 = numbers.iter().sum();
    assert_eq!((summary.completed, summary.failed), (50 + children as u64, 0));
    for (number, parent) in numbers.iter().zip(&parents) {
        let sum = (0..*number).map(|child| child * child).sum();
        assert_eq!(engine.value::<SumOfSquares>(*parent).await.unwrap(), Some(sum));
    }
    let details = engine.store().job(parents[7]).await.unwrap().unwrap();
    assert_eq!(details.children.map(|children| children.completed), Some(7));
}

#[tokio::test]
async fn a_dead_child_is_no_success() {
    let (engine, _folder) = fixture().await;
    let parents = engine.submit_many::<SumOfSquares>(&[3, 5]).await.unwrap();
    let mut worker = engine.worker();
    let collecting = |job: Job<i64>| async move {
        let policy = match job.payload {
            3 => OnChildFailure::Collect,
            _ => OnChildFailure::Fail,
        };
        let Step::Wait(spawn) = spread(job).await? else {
            panic!("it spawns")
        };
        Ok(Step::Wait(spawn.on_failure(policy)))
    };
    worker.handle_parent::<SumOfSquares, String, _, _, _, _>(collecting, add_up);
    worker.handle::<Square, _, _>(|job: Job<i64>| async move {
        match job.payload {
            1 => Err(JobError::new("One", "no ones").permanent()),
            _ => square(job).await,
        }
    });
    worker.until_empty().run().await.unwrap();
    for parent in parents {
        let details = engine.store().job(parent).await.unwrap().unwrap();
        assert_eq!(details.row.state, JobState::Dead);
        let error = &details.failures[0].error;
        assert_eq!(error.error_type, "children");
        assert!(
            error.message.contains("a child of it, ended as dead"),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn children_that_cannot_be_stored_fail_their_parent() {
    let (engine, _folder) = fixture().await;
    let parent = engine.submit::<SumOfSquares>(&1).await.unwrap();
    let mut worker = engine.worker();
    let nameless = |_: Job<i64>| async { Ok(Step::Wait(Spawn::new().children("", [1]).unwrap())) };
    worker.handle_parent::<SumOfSquares, String, _, _, _, _>(nameless, add_up);
    worker.until_empty().run().await.unwrap();
    let details = engine.store().job(parent).await.unwrap().unwrap();
    assert_eq!(details.row.state, JobState::Dead);
    assert!(
        details.failures[0].error.message.contains("the name of a kind"),
        "{details:?}"
    );
}

/// Every child but the last spawns the next one beside itself. Its first attempt fails, and leaves no child behind.
#[tokio::test]
async fn children_spawn_siblings_once() {
    let (engine, _folder) = fixture().await;
    let parent = engine.submit::<SumOfSquares>(&1).await.unwrap();
    let mut worker = engine.worker();
    let first = |job: Job<i64>| async move {
        assert_eq!(job.payload, 1);
        let spawn = Spawn::new().children(Square::NAME, [5]).unwrap();
        Ok(Step::Wait(spawn.memo("below 1").unwrap()))
    };
    worker.handle_parent::<SumOfSquares, String, _, _, _, _>(first, add_up);
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    worker.handle::<Square, _, _>(move |job: Job<i64>| {
        let run = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            if job.payload > 1 {
                job.context.spawn_siblings(Square::NAME, [job.payload - 1])?;
            }
            match run % 2 {
                0 => Err(JobError::new("Flaky", "not yet")),
                _ => square(job).await,
            }
        }
    });
    worker.until_empty().run().await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 10);
    let sum = engine.value::<SumOfSquares>(parent).await.unwrap();
    assert_eq!(sum, Some(1 + 4 + 9 + 16 + 25));
}

#[tokio::test]
async fn siblings_need_a_parent_and_a_job_that_completes() {
    let (engine, _folder) = fixture().await;
    let alone = engine.submit::<Square>(&1).await.unwrap();
    let waits = engine.submit::<SumOfSquares>(&1).await.unwrap();
    let mut worker = engine.worker();
    worker.handle::<Square, _, _>(|job: Job<i64>| async move {
        job.context.spawn_siblings(Square::NAME, [2])?;
        square(job).await
    });
    let both = |job: Job<i64>| async move {
        job.context.spawn_siblings(Square::NAME, [2])?;
        spread(job).await
    };
    worker.handle_parent::<SumOfSquares, String, _, _, _, _>(both, add_up);
    let summary = worker.until_empty().run().await.unwrap();
    assert_eq!((summary.completed, summary.failed), (0, 2));
    for (job, text) in [(alone, "has no parent"), (waits, "when it finalizes")] {
        let details = engine.store().job(job).await.unwrap().unwrap();
        let error = &details.failures[0].error;
        assert_eq!((error.error_type.as_str(), error.permanent), ("siblings", true));
        assert!(error.message.contains(text), "{error:?}");
    }
}
