//! Knowledge bases from the command line, with a stand-in for the model service.

#[path = "../../memory/tests/small_model/mod.rs"]
mod small_model;
#[path = "../../memory/tests/stand_in/mod.rs"]
mod stand_in;
mod workspace;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::channel;

use serde_json::{Value, json};
use stand_in::{Answer, StandIn, knowledge};
use workspace::{Ended, Workspace, json_lines, send_signal};

const SHOW: &str = "The Bee Show\n\nADA KING: I saw Drums in Paris.\n\nBOB RAY: Bees like London.\n";

/// The program, with no settings from outside.
fn command(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = workspace.command("");
    command.args(arguments);
    for name in [
        "OPENAI_API_KEY",
        "OPENAI_API_KEY_FILE",
        "OPENAI_BASE_URL",
        "OPENAI_MODEL",
        "OPENAI_EMBEDDING_BASE_URL",
        "GRISTMILL_MEMORY",
        "GRISTMILL_EMBEDDER",
    ] {
        command.env_remove(name);
    }
    command
}

fn run(workspace: &Workspace, arguments: &[&str]) -> Ended {
    command(workspace, arguments)
        .output()
        .expect("the program starts")
        .into()
}

fn run_json(workspace: &Workspace, arguments: &[&str]) -> Value {
    json_lines(&run(workspace, arguments).expect(0)).remove(0)
}

/// A service that extracts capitalised words, makes no search query, and answers with what it is shown first.
fn answer(text: &str) -> Answer {
    if text.contains("The messages:") || text.starts_with("[1]") {
        return Answer::content(
            json!({"answered": true, "answer": "In Paris [1].", "citations": [1, 77]}).to_string(),
        );
    }
    if text.contains("The question: ") {
        return Answer::content("I do not know how to search.");
    }
    Answer::content(knowledge(text))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sources_are_ingested_recalled_and_asked_about() {
    let workspace = Workspace::new();
    let service = StandIn::start(|text, _| answer(text)).await;
    workspace
        .write("show.txt", SHOW)
        .write("notes.md", "# Bees\n\nBees like Drums.\n");
    let ingest = [
        "ingest",
        "show.txt",
        "./notes.md",
        "show.txt",
        "--into",
        "kb.db",
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
    for file in ["kb.db", "kb.jobs.db"] {
        let bytes = std::fs::read(workspace.path(file)).expect("a file");
        let secret = b"sk-very-secret";
        assert!(
            !bytes.windows(secret.len()).any(|window| window == secret),
            "{file}"
        );
    }
    assert!(
        !workspace::exists(&workspace.path("kb.db-wal")),
        "one file holds it all"
    );

    let recalled = run_json(
        &workspace,
        &["recall", "kb.db", "What did Ada see in Paris?", "--json"],
    );
    assert_eq!(recalled["messages"][0]["textChunks"][0], "I saw Drums in Paris.");
    let shown = run(&workspace, &["recall", "kb.db", "Paris"]).expect(0);
    assert!(
        shown.starts_with("1. show.txt #1 · Ada King\n   I saw Drums in Paris.\n"),
        "{shown}"
    );
    let nothing = run(&workspace, &["recall", "kb.db", "zebras"]);
    assert!(nothing.stderr.contains("nothing was found"), "{}", nothing.stderr);
    nothing.expect(1);

    let asked = [
        "ask",
        "kb.db",
        "Where are the Drums?",
        "--base-url",
        &service.base_url,
    ];
    let answered = run(&workspace, &asked).expect(0);
    assert!(
        answered.starts_with("In Paris [1].\n\nSources:\n  [1] "),
        "{answered}"
    );
    assert!(!answered.contains("[77]"), "{answered}");
    let unknown = [
        "ask",
        "kb.db",
        "zebras?",
        "--parser",
        "rules",
        "--base-url",
        &service.base_url,
    ];
    let calls = service.calls_total();
    assert!(
        run(&workspace, &unknown)
            .expect(1)
            .contains("nothing in the knowledge base")
    );
    assert_eq!(service.calls_total(), calls, "no model is asked about nothing");
}

#[test]
fn what_is_wrong_is_told_before_anything_is_made() {
    let workspace = Workspace::new();
    workspace.write("show.txt", SHOW).write("bad.vtt", "no header\n");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}/v1", nobody.local_addr().expect("an address"));
    drop(nobody);
    for (arguments, told) in [
        (
            vec!["ingest", "nope.txt", "--into", "kb.db"],
            "nope.txt cannot be read",
        ),
        (vec!["ingest", "-", "--into", "kb.db"], "needs --name"),
        (
            vec!["ingest", "show.txt", "--into", "kb.db", "--extractor", "openai"],
            "OPENAI_API_KEY",
        ),
        (
            vec!["ingest", "show.txt", "--into", "kb.db", "--base-url", &address],
            "is it running",
        ),
        (
            vec![
                "ingest",
                "show.txt",
                "--into",
                "kb.db",
                "--base-url",
                "models.example",
            ],
            "is no address",
        ),
        (
            vec!["ingest", "show.txt", "--into", "kb.db", "--embedder", "openai"],
            "OPENAI_API_KEY",
        ),
        (
            vec![
                "ingest",
                "show.txt",
                "--into",
                "kb.db",
                "--embedder",
                "model2vec:x",
            ],
            "model.safetensors",
        ),
        (
            vec!["ingest", "show.txt", "--into", "kb.db", "--format", "pdf"],
            "transcript, vtt",
        ),
        (
            vec!["ingest", "show.txt", "--into", "kb.db", "--zone", "CET"],
            "+02:00",
        ),
        (
            vec!["ingest", "show.txt", "--into", "kb.db", "--recorded-at", "soon"],
            "--recorded-at soon",
        ),
        (
            vec!["ingest", "show.txt", "--into", "kb.db", "--frobnicate"],
            "--frobnicate",
        ),
        (
            vec!["ingest", "show.txt", "--into", "missing/kb.db"],
            "missing/kb",
        ),
        (vec!["ingest", "--into", "kb.db"], "<SOURCE>"),
        (vec!["recall", "kb.db", "bees"], "no knowledge base at kb.db"),
        (vec!["recall", "kb.db"], "QUESTION"),
        (vec!["ask", "kb.db", "bees?"], "no knowledge base at kb.db"),
        (vec!["memory", "stats", "kb.db"], "no knowledge base at kb.db"),
        (
            vec!["memory", "import", "nope.json", "--into", "kb.db"],
            "nope.json",
        ),
        (vec!["mcp", "kb.db"], "no knowledge base at kb.db"),
    ] {
        let error = run(&workspace, &arguments).error();
        assert!(error.contains(told), "{arguments:?}: {error}");
        assert!(
            !workspace::exists(&workspace.path("kb.db")),
            "{arguments:?} made a file"
        );
    }
    let error = run(&workspace, &["ingest", "show.txt", "--into", "bad.vtt"]).error();
    assert!(error.contains("bad.vtt is not a knowledge base"), "{error}");
    let error = run(&workspace, &["ingest", "bad.vtt", "--into", "kb.db", "-q"]).error();
    assert!(error.contains("bad.vtt, line 1"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_are_kept_listed_and_tried_again() {
    let workspace = Workspace::new();
    workspace.write("show.txt", SHOW);
    let service = StandIn::start(|text, before| match text {
        "Bees like London." if before < 2 => Answer::content("no JSON"),
        _ => answer(text),
    })
    .await;
    let base_url = ["--base-url", service.base_url.as_str()];
    let ended = run(
        &workspace,
        &[&["ingest", "show.txt", "--into", "kb.db"], &base_url[..]].concat(),
    );
    assert!(ended.stderr.contains("1 chunks failed"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("show.txt, message 2: the model's answer"),
        "{}",
        ended.stderr
    );
    assert!(
        ended
            .stderr
            .contains("gristmill ingest --retry-failed --into kb.db"),
        "{}",
        ended.stderr
    );
    ended.expect(1);
    let failures = run(&workspace, &["memory", "failures", "kb.db", "--json"]).expect(0);
    assert_eq!(json_lines(&failures)[0]["position"], 2);
    let retry = [
        &["ingest", "--retry-failed", "--into", "kb.db", "--json"],
        &base_url[..],
    ]
    .concat();
    assert_eq!(run_json(&workspace, &retry)["model_calls"], 1);
    assert_eq!(
        run(&workspace, &["memory", "failures", "kb.db", "--json"]).expect(0),
        ""
    );

    let stop = ["ingest", "show.txt", "--into", "other.db", "--on-failure", "stop"];
    let again = StandIn::start(|text, _| match text {
        "Bees like London." => Answer::content("no JSON"),
        _ => answer(text),
    })
    .await;
    let error = run(
        &workspace,
        &[&stop[..], &["--base-url", &again.base_url, "-q"]].concat(),
    )
    .error();
    assert!(error.contains("show.txt, message 2"), "{error}");
    assert_eq!(
        run_json(&workspace, &["memory", "stats", "other.db", "--json"])["messages"],
        2
    );
}

#[test]
fn every_commit_is_told_as_an_event() {
    let workspace = Workspace::new();
    let lines: String = (0..3_000)
        .map(|n| format!("{{\"text\":\"Bee {n} hums.\"}}\n"))
        .collect();
    workspace.write("chat.jsonl", &lines);
    let ingest = [
        "ingest",
        "chat.jsonl",
        "--into",
        "kb.db",
        "--extractor",
        "local",
        "-q",
    ];
    let to_stdout = [&ingest[..], &["--on-batch-committed", "-"]].concat();
    let events = json_lines(&run(&workspace, &to_stdout).expect(0));
    assert_eq!(events[0]["event"], "planned");
    let committed: Vec<u64> = events[1..]
        .iter()
        .map(|event| {
            assert_eq!(event["event"], "committed");
            event["messages"].as_u64().expect("a number")
        })
        .collect();
    assert!(
        committed.is_sorted() && committed.last() == Some(&3_000),
        "{committed:?}"
    );
    let to_file = [&ingest[..], &["--on-batch-committed", "events.jsonl"]].concat();
    run(&workspace, &to_file).expect(0);
    assert_eq!(json_lines(&workspace.read("events.jsonl"))[0]["event"], "skipped");

    // Whoever reads the events may go: what was told is committed, and the same command goes on.
    let closed = [
        "ingest",
        "chat.jsonl",
        "--into",
        "closed.db",
        "--extractor",
        "local",
        "--on-batch-committed",
        "-",
    ];
    let mut child = command(&workspace, &closed)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("ends").code(), Some(141));
    run(
        &workspace,
        &[
            "ingest",
            "chat.jsonl",
            "--into",
            "closed.db",
            "--extractor",
            "local",
            "-q",
        ],
    )
    .expect(0);
    let counts = |path: &str| {
        let mut stats = run_json(&workspace, &["memory", "stats", path, "--json"]);
        stats["bytes"] = Value::Null;
        stats
    };
    assert_eq!(counts("closed.db"), counts("kb.db"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_interrupted_ingestion_keeps_what_it_paid_for() {
    let workspace = Workspace::new();
    let lines: String = (0..40)
        .map(|n| format!("{{\"text\":\"Bee {n} hums.\"}}\n"))
        .collect();
    workspace.write("chat.jsonl", &lines);
    let (go, gone) = channel::<()>();
    let (reached, is_reached) = channel();
    let gone = Mutex::new(gone);
    let service = StandIn::start(move |text, before| {
        if text == "Bee 30 hums." && before == 0 {
            let _ = reached.send(());
            // The call is under way until the test lets it go on.
            let _ = tokio::task::block_in_place(|| gone.lock().expect("a lock").recv());
        }
        answer(text)
    })
    .await;
    let ingest = [
        "ingest",
        "chat.jsonl",
        "--into",
        "kb.db",
        "--concurrency",
        "1",
        "--base-url",
        &service.base_url,
    ];
    let child = command(&workspace, &ingest)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    is_reached.recv().expect("the call begins");
    let busy = run(&workspace, &ingest).error();
    assert!(busy.contains("another process is ingesting into kb.db"), "{busy}");
    send_signal(&child, "-INT");
    go.send(()).expect("the service waits");
    let ended = Ended::from(child.wait_with_output().expect("ends"));
    assert!(
        ended.stderr.contains("run the same command again"),
        "{}",
        ended.stderr
    );
    ended.expect(130);
    let told = run_json(&workspace, &[&ingest[..], &["--json"]].concat());
    assert_eq!(told["complete"], true);
    assert_eq!(
        run_json(&workspace, &["memory", "stats", "kb.db", "--json"])["messages"],
        40
    );
    for n in 0..=30 {
        assert_eq!(service.calls(&format!("Bee {n} hums.")), 1, "{n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crash_loses_no_extraction() {
    let workspace = Workspace::new();
    let lines: String = (0..40)
        .map(|n| format!("{{\"text\":\"Bee {n} hums.\"}}\n"))
        .collect();
    workspace.write("chat.jsonl", &lines);
    let (go, gone) = channel::<()>();
    let gone = Mutex::new(gone);
    let service = StandIn::start(move |text, before| {
        if text == "Bee 0 hums." && before == 0 {
            // The first call is under way for as long as the test wants: nothing after it can be committed.
            let _ = tokio::task::block_in_place(|| gone.lock().expect("a lock").recv());
        }
        answer(text)
    })
    .await;
    let ingest = [
        "ingest",
        "chat.jsonl",
        "--into",
        "kb.db",
        "--concurrency",
        "4",
        "--base-url",
        &service.base_url,
    ];
    let mut child = command(&workspace, &ingest)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    // All the others have been paid for, and are on disk as jobs.
    let completed = ["jobs", "--store", "kb.jobs.db", "--state", "completed", "--json"];
    while run(&workspace, &completed).stdout.lines().count() < 39 {
        assert!(
            child.try_wait().expect("it can be asked").is_none(),
            "it has ended"
        );
    }
    child.kill().expect("dies");
    child.wait().expect("has died");
    go.send(()).expect("the service waits");
    assert_eq!(
        run_json(&workspace, &["memory", "stats", "kb.db", "--json"])["messages"],
        0
    );
    let told = run_json(&workspace, &[&ingest[..], &["--json"]].concat());
    assert_eq!((&told["messages"], &told["model_calls"]), (&json!(40), &json!(1)));
    for n in 1..40 {
        assert_eq!(service.calls(&format!("Bee {n} hums.")), 1, "{n}");
    }
}

#[test]
fn a_full_disk_loses_nothing() {
    let workspace = Workspace::new();
    let lines: String = (0..5_000)
        .map(|n| format!("{{\"text\":\"Ada{n} King{n} saw the Drum{n} in Paris{n}.\"}}\n"))
        .collect();
    workspace.write("chat.jsonl", &lines);
    let program = env!("CARGO_BIN_EXE_gristmill");
    let limited = Command::new("bash")
        .args(["-c", "trap '' XFSZ; ulimit -f 1500; exec \"$0\" \"$@\"", program])
        .args([
            "ingest",
            "chat.jsonl",
            "--into",
            "kb.db",
            "--extractor",
            "local",
            "-q",
        ])
        .current_dir(workspace.path(""))
        .output()
        .expect("runs");
    let error = Ended::from(limited).error();
    assert!(
        error.contains("disk") && error.contains("run the same command again"),
        "{error}"
    );
    let ingest = [
        "ingest",
        "chat.jsonl",
        "--into",
        "kb.db",
        "--extractor",
        "local",
        "--json",
    ];
    assert_eq!(run_json(&workspace, &ingest)["complete"], true);
    assert_eq!(
        run_json(&workspace, &["memory", "stats", "kb.db", "--json"])["messages"],
        5_000
    );
}

#[test]
fn knowledge_bases_are_exported_imported_and_deleted_from() {
    let workspace = Workspace::new();
    workspace
        .write("show.txt", SHOW)
        .write("notes.md", "# Bees\n\nBees like Drums.\n");
    run(
        &workspace,
        &[
            "ingest",
            "show.txt",
            "notes.md",
            "--into",
            "kb.db",
            "-q",
            "--extractor",
            "local",
        ],
    )
    .expect(0);
    run(&workspace, &["memory", "export", "kb.db", "--output", "kb.json"]).expect(0);
    assert_eq!(
        run(&workspace, &["memory", "export", "kb.db"]).expect(0),
        workspace.read("kb.json")
    );
    run(&workspace, &["memory", "import", "kb.json", "--into", "other.db"]).expect(0);
    let sources = |path: &str| run(&workspace, &["memory", "sources", path, "--json"]).expect(0);
    assert_eq!(sources("kb.db"), sources("other.db"));
    let recall = |path: &str| run(&workspace, &["recall", path, "Bees", "--json"]).expect(0);
    assert_eq!(recall("kb.db"), recall("other.db"));
    // What was imported is known: it is not ingested again.
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
        unknown.stderr.contains("no source named `nope`"),
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
    let error = run(&workspace, &["memory", "import", "wrong.json", "--into", "kb.db"]).error();
    assert!(error.contains("wrong.json: it is no index data file"), "{error}");
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
    assert!(error.contains("no list of recorded questions"), "{error}");
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
    let embedder = ["--embedder", "model2vec:model"];
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
    assert_eq!(stats["vectors"][0]["chunks"], 2);
    let recall = ["recall", "kb.db", "insects", "--json"];
    let found = run_json(&workspace, &[&recall[..], &embedder[..]].concat());
    assert_eq!(found["messages"][0]["textChunks"][0], "Bees hum.");
    run(&workspace, &recall).expect(1);
    small_model::write(
        &workspace.path("other"),
        &[("bees", [1.0, 0.0]), ("insects", [1.0, 0.0])],
    );
    let other = run(
        &workspace,
        &[&recall[..], &["--embedder", "model2vec:other"]].concat(),
    );
    assert!(
        other.stderr.contains("kb.db has no vectors of this embedder"),
        "{}",
        other.stderr
    );
}

#[test]
fn a_pipe_is_a_source() {
    let workspace = Workspace::new();
    let mut child = command(
        &workspace,
        &[
            "ingest",
            "-",
            "--name",
            "piped",
            "--into",
            "kb.db",
            "--on-batch-committed",
            "-",
        ],
    )
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .stderr(Stdio::null())
    .spawn()
    .expect("starts");
    use std::io::Write;
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(SHOW.as_bytes()).expect("writes");
    drop(stdin);
    let mut first = String::new();
    BufReader::new(child.stdout.take().expect("a pipe"))
        .read_line(&mut first)
        .expect("a line");
    assert_eq!(json_lines(&first)[0]["source"], "piped");
    child.wait().expect("ends");
}
