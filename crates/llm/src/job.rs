//! Jobs of the kind `llm`: the value of one, and the handler that runs them.

mod equal;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_model::JobError;
use gristmill_worker::{Capacity, Handler, MicroBatch, MicroBatchJob, OutcomeSink};
use serde_json::Value;

use crate::answered::{Answered, Lane};
use crate::calls::{pack, run_calls};
use crate::limits::{EXCERPT_CHARACTERS_MAX, MODELS_MAX, READY_FACTOR};
use crate::prices::Prices;
use crate::provider::Provider;
use crate::request::Request;
use crate::schema::Schema;
use crate::service::limiter::{Limiter, LimiterSettings};
use crate::service::{
    Answer, Asked, OpenAiSettings, Service, ServiceError, TokenUsage, Usage, key_from_environment,
    parse_answer,
};
use equal::{EqualRequests, Key};

/// The kind of jobs that ask a model.
pub const LLM_KIND: &str = "llm";

/// The address and the key of one provider.
#[derive(Clone)]
pub struct Endpoint {
    /// The address up to the version.
    base_url: String,
    /// The key. It is never printed, logged or stored.
    key: Option<String>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Endpoint")
    }
}

impl Endpoint {
    /// The endpoint with the key that the environment has for this provider. Without an address, it is the one in the
    /// environment, or else the provider's own. `None` if there is neither a key nor an address.
    fn from_environment(
        provider: Provider,
        base_url: Option<&str>,
    ) -> Result<Option<Endpoint>, ServiceError> {
        let key = key_from_environment(provider)?;
        let variable = std::env::var(format!("{}_BASE_URL", provider.variables())).ok();
        let base_url = base_url
            .map(str::to_owned)
            .or(variable.filter(|url| !url.is_empty()));
        if key.is_none() && base_url.is_none() {
            return Ok(None);
        }
        Ok(Some(Endpoint {
            base_url: base_url.unwrap_or_else(|| provider.base_url().to_owned()),
            key,
        }))
    }

    /// The endpoints of all providers in the environment, and the one whose address is given.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Settings`] if the file of a key cannot be read.
    pub fn all(given: Option<(Provider, &str)>) -> Result<BTreeMap<Provider, Endpoint>, ServiceError> {
        let mut endpoints = BTreeMap::new();
        for provider in Provider::ALL {
            let base_url = given.and_then(|(of, url)| (of == provider).then_some(url));
            if let Some(endpoint) = Endpoint::from_environment(provider, base_url)? {
                endpoints.insert(provider, endpoint);
            }
        }
        Ok(endpoints)
    }
}

/// The settings of a handler.
#[derive(Debug, Clone)]
pub struct LlmSettings {
    /// The endpoints of the providers that it may call.
    pub endpoints: BTreeMap<Provider, Endpoint>,
    /// The time limit of one call.
    pub timeout: Duration,
    /// The limits of the calls, for each model.
    pub limits: LimiterSettings,
    /// The prices of the models.
    pub prices: Prices,
}

/// The handler of the kind `llm`. The limiter of each model decides how many of its jobs call.
pub struct LlmHandler {
    settings: LlmSettings,
    services: Mutex<BTreeMap<(Provider, String), Service>>,
    equal: EqualRequests,
}

impl LlmHandler {
    /// Makes a handler.
    pub fn new(settings: LlmSettings) -> LlmHandler {
        LlmHandler {
            settings,
            services: Mutex::default(),
            equal: EqualRequests::default(),
        }
    }

    /// The client of a model.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Settings`] if there is no endpoint of the provider, or its address is malformed.
    pub fn service(&self, provider: Provider, model: &str) -> Result<Service, ServiceError> {
        let mut services = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = services.get(&(provider, model.to_owned())) {
            return Ok(known.clone());
        }
        let Some(endpoint) = self.settings.endpoints.get(&provider) else {
            let name = provider.variables();
            return Err(ServiceError::Settings(format!(
                "this worker cannot call {provider}: set {name}_API_KEY (or {name}_API_KEY_FILE) in its environment, or \
                 {name}_BASE_URL for a service that needs no key"
            )));
        };
        let settings = OpenAiSettings {
            base_url: endpoint.base_url.clone(),
            model: model.to_owned(),
            key: endpoint.key.clone(),
            timeout: self.settings.timeout,
        };
        let service = Service::of(provider, settings, Limiter::new(self.settings.limits))?;
        if services.len() >= MODELS_MAX {
            // Calls that run keep theirs. The others learn the limits again.
            services.clear();
        }
        services.insert((provider, model.to_owned()), service.clone());
        assert!(
            services.len() <= MODELS_MAX,
            "a worker remembers a limited number of models"
        );
        Ok(service)
    }

    async fn run_job(&self, job: &MicroBatchJob<'_>) -> Result<Answered, JobError> {
        let invalid = |reason: String| JobError::new("payload", reason).permanent();
        let request: Request = serde_json::from_str(job.payload)
            .map_err(|error| invalid(format!("the payload is no request to a model: {error}")))?;
        request.check().map_err(|error| invalid(error.to_string()))?;
        let key = Key::new(job.id.batch, job.payload);
        self.equal.once(key, || self.answer(&request)).await
    }

    async fn answer(&self, request: &Request) -> Result<Answered, JobError> {
        let service = self
            .service(request.provider, request.asked_model())
            .map_err(of_service)?;
        let asked = service
            .ask(request, &mut Usage::default())
            .await
            .map_err(of_service)?;
        self.answered(request, asked)
    }

    /// Checks the reply to a request.
    fn answered(&self, request: &Request, asked: Asked) -> Result<Answered, JobError> {
        let Asked { reply, dropped } = asked;
        let tokens = reply.usage;
        let cost = self
            .settings
            .prices
            .cost(request.asked_model(), reply.model.as_deref(), &tokens);
        let failed = |kind: &str, reason: String| JobError::new(kind, paid(&reason, &tokens, cost));
        let answer = reply.answer.map_err(|reason| {
            failed("declined", format!("the model declined to answer: {reason}")).permanent()
        })?;
        let json = match &request.schema {
            None => None,
            Some(schema) => Some(checked(schema, &answer).map_err(|(kind, reason)| failed(kind, reason))?),
        };
        Ok(Answered {
            text: json.is_none().then_some(answer.content),
            json,
            model: reply.model.unwrap_or_else(|| request.asked_model().to_owned()),
            tokens,
            cost,
            lane: Lane::Live,
            cut: answer.is_cut,
            shared: false,
            dropped: dropped.into_iter().map(str::to_owned).collect(),
        })
    }
}

/// The JSON of an answer, if it has the form of the schema.
fn checked(schema: &Value, answer: &Answer) -> Result<Value, (&'static str, String)> {
    let excerpt = || {
        let begin: String = answer.content.chars().take(EXCERPT_CHARACTERS_MAX).collect();
        format!("the answer begins: {begin}")
    };
    let parsed: Result<Value, String> = parse_answer(&answer.content);
    let json = match parsed {
        Ok(json) => json,
        Err(_) if answer.is_cut => {
            let reason = "the limit of tokens cut the answer off; raise max_tokens".to_owned();
            return Err(("cut", reason));
        }
        Err(reason) => {
            return Err((
                "schema",
                format!("the answer is not JSON: {reason}; {}", excerpt()),
            ));
        }
    };
    let form = Schema::new(schema).map_err(|reason| ("payload", reason))?;
    match form.check(&json) {
        Ok(()) => Ok(json),
        Err(reason) => Err(("schema", format!("{reason}; {}", excerpt()))),
    }
}

/// The reason of a failure, with what it has cost all the same.
fn paid(reason: &str, tokens: &TokenUsage, cost: Option<f64>) -> String {
    let cost = cost.map_or_else(String::new, |cost| format!(", cost {cost:.6}"));
    format!(
        "{reason} (paid all the same: {} tokens in, {} out{cost})",
        tokens.prompt_tokens, tokens.completion_tokens
    )
}

/// The error of a job whose service gave no answer.
fn of_service(error: ServiceError) -> JobError {
    let failed = JobError::new(error.kind(), error.to_string());
    match error {
        ServiceError::Unavailable { .. } | ServiceError::Unreachable { .. } => failed,
        ServiceError::Refused { .. }
        | ServiceError::Denied { .. }
        | ServiceError::Declined { .. }
        | ServiceError::Settings(_) => failed.permanent(),
    }
}

#[async_trait]
impl Handler for LlmHandler {
    fn capacity(&self) -> Capacity {
        Capacity {
            runners: Some(self.settings.limits.concurrency.max(1) * READY_FACTOR),
            ..Capacity::default()
        }
    }

    async fn run(&self, _: usize, work: MicroBatch, sink: &dyn OutcomeSink) {
        run_calls(&work, sink, None, |job| async move {
            let answered = self.run_job(&job).await?;
            pack(&answered).map_err(|error| JobError::new("value", error.to_string()).permanent())
        })
        .await;
    }
}
