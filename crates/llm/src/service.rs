//! A model service: chat completions and embeddings of OpenAI and compatible servers, and messages of Anthropic, within the
//! limits of a [`Limiter`], with retries.

pub(crate) mod answer;
mod error;
pub mod limiter;
pub(crate) mod parameters;
mod pause;
mod response;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use gristmill_model::{Clock, SystemClock};
use reqwest::header::HeaderValue;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

pub use answer::{Answer, Reply, TokenUsage, parse_answer};
use answer::{Completion, Embeddings, Priced};
pub use error::{DENIED, ServiceError};
use error::{is_denial, reason};
pub use limiter::Limiter;
use limiter::Permit;
pub use parameters::ChatRequest;
use parameters::{AnswerForm, CHANGES_MAX, Learned, Parameters, Sent, TokensField};
use response::{error_status, rate_headers, read_capped, redirect, without_address};
pub use usage::Usage;

pub use crate::limits::TOKEN_CHARACTERS;
use crate::provider::{Provider, anthropic};
use crate::request::Request;

/// The default address of models.
pub const BASE_URL_DEFAULT: &str = Provider::Openai.base_url();

/// Maximum tries of one request without an answer to any other request of this process in between.
const TRIES_MAX: u32 = 12;

/// Maximum answers to one request that cannot be read. Each may be paid.
const UNREADABLE_MAX: u32 = 2;

/// The longest time for which a request is tried while others are answered.
const TRIED_FOR_MAX: Duration = Duration::from_secs(3_600);

/// The first pause after a failure that does not name a pause. It doubles with each try.
const PAUSE_FIRST: Duration = Duration::from_millis(500);

/// The longest pause after a failure that does not name a pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The time limit of the first connection to the service.
const REACH_TIMEOUT: Duration = Duration::from_secs(10);

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
        let key = key_from_environment(Provider::Openai)?;
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

/// Reads a provider's key from its variable, `OPENAI_API_KEY` or `ANTHROPIC_API_KEY`, or from the file that the variable with
/// `_FILE` names.
///
/// # Errors
///
/// [`ServiceError::Settings`] if the file cannot be read.
pub fn key_from_environment(provider: Provider) -> Result<Option<String>, ServiceError> {
    let name = format!("{}_API_KEY", provider.variables());
    let name_of_file = format!("{name}_FILE");
    match (variable(&name), variable(&name_of_file)) {
        (Some(key), _) => Ok(Some(key)),
        (None, Some(file)) => {
            let text = std::fs::read_to_string(&file).map_err(|error| {
                ServiceError::Settings(format!("{file}, which {name_of_file} names: {error}"))
            })?;
            Ok(Some(text.trim().to_owned()))
        }
        (None, None) => Ok(None),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The key as the value of a header, which is not printed.
fn header_of(key: &str) -> Result<HeaderValue, ServiceError> {
    let mut value = HeaderValue::from_str(key).map_err(|_| {
        ServiceError::Settings(
            "the key has letters that no key has, such as a line break: check its variable".to_owned(),
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// A service. Clones share one limiter.
#[derive(Debug, Clone)]
pub struct Service {
    settings: OpenAiSettings,
    client: reqwest::Client,
    limiter: Limiter,
    learned: Arc<Learned>,
    provider: Provider,
}

/// The answer to a [`Request`].
#[derive(Debug, Clone)]
pub struct Asked {
    /// The model's reply.
    pub reply: Reply,
    /// The parameters of the request that the service refused, so that it was asked without them.
    pub dropped: Vec<&'static str>,
}

/// The body of a request.
enum Body<'a> {
    /// A request for a chat completion, with the parameters that the service takes.
    Chat(&'a ChatRequest<'a>),
    /// A request of a job, with the parameters that the service takes.
    Request(&'a Request),
    /// A request without parameters that can be left out.
    Fixed(&'a str),
}

/// The end of one try.
enum Tried<T> {
    Answered(T),
    Again {
        pause: Duration,
        reason: String,
        /// There was an answer, which nobody can read.
        is_answer: bool,
    },
    Refused {
        status: u16,
        body: String,
    },
}

impl Service {
    /// Makes an OpenAI-compatible service with these settings, which is called within the limits of `limiter`.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Settings`] if the address is malformed.
    pub fn new(settings: OpenAiSettings, limiter: Limiter) -> Result<Service, ServiceError> {
        Service::of(Provider::Openai, settings, limiter)
    }

    /// Makes a service that speaks like this provider.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Settings`] if the address is malformed.
    pub fn of(
        provider: Provider,
        settings: OpenAiSettings,
        limiter: Limiter,
    ) -> Result<Service, ServiceError> {
        // An error means that the process has a provider already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let address = reqwest::Url::parse(&settings.base_url);
        let is_http = |url: &reqwest::Url| ["http", "https"].contains(&url.scheme());
        if !address.as_ref().is_ok_and(is_http) {
            return Err(ServiceError::Settings(format!(
                "`{}` is not an address such as {}",
                printable(&settings.base_url),
                provider.base_url()
            )));
        }
        if let Some(key) = &settings.key {
            header_of(key)?;
        }
        let client = reqwest::Client::builder()
            // A redirect would take the key or the request to another host.
            .redirect(reqwest::redirect::Policy::none())
            .timeout(settings.timeout)
            .pool_max_idle_per_host(limiter.concurrency())
            .tcp_nodelay(true)
            .build()
            .map_err(|error| ServiceError::Settings(format!("no HTTP client can be made: {error}")))?;
        Ok(Service {
            settings,
            client,
            limiter,
            learned: Arc::default(),
            provider,
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
        let request = self.client.get(self.address("models")).timeout(REACH_TIMEOUT);
        match self.authorised(request).send().await {
            // A key may be allowed to call models and not to list them: 403.
            Ok(response) if response.status().as_u16() == 401 => Err(ServiceError::Refused {
                status: response.status().as_u16(),
                reason: self.told(&read_capped(response).await.unwrap_or_default()),
            }),
            // Any other answer is fine: the service need not know this request.
            Ok(response) => redirect(&response).map_or(Ok(()), |reason| {
                let status = response.status().as_u16();
                Err(ServiceError::Refused { status, reason })
            }),
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
        Ok(self.answer(request, usage).await?.content)
    }

    /// Asks for a chat completion, and returns its text and whether that is all of it.
    ///
    /// # Errors
    ///
    /// [`ServiceError`], after all sensible retries.
    pub async fn answer(&self, request: &ChatRequest<'_>, usage: &mut Usage) -> Result<Answer, ServiceError> {
        let prompt_tokens = (request.text.len() / TOKEN_CHARACTERS + 1) as u64;
        let (completion, _): (Completion, _) = self
            .post("chat/completions", &Body::Chat(request), prompt_tokens, usage)
            .await?;
        completion
            .answer()
            .map_err(|reason| ServiceError::Declined { reason })
    }

    /// Asks what a job requests.
    ///
    /// # Errors
    ///
    /// [`ServiceError`], after all sensible retries.
    pub async fn ask(&self, request: &Request, usage: &mut Usage) -> Result<Asked, ServiceError> {
        let text = request.body.as_ref().map(|body| {
            let mut body = body.clone();
            body.entry("model")
                .or_insert_with(|| request.model.as_str().into());
            Value::Object(body).to_string()
        });
        let body = text.as_deref().map_or(Body::Request(request), Body::Fixed);
        let prompt_tokens = request.prompt_tokens();
        let path = self.provider.path();
        let (reply, used) = match self.provider {
            Provider::Openai => {
                let (completion, used): (Completion, _) =
                    self.post(path, &body, prompt_tokens, usage).await?;
                (completion.reply(), used)
            }
            Provider::Anthropic => {
                let (message, used): (anthropic::Message, _) =
                    self.post(path, &body, prompt_tokens, usage).await?;
                (message.reply(), used)
            }
        };
        let dropped = match body {
            Body::Request(request) => dropped(used, request),
            _ => Vec::new(),
        };
        Ok(Asked { reply, dropped })
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
        let (mut answer, _): (Embeddings, _) = self
            .post("embeddings", &Body::Fixed(&body), tokens, &mut usage)
            .await?;
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
        self.provider.address(&self.settings.base_url, path)
    }

    /// The request with the key.
    fn authorised(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match (self.provider, &self.settings.key) {
            (Provider::Openai, Some(key)) => request.bearer_auth(key),
            (Provider::Openai, None) => request,
            (Provider::Anthropic, key) => {
                let request = request.header("anthropic-version", anthropic::VERSION);
                match key.as_deref().map(header_of) {
                    Some(Ok(key)) => request.header("x-api-key", key),
                    _ => request,
                }
            }
        }
    }

    /// Sends a request until there is an answer, or a retry makes no sense. Returns the parameters with which it was answered,
    /// too.
    ///
    /// Tries count anew where other requests were answered in the meantime: the service is busy then, and not away.
    async fn post<T: Priced>(
        &self,
        path: &str,
        body: &Body<'_>,
        prompt_tokens: u64,
        usage: &mut Usage,
    ) -> Result<(T, Parameters), ServiceError> {
        let begun_at = Instant::now();
        let mut answered = self.limiter.answered();
        let (mut tries, mut changes, mut unreadable) = (0, 0, 0);
        // The parameters that this request leaves out, and others send.
        let mut own = Parameters::default();
        let mut is_first = true;
        loop {
            assert!(
                self.limiter.concurrency() > 0,
                "a limiter lets at least one call run"
            );
            let permit = match std::mem::take(&mut is_first) {
                true => self.limiter.acquire(prompt_tokens).await,
                false => self.limiter.acquire_again(prompt_tokens).await,
            };
            tries += 1;
            let used = own.fewer(self.learned.now());
            let text = match body {
                Body::Chat(request) => used.body(&self.settings.model, request).to_string(),
                Body::Request(request) => self.provider.body(request, used).to_string(),
                Body::Fixed(text) => (*text).to_owned(),
            };
            match self.try_once::<T>(permit, path, text, tries).await {
                Tried::Answered(answer) => {
                    let told = answer.usage().unwrap_or_default();
                    self.learned.adopt(used);
                    usage.calls += 1;
                    usage.input_tokens += told.prompt_tokens;
                    usage.output_tokens += told.completion_tokens;
                    return Ok((answer, used));
                }
                Tried::Refused {
                    status,
                    body: refusal,
                } => {
                    let without = match changes < CHANGES_MAX && [400, 404, 422].contains(&status) {
                        true => self.learned.without(used, self.sent(body), &refusal),
                        false => None,
                    };
                    if let Some(without) = without {
                        own = without;
                        changes += 1;
                        tries -= 1;
                        usage.retries += 1;
                        continue;
                    }
                    let reason = self.told(&refusal);
                    return Err(match is_denial(status, &refusal) {
                        true => ServiceError::Denied { status, reason },
                        false => ServiceError::Refused { status, reason },
                    });
                }
                Tried::Again {
                    pause,
                    reason,
                    is_answer,
                } => {
                    usage.retries += 1;
                    // It may be paid each time.
                    unreadable += u32::from(is_answer);
                    if unreadable >= UNREADABLE_MAX {
                        return Err(ServiceError::Unavailable { tries, reason });
                    }
                    let now = self.limiter.answered();
                    if now > std::mem::replace(&mut answered, now) && begun_at.elapsed() < TRIED_FOR_MAX {
                        tries = 1;
                    }
                    if tries >= TRIES_MAX {
                        return Err(ServiceError::Unavailable { tries, reason });
                    }
                    // This call waits for its whole pause, even if others may go on. It holds no slot.
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// The fields of a request that the service may not take.
    fn sent(&self, body: &Body<'_>) -> Sent {
        let is_openai = self.provider == Provider::Openai;
        match body {
            Body::Chat(request) => Sent {
                temperature: true,
                tokens: request.output_tokens_max.is_some(),
                form: true,
                system_role: true,
            },
            Body::Request(request) => Sent {
                temperature: request.temperature.is_some(),
                tokens: is_openai && request.max_tokens.is_some(),
                form: request.schema.is_some(),
                system_role: is_openai,
            },
            Body::Fixed(_) => Sent {
                temperature: false,
                tokens: false,
                form: false,
                system_role: false,
            },
        }
    }

    /// The reason in a body. Some services and proxies repeat the key in it.
    fn told(&self, body: &str) -> String {
        match self.settings.key.as_deref().filter(|key| !key.is_empty()) {
            Some(key) => reason(&body.replace(key, "…")),
            None => reason(body),
        }
    }

    async fn try_once<T: Priced>(&self, permit: Permit, path: &str, body: String, tries: u32) -> Tried<T> {
        let backoff = (PAUSE_FIRST * 2_u32.saturating_pow(tries - 1)).min(PAUSE_MAX);
        let again = |permit, pause, reason: String, is_answer| {
            self.limiter.rejected_for(permit, pause, &reason);
            Tried::Again {
                pause,
                reason,
                is_answer,
            }
        };
        let request = self
            .client
            .post(self.address(path))
            .header("content-type", "application/json")
            .body(body);
        let response = match self.authorised(request).send().await {
            Ok(response) => response,
            Err(error) => return again(permit, backoff, without_address(error), false),
        };
        self.limiter.heed(
            rate_headers(response.headers(), "tokens"),
            rate_headers(response.headers(), "requests"),
        );
        let status = response.status().as_u16();
        // A service that names no time, or one that has passed, is not asked again without a pause for ever.
        let told_pause = pause::pause(response.headers(), SystemClock.now())
            .map(|told| if tries > 1 { told.max(backoff) } else { told });
        let redirect = redirect(&response);
        let text = match read_capped(response).await {
            Ok(text) => text,
            Err(reason) => return again(permit, backoff, reason, false),
        };
        let refused = |permit, status, body| {
            self.limiter.refused(permit);
            Tried::Refused { status, body }
        };
        if let Some(redirect) = redirect {
            return refused(permit, status, redirect);
        }
        // Some proxies answer by status 200 and an error.
        let status = match status {
            200..=299 => match serde_json::from_str::<T>(&text) {
                Ok(answer) => {
                    let usage = answer.usage().unwrap_or_default();
                    self.limiter
                        .succeeded(permit, usage.prompt_tokens, usage.completion_tokens);
                    return Tried::Answered(answer);
                }
                Err(error) => match error_status(&text) {
                    Some(status) => status,
                    None => {
                        let reason = format!(
                            "its answer does not have the form of {path}: {error}; it begins: {}",
                            self.told(&text)
                        );
                        return again(permit, backoff, reason, true);
                    }
                },
            },
            status => status,
        };
        match status {
            _ if is_denial(status, &text) => refused(permit, status, text),
            408 | 409 | 425 | 429 | 500..=599 => again(
                permit,
                told_pause.unwrap_or(backoff),
                format!("status {status}: {}", self.told(&text)),
                false,
            ),
            _ => refused(permit, status, text),
        }
    }
}

/// The fields of a job's request that are not sent with these parameters.
fn dropped(parameters: Parameters, request: &Request) -> Vec<&'static str> {
    let has_no_limit = parameters.tokens == TokensField::None;
    let fields = [
        (
            "temperature",
            request.temperature.is_some() && !parameters.has_temperature,
        ),
        ("max_tokens", request.max_tokens.is_some() && has_no_limit),
        // The instructions have it then, and the answer is checked all the same.
        (
            "schema",
            request.schema.is_some() && parameters.form != AnswerForm::Schema,
        ),
    ];
    fields
        .into_iter()
        .filter_map(|(name, is_dropped)| is_dropped.then_some(name))
        .collect()
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
}
