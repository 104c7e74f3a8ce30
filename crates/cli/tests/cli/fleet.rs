//! Servers, agents and tokens, with real scripts over real HTTP.

use std::io::{BufRead, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::processes::{self, Process, Server};
use crate::workspace::{self, Workspace, json_lines, numbers, send_signal};

on_each_store! {
    an_agent_runs_a_servers_jobs_one_by_one_and_in_batches,
    a_standalone_server_runs_what_is_submitted_over_http,
    an_agent_that_is_interrupted_gives_back_what_it_has_not_begun,
    an_agent_drains_what_waits_under_a_limit,
    scripts_learn_who_their_jobs_are_on_a_store_and_over_http,
    a_job_that_outlasts_the_grace_is_released_uncharged,
    a_stop_that_reaches_all_processes_charges_no_job,
}

const DOUBLE: &str =
    "def main(payload):\n    if payload == 3:\n        raise ValueError('three')\n    return payload * 2\n";

fn start(workspace: &Workspace, arguments: &str) -> Server {
    Server::start(workspace.command(&format!("serve --listen 127.0.0.1:0 {arguments}")))
}

fn agent(workspace: &Workspace, server: &Server, arguments: &str, token: &str) -> workspace::Ended {
    workspace
        .command(&format!(
            "agent double.py --kind double --json --quiet {arguments}"
        ))
        .env("BASE_URL", &server.url)
        .env("AGENT_TOKEN", token)
        .output()
        .unwrap()
        .into()
}

fn an_agent_runs_a_servers_jobs_one_by_one_and_in_batches(new_workspace: fn() -> Workspace) {
    for arguments in ["--drain", "--drain --batch 1000"] {
        let workspace = new_workspace();
        workspace
            .write("double.py", DOUBLE)
            .write("items.jsonl", numbers(200));
        workspace
            .run("submit double --input items.jsonl --retries 0")
            .expect(0);
        let server = start(&workspace, "");
        let totals = json_lines(&agent(&workspace, &server, arguments, "").expect(1)).remove(0);
        assert_eq!(
            totals,
            json!({"completed": 199, "failed_attempts": 1, "dead": 1, "refused": 0})
        );
        server.stop();
        let values = workspace.run("results --batch 1 --values").expect(1);
        let expected: String = (1..=200)
            .map(|item| {
                if item == 3 {
                    "null\n".to_owned()
                } else {
                    format!("{}\n", 2 * item)
                }
            })
            .collect();
        assert_eq!(values, expected);
    }
}

fn an_agent_drains_what_waits_under_a_limit(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    workspace
        .write(
            "double.py",
            "import time\ndef main(payload):\n    time.sleep(0.03)\n    return payload * 2\n",
        )
        .write("items.jsonl", numbers(12));
    workspace.run("limit set --kind double --concurrency 1").expect(0);
    let server = start(&workspace, "");
    for arguments in ["--drain --batch 10 -j 2", "--drain -j 2"] {
        workspace
            .run("submit double --input items.jsonl --retries 0")
            .expect(0);
        let begun = std::time::Instant::now();
        let totals = json_lines(&agent(&workspace, &server, arguments, "").expect(0)).remove(0);
        assert_eq!(totals["completed"], 12, "{arguments}: {totals}");
        // It does not wait for more work when nothing is left. A wait at the server takes 20 s.
        assert!(begun.elapsed().as_secs() < 18, "{:?}", begun.elapsed());
    }
    server.stop();
}

/// A job's description of itself before and after others ran beside it. The third job fails at first, and the fourth
/// has a child.
const ASYNC_PYTHON: &str = "import asyncio, gristmill
async def main(payload):
    own = vars(gristmill.job())
    await asyncio.sleep(0)
    assert vars(gristmill.job()) == own
    if payload['n'] == 3 and own['attempt'] == 1:
        raise ValueError('once more')
    if payload['n'] == 4:
        return gristmill.spawn(children=[{'n': 0}], kind='who', memo=own)
    return own
def finalize(payload, memo, outcomes):
    assert vars(gristmill.job())['id'] == memo['id']
    return dict(memo, child=outcomes[0]['value'])
";

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

const THREADED_PYTHON: &str = "import gristmill, threading
def main(payload):
    own = vars(gristmill.job())
    threading.Event().wait(0.001)
    assert vars(gristmill.job()) == own
    if payload['n'] == 3 and own['attempt'] == 1:
        raise ValueError('once more')
    if payload['n'] == 4:
        return gristmill.spawn(children=[{'n': 0}], kind='who', memo=own)
    return own
def finalize(payload, memo, outcomes):
    return dict(memo, child=outcomes[0]['value'])
";

const ASYNC_JAVASCRIPT: &str = "export default async function main(payload) {
  const own = gristmill.job();
  await null;
  if (JSON.stringify(gristmill.job()) !== JSON.stringify(own)) throw new Error('another one');
  if (payload.n === 3 && own.attempt === 1) throw new Error('once more');
  if (payload.n === 4) return gristmill.spawn({ children: [{ n: 0 }], kind: 'who', memo: own });
  return own;
}
export function finalize(payload, memo, outcomes) {
  return { ...memo, child: outcomes[0].value };
}
";

fn scripts_learn_who_their_jobs_are_on_a_store_and_over_http(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    workspace
        .write("who.py", ASYNC_PYTHON)
        .write("threaded.py", THREADED_PYTHON)
        .write("who.mjs", ASYNC_JAVASCRIPT)
        .write(
            "items.jsonl",
            "{\"n\":1,\"k\":\"one\"}\n{\"n\":2,\"page\":\"b\"}\n{\"n\":3,\"k\":\"three\",\"page\":\"c\"}\n{\"n\":4}\n",
        );
    let server = start(&workspace, "");
    let mut batch = 1;
    for script in ["who.py", "threaded.py --threads 3", "who.mjs"] {
        for runner in ["worker", "agent", "agent --batch 100"] {
            let begun_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
            let submit = "submit who --input items.jsonl --key-field k --tag-field page --tag tenant=7 --group acme \
                 --complete-within 1h --retries 2 --retry-delay 0s --queue paid --traceparent";
            workspace.run(&format!("{submit} {TRACEPARENT}")).expect(0);
            let (verb, arguments) = runner.split_once(' ').unwrap_or((runner, ""));
            let mut command = workspace.command(&format!(
                "{verb} {script} {arguments} --kind who --queue paid --drain -j 1 --quiet"
            ));
            if verb == "agent" {
                command.env("BASE_URL", &server.url);
            }
            workspace::Ended::from(command.output().unwrap()).expect(0);
            let values = workspace
                .run(&format!("results --batch {batch} --values"))
                .expect(0);
            let mut values = json_lines(&values);
            let case = format!("{script} {runner}: {values:?}");
            for value in &mut values {
                let own = value.as_object_mut().unwrap();
                let deadline_s = own.remove("deadline").unwrap().as_f64().unwrap();
                assert!((3_599.0..3_700.0).contains(&(deadline_s - begun_s)), "{case}");
            }
            let told = |position: u32, attempt: u32, key: Option<&str>, page: Option<&str>| {
                let mut tags = json!({"tenant": "7"});
                if let Some(page) = page {
                    tags["page"] = page.into();
                }
                json!({
                    "id": format!("{batch}:{position}"), "attempt": attempt, "key": key, "batch": batch, "kind": "who",
                    "queue": "paid", "group": "acme", "tags": tags, "traceparent": TRACEPARENT,
                })
            };
            assert_eq!(
                values[..3],
                [
                    told(0, 1, Some("one"), None),
                    told(1, 1, None, Some("b")),
                    told(2, 2, Some("three"), Some("c")),
                ],
                "{case}"
            );
            // Children inherit the tags of their parent, but not its key.
            let mut child = values[3]["child"].clone();
            let child_batch = child["batch"].as_i64().unwrap();
            assert_eq!(child["id"], format!("{child_batch}:0"), "{case}");
            assert_eq!(
                (&child["key"], &child["kind"]),
                (&json!(null), &json!("who")),
                "{case}"
            );
            assert_eq!(child["tags"], json!({"tenant": "7"}), "{case}");
            child = values[3].clone();
            child.as_object_mut().unwrap().remove("child");
            assert_eq!(child, told(3, 1, None, None), "{case}");
            batch = child_batch + 1;
        }
    }
    server.stop();
}

/// Each job waits until the expected number of others run.
#[test]
fn an_agent_without_batches_runs_as_many_jobs_at_once_as_it_is_told() {
    let workspace = Workspace::new();
    let script = "import os, time\n\
        def main(payload):\n\
        \x20   open(f'began-{payload}', 'w').close()\n\
        \x20   until = time.monotonic() + 30\n\
        \x20   while sum(name.startswith('began-') for name in os.listdir('.')) < 3:\n\
        \x20       if time.monotonic() > until:\n\
        \x20           raise TimeoutError('the others do not run')\n\
        \x20       time.sleep(0.005)\n";
    workspace.write("double.py", script);
    workspace.run("submit double 1 2 3").expect(0);
    let server = start(&workspace, "");
    let totals = agent(&workspace, &server, "--drain -j 3", "").expect(0);
    assert_eq!(json_lines(&totals)[0]["completed"], 3);
    server.stop();
}

#[test]
fn an_agent_uses_the_first_of_its_servers_that_answers_and_says_which_do_not() {
    let workspace = Workspace::new();
    workspace.write("double.py", DOUBLE);
    let server = start(&workspace, "");
    let nobody = unused_address();
    let several = format!("http://{nobody}, {}", server.url);
    for variables in [
        [("BASE_URL", several.as_str()), ("BASE_INTERNAL_URL", "")],
        [("BASE_URL", ""), ("BASE_INTERNAL_URL", several.as_str())],
        [
            ("BASE_URL", "http://nowhere.invalid"),
            ("BASE_INTERNAL_URL", several.as_str()),
        ],
    ] {
        workspace.run("submit double 1 2").expect(0);
        let mut command = workspace.command("agent double.py --kind double --drain --json");
        command.envs(variables).envs([
            ("AGENT_TOKEN", ""),
            ("BATCH_PULL_SIZE", "none"),
            ("OPENAI_MODEL", ""),
        ]);
        let ended: workspace::Ended = command.output().unwrap().into();
        let said = format!("gristmill: http://{nobody} does not answer: ");
        assert_eq!(ended.stderr.matches(&said).count(), 1, "{}", ended.stderr);
        assert!(
            ended.stderr.contains(&format!("going on with {}\n", server.url)),
            "{}",
            ended.stderr
        );
        assert_eq!(json_lines(&ended.expect(0))[0]["completed"], 2);
    }
    let mut command = workspace.command("agent double.py --kind double --drain --base-url");
    command.arg(&several).args(["--base-url", "nonsense"]);
    let ended: workspace::Ended = command.output().unwrap().into();
    assert!(
        ended.error().contains("`nonsense` is not the URL of a server"),
        "each is looked at"
    );
    server.stop();
}

#[test]
fn an_agent_that_no_server_answers_says_so_and_ends_with_the_first_interrupt() {
    let workspace = Workspace::new();
    workspace.write("double.py", DOUBLE);
    let mut command = workspace.command("agent double.py --kind double");
    command.env("BASE_URL", format!("http://{}", unused_address()));
    let agent = processes::Process::start(command);
    assert!(agent.says("does not answer").is_some());
    let asked = std::time::Instant::now();
    agent.signal("INT");
    let (code, _, stderr) = agent.end();
    assert_eq!(code, Some(130), "{stderr}");
    assert!(asked.elapsed().as_secs() < 10, "{:?}", asked.elapsed());
    assert_eq!(stderr.matches("does not answer").count(), 1, "{stderr}");
}

/// An address without a listener.
fn unused_address() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap()
}

#[test]
fn an_error_names_a_wrong_mode_or_concurrency() {
    let workspace = Workspace::new();
    workspace
        .write("double.py", DOUBLE)
        .write("main.mjs", "export const main = (x) => x;\n")
        .write("items.jsonl", "1\n");
    for (mode, arguments, says) in [
        ("production", "double.py", "MODE is `production`"),
        ("production", "", "MODE is `production`"),
        ("agent", "serve", "MODE is `agent`"),
        (
            "",
            "agent main.mjs --threads 4",
            "--threads is for Python scripts",
        ),
        (
            "",
            "worker main.mjs --threads 2",
            "--threads is for Python scripts",
        ),
        (
            "",
            "serve --mode standalone main.mjs --threads 2",
            "--threads is for Python scripts",
        ),
        (
            "",
            "run --input items.jsonl --concurrency 3 -- cat",
            "--concurrency needs an asynchronous script",
        ),
    ] {
        let ended: workspace::Ended = workspace
            .command(arguments)
            .env("MODE", mode)
            .output()
            .unwrap()
            .into();
        let error = ended.error();
        assert!(error.contains(says), "{error}");
    }
    let jobs: workspace::Ended = workspace
        .command("submit double 1")
        .env("MODE", "production")
        .output()
        .unwrap()
        .into();
    jobs.expect(0);
}

#[test]
fn tokens_decide_who_may_work() {
    let workspace = Workspace::new();
    workspace.write("double.py", DOUBLE);
    workspace.run("submit double 1 2").expect(0);
    let create = |arguments: &str| {
        workspace
            .run(&format!("token create --trust trust {arguments}"))
            .expect(0)
            .trim()
            .to_owned()
    };
    let (good, other) = (
        create("--role agent --group g"),
        create("--role agent --group g --queue other"),
    );
    let submit = create("--role submit --group web --queue *");
    let server = start(&workspace, "--trust trust");
    for (token, says) in [
        ("", "401"),
        ("nonsense", "401"),
        (submit.as_str(), "403"),
        (other.as_str(), "does not give access to the queue `default`"),
    ] {
        let error = agent(&workspace, &server, "--drain", token).error();
        assert!(error.contains(says), "{error}");
    }
    let listed = json_lines(&workspace.run("token list --trust trust --json").expect(0));
    assert_eq!(listed.len(), 3);
    assert!(
        workspace
            .run("token list --trust trust")
            .expect(0)
            .contains("until ")
    );
    workspace.write("token", &good);
    let totals = agent(&workspace, &server, "--drain --batch 10 --token-file token", "").expect(0);
    assert_eq!(json_lines(&totals)[0]["completed"], 2);
    let id = listed[0]["jti"].as_str().unwrap();
    assert_eq!(
        workspace
            .run(&format!("token revoke {id} --trust trust"))
            .expect(0),
        format!("{id} revoked\n")
    );
    let late = start(&workspace, "--trust trust");
    let error = agent(&workspace, &late, "--drain", &good).error();
    assert!(error.contains("revoked"), "{error}");
    workspace.run("token rotate-key --trust trust").expect(0);
    assert!(
        workspace
            .run("token revoke nothing --trust trust")
            .error()
            .contains("gristmill token list")
    );
}

#[test]
fn impossible_commands_are_refused_with_a_remedy() {
    let workspace = Workspace::new();
    workspace.write("double.py", DOUBLE);
    for (command, says) in [
        ("serve --listen 0.0.0.0:0", "gristmill token create"),
        ("serve --mode standalone", "--mode server"),
        ("serve --mode server double.py", "--mode standalone"),
        ("serve --listen 127.0.0.1:0 --trust nowhere", "keys.json"),
        ("agent double.py --base-url ftp://x", "URL"),
        ("agent double.py --token-file nothing", "gristmill token create"),
        ("token create --role agent --group a/b", "`/`"),
        ("token create --role agent --group a --expires 1000d", "days"),
    ] {
        let error = workspace.run(command).error();
        assert!(error.contains(says), "{command}: {error}");
    }
    let mut plain = workspace.command("agent double.py --base-url http://jobs.example");
    let error = workspace::Ended::from(plain.env("AGENT_TOKEN", "x").output().unwrap()).error();
    assert!(
        error.contains("clear text") && error.contains("--plain-http"),
        "{error}"
    );
}

fn a_standalone_server_runs_what_is_submitted_over_http(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    workspace.write("double.py", DOUBLE);
    let server = start(&workspace, "double.py --kind double");
    let body = r#"{"kind":"double","payloads":[1,2,3],"retry":{"attempts_max":1}}"#;
    let submitted = exchange(&server, "POST /api/v1/jobs", body);
    assert!(submitted.contains("\"first\":\"1:0\""), "{submitted}");
    let results = exchange(&server, "GET /api/v1/results?batches=1&wait_ms=30000", "");
    for line in [
        "\"job\":\"1:0\",\"state\":\"completed\"",
        "\"value\":4}",
        "\"job\":\"1:2\",\"state\":\"dead\"",
        "\"message\":\"three\"",
    ] {
        assert!(results.contains(line), "{line} is not in {results}");
    }
    server.stop();
    assert_eq!(
        workspace.run("results --batch 1 --values").expect(1),
        "2\n4\nnull\n"
    );
}

/// Sends one request, and returns the whole answer as text.
fn exchange(server: &Server, line: &str, body: &str) -> String {
    let mut connection = TcpStream::connect(server.address()).unwrap();
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

fn an_agent_that_is_interrupted_gives_back_what_it_has_not_begun(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    workspace
        .write(
            "double.py",
            "def main(payload):\n    open('begun', 'w').close()\n    return payload\n",
        )
        .write("items.jsonl", numbers(20_000));
    workspace
        .run("submit double --input items.jsonl --retries 0")
        .expect(0);
    let server = start(&workspace, "");
    let mut command = workspace.command("agent double.py --kind double --batch 5000 --json --quiet");
    let mut child = command
        .env("BASE_URL", &server.url)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !workspace.path("begun").exists() {
        std::thread::yield_now();
    }
    send_signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    server.stop();
    let counts = json_lines(&workspace.run("stats --json").expect(0)).remove(0);
    let kind = &counts["kinds"][0];
    assert_eq!(kind["running"], 0, "{counts}");
    assert_eq!(
        kind["completed"].as_u64().unwrap() + kind["waiting"].as_u64().unwrap(),
        20_000,
        "{counts}"
    );
}

#[test]
fn a_container_is_told_what_it_is_by_its_environment() {
    let workspace = Workspace::new();
    workspace.write("double.py", DOUBLE);
    workspace.run("submit double 1 2").expect(0);
    let mut server = workspace.command("");
    server.envs([("MODE", "server"), ("GRISTMILL_LISTEN", "127.0.0.1:0")]);
    let server = Server::start(server);
    for mode in ["agent", "agent-batch"] {
        workspace.run("submit double 1 2").expect(0);
        let mut agent = workspace.command("double.py --kind double --drain --json --quiet");
        agent.envs([
            ("MODE", mode),
            ("BASE_URL", server.url.as_str()),
            ("BATCH_PULL_SIZE", "7"),
        ]);
        let ended: workspace::Ended = agent.output().unwrap().into();
        assert!(
            json_lines(&ended.expect(0))[0]["completed"].as_u64() >= Some(2),
            "{mode}"
        );
    }
    server.stop();
    let mut worker = workspace.command("double.py --kind double --drain --json --quiet");
    let ended: workspace::Ended = worker.env("MODE", "worker").output().unwrap().into();
    assert_eq!(json_lines(&ended.expect(0))[0]["completed"], 0);
}

/// Reports that it runs, and never ends.
const ENDLESS: &str = "\
import time

def main(payload):
    with open(payload, 'w') as here:
        here.write('here')
    while True:
        time.sleep(0.1)
";

/// A worker whose only job runs and never ends.
fn worker_at_work(workspace: &Workspace, arguments: &str) -> Process {
    workspace.write("endless.py", ENDLESS);
    let fifo = workspace.path("fifo");
    workspace.make_pipe("fifo");
    let job = format!("\"{}\"", fifo.display());
    workspace.run(&format!("submit endless {job}")).expect(0);
    let worker = Process::start(workspace.command(&format!("worker endless.py --jobs 1 {arguments}")));
    // Opening a FIFO to read waits for its writer.
    assert_eq!(std::fs::read_to_string(fifo).unwrap(), "here");
    worker
}

fn assert_waits_uncharged(workspace: &Workspace) {
    let job = json_lines(&workspace.run("jobs --json").expect(0)).remove(0);
    assert_eq!(job["state"], json!("waiting"), "{job}");
    let shown = workspace.run("show 1:0 --json").expect(0);
    let shown = json_lines(&shown).remove(0);
    assert_eq!(shown["failures"], json!([]), "{shown}");
}

fn a_job_that_outlasts_the_grace_is_released_uncharged(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    let worker = worker_at_work(&workspace, "--grace 100ms");
    worker.stop();
    assert_waits_uncharged(&workspace);
}

fn a_stop_that_reaches_all_processes_charges_no_job(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    let worker = worker_at_work(&workspace, "");
    // The children get it first, which can happen because each leads its own process group.
    let children = Command::new("pgrep")
        .args(["--parent", &worker.id().to_string()])
        .output()
        .unwrap();
    let mut all: Vec<String> = children.stdout.lines().map(Result::unwrap).collect();
    for child in all.clone() {
        let below = Command::new("pgrep").args(["--parent", &child]).output().unwrap();
        all.extend(below.stdout.lines().map(Result::unwrap));
    }
    assert!(all.len() >= 2, "a guard and a script: {all:?}");
    all.push(worker.id().to_string());
    assert!(
        Command::new("kill")
            .arg("-TERM")
            .args(&all)
            .status()
            .unwrap()
            .success()
    );
    let (code, _, stderr) = worker.end();
    assert_eq!(code, Some(143), "{stderr}");
    assert_waits_uncharged(&workspace);
}

/// Only for root, or where users may create namespaces.
#[test]
fn as_the_first_process_it_reaps_what_jobs_leave_behind() {
    let workspace = Workspace::new();
    workspace.write("items.jsonl", "1\n2\n3\n4\n");
    // Each job leaves a process that ends when its group is killed. The last jobs wait until process 1 has reaped it.
    workspace.write(
        "leave.sh",
        "cat >/dev/null\nsleep 100 &\nfor _ in $(seq 300); do\n  zombies=$(cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z 1 ')\n  \
         [ \"$zombies\" = 0 ] && break\n  sleep 0.1\ndone\necho \"$zombies\"\n",
    );
    let run = workspace.command("run leave.sh items.jsonl --values -j 1 --quiet");
    let mut unshared = Command::new("unshare");
    unshared
        .args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"])
        .arg(run.get_program())
        .args(run.get_args());
    unshared.current_dir(run.get_current_dir().expect("a workspace"));
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => unshared.env(name, value),
            None => unshared.env_remove(name),
        };
    }
    let ran = unshared.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    if said.contains("unshare") {
        eprintln!("SKIPPED: this user cannot make a namespace: {said}");
        return;
    }
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "0\n".repeat(4), "{said}");
}
