//! Finding in several knowledge bases, in a part of one, and with reasons.

use serde_json::json;

use crate::memory::knowledge::{run, run_json};
use crate::workspace::Workspace;

fn filled() -> Workspace {
    let workspace = Workspace::new();
    std::fs::create_dir(workspace.path("mails")).expect("a folder");
    workspace
        .write(
            "mails/inbox.mbox",
            mailbox("1@bees", "The hives stand in London."),
        )
        .write("mails/all.mbox", mailbox("1@bees", "The hives stand in London."))
        .write(
            "notes.md",
            format!(
                "# Hives\n\n{}The drum hums in May.\n",
                "Nothing here. ".repeat(60)
            ),
        );
    for (source, kb) in [("mails", "mails.db"), ("notes.md", "notes.db")] {
        run(
            &workspace,
            &["ingest", source, "--into", kb, "--extractor", "local", "--quiet"],
        )
        .expect(0);
    }
    workspace
}

fn mailbox(id: &str, text: &str) -> String {
    format!(
        "From ada Mon May  1 09:30:00 2023\nFrom: Ada King <ada@bees.example>\nDate: Mon, 1 May 2023 09:30:00 +0000\n\
         Message-ID: <{id}>\nSubject: Hives\n\n{text}\n"
    )
}

#[test]
fn several_knowledge_bases_answer_together() {
    let workspace = filled();
    let both = ["recall", "mails.db", "notes.db", "hives drum", "--json"];
    let found = run_json(&workspace, &both);
    let bases: Vec<&str> = found["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .map(|message| message["knowledgeBase"].as_str().expect("a name"))
        .collect();
    assert!(
        bases.contains(&"mails.db") && bases.contains(&"notes.db"),
        "{bases:?}"
    );
    let shown = run(&workspace, &["recall", "mails.db", "notes.db", "drum"]).expect(0);
    assert!(shown.starts_with("1. notes.db: notes.md #"), "{shown}");
    assert!(
        shown.contains("…") && shown.contains("The drum hums in May."),
        "{shown}"
    );
    // The last name is a knowledge base where other options say what to list.
    let listed = run(
        &workspace,
        &["recall", "notes.db", "mails.db", "--speaker", "Ada"],
    )
    .expect(0);
    assert!(listed.starts_with("1. mails.db: mails/"), "{listed}");
    let missing = run(&workspace, &["recall", "notes.db"]);
    assert!(
        missing.stderr.contains("a question is missing"),
        "{}",
        missing.stderr
    );
    missing.expect(2);
    let none = run(&workspace, &["recall", "notes.db", "nowhere.db", "drum"]);
    assert!(none.stderr.contains("nowhere.db"), "{}", none.stderr);
    none.expect(2);
}

#[test]
fn a_result_tells_its_words_its_copies_and_its_score() {
    let workspace = filled();
    let found = run_json(&workspace, &["recall", "mails.db", "hive", "--json", "--explain"]);
    let message = &found["messages"][0];
    assert_eq!(found["messages"].as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(message["alsoIn"][0]["source"], json!("mails/inbox.mbox"));
    assert_eq!(message["highlights"], json!([{"chunk": 0, "start": 4, "end": 9}]));
    let gains = message["explanation"].as_array().expect("parts");
    let sum: f64 = gains
        .iter()
        .map(|part| part["gain"].as_f64().expect("a number"))
        .sum();
    assert!(
        (sum - message["score"].as_f64().expect("a score")).abs() < 1e-6,
        "{message}"
    );
    let shown = run(&workspace, &["recall", "mails.db", "hive", "--explain"]).expect(0);
    assert!(
        shown.contains("   also in mails/inbox.mbox #0\n   score "),
        "{shown}"
    );
    let marked = run(&workspace, &["recall", "mails.db", "hive", "--color", "always"]).expect(0);
    assert!(marked.contains("The \u{1b}[1mhives\u{1b}[0m stand"), "{marked}");
    let limited = run_json(
        &workspace,
        &[
            "recall",
            "mails.db",
            "hive",
            "--json",
            "--source",
            "mails/inbox.mbox",
        ],
    );
    assert_eq!(limited["messages"][0]["source"], json!("mails/inbox.mbox"));
    let elsewhere = run(
        &workspace,
        &["recall", "mails.db", "hive", "--source", "notes.md"],
    );
    assert!(
        elsewhere.stderr.contains("source `notes.md` does not exist"),
        "{}",
        elsewhere.stderr
    );
    elsewhere.expect(2);
    let thread = ["recall", "mails.db", "--thread", "1@bees", "--json"];
    assert_eq!(
        run_json(&workspace, &thread)["messages"][0]["thread"],
        json!("1@bees")
    );
    run(&workspace, &["recall", "mails.db", "hive", "--thread", "2@bees"]).expect(1);
}

#[test]
fn a_source_is_moved() {
    let workspace = filled();
    run(
        &workspace,
        &["memory", "move", "notes.db", "./notes.md", "old//notes.md"],
    )
    .expect(0);
    let recall = ["recall", "notes.db", "drum", "--json", "--source", "./old/"];
    let found = run_json(&workspace, &recall);
    assert_eq!(found["messages"][0]["source"], json!("old/notes.md"));
    let gone = run(
        &workspace,
        &["memory", "move", "notes.db", "notes.md", "other.md"],
    );
    assert!(
        gone.stderr.contains("source `notes.md` does not exist"),
        "{}",
        gone.stderr
    );
    gone.expect(2);
}
