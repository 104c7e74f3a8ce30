//! Extraction by a language model behind an OpenAI-compatible service.
//!
//! The answer is asked for by a JSON schema. One that cannot be read is sent back once with what is wrong with it.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::extract::limiter::{Limiter, Permit, RateHeaders};
use crate::extract::{ChunkText, ExtractError, Extracted, Extractor, Usage};
use crate::knowledge::Extraction;

/// What the model is told. Another text here is another [identity](Extractor::identity).
const INSTRUCTIONS: &str = "You extract knowledge from one part of a conversation or document, which the user sends. \
    Answer with JSON alone. `entities`: every specific person, place, work, organisation or thing that is named, with \
    its types in lower case and with facets for what is said of it. `actions`: what is done, with the verb's base \
    form, its tense, and the names of subject, object and indirect object, or `none`. `inverse_actions`: the same \
    actions as seen by the object, such as `be written by`. `topics`: what it is about, in short phrases.";

/// Bytes of one answer at most.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Tries of one request at most, rejected and failed ones included.
const TRIES_MAX: u32 = 12;

/// The pause after a failure that says nothing of one; doubles from try to try.
const PAUSE_FIRST: Duration = Duration::from_millis(500);

/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Characters of an answer that are shown to the model when it is asked to repair it.
const REPAIR_CHARACTERS: usize = 500;

/// Characters of one token, about: for estimates before the service has counted.
const TOKEN_CHARACTERS: usize = 4;

/// Where the model is.
#[derive(Clone)]
pub struct OpenAiSettings {
    /// The address up to the version: `https://api.openai.com/v1`.
    pub base_url: String,
    /// The model's name.
    pub model: String,
    /// The key; none for a local service. Never printed, logged or stored.
    pub key: Option<String>,
    /// How long one call may take.
    pub timeout: Duration,
}

impl std::fmt::Debug for OpenAiSettings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("OpenAiSettings")
            .field("base_url", &self.base_url)
            .field("model", &self.model)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl OpenAiSettings {
    /// What the environment says: `OPENAI_BASE_URL`, `OPENAI_MODEL`, and the key in `OPENAI_API_KEY` or in the file that
    /// `OPENAI_API_KEY_FILE` names. `None` where there is neither a key nor an address.
    ///
    /// # Errors
    ///
    /// [`ExtractError::Settings`] where the key's file cannot be read.
    pub fn from_environment() -> Result<Option<OpenAiSettings>, ExtractError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let key = match (variable("OPENAI_API_KEY"), variable("OPENAI_API_KEY_FILE")) {
            (Some(key), _) => Some(key),
            (None, Some(file)) => Some(
                std::fs::read_to_string(&file)
                    .map_err(|error| {
                        ExtractError::Settings(format!("{file}, which OPENAI_API_KEY_FILE names: {error}"))
                    })?
                    .trim()
                    .to_owned(),
            ),
            (None, None) => None,
        };
        let base_url = variable("OPENAI_BASE_URL");
        if key.is_none() && base_url.is_none() {
            return Ok(None);
        }
        Ok(Some(OpenAiSettings {
            base_url: base_url.unwrap_or_else(|| "https://api.openai.com/v1".to_owned()),
            model: variable("OPENAI_MODEL").unwrap_or_else(|| "gpt-4o".to_owned()),
            key,
            timeout: Duration::from_secs(120),
        }))
    }
}

/// The extractor that asks a model.
#[derive(Debug, Clone)]
pub struct OpenAiExtractor {
    settings: OpenAiSettings,
    client: reqwest::Client,
    address: String,
    limiter: Limiter,
    schema: Value,
}

/// One answer of the service.
#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<CompletionUsage>,
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

#[derive(Deserialize, Clone, Copy, Default)]
struct CompletionUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

/// How one try ended.
enum Tried {
    Answered { content: String, usage: CompletionUsage },
    Again { pause: Duration, reason: String },
    Refused(ExtractError),
}

impl OpenAiExtractor {
    /// An extractor that asks the service of `settings` within what `limiter` allows.
    ///
    /// # Errors
    ///
    /// [`ExtractError::Settings`] where the address is none.
    pub fn new(settings: OpenAiSettings, limiter: Limiter) -> Result<OpenAiExtractor, ExtractError> {
        // An error says that the process has a provider already, which does as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let address = format!("{}/chat/completions", settings.base_url.trim_end_matches('/'));
        reqwest::Url::parse(&address).map_err(|error| {
            ExtractError::Settings(format!(
                "`{}` is no address such as https://api.openai.com/v1: {error}",
                settings.base_url
            ))
        })?;
        let client = reqwest::Client::builder()
            .timeout(settings.timeout)
            .pool_max_idle_per_host(limiter.concurrency())
            .tcp_nodelay(true)
            .build()
            .map_err(|error| ExtractError::Settings(format!("no HTTP client can be made: {error}")))?;
        let schema = serde_json::from_str(include_str!("extraction_schema.json"))
            .map_err(|error| ExtractError::Settings(format!("the schema of extractions: {error}")))?;
        Ok(OpenAiExtractor {
            settings,
            client,
            address,
            limiter,
            schema,
        })
    }

    /// The limiter of its calls.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Asks until there is an answer, or no more sense in asking.
    async fn ask(
        &self,
        instructions: &str,
        chunk: &ChunkText,
        usage: &mut Usage,
    ) -> Result<String, ExtractError> {
        let body = json!({
            "model": self.settings.model,
            "messages": [
                { "role": "system", "content": instructions },
                { "role": "user", "content": chunk.text },
            ],
            "temperature": 0,
            "response_format": {
                "type": "json_schema",
                "json_schema": { "name": "extraction", "schema": self.schema },
            },
        })
        .to_string();
        let prompt_tokens = (chunk.text.len() / TOKEN_CHARACTERS + 1) as u64;
        let mut last_reason = String::new();
        for tries in 1..=TRIES_MAX {
            let permit = self.limiter.acquire(prompt_tokens).await;
            match self.try_once(permit, body.clone(), tries).await {
                Tried::Answered { content, usage: told } => {
                    usage.calls += 1;
                    usage.input_tokens += told.prompt_tokens;
                    usage.output_tokens += told.completion_tokens;
                    return Ok(content);
                }
                Tried::Refused(error) => return Err(error),
                Tried::Again { pause, reason } => {
                    usage.retries += 1;
                    last_reason = reason;
                    // Its own wait, whatever the others do; it holds no slot.
                    tokio::time::sleep(pause).await;
                }
            }
        }
        Err(ExtractError::Unavailable {
            tries: TRIES_MAX,
            reason: last_reason,
        })
    }

    async fn try_once(&self, permit: Permit, body: String, tries: u32) -> Tried {
        let backoff = (PAUSE_FIRST * 2_u32.saturating_pow(tries - 1)).min(PAUSE_MAX);
        let mut request = self
            .client
            .post(&self.address)
            .header("content-type", "application/json")
            .body(body);
        if let Some(key) = &self.settings.key {
            request = request.bearer_auth(key);
        }
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => {
                self.limiter.rejected_for(permit, backoff);
                return Tried::Again {
                    pause: backoff,
                    reason: without_address(error),
                };
            }
        };
        let status = response.status().as_u16();
        self.limiter.heed(
            rate_headers(response.headers(), "tokens"),
            rate_headers(response.headers(), "requests"),
        );
        let told_pause = retry_after(response.headers());
        let text = match read_capped(response).await {
            Ok(text) => text,
            Err(reason) => {
                self.limiter.rejected_for(permit, backoff);
                return Tried::Again {
                    pause: backoff,
                    reason,
                };
            }
        };
        match status {
            200..=299 => match serde_json::from_str::<Completion>(&text) {
                Ok(completion) => {
                    let usage = completion.usage.unwrap_or_default();
                    self.limiter
                        .succeeded(permit, usage.prompt_tokens, usage.completion_tokens);
                    let content = completion
                        .choices
                        .into_iter()
                        .find_map(|choice| choice.message.content);
                    Tried::Answered {
                        content: content.unwrap_or_default(),
                        usage,
                    }
                }
                Err(error) => {
                    self.limiter.rejected_for(permit, backoff);
                    Tried::Again {
                        pause: backoff,
                        reason: format!("its answer is no chat completion: {error}"),
                    }
                }
            },
            408 | 409 | 425 | 429 | 500..=599 => {
                let pause = told_pause.unwrap_or(backoff);
                self.limiter.rejected_for(permit, pause);
                Tried::Again {
                    pause,
                    reason: format!("status {status}: {}", reason(&text)),
                }
            }
            _ => {
                self.limiter.succeeded(permit, 0, 0);
                Tried::Refused(ExtractError::Refused {
                    status,
                    reason: reason(&text),
                })
            }
        }
    }
}

#[async_trait]
impl Extractor for OpenAiExtractor {
    fn identity(&self) -> String {
        let prompt = crate::digest::of_parts(&[INSTRUCTIONS.as_bytes(), self.schema.to_string().as_bytes()]);
        format!("openai {} {}", self.settings.model, &prompt[..16])
    }

    async fn extract(&self, chunk: &ChunkText) -> Result<Extracted, ExtractError> {
        let mut usage = Usage::default();
        let content = self.ask(INSTRUCTIONS, chunk, &mut usage).await?;
        let extraction = match parse(&content) {
            Ok(extraction) => extraction,
            Err(error) => {
                let begin: String = content.chars().take(REPAIR_CHARACTERS).collect();
                let instructions = format!(
                    "{INSTRUCTIONS}\n\nYour last answer to this was no JSON of the schema: {error}. It began: {begin}\n\
                     Answer again, with all of it."
                );
                let repaired = self.ask(&instructions, chunk, &mut usage).await?;
                parse(&repaired).map_err(|reason| ExtractError::Malformed { reason })?
            }
        };
        Ok(Extracted {
            key: chunk.key.clone(),
            extraction,
            usage,
        })
    }
}

/// The extraction in an answer, which may stand in a fence of Markdown.
fn parse(content: &str) -> Result<Extraction, String> {
    let text = content.trim();
    let text = text
        .strip_prefix("```json")
        .or_else(|| text.strip_prefix("```"))
        .unwrap_or(text);
    let text = text.strip_suffix("```").unwrap_or(text);
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The body, unless it is over the limit.
async fn read_capped(mut response: reqwest::Response) -> Result<String, String> {
    let mut bytes = Vec::new();
    while let Some(part) = response.chunk().await.map_err(without_address)? {
        bytes.extend_from_slice(&part);
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(format!("its answer has more than {ANSWER_BYTES_MAX} bytes"));
        }
    }
    String::from_utf8(bytes).map_err(|_| "its answer is no UTF-8".to_owned())
}

/// The error in words, without the address, in which there may be secrets.
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

/// What a service says in an error's body, in one short line.
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

/// `retry-after-ms`, or `retry-after` in seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number("retry-after-ms")
        .map(|millis| millis / 1_000.0)
        .or_else(|| number("retry-after"))?;
    Some(Duration::from_secs_f64(seconds.clamp(0.0, 3_600.0)))
}

/// `x-ratelimit-limit-tokens` and its like.
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

    #[test]
    fn hides_the_key() {
        let settings = OpenAiSettings {
            base_url: "https://models.example/v1".to_owned(),
            model: "m".to_owned(),
            key: Some("a secret".to_owned()),
            timeout: Duration::from_secs(1),
        };
        assert!(!format!("{settings:?}").contains("secret"));
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
        assert!(parse("```json\n{\"topics\": [\"bees\"]}\n```").is_ok());
        assert!(parse("{\"topics\": [\"be").is_err());
    }
}
