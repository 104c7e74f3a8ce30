//! Webhooks from the side of their recipients.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::PAGE;
use crate::workspace::{Workspace, json_lines};

/// Takes one request, and returns it.
fn recipient(listener: TcpListener) -> JoinHandle<String> {
    std::thread::spawn(move || {
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
    })
}

/// A program in a closed network reaches hosts through the proxy that the environment names.
#[test]
fn a_webhook_goes_by_way_of_the_proxy_of_the_environment() {
    let workspace = Workspace::new();
    workspace.write("page.py", PAGE);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let host = "http://hooks.example";
    workspace
        .run(&format!("submit page 1 --on-success {host}/done"))
        .expect(0);
    let worker = format!("worker page.py --drain --quiet --http-hooks {host}");
    let run = |proxy: &str| {
        let mut command = workspace.command(&worker);
        command
            .env("GRISTMILL_HOOK_SECRET", "a secret of enough bytes")
            .env("HTTP_PROXY", proxy);
        command.output().unwrap()
    };
    // Nobody listens on port 9: the error names the proxy.
    assert_eq!(run("http://127.0.0.1:9").status.code(), Some(1));
    let failed = json_lines(&workspace.run("jobs --kind http --json").expect(0));
    let error = failed[0]["error"].as_str().unwrap_or_default();
    assert!(error.contains("through the proxy in HTTP_PROXY"), "{failed:?}");

    workspace.run("retry --kind http").expect(0);
    let recipient = recipient(listener);
    assert_eq!(run(&proxy).status.code(), Some(0));
    let request = recipient.join().unwrap();
    assert!(
        request.starts_with(&format!("POST {host}/done HTTP/1.1\r\n")),
        "{request}"
    );
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
    let recipient = recipient(listener);
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
