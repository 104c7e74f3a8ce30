//! `gristmill llm`, and workers that run its jobs, with a stand-in for the providers.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use gristmill_llm::provider::Provider;
use gristmill_test_tools::provider::{Fault, StandInProvider};
use serde_json::{Value, json};

use crate::workspace::{Ended, Workspace, json_lines};

const SECRET: &str = "sk-very-secret";

/// A provider for a test that waits only for the program. It lives as long as the runtime.
fn serve() -> (tokio::runtime::Runtime, StandInProvider) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let stand_in = runtime.block_on(StandInProvider::start());
    (runtime, stand_in)
}

/// The program, with keys of the stand-in in its environment.
fn command(workspace: &Workspace, stand_in: &StandInProvider, arguments: &[&str]) -> Command {
    let mut command = workspace.command("");
    command.args(arguments);
    for name in [
        "OPENAI_API_KEY_FILE",
        "ANTHROPIC_API_KEY_FILE",
        "GRISTMILL_PRICES",
    ] {
        command.env_remove(name);
    }
    for provider in ["OPENAI", "ANTHROPIC"] {
        command.env(format!("{provider}_API_KEY"), SECRET);
        command.env(format!("{provider}_BASE_URL"), &stand_in.base_url);
    }
    command
}

fn run(workspace: &Workspace, stand_in: &StandInProvider, arguments: &[&str]) -> Ended {
    command(workspace, stand_in, arguments)
        .output()
        .expect("the program starts")
        .into()
}

fn values(workspace: &Workspace, file: &str) -> Vec<Value> {
    json_lines(&workspace.read(file))
        .into_iter()
        .map(|mut line| line["value"].take())
        .collect()
}

#[test]
fn prompts_are_answered_priced_and_asked_once() {
    let workspace = Workspace::new();
    let (_runtime, stand_in) = serve();
    let lines = "\"bees hum\"\n{\"prompt\": \"wasps\", \"model\": \"large\"}\n\"bees hum\"\n{\"prompt\": \"bees hum\", \"sample\": 2}\n";
    workspace
        .write("prompts.jsonl", lines)
        .write("prices.toml", "[small]\ninput = 1000000\noutput = 2000000\n");
    let arguments = [
        "llm",
        "prompts.jsonl",
        "--model",
        "small",
        "--output",
        "answers.jsonl",
        "--prices",
        "prices.toml",
        "--json",
    ];
    let told = json_lines(&run(&workspace, &stand_in, &arguments).expect(0)).remove(0);
    let found = values(&workspace, "answers.jsonl");
    let texts: Vec<&str> = found.iter().filter_map(|value| value["text"].as_str()).collect();
    assert_eq!(texts, ["BEES HUM", "WASPS", "BEES HUM", "BEES HUM"]);
    assert_eq!(found[1]["model"], "large");
    assert_eq!(found[1].get("cost"), None, "its price is unknown");
    let costs: Vec<f64> = found.iter().filter_map(|value| value["cost"].as_f64()).collect();
    assert_eq!(
        costs.iter().sum::<f64>(),
        2.0 * (3.0 + 2.0 * 3.0),
        "of three equal requests, two are one"
    );
    assert_eq!(stand_in.billed().len(), 3);
    assert_eq!(told["model_calls"]["unpriced_models"], json!(["large"]));
    assert_eq!(
        (&told["model_calls"]["shared"], &told["model_calls"]["cost"]),
        (&json!(1), &Value::Null)
    );

    let again = run(&workspace, &stand_in, &arguments).expect(0);
    assert!(again.contains("\"jobs_ended\":0"), "{again}");
    assert_eq!(stand_in.calls("live"), 3, "what is stored is not asked for again");
    for file in std::fs::read_dir(workspace.path("")).expect("a folder") {
        let path = file.expect("a file").path();
        let bytes = std::fs::read(&path).expect("it can be read");
        let is_there = bytes
            .windows(SECRET.len())
            .any(|window| window == SECRET.as_bytes());
        assert!(!is_there, "{}", path.display());
    }
}

#[test]
fn data_fills_a_template_and_answers_have_the_form_of_a_schema() {
    let workspace = Workspace::new();
    let (_runtime, stand_in) = serve();
    stand_in.say(|request| {
        let text = request["messages"]
            .as_array()
            .and_then(|all| all.last()?["content"].as_str())
            .unwrap_or_default();
        json!({ "length": text.len() as i64 - 10 }).to_string()
    });
    workspace
        .write("rows.csv", "name,text\na,long enough\nb,\n")
        .write("form.json", r#"{"type": "object", "properties": {"length": {"type": "integer", "minimum": 0}}, "required": ["length"]}"#)
        .write("ask.txt", "Measure: {text}");
    let mut arguments = vec![
        "llm",
        "rows.csv",
        "--template",
        "@ask.txt",
        "--schema",
        "form.json",
        "--model",
        "m",
        "--provider",
        "anthropic",
        "--output",
        "out.jsonl",
    ];
    run(&workspace, &stand_in, &arguments).expect(1);
    let lines = json_lines(&workspace.read("out.jsonl"));
    assert_eq!(lines[0]["value"]["json"], json!({"length": 10}));
    assert_eq!(lines[1]["error"]["type"], "schema");
    let error = lines[1]["error"]["message"].as_str().unwrap_or_default();
    assert!(
        error.contains("the answer.length is -1, outside of its limits"),
        "{error}"
    );
    assert!(error.contains("paid all the same"), "{error}");

    // The failed item is asked for again, by the request that the options make now.
    workspace.write("ask.txt", "Measure this one: {text}");
    arguments.push("--retry-failed");
    run(&workspace, &stand_in, &arguments).expect(0);
    assert_eq!(values(&workspace, "out.jsonl")[1]["json"], json!({"length": 8}));
    assert_eq!(stand_in.billed().len(), 3);
}

#[test]
fn a_command_with_a_mistake_says_so_before_a_request_is_paid() {
    let workspace = Workspace::new();
    let (_runtime, stand_in) = serve();
    workspace
        .write("prompts.jsonl", "\"a\"\n")
        .write("rows.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n")
        .write("bad.json", "{\"type\": \"text\"}")
        .write("prices.toml", "[m]\ninput = 1\n");
    for (arguments, reason) in [
        (vec!["prompts.jsonl"], "names no model"),
        (vec!["rows.jsonl", "--model", "m"], "give --template"),
        (
            vec!["rows.jsonl", "--template", "{txet}", "--model", "m"],
            "no field `txet`",
        ),
        (vec!["rows.jsonl", "--template", "{text}"], "give --model"),
        (
            vec!["rows.jsonl", "--template", "kind?", "--model", "m"],
            "no place for the item",
        ),
        (
            vec!["prompts.jsonl", "--model", "m", "--schema", "bad.json"],
            "schema.type is \"text\"",
        ),
        (
            vec!["prompts.jsonl", "--model", "m", "--schema", "none.json"],
            "none.json",
        ),
        (
            vec!["prompts.jsonl", "--model", "m", "--system", "@none.txt"],
            "@none.txt",
        ),
        (
            vec!["prompts.jsonl", "--model", "m", "--prices", "prices.toml"],
            "[m]: `input` and `output`",
        ),
        (
            vec!["prompts.jsonl", "--model", "m", "--provider", "openia"],
            "write openai",
        ),
        (
            vec!["prompts.jsonl", "--model", "m", "--base-url", "models.example"],
            "is not an address",
        ),
        (
            vec![
                "prompts.jsonl",
                "--model",
                "m",
                "--base-url",
                "http://127.0.0.1:9/v1",
            ],
            "check that it runs",
        ),
    ] {
        let mut all = vec!["llm"];
        all.extend(&arguments);
        let error = run(&workspace, &stand_in, &all).error();
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
    // A key of another provider that cannot be read is no matter.
    let mut other = command(
        &workspace,
        &stand_in,
        &["llm", "prompts.jsonl", "--model", "m", "--name", "other"],
    );
    other
        .env_remove("ANTHROPIC_API_KEY")
        .env("ANTHROPIC_API_KEY_FILE", "none.txt");
    Ended::from(other.output().expect("the program starts")).expect(0);
    let paid = stand_in.billed().len();
    stand_in.lie(|_| Some(Fault::Reject(401, Vec::new(), "wrong key".to_owned())));
    let error = run(&workspace, &stand_in, &["llm", "prompts.jsonl", "--model", "m"]).error();
    assert!(error.contains("wrong key"), "{error}");
    assert_eq!(stand_in.billed().len(), paid);
    let mut without = command(&workspace, &stand_in, &["llm", "prompts.jsonl", "--model", "m"]);
    without.env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL");
    let error = Ended::from(without.output().expect("the program starts")).error();
    assert!(error.contains("set OPENAI_API_KEY"), "{error}");
}

#[test]
fn a_quota_that_is_used_up_stops_the_run() {
    const PROMPTS: u64 = 2_000;
    let workspace = Workspace::new();
    let (_runtime, stand_in) = serve();
    let prompts: String = (0..PROMPTS).map(|n| format!("\"text {n}\"\n")).collect();
    workspace.write("prompts.jsonl", prompts);
    let quota = r#"{"error": {"code": "insufficient_quota"}}"#;
    stand_in.lie(move |call| {
        let is_over = call.name() == "live" && call.before >= 30;
        is_over.then(|| Fault::Reject(429, Vec::new(), quota.to_owned()))
    });
    let arguments = [
        "llm",
        "prompts.jsonl",
        "--model",
        "m",
        "--output",
        "out.jsonl",
        "--json",
    ];
    let stopped = run(&workspace, &stand_in, &arguments);
    assert_eq!(stopped.code, Some(2), "{}", stopped.stderr);
    assert!(
        stopped.stderr.contains("refuses all requests (429)") && stopped.stderr.contains("no job failed"),
        "{}",
        stopped.stderr
    );
    // Some calls were under way when the first refusal came.
    assert!(
        stand_in.calls("live") < 30 + 100,
        "{} calls",
        stand_in.calls("live")
    );
    stand_in.lie(|_| None);
    run(&workspace, &stand_in, &arguments).expect(0);
    assert_eq!(
        stand_in.billed().len() as u64,
        PROMPTS,
        "each prompt is paid once"
    );
}

#[test]
fn a_worker_runs_submitted_requests() {
    let workspace = Workspace::new();
    let (_runtime, stand_in) = serve();
    workspace.write(
        "requests.jsonl",
        "{\"model\": \"m\", \"prompt\": \"a\"}\n\
         {\"model\": \"m\", \"provider\": \"anthropic\", \"messages\": [{\"role\": \"user\", \"content\": \"b\"}]}\n{\"prompt\": \"c\"}\n",
    );
    run(
        &workspace,
        &stand_in,
        &["submit", "llm", "--input", "requests.jsonl"],
    )
    .expect(0);
    run(&workspace, &stand_in, &["worker", "--llm", "--drain", "--quiet"]).expect(1);
    let outcomes = json_lines(&run(&workspace, &stand_in, &["results", "--batch", "1"]).expect(1));
    assert_eq!(
        (&outcomes[0]["value"]["text"], &outcomes[1]["value"]["text"]),
        (&json!("A"), &json!("B"))
    );
    let error = outcomes[2]["error"]["message"].as_str().unwrap_or_default();
    assert!(error.contains("names no model"), "{error}");
}

#[test]
fn a_killed_run_goes_on_and_pays_at_most_for_what_was_under_way() {
    const PROMPTS: usize = 200;
    let workspace = Workspace::new();
    let (_runtime, stand_in) = serve();
    let prompts: String = (0..PROMPTS).map(|n| format!("\"text {n}\"\n")).collect();
    workspace.write("prompts.jsonl", prompts);
    let arguments = [
        "llm",
        "prompts.jsonl",
        "--model",
        "m",
        "--concurrency",
        "4",
        "--output",
        "out.jsonl",
        "--batch",
        "20",
    ];
    let mut kills = 0;
    for billed in [20, 60, 120] {
        let mut child = command(&workspace, &stand_in, &arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        while stand_in.billed().len() < billed && child.try_wait().expect("a child").is_none() {
            std::thread::yield_now();
        }
        if child.try_wait().expect("a child").is_none() {
            child.kill().expect("it can be killed");
            kills += 1;
        }
        child.wait().expect("it ends");
    }
    assert!(kills > 0, "the run is longer than that");
    run(&workspace, &stand_in, &arguments).expect(0);
    let texts: Vec<String> = values(&workspace, "out.jsonl")
        .iter()
        .filter_map(|value| value["text"].as_str().map(str::to_owned))
        .collect();
    let expected: Vec<String> = (0..PROMPTS).map(|n| format!("TEXT {n}")).collect();
    assert_eq!(texts, expected);
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for billed in stand_in.billed() {
        *times.entry(billed.text).or_default() += 1;
    }
    assert_eq!(times.len(), PROMPTS);
    // Answers gather for some milliseconds before they are committed.
    let twice: u32 = times.values().map(|paid| paid - 1).sum();
    println!("{kills} kills, {twice} of {PROMPTS} paid twice");
    assert!(
        twice as usize <= kills * PROMPTS / 2,
        "{twice} paid twice after {kills} kills"
    );
}

#[test]
fn no_script_gets_a_key_of_a_provider() {
    let workspace = Workspace::new();
    workspace
        .write(
            "keys.py",
            "import os\n\ndef main(item):\n    return [name for name in os.environ if 'API_KEY' in name]\n",
        )
        .write("one.jsonl", "1\n");
    let mut command = workspace.command("");
    command.args(["run", "keys.py", "one.jsonl", "--values", "--quiet"]);
    for provider in Provider::ALL {
        for ending in ["", "_FILE"] {
            command.env(format!("{}_API_KEY{ending}", provider.variables()), SECRET);
        }
    }
    let ended = Ended::from(command.output().expect("the program starts"));
    assert_eq!(ended.expect(0).trim(), "[]");
}

#[test]
fn requests_that_are_submitted_are_not_mixed_with_other_ones() {
    let workspace = Workspace::new();
    let (_runtime, stand_in) = serve();
    workspace.write(
        "prompts.jsonl",
        (0..50).map(|n| format!("\"text {n}\"\n")).collect::<String>(),
    );
    stand_in.lie(|call| {
        let is_over = call.name() == "live" && call.before >= 10;
        is_over.then(|| Fault::Reject(401, Vec::new(), "over".to_owned()))
    });
    let with = |model: &'static str, more: &[&'static str]| {
        let arguments = [
            "llm",
            "prompts.jsonl",
            "--model",
            model,
            "--output",
            "out.jsonl",
            "--quiet",
        ];
        run(&workspace, &stand_in, &[&arguments[..], more].concat())
    };
    assert_eq!(with("small", &[]).code, Some(2));
    stand_in.lie(|_| None);
    let paid = stand_in.billed().len();
    for option in ["--continue", "--retry-failed"] {
        let error = with("large", &[option]).error();
        assert!(error.contains("former requests that have not ended"), "{error}");
    }
    assert_eq!(stand_in.billed().len(), paid);
    with("small", &[]).expect(0);
    let values = values(&workspace, "out.jsonl");
    assert_eq!(values.len(), 50);
    assert!(values.iter().all(|value| value["model"] == "small"));
}
