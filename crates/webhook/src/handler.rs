//! The handler that sends webhooks.

use std::sync::Arc;

use async_trait::async_trait;
use gristmill_model::{Clock, JobError};
use gristmill_worker::{Capacity, Handler, Job, MicroBatch, OutcomeSink, job_handler};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Url, redirect};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::WebhookError;
use crate::host::AllowedHost;
use crate::limits::{CONNECT_TIMEOUT, REQUEST_TIMEOUT, REQUESTS_AT_ONCE};
use crate::signature::WebhookSecret;

/// The error type of failed webhook jobs.
const ERROR_TYPE: &str = "Webhook";

/// The settings of webhooks.
#[derive(Debug, Clone)]
pub struct WebhookOptions {
    /// The only hosts that get requests.
    pub allowed: Vec<AllowedHost>,
    /// The secret that signs requests.
    pub secret: WebhookSecret,
    /// The clock that dates requests.
    pub clock: Arc<dyn Clock>,
}

/// The payload of a webhook job.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    url: String,
    body: Box<RawValue>,
}

/// Sends the requests of webhooks.
#[derive(Debug)]
struct Sender {
    client: Client,
    options: WebhookOptions,
}

/// A handler with its own number of runners.
struct WebhookHandler(Arc<dyn Handler>);

/// The handler of the kind `http`. A job's value is `{"status": 200}`.
///
/// # Errors
///
/// [`WebhookError::Client`] if TLS cannot be set up.
pub fn webhook_handler(options: WebhookOptions) -> Result<Arc<dyn Handler>, WebhookError> {
    // An error means that the process already has a provider. It works as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder()
        .user_agent(concat!("gristmill/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
        .build()
        .map_err(|error| WebhookError::Client(error.to_string()))?;
    let sender = Arc::new(Sender { client, options });
    Ok(Arc::new(WebhookHandler(job_handler(move |job: Job<Payload>| {
        let sender = sender.clone();
        async move { sender.send(&job).await }
    }))))
}

impl Sender {
    async fn send(&self, job: &Job<Payload>) -> Result<serde_json::Value, JobError> {
        let refused = |message: String| JobError::new(ERROR_TYPE, message).permanent();
        let url: Url = job
            .payload
            .url
            .parse()
            .map_err(|error| refused(format!("the job's URL is not valid: {error}")))?;
        if !AllowedHost::allow(&self.options.allowed, &url) {
            return Err(refused(format!(
                "the host {} is not allowed: name it with --http-hooks",
                origin(&url)
            )));
        }
        let body = job.payload.body.get();
        let id = format!("job_{}", job.id);
        let timestamp = self.options.clock.now().0 / 1_000;
        let signature = self.options.secret.sign(&id, timestamp, body);
        let request = self
            .client
            .post(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header(
                "webhook-signature",
                signature.map_err(|error| refused(error.to_string()))?,
            )
            .body(body.to_owned());
        // The path and the query may contain a token, which must not appear in an error.
        let answer = request.send().await.map_err(|error| {
            let reason = error_chain(&error.without_url());
            let way = proxy_variable(url.scheme()).map_or_else(String::new, |variable| {
                format!(" through the proxy in {variable}")
            });
            JobError::new(
                ERROR_TYPE,
                format!("{} does not answer{way}: {reason}", origin(&url)),
            )
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(serde_json::json!({ "status": status.as_u16() }));
        }
        Err(JobError::new(
            ERROR_TYPE,
            format!("{} answered {status}", origin(&url)),
        ))
    }
}

/// The environment variable that sends requests of this scheme through a proxy. `NO_PROXY` can exclude a host.
fn proxy_variable(scheme: &str) -> Option<&'static str> {
    let variables: &[&str] = match scheme {
        "https" => &["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"],
        _ => &["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"],
    };
    let is_set = |variable: &&&str| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
    variables.iter().find(is_set).copied()
}

fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The text of an error and its causes.
fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[async_trait]
impl Handler for WebhookHandler {
    async fn run(&self, runner: usize, work: MicroBatch, sink: &dyn OutcomeSink) {
        self.0.run(runner, work, sink).await;
    }

    fn capacity(&self) -> Capacity {
        Capacity {
            runners: Some(REQUESTS_AT_ONCE),
            ..self.0.capacity()
        }
    }

    fn recall(&self, runner: usize) {
        self.0.recall(runner);
    }

    async fn shut_down(&self) {
        self.0.shut_down().await;
    }
}
