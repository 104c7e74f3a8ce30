//! The replayed model service, from the folder that `GRISTMILL_REPLAY` names.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// The folder of recordings; a test without one is skipped.
pub fn replay() -> Option<PathBuf> {
    let folder = std::env::var_os("GRISTMILL_REPLAY").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: GRISTMILL_REPLAY names no folder");
    }
    folder
}

/// The recorded messages as JSON lines; copies are told apart by a mark, which gives each a latency of its own.
pub fn lines(replay: &Path, copies: u32) -> String {
    let index = std::fs::read_to_string(replay.join("data/index_1603.json")).expect("the index");
    let index: Value = serde_json::from_str(&index).expect("JSON");
    let mut lines = String::new();
    for copy in 0..copies {
        for message in index["messages"].as_array().expect("messages") {
            let text = message["textChunks"][0].as_str().expect("a text").trim();
            let mark = if copy > 0 {
                format!("\n#r{copy}")
            } else {
                String::new()
            };
            let line = serde_json::json!({
                "text": format!("{text}{mark}"),
                "speaker": message["metadata"]["speaker"],
                "recipients": message["metadata"]["listeners"],
                "timestamp": message["timestamp"],
            });
            lines.push_str(&format!("{line}\n"));
        }
    }
    lines
}

/// Scores what recorded questions found, and checks that as many are right as are to be.
pub fn check_score(replay: &Path, candidate: &Path) {
    let scored = Command::new("python3")
        .arg(replay.join("score.py"))
        .arg(candidate)
        .arg("-v")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 runs");
    assert!(
        scored.status.success(),
        "{}",
        String::from_utf8_lossy(&scored.stderr)
    );
    let scores: Value = serde_json::from_slice(&scored.stdout).expect("JSON");
    println!("{scores}");
    for (what, least) in [
        ("compiled_exact", 33),
        ("all_knowledge_exact", 32),
        ("messages_exact_when_not_capped", 17),
        ("capped_messages_within_pool", 15),
    ] {
        let share = scores[what].as_str().expect("a share");
        let right: Option<u32> = share.split('/').next().and_then(|right| right.parse().ok());
        assert!(right >= Some(least), "{what}: {share}");
    }
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

    /// Calls the service for an embedding, and tells when it was answered by the service's clock: calls of processes that
    /// have ended before began before that.
    pub fn mark(&self, round: u32) -> f64 {
        let body = format!("{{\"input\": \"mark {round}\"}}");
        self.ask(&format!(
            "POST /v1/embeddings HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
        let events = self.events();
        let marks = events.iter().filter(|event| event["kind"] == "embed");
        marks.filter_map(|event| event["t1"].as_f64()).fold(0.0, f64::max)
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
