//! Knowledge bases from the command line, in both stores, with a stand-in for the model service.

mod chat;
mod delete;
mod elsewhere;
mod finding;
mod ingest;
mod knowledge;
mod mcp;
mod places;
mod replay;
mod resume;
mod unread;

use gristmill_test_tools::small_model;
use gristmill_test_tools::stand_in::StandIn;
use serde_json::{Value, json};

use crate::memory::knowledge::{SHOW, answer, command, run, run_json, serve};
use crate::workspace::{self, Ended, Workspace, json_lines};

on_each_store! {
    sources_are_ingested_recalled_and_asked_about,
    knowledge_bases_are_exported_imported_and_deleted_from,
}

fn sources_are_ingested_recalled_and_asked_about(workspace: fn() -> Workspace) {
    let workspace = workspace();
    let (_runtime, service) = serve(|text, _| answer(text));
    let kb = workspace.database_or("kb.db");
    let kb = kb.as_str();
    workspace
        .write("show.txt", SHOW)
        .write("notes.md", "# Bees\n\nBees like Drums.\n");
    let ingest = [
        "ingest",
        "show.txt",
        "./notes.md",
        "show.txt",
        "--into",
        kb,
        "--json",
        "--base-url",
        &service.base_url,
    ];
    let mut keyed = command(&workspace, &ingest);
    keyed.env("OPENAI_API_KEY", "sk-very-secret");
    let ended = Ended::from(keyed.output().expect("runs"));
    let told = json_lines(&ended.expect(0)).remove(0);
    assert_eq!(
        (&told["messages"], &told["model_calls"], &told["complete"]),
        (&json!(4), &json!(4), &json!(true))
    );
    let again = run_json(&workspace, &ingest);
    assert_eq!(
        (&again["sources_skipped"], &again["model_calls"]),
        (&json!(2), &json!(0))
    );
    let mut replace = ingest.to_vec();
    replace.push("--replace");
    let replaced = run_json(&workspace, &replace);
    assert_eq!(
        (
            &replaced["sources_replaced"],
            &replaced["messages"],
            &replaced["model_calls"]
        ),
        (&json!(2), &json!(4), &json!(0))
    );
    for file in std::fs::read_dir(workspace.path("")).expect("a folder") {
        let path = file.expect("a file").path();
        let bytes = std::fs::read(&path).expect("it can be read");
        let secret = b"sk-very-secret";
        let is_there = bytes.windows(secret.len()).any(|window| window == secret);
        assert!(!is_there, "{}", path.display());
    }
    assert!(
        !workspace::exists(&workspace.path("kb.db-wal")),
        "one file holds it all"
    );

    recalls(&workspace, kb);
    asks(&workspace, kb, &service);
}

fn recalls(workspace: &Workspace, kb: &str) {
    let recalled = run_json(workspace, &["recall", kb, "What did Ada see in Paris?", "--json"]);
    assert_eq!(recalled["messages"][0]["textChunks"][0], "I saw Drums in Paris.");
    let shown = run(workspace, &["recall", kb, "Paris"]).expect(0);
    assert!(
        shown.starts_with("1. show.txt #1 · Ada King\n   I saw Drums in Paris.\n"),
        "{shown}"
    );
    let nothing = run(workspace, &["recall", kb, "zebras"]);
    assert!(nothing.stderr.contains("nothing found"), "{}", nothing.stderr);
    nothing.expect(1);
}

fn asks(workspace: &Workspace, kb: &str, service: &StandIn) {
    let asked = ["ask", kb, "Where are the Drums?", "--base-url", &service.base_url];
    let answered = run(workspace, &asked).expect(0);
    assert!(
        answered.starts_with("In Paris [1].\n\nSources:\n  [1] "),
        "{answered}"
    );
    assert!(!answered.contains("[77]"), "{answered}");
    let unknown = [
        "ask",
        kb,
        "zebras?",
        "--parser",
        "rules",
        "--base-url",
        &service.base_url,
    ];
    let calls = service.calls_total();
    assert!(
        run(workspace, &unknown)
            .expect(1)
            .contains("nothing in the knowledge base")
    );
    assert_eq!(service.calls_total(), calls, "no model is asked about nothing");
}

fn knowledge_bases_are_exported_imported_and_deleted_from(workspace: fn() -> Workspace) {
    let workspace = workspace();
    workspace
        .write("show.txt", SHOW)
        .write("notes.md", "# Bees\n\nBees like Drums.\n");
    let kb = workspace.database_or("kb.db");
    let kb = kb.as_str();
    run(
        &workspace,
        &[
            "ingest",
            "show.txt",
            "notes.md",
            "--into",
            kb,
            "-q",
            "--extractor",
            "local",
        ],
    )
    .expect(0);
    run(&workspace, &["memory", "export", kb, "--output", "kb.json"]).expect(0);
    assert_eq!(
        run(&workspace, &["memory", "export", kb]).expect(0),
        workspace.read("kb.json")
    );
    run(&workspace, &["memory", "import", "kb.json", "--into", "other.db"]).expect(0);
    let sources = |path: &str| run(&workspace, &["memory", "sources", path, "--json"]).expect(0);
    assert_eq!(sources(kb), sources("other.db"));
    let recall = |path: &str| run(&workspace, &["recall", path, "Bees", "--json"]).expect(0);
    assert_eq!(recall(kb), recall("other.db"));
    // Imported sources are known: they are not ingested again.
    let again = [
        "ingest",
        "show.txt",
        "--into",
        "other.db",
        "--json",
        "--extractor",
        "local",
    ];
    assert_eq!(run_json(&workspace, &again)["sources_skipped"], 1);

    let unknown = run(&workspace, &["memory", "delete", "other.db", "notes.md", "nope"]);
    assert!(
        unknown.stderr.contains("source `nope` does not exist"),
        "{}",
        unknown.stderr
    );
    unknown.expect(1);
    run(&workspace, &["memory", "delete", "other.db", "notes.md"]).expect(0);
    assert_eq!(sources("other.db").lines().count(), 1);
    let table = run(&workspace, &["memory", "sources", "other.db"]).expect(0);
    assert!(
        table.contains("show.txt  transcript         3  complete"),
        "{table}"
    );
    workspace.write("wrong.json", "[]");
    let error = run(&workspace, &["memory", "import", "wrong.json", "--into", kb]).error();
    assert!(
        error.contains("wrong.json: it is not an index data file"),
        "{error}"
    );
}

#[test]
fn recorded_questions_are_run() {
    let workspace = Workspace::new();
    workspace.write("show.txt", SHOW);
    run(
        &workspace,
        &[
            "ingest",
            "show.txt",
            "--into",
            "kb.db",
            "-q",
            "--extractor",
            "local",
        ],
    )
    .expect(0);
    let questions = json!([{
        "searchText": "Who was in Paris?",
        "searchQueryExpr": {"searchExpressions": [{"rewrittenQuery": "Who was in Paris?",
            "filters": [{"searchTerms": ["Paris"]}]}]},
    }]);
    workspace.write("questions.json", questions.to_string());
    let recorded = [
        "recall",
        "kb.db",
        "--recorded",
        "questions.json",
        "--output",
        "candidate.json",
    ];
    run(&workspace, &recorded).expect(0);
    let candidates: Value = serde_json::from_str(&workspace.read("candidate.json")).expect("JSON");
    assert_eq!(candidates[0]["searchText"], "Who was in Paris?");
    assert_eq!(candidates[0]["messageMatches"], json!([1]));
    assert_eq!(
        run(&workspace, &recorded[..4]).expect(0),
        workspace.read("candidate.json")
    );
    workspace.write("questions.json", "{}");
    let error = run(&workspace, &recorded).error();
    assert!(error.contains("not a list of recorded questions"), "{error}");
}

#[test]
fn a_local_model_finds_by_meaning() {
    let workspace = Workspace::new();
    small_model::write(
        &workspace.path("model"),
        &[
            ("bees", [1.0, 0.0]),
            ("insects", [0.9, 0.2]),
            ("drums", [0.0, 1.0]),
        ],
    );
    workspace.write(
        "chat.jsonl",
        "{\"text\":\"Bees hum.\"}\n{\"text\":\"Drums are loud.\"}\n",
    );
    let embedder = ["--embedder", "./model"];
    let ingest = [
        "ingest",
        "chat.jsonl",
        "--into",
        "kb.db",
        "--extractor",
        "local",
        "--json",
    ];
    let told = run_json(&workspace, &[&ingest[..], &embedder[..]].concat());
    assert!(told["vectors"].as_u64() >= Some(2), "{told}");
    let stats = run_json(&workspace, &["memory", "stats", "kb.db", "--json"]);
    assert_eq!(stats["vectors"]["chunks"], 2);
    assert_eq!(stats["vectors"]["dimensions"], 2);
    let recall = ["recall", "kb.db", "insects", "--json"];
    let found = run_json(&workspace, &[&recall[..], &embedder[..]].concat());
    assert_eq!(found["messages"][0]["textChunks"][0], "Bees hum.");
    let by_words = run(&workspace, &recall);
    assert!(
        by_words.stderr.contains("has vectors of model2vec model ") && by_words.code == Some(1),
        "{by_words:?}"
    );
    small_model::write(
        &workspace.path("other"),
        &[("bees", [1.0, 0.0]), ("insects", [1.0, 0.0])],
    );
    let other = ["--embedder", "./other"];
    for command in [&recall[..], &ingest[..]] {
        let error = run(&workspace, &[command, &other[..]].concat()).error();
        let names_both =
            error.contains("vectors of model2vec model ") && error.contains("vectors of model2vec other ");
        assert!(names_both && error.contains("--replace-vectors"), "{error}");
    }
    let replaced = run_json(
        &workspace,
        &[&ingest[..], &other[..], &["--replace-vectors"]].concat(),
    );
    assert_eq!(replaced["vectors"], told["vectors"], "{replaced}");
    let found = run_json(&workspace, &[&recall[..], &other[..]].concat());
    assert_eq!(found["messages"][0]["textChunks"][0], "Bees hum.");
}

#[test]
fn a_local_model_has_a_name() {
    let workspace = Workspace::new();
    small_model::write(
        &workspace.path("models/bees"),
        &[("bees", [1.0, 0.0]), ("insects", [0.9, 0.2])],
    );
    workspace.write("chat.jsonl", "{\"text\":\"Bees hum.\"}\n");
    let ingest = |name: &str| {
        let arguments = [
            "ingest",
            "chat.jsonl",
            "--into",
            "kb.db",
            "--quiet",
            "--embedder",
            name,
        ];
        let mut command = command(&workspace, &arguments);
        command.env("GRISTMILL_MODELS", workspace.path("models"));
        Ended::from(command.output().expect("runs"))
    };
    let error = ingest("wasps").error();
    assert!(error.contains("models/wasps"), "{error}");
    ingest("bees").expect(0);
    let stats = run_json(&workspace, &["memory", "stats", "kb.db", "--json"]);
    let model = stats["vectors"]["model"].as_str().unwrap_or_default();
    assert!(model.starts_with("model2vec bees "), "{stats}");
}
