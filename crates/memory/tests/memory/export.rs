//! The import of an export into an empty knowledge base restores the same knowledge base.

use std::sync::Arc;
use std::time::Duration;

use gristmill_memory::export::export_index;
use gristmill_memory::extract::{Limiter, LimiterSettings, OpenAiExtractor, OpenAiSettings};
use gristmill_memory::import::{ImportOptions, import_index};
use gristmill_memory::pipeline::{IngestOptions, NewInput};
use gristmill_memory::store::KnowledgeStats;
use gristmill_memory::{KnowledgeStore, Memory, MessageOrdinal, RefOrdinal};

use gristmill_test_tools::stand_in::{Answer, StandIn, knowledge};

const SHOW: &str = "The Bee Show\n\nADA KING: I saw Drums in Paris.\n\nBOB RAY: Bees like London.\n";
const MAIL: &str = "From: Ada King <ada@bees.example>\r\nTo: Bob <bob@bees.example>\r\nSubject: Drums\r\n\
                    Date: Mon, 1 May 2023 09:30:00 +0200\r\n\r\nThey hum in Oslo.\r\n";

async fn filled(folder: &std::path::Path) -> Memory {
    let service = StandIn::start(|text, _| match text {
        "Bees like London." => Answer::content("no JSON"),
        _ => Answer::content(knowledge(text)),
    })
    .await;
    let settings = OpenAiSettings {
        base_url: service.base_url.clone(),
        model: "stand-in".to_owned(),
        key: None,
        timeout: Duration::from_secs(5),
    };
    let extractor = OpenAiExtractor::new(settings, Limiter::new(LimiterSettings::default()));
    let memory = Memory::open(&folder.join("kb.db").display().to_string())
        .await
        .expect("opens");
    let inputs = vec![
        NewInput::from_bytes("show.txt", SHOW.into()),
        NewInput::from_bytes("mail.eml", MAIL.into()),
    ];
    let extractor = Arc::new(extractor.expect("settings"));
    let ingested = memory
        .ingest(inputs, extractor, 4, IngestOptions::default(), |_| {})
        .await
        .expect("ingests");
    assert_eq!((ingested.progress.messages, ingested.progress.failures), (4, 1));
    memory
}

/// Everything in a knowledge base that does not depend on its file.
async fn everything(store: &dyn KnowledgeStore) -> (KnowledgeStats, String) {
    let columns = store.columns().await.expect("columns");
    let messages = (0..columns.message_end()).map(MessageOrdinal).collect();
    let refs = (0..columns.ref_end()).map(RefOrdinal).collect();
    let mut failures = store.failures().await.expect("failures");
    failures.iter_mut().for_each(|failure| failure.message.0 = 0);
    // A failed chunk's own knowledge may be numbered anew.
    let mut refs: Vec<String> = store
        .refs(refs)
        .await
        .expect("refs")
        .iter()
        .map(|reference| format!("{:?} {:?}", reference.range, reference.knowledge))
        .collect();
    refs.sort();
    let all = format!(
        "{:?}\n{:?}\n{:?}\n{refs:?}\n{failures:?}",
        store.sources().await.expect("sources"),
        store.messages(messages).await.expect("messages"),
        store.all_aliases().await.expect("aliases"),
    );
    let stats = store.stats().await.expect("stats");
    (KnowledgeStats { bytes: 0, ..stats }, all)
}

#[tokio::test]
async fn an_export_is_the_same_when_it_is_imported() {
    let folder = tempfile::tempdir().expect("a folder");
    let memory = filled(folder.path()).await;
    let store = memory.knowledge();
    let mut written = Vec::new();
    let exported = export_index(&**store, "kb", &mut written).await.expect("exports");
    assert_eq!((exported.sources, exported.messages), (2, 4));
    let path = folder.path().join("export.json");
    std::fs::write(&path, &written).expect("writes");

    let other = folder.path().join("other.db").display().to_string();
    let other = Memory::open(&other).await.expect("opens");
    let imported = import_index(&**other.knowledge(), &path, &ImportOptions::default())
        .await
        .expect("imports");
    assert_eq!((imported.sources, imported.applied.messages), (2, 4));
    let (stats, all) = everything(&**store).await;
    let (other_stats, other_all) = everything(&**other.knowledge()).await;
    assert_eq!(stats, other_stats);
    assert_eq!(all, other_all);
    assert_eq!(imported.recorded_terms as u64, stats.terms);
    assert_eq!(imported.recorded_postings as u64, stats.postings);

    // Imported again, it replaces what is there.
    import_index(&**other.knowledge(), &path, &ImportOptions::default())
        .await
        .expect("imports");
    assert_eq!(everything(&**other.knowledge()).await.0, stats);
}

#[tokio::test]
async fn an_export_that_does_not_fit_itself_is_refused_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let memory = filled(folder.path()).await;
    let mut written = Vec::new();
    export_index(&**memory.knowledge(), "kb", &mut written)
        .await
        .expect("exports");
    let text = String::from_utf8(written).expect("UTF-8");
    for (from, to) in [
        ("\"messages\":3", "\"messages\":7"),
        ("\"messageOrdinal\":3", "\"messageOrdinal\":99"),
    ] {
        let path = folder.path().join("wrong.json");
        assert!(text.contains(from), "{from} in {text}");
        std::fs::write(&path, text.replace(from, to)).expect("writes");
        let empty = folder.path().join("empty.db").display().to_string();
        let empty = Memory::open(&empty).await.expect("opens");
        let error = import_index(&**empty.knowledge(), &path, &ImportOptions::default())
            .await
            .expect_err("it does not fit");
        assert!(error.to_string().contains("wrong.json"), "{error}");
        assert_eq!(empty.knowledge().stats().await.expect("stats").messages, 0);
    }
}
