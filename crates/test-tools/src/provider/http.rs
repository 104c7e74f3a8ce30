//! HTTP/1.1 by hand, so that a connection can end at any byte.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::{Fault, State, answer};

/// A call that has arrived.
#[derive(Debug, Clone)]
pub struct Call {
    /// The method of HTTP.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query.
    pub query: String,
    /// The names of the headers in small letters, and their values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// How many calls of the same name came before.
    pub before: u64,
}

impl Call {
    /// What is called: `live`, `upload`, `create`, `poll`, `list`, `results`, `cancel` or `other`.
    pub fn name(&self) -> &'static str {
        let path: Vec<&str> = self
            .path
            .trim_start_matches("/v1")
            .trim_matches('/')
            .split('/')
            .collect();
        match (self.method.as_str(), path.as_slice()) {
            ("POST", ["chat", "completions"] | ["messages"]) => "live",
            ("POST", ["files"]) => "upload",
            ("POST", ["batches"] | ["messages", "batches"]) => "create",
            ("GET", ["batches"] | ["messages", "batches"]) => "list",
            ("GET", ["batches", _] | ["messages", "batches", _]) => "poll",
            ("GET", ["files", _, "content"] | ["messages", "batches", _, "results"]) => "results",
            ("POST", ["batches", _, "cancel"] | ["messages", "batches", _, "cancel"]) => "cancel",
            _ => "other",
        }
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// A parameter of the query.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.query
            .split('&')
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }

    /// The body as JSON, or an answer that refuses it.
    pub(super) fn json(&self) -> Result<Value, Answer> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Answer::error(400, &format!("the body is not JSON: {error}")))
    }
}

/// An answer.
pub(super) struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(status: u16, body: &Value) -> Answer {
        Answer {
            status,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: body.to_string().into_bytes(),
        }
    }

    /// An error in a form that both packages read.
    pub fn error(status: u16, message: &str) -> Answer {
        let error = json!({ "type": "invalid_request_error", "message": message });
        Answer::json(status, &json!({ "type": "error", "error": error }))
    }

    pub fn lines(lines: Vec<u8>) -> Answer {
        Answer {
            status: 200,
            headers: vec![("content-type".to_owned(), "application/x-jsonl".to_owned())],
            body: lines,
        }
    }
}

/// Answers the calls of one connection.
pub(super) async fn serve(stream: TcpStream, state: Arc<Mutex<State>>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut call = read(&mut stream).await?;
        let (answered, fault) = {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            call.before = state.calls.get(call.name()).copied().unwrap_or(0);
            let fault = (state.faults.clone())(&call);
            let answered = match &fault {
                Some(Fault::Reject(status, headers, message)) => {
                    *state.calls.entry(call.name()).or_default() += 1;
                    let mut rejected = Answer::error(*status, message);
                    rejected.headers.extend(headers.clone());
                    rejected
                }
                Some(Fault::Say(words)) => {
                    *state.calls.entry(call.name()).or_default() += 1;
                    let mut said = Answer::lines(words.clone().into_bytes());
                    said.headers[0].1 = "text/html".to_owned();
                    said
                }
                _ => answer(&mut state, &call),
            };
            (answered, fault)
        };
        let mut headers = answered.headers;
        if let Some(Fault::Headers(more)) = &fault {
            headers.extend(more.clone());
        }
        let headers: String = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let head = format!(
            "HTTP/1.1 {} X\r\ncontent-length: {}\r\n{headers}\r\n",
            answered.status,
            answered.body.len()
        );
        match fault {
            Some(Fault::Lose) => return None,
            Some(Fault::Cut) => {
                stream.write_all(head.as_bytes()).await.ok()?;
                stream
                    .write_all(&answered.body[..answered.body.len() / 2])
                    .await
                    .ok()?;
                return None;
            }
            _ => {}
        }
        stream.write_all(head.as_bytes()).await.ok()?;
        stream.write_all(&answered.body).await.ok()?;
        stream.flush().await.ok()?;
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Call> {
    let mut first = String::new();
    if stream.read_line(&mut first).await.ok()? == 0 {
        return None;
    }
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut call = Call {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        headers,
        body: Vec::new(),
        before: 0,
    };
    if call
        .header("transfer-encoding")
        .is_some_and(|encoding| encoding == "chunked")
    {
        loop {
            let mut size = String::new();
            stream.read_line(&mut size).await.ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let from = call.body.len();
            call.body.resize(from + size, 0);
            stream.read_exact(&mut call.body[from..]).await.ok()?;
            let mut end = String::new();
            stream.read_line(&mut end).await.ok()?;
            if size == 0 {
                return Some(call);
            }
        }
    }
    let length = call
        .header("content-length")
        .and_then(|length| length.parse().ok())
        .unwrap_or(0);
    call.body.resize(length, 0);
    stream.read_exact(&mut call.body).await.ok()?;
    Some(call)
}
