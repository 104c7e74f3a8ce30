//! Each option of a job means the same through every door (the command line, HTTP, SQL, and spawns of scripts), or the
//! door refuses it by its name.

use std::collections::BTreeMap;
use std::process::Command;

use gristmill_model::BatchOptions;
use gristmill_operations::JobOptions;
use serde_json::{Value, json};

use crate::processes::Server;
use crate::workspace::{Workspace, json_lines};

/// The way in which SQL takes an option.
enum Sql {
    /// The door takes the option as a key of its argument `options`.
    Key,
    /// The door takes the option as this argument.
    Argument(&'static str),
    Refused,
}

/// One option with a value.
struct Case {
    option: &'static str,
    value: Value,
    flags: &'static str,
    sql: Sql,
}

fn case(option: &'static str, value: Value, flags: &'static str, sql: Sql) -> Case {
    Case {
        option,
        value,
        flags,
        sql,
    }
}

/// Milliseconds of the year 2096.
const LATER_MS: i64 = 4_000_000_000_000;

fn cases() -> Vec<Case> {
    let retry = json!({"attempts_max": 5, "backoff": "linear", "delay_ms": 10});
    vec![
        case("cached_ms", json!(60_000), "--cached 60s", Sql::Refused),
        case(
            "complete_within_ms",
            json!(60_000),
            "--complete-within 60s",
            Sql::Key,
        ),
        case("delay_ms", json!(60_000), "--delay 60s", Sql::Refused),
        case(
            "expires_at",
            json!(LATER_MS),
            "--expires 1h",
            Sql::Argument("expires_at => to_timestamp(4000000000)"),
        ),
        case("group", json!("acme"), "--group acme", Sql::Key),
        case("on_failure", json!("told"), "--on-failure told", Sql::Refused),
        case("on_success", json!("told"), "--on-success told", Sql::Refused),
        case(
            "priority",
            json!("high"),
            "--priority high",
            Sql::Argument("priority => 10"),
        ),
        case(
            "retry",
            retry,
            "--retries 4 --backoff linear --retry-delay 10ms",
            Sql::Key,
        ),
        // The command line counts from now.
        case(
            "run_at",
            json!(LATER_MS),
            "--delay 1h",
            Sql::Argument("run_at => to_timestamp(4000000000)"),
        ),
        case("timeout_ms", json!(7_000), "--timeout 7s", Sql::Key),
    ]
}

/// The names of all options, which serde lists when it refuses an unknown one.
fn known_options() -> Vec<String> {
    let error = serde_json::from_str::<JobOptions>(r#"{"none": 1}"#).unwrap_err();
    let mut known: Vec<String> = error
        .to_string()
        .split('`')
        .skip(3)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    known.sort();
    known
}

const SPAWNER: &str = "\
import gristmill

def main(payload):
    return gristmill.spawn([1], kind=payload['kind'], options=payload['options'])

def finalize(payload, memo, outcomes):
    return None
";

/// Sends each line of a file as a request, and prints the statuses and answers.
const SENDER: &str = "\
import json, sys, urllib.error, urllib.request
for line in open(sys.argv[2]):
    request = urllib.request.Request(sys.argv[1] + '/api/v1/jobs', line.encode(), {'content-type': 'application/json'})
    try:
        answer = urllib.request.urlopen(request)
    except urllib.error.HTTPError as error:
        answer = error
    print(json.dumps([answer.status, answer.read().decode()]))
";

fn psql(workspace: &Workspace, sql: &str) -> Result<String, String> {
    let url = workspace.database_or("");
    let database = url.trim_start_matches("postgresql:///").split('?').next();
    let server = gristmill_private_postgres::shared();
    server
        .psql(database.unwrap(), sql)
        .map_err(|error| error.to_string())
}

/// Sends requests over HTTP, and returns the status and the text of each answer.
fn send(workspace: &Workspace, requests: &[Value]) -> Vec<(u64, String)> {
    let lines: String = requests.iter().map(|request| format!("{request}\n")).collect();
    workspace.write("requests.jsonl", lines);
    let server = Server::start(workspace.command("serve --listen 127.0.0.1:0"));
    let sent = Command::new("python3")
        .args(["-c", SENDER, &server.url])
        .arg(workspace.path("requests.jsonl"))
        .output()
        .unwrap();
    server.stop();
    let answers = json_lines(std::str::from_utf8(&sent.stdout).unwrap());
    assert_eq!(
        answers.len(),
        requests.len(),
        "{}",
        String::from_utf8_lossy(&sent.stderr)
    );
    let answers = answers.iter();
    answers
        .map(|answer| {
            (
                answer[0].as_u64().unwrap(),
                answer[1].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

/// Makes a script spawn a child with each of these options. Returns the errors of the failed parents, in their order.
fn spawn(workspace: &Workspace, spawns: &[Value]) -> Vec<String> {
    let lines: String = spawns.iter().map(|spawn| format!("{spawn}\n")).collect();
    workspace
        .write("spawner.py", SPAWNER)
        .write("spawns.jsonl", lines);
    workspace.run("submit spawner --input spawns.jsonl").expect(0);
    workspace.run("worker spawner.py --drain");
    let dead = workspace.run("jobs --kind spawner --state dead --json").expect(0);
    let dead = json_lines(&dead).into_iter().map(|job| job.to_string());
    dead.collect()
}

/// The stored options of each kind, without times.
fn stored(workspace: &Workspace) -> BTreeMap<String, String> {
    let rows = psql(
        workspace,
        "SELECT json_build_object('kind', l.kind, 'group', l.job_group, 'priority', b.priority,
             'is_later', b.run_at > b.submitted_at, 'options', coalesce(b.options, '{}')::json,
             'expires', EXISTS (SELECT FROM gristmill.slice s WHERE s.batch_id = b.id AND s.expires_at IS NOT NULL))
         FROM gristmill.batch b JOIN gristmill.lane l ON l.id = b.lane_id WHERE l.kind <> 'spawner'",
    );
    let mut stored = BTreeMap::new();
    for row in json_lines(&rows.unwrap()) {
        let options: BatchOptions = serde_json::from_value(row["options"].clone()).unwrap();
        let options = BatchOptions {
            run_at: None,
            expires_at: None,
            group: None,
            priority: 0,
            ..options
        };
        let of_row = ["group", "priority", "is_later", "expires"].map(|name| row[name].to_string());
        stored.insert(
            row["kind"].as_str().unwrap().to_owned(),
            format!("{} {options:?}", of_row.join(" ")),
        );
    }
    stored
}

#[test]
fn every_option_means_the_same_by_every_door_or_is_refused_by_its_name() {
    let workspace = Workspace::on_postgres();
    let cases = cases();
    let covered: Vec<&str> = cases.iter().map(|case| case.option).collect();
    assert_eq!(covered, known_options(), "an option is not tried by all doors");
    workspace.run("submit none-command 1").expect(0);
    let mut requests = Vec::new();
    let mut spawns = Vec::new();
    for Case {
        option,
        value,
        flags,
        sql,
    } in &cases
    {
        workspace
            .run(&format!("submit {option}-command 1 {flags}"))
            .expect(0);
        requests.push(json!({"kind": format!("{option}-http"), "payload": 1, *option: value}));
        spawns.push(json!({"kind": format!("{option}-script"), "options": {*option: value}}));
        let key = format!("options => '{}'", json!({*option: value}));
        let submit = |argument: &str| {
            let sql = format!("SELECT gristmill.submit('{option}-sql', '1', {argument})");
            psql(&workspace, &sql)
        };
        match sql {
            Sql::Key => drop(submit(&key).unwrap()),
            Sql::Argument(argument) => {
                submit(argument).unwrap();
                let error = submit(&key).unwrap_err();
                assert!(error.contains(&format!("give {option} =>")), "{error}");
            }
            Sql::Refused => {
                let error = submit(&key).unwrap_err();
                let told =
                    error.contains(option) && (error.contains("over HTTP") || error.contains("run_at =>"));
                assert!(told, "{error}");
            }
        }
    }
    for (status, answer) in send(&workspace, &requests) {
        assert_eq!(status, 201, "{answer}");
    }
    let refused = spawn(&workspace, &spawns);
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].contains("`delay_ms` is for submits"), "{refused:?}");
    let stored = stored(&workspace);
    for Case { option, sql, .. } in &cases {
        let first = &stored[&format!("{option}-command")];
        assert_ne!(*first, stored["none-command"], "{option} changes nothing");
        assert_eq!(stored[&format!("{option}-http")], *first, "{option} over HTTP");
        let others = [
            ("script", *option != "delay_ms"),
            ("sql", !matches!(sql, Sql::Refused)),
        ];
        for (door, is_taken) in others {
            let found = stored.get(&format!("{option}-{door}"));
            assert_eq!(found, is_taken.then_some(first), "{option} by {door}");
        }
    }
}

#[test]
fn a_misspelt_option_is_refused_by_every_door_with_the_one_that_was_meant() {
    let workspace = Workspace::on_postgres();
    let error = workspace.run("submit page 1 --priorty 3").error();
    assert!(error.contains("--priority"), "{error}");
    workspace.run("submit page 1").expect(0);
    for wrong in [
        json!({"kind": "page", "payload": 1, "timeot_ms": 3}),
        json!({"kind": "page", "payload": 1, "retry": {"attempts": 3}}),
    ] {
        let (status, answer) = send(&workspace, &[wrong]).remove(0);
        assert_eq!(status, 400, "{answer}");
        let meant = ["did you mean `timeout_ms`", "did you mean `attempts_max`"];
        assert!(meant.iter().any(|meant| answer.contains(meant)), "{answer}");
    }
    for (wrong, meant) in [
        ("{\"timeot_ms\": 3}", "timeout_ms"),
        ("{\"retry\": {\"attempts\": 3}}", "attempts_max"),
    ] {
        let sql = format!("SELECT gristmill.submit('page', '1', options => '{wrong}')");
        let error = psql(&workspace, &sql).unwrap_err();
        assert!(error.contains(&format!("Did you mean {meant}?")), "{error}");
    }
    let refused = spawn(&workspace, &[json!({"kind": "page", "options": {"priorty": 3}})]);
    assert!(refused[0].contains("did you mean `priority`?"), "{refused:?}");
    let jobs = workspace.run("jobs --kind page --json").expect(0);
    assert_eq!(json_lines(&jobs).len(), 1, "a refused submit is stored: {jobs}");
}
