//! Embedders, and what ingestion and recall do with them.

mod small_model;
mod stand_in;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gristmill_engine::Engine;
use gristmill_memory::embed::{EmbedError, Embedder, Model2VecEmbedder, OpenAiEmbedder, Vector};
use gristmill_memory::extract::{Limiter, LimiterSettings, LocalExtractor, OpenAiSettings};
use gristmill_memory::pipeline::{IngestError, IngestOptions, Ingested, Ingestion, NewInput};
use gristmill_memory::recall::{Relations, recall_query};
use gristmill_memory::service::Service;
use gristmill_memory::source::Format;
use gristmill_memory::{KnowledgeStore, RecallOptions, Recalled, SqliteKnowledge, SqliteKnowledgeOptions};
use stand_in::{Answer, EMBEDDINGS, StandIn};

const NOTES: &str = "Bees hum loudly.\n\nDrums are loud.\n\nRain fell.\n";

fn embedder_of(base_url: &str) -> Arc<dyn Embedder> {
    let settings = OpenAiSettings {
        base_url: base_url.to_owned(),
        model: "directions".to_owned(),
        key: None,
        timeout: Duration::from_secs(5),
    };
    let limiter = Limiter::new(LimiterSettings::default());
    Arc::new(OpenAiEmbedder::of(
        Service::new(settings, limiter).expect("an address"),
    ))
}

async fn ingest(
    folder: &Path,
    embedder: Option<Arc<dyn Embedder>>,
    text: &str,
) -> (Arc<dyn KnowledgeStore>, Result<Ingested, IngestError>) {
    let knowledge = SqliteKnowledge::open(folder.join("kb.db"), SqliteKnowledgeOptions::default());
    let knowledge: Arc<dyn KnowledgeStore> = Arc::new(knowledge.expect("opens"));
    let engine = Engine::open(&folder.join("jobs.db")).await.expect("opens");
    let ingestion = Ingestion::new(
        knowledge.clone(),
        engine,
        Arc::new(LocalExtractor),
        4,
        IngestOptions::default(),
    );
    let lines = text.split("\n\n").filter(|part| !part.is_empty());
    let lines: String = lines
        .map(|part| format!("{}\n", serde_json::json!({ "text": part.trim() })))
        .collect();
    let input = NewInput {
        name: "notes.jsonl".to_owned(),
        format: Format::JsonLines,
        content: lines.into_bytes().into(),
    };
    let ingested = ingestion.with_embedder(embedder).run(vec![input], |_| {}).await;
    (knowledge, ingested)
}

async fn recall_with(store: &dyn KnowledgeStore, embedder: &dyn Embedder, question: &str) -> Recalled {
    recall_query(
        store,
        question,
        None,
        &Relations::Embedded(embedder),
        &RecallOptions::default(),
    )
    .await
    .expect("recalls")
}

#[tokio::test]
async fn a_local_model_gives_the_mean_of_its_words() {
    let folder = tempfile::tempdir().expect("a folder");
    small_model::write(
        folder.path(),
        &[("bee", [1.0, 0.0]), ("drum", [0.0, 1.0]), ("loud", [0.0, 3.0])],
    );
    let embedder = Model2VecEmbedder::open(folder.path()).expect("opens");
    let texts = ["Bee", "bee drum", "BEE zebra", "loud bee", "zebra", ""].map(str::to_owned);
    let vectors = embedder.embed(texts.to_vec()).await.expect("embeds");
    let half = 0.5_f32.sqrt();
    let expected = [
        [1.0, 0.0],
        [half, half],
        [1.0, 0.0],
        [0.1_f32.sqrt(), 0.9_f32.sqrt()],
        [0.0, 0.0],
        [0.0, 0.0],
    ];
    for ((vector, expected), text) in vectors.iter().zip(expected).zip(texts) {
        for (number, expected) in vector.numbers().iter().zip(expected) {
            assert!((number - expected).abs() < 1e-6, "{text}: {vector:?}");
        }
    }
    assert!(embedder.identity().starts_with("model2vec "));
}

#[tokio::test]
async fn a_local_model_may_share_and_weigh_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    small_model::write(folder.path(), &[("bee", [0.0, 0.0]), ("wasp", [0.0, 0.0])]);
    let floats = |numbers: &[f32]| numbers.iter().copied().flat_map(f32::to_le_bytes).collect();
    let longs = [0_i64, 1, 1].into_iter().flat_map(i64::to_le_bytes).collect();
    // 1.0 and 2.0 as 16-bit floats.
    let halves = [0_u16, 0, 0x3c00, 0x4000].into_iter().flat_map(u16::to_le_bytes);
    small_model::write_tensors(
        folder.path(),
        &[
            ("embeddings", "F16", &[2, 2], halves.collect()),
            ("weights", "F32", &[3], floats(&[1.0, 1.0, 0.5])),
            ("mapping", "I64", &[3], longs),
        ],
    );
    let embedder = Model2VecEmbedder::open(folder.path()).expect("opens");
    let vectors = embedder
        .embed(vec!["bee".to_owned(), "wasp".to_owned()])
        .await
        .expect("embeds");
    assert_eq!(vectors[0], vectors[1], "both have the direction of one row");
    assert!((vectors[0].numbers()[0] - 0.2_f32.sqrt()).abs() < 1e-6);
}

#[test]
fn a_folder_without_a_model_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = Model2VecEmbedder::open(folder.path()).expect_err("empty");
    assert!(error.to_string().contains("model.safetensors"), "{error}");
    small_model::write(folder.path(), &[("bee", [1.0, 0.0])]);
    std::fs::write(folder.path().join("model.safetensors"), b"no tensors at all").expect("writes");
    let error = Model2VecEmbedder::open(folder.path()).expect_err("no tensors");
    assert!(error.to_string().contains("not a safetensors file"), "{error}");
    small_model::write_tensors(
        folder.path(),
        &[("embeddings", "F32", &[1, 2], 0_u64.to_le_bytes().to_vec())],
    );
    let error = Model2VecEmbedder::open(folder.path()).expect_err("a row is missing");
    assert!(error.to_string().contains("1 rows"), "{error}");
}

#[tokio::test]
async fn ingestion_makes_vectors_that_recall_uses() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = StandIn::start(|_, _| Answer::content("{}")).await;
    let embedder = embedder_of(&service.base_url);
    let (store, ingested) = ingest(folder.path(), Some(embedder.clone()), NOTES).await;
    let vectors = ingested.expect("ingests").vectors;
    let models = store.vector_models().await.expect("models");
    assert_eq!(
        (models[0].model.as_str(), models[0].chunks),
        ("openai directions", 3)
    );
    assert_eq!(models[0].terms + models[0].chunks, vectors);
    assert_eq!(models[0].terms, store.stats().await.expect("stats").terms);
    assert!(
        service.calls(EMBEDDINGS) <= 6,
        "many texts a call: {} calls for {vectors} vectors",
        service.calls(EMBEDDINGS)
    );
    // No word of the question stands anywhere.
    let found = recall_with(&*store, &*embedder, "wasps").await;
    assert_eq!(found.messages[0].message.message.text(), "Bees hum loudly.");
    let without = gristmill_memory::recall(&*store, "wasps", &RecallOptions::default()).await;
    assert!(without.expect("recalls").messages.is_empty());
}

#[tokio::test]
async fn an_embedder_that_comes_later_makes_up_for_what_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, ingested) = ingest(folder.path(), None, NOTES).await;
    assert_eq!(ingested.expect("ingests").vectors, 0);
    assert!(store.vector_models().await.expect("models").is_empty());
    let service = StandIn::start(|_, _| Answer::content("{}")).await;
    let (_, again) = ingest(folder.path(), Some(embedder_of(&service.base_url)), NOTES).await;
    let again = again.expect("ingests");
    assert_eq!((again.sources_skipped, again.progress.messages), (1, 0));
    let terms = store.stats().await.expect("stats").terms;
    assert_eq!(again.vectors, terms + 3);
    let (_, third) = ingest(folder.path(), Some(embedder_of(&service.base_url)), NOTES).await;
    assert_eq!(third.expect("ingests").vectors, 0, "made once");
}

#[tokio::test]
async fn a_broken_embedder_costs_no_message() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, ingested) = ingest(folder.path(), Some(Arc::new(Broken)), NOTES).await;
    let error = ingested.expect_err("no vectors");
    assert!(
        error.to_string().contains("run the same command again to add"),
        "{error}"
    );
    assert_eq!(store.stats().await.expect("stats").messages, 3);
    assert!(store.vector_models().await.expect("models").is_empty());
}

#[derive(Debug)]
struct Broken;

#[async_trait::async_trait]
impl Embedder for Broken {
    fn identity(&self) -> String {
        "broken".to_owned()
    }

    fn texts_max(&self) -> usize {
        10
    }

    fn bytes_max(&self) -> usize {
        1_000
    }

    fn related_cosine_min(&self) -> f64 {
        0.5
    }

    async fn embed(&self, _: Vec<String>) -> Result<Vec<Vector>, EmbedError> {
        Err(EmbedError::Vectors("it is broken".to_owned()))
    }
}
