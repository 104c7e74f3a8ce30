//! An OpenAI-compatible service: chat completions and embeddings, within the limits of a [`Limiter`], with retries.

pub mod limiter;
mod usage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use crate::service::limiter::Limiter;
use crate::service::limiter::{Permit, RateHeaders};
pub use crate::service::usage::Usage;

/// The default address of models.
pub const BASE_URL_DEFAULT: &str = "https://api.openai.com/v1";

/// Maximum bytes of one answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Maximum tries of one request, including rejected and failed ones.
const TRIES_MAX: u32 = 12;

/// The first pause after a failure that does not name a pause. It doubles with each try.
const PAUSE_FIRST: Duration = Duration::from_millis(500);

/// The longest pause after a failure that does not name a pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The time limit of the first connection to the service.
const REACH_TIMEOUT: Duration = Duration::from_secs(10);

/// Characters of one token, for estimates before the service has counted.
pub const TOKEN_CHARACTERS: usize = 4;

/// The address of a model.
#[derive(Clone)]
pub struct OpenAiSettings {
    /// The address up to the version: `https://api.openai.com/v1`.
    pub base_url: String,
    /// The model's name.
    pub model: String,
    /// The key; `None` for a local service. It is never printed, logged or stored.
    pub key: Option<String>,
    /// The time limit of one call.
    pub timeout: Duration,
}

impl std::fmt::Debug for OpenAiSettings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("OpenAiSettings")
            .field("base_url", &printable(&self.base_url))
            .field("model", &self.model)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl OpenAiSettings {
    /// Reads the settings from the environment: `OPENAI_BASE_URL`, `OPENAI_MODEL`, and the key (see
    /// [`key_from_environment`]). `None` if there is neither a key nor an address.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Settings`] if the key's file cannot be read.
    pub fn from_environment() -> Result<Option<OpenAiSettings>, ServiceError> {
        let key = key_from_environment()?;
        let base_url = variable("OPENAI_BASE_URL");
        if key.is_none() && base_url.is_none() {
            return Ok(None);
        }
        Ok(Some(OpenAiSettings {
            base_url: base_url.unwrap_or_else(|| BASE_URL_DEFAULT.to_owned()),
            model: variable("OPENAI_MODEL").unwrap_or_else(|| "gpt-4o".to_owned()),
            key,
            timeout: Duration::from_secs(120),
        }))
    }
}

/// Reads the key from `OPENAI_API_KEY`, or from the file that `OPENAI_API_KEY_FILE` names.
///
/// # Errors
///
/// [`ServiceError::Settings`] if the file cannot be read.
pub fn key_from_environment() -> Result<Option<String>, ServiceError> {
    match (variable("OPENAI_API_KEY"), variable("OPENAI_API_KEY_FILE")) {
        (Some(key), _) => Ok(Some(key)),
        (None, Some(file)) => {
            let text = std::fs::read_to_string(&file).map_err(|error| {
                ServiceError::Settings(format!("{file}, which OPENAI_API_KEY_FILE names: {error}"))
            })?;
            Ok(Some(text.trim().to_owned()))
        }
        (None, None) => Ok(None),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The reason why a service gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// The service refused the request permanently: a wrong key, model or address.
    #[error(
        "the model service refused the request ({status}): {reason}; check the address, the model's name and the key"
    )]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The text of the answer.
        reason: String,
    },
    /// Every try failed.
    #[error("the model service did not answer after {tries} tries: {reason}")]
    Unavailable {
        /// Number of tries.
        tries: u32,
        /// The failure of the last try.
        reason: String,
    },
    /// The service is unreachable.
    #[error(
        "the model service at {base_url} cannot be reached: {reason}; check that it runs, and its address"
    )]
    Unreachable {
        /// Its address.
        base_url: String,
        /// The error of the connection.
        reason: String,
    },
    /// The settings are invalid.
    #[error("{0}")]
    Settings(String),
}

impl ServiceError {
    /// The word that groups errors of this kind: `refused`, `unavailable`, `settings`.
    pub const fn kind(&self) -> &'static str {
        match self {
            ServiceError::Refused { .. } => "refused",
            ServiceError::Unavailable { .. } | ServiceError::Unreachable { .. } => "unavailable",
            ServiceError::Settings(_) => "settings",
        }
    }
}

/// The way in which the form of an answer is requested. Not all services know the strictest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum AnswerForm {
    /// `json_schema`, which the newest services know.
    Schema = 0,
    /// `json_object` with a schema, which llama.cpp's Python server knows.
    Object = 1,
    /// No field of the request: only the instructions describe the form.
    Text = 2,
}

/// A request for a chat completion.
#[derive(Debug, Clone, Copy)]
pub struct ChatRequest<'a> {
    /// The model's instructions.
    pub instructions: &'a str,
    /// The text to which the instructions apply.
    pub text: &'a str,
    /// The schema's name.
    pub schema_name: &'a str,
    /// The schema of the answer.
    pub schema: &'a Value,
    /// Maximum tokens of the answer; the service's own limit if `None`.
    pub output_tokens_max: Option<u32>,
}

/// A service. Clones share one limiter.
#[derive(Debug, Clone)]
pub struct Service {
    settings: OpenAiSettings,
    client: reqwest::Client,
    limiter: Limiter,
    form: Arc<AtomicU8>,
}

/// An answer that states its cost.
trait Priced: DeserializeOwned {
    fn usage(&self) -> TokenUsage;
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<TokenUsage>,
}

#[derive(Deserialize)]
struct Choice {
    message: ChoiceMessage,
}

#[derive(Deserialize)]
struct ChoiceMessage {
    #[serde(default)]
    content: Option<String>,
}

#[derive(Deserialize)]
struct Embeddings {
    data: Vec<Embedding>,
    #[serde(default)]
    usage: Option<TokenUsage>,
}

#[derive(Deserialize)]
struct Embedding {
    #[serde(default)]
    index: Option<usize>,
    embedding: Vec<f32>,
}

#[derive(Deserialize, Clone, Copy, Default)]
struct TokenUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

impl Priced for Completion {
    fn usage(&self) -> TokenUsage {
        self.usage.unwrap_or_default()
    }
}

impl Priced for Embeddings {
    fn usage(&self) -> TokenUsage {
        self.usage.unwrap_or_default()
    }
}

/// The end of one try.
enum Tried<T> {
    Answered(T),
    Again { pause: Duration, reason: String },
    Refused { status: u16, reason: String },
}

impl Service {
    /// Makes a service with these settings, which is called within the limits of `limiter`.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Settings`] if the address is malformed.
    pub fn new(settings: OpenAiSettings, limiter: Limiter) -> Result<Service, ServiceError> {
        // An error means that the process has a provider already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let address = reqwest::Url::parse(&settings.base_url);
        let is_http = |url: &reqwest::Url| ["http", "https"].contains(&url.scheme());
        if !address.as_ref().is_ok_and(is_http) {
            return Err(ServiceError::Settings(format!(
                "`{}` is not an address such as {BASE_URL_DEFAULT}",
                printable(&settings.base_url)
            )));
        }
        let client = reqwest::Client::builder()
            .timeout(settings.timeout)
            .pool_max_idle_per_host(limiter.concurrency())
            .tcp_nodelay(true)
            .build()
            .map_err(|error| ServiceError::Settings(format!("no HTTP client can be made: {error}")))?;
        Ok(Service {
            settings,
            client,
            limiter,
            form: Arc::new(AtomicU8::new(AnswerForm::Schema as u8)),
        })
    }

    /// The limiter of its calls.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// The model's name.
    pub fn model(&self) -> &str {
        &self.settings.model
    }

    /// Checks once that the service is reachable and accepts the key. Costs no tokens.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Unreachable`], and [`ServiceError::Refused`] if the key is missing or wrong.
    pub async fn reach(&self) -> Result<(), ServiceError> {
        let mut request = self.client.get(self.address("models")).timeout(REACH_TIMEOUT);
        if let Some(key) = &self.settings.key {
            request = request.bearer_auth(key);
        }
        match request.send().await {
            Ok(response) if [401, 403].contains(&response.status().as_u16()) => Err(ServiceError::Refused {
                status: response.status().as_u16(),
                reason: reason(&read_capped(response).await.unwrap_or_default()),
            }),
            // Any other answer is fine: the service need not know this request.
            Ok(_) => Ok(()),
            Err(error) => Err(ServiceError::Unreachable {
                base_url: printable(&self.settings.base_url),
                reason: without_address(error),
            }),
        }
    }

    /// Asks for a JSON answer; `None` if the model's answer does not have its form.
    ///
    /// # Errors
    ///
    /// The errors of [`Service::chat`].
    pub async fn chat_json<T: DeserializeOwned>(
        &self,
        request: &ChatRequest<'_>,
        usage: &mut Usage,
    ) -> Result<Option<T>, ServiceError> {
        let content = self.chat(request, usage).await?;
        Ok(parse_answer(&content).ok())
    }

    /// Asks for a chat completion, and returns its text.
    ///
    /// # Errors
    ///
    /// [`ServiceError`], after all sensible retries.
    pub async fn chat(&self, request: &ChatRequest<'_>, usage: &mut Usage) -> Result<String, ServiceError> {
        let prompt_tokens = (request.text.len() / TOKEN_CHARACTERS + 1) as u64;
        loop {
            let form = self.form();
            let body = self.chat_body(request, form).to_string();
            let completion: Result<Completion, ServiceError> =
                self.post("chat/completions", body, prompt_tokens, usage).await;
            match completion {
                Ok(completion) => {
                    let mut contents = completion
                        .choices
                        .into_iter()
                        .filter_map(|choice| choice.message.content);
                    return Ok(contents.next().unwrap_or_default());
                }
                // A service that does not know this way to request a form is asked in the next plainer way.
                Err(ServiceError::Refused { status, reason })
                    if [400, 422].contains(&status)
                        && form != AnswerForm::Text
                        && (reason.contains("response_format") || reason.contains("json_schema")) =>
                {
                    self.form.fetch_max(form as u8 + 1, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn form(&self) -> AnswerForm {
        match self.form.load(Ordering::Relaxed) {
            0 => AnswerForm::Schema,
            1 => AnswerForm::Object,
            _ => AnswerForm::Text,
        }
    }

    fn chat_body(&self, request: &ChatRequest<'_>, form: AnswerForm) -> Value {
        let instructions = match form {
            AnswerForm::Schema => request.instructions.to_owned(),
            AnswerForm::Object | AnswerForm::Text => {
                format!(
                    "{}\n\nThe JSON's schema: {}",
                    request.instructions, request.schema
                )
            }
        };
        let mut body = json!({
            "model": self.settings.model,
            "messages": [
                { "role": "system", "content": instructions },
                { "role": "user", "content": request.text },
            ],
            "temperature": 0,
        });
        match form {
            AnswerForm::Schema => {
                body["response_format"] = json!({
                    "type": "json_schema",
                    "json_schema": { "name": request.schema_name, "schema": request.schema },
                });
            }
            AnswerForm::Object => {
                body["response_format"] = json!({ "type": "json_object", "schema": request.schema });
            }
            AnswerForm::Text => {}
        }
        if let Some(tokens) = request.output_tokens_max {
            body["max_tokens"] = tokens.into();
        }
        body
    }

    /// Asks for the vectors of texts, in the same order, with the model's number of dimensions.
    ///
    /// # Errors
    ///
    /// [`ServiceError`], after all sensible retries.
    pub async fn embeddings(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ServiceError> {
        let characters: usize = texts.iter().map(String::len).sum();
        let body = json!({ "model": self.settings.model, "input": texts }).to_string();
        let mut usage = Usage::default();
        let tokens = (characters / TOKEN_CHARACTERS + 1) as u64;
        let mut answer: Embeddings = self.post("embeddings", body, tokens, &mut usage).await?;
        if answer.data.iter().all(|embedding| embedding.index.is_some()) {
            answer.data.sort_by_key(|embedding| embedding.index);
        }
        if answer.data.len() != texts.len() {
            return Err(ServiceError::Unavailable {
                tries: 1,
                reason: format!(
                    "it gave {} embeddings for {} texts",
                    answer.data.len(),
                    texts.len()
                ),
            });
        }
        Ok(answer
            .data
            .into_iter()
            .map(|embedding| embedding.embedding)
            .collect())
    }

    fn address(&self, path: &str) -> String {
        format!("{}/{path}", self.settings.base_url.trim_end_matches('/'))
    }

    /// Sends a request until there is an answer, or a retry makes no sense.
    async fn post<T: Priced>(
        &self,
        path: &str,
        body: String,
        prompt_tokens: u64,
        usage: &mut Usage,
    ) -> Result<T, ServiceError> {
        let mut last_reason = String::new();
        for tries in 1..=TRIES_MAX {
            assert!(
                self.limiter.concurrency() > 0,
                "a limiter lets at least one call run"
            );
            let permit = match tries {
                1 => self.limiter.acquire(prompt_tokens).await,
                _ => self.limiter.acquire_again(prompt_tokens).await,
            };
            match self.try_once::<T>(permit, path, body.clone(), tries).await {
                Tried::Answered(answer) => {
                    let told = answer.usage();
                    usage.calls += 1;
                    usage.input_tokens += told.prompt_tokens;
                    usage.output_tokens += told.completion_tokens;
                    return Ok(answer);
                }
                Tried::Refused { status, reason } => return Err(ServiceError::Refused { status, reason }),
                Tried::Again { pause, reason } => {
                    usage.retries += 1;
                    last_reason = reason;
                    // This call waits for its whole pause, even if others may go on. It holds no slot.
                    tokio::time::sleep(pause).await;
                }
            }
        }
        Err(ServiceError::Unavailable {
            tries: TRIES_MAX,
            reason: last_reason,
        })
    }

    async fn try_once<T: Priced>(&self, permit: Permit, path: &str, body: String, tries: u32) -> Tried<T> {
        let backoff = (PAUSE_FIRST * 2_u32.saturating_pow(tries - 1)).min(PAUSE_MAX);
        let again = |permit, pause, reason| {
            self.limiter.rejected_for(permit, pause);
            Tried::Again { pause, reason }
        };
        let mut request = self
            .client
            .post(self.address(path))
            .header("content-type", "application/json")
            .body(body);
        if let Some(key) = &self.settings.key {
            request = request.bearer_auth(key);
        }
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return again(permit, backoff, without_address(error)),
        };
        let status = response.status().as_u16();
        self.limiter.heed(
            rate_headers(response.headers(), "tokens"),
            rate_headers(response.headers(), "requests"),
        );
        let told_pause = retry_after(response.headers());
        let text = match read_capped(response).await {
            Ok(text) => text,
            Err(reason) => return again(permit, backoff, reason),
        };
        match status {
            200..=299 => match serde_json::from_str::<T>(&text) {
                Ok(answer) => {
                    let usage = answer.usage();
                    self.limiter
                        .succeeded(permit, usage.prompt_tokens, usage.completion_tokens);
                    Tried::Answered(answer)
                }
                Err(error) => again(
                    permit,
                    backoff,
                    format!("its answer does not have the form of {path}: {error}"),
                ),
            },
            408 | 409 | 425 | 429 | 500..=599 => again(
                permit,
                told_pause.unwrap_or(backoff),
                format!("status {status}: {}", reason(&text)),
            ),
            _ => {
                self.limiter.succeeded(permit, 0, 0);
                Tried::Refused {
                    status,
                    reason: reason(&text),
                }
            }
        }
    }
}

/// Parses the JSON in an answer, which may be fenced as Markdown code.
///
/// # Errors
///
/// The problem, as text.
pub fn parse_answer<T: DeserializeOwned>(content: &str) -> Result<T, String> {
    let text = content.trim();
    let text = text
        .strip_prefix("```json")
        .or_else(|| text.strip_prefix("```"))
        .unwrap_or(text);
    let text = text.strip_suffix("```").unwrap_or(text);
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// Reads the body, if it does not exceed the limit.
async fn read_capped(mut response: reqwest::Response) -> Result<String, String> {
    let mut bytes = Vec::new();
    while let Some(part) = response.chunk().await.map_err(without_address)? {
        bytes.extend_from_slice(&part);
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(format!("its answer has more than {ANSWER_BYTES_MAX} bytes"));
        }
    }
    String::from_utf8(bytes).map_err(|_| "its answer is not UTF-8".to_owned())
}

/// Writes the error without the address, which may contain secrets.
fn without_address(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

/// Writes an address without the name and the password that it may contain.
fn printable(base_url: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(base_url) else {
        return base_url.to_owned();
    };
    // An address that cannot have a name or a password has none.
    let _ = (url.set_username(""), url.set_password(None));
    url.as_str().trim_end_matches('/').to_owned()
}

/// The message in an error's body, on one short line.
fn reason(text: &str) -> String {
    let parsed: Option<Value> = serde_json::from_str(text).ok();
    let told = parsed.as_ref().and_then(|body| body["error"]["message"].as_str());
    let line = told
        .unwrap_or(text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    line.chars().take(300).collect()
}

/// Reads `retry-after-ms`, or `retry-after` in seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number("retry-after-ms")
        .map(|millis| millis / 1_000.0)
        .or_else(|| number("retry-after"))?;
    Some(Duration::from_secs_f64(seconds.clamp(0.0, 3_600.0)))
}

/// Reads the headers `x-ratelimit-limit-tokens` and so on.
fn rate_headers(headers: &HeaderMap, what: &str) -> RateHeaders {
    let number = |part: &str| {
        headers
            .get(format!("x-ratelimit-{part}-{what}"))?
            .to_str()
            .ok()?
            .parse::<f64>()
            .ok()
    };
    RateHeaders {
        limit_per_minute: number("limit"),
        remaining: number("remaining"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter() -> Limiter {
        Limiter::new(limiter::LimiterSettings::default())
    }

    fn settings(base_url: &str) -> OpenAiSettings {
        OpenAiSettings {
            base_url: base_url.to_owned(),
            model: "m".to_owned(),
            key: Some("a secret".to_owned()),
            timeout: Duration::from_secs(1),
        }
    }

    #[test]
    fn debug_output_hides_the_key() {
        let service = Service::new(settings("https://models.example/v1"), limiter()).expect("an address");
        assert!(!format!("{service:?}").contains("a secret"));
    }

    #[test]
    fn output_hides_a_password_in_the_address() {
        assert_eq!(
            printable("http://ada:secret@models.example/v1"),
            "http://models.example/v1"
        );
        assert_eq!(printable("http://127.0.0.1:8080/v1"), "http://127.0.0.1:8080/v1");
    }

    #[test]
    fn a_malformed_address_is_refused() {
        for wrong in ["models.example", "/v1", "file:///etc/passwd", ""] {
            let error = Service::new(settings(wrong), limiter()).expect_err("no address");
            assert!(error.to_string().contains(BASE_URL_DEFAULT), "{error}");
        }
    }

    #[test]
    fn reads_headers() {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "2".parse().expect("a value"));
        assert_eq!(retry_after(&headers), Some(Duration::from_secs(2)));
        headers.insert("retry-after-ms", "1500".parse().expect("a value"));
        assert_eq!(retry_after(&headers), Some(Duration::from_millis(1_500)));
        headers.insert("x-ratelimit-remaining-tokens", "77".parse().expect("a value"));
        assert_eq!(rate_headers(&headers, "tokens").remaining, Some(77.0));
        assert_eq!(rate_headers(&headers, "requests"), RateHeaders::default());
    }

    #[test]
    fn reads_answers() {
        let parsed: Value = parse_answer("```json\n{\"topics\": [\"bees\"]}\n```").expect("JSON");
        assert_eq!(parsed["topics"][0], "bees");
        assert!(parse_answer::<Value>("{\"topics\": [\"be").is_err());
    }
}
