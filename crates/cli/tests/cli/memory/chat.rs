//! `gristmill chat`, with and without a stand-in for the model service; answers that messages must support.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use gristmill_test_tools::small_model;
use gristmill_test_tools::stand_in::Answer;
use serde_json::{Value, json};

use crate::memory::knowledge::{SHOW, answer, command, run, run_json, serve};
use crate::workspace::{Ended, Workspace, json_lines, send_signal};

/// The longest wait of a test for an event.
const PATIENCE: Duration = Duration::from_secs(90);

const TALK: &str = r#"{"speaker":"Ada King","timestamp":"2023-05-08T07:00:00Z","text":"I keep bees on my roof in London."}
{"speaker":"Bob Ray","timestamp":"2023-06-10T07:00:00Z","text":"I build drums in Oslo."}
{"speaker":"Ada King","timestamp":"2023-06-12T07:00:00Z","text":"We sold forty kilos of honey."}
{"speaker":"Bob Ray","timestamp":"2023-06-12T07:01:00Z","text":"The honey is on my bread."}
"#;

on_each_store! {
    a_conversation_keeps_its_context,
}

/// The program, with questions on its standard input.
fn say(workspace: &Workspace, arguments: &[&str], said: &str) -> Ended {
    let mut child = start(workspace, arguments);
    // A program that refuses its arguments closes its input early.
    let _ = child
        .stdin
        .take()
        .expect("it has an input")
        .write_all(said.as_bytes());
    child.wait_with_output().expect("it ends").into()
}

fn start(workspace: &Workspace, arguments: &[&str]) -> Child {
    let mut command = command(workspace, arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

fn ingest(workspace: &Workspace, name: &str, text: &str, kb: &str) {
    workspace.write(name, text);
    let arguments = ["ingest", name, "--into", kb, "--extractor", "local", "--quiet"];
    run(workspace, &arguments).expect(0);
}

fn a_conversation_keeps_its_context(workspace: fn() -> Workspace) {
    let workspace = workspace();
    let kb = workspace.database_or("kb.db");
    ingest(&workspace, "talk.jsonl", TALK, &kb);
    let said = "Who keeps bees?\n\
                How much honey did she sell?\n\
                And Bob Ray?\n\
                \n\
                What did he build?\n\
                What else happened then?\n\
                /forget\n\
                What did he build?";
    let ended = say(&workspace, &["chat", &kb, "--json"], said);
    assert!(ended.stderr.contains("without a model"), "{}", ended.stderr);
    let replies = json_lines(&ended.expect(0));
    let understood: Vec<&str> = replies
        .iter()
        .filter_map(|reply| reply["understood"].as_str())
        .collect();
    assert_eq!(
        understood,
        [
            "Who keeps bees?",
            "How much honey did Ada King sell?",
            "How much honey did Bob Ray sell?",
            "What did Bob Ray build?",
            "What else happened on 2023-06-10?",
            "What did he build?",
        ]
    );
    let first = |number: usize| &replies[number]["recalled"]["messages"][0]["textChunks"][0];
    assert_eq!(first(0), "I keep bees on my roof in London.");
    assert_eq!(first(1), "We sold forty kilos of honey.");
    assert_eq!(first(2), "The honey is on my bread.");
    assert_eq!(first(4), "I build drums in Oslo.");

    let shown = say(
        &workspace,
        &["chat", &kb],
        "Who keeps bees?\nWhere did she sell honey?\nZebras?\n",
    )
    .expect(1);
    let expected =
        "> Who keeps bees?\n1. talk.jsonl #0 · Ada King · 2023-05-08T07:00:00.000Z\n   I keep bees";
    assert!(shown.starts_with(expected), "{shown}");
    assert!(
        shown.contains("> Where did she sell honey?\n(Where did Ada King sell honey?)\n1. "),
        "{shown}"
    );
    assert!(shown.ends_with("> Zebras?\nnothing found\n\n"), "{shown}");
}

#[test]
fn a_model_completes_and_answers_questions() {
    let workspace = Workspace::new();
    ingest(&workspace, "show.txt", SHOW, "kb.db");
    let (_runtime, service) = serve(|text, _| match text.split_once("The last question: ") {
        Some((before, "And where was that?")) => {
            let told = "Question: Who saw Drums?\nAnswer: In Paris [1].\n\n";
            assert_eq!(before, told);
            Answer::content(json!({"question": "Where did Ada King see Drums?"}).to_string())
        }
        Some(_) => Answer::content("I do not know."),
        None => answer(text),
    });
    let said = "Who saw Drums?\nAnd where was that?\nDid she like Drums?\n";
    let arguments = [
        "chat",
        "kb.db",
        "--json",
        "--parser",
        "rules",
        "--base-url",
        &service.base_url,
    ];
    let replies = json_lines(&say(&workspace, &arguments, said).expect(0));
    let understood: Vec<&Value> = replies.iter().map(|reply| &reply["understood"]).collect();
    assert_eq!(
        understood,
        [
            "Who saw Drums?",
            "Where did Ada King see Drums?",
            "Did Ada King like Drums?"
        ],
        "an answer of no use leaves it to the rules"
    );
    let answer = &replies[1]["answer"];
    assert_eq!(answer["text"], "In Paris [1].");
    assert_eq!(answer["citations"][0]["textChunks"][0], "I saw Drums in Paris.");
    assert_eq!(answer["usage"]["calls"], 2, "{answer}");
    assert_eq!(replies[0]["answer"]["usage"]["calls"], 1);
}

#[test]
fn an_interrupt_ends_a_conversation() {
    let workspace = Workspace::new();
    ingest(&workspace, "show.txt", SHOW, "kb.db");
    let (asked, was_asked) = mpsc::channel();
    let asked = Mutex::new(asked);
    let (_runtime, service) = serve(move |_, _| {
        asked.lock().expect("a lock").send(()).expect("the test listens");
        Answer {
            latency: PATIENCE * 10,
            ..Answer::content("")
        }
    });
    // Interrupts while the model answers.
    let arguments = [
        "chat",
        "kb.db",
        "--parser",
        "rules",
        "--base-url",
        &service.base_url,
    ];
    let mut child = start(&workspace, &arguments);
    let mut input = child.stdin.take().expect("it has an input");
    input.write_all(b"Who saw Drums?\n").expect("it reads");
    was_asked.recv_timeout(PATIENCE).expect("the model is asked");
    send_signal(&child, "-INT");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    // Interrupts while the program waits for a question.
    let mut child = start(&workspace, &["chat", "kb.db", "--json"]);
    let mut input = child.stdin.take().expect("it has an input");
    input.write_all(b"Who saw Drums?\n").expect("it reads");
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("it has an output"));
    output.read_line(&mut line).expect("a reply");
    assert!(line.contains("\"understood\":\"Who saw Drums?\""), "{line}");
    send_signal(&child, "-INT");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
}

#[test]
fn a_model_that_fails_ends_no_conversation() {
    let workspace = Workspace::new();
    ingest(&workspace, "show.txt", SHOW, "kb.db");
    let (_runtime, service) = serve(|text, _| {
        if text.contains("Bees") {
            Answer {
                status: 400,
                ..Answer::content("too long")
            }
        } else {
            answer(text)
        }
    });
    let arguments = [
        "chat",
        "kb.db",
        "--json",
        "--limit",
        "1",
        "--parser",
        "rules",
        "--base-url",
    ];
    let arguments = [&arguments[..], &[service.base_url.as_str()]].concat();
    let ended = say(
        &workspace,
        &arguments,
        "Who likes London?\nWho saw Drums in Paris?\n",
    );
    let is_told = ended
        .stderr
        .contains("Who likes London?: the model service refused");
    assert!(is_told, "{}", ended.stderr);
    let replies = json_lines(&ended.expect(1));
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0]["answer"]["text"], "In Paris [1].");
    let error = say(
        &workspace,
        &["chat", "kb.db", "--base-url", "http://127.0.0.1:9/v1"],
        "Who?\n",
    )
    .error();
    assert!(error.contains("cannot be reached"), "{error}");
}

#[test]
fn an_answer_rests_on_messages() {
    let workspace = Workspace::new();
    ingest(&workspace, "show.txt", SHOW, "kb.db");
    let asked = |told: &'static str, code: i32| -> Value {
        let (_runtime, service) = serve(move |_, _| Answer::content(told));
        let arguments = [
            "ask",
            "kb.db",
            "Who saw Drums?",
            "--json",
            "--parser",
            "rules",
            "--base-url",
            &service.base_url,
        ];
        json_lines(&run(&workspace, &arguments).expect(code)).remove(0)
    };
    let supported = asked(
        r#"{"answered": true, "answer": "Ada King did, in Paris.", "citations": []}"#,
        0,
    );
    assert_eq!(
        supported["citations"][0]["textChunks"][0],
        "I saw Drums in Paris."
    );
    let made_up = asked(
        r#"{"answered": true, "answer": "Cleo, in Bergen.", "citations": [9]}"#,
        1,
    );
    assert_eq!(made_up["answered"], false);
    let text = made_up["text"].as_str().expect("a text");
    assert!(text.starts_with("no message says so"), "{text}");
    let unknown = asked(r#"{"answered": false, "answer": "", "citations": []}"#, 1);
    assert_eq!(unknown["text"], "the messages do not answer that");
}

#[test]
fn a_model_ranks_messages_again() {
    let workspace = Workspace::new();
    ingest(&workspace, "talk.jsonl", TALK, "kb.db");
    let positions = |found: &Value| -> Vec<u64> {
        let messages = found["messages"].as_array().expect("messages").iter();
        messages
            .filter_map(|message| message["position"].as_u64())
            .collect()
    };
    let recall = ["recall", "kb.db", "honey", "--json"];
    let by_words = positions(&run_json(&workspace, &recall));
    assert!(by_words.len() >= 2, "{by_words:?}");
    let (_runtime, service) = serve(|text, _| {
        assert!(
            text.starts_with("[1] ") && text.ends_with("The question: honey"),
            "{text}"
        );
        Answer::content(r#"{"order": [2]}"#)
    });
    let reranked = ["--rerank", "model", "--base-url", &service.base_url];
    let reranked = run_json(&workspace, &[&recall[..], &reranked[..]].concat());
    let found = positions(&reranked);
    assert_eq!(found[..2], [by_words[1], by_words[0]]);
    assert_eq!(found[2..], by_words[2..]);
    // With a limit of one message, the best of many is found.
    let one = [
        "--rerank",
        "model",
        "--limit",
        "1",
        "--base-url",
        &service.base_url,
    ];
    let one = run_json(&workspace, &[&recall[..], &one[..]].concat());
    assert_eq!(positions(&one), [by_words[1]]);
    let error = run(&workspace, &[&recall[..], &["--rerank", "model"]].concat()).error();
    assert!(error.contains("--rerank model needs a model"), "{error}");
}

#[test]
fn a_cross_encoder_ranks_messages_again_without_a_service() {
    let workspace = Workspace::new();
    small_model::write_cross_encoder(&workspace.path("reranker"), 1);
    let texts = ["drum", "bee drum loud", "drum loud", "drum wasp"];
    let lines: String = texts
        .map(|text| format!("{}\n", json!({ "text": text })))
        .concat();
    ingest(&workspace, "hums.jsonl", &lines, "kb.db");
    let first = |found: &Value| found["messages"][0]["position"].clone();
    let recall = ["recall", "kb.db", "bee drum", "--json"];
    assert_eq!(first(&run_json(&workspace, &recall)), 1);
    let explained = [&recall[..], &["--rerank", "./reranker", "--explain"]].concat();
    let explained = run_json(&workspace, &explained);
    assert_eq!(first(&explained), 2, "as another program computes it");
    assert!(explained.to_string().contains("\"cross-encoder\""), "{explained}");
    let chat = ["chat", "kb.db", "--rerank", "./reranker", "--json"];
    let replied = json_lines(&say(&workspace, &chat, "bee drum\n").expect(0)).remove(0);
    assert_eq!(first(&replied["recalled"]), 2);
    for (named, told) in [("./nowhere", "config.json"), ("nowhere", "there is no model")] {
        let mut asked = command(&workspace, &[&recall[..], &["--rerank", named]].concat());
        asked.env("GRISTMILL_MODELS", workspace.path("models"));
        let error = Ended::from(asked.output().expect("runs")).error();
        assert!(error.contains(told), "{error}");
    }
}
