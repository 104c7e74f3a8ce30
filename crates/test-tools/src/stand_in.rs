//! A stand-in for a model service: HTTP on loopback, answers made by a function of the text.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// One answer: its latency, status, additional headers, body.
pub struct Answer {
    /// The service holds the answer for this long.
    pub latency: Duration,
    /// The status of HTTP.
    pub status: u16,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The content of the completion, or the body of a rejection.
    pub content: String,
}

impl Answer {
    /// A chat completion with this content.
    pub fn content(content: impl Into<String>) -> Answer {
        Answer {
            latency: Duration::ZERO,
            status: 200,
            headers: Vec::new(),
            content: content.into(),
        }
    }

    /// A rejection.
    pub fn rejected(retry_after_ms: u64) -> Answer {
        Answer {
            latency: Duration::ZERO,
            status: 429,
            headers: vec![("retry-after-ms".to_owned(), retry_after_ms.to_string())],
            content: "too many".to_owned(),
        }
    }
}

/// Knowledge of a text, as a model may tell it: its capitalised words.
pub fn knowledge(text: &str) -> String {
    let names: Vec<&str> = text
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| word.chars().next().is_some_and(char::is_uppercase))
        .collect();
    let entities: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "type": ["word"]}))
        .collect();
    json!({"entities": entities, "actions": [], "inverse_actions": [], "topics": [text.len().to_string()]})
        .to_string()
}

/// Under which the calls for embeddings are counted.
pub const EMBEDDINGS: &str = "embeddings";

/// A direction for a text: about animals, about music, about anything else.
pub fn direction(text: &str) -> [f32; 3] {
    let has = |words: &[&str]| words.iter().any(|word| text.to_lowercase().contains(word)) as u8 as f32;
    let (animals, music) = (has(&["bee", "insect", "wasp"]), has(&["drum", "jazz"]));
    [animals, music, 0.2 + (1.0 - animals.max(music))]
}

/// The service while it runs.
pub struct StandIn {
    /// The URL that a client of the service is told.
    pub base_url: String,
    calls: Arc<Mutex<Calls>>,
}

/// The calls of a service.
#[derive(Default)]
struct Calls {
    /// How often each text was sent.
    by_text: HashMap<String, u32>,
    /// The latencies of the answers, in the order that the calls came in.
    latencies: Vec<Duration>,
}

impl StandIn {
    /// Starts a service. `answer` is called with the user's text and how often it was sent before.
    pub async fn start(answer: impl Fn(&str, u32) -> Answer + Send + Sync + 'static) -> StandIn {
        StandIn::start_with_requests(move |request, before| {
            answer(
                request["messages"][1]["content"].as_str().unwrap_or_default(),
                before,
            )
        })
        .await
    }

    /// Starts a service. `answer` is called with the request and how often its text was sent before.
    pub async fn start_with_requests(
        answer: impl Fn(&Value, u32) -> Answer + Send + Sync + 'static,
    ) -> StandIn {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let calls: Arc<Mutex<Calls>> = Arc::default();
        let (answer, counted) = (Arc::new(answer), calls.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answer.clone(), counted.clone()));
            }
        });
        StandIn { base_url, calls }
    }

    /// How often a text was sent.
    pub fn calls(&self, text: &str) -> u32 {
        let calls = self.calls.lock().expect("calls");
        calls.by_text.get(text).copied().unwrap_or(0)
    }

    /// How many calls there were.
    pub fn calls_total(&self) -> u32 {
        self.calls.lock().expect("calls").by_text.values().sum()
    }

    /// The latencies of the answers, in the order that the calls came in.
    pub fn latencies(&self) -> Vec<Duration> {
        self.calls.lock().expect("calls").latencies.clone()
    }
}

async fn serve(
    stream: TcpStream,
    answer: Arc<impl Fn(&Value, u32) -> Answer>,
    calls: Arc<Mutex<Calls>>,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        let mut first_line = String::new();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            if first_line.is_empty() {
                first_line.clone_from(&line);
            }
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        if first_line.starts_with("GET ") {
            let none = b"HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(none).await.ok()?;
            continue;
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let request: Value = serde_json::from_slice(&body).ok()?;
        if let Some(texts) = request["input"].as_array() {
            let texts: Vec<&str> = texts.iter().filter_map(Value::as_str).collect();
            *calls
                .lock()
                .expect("calls")
                .by_text
                .entry(EMBEDDINGS.to_owned())
                .or_default() += 1;
            let data: Vec<Value> = (0..texts.len())
                .zip(&texts)
                .map(|(index, text)| json!({"index": index, "embedding": direction(text)}))
                .rev()
                .collect();
            let body = json!({"data": data, "usage": {"prompt_tokens": texts.len()}}).to_string();
            let head = format!("HTTP/1.1 200 X\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
            continue;
        }
        let text = request["messages"][1]["content"].as_str()?.to_owned();
        let before = {
            let mut calls = calls.lock().expect("calls");
            let count = calls.by_text.entry(text.clone()).or_default();
            *count += 1;
            *count - 1
        };
        let answer = answer(&request, before);
        calls.lock().expect("calls").latencies.push(answer.latency);
        tokio::time::sleep(answer.latency).await;
        let body = match answer.status {
            200 => json!({
                "choices": [{"message": {"role": "assistant", "content": answer.content}}],
                "usage": {"prompt_tokens": text.len() / 4, "completion_tokens": answer.content.len() / 4},
            }),
            _ => json!({"error": {"message": answer.content}}),
        }
        .to_string();
        let headers: String = answer
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let head = format!(
            "HTTP/1.1 {} X\r\ncontent-length: {}\r\n{headers}\r\n",
            answer.status,
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
    }
}
