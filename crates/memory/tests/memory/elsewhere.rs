//! Extractions by workers other than the ingestion's own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gristmill_engine::{Engine, Kind, RunningWorker};
use gristmill_memory::extract::{Extractor, Limiter, LimiterSettings, LocalExtractor, OpenAiExtractor};
use gristmill_memory::pipeline::job::{Extract, ExtractHandler};
use gristmill_memory::pipeline::{IngestOptions, Ingestion, NewInput};
use gristmill_memory::service::OpenAiSettings;
use gristmill_memory::{KnowledgeStore, MemoryError, SqliteKnowledge, SqliteKnowledgeOptions};
use gristmill_model::JobState;
use gristmill_store::{Change, JobFilter, Selection};

use gristmill_test_tools::stand_in::{Answer, StandIn, knowledge};

fn extractor(service: &StandIn) -> Arc<dyn Extractor> {
    let settings = OpenAiSettings {
        base_url: service.base_url.clone(),
        model: "stand-in".to_owned(),
        key: None,
        timeout: Duration::from_secs(30),
    };
    let limiter = Limiter::new(LimiterSettings::default());
    Arc::new(OpenAiExtractor::new(settings, limiter).expect("settings"))
}

fn notes(paragraphs: u32) -> NewInput {
    let lines = (0..paragraphs).map(|number| format!("{{\"text\": \"Ada met Bob number {number}.\"}}\n"));
    NewInput::from_bytes("notes.jsonl", lines.collect::<String>().into_bytes())
}

async fn knowledge_base(folder: &Path) -> Arc<dyn KnowledgeStore> {
    let store = SqliteKnowledge::open(folder.join("kb.db"), SqliteKnowledgeOptions::default());
    Arc::new(store.expect("opens"))
}

/// Starts a worker as another process would: it opens the jobs' file itself.
async fn start_worker(jobs: &Path, extractor: Arc<dyn Extractor>) -> (Engine, RunningWorker) {
    let engine = Engine::open(jobs).await.expect("opens");
    let mut worker = engine.worker();
    worker
        .name("elsewhere")
        .queues([Extract::QUEUE])
        .concurrency(8)
        .handler(Extract::NAME, Arc::new(ExtractHandler::new(extractor, 4)));
    let running = worker.start();
    (engine, running)
}

async fn stop((engine, worker): (Engine, RunningWorker)) {
    worker.stopper().stop();
    worker.join().await.expect("ends");
    engine.close().await.expect("closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_workers_may_make_all_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = StandIn::start(|text, _| {
        if text.contains("number 7") {
            Answer::content("no JSON")
        } else {
            Answer::content(knowledge(text))
        }
    })
    .await;
    let jobs = folder.path().join("jobs.db");
    let elsewhere = start_worker(&jobs, extractor(&service)).await;
    let store = knowledge_base(folder.path()).await;
    let engine = Engine::open(&jobs).await.expect("opens");
    let options = IngestOptions::default();
    let ingestion =
        Ingestion::new(store.clone(), engine.clone(), extractor(&service), 1, options).with_calls_elsewhere();
    let ingested = ingestion.run(vec![notes(30)], |_| {}).await.expect("ingests");
    assert_eq!((ingested.progress.messages, ingested.progress.failures), (30, 1));
    // One for each, and one more to repair the answer that is none.
    assert_eq!(ingested.progress.usage.calls, 31, "{ingested:?}");
    let failures = store.failures().await.expect("failures");
    assert!(failures[0].error.contains("repaired"), "{}", failures[0].error);
    assert_eq!(store.stats().await.expect("stats").messages, 30);
    stop(elsewhere).await;
    engine.close().await.expect("closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_workers_may_make_some_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = StandIn::start(|text, _| Answer::content(knowledge(text))).await;
    let jobs = folder.path().join("jobs.db");
    let elsewhere = start_worker(&jobs, extractor(&service)).await;
    let store = knowledge_base(folder.path()).await;
    let engine = Engine::open(&jobs).await.expect("opens");
    let own = extractor(&service);
    let ingestion = Ingestion::new(store.clone(), engine.clone(), own, 2, IngestOptions::default());
    let ingested = ingestion.run(vec![notes(300)], |_| {}).await.expect("ingests");
    assert_eq!((ingested.progress.messages, ingested.progress.failures), (300, 0));
    assert_eq!(ingested.progress.usage.calls, 300, "each counts once");
    assert_eq!(service.calls_total(), 300);
    stop(elsewhere).await;
    engine.close().await.expect("closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_another_model_fails_its_jobs() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = StandIn::start(|text, _| Answer::content(knowledge(text))).await;
    let jobs = folder.path().join("jobs.db");
    let elsewhere = start_worker(&jobs, Arc::new(LocalExtractor)).await;
    let store = knowledge_base(folder.path()).await;
    let engine = Engine::open(&jobs).await.expect("opens");
    let ingestion = Ingestion::new(
        store.clone(),
        engine.clone(),
        extractor(&service),
        1,
        IngestOptions::default(),
    )
    .with_calls_elsewhere();
    let ingested = ingestion.run(vec![notes(2)], |_| {}).await.expect("ingests");
    assert_eq!(ingested.progress.failures, 2);
    let failures = store.failures().await.expect("failures");
    assert!(
        failures[0]
            .error
            .contains("start the worker with the ingestion's settings"),
        "{}",
        failures[0].error
    );
    stop(elsewhere).await;
    engine.close().await.expect("closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_extraction_is_recorded_and_ends_the_wait() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = StandIn::start(|text, _| Answer::content(knowledge(text))).await;
    let jobs = folder.path().join("jobs.db");
    let store = knowledge_base(folder.path()).await;
    let engine = Engine::open(&jobs).await.expect("opens");
    let ingestion = Ingestion::new(
        store.clone(),
        engine.clone(),
        extractor(&service),
        1,
        IngestOptions::default(),
    )
    .with_calls_elsewhere();
    let cancel = async {
        let waiting = JobFilter {
            states: vec![JobState::Waiting],
            ..JobFilter::default()
        };
        while engine.store().counts(&waiting).await.expect("counts").waiting < 3 {
            tokio::task::yield_now().await;
        }
        engine
            .store()
            .change(Selection::Filter(waiting), Change::Cancel)
            .await
            .expect("cancels");
    };
    let (ingested, ()) = tokio::join!(ingestion.run(vec![notes(3)], |_| {}), cancel);
    assert_eq!(ingested.expect("ingests").progress.failures, 3);
    let failures = store.failures().await.expect("failures");
    assert_eq!(failures[0].error, "its extraction was cancelled");
    engine.close().await.expect("closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inputs_are_read_when_their_turn_comes() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = knowledge_base(folder.path()).await;
    let engine = Engine::open(&folder.path().join("jobs.db")).await.expect("opens");
    let local: Arc<dyn Extractor> = Arc::new(LocalExtractor);
    let ingestion = Ingestion::new(store.clone(), engine.clone(), local, 2, IngestOptions::default());
    let bad = MemoryError::invalid("second.md", "it cannot be read");
    let inputs = [Ok(notes(3)), Err(bad.clone())];
    let error = ingestion
        .run(inputs, |_| {})
        .await
        .expect_err("the second is bad");
    assert_eq!(error.to_string(), bad.to_string());
    engine.close().await.expect("closes");
}
