//! Jobs of the kind `llm`: the value of one, and the handler that runs them.

mod cost;
mod denials;
mod equal;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_model::JobError;
use gristmill_worker::{Capacity, Handler, MicroBatch, MicroBatchJob, OutcomeSink};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::answered::{Answered, Lane};
use crate::calls::{pack, run_calls};
use crate::limits::{DENIED_DELAY_MS, DENIED_FOR_MAX, MODELS_MAX, NO_KEY_DELAY_MS, READY_FACTOR};
use crate::prices::Prices;
use crate::provider::Provider;
use crate::request::Request;
use crate::schema::Schema;
use crate::service::answer::excerpt;
use crate::service::limiter::{Calling, Limiter, LimiterSettings};
use crate::service::{Answer, Asked, OpenAiSettings, Service, ServiceError, Usage, key_from_environment};
use cost::paid;
use denials::Denials;
use equal::{EqualRequests, Key};

/// The kind of jobs that ask a model.
pub const LLM_KIND: &str = "llm";

/// The address and the key of one provider.
#[derive(Clone)]
pub struct Endpoint {
    /// The address up to the version.
    base_url: String,
    /// The key, or the reason why it cannot be read, which matters to those that call. It is never printed, logged or stored.
    key: Result<Option<String>, ServiceError>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Endpoint")
    }
}

impl Endpoint {
    /// The endpoint with the key that the environment has for this provider. Without an address, it is the one in the
    /// environment, or else the provider's own. `None` if there is neither a key nor an address.
    fn from_environment(provider: Provider, base_url: Option<&str>) -> Option<Endpoint> {
        let key = key_from_environment(provider);
        let variable = std::env::var(format!("{}_BASE_URL", provider.variables())).ok();
        let base_url = base_url
            .map(str::to_owned)
            .or(variable.filter(|url| !url.is_empty()));
        if key == Ok(None) && base_url.is_none() {
            return None;
        }
        Some(Endpoint {
            base_url: base_url.unwrap_or_else(|| provider.base_url().to_owned()),
            key,
        })
    }

    /// The endpoints of all providers in the environment, and the one whose address is given.
    pub fn all(given: Option<(Provider, &str)>) -> BTreeMap<Provider, Endpoint> {
        let mut endpoints = BTreeMap::new();
        for provider in Provider::ALL {
            let base_url = given.and_then(|(of, url)| (of == provider).then_some(url));
            if let Some(endpoint) = Endpoint::from_environment(provider, base_url) {
                endpoints.insert(provider, endpoint);
            }
        }
        endpoints
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
    /// The pause before the handler asks a provider again that refuses all requests of the key. Its jobs wait meanwhile, and are
    /// not charged an attempt. With `None` they wait for ever: the caller ends the work when [`LlmHandler::denied`] tells it.
    pub denied_pause: Option<Duration>,
}

/// The handler of the kind `llm`. The limiter of each model decides how many of its jobs call.
pub struct LlmHandler {
    settings: LlmSettings,
    services: Mutex<BTreeMap<(Provider, String), Service>>,
    equal: EqualRequests,
    denials: Denials,
}

impl LlmHandler {
    /// Makes a handler.
    pub fn new(settings: LlmSettings) -> LlmHandler {
        LlmHandler {
            settings,
            services: Mutex::default(),
            equal: EqualRequests::default(),
            denials: Denials::default(),
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
            key: endpoint.key.clone()?,
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
        self.equal.once(key, job.id, || self.answer(&request)).await
    }

    async fn answer(&self, request: &Request) -> Result<Answered, JobError> {
        let service = self
            .service(request.provider, request.asked_model())
            .map_err(of_service)?;
        let begun_at = Instant::now();
        loop {
            self.denials.passed(request.provider).await;
            match service.ask(request, &mut Usage::default()).await {
                Ok(asked) => return self.answered(request, asked),
                Err(error) if error.is_of_key() && begun_at.elapsed() < DENIED_FOR_MAX => {
                    // A drain gives the job back.
                    Calling::waits();
                    self.denials
                        .note(request.provider, self.settings.denied_pause, &error);
                }
                Err(error) => return Err(of_service(error)),
            }
        }
    }

    /// The last refusal of all requests of a key, if there was one. Nothing more is sent to that provider meanwhile.
    pub fn denied(&self) -> watch::Receiver<Option<String>> {
        self.denials.last.subscribe()
    }

    /// Checks the reply to a request.
    fn answered(&self, request: &Request, asked: Asked) -> Result<Answered, JobError> {
        let Asked { reply, dropped } = asked;
        let tokens = reply.usage;
        let prices = &self.settings.prices;
        let cost =
            tokens.and_then(|tokens| prices.cost(request.asked_model(), reply.model.as_deref(), &tokens));
        let failed = |kind: &str, reason: String| JobError::new(kind, paid(&reason, tokens, cost));
        let answer = reply.answer.map_err(|reason| {
            failed("declined", format!("the model declined to answer: {reason}")).permanent()
        })?;
        let is_empty = answer.content.trim().is_empty();
        if is_empty && !answer.is_cut {
            let reason = "the model's answer has no words, only thoughts or calls of tools, or nothing";
            return Err(failed("empty", reason.to_owned()));
        }
        if answer.is_cut && (is_empty || request.schema.is_some() && answer.json::<Value>().is_err()) {
            let reason = "the limit of tokens cut the answer off; raise max_tokens";
            return Err(failed("cut", reason.to_owned()).permanent());
        }
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
    let begins = || format!("the answer begins: {}", excerpt(&answer.content));
    let json = match answer.json() {
        Ok(json) => json,
        Err(reason) => {
            return Err((
                "schema",
                format!("the answer is not JSON: {reason}; {}", begins()),
            ));
        }
    };
    let form = Schema::new(schema).map_err(|reason| ("payload", reason))?;
    match form.check(&json) {
        Ok(()) => Ok(json),
        Err(reason) => Err(("schema", format!("{reason}; {}", begins()))),
    }
}

/// The error of a job whose service gave no answer.
fn of_service(error: ServiceError) -> JobError {
    let failed = JobError::new(error.kind(), error.to_string());
    match error {
        // Another worker may have the key, and this one may get it.
        ServiceError::Settings(_) => failed.retry_after_ms(NO_KEY_DELAY_MS),
        _ if error.is_of_key() => failed.retry_after_ms(DENIED_DELAY_MS),
        ServiceError::Unavailable { .. } | ServiceError::Unreachable { .. } => failed,
        ServiceError::Refused { .. } | ServiceError::Denied { .. } | ServiceError::Declined { .. } => {
            failed.permanent()
        }
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

#[cfg(test)]
mod tests {
    use gristmill_test_tools::provider::{Fault, StandInProvider};
    use serde_json::json;

    use super::*;
    use crate::service::Reply;

    fn handler(base_url: &str, denied_pause: Option<Duration>) -> LlmHandler {
        let endpoint = Endpoint {
            base_url: base_url.to_owned(),
            key: Ok(Some("secret".to_owned())),
        };
        LlmHandler::new(LlmSettings {
            endpoints: BTreeMap::from([(Provider::Openai, endpoint)]),
            timeout: Duration::from_secs(20),
            limits: LimiterSettings::default(),
            prices: Prices::default(),
            denied_pause,
        })
    }

    fn request() -> Request {
        Request {
            model: "m".to_owned(),
            prompt: Some("bees".to_owned()),
            ..Request::default()
        }
    }

    #[tokio::test]
    async fn jobs_wait_while_a_provider_refuses_the_key() {
        let stand_in = StandInProvider::start().await;
        stand_in
            .lie(|call| (call.before < 3).then(|| Fault::Reject(401, Vec::new(), "wrong key".to_owned())));
        let handler = handler(&stand_in.base_url, Some(Duration::from_millis(5)));
        let answered = handler.answer(&request()).await.expect("an answer in the end");
        assert_eq!(answered.text.as_deref(), Some("BEES"));
        let told = handler.denied().borrow().clone().unwrap_or_default();
        assert!(told.contains("wrong key"), "{told}");
        assert_eq!(stand_in.calls("live"), 4);
    }

    #[tokio::test]
    async fn a_refusal_of_the_key_is_told_and_nothing_more_is_sent() {
        let stand_in = StandInProvider::start().await;
        stand_in.lie(|_| Some(Fault::Reject(402, Vec::new(), "no credit".to_owned())));
        let handler = handler(&stand_in.base_url, None);
        let mut denied = handler.denied();
        let (request, other) = (request(), request());
        let (first, second) = (handler.answer(&request), handler.answer(&other));
        tokio::select! {
            _ = first => panic!("it waits for the end of the work"),
            _ = async { denied.wait_for(Option::is_some).await.expect("the handler lives").is_some() } => {}
        }
        let mut second = Box::pin(second);
        assert!(futures::poll!(&mut second).is_pending());
        assert_eq!(stand_in.calls("live"), 1);
    }

    #[tokio::test]
    async fn a_missing_key_and_a_refusal_of_the_key_kill_no_job() {
        let denied = |status| ServiceError::Denied {
            status,
            reason: String::new(),
        };
        for error in [denied(401), denied(429), ServiceError::Settings(String::new())] {
            let failed = of_service(error);
            assert!(!failed.permanent && failed.retry_after_ms.is_some(), "{failed:?}");
        }
        assert!(
            of_service(denied(404)).permanent,
            "the model's name is the job's own"
        );
    }

    #[tokio::test]
    async fn answers_without_words_or_with_a_part_of_the_json_fail() {
        let handler = handler("http://127.0.0.1:9/v1", None);
        let with = |content: &str, is_cut, schema: Option<Value>| {
            let reply = Reply {
                answer: Ok(Answer {
                    content: content.to_owned(),
                    is_cut,
                }),
                usage: None,
                model: None,
            };
            let request = Request { schema, ..request() };
            let dropped = Vec::new();
            handler.answered(&request, Asked { reply, dropped })
        };
        let form = || Some(json!({"type": "object"}));
        for (content, is_cut, schema, kind) in [
            (" ", false, None, "empty"),
            ("", true, None, "cut"),
            (r#"{"items": [{"a": 1}, {"b"#, true, form(), "cut"),
            (r#"Here: {"a": 1} and"#, true, form(), "cut"),
            (r#"["a"]"#, false, form(), "schema"),
        ] {
            let failed = with(content, is_cut, schema).expect_err(content);
            assert_eq!(
                (failed.error_type.as_str(), failed.permanent),
                (kind, kind == "cut")
            );
            assert!(
                failed.message.contains("paid all the same, perhaps"),
                "{}",
                failed.message
            );
        }
        let whole = with(r#"{"a": 1}"#, true, form()).expect("it is whole");
        assert_eq!(
            (whole.json, whole.tokens, whole.cost),
            (Some(json!({"a": 1})), None, None)
        );
        assert!(with("Hu", true, None).is_ok_and(|answered| answered.cut));
    }
}
