//! The completion hook of a run.

use gristmill_model::batch::DEFAULT_QUEUE;
use gristmill_model::{Hooks, JobState, NewBatch};
use gristmill_store::hook::EndSummary;
use gristmill_store::{JobFilter, Store};

use crate::run::identity::queue_of;
use crate::run::plan::Plan;

/// The job that gets the summary of a run whose jobs have all ended, if its hooks name a recipient for this end. It is on
/// the default queue: only the run itself serves the queue of the run.
pub async fn hook_of(
    store: &dyn Store,
    plan: &Plan,
    name: &str,
    hooks: Option<&Hooks>,
) -> anyhow::Result<Option<NewBatch>> {
    let Some(hooks) = hooks else {
        return Ok(None);
    };
    let filter = JobFilter {
        run: Some(plan.run),
        ..JobFilter::default()
    };
    let mut counts = store.counts(&filter).await?;
    let begun_at = store.run(name).await?.map(|run| run.created_at);
    let mut summary = EndSummary {
        outcome: String::new(),
        name: Some(name.to_owned()),
        batch: None,
        run: Some(name.to_owned()),
        kind: plan.kind.clone(),
        queue: queue_of(name),
        jobs: 0,
        completed: 0,
        dead: 0,
        cancelled: 0,
        expired: 0,
        submitted_at: begun_at.unwrap_or_else(|| store.now()).to_string(),
        ended_at: store.now().to_string(),
    };
    for state in JobState::ALL.into_iter().filter(|state| state.is_final()) {
        summary.add(state, *counts.get_mut(state));
    }
    let target = hooks.target(summary.is_success());
    let hook = target.map(|target| summary.job(target, DEFAULT_QUEUE));
    Ok(hook.transpose()?)
}
