//! Ingestion from end to end, with a stand-in for the model service.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gristmill_engine::Engine;
use gristmill_memory::extract::{
    Extractor, Limiter, LimiterSettings, LocalExtractor, OpenAiExtractor, OpenAiSettings,
};
use gristmill_memory::pipeline::outcomes::Extractions;
use gristmill_memory::pipeline::{
    IngestError, IngestEvent, IngestOptions, Ingested, Ingestion, NewInput, OnFailure,
};
use gristmill_memory::source::{Content, Format};
use gristmill_memory::{
    Knowledge, KnowledgeStore, MessageOrdinal, RecallOptions, SqliteKnowledge, SqliteKnowledgeOptions, recall,
};

use gristmill_test_tools::stand_in::{Answer, StandIn, knowledge};

const SHOW: &str = "The Bee Show\n\nADA KING: I saw Drums in Paris.\n\nBOB RAY: Yeah.\n\nADA KING: Yeah.\n\nBOB RAY: Bees like London.\n";

fn extractor(service: &StandIn) -> Arc<dyn Extractor> {
    Arc::new(openai(service, 4))
}

fn openai(service: &StandIn, concurrency: usize) -> OpenAiExtractor {
    let settings = OpenAiSettings {
        base_url: service.base_url.clone(),
        model: "stand-in".to_owned(),
        key: None,
        timeout: Duration::from_secs(30),
    };
    let limiter = Limiter::new(LimiterSettings {
        concurrency,
        ..LimiterSettings::default()
    });
    OpenAiExtractor::new(settings, limiter).expect("settings")
}

/// A knowledge base and an engine in one folder.
struct Place {
    knowledge: Arc<dyn KnowledgeStore>,
    engine: Engine,
}

impl Place {
    async fn open(folder: &Path) -> Place {
        let knowledge =
            SqliteKnowledge::open(folder.join("kb.db"), SqliteKnowledgeOptions::default()).expect("opens");
        Place {
            knowledge: Arc::new(knowledge),
            engine: Engine::open(&folder.join("jobs.db")).await.expect("opens"),
        }
    }

    async fn ingest(
        &self,
        extractor: &Arc<dyn Extractor>,
        inputs: &[(&str, &str)],
        options: IngestOptions,
    ) -> Result<Ingested, IngestError> {
        let ingestion = Ingestion::new(
            self.knowledge.clone(),
            self.engine.clone(),
            extractor.clone(),
            4,
            options,
        );
        ingestion.run(self.inputs(inputs), |_| {}).await
    }

    fn inputs(&self, inputs: &[(&str, &str)]) -> Vec<NewInput> {
        let inputs = inputs.iter().map(|(name, text)| NewInput {
            name: (*name).to_owned(),
            format: Format::of(Path::new(name), text.as_bytes()),
            content: text.as_bytes().to_vec().into(),
        });
        inputs.collect()
    }

    async fn texts(&self) -> Vec<String> {
        let end = self.knowledge.columns().await.expect("columns").message_end();
        let ordinals = (0..end).map(MessageOrdinal).collect();
        let messages = self.knowledge.messages(ordinals).await.expect("messages");
        messages.iter().map(|stored| stored.message.text()).collect()
    }
}

#[tokio::test]
async fn ingests_once_and_calls_once_for_each_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = StandIn::start(|text, _| Answer::content(knowledge(text))).await;
    let place = Place::open(folder.path()).await;
    let extractor = extractor(&service);
    let inputs = [("show.txt", SHOW), ("notes.md", "# Bees\n\nBees like Drums.\n")];
    let ingested = place
        .ingest(&extractor, &inputs, IngestOptions::default())
        .await
        .expect("ingests");
    assert_eq!(ingested.progress.messages, 6);
    assert_eq!(
        ingested.progress.usage.calls, 5,
        "`Yeah.` is said by two speakers: {ingested:?}"
    );
    assert_eq!(
        place.texts().await,
        [
            "The Bee Show",
            "I saw Drums in Paris.",
            "Yeah.",
            "Yeah.",
            "Bees like London.",
            "# Bees\n\nBees like Drums."
        ]
    );
    let calls = service.calls_total();
    let again = place
        .ingest(&extractor, &inputs, IngestOptions::default())
        .await
        .expect("ingests");
    assert_eq!((again.sources_skipped, again.progress.messages), (2, 0));
    // The same texts in another file are known too.
    let copy = [("copy.txt", SHOW)];
    place
        .ingest(&extractor, &copy, IngestOptions::default())
        .await
        .expect("ingests");
    assert_eq!(service.calls_total(), calls);

    let found = recall(
        &*place.knowledge,
        "What did Ada say about Paris?",
        &RecallOptions::default(),
    )
    .await
    .expect("recalls");
    assert_eq!(found.messages[0].message.message.text(), "I saw Drums in Paris.");
}

#[tokio::test]
async fn a_failure_is_recorded_and_the_other_chunks_are_ingested() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = StandIn::start(|text, before| match text {
        "I saw Drums in Paris." if before < 2 => Answer::content("{\"entities\": [{"),
        "Bees like London." if before == 0 => Answer::content("no JSON"),
        _ => Answer::content(knowledge(text)),
    })
    .await;
    let place = Place::open(folder.path()).await;
    let extractor = extractor(&service);
    let ingested = place
        .ingest(&extractor, &[("show.txt", SHOW)], IngestOptions::default())
        .await
        .expect("ingests");
    assert_eq!((ingested.progress.messages, ingested.progress.failures), (5, 1));
    let failures = place.knowledge.failures().await.expect("failures");
    assert_eq!((failures.len(), failures[0].position), (1, 1));
    assert!(failures[0].error.contains("repaired"), "{}", failures[0].error);
    assert_eq!(service.calls("Bees like London."), 2, "one repair");

    let retry = IngestOptions {
        retry_failed: true,
        ..IngestOptions::default()
    };
    let retried = place.ingest(&extractor, &[], retry).await.expect("retries");
    assert_eq!(retried.progress.usage.calls, 1);
    assert!(place.knowledge.failures().await.expect("failures").is_empty());
    let postings = place
        .knowledge
        .postings(vec!["paris".to_owned()])
        .await
        .expect("postings");
    assert_eq!(postings[0].by_property.len(), 1);
}

#[tokio::test]
async fn failures_of_a_moved_file_are_retried() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = StandIn::start(|text, before| match text {
        "Bees like London." if before < 2 => Answer::content("no JSON"),
        _ => Answer::content(knowledge(text)),
    })
    .await;
    let place = Place::open(folder.path()).await;
    let extractor = extractor(&service);
    let (old, new) = (folder.path().join("show.txt"), folder.path().join("moved.txt"));
    std::fs::write(&old, SHOW).expect("writes");
    let ingest = async |paths: &[&Path], retry_failed| {
        let options = IngestOptions {
            retry_failed,
            ..IngestOptions::default()
        };
        let (knowledge, engine) = (place.knowledge.clone(), place.engine.clone());
        let ingestion = Ingestion::new(knowledge, engine, extractor.clone(), 4, options);
        let inputs = paths.iter().map(|path| NewInput {
            name: path.display().to_string(),
            format: Format::of(path, SHOW.as_bytes()),
            content: Content::File(path.to_path_buf()),
        });
        ingestion.run(inputs, |_| {}).await.expect("ingests")
    };
    assert_eq!(ingest(&[&old], false).await.progress.failures, 1);
    std::fs::rename(&old, &new).expect("moves");
    // A command that retries failures names the file of each record too.
    let retried = ingest(&[&new, &old], true).await;
    assert_eq!((retried.progress.failures, retried.sources_failed), (0, 0));
    assert!(place.knowledge.failures().await.expect("failures").is_empty());
    assert_eq!(place.texts().await.len(), 5, "nothing is read twice");
}

#[tokio::test]
async fn a_failure_can_stop_the_ingestion_after_all_earlier_messages() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = StandIn::start(|text, _| match text {
        "Bees like London." => Answer::content("no JSON"),
        _ => Answer::content(knowledge(text)),
    })
    .await;
    let place = Place::open(folder.path()).await;
    let stop = IngestOptions {
        on_failure: OnFailure::Stop,
        ..IngestOptions::default()
    };
    let error = place
        .ingest(&extractor(&service), &[("show.txt", SHOW)], stop)
        .await
        .expect_err("stops");
    assert!(error.to_string().starts_with("show.txt, message 4: "), "{error}");
    assert_eq!(place.texts().await.len(), 4);
    let source = place
        .knowledge
        .source("show.txt")
        .await
        .expect("asks")
        .expect("a source");
    assert!(!source.complete);
    // The same command without the stop goes on from there.
    place
        .ingest(
            &extractor(&service),
            &[("show.txt", SHOW)],
            IngestOptions::default(),
        )
        .await
        .expect("goes on");
    assert_eq!(place.texts().await.len(), 5);
    assert_eq!(service.calls("The Bee Show"), 1);
}

#[tokio::test]
async fn a_changed_source_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = StandIn::start(|text, _| Answer::content(knowledge(text))).await;
    let place = Place::open(folder.path()).await;
    let extractor = extractor(&service);
    place
        .ingest(&extractor, &[("show.txt", SHOW)], IngestOptions::default())
        .await
        .expect("ingests");
    let calls = service.calls_total();
    let changed = SHOW.replace("London", "Oslo");
    let ingested = place
        .ingest(&extractor, &[("show.txt", &changed)], IngestOptions::default())
        .await
        .expect("ingests");
    assert_eq!(ingested.sources_replaced, 1);
    assert_eq!(
        service.calls_total(),
        calls + 1,
        "only the changed chunk is read again"
    );
    let stats = place.knowledge.stats().await.expect("stats");
    assert_eq!((stats.sources, stats.messages), (1, 5));
    let postings = place
        .knowledge
        .postings(vec!["london".to_owned(), "oslo".to_owned()])
        .await
        .expect("postings");
    assert_eq!(
        postings
            .iter()
            .map(|found| found.by_property.len())
            .collect::<Vec<_>>(),
        [0, 1]
    );
}

#[tokio::test]
async fn rejected_calls_are_tried_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = StandIn::start(|text, before| match before {
        0 => Answer::rejected(20),
        1 => Answer {
            status: 500,
            headers: vec![("retry-after-ms".to_owned(), "1".to_owned())],
            ..Answer::content("")
        },
        _ => Answer::content(knowledge(text)),
    })
    .await;
    let place = Place::open(folder.path()).await;
    let ingested = place
        .ingest(
            &extractor(&service),
            &[("show.txt", SHOW)],
            IngestOptions::default(),
        )
        .await
        .expect("ingests");
    assert_eq!((ingested.progress.messages, ingested.progress.failures), (5, 0));
    assert!(ingested.progress.usage.retries >= 4, "{ingested:?}");
}

#[tokio::test]
async fn a_refused_request_is_not_tried_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = StandIn::start(|_, _| Answer {
        status: 400,
        ..Answer::content("a wrong field")
    })
    .await;
    let place = Place::open(folder.path()).await;
    let ingested = place
        .ingest(
            &extractor(&service),
            &[("show.txt", SHOW)],
            IngestOptions::default(),
        )
        .await
        .expect("ingests");
    assert_eq!(ingested.progress.failures, 5);
    let failures = place.knowledge.failures().await.expect("failures");
    assert!(
        failures[0].error.contains("400") && failures[0].error.contains("a wrong field"),
        "{}",
        failures[0].error
    );
}

#[tokio::test]
async fn events_describe_committed_data() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = Place::open(folder.path()).await;
    let local: Arc<dyn Extractor> = Arc::new(LocalExtractor);
    let ingestion = Ingestion::new(
        place.knowledge.clone(),
        place.engine.clone(),
        local,
        2,
        IngestOptions::default(),
    );
    let mut committed = Vec::new();
    let inputs = place.inputs(&[("show.txt", SHOW)]);
    let ingested = ingestion
        .run(inputs, |event| {
            if let IngestEvent::Committed(progress) = event {
                committed.push(progress.messages);
            }
        })
        .await
        .expect("ingests");
    assert!(
        committed.is_sorted() && committed.last() == Some(&5),
        "{committed:?}"
    );
    assert!(ingested.progress.refs > 10);
    let found = recall(&*place.knowledge, "Paris", &RecallOptions::default())
        .await
        .expect("recalls");
    let texts: Vec<String> = found
        .messages
        .iter()
        .map(|found| found.message.message.text())
        .collect();
    assert!(texts[0].contains("Paris"), "{texts:?}");
    assert_eq!(texts[1], "The Bee Show", "what was said next to it: {texts:?}");
}

/// Holds calls until the test releases them.
#[derive(Default)]
struct Gate {
    state: std::sync::Mutex<(usize, bool)>,
    changed: std::sync::Condvar,
}

impl Gate {
    fn change(&self, change: impl FnOnce(&mut (usize, bool))) {
        change(&mut self.state.lock().expect("the gate"));
        self.changed.notify_all();
    }

    fn wait_until(&self, is_reached: impl Fn(&(usize, bool)) -> bool) {
        let state = self.state.lock().expect("the gate");
        let waited = self
            .changed
            .wait_timeout_while(state, Duration::from_secs(30), |state| !is_reached(state));
        assert!(!waited.expect("the gate").1.timed_out(), "nothing changes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_stop_keeps_calls_that_have_begun() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = Place::open(folder.path()).await;
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let service = StandIn::start(move |text, _| {
        held.change(|(begun, _)| *begun += 1);
        held.wait_until(|(_, is_open)| *is_open);
        Answer::content(knowledge(text))
    })
    .await;
    let extractor = extractor(&service);
    let lines: String = (0..40)
        .map(|number| format!("{{\"text\": \"Bee {number} hums.\"}}\n"))
        .collect();
    let inputs = [("bees.jsonl", &*lines)];
    let ingestion = Ingestion::new(
        place.knowledge.clone(),
        place.engine.clone(),
        extractor.clone(),
        4,
        IngestOptions::default(),
    );
    let stopper = ingestion.stopper();
    let sources = place.inputs(&inputs);
    let begun = gate.clone();
    let stop = async {
        tokio::task::spawn_blocking(move || begun.wait_until(|(begun, _)| *begun == 4))
            .await
            .expect("four calls begin");
        stopper.stop();
        gate.change(|(_, is_open)| *is_open = true);
    };
    let (ended, ()) = tokio::join!(ingestion.run(sources, |_| {}), stop);
    assert!(matches!(ended, Err(IngestError::Stopped)), "{ended:?}");
    assert!(service.calls_total() < 40, "it was stopped");
    place
        .ingest(&extractor, &inputs, IngestOptions::default())
        .await
        .expect("goes on");
    assert_eq!(service.calls_total(), 40, "no call is paid for twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_under_way_at_a_stop_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = Place::open(folder.path()).await;
    let lines: String = (0..6_000)
        .map(|number| format!("{{\"text\": \"Bee {number} hums.\"}}\n"))
        .collect();
    let ingestion = Ingestion::new(
        place.knowledge.clone(),
        place.engine.clone(),
        Arc::new(LocalExtractor),
        4,
        IngestOptions::default(),
    );
    let stopper = ingestion.stopper();
    let mut told = 0;
    let ended = ingestion
        .run(place.inputs(&[("bees.jsonl", &lines)]), |event| {
            // The first commit may hold the beginning of the source alone.
            if let IngestEvent::Committed(progress) = event
                && progress.messages > 0
            {
                told = progress.messages;
                stopper.stop();
            }
        })
        .await;
    assert!(matches!(ended, Err(IngestError::Stopped)), "{ended:?}");
    let stored = place.knowledge.columns().await.expect("columns").message_end();
    assert!((1..6_000).contains(&stored), "{stored} messages");
    assert_eq!(told, u64::from(stored));
}

#[tokio::test]
async fn unfinished_jobs_of_an_earlier_run_are_cancelled() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = StandIn::start(|text, _| Answer::content(knowledge(text))).await;
    let place = Place::open(folder.path()).await;
    let extractor = extractor(&service);
    let left = [extractor.chunk("Left behind.", None)];
    let mut earlier = Extractions::open(place.engine.clone(), None)
        .await
        .expect("opens");
    earlier.submit(&left).await.expect("submits");
    place
        .ingest(&extractor, &[("show.txt", SHOW)], IngestOptions::default())
        .await
        .expect("ingests");
    assert_eq!(service.calls("Left behind."), 0);
    assert_eq!(service.calls_total(), 4);
}

#[tokio::test]
async fn files_are_read_when_their_turn_comes() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = Place::open(folder.path()).await;
    let local: Arc<dyn Extractor> = Arc::new(LocalExtractor);
    let path = folder.path().join("bees.jsonl");
    let ingest = || async {
        let ingestion = Ingestion::new(
            place.knowledge.clone(),
            place.engine.clone(),
            local.clone(),
            2,
            IngestOptions::default(),
        );
        ingestion.run([NewInput::from_file(&path)], |_| {}).await
    };
    let line = |bee: u32| format!("{{\"text\": \"Bee {bee} hums.\", \"from\": \"Ada King\"}}\n");
    std::fs::write(&path, (0..2_000).map(line).collect::<String>()).expect("writes");
    let ingested = ingest().await.expect("ingests");
    assert_eq!(
        (ingested.progress.messages, ingested.progress.chunks_total),
        (2_000, 2_000)
    );
    assert_eq!(ingest().await.expect("ingests").sources_skipped, 1);
    // A file of which nothing can be read does not replace what is stored.
    std::fs::write(&path, "no message\n").expect("writes");
    let error = ingest().await.expect_err("a bad line").to_string();
    assert!(error.contains("bees.jsonl, line 1: "), "{error}");
    assert_eq!(place.texts().await.len(), 2_000);
    std::fs::write(&path, line(7) + "no message\n").expect("writes");
    let ingested = ingest().await.expect("ingests");
    assert_eq!((ingested.sources_replaced, ingested.progress.unread), (1, 1));
    assert_eq!(place.texts().await, ["Bee 7 hums."]);
    let aliases = place
        .knowledge
        .aliases(vec!["ada".to_owned()])
        .await
        .expect("aliases");
    assert!(aliases[0].is_some(), "people are known from the whole source");
}

/// Knowledge of texts that one call reads together, as a model may tell it, or of one.
fn knowledge_of_all(text: &str) -> String {
    let Ok(parts) = serde_json::from_str::<Vec<serde_json::Value>>(text) else {
        return knowledge(text);
    };
    let texts = parts.iter().map(|part| {
        let text = part["text"].as_str().expect("a text");
        let mut known: serde_json::Value = serde_json::from_str(&knowledge(text)).expect("knowledge");
        known["n"] = part["n"].clone();
        known
    });
    serde_json::json!({ "texts": texts.collect::<Vec<_>>() }).to_string()
}

fn chat_of(lines: usize) -> String {
    let lines =
        (0..lines).map(|number| format!("{{\"text\": \"Bee{number} hums in the hive all day long.\"}}\n"));
    lines.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_messages_share_calls_and_keep_their_own_knowledge() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = StandIn::start(|text, _| Answer::content(knowledge_of_all(text))).await;
    let place = Place::open(folder.path()).await;
    let extractor: Arc<dyn Extractor> = Arc::new(openai(&service, 20).with_texts_per_call(20));
    let chat = chat_of(400);
    let ingested = place
        .ingest(&extractor, &[("chat.jsonl", &chat)], IngestOptions::default())
        .await
        .expect("ingests");
    assert_eq!((ingested.progress.messages, ingested.progress.failures), (400, 0));
    let calls = ingested.progress.usage.calls;
    assert!(calls <= 80, "a fifth of the messages at most: {calls} calls");
    assert_eq!(service.calls_total(), calls, "each call is counted once");
    for number in [0, 17, 399] {
        let found = recall(
            &*place.knowledge,
            &format!("Bee{number}"),
            &RecallOptions::default(),
        )
        .await
        .expect("recalls");
        let entities = found
            .knowledge
            .iter()
            .filter_map(|found| match &found.reference.knowledge {
                Knowledge::Entity(entity) if entity.name == format!("Bee{number}") => {
                    Some(found.reference.range.message.0)
                }
                _ => None,
            });
        let entities: Vec<u32> = entities.collect();
        assert_eq!(entities, [number], "the knowledge belongs to its message");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_that_a_shared_answer_leaves_out_is_read_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = StandIn::start(|text, _| match text.starts_with('[') {
        // The model leaves out all but the first text.
        true => Answer::content("<think>Hm.</think> {\"texts\": [{\"n\": 1, \"topics\": [\"bees\"]}]}"),
        false => Answer::content(knowledge(text)),
    })
    .await;
    let place = Place::open(folder.path()).await;
    let extractor: Arc<dyn Extractor> = Arc::new(openai(&service, 4).with_texts_per_call(20));
    let chat = chat_of(10);
    let ingested = place
        .ingest(&extractor, &[("chat.jsonl", &chat)], IngestOptions::default())
        .await
        .expect("ingests");
    assert_eq!((ingested.progress.messages, ingested.progress.failures), (10, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_refuses_all_ends_the_run_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let is_paid = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let paid = is_paid.clone();
    let service = StandIn::start(
        move |text, _| match paid.load(std::sync::atomic::Ordering::Relaxed) {
            true => Answer::content(knowledge(text)),
            false => Answer {
                status: 429,
                ..Answer::content("insufficient_quota: you exceeded your current quota")
            },
        },
    )
    .await;
    let place = Place::open(folder.path()).await;
    let extractor = extractor(&service);
    let chat = chat_of(200);
    let ended = place
        .ingest(&extractor, &[("chat.jsonl", &chat)], IngestOptions::default())
        .await;
    let error = ended.expect_err("nothing is left to spend").to_string();
    assert!(error.contains("you exceeded your current quota"), "{error}");
    assert!(
        service.calls_total() < 100,
        "it asks no more: {}",
        service.calls_total()
    );
    // Once the quota is there again, nothing has failed.
    is_paid.store(true, std::sync::atomic::Ordering::Relaxed);
    let ingested = place
        .ingest(&extractor, &[("chat.jsonl", &chat)], IngestOptions::default())
        .await
        .expect("ingests");
    assert_eq!((ingested.progress.messages, ingested.progress.failures), (200, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_parameter_costs_no_chunk() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = StandIn::start_with_requests(|request, _| match request.get("temperature") {
        Some(_) => Answer {
            status: 400,
            ..Answer::content("Unsupported value: 'temperature' does not support 0 with this model.")
        },
        None => Answer::content(knowledge(
            request["messages"][1]["content"].as_str().expect("a text"),
        )),
    })
    .await;
    let place = Place::open(folder.path()).await;
    let extractor = extractor(&service);
    let chat = chat_of(40);
    let ingested = place
        .ingest(&extractor, &[("chat.jsonl", &chat)], IngestOptions::default())
        .await
        .expect("ingests");
    assert_eq!((ingested.progress.messages, ingested.progress.failures), (40, 0));
    // Calls that begin before the first answer without it have it, too: far fewer than half of them.
    assert!(
        service.calls_total() < 60,
        "only the first calls have it: {}",
        service.calls_total()
    );
}
