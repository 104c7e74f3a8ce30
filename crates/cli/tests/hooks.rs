//! Completion hooks from the command line.

mod workspace;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use workspace::{Workspace, json_lines};

const PAGE: &str =
    "def main(payload):\n    if payload == 3:\n        raise ValueError('three')\n    return payload\n";

/// The payloads of all jobs of a kind.
fn payloads(workspace: &Workspace, kind: &str) -> Vec<Value> {
    let jobs = json_lines(&workspace.run(&format!("jobs --kind {kind} --json")).expect(0));
    let shown = jobs.iter().map(|job| {
        let show = format!("show {} --json", job["job"].as_str().unwrap());
        json_lines(&workspace.run(&show).expect(0)).remove(0)["payload"].take()
    });
    shown.collect()
}

#[test]
fn a_submit_and_a_schedule_tell_how_they_ended() {
    let workspace = Workspace::new();
    workspace.write("page.py", PAGE).write("items.jsonl", "1\n3\n");
    workspace
        .run("submit page --input items.jsonl --retries 0 --batch 1 --on-success done --on-failure failed")
        .expect(0);
    workspace
        .run("schedule put nightly page 1 --every 1h --on-success done --on-failure failed")
        .expect(0);
    workspace.run("schedule trigger nightly").expect(0);
    workspace.run("worker page.py --drain --quiet").expect(1);
    let failed = payloads(&workspace, "failed");
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(
        (&failed[0]["batch"], &failed[0]["completed"], &failed[0]["dead"]),
        (&json!(1), &json!(1), &json!(1))
    );
    let done = payloads(&workspace, "done");
    assert_eq!((done.len(), &done[0]["name"]), (1, &json!("nightly")), "{done:?}");
}

#[test]
fn a_run_tells_once_that_it_has_finished() {
    let workspace = Workspace::new();
    workspace.write("page.py", PAGE).write("items.jsonl", "1\n2\n");
    let run = "run page.py items.jsonl --name pages --output out.jsonl --on-success done --on-failure failed";
    workspace.run(run).expect(0);
    workspace.run(run).expect(0);
    let done = payloads(&workspace, "done");
    assert_eq!(done.len(), 1, "{done:?}");
    let told = [
        &done[0]["run"],
        &done[0]["outcome"],
        &done[0]["completed"],
        &done[0]["batch"],
    ];
    assert_eq!(
        told,
        [&json!("pages"), &json!("success"), &json!(2), &Value::Null]
    );
    assert!(payloads(&workspace, "failed").is_empty());
}

#[test]
fn a_webhook_is_posted_to_an_allowed_host() {
    let workspace = Workspace::new();
    workspace.write("page.py", PAGE);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = format!("http://{}", listener.local_addr().unwrap());
    workspace
        .run(&format!("submit page 1 2 --on-success {host}/done"))
        .expect(0);
    let worker = format!("worker page.py --drain --quiet --http-hooks {host}");
    let unsigned = workspace.run(&worker).error();
    assert!(unsigned.contains("GRISTMILL_HOOK_SECRET"), "{unsigned}");
    let recipient = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let begun = Instant::now();
        let (mut request, mut part) = (String::new(), [0; 4096]);
        while !request.contains("\"ended_at\"") && begun.elapsed() < Duration::from_secs(60) {
            let bytes = stream.read(&mut part).unwrap();
            request.push_str(std::str::from_utf8(&part[..bytes]).unwrap());
        }
        stream
            .write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
            .unwrap();
        request
    });
    let ended = workspace
        .command(&worker)
        .env("GRISTMILL_HOOK_SECRET", "a secret of enough bytes")
        .output()
        .unwrap();
    assert_eq!(
        ended.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    let request = recipient.join().unwrap();
    assert!(request.starts_with("POST /done HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("webhook-signature: v1,"), "{request}");
    let jobs = json_lines(&workspace.run("jobs --kind http --json").expect(0));
    assert_eq!(jobs[0]["state"], "completed");
}

#[test]
fn wrong_hooks_are_refused_by_name() {
    let workspace = Workspace::new();
    let many: String = (0..10_001).map(|number| format!("{number}\n")).collect();
    workspace.write("many.jsonl", many);
    for (command, told) in [
        (
            "submit page 1 --key a --on-success done",
            "jobs with keys cannot have hooks",
        ),
        (
            "submit page 1 --on-success ftp://a",
            "`ftp://a` is not a URL for a hook",
        ),
        (
            "submit page --input many.jsonl --on-failure failed",
            "at most 10,000 jobs",
        ),
        ("worker --http-hooks a/b", "`a/b` is not a host for webhooks"),
    ] {
        let ended = workspace.run(command);
        assert_eq!(ended.code, Some(2), "{command}: {}", ended.stderr);
        assert!(ended.stderr.contains(told), "{command}: {}", ended.stderr);
    }
}
