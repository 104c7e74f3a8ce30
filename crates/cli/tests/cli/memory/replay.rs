//! The program on the recorded index and the replayed model service, from the folder in `GRISTMILL_REPLAY`. Skipped
//! without it. Run it with `make test-replay REPLAY=DIR`.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use gristmill_model::{Rng, SplitMix64};
use gristmill_test_tools::replayed::{Service, check_score, lines, replay};
use serde_json::Value;

use crate::workspace::{Workspace, json_lines};

/// The number of kills of the ingestion.
const KILLS: u32 = 20;

/// The number of copies of the recorded messages to ingest: more than are done before the last kill.
const COPIES: u32 = 8;

/// The number of concurrent calls. It is small, so that the ingestion lasts over many kills.
const KILLED_CONCURRENCY: u32 = 3;

/// An answer counts as arrived if it was sent this long before a kill. This is the time to a synced commit:
/// milliseconds on an idle machine, and up to a second on one with busy disks and processors.
const ARRIVED: Duration = Duration::from_millis(1_000);

/// The time in which a process must get its first answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// The interval of reading the service's answers.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Ingests a source with the service.
fn ingest(service: &Service, source: &str, into: &str, concurrency: u32) -> String {
    format!(
        "ingest {source} --into {into} --base-url http://127.0.0.1:{}/v1 --concurrency {concurrency} --json",
        service.port
    )
}

fn transcript(replay: &Path) -> String {
    replay.join("data/transcript.txt").display().to_string()
}

/// The whole content of a knowledge base, except for its times of ingestion.
fn export(workspace: &Workspace, knowledge: &str) -> Value {
    let text = workspace.run(&format!("memory export {knowledge}")).expect(0);
    let mut export: Value = serde_json::from_str(&text).expect("JSON");
    export["nameTag"] = Value::Null;
    for source in export["sourceData"].as_array_mut().expect("sources") {
        source["ingestedAt"] = Value::Null;
    }
    export
}

on_each_store!(
    the_recorded_index_is_rebuilt,
    broken_answers_cost_only_their_own_chunk,
    a_kill_repeats_no_call_whose_outcome_had_arrived,
);

fn the_recorded_index_is_rebuilt(workspace: fn() -> Workspace) {
    let Some(replay) = replay() else { return };
    let service = Service::start(&replay, &["--chat-median", "0.01", "--chat-p99", "0.05"]);
    let workspace = workspace();
    let knowledge = workspace.database_or("kb.db");
    let command = ingest(&service, &transcript(&replay), &knowledge, 20);
    let told = json_lines(&workspace.run(&command).expect(0)).remove(0);
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
    let stats = workspace
        .run(&format!("memory stats {knowledge} --json"))
        .expect(0);
    assert_eq!(json_lines(&stats)[0]["terms"], 1_142);
}

fn broken_answers_cost_only_their_own_chunk(workspace: fn() -> Workspace) {
    let Some(replay) = replay() else { return };
    let fast_and_broken = ["--chat-median", "0.01", "--chat-p99", "0.05", "--p-bad", "0.2"];
    let service = Service::start(&replay, &fast_and_broken);
    let workspace = workspace();
    let knowledge = workspace.database_or("kb.db");
    let command = ingest(&service, &transcript(&replay), &knowledge, 20);
    let told = json_lines(&workspace.run(&command).expect(1)).remove(0);
    println!("{told}");
    let listed = workspace
        .run(&format!("memory failures {knowledge} --json"))
        .expect(0);
    let listed = json_lines(&listed);
    assert_eq!(told["messages"], 106);
    assert_eq!(told["failures"].as_u64(), Some(listed.len() as u64));
    assert!(!listed.is_empty() && listed.len() < 20, "{}", listed.len());
    for failure in listed {
        let error = failure["error"].as_str().expect("an error");
        assert!(error.contains("is not an extraction"), "{failure}");
    }
    assert_eq!(
        told["model_calls"],
        service.stats()["chat"]["ok"],
        "the calls for failed chunks are counted, too"
    );
}

#[test]
fn the_recorded_questions_are_scored() {
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
    check_score(&replay, &workspace.path("candidate.json"));

    // An export is an index that gives the same answers.
    workspace.run("memory export kb.db --output again.json").expect(0);
    workspace
        .run("memory import again.json --into again.db")
        .expect(0);
    let again = format!("recall again.db --recorded {questions}");
    assert_eq!(workspace.run(&again).expect(0), workspace.read("candidate.json"));
}

fn a_kill_repeats_no_call_whose_outcome_had_arrived(workspace: fn() -> Workspace) {
    let Some(replay) = replay() else { return };
    let service = Service::start(&replay, &[]);
    let workspace = workspace();
    workspace.write("messages.jsonl", lines(&replay, COPIES));
    let knowledge = workspace.database_or("kb.db");
    let mut rng = SplitMix64::new(21);
    // For each key, the time when an answer was sent to a process that lived long enough afterwards.
    let mut arrived: HashMap<String, f64> = HashMap::new();
    for round in 0..KILLS {
        // The service continues calls of a killed process. Calls of this process begin after the mark.
        let began = service.mark(round);
        let command = ingest(&service, "messages.jsonl", &knowledge, KILLED_CONCURRENCY);
        let mut child = workspace
            .command(&command)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        // The start may take any time. The kill comes after the first answer, at a random time.
        wait_for_an_answer(&service, began, &mut child);
        std::thread::park_timeout(Duration::from_millis(rng.below(900)));
        for (key, begun, ended) in answered(&service.events()) {
            if begun > began {
                arrived.entry(key).or_insert(ended);
            }
        }
        std::thread::park_timeout(ARRIVED);
        let ended = child.try_wait().expect("it can be asked");
        assert_eq!(ended, None, "it has ended before kill {round}");
        child.kill().expect("it is killed");
        child.wait().expect("it has ended");
    }
    workspace
        .run(&ingest(&service, "messages.jsonl", &knowledge, 20))
        .expect(0);
    let calls = answered(&service.events());
    let is_repeat =
        |(key, begun, _): &&(String, f64, f64)| arrived.get(key).is_some_and(|ended| begun > ended);
    let repeated = calls.iter().filter(is_repeat).count();
    println!(
        "{KILLS} kills, {} calls, {} outcomes had arrived before a kill, {repeated} of them repeated",
        calls.len(),
        arrived.len()
    );
    assert_eq!(repeated, 0);
    // Each process got an answer that no earlier process had.
    assert!(arrived.len() >= KILLS as usize);
    let killed = export(&workspace, &knowledge);
    let undisturbed = Workspace::new();
    undisturbed.write("messages.jsonl", lines(&replay, COPIES));
    undisturbed
        .run(&ingest(&service, "messages.jsonl", "kb.db", 64))
        .expect(0);
    assert_eq!(killed, export(&undisturbed, "kb.db"));
}

/// Waits until the service has answered a call that began after a mark.
fn wait_for_an_answer(service: &Service, mark: f64, child: &mut Child) {
    let begun = Instant::now();
    while !answered(&service.events())
        .iter()
        .any(|(_, begun, _)| *begun > mark)
    {
        let ended = child.try_wait().expect("it can be asked");
        assert_eq!(ended, None, "it has ended without an answer");
        assert!(begun.elapsed() < PATIENCE, "it has no answer");
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// The answered calls: the text's key, and the times of their start and end, in seconds of the service's clock.
fn answered(events: &[Value]) -> Vec<(String, f64, f64)> {
    let chats = events
        .iter()
        .filter(|event| event["kind"] == "chat" && event["status"] == 200);
    let told = chats.filter_map(|event| {
        let key = event["key"].as_str()?.to_owned();
        Some((key, event["t0"].as_f64()?, event["t1"].as_f64()?))
    });
    told.collect()
}
