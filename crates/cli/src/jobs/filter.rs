//! The options of [`FilterArguments`] as a filter of the store.

use std::sync::Arc;

use gristmill_model::{BatchId, TagCondition};
use gristmill_store::{JobFilter, Run, Store};

use crate::arguments::job::FilterArguments;
use crate::exit::NotFound;
use crate::span::milliseconds;

impl FilterArguments {
    /// The filter, with the run looked up.
    pub async fn resolve(&self, store: &Arc<dyn Store>) -> anyhow::Result<JobFilter> {
        let run = match &self.run {
            Some(name) => Some(find_run(store, name).await?.id),
            None => None,
        };
        let ago = |span| {
            let span_ms = i64::try_from(milliseconds(span)).unwrap_or(i64::MAX);
            store.now().plus_ms(-span_ms)
        };
        Ok(JobFilter {
            states: self.states.clone(),
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            group: self.group.clone(),
            run,
            batch: self.batch.map(BatchId),
            submitted_since: self.since.map(ago),
            submitted_until: self.until.map(ago),
            key: self.key.clone(),
            key_prefix: self.key_prefix.clone(),
            tags: self.tags.iter().map(|text| TagCondition::parse(text)).collect(),
            parent: self.parent,
        })
    }
}

/// The run with this name, or an error that names the existing runs.
pub async fn find_run(store: &Arc<dyn Store>, name: &str) -> anyhow::Result<Run> {
    if let Some(run) = store.run(name).await? {
        return Ok(run);
    }
    let names: Vec<String> = store
        .runs()
        .await?
        .into_iter()
        .take(10)
        .map(|run| format!("`{}`", run.name))
        .collect();
    let error = match names.as_slice() {
        [] => format!("run `{name}` does not exist: this store has no runs"),
        names => format!("run `{name}` does not exist; this store has {}", names.join(", ")),
    };
    Err(NotFound(error).into())
}
