//! The recorded index and questions, from the folder that `GRISTMILL_REPLAY` names; skipped without it. Run with
//! `make test-replay REPLAY=DIR`.

use std::path::{Path, PathBuf};

use gristmill_memory::import::{ImportOptions, import_index};
use gristmill_memory::{KnowledgeStore, RecallOptions, SqliteKnowledge, SqliteKnowledgeOptions, recorded};

fn replay() -> Option<PathBuf> {
    let folder = std::env::var_os("GRISTMILL_REPLAY").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: GRISTMILL_REPLAY names no folder");
    }
    folder
}

fn open(folder: &Path) -> SqliteKnowledge {
    SqliteKnowledge::open(folder.join("kb.db"), SqliteKnowledgeOptions::default()).expect("opens")
}

#[tokio::test]
async fn scores_the_recorded_questions() {
    let Some(replay) = replay() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let index = replay.join("data/index_1603.json");
    let imported = import_index(&store, &index, &ImportOptions::default())
        .await
        .expect("imports");
    let stats = store.stats().await.expect("stats");
    assert_eq!(stats.refs(), 1_603);
    assert_eq!(stats.terms as usize, imported.recorded_terms);
    assert_eq!(stats.postings as usize, imported.recorded_postings);

    let questions = recorded::read(&replay.join("data/search_results_even.json")).expect("reads");
    let candidates = recorded::run(&store, &questions, &RecallOptions::default())
        .await
        .expect("runs");
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
