//! A stand-in for providers of models, on loopback: the live interfaces and the batch interfaces of OpenAI and Anthropic, as
//! their own packages for Python drive them. It can lie: lose answers after it did the work, reject, refuse, cut results off,
//! let a batch expire half done. It counts what it bills.
//!
//! Its time is virtual: a batch ends when [`StandInProvider::advance`] has moved the clock far enough. Other processes use the
//! path `/stand-in`: a POST of `{"advance_s": 60}` moves the clock, and a GET gives the bill.

mod anthropic;
mod batch;
mod http;
mod openai;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;

use batch::Batch;
pub use http::Call;
use http::{Answer, serve};

/// The beginning of the virtual time, in seconds since 1970.
const BEGINNING_S: i64 = 1_795_000_000;

/// What the provider does with a call instead of only answering it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Does the work, and closes the connection without an answer.
    Lose,
    /// Closes the connection in the middle of the answer, whose length is told.
    Cut,
    /// Does nothing, and answers by this status, with these headers and this message.
    Reject(u16, Vec<(String, String)>, String),
    /// Does nothing, and answers by status 200 and these words.
    Say(String),
    /// Does the work, and adds these headers.
    Headers(Vec<(String, String)>),
}

/// The faults by call. It is asked once for each.
type Faults = dyn Fn(&Call) -> Option<Fault> + Send + Sync;

/// The words of the model for a request.
type Words = dyn Fn(&Value) -> String + Send + Sync;

/// A provider while it runs.
pub struct StandInProvider {
    /// The address up to the version.
    pub base_url: String,
    state: Arc<Mutex<State>>,
}

/// One answer that is billed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Billed {
    /// The id of the request in its batch; `None` for a live one.
    pub custom_id: Option<String>,
    /// The user's last words.
    pub text: String,
    /// Tokens that were sent.
    pub input_tokens: u64,
    /// Tokens that were answered.
    pub output_tokens: u64,
}

struct State {
    now_s: i64,
    numbers: u64,
    calls: BTreeMap<&'static str, u64>,
    files: BTreeMap<String, Vec<u8>>,
    batches: Vec<Batch>,
    billed: Vec<Billed>,
    /// The time that a batch takes, in seconds.
    batch_takes_s: i64,
    /// The share of a batch that is done when it ends. With less than 1, it expires.
    done_share: f64,
    faults: Arc<Faults>,
    words: Arc<Words>,
}

impl State {
    fn next_id(&mut self, prefix: &str) -> String {
        self.numbers += 1;
        format!("{prefix}{:06}", self.numbers)
    }

    /// Bills the answer to a request, and returns the model's words.
    fn bill(&mut self, request: &Value, custom_id: Option<&str>) -> (String, u64, u64) {
        let words = (self.words)(request);
        let text = last_text(request);
        let billed = Billed {
            custom_id: custom_id.map(str::to_owned),
            input_tokens: text.len() as u64 / 4 + 1,
            output_tokens: words.len() as u64 / 4 + 1,
            text,
        };
        let tokens = (billed.input_tokens, billed.output_tokens);
        self.billed.push(billed);
        (words, tokens.0, tokens.1)
    }
}

/// The last words of the user.
fn last_text(request: &Value) -> String {
    let last = request["messages"]
        .as_array()
        .and_then(|messages| messages.last());
    match last.map(|message| &message["content"]) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

impl StandInProvider {
    /// Starts a provider that tells the truth. Its models answer by the user's last words, in capitals.
    pub async fn start() -> StandInProvider {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let state = Arc::new(Mutex::new(State {
            now_s: BEGINNING_S,
            numbers: 0,
            calls: BTreeMap::new(),
            files: BTreeMap::new(),
            batches: Vec::new(),
            billed: Vec::new(),
            batch_takes_s: 420,
            done_share: 1.0,
            faults: Arc::new(|_| None),
            words: Arc::new(|request| last_text(request).to_uppercase()),
        }));
        let served = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, served.clone()));
            }
        });
        StandInProvider { base_url, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the provider lie from now on.
    pub fn lie(&self, faults: impl Fn(&Call) -> Option<Fault> + Send + Sync + 'static) {
        self.state().faults = Arc::new(faults);
    }

    /// Lets the models answer by other words.
    pub fn say(&self, words: impl Fn(&Value) -> String + Send + Sync + 'static) {
        self.state().words = Arc::new(words);
    }

    /// Moves the clock.
    pub fn advance(&self, time: Duration) {
        advance(
            &mut self.state(),
            i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        );
    }

    /// What was billed.
    pub fn billed(&self) -> Vec<Billed> {
        self.state().billed.clone()
    }

    /// How many calls of this name there were, such as `live` or `create`; see [`Call::name`].
    pub fn calls(&self, name: &str) -> u64 {
        self.state().calls.get(name).copied().unwrap_or(0)
    }
}

fn advance(state: &mut State, seconds: i64) {
    state.now_s += seconds;
    batch::end_due(state);
}

/// Answers a call.
fn answer(state: &mut State, call: &Call) -> Answer {
    *state.calls.entry(call.name()).or_default() += 1;
    let path: Vec<&str> = call
        .path
        .trim_start_matches("/v1")
        .trim_matches('/')
        .split('/')
        .collect();
    match (call.method.as_str(), path.as_slice()) {
        ("POST", ["stand-in"]) => {
            let told: Value = serde_json::from_slice(&call.body).unwrap_or_default();
            if let Some(seconds) = told["batch_takes_s"].as_i64() {
                state.batch_takes_s = seconds;
            }
            if let Some(share) = told["done_share"].as_f64() {
                state.done_share = share;
            }
            advance(state, told["advance_s"].as_i64().unwrap_or(0));
            Answer::json(200, &json!({ "now_s": state.now_s }))
        }
        ("GET", ["stand-in"]) => {
            let billed: Vec<Value> = state
                .billed
                .iter()
                .map(|billed| json!({ "custom_id": billed.custom_id, "text": billed.text }))
                .collect();
            Answer::json(200, &json!({ "billed": billed, "calls": state.calls }))
        }
        ("GET", ["models"]) => Answer::json(200, &json!({ "object": "list", "data": [], "has_more": false })),
        (_, ["messages", ..]) => anthropic::answer(state, call, &path),
        (_, ["chat" | "files" | "batches", ..]) => openai::answer(state, call, &path),
        _ => Answer::error(404, &format!("there is no {} {}", call.method, call.path)),
    }
}
