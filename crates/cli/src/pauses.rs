//! Pauses of queues, kinds and groups, as listings and workers show them.

use gristmill_model::{Control, Effect, JobState, Scope};
use gristmill_store::{JobFilter, JobPause, JobRow, Store, StoreError};

use crate::output::summary::quote;
use crate::span::show_count;

/// The pauses of queues, kinds and groups in a store.
#[derive(Debug, Default)]
pub struct Pauses(Vec<JobPause>);

impl Pauses {
    /// Reads the pauses.
    pub async fn of(store: &dyn Store) -> Result<Pauses, StoreError> {
        let pauses = store.controls().await?.into_iter().filter_map(|control| {
            let Control { scope, effect } = control;
            match effect {
                Effect::Pause { reason, until } => Some(JobPause {
                    reason,
                    until,
                    scope: Some(scope),
                }),
                _ => None,
            }
        });
        Ok(Pauses(pauses.collect()))
    }

    /// The pauses that hold a listed job. Its own pauses are part of its state.
    pub fn of_job(&self, row: &JobRow) -> Vec<&JobPause> {
        if !matches!(row.state, JobState::Waiting | JobState::Scheduled) {
            return Vec::new();
        }
        let group = row.group.as_deref().unwrap_or_default();
        let holds = |scope: &Scope| scope.covers(&row.queue, &row.kind, group);
        self.0
            .iter()
            .filter(|pause| pause.scope.as_ref().is_some_and(holds))
            .collect()
    }

    /// The pauses that hold jobs of a kind on a queue, including those that hold only one group.
    pub fn of_lane(&self, queue: &str, kind: &str) -> Vec<&JobPause> {
        let holds = |scope: &Scope| {
            let group = scope.group.as_deref().unwrap_or_default();
            scope.covers(queue, kind, group)
        };
        self.0
            .iter()
            .filter(|pause| pause.scope.as_ref().is_some_and(holds))
            .collect()
    }
}

/// Pauses of a lane in one cell: `stocktaking, outage (group acme)`.
pub fn show_pauses(pauses: &[&JobPause]) -> String {
    let shown = pauses.iter().map(|pause| {
        let group = pause.scope.as_ref().and_then(|scope| scope.group.as_deref());
        match group {
            Some(group) => format!("{} (group {group})", pause.reason),
            None => pause.reason.clone(),
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Describes the paused jobs of a kind on a queue: one line for paused single jobs, and one line for each pause of
/// queues, kinds or groups.
pub async fn describe_held(
    store: &dyn Store,
    pauses: &Pauses,
    queue: &str,
    kind: &str,
) -> Result<Vec<String>, StoreError> {
    let in_state = |states: &[JobState], group: Option<String>| JobFilter {
        states: states.to_vec(),
        queue: Some(queue.to_owned()),
        kind: Some(kind.to_owned()),
        group,
        ..JobFilter::default()
    };
    let mut lines = Vec::new();
    let single = store.counts(&in_state(&[JobState::Paused], None)).await?.total();
    if single > 0 {
        lines.push(format!(
            "{} of kind {kind} on queue {queue}: gristmill jobs --state paused",
            paused_jobs(single)
        ));
    }
    for pause in pauses.of_lane(queue, kind) {
        let scope = pause.scope.clone().unwrap_or_default();
        let held = in_state(&[JobState::Waiting, JobState::Scheduled], scope.group.clone());
        let held = store.counts(&held).await?.total();
        if held > 0 {
            lines.push(format!(
                "{} of kind {kind} on queue {queue} ({}); to resume: gristmill resume{} --reason {}",
                paused_jobs(held),
                pause.reason,
                scope_options(&scope),
                quote(&pause.reason)
            ));
        }
    }
    Ok(lines)
}

fn paused_jobs(count: u64) -> String {
    match count {
        1 => "a pause holds 1 job".to_owned(),
        count => format!("a pause holds {} jobs", show_count(count)),
    }
}

/// The options that name a scope: ` --kind total`.
fn scope_options(scope: &Scope) -> String {
    let named = [
        ("queue", &scope.queue),
        ("kind", &scope.kind),
        ("group", &scope.group),
    ];
    let options: String = named
        .iter()
        .filter_map(|(option, name)| Some(format!(" --{option} {}", quote(name.as_ref()?))))
        .collect();
    if options.is_empty() {
        " --all".to_owned()
    } else {
        options
    }
}
