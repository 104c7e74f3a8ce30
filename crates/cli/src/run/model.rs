//! Requests to models, made of the items of a run.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, bail};
use gristmill_engine::Handler;
use gristmill_llm::job::{Endpoint, LlmHandler, LlmSettings};
use gristmill_llm::prices::Prices;
use gristmill_llm::request::Request;
use gristmill_llm::service::limiter::LimiterSettings;
use gristmill_model::item;
use gristmill_runtime::{field_names, fill_template};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::arguments::model::llm::{LlmArguments, PricesArguments};
use crate::input::Payloads;

/// Requests to models, made of the items of a run.
pub struct ModelWork {
    requests: Arc<Requests>,
    settings: LlmSettings,
    /// The refusal of all requests of the key, once there is a handler.
    denied: OnceLock<watch::Receiver<Option<String>>>,
}

/// The form of the requests.
struct Requests {
    /// The fields of requests whose items do not have them.
    defaults: Request,
    template: Option<String>,
}

impl ModelWork {
    /// Reads the options.
    pub fn of(arguments: &LlmArguments) -> anyhow::Result<ModelWork> {
        let schema = match &arguments.schema {
            None => None,
            Some(file) => {
                let text =
                    std::fs::read_to_string(file).with_context(|| format!("--schema {}", file.display()))?;
                let schema: Value = serde_json::from_str(&text)
                    .with_context(|| format!("--schema {} is not JSON", file.display()))?;
                Some(schema)
            }
        };
        let template = text_of("--template", arguments.template.as_deref())?;
        let defaults = Request {
            provider: arguments.provider,
            model: arguments.model.clone().unwrap_or_default(),
            system: text_of("--system", arguments.system.as_deref())?,
            schema,
            max_tokens: arguments.max_tokens,
            temperature: arguments.temperature,
            ..Request::default()
        };
        let probe = Request {
            prompt: Some(String::new()),
            model: arguments.model.clone().unwrap_or_else(|| "any".to_owned()),
            ..defaults.clone()
        };
        probe.check()?;
        if let Some(template) = &template
            && fill_template(template, "1") == fill_template(template, "2")
            && field_names(template).is_empty()
        {
            bail!(
                "--template has no place for the item, so all requests would be equal: write {{}} or {{field}} into it"
            );
        }
        if template.is_some() && arguments.model.is_none() {
            bail!("--template makes requests of data, which names no model: give --model");
        }
        let limits = LimiterSettings {
            concurrency: arguments.concurrency as usize,
            tokens_per_minute: arguments.tokens_per_minute.map(|tokens| tokens as f64),
            requests_per_minute: arguments.requests_per_minute.map(|requests| requests as f64),
        };
        let settings = LlmSettings {
            endpoints: Endpoint::all(arguments.base_url.as_deref().map(|url| (arguments.provider, url))),
            timeout: arguments.call_timeout,
            limits,
            prices: arguments.prices.read()?,
            // The run ends, and goes on when the key is mended.
            denied_pause: None,
        };
        let requests = Arc::new(Requests { defaults, template });
        Ok(ModelWork {
            requests,
            settings,
            denied: OnceLock::new(),
        })
    }

    /// Makes the payload of an item.
    pub fn payloads(&self) -> Payloads {
        let requests = self.requests.clone();
        Payloads(Arc::new(move |item| requests.payload(item)))
    }

    /// The options by which two runs are told apart.
    pub fn options(&self) -> String {
        json!({ "defaults": self.requests.defaults, "template": self.requests.template }).to_string()
    }

    /// The handler. Fails if the provider cannot be reached or refuses the key, before any job is made.
    pub async fn start(&self) -> anyhow::Result<Arc<dyn Handler>> {
        let handler = LlmHandler::new(self.settings.clone());
        let _ = self.denied.set(handler.denied());
        let defaults = &self.requests.defaults;
        // Without a default model, items name the providers that they use.
        if !defaults.model.is_empty() {
            handler
                .service(defaults.provider, &defaults.model)?
                .reach()
                .await?;
        }
        Ok(Arc::new(handler))
    }

    /// Resolves with the reason when the provider refuses all requests of the key.
    pub async fn denied(&self) -> String {
        let Some(denied) = self.denied.get() else {
            return std::future::pending().await;
        };
        match denied.clone().wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }
}

impl Requests {
    /// The request of an item, as JSON. An error is the problem of the item.
    fn payload(&self, item: &str) -> Result<String, String> {
        let request = match &self.template {
            Some(template) => {
                if let Some(missing) = field_names(template)
                    .into_iter()
                    .find(|name| item::field(item, name).is_none())
                {
                    return Err(format!(
                        "it has no field `{missing}` for {{{missing}}} of --template"
                    ));
                }
                let prompt = fill_template(template, item);
                Request {
                    prompt: Some(prompt),
                    ..self.defaults.clone()
                }
            }
            None => self.own_request(item)?,
        };
        request.check().map_err(|error| error.to_string())?;
        serde_json::to_string(&request).map_err(|error| error.to_string())
    }

    /// The request that the item is.
    fn own_request(&self, item: &str) -> Result<Request, String> {
        let value: Value = serde_json::from_str(item).map_err(|error| format!("not JSON: {error}"))?;
        match value {
            Value::String(prompt) => Ok(Request {
                prompt: Some(prompt),
                ..self.defaults.clone()
            }),
            Value::Object(fields) => {
                let own: BTreeSet<String> = fields.keys().cloned().collect();
                let request: Request = serde_json::from_value(Value::Object(fields))
                    .map_err(|error| format!("no request to a model: {error}; for items that are data, give --template"))?;
                Ok(request.or(&self.defaults, &own))
            }
            _ => Err("neither a prompt (a string) nor a request (an object); for items that are data, give --template".to_owned()),
        }
    }
}

/// The text of an option, or of the file that it names.
fn text_of(option: &str, text: Option<&str>) -> anyhow::Result<Option<String>> {
    let Some(text) = text else { return Ok(None) };
    match text.strip_prefix('@') {
        None => Ok(Some(text.to_owned())),
        Some(file) => {
            let read = std::fs::read_to_string(Path::new(file));
            Ok(Some(read.with_context(|| format!("{option} {text}"))?))
        }
    }
}

impl PricesArguments {
    /// The prices in the file, or none.
    pub fn read(&self) -> anyhow::Result<Prices> {
        match &self.prices {
            None => Ok(Prices::default()),
            Some(file) => Ok(Prices::read(file)?),
        }
    }
}
