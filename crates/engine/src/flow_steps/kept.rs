//! The steps that a fork has from its origin.

use gristmill_model::signal::{EVENT_KIND, SLEEP_KIND};
use gristmill_model::{JobId, Positions};
use gristmill_store::{ChildOutcome, JobCounts, Store, StoreError, Suspension};
use gristmill_worker::flow::{KeptSteps, kept_steps};

use super::{FlowStep, state_of};

/// The name of a step that is a sleep.
const SLEEP_STEP: &str = "@sleep";

/// The suspensions of a flow, in order.
pub(super) async fn suspensions_of(store: &dyn Store, flow: JobId) -> Result<Vec<Suspension>, StoreError> {
    let only = Positions::from(flow.position..flow.position + 1);
    let mut all = store.suspensions(flow.batch, &only).await?;
    Ok(all.pop().unwrap_or_default())
}

/// The beginning of a fork, or of a flow that has begun anew.
pub(super) fn beginning(suspensions: &[Suspension]) -> Option<KeptSteps> {
    kept_steps(&suspensions.first()?.memo)
}

/// The steps that a fork has from its origin.
pub(super) fn kept(beginning: &Option<KeptSteps>) -> Vec<FlowStep> {
    let Some(beginning) = beginning else {
        return Vec::new();
    };
    let mut outcomes = beginning.outcomes.iter();
    let begun = beginning.steps.iter().filter(|step| step.count != Some(0));
    let steps = begun.filter_map(|step| {
        let own: Vec<&ChildOutcome> = outcomes.by_ref().take(step.count.unwrap_or(1) as usize).collect();
        let mut counts = JobCounts::default();
        own.iter().for_each(|outcome| *counts.get_mut(outcome.state) += 1);
        let signal = step.name.strip_prefix('@');
        let is_sleep = step.name == SLEEP_STEP;
        let kind = if is_sleep { SLEEP_KIND } else { EVENT_KIND };
        Some(FlowStep {
            number: 0,
            name: Some(step.name.clone()),
            key: step.key.clone(),
            kind: signal.map(|_| kind.into()),
            job: own.first()?.job,
            jobs: step.count,
            state: state_of(counts),
            states: step.count.map(|_| counts),
            attempt: None,
            submitted_at: None,
            claimed_at: None,
            finished_at: None,
            event: signal.filter(|_| !is_sleep).map(str::to_owned),
            until: None,
            error: own
                .iter()
                .find_map(|outcome| Some(outcome.error.as_ref()?.message.clone())),
        })
    });
    let mut steps: Vec<FlowStep> = steps.collect();
    (0..)
        .zip(&mut steps)
        .for_each(|(number, step)| step.number = number);
    steps
}
