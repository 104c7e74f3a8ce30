//! `gristmill ingest`: its refusals, the failures that it keeps, and its messages.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use gristmill_test_tools::stand_in::{Answer, StandIn};
use serde_json::Value;

use crate::memory::knowledge::{SHOW, answer, command, run, run_json};
use crate::workspace::{self, Workspace, json_lines};

/// Wrong commands, each with a part of its error. Nothing listens at `address`.
fn wrong(address: &str) -> Vec<(Vec<&str>, &'static str)> {
    vec![
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
            vec!["ingest", "show.txt", "--into", "kb.db", "--base-url", address],
            "check that it runs",
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
            "is not an address",
        ),
        (
            vec!["ingest", "show.txt", "--into", "kb.db", "--embedder", "openai"],
            "OPENAI_API_KEY",
        ),
        (
            vec!["ingest", "show.txt", "--into", "kb.db", "--embedder", "./x"],
            "model.safetensors",
        ),
        (
            vec!["ingest", "show.txt", "--into", "kb.db", "--format", "rtf"],
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
        (
            vec!["recall", "kb.db", "bees"],
            "the knowledge base kb.db does not exist",
        ),
        (vec!["recall", "kb.db"], "a question is missing"),
        (
            vec!["ask", "kb.db", "bees?"],
            "the knowledge base kb.db does not exist",
        ),
        (
            vec!["memory", "stats", "kb.db"],
            "the knowledge base kb.db does not exist",
        ),
        (
            vec!["memory", "import", "nope.json", "--into", "kb.db"],
            "nope.json",
        ),
        (vec!["mcp", "kb.db"], "the knowledge base kb.db does not exist"),
    ]
}

#[test]
fn errors_are_reported_before_anything_is_created() {
    let workspace = Workspace::new();
    workspace.write("show.txt", SHOW).write("bad.vtt", "no header\n");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}/v1", nobody.local_addr().expect("an address"));
    drop(nobody);
    for (arguments, told) in wrong(&address) {
        let error = run(&workspace, &arguments).error();
        assert!(error.contains(told), "{arguments:?}: {error}");
        assert!(
            !workspace::exists(&workspace.path("kb.db")),
            "{arguments:?} made a file"
        );
    }
    let error = run(&workspace, &["ingest", "show.txt", "--into", "bad.vtt"]).error();
    assert!(error.contains("bad.vtt is not a knowledge base"), "{error}");
    let ended = run(&workspace, &["ingest", "bad.vtt", "--into", "kb.db", "-q"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("error: bad.vtt, line 1"),
        "{}",
        ended.stderr
    );
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
    assert!(ended.stderr.contains("1 chunk failed"), "{}", ended.stderr);
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
    // Each event has its own messages, because no commit holds this many.
    assert_eq!(committed.iter().sum::<u64>(), 3_000, "{committed:?}");
    assert!(
        committed.iter().all(|messages| *messages < 3_000),
        "{committed:?}"
    );
    let to_file = [&ingest[..], &["--on-batch-committed", "events.jsonl"]].concat();
    run(&workspace, &to_file).expect(0);
    assert_eq!(json_lines(&workspace.read("events.jsonl"))[0]["event"], "skipped");

    // The reader of the events may leave: reported data is committed, and the same command resumes.
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

/// Waits for a commit with messages.
fn committed(events: &mut impl Iterator<Item = std::io::Result<String>>) -> Value {
    loop {
        let line = events.next().expect("a commit").expect("an event");
        let event = json_lines(&line).remove(0);
        if event["event"] == "committed" && event["messages"] != 0 {
            return event;
        }
    }
}

#[test]
fn lines_are_searchable_while_their_pipe_is_open() {
    let workspace = Workspace::new();
    workspace.write("chat.jsonl", "{\"text\": \"Bees hum in May.\"}\n");
    let append = |text: &str| {
        let file = std::fs::OpenOptions::new()
            .append(true)
            .open(workspace.path("chat.jsonl"));
        writeln!(file.expect("opens"), "{{\"text\": \"{text}\"}}").expect("writes");
    };
    let found =
        |word: &str| run_json(&workspace, &["recall", "kb.db", word, "--json"])["messages"][0].clone();
    let mut tail = Command::new("tail")
        .args(["-n", "+1", "-f", "chat.jsonl"])
        .current_dir(workspace.path(""))
        .stdout(Stdio::piped())
        .spawn()
        .expect("tail starts");
    let mut ingest = command(
        &workspace,
        &["ingest", "-", "--quiet", "--on-batch-committed", "-"],
    )
    .env("GRISTMILL_MEMORY", "kb.db")
    .stdin(tail.stdout.take().expect("a pipe"))
    .stdout(Stdio::piped())
    .spawn()
    .expect("starts");
    let mut events = BufReader::new(ingest.stdout.take().expect("a pipe")).lines();
    assert_eq!(committed(&mut events)["messages"], 1);
    assert_eq!(found("bees")["textChunks"][0], "Bees hum in May.");
    for (text, word) in [("Drums hum in June.", "drums"), ("Queens hum in July.", "queens")] {
        append(text);
        assert_eq!(committed(&mut events)["messages"], 1, "not those before");
        let message = found(word);
        assert_eq!(
            (&message["textChunks"][0], &message["source"]),
            (&Value::from(text), &Value::from("stdin"))
        );
    }
    assert!(ingest.try_wait().expect("a process").is_none(), "it goes on");
    tail.kill().expect("ends");
    tail.wait().expect("ends");
    assert_eq!(ingest.wait().expect("ends").code(), Some(0));

    // The next program begins with the stored data and adds only the rest.
    append("Wasps hum in August.");
    let again = [
        "ingest",
        "-",
        "--name",
        "stdin",
        "--into",
        "kb.db",
        "--extractor",
        "local",
        "--quiet",
    ];
    let file = std::fs::File::open(workspace.path("chat.jsonl")).expect("opens");
    let ended = command(&workspace, &again).stdin(file).status().expect("runs");
    assert_eq!(ended.code(), Some(0));
    let sources = run(&workspace, &["memory", "sources", "kb.db", "--json"]).expect(0);
    let sources = json_lines(&sources);
    assert_eq!(
        (sources.len(), &sources[0]["messages"]),
        (1, &Value::from(4)),
        "{sources:?}"
    );
}

#[test]
fn a_bad_source_is_listed_and_tried_again() {
    let workspace = Workspace::new();
    std::fs::create_dir(workspace.path("notes")).expect("a folder");
    workspace
        .write("notes/a.md", "Bees hum in May.")
        .write("notes/b.jsonl", "no JSON\n")
        .write("notes/z.txt", "Drums hum in June.");
    let ingest = [
        "ingest",
        "notes",
        "--into",
        "kb.db",
        "--extractor",
        "local",
        "--quiet",
    ];
    let ended = run(&workspace, &ingest);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("notes/b.jsonl, line 1"), "{}", ended.stderr);
    let sources = run(&workspace, &["memory", "sources", "kb.db", "--json"]).expect(0);
    let names: Vec<Value> = json_lines(&sources)
        .iter()
        .map(|source| source["name"].clone())
        .collect();
    assert_eq!(names, ["notes/a.md", "notes/z.txt"]);
    let failures = json_lines(&run(&workspace, &["memory", "failures", "kb.db", "--json"]).expect(0));
    assert_eq!(failures[0]["source"], "notes/b.jsonl");

    workspace.write("notes/b.jsonl", "{\"text\": \"Queens hum in July.\"}\n");
    let retry = [
        "ingest",
        "--retry-failed",
        "--into",
        "kb.db",
        "--extractor",
        "local",
        "--quiet",
    ];
    run(&workspace, &retry).expect(0);
    assert_eq!(
        &*run(&workspace, &["memory", "failures", "kb.db", "--json"]).expect(0),
        ""
    );
    let found = run_json(&workspace, &["recall", "kb.db", "queens", "--json"]);
    assert_eq!(found["messages"][0]["textChunks"][0], "Queens hum in July.");

    std::fs::remove_file(workspace.path("notes/z.txt")).expect("removes");
    run(&workspace, &ingest).expect(0);
    run(&workspace, &["recall", "kb.db", "drums"]).expect(0);
    run(&workspace, &[&ingest[..], &["--prune-missing"]].concat()).expect(0);
    run(&workspace, &["recall", "kb.db", "drums"]).expect(1);
}

#[test]
fn a_time_lists_its_messages() {
    let workspace = Workspace::new();
    let line =
        |day: &str, text: &str| format!("{{\"text\": \"{text}\", \"timestamp\": \"{day}T09:00:00Z\"}}\n");
    let lines = line("2023-04-30", "Bees hum.")
        + &line("2023-05-02", "Drums hum.")
        + &line("2023-05-09", "Queens hum.");
    let lines = lines + &line("2023-06-01", "Wasps hum.") + &line("2023-06-02", "Babbage compiled a table.");
    workspace.write("chat.jsonl", &lines);
    run(
        &workspace,
        &[
            "ingest",
            "chat.jsonl",
            "--into",
            "kb.db",
            "--extractor",
            "local",
            "-q",
        ],
    )
    .expect(0);
    let texts = |arguments: &[&str]| -> Vec<String> {
        let found = run_json(&workspace, &[&["recall", "kb.db", "--json"], arguments].concat());
        let messages = found["messages"].as_array().expect("messages").clone();
        messages
            .iter()
            .map(|message| message["textChunks"][0].as_str().expect("a text").to_owned())
            .collect()
    };
    let of_may = ["Drums hum.", "Queens hum."];
    assert_eq!(texts(&["What happened in May 2023?"]), of_may);
    for question in [
        "What happened last month?",
        "Was geschah letzten Monat?",
        "¿Qué pasó el mes pasado?",
        "Que s'est-il passé le mois dernier ?",
        "Vad hände förra månaden?",
        "Что случилось в прошлом месяце?",
    ] {
        assert_eq!(texts(&[question]), of_may, "{question}");
    }
    // Without a word that asks, `hände` are hands.
    let hands = run(&workspace, &["recall", "kb.db", "Hände letzten Monat?"]);
    assert!(!hands.stdout.contains("Queens hum."), "{}", hands.stdout);
    assert_eq!(texts(&["--since", "2023-05-01", "--until", "2023-06-01"]), of_may);
    assert_eq!(
        texts(&["--since", "2023-06-01", "--until", "2023-06-02"]),
        ["Wasps hum."]
    );
    assert_eq!(texts(&["Who humms?", "--until", "2023-05-01"]), ["Bees hum."]);
    for (misspelt, found) in [
        ("Queeens?", "Queens hum."),
        ("Babage?", "Babbage compiled a table."),
        ("compilr?", "Babbage compiled a table."),
    ] {
        assert_eq!(texts(&[misspelt])[0], found, "{misspelt}");
    }
}
