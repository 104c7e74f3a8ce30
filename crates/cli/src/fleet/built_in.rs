//! The program's own handlers: extractions and webhooks.

use std::sync::Arc;

use anyhow::bail;
use gristmill_engine::{Handler, Kind};
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
        if self.by_kind.iter().any(|(kind, _)| kind == Extract::NAME) {
            bail!(
                "--extractor runs the kind `{}`; give the script another --kind",
                Extract::NAME
            );
        }
        self.buffer_target = worker_settings(&*extracting.extractor, extracting.concurrency).buffer_target;
        let handler = ExtractHandler::new(extracting.extractor, extracting.concurrency);
        self.by_kind.push((Extract::NAME.to_owned(), Arc::new(handler)));
        self.serve_queue(Extract::QUEUE);
        Ok(self)
    }

    /// Adds the webhooks of jobs in `queues`.
    pub fn with_webhooks(
        mut self,
        webhooks: Option<Arc<dyn Handler>>,
        queues: &[String],
    ) -> anyhow::Result<Handlers> {
        let Some(webhooks) = webhooks else {
            return Ok(self);
        };
        if self.by_kind.iter().any(|(kind, _)| kind == WEBHOOK_KIND) {
            bail!("--http-hooks runs the kind `{WEBHOOK_KIND}`; give the script another --kind");
        }
        self.by_kind.push((WEBHOOK_KIND.to_owned(), webhooks));
        for queue in queues {
            check_name("queue", queue)?;
            self.serve_queue(queue);
        }
        Ok(self)
    }
}
