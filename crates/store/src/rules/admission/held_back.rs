//! Explains to a worker that claims without success what holds due jobs back. An idle worker asks once a minute; an
//! idle store answers with one seek.

use std::collections::BTreeMap;
use std::time::Duration;

use gristmill_model::{Control, Effect, JobState, Scope, Timestamp};

use crate::rules::lanes::{Lane, LaneName};
use crate::{JobFilter, Store, StoreError, Want};

/// How long a worker claims without success before it asks, and how long jobs must be due to be reported: others may be
/// about to claim later ones. Milliseconds.
pub const HELD_BACK_AFTER_MS: i64 = 10_000;

/// The maximum number of combinations of queue, kind and group with due jobs that are examined. Each may cost a count
/// of running jobs.
pub const DUE_LANES_MAX: usize = 20;

/// The maximum number of lanes with waiting jobs, of the wanted queues and kinds, that are examined for due jobs.
pub const WANTED_LANES_MAX: usize = 256;

/// The maximum number of reported reasons.
const REASONS_MAX: usize = 3;

/// How long the search may take. A worker asks with its heartbeat, which must not be late.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Says what holds back jobs that the worker wants and that have been due for [`HELD_BACK_AFTER_MS`]; `None` if there
/// are none, or if the store cannot answer in time.
pub async fn held_back(store: &dyn Store, want: &Want) -> Option<String> {
    tokio::time::timeout(LOOK_MAX, reasons(store, want))
        .await
        .ok()?
        .ok()?
}

async fn reasons(store: &dyn Store, want: &Want) -> Result<Option<String>, StoreError> {
    let due_by = Timestamp(store.now().0.saturating_sub(HELD_BACK_AFTER_MS));
    let due = store.due_lanes(want, due_by).await?;
    if due.is_empty() {
        return Ok(None);
    }
    let controls = store.controls().await?;
    // For each reason, one of its lanes, and the number of others.
    let mut found: BTreeMap<String, (&Lane, usize)> = BTreeMap::new();
    for lane in &due {
        let holding = controls_that_hold(store, &controls, lane.name()).await?;
        let reason = match holding.first() {
            Some(control) => reason(control),
            None => unknown(store).await?,
        };
        found.entry(reason).or_insert((lane, 0)).1 += 1;
    }
    let told = found.iter().take(REASONS_MAX).map(|(reason, (lane, lanes))| {
        let others = match lanes - 1 {
            0 => String::new(),
            1 => ", and of another kind, queue or group".to_owned(),
            others => format!(", and of {others} other kinds, queues or groups"),
        };
        format!("jobs of {}{others} are due: {reason}", lane.name())
    });
    Ok(Some(told.collect::<Vec<_>>().join("; ")))
}

fn reason(control: &Control) -> String {
    match control.effect {
        Effect::Pause { .. } => format!("a pause of {} holds them ({})", control.scope, control.effect),
        Effect::Rate { .. } => format!("perhaps a limit of {}: {}", control.scope, control.effect),
        _ => format!("a limit of {}: {}", control.scope, control.effect),
    }
}

/// The report for jobs that no control holds: a claim passes over jobs that another transaction has locked.
async fn unknown(store: &dyn Store) -> Result<String, StoreError> {
    let holders = store.lock_waits().await?.holders;
    Ok(match holders.as_slice() {
        [] => "no pause or limit holds them, so another transaction may have locked them".to_owned(),
        holders => format!(
            "no pause or limit holds them, so another transaction may have locked them; others wait for {}",
            holders.join(", ")
        ),
    })
}

/// The controls that forbid claiming a due job of a lane now: pauses, reached limits of running jobs, and rates, whose
/// tokens only a claim knows.
pub async fn controls_that_hold(
    store: &dyn Store,
    controls: &[Control],
    lane: LaneName<'_>,
) -> Result<Vec<Control>, StoreError> {
    let mut holding = Vec::new();
    for control in controls {
        if !control.scope.covers(lane.queue, lane.kind, lane.group) {
            continue;
        }
        let holds = match control.effect {
            Effect::Pause { until, .. } => until.is_none_or(|until| until > store.now()),
            Effect::Concurrency { jobs_max } => {
                running_under(store, &control.scope, lane.group).await? >= u64::from(jobs_max)
            }
            Effect::Rate { .. } => true,
            Effect::Share { .. } | Effect::Aging { .. } => false,
        };
        if holds {
            holding.push(control.clone());
        }
    }
    // A rate may have tokens left, so controls that certainly hold come first.
    holding.sort_by_key(|control| matches!(control.effect, Effect::Rate { .. }));
    Ok(holding)
}

/// The number of running jobs that count for the limit of a job of this group.
async fn running_under(store: &dyn Store, scope: &Scope, group: &str) -> Result<u64, StoreError> {
    let of_group = if scope.each_group {
        Some(group.to_owned())
    } else {
        scope.group.clone()
    };
    let filter = JobFilter {
        states: vec![JobState::Running],
        queue: scope.queue.clone(),
        kind: scope.kind.clone(),
        group: of_group,
        ..JobFilter::default()
    };
    Ok(store.counts(&filter).await?.total())
}
