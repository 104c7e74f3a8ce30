//! Makes extractors, embedders and model services from the command line.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use gristmill_llm::provider::Provider;
use gristmill_memory::embed::{CrossEncoder, Embedder, OpenAiEmbedder, open_local};
use gristmill_memory::extract::{Extractor, Limiter, LimiterSettings, LocalExtractor, OpenAiExtractor};
use gristmill_memory::service::{BASE_URL_DEFAULT, OpenAiSettings, Service, key_from_environment};

use crate::arguments::memory::IngestArguments;
use crate::arguments::model::{
    CALLS_DEFAULT, CallArguments, EmbedderArguments, EmbedderChoice, ExtractorArguments, ExtractorChoice,
    LocalModel, RerankChoice, ServiceArguments,
};
use crate::arguments::shared::ConcurrencyArguments;

/// The time limit of a call for vectors.
const EMBEDDING_TIMEOUT: Duration = Duration::from_secs(120);

impl ServiceArguments {
    /// The model service, if there is a key or an address for one.
    pub fn service(&self, limits: LimiterSettings) -> anyhow::Result<Option<Service>> {
        self.service_of(self.model(), self.base_url.as_deref(), self.timeout, limits)
    }

    /// The model service, if the user names one. Commands that work without a model contact no other.
    pub fn named_service(&self, limits: LimiterSettings) -> anyhow::Result<Option<Service>> {
        match self.is_named() {
            true => self.service(limits),
            false => Ok(None),
        }
    }

    fn service_of(
        &self,
        model: String,
        base_url: Option<&str>,
        timeout: Duration,
        limits: LimiterSettings,
    ) -> anyhow::Result<Option<Service>> {
        let key = key_from_environment(Provider::Openai)?;
        if key.is_none() && base_url.is_none() {
            return Ok(None);
        }
        let settings = OpenAiSettings {
            base_url: base_url.unwrap_or(BASE_URL_DEFAULT).to_owned(),
            model,
            key,
            timeout,
        };
        Ok(Some(Service::new(settings, Limiter::new(limits))?))
    }

    /// A service with the model's name, which this process never calls.
    fn unasked(&self) -> anyhow::Result<Service> {
        let settings = OpenAiSettings {
            base_url: BASE_URL_DEFAULT.to_owned(),
            model: self.model(),
            key: None,
            timeout: self.timeout,
        };
        Ok(Service::new(settings, Limiter::new(LimiterSettings::default()))?)
    }

    /// The model service. Fails if it is unreachable or refuses the key. `what` names the option that needs it.
    pub async fn reachable_service(&self, what: &str, limits: LimiterSettings) -> anyhow::Result<Service> {
        let Some(service) = self.service(limits)? else {
            bail!(no_model(what));
        };
        service.reach().await?;
        Ok(service)
    }
}

/// The error without a model service.
pub fn no_model(what: &str) -> String {
    format!(
        "{what} needs a model: set OPENAI_API_KEY (or OPENAI_API_KEY_FILE) in the environment, or name a service that \
         needs no key with --base-url"
    )
}

impl EmbedderArguments {
    /// The embedder, if one is chosen.
    pub fn open(&self, service: &ServiceArguments) -> anyhow::Result<Option<Arc<dyn Embedder>>> {
        match &self.embedder {
            EmbedderChoice::None => Ok(None),
            EmbedderChoice::Local(model) => Ok(Some(open_local(&model.folder("--embedder")?)?)),
            EmbedderChoice::OpenAi(model) => {
                let base_url = self.embedding_base_url.as_ref().or(service.base_url.as_ref());
                let opened = service.service_of(
                    model.clone(),
                    base_url.map(String::as_str),
                    EMBEDDING_TIMEOUT,
                    LimiterSettings::default(),
                )?;
                let Some(opened) = opened else {
                    bail!(no_model("--embedder openai"));
                };
                Ok(Some(Arc::new(OpenAiEmbedder::of(opened))))
            }
        }
    }
}

impl RerankChoice {
    /// The cross-encoder, if one is chosen.
    pub fn open(&self) -> anyhow::Result<Option<CrossEncoder>> {
        match self {
            RerankChoice::None | RerankChoice::Model => Ok(None),
            RerankChoice::Local(model) => Ok(Some(CrossEncoder::open(&model.folder("--rerank")?)?)),
        }
    }
}

impl LocalModel {
    /// The folder of the model. `option` is the one that names it.
    fn folder(&self, option: &str) -> anyhow::Result<PathBuf> {
        match self {
            LocalModel::Folder(folder) => Ok(folder.clone()),
            LocalModel::Named(name) => {
                let folder = models_folder()?.join(name);
                if !folder.is_dir() {
                    bail!(
                        "{option} {name}: there is no model {}; name a folder such as ./{name}, or put the model there",
                        folder.display()
                    );
                }
                Ok(folder)
            }
        }
    }
}

/// The folder of the user's models.
fn models_folder() -> anyhow::Result<PathBuf> {
    let folder = |name: &str| {
        std::env::var_os(name)
            .filter(|text| !text.is_empty())
            .map(PathBuf::from)
    };
    folder("GRISTMILL_MODELS")
        .or_else(|| Some(folder("XDG_DATA_HOME")?.join("gristmill/models")))
        .or_else(|| Some(folder("HOME")?.join(".local/share/gristmill/models")))
        .context("there is no HOME to look for models in; set GRISTMILL_MODELS to the folder of the models")
}

impl CallArguments {
    /// The limits of this many concurrent calls.
    pub fn limits(&self, concurrency: u32) -> LimiterSettings {
        LimiterSettings {
            concurrency: concurrency as usize,
            tokens_per_minute: self.tokens_per_minute.map(|tokens| tokens as f64),
            requests_per_minute: self.requests_per_minute.map(|requests| requests as f64),
        }
    }
}

/// The extractor, and its maximum number of concurrent calls.
pub struct Extracting {
    /// The extractor.
    pub extractor: Arc<dyn Extractor>,
    /// The number of concurrent calls.
    pub concurrency: usize,
    /// True if the rules extract, because there is no model.
    pub is_fallback: bool,
    /// The limiter of the calls of this process.
    pub limiter: Option<Limiter>,
}

impl Extracting {
    fn by_rules(is_fallback: bool) -> Extracting {
        Extracting {
            extractor: Arc::new(LocalExtractor),
            concurrency: std::thread::available_parallelism().map_or(2, usize::from),
            is_fallback,
            limiter: None,
        }
    }

    fn by_model(service: Service, calls: &CallArguments, concurrency: u32) -> anyhow::Result<Extracting> {
        let limiter = service.limiter().clone();
        let extractor = OpenAiExtractor::of(service)
            .context("the extractor cannot be made")?
            .with_output_tokens_max(calls.output_tokens)
            .with_texts_per_call(calls.texts_per_call as usize);
        Ok(Extracting {
            extractor: Arc::new(extractor),
            concurrency: concurrency as usize,
            is_fallback: false,
            limiter: Some(limiter),
        })
    }
}

impl IngestArguments {
    /// The extractor. Its model service must be reachable and accept the key, unless other processes call it.
    pub async fn extracting(&self) -> anyhow::Result<Extracting> {
        let limits = self.calls.limits(self.concurrency);
        let service = match self.extractor {
            Some(ExtractorChoice::Local) => None,
            Some(ExtractorChoice::Openai) if self.calls_elsewhere => Some(self.service.unasked()?),
            Some(ExtractorChoice::Openai) => Some(
                self.service
                    .reachable_service("--extractor openai", limits)
                    .await?,
            ),
            None => match self.service.named_service(limits)? {
                Some(service) => {
                    service.reach().await?;
                    Some(service)
                }
                None => None,
            },
        };
        match service {
            Some(service) => Extracting::by_model(service, &self.calls, self.concurrency),
            None => Ok(Extracting::by_rules(self.extractor.is_none())),
        }
    }
}

impl ExtractorArguments {
    /// The extractor for ingestions that run elsewhere, if one was given. Its model service must be reachable and
    /// accept the key.
    pub async fn extracting(&self, concurrency: &ConcurrencyArguments) -> anyhow::Result<Option<Extracting>> {
        let calls_max = concurrency.concurrency.unwrap_or(CALLS_DEFAULT);
        match self.extractor {
            None => Ok(None),
            Some(ExtractorChoice::Local) => Ok(Some(Extracting::by_rules(false))),
            Some(ExtractorChoice::Openai) => {
                let service = self.service();
                let Some(service) = service.service(self.calls.limits(calls_max))? else {
                    bail!(
                        "--extractor openai needs a model: set OPENAI_API_KEY (or OPENAI_API_KEY_FILE) in the environment, \
                         or name a service that needs no key with --model-url"
                    );
                };
                service.reach().await?;
                Ok(Some(Extracting::by_model(service, &self.calls, calls_max)?))
            }
        }
    }
}
