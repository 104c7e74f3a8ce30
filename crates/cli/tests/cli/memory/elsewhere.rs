//! Extractions by workers of the store and by agents of its server, for an ingestion that calls no model itself.

use gristmill_test_tools::stand_in::Answer;
use serde_json::json;

use crate::memory::knowledge::{answer, command, run, run_json, serve};
use crate::processes::{Process, Server};
use crate::workspace::{Workspace, json_lines};

on_each_store! {
    an_agent_extracts_over_http,
    a_worker_of_the_store_extracts,
    knowledge_bases_may_share_a_store,
}

/// The store of all commands.
fn store(workspace: &Workspace) -> String {
    workspace.database_or("jobs.db")
}

fn bees(first: u32, last: u32) -> String {
    (first..=last)
        .map(|bee| format!("{{\"text\":\"Bee {bee} hums in Paris.\"}}\n"))
        .collect()
}

/// An ingestion that leaves the calls to others. It has neither a key nor the address of a service.
fn ingest_elsewhere<'a>(store: &'a str, source: &'a str, into: &'a str) -> [&'a str; 10] {
    [
        "ingest",
        source,
        "--into",
        into,
        "--store",
        store,
        "--extractor",
        "openai",
        "--calls-elsewhere",
        "--json",
    ]
}

fn an_agent_extracts_over_http(workspace: fn() -> Workspace) {
    let workspace = workspace();
    let store = store(&workspace);
    let (_runtime, service) = serve(|text, _| {
        if text.contains("Bee 7 ") {
            Answer::content("no JSON")
        } else {
            answer(text)
        }
    });
    workspace.write("bees.jsonl", bees(1, 60));
    let token = |arguments: &str| {
        let made = workspace.run(&format!("token create --trust trust {arguments}"));
        made.expect(0).trim().to_owned()
    };
    let token = token("--role agent --group readers --queue extract");
    let server = Server::start(command(
        &workspace,
        &[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--store",
            &store,
            "--trust",
            "trust",
        ],
    ));
    let mut agent = command(
        &workspace,
        &[
            "agent",
            "--extractor",
            "openai",
            "--model-url",
            &service.base_url,
            "--concurrency",
            "8",
            "--batch",
            "100",
            "--base-url",
            &server.url,
            "--json",
        ],
    );
    agent.env("AGENT_TOKEN", token);
    let agent = Process::start(agent);
    let told = run(&workspace, &ingest_elsewhere(&store, "bees.jsonl", "kb.db")).expect(1);
    let told = json_lines(&told).remove(0);
    assert_eq!(
        (&told["messages"], &told["failures"], &told["complete"]),
        (&json!(60), &json!(1), &json!(true))
    );
    // One call for each text, and one more to repair the unusable answer.
    assert_eq!(told["model_calls"], 61);
    assert_eq!(service.calls_total(), 61);
    let totals = json_lines(&agent.stop()).remove(0);
    assert_eq!((&totals["completed"], &totals["dead"]), (&json!(59), &json!(1)));
    server.stop();
    let found = run_json(
        &workspace,
        &["recall", "kb.db", "Paris", "--json", "--limit", "100"],
    );
    assert_eq!(found["messages"].as_array().map(Vec::len), Some(60));
}

fn a_worker_of_the_store_extracts(workspace: fn() -> Workspace) {
    let workspace = workspace();
    let store = store(&workspace);
    workspace
        .write("bees.jsonl", bees(1, 30))
        .write("double.py", "def main(payload):\n    return payload * 2\n");
    run(&workspace, &["submit", "double", "21", "--store", &store]).expect(0);
    let worker = Process::start(command(
        &workspace,
        &[
            "worker",
            "double.py",
            "--kind",
            "double",
            "--extractor",
            "local",
            "--store",
            &store,
            "--json",
        ],
    ));
    let ingest = ingest_elsewhere(&store, "bees.jsonl", "kb.db");
    let ingest = ingest.map(|argument| match argument {
        "openai" => "local",
        other => other,
    });
    let told = run_json(&workspace, &ingest);
    assert_eq!((&told["messages"], &told["failures"]), (&json!(30), &json!(0)));
    let results = ["results", "--batch", "1", "--values", "--store", &store];
    while run(&workspace, &results).stdout != "42\n" {}
    let totals = json_lines(&worker.stop()).remove(0);
    assert_eq!(totals["completed"], 31);
}

fn knowledge_bases_may_share_a_store(workspace: fn() -> Workspace) {
    let workspace = workspace();
    let store = store(&workspace);
    let (_runtime, service) = serve(|text, _| answer(text));
    workspace
        .write("all.jsonl", bees(1, 20))
        .write("half.jsonl", bees(1, 10));
    let ingest = |source: &str, into: &str| {
        let arguments = ["ingest", source, "--into", into, "--store", &store, "--json"];
        run_json(
            &workspace,
            &[&arguments[..], &["--base-url", &service.base_url]].concat(),
        )
    };
    assert_eq!(ingest("half.jsonl", "half.db")["model_calls"], 10);
    // One knowledge base need not pay for the calls of the other.
    assert_eq!(ingest("all.jsonl", "all.db")["model_calls"], 10);
    assert_eq!(service.calls_total(), 20);
    let runs = json_lines(&run(&workspace, &["runs", "--store", &store, "--json"]).expect(0));
    assert_eq!(runs.len(), 2, "{runs:?}");
}

#[test]
fn impossible_settings_are_reported() {
    let workspace = Workspace::new();
    workspace
        .write("bees.jsonl", bees(1, 1))
        .write("extract.py", "def main(payload):\n    return payload\n");
    for (arguments, told) in [
        (vec!["worker"], "<SCRIPT>"),
        (vec!["worker", "--extractor", "openai"], "--model-url"),
        (vec!["agent", "--extractor", "openai"], "--model-url"),
        (vec!["worker", "--extractor", "telepathy"], "openai, local"),
        (
            vec![
                "worker",
                "extract.py",
                "--kind",
                "extract",
                "--extractor",
                "local",
            ],
            "another --kind",
        ),
        (
            vec!["ingest", "bees.jsonl", "--into", "kb.db", "--calls-elsewhere"],
            "--extractor",
        ),
    ] {
        let error = run(&workspace, &arguments).error();
        assert!(error.contains(told), "{arguments:?}: {error}");
    }
}
