//! The program on the recorded index and the replayed model service, from the folder that `GRISTMILL_REPLAY` names; skipped
//! without it. Run with `make test-replay REPLAY=DIR`.

#[path = "../../memory/tests/replayed/mod.rs"]
mod replayed;
mod workspace;

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use gristmill_model::{Rng, SplitMix64};
use replayed::{ARRIVED, Service, answered, pass, replay};
use serde_json::Value;
use workspace::{Workspace, json_lines};

/// How often the ingestion is killed.
const KILLS: u32 = 20;

fn ingest(replay: &Path, service: &Service, into: &str, concurrency: u32) -> String {
    format!(
        "ingest {} --into {into} --base-url http://127.0.0.1:{}/v1 --concurrency {concurrency} --json",
        replay.join("data/transcript.txt").display(),
        service.port
    )
}

/// All that a knowledge base holds, but for when it was ingested.
fn export(workspace: &Workspace, knowledge: &str) -> Value {
    let text = workspace.run(&format!("memory export {knowledge}")).expect(0);
    let mut export: Value = serde_json::from_str(&text).expect("JSON");
    export["nameTag"] = Value::Null;
    for source in export["sourceData"].as_array_mut().expect("sources") {
        source["ingestedAt"] = Value::Null;
    }
    export
}

#[test]
fn the_program_rebuilds_the_recorded_index() {
    let Some(replay) = replay() else { return };
    let service = Service::start(&replay, &["--chat-median", "0.01", "--chat-p99", "0.05"]);
    let workspace = Workspace::new();
    let told = json_lines(&workspace.run(&ingest(&replay, &service, "kb.db", 20)).expect(0)).remove(0);
    println!("{told}");
    assert_eq!(
        (told["messages"].as_u64(), told["refs"].as_u64()),
        (Some(106), Some(1_603))
    );
    assert_eq!(
        service.stats()["misses"],
        0,
        "every message is cut as it was recorded"
    );
    let stats = json_lines(&workspace.run("memory stats kb.db --json").expect(0)).remove(0);
    assert_eq!(stats["terms"], 1_142);
}

#[test]
fn the_program_keeps_all_but_the_broken_answers() {
    let Some(replay) = replay() else { return };
    let fast_and_broken = ["--chat-median", "0.01", "--chat-p99", "0.05", "--p-bad", "0.2"];
    let service = Service::start(&replay, &fast_and_broken);
    let workspace = Workspace::new();
    let told = json_lines(&workspace.run(&ingest(&replay, &service, "kb.db", 20)).expect(1)).remove(0);
    println!("{told}");
    let listed = json_lines(&workspace.run("memory failures kb.db --json").expect(0));
    assert_eq!(told["messages"], 106);
    assert_eq!(told["failures"].as_u64(), Some(listed.len() as u64));
    assert!(!listed.is_empty() && listed.len() < 20, "{}", listed.len());
    for failure in listed {
        assert!(
            failure["error"]
                .as_str()
                .expect("an error")
                .contains("no extraction"),
            "{failure}"
        );
    }
}

#[test]
fn the_program_scores_the_recorded_questions() {
    let Some(replay) = replay() else { return };
    let workspace = Workspace::new();
    let data = |name: &str| replay.join("data").join(name).display().to_string();
    workspace
        .run(&format!("memory import {} --into kb.db", data("index_1603.json")))
        .expect(0);
    let questions = data("search_results_even.json");
    workspace
        .run(&format!(
            "recall kb.db --recorded {questions} --output candidate.json"
        ))
        .expect(0);
    let scored = std::process::Command::new("python3")
        .arg(replay.join("score.py"))
        .arg(workspace.path("candidate.json"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 runs");
    let scores: Value = serde_json::from_slice(&scored.stdout).expect("JSON");
    println!("{scores}");
    let right = |key: &str| -> u32 {
        let share = scores[key].as_str().expect("a share");
        share
            .split('/')
            .next()
            .and_then(|right| right.parse().ok())
            .expect("a number")
    };
    assert!(right("compiled_exact") >= 33);
    assert!(right("all_knowledge_exact") >= 32);
    assert!(right("messages_exact_when_not_capped") >= 17);
    assert_eq!(right("capped_messages_within_pool"), 15);

    // An export of it is an index that gives the same answers.
    workspace.run("memory export kb.db --output again.json").expect(0);
    workspace
        .run("memory import again.json --into again.db")
        .expect(0);
    let again = format!("recall again.db --recorded {questions}");
    assert_eq!(workspace.run(&again).expect(0), workspace.read("candidate.json"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_program_repeats_no_call_whose_outcome_had_arrived() {
    let Some(replay) = replay() else { return };
    let service = Service::start(&replay, &[]);
    let workspace = Workspace::new();
    let mut rng = SplitMix64::new(21);
    // By key: when an answer was sent to a process that lived on for long enough.
    let mut arrived: HashMap<String, f64> = HashMap::new();
    for round in 0..KILLS {
        // The service goes on with calls of a process that was killed: those of this one begin after a mark.
        let began = service.mark(round);
        let mut child = workspace
            .command(&ingest(&replay, &service, "kb.db", 3))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        pass(Duration::from_millis(300 + rng.below(900))).await;
        for (key, begun, ended) in answered(&service.events()) {
            if begun > began {
                arrived.entry(key).or_insert(ended);
            }
        }
        pass(ARRIVED).await;
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
    workspace.run(&ingest(&replay, &service, "kb.db", 20)).expect(0);
    let calls = answered(&service.events());
    let is_repeat =
        |(key, begun, _): &&(String, f64, f64)| arrived.get(key).is_some_and(|ended| begun > ended);
    let repeated = calls.iter().filter(is_repeat).count();
    println!(
        "{KILLS} kills, {} calls, {} outcomes had arrived before a kill, {repeated} of them repeated",
        calls.len(),
        arrived.len()
    );
    assert!(arrived.len() > 20 && repeated == 0);
    workspace
        .run(&ingest(&replay, &service, "undisturbed.db", 20))
        .expect(0);
    assert_eq!(export(&workspace, "kb.db"), export(&workspace, "undisturbed.db"));
}
