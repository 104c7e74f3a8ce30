//! The replayed model service, from the folder that `GRISTMILL_REPLAY` names.

#![allow(dead_code, reason = "each test binary uses its share")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// How long before a kill an answer must have been sent to count as arrived: the time to a synced commit, which is
/// milliseconds on an idle machine and up to a second on one whose disk and processors others keep busy.
pub const ARRIVED: Duration = Duration::from_millis(1_000);

/// The folder of recordings; a test without one is skipped.
pub fn replay() -> Option<PathBuf> {
    let folder = std::env::var_os("GRISTMILL_REPLAY").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: GRISTMILL_REPLAY names no folder");
    }
    folder
}

/// Lets time pass: a kill must come at a moment that nothing else decides.
pub async fn pass(time: Duration) {
    let passed = tokio::time::timeout(time, std::future::pending::<()>()).await;
    passed.expect_err("nothing else happens");
}

/// The answered calls: the text's key, when it began and when it ended, in seconds of the service's clock.
pub fn answered(events: &[Value]) -> Vec<(String, f64, f64)> {
    let chats = events
        .iter()
        .filter(|event| event["kind"] == "chat" && event["status"] == 200);
    let told = chats.filter_map(|event| {
        let key = event["key"].as_str()?.to_owned();
        Some((key, event["t0"].as_f64()?, event["t1"].as_f64()?))
    });
    told.collect()
}

/// The replayed service while it runs.
pub struct Service {
    child: Child,
    /// Where it listens.
    pub port: u16,
}

impl Service {
    /// Starts it with these arguments.
    pub fn start(replay: &Path, arguments: &[&str]) -> Service {
        let mut child = Command::new("python3")
            .arg(replay.join("mock_server.py"))
            .args(arguments)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("a line");
        let told: Value = serde_json::from_str(&line).expect("JSON");
        let port = told["port"].as_u64().expect("a port") as u16;
        Service { child, port }
    }

    /// All calls so far.
    pub fn events(&self) -> Vec<Value> {
        self.stats()["events"].as_array().cloned().unwrap_or_default()
    }

    /// Calls the service for an embedding, and tells when that was by the service's clock.
    pub fn mark(&self, round: u32) -> f64 {
        let body = format!("{{\"input\": \"mark {round}\"}}");
        self.ask(&format!(
            "POST /v1/embeddings HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
        let events = self.events();
        let marks = events.iter().filter(|event| event["kind"] == "embed");
        marks.filter_map(|event| event["t0"].as_f64()).fold(0.0, f64::max)
    }

    /// What it counted.
    pub fn stats(&self) -> Value {
        self.ask("GET /stats HTTP/1.1\r\n\r\n")
    }

    fn ask(&self, request: &str) -> Value {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).expect("connects");
        stream.write_all(request.as_bytes()).expect("asks");
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a line");
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        serde_json::from_slice(&body).expect("JSON")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
