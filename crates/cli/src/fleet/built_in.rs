//! The program's own handlers: extractions, webhooks and requests to models.

use std::sync::Arc;

use anyhow::bail;
use gristmill_engine::{Handler, Kind};
use gristmill_llm::job::LLM_KIND;
use gristmill_memory::pipeline::job::{Extract, ExtractHandler, worker_settings};
use gristmill_model::WEBHOOK_KIND;
use gristmill_model::batch::check_name;

use crate::fleet::working::Handlers;
use crate::memory::models::Extracting;

impl Handlers {
    /// Adds the extractions of ingestions that run elsewhere.
    pub fn with_extractions(mut self, extracting: Option<Extracting>) -> anyhow::Result<Handlers> {
        let Some(extracting) = extracting else {
            return Ok(self);
        };
        self.buffer_target = worker_settings(&*extracting.extractor, extracting.concurrency).buffer_target;
        let handler = ExtractHandler::new(extracting.extractor, extracting.concurrency);
        self.with_built_in(
            "--extractor",
            Extract::NAME,
            Some(Arc::new(handler)),
            &[Extract::QUEUE.to_owned()],
        )
    }

    /// Adds the webhooks of jobs in `queues`.
    pub fn with_webhooks(
        self,
        webhooks: Option<Arc<dyn Handler>>,
        queues: &[String],
    ) -> anyhow::Result<Handlers> {
        self.with_built_in("--http-hooks", WEBHOOK_KIND, webhooks, queues)
    }

    /// Adds the requests to models in `queues`.
    pub fn with_llm(self, llm: Option<Arc<dyn Handler>>, queues: &[String]) -> anyhow::Result<Handlers> {
        self.with_built_in("--llm", LLM_KIND, llm, queues)
    }

    /// Adds the handler that an option asks for, if it does.
    fn with_built_in(
        mut self,
        option: &str,
        kind: &str,
        handler: Option<Arc<dyn Handler>>,
        queues: &[String],
    ) -> anyhow::Result<Handlers> {
        let Some(handler) = handler else {
            return Ok(self);
        };
        if self.by_kind.iter().any(|(known, _)| known == kind) {
            bail!("{option} runs the kind `{kind}`; give the script another --kind");
        }
        self.by_kind.push((kind.to_owned(), handler));
        for queue in queues {
            check_name("queue", queue)?;
            self.serve_queue(queue);
        }
        Ok(self)
    }
}
