//! The options of [`FilterArguments`] as a filter of the store.

use gristmill_operations::jobs::selection::FilterRequest;
use gristmill_operations::{Access, Refused};
use gristmill_store::{JobFilter, Run, Store};

use crate::arguments::job::FilterArguments;
use crate::exit::{NotFound, refused};
use crate::span::milliseconds;

impl FilterArguments {
    /// The filter, with the run looked up.
    pub async fn resolve(&self, store: &dyn Store) -> anyhow::Result<JobFilter> {
        let ago = |span| {
            let span_ms = i64::try_from(milliseconds(span)).unwrap_or(i64::MAX);
            store.now().plus_ms(-span_ms).0
        };
        let request = FilterRequest {
            states: self.states.iter().map(ToString::to_string).collect(),
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            group: self.group.clone(),
            run: self.run.clone(),
            batch: self.batch,
            since: self.since.map(ago),
            until: self.until.map(ago),
            tags: self.tags.clone(),
            key: self.key.clone(),
            key_prefix: self.key_prefix.clone(),
            parent: self.parent.map(|parent| parent.to_string()),
        };
        filter_of(store, request).await
    }
}

/// The filter of a request. An unknown run is an error that names the existing runs.
pub async fn filter_of(store: &dyn Store, request: FilterRequest) -> anyhow::Result<JobFilter> {
    let run = request.run.clone();
    match (request.filter(store, &Access::all()).await, run) {
        (Err(Refused::NotFound { what: "run", .. }), Some(run)) => {
            Err(unknown_run(store, &run).await?.into())
        }
        (filter, _) => filter.map_err(refused),
    }
}

/// The run with this name, or an error that names the existing runs.
pub async fn find_run(store: &dyn Store, name: &str) -> anyhow::Result<Run> {
    match store.run(name).await? {
        Some(run) => Ok(run),
        None => Err(unknown_run(store, name).await?.into()),
    }
}

async fn unknown_run(store: &dyn Store, name: &str) -> anyhow::Result<NotFound> {
    let names: Vec<String> = store
        .runs()
        .await?
        .into_iter()
        .take(10)
        .map(|run| format!("`{}`", run.name))
        .collect();
    Ok(NotFound(match names.as_slice() {
        [] => format!("run `{name}` does not exist: this store has no runs"),
        names => format!("run `{name}` does not exist; this store has {}", names.join(", ")),
    }))
}
