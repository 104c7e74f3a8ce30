//! The recorded index and questions, from the folder that `GRISTMILL_REPLAY` names; skipped without it. Run with
//! `make test-replay REPLAY=DIR`.

mod replayed;

use std::path::Path;

use gristmill_memory::import::{ImportOptions, import_index};
use gristmill_memory::recorded::Candidate;
use gristmill_memory::{
    KnowledgeStore, PostgresKnowledge, RecallOptions, SqliteKnowledge, SqliteKnowledgeOptions, recorded,
};
use replayed::replay;

/// Imports the recorded index and answers the recorded questions.
async fn candidates(store: &dyn KnowledgeStore, replay: &Path) -> Vec<Candidate> {
    let index = replay.join("data/index_1603.json");
    let imported = import_index(store, &index, &ImportOptions::default())
        .await
        .expect("imports");
    let stats = store.stats().await.expect("stats");
    assert_eq!(stats.refs(), 1_603);
    assert_eq!(stats.terms as usize, imported.recorded_terms);
    assert_eq!(stats.postings as usize, imported.recorded_postings);
    let questions = recorded::read(&replay.join("data/search_results_even.json")).expect("reads");
    recorded::run(store, &questions, &RecallOptions::default())
        .await
        .expect("runs")
}

#[tokio::test]
async fn scores_the_recorded_questions() {
    let Some(replay) = replay() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteKnowledge::open(folder.path().join("kb.db"), SqliteKnowledgeOptions::default());
    let candidates = candidates(&store.expect("opens"), &replay).await;
    // The other store finds the same, in the same order.
    let database = gristmill_private_postgres::shared()
        .create_database()
        .expect("a database");
    let other = PostgresKnowledge::open(&database, true).await.expect("opens");
    assert_eq!(self::candidates(&other, &replay).await, candidates);
    let output = folder.path().join("candidate.json");
    std::fs::write(&output, serde_json::to_string(&candidates).expect("serialises")).expect("writes");
    let scored = std::process::Command::new("python3")
        .arg(replay.join("score.py"))
        .arg(&output)
        .arg("-v")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 runs");
    assert!(
        scored.status.success(),
        "{}",
        String::from_utf8_lossy(&scored.stderr)
    );
    let scores: serde_json::Value = serde_json::from_slice(&scored.stdout).expect("JSON");
    println!("{scores}");
    let right = |key: &str| -> u32 {
        let text = scores[key].as_str().expect("a share");
        text.split('/')
            .next()
            .and_then(|right| right.parse().ok())
            .expect("a number")
    };
    assert!(right("compiled_exact") >= 33);
    assert!(right("all_knowledge_exact") >= 32);
    assert!(right("messages_exact_when_not_capped") >= 17);
    assert_eq!(right("capped_messages_within_pool"), 15);
}
