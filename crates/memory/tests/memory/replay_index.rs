//! The recorded index and questions, from the folder that `GRISTMILL_REPLAY` names; skipped without it. Run with
//! `make test-replay REPLAY=DIR`.

use std::path::Path;

use gristmill_memory::import::{ImportOptions, import_index};
use gristmill_memory::recorded::Candidate;
use gristmill_memory::{
    KnowledgeStore, PostgresKnowledge, RecallOptions, SqliteKnowledge, SqliteKnowledgeOptions, recorded,
};

use gristmill_test_tools::replayed::{check_score, replay};

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
    check_score(&replay, &output);
}
