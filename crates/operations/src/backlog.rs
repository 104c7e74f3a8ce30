//! The work that is left for workers, as numbers for autoscalers.

use gristmill_engine::Engine;
use gristmill_model::{Control, Effect, Timestamp};
use gristmill_store::{LaneMetrics, Store, StoreError};
use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::refused::Refused;

/// The counted jobs. An omitted condition matches all.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", into_params(parameter_in = Query))]
pub struct BacklogQuery {
    /// Only of this kind. A kind without jobs has an empty backlog.
    #[serde(default)]
    kind: Option<String>,
    /// Only on this queue. Required for a token with several queues but not all.
    #[serde(default)]
    queue: Option<String>,
}

/// The work that is left for workers.
#[derive(Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Backlog {
    /// Due and running jobs together: the number to scale workers by.
    jobs: u64,
    /// Jobs that a worker could claim now.
    due: u64,
    /// Jobs that workers hold.
    running: u64,
    /// Due jobs of queues and kinds that are paused or limited to 0 running jobs. No worker can claim them.
    held_back: u64,
    /// Jobs that are not due yet: scheduled, blocked or paused by themselves.
    later: u64,
    /// How long the oldest due job has been due. Seconds; 0 without one.
    oldest_due_seconds: f64,
    /// When they were counted. Milliseconds since 1970.
    counted_at: i64,
}

/// A count of the open jobs.
#[derive(Debug)]
pub struct OpenWork {
    /// The jobs that have not ended, by queue and kind.
    pub lanes: Vec<LaneMetrics>,
    controls: Vec<Control>,
    at: Timestamp,
}

impl OpenWork {
    /// Counts the open work of a store.
    pub async fn count(store: &dyn Store) -> Result<OpenWork, StoreError> {
        let controls = store.controls().await?;
        let lanes = store.open_lanes().await?;
        let at = store.now();
        Ok(OpenWork { lanes, controls, at })
    }
}

impl BacklogQuery {
    /// The queue whose jobs are counted; all queues for `None`.
    pub fn queue(&self, access: &Access) -> Result<Option<String>, Refused> {
        access.filter_queue(self.queue.clone())
    }

    /// The backlog of this kind and `queue`, in a count of the open work.
    pub fn backlog(&self, queue: Option<&str>, work: &OpenWork) -> Backlog {
        let lanes = work.lanes.iter().filter(|lane| {
            self.kind.as_ref().is_none_or(|kind| **kind == *lane.kind)
                && queue.is_none_or(|queue| *queue == *lane.queue)
        });
        Backlog::of(lanes, &work.controls, work.at)
    }
}

impl Backlog {
    /// The backlog of these lanes.
    fn of<'a>(lanes: impl Iterator<Item = &'a LaneMetrics>, controls: &[Control], now: Timestamp) -> Self {
        let mut backlog = Backlog::default();
        let mut oldest_due_at = None;
        for lane in lanes {
            backlog.running += lane.running;
            backlog.later += lane.waiting - lane.due;
            if is_held_back(controls, lane) {
                backlog.held_back += lane.due;
            } else {
                backlog.due += lane.due;
                oldest_due_at = oldest_due_at.into_iter().chain(lane.oldest_due_at).min();
            }
        }
        backlog.jobs = backlog.due + backlog.running;
        let age_ms = oldest_due_at.map_or(0, |since| now.since_ms(since).max(0));
        #[allow(
            clippy::cast_precision_loss,
            reason = "no job is due for longer than a float counts exactly"
        )]
        let seconds = age_ms as f64 / 1e3;
        backlog.oldest_due_seconds = seconds;
        backlog.counted_at = now.0;
        backlog
    }
}

/// Reports whether workers claim no job of a queue and kind, whatever its group.
fn is_held_back(controls: &[Control], lane: &LaneMetrics) -> bool {
    controls.iter().any(|control| {
        let stops = matches!(
            control.effect,
            Effect::Pause { .. } | Effect::Concurrency { jobs_max: 0 }
        );
        stops && control.scope.covers(&lane.queue, &lane.kind, "")
    })
}

/// Reads the backlog.
pub async fn backlog(engine: &Engine, access: &Access, query: BacklogQuery) -> Result<Backlog, Refused> {
    let queue = query.queue(access)?;
    let work = OpenWork::count(&**engine.store()).await?;
    Ok(query.backlog(queue.as_deref(), &work))
}

#[cfg(test)]
mod tests {
    use gristmill_model::Scope;

    use super::*;

    fn lane(kind: &str, due: u64, oldest_due_at: i64) -> LaneMetrics {
        LaneMetrics {
            kind: kind.into(),
            queue: "default".into(),
            waiting: due + 10,
            due,
            running: 1,
            oldest_due_at: Some(Timestamp(oldest_due_at)),
            ..LaneMetrics::default()
        }
    }

    fn control(kind: &str, group: Option<&str>, effect: Effect) -> Control {
        let scope = Scope {
            kind: Some(kind.to_owned()),
            group: group.map(str::to_owned),
            ..Scope::default()
        };
        Control { scope, effect }
    }

    #[test]
    fn held_back_jobs_ask_for_no_worker() {
        let lanes = [lane("a", 3, 1_000), lane("b", 4, 500)];
        let pause = || Effect::Pause {
            reason: "deploy".to_owned(),
            until: None,
        };
        let limit = |jobs_max| Effect::Concurrency { jobs_max };
        for (controls, due, oldest_due_seconds) in [
            (vec![], 7, 2.5),
            (vec![control("b", None, pause())], 3, 2.0),
            (vec![control("b", None, limit(0))], 3, 2.0),
            (vec![control("b", None, limit(1))], 7, 2.5),
            (vec![control("b", Some("acme"), pause())], 7, 2.5),
            (
                vec![control("b", None, pause()), control("a", None, pause())],
                0,
                0.0,
            ),
        ] {
            let expected = Backlog {
                jobs: due + 2,
                due,
                running: 2,
                held_back: 7 - due,
                later: 20,
                oldest_due_seconds,
                counted_at: 3_000,
            };
            assert_eq!(
                Backlog::of(lanes.iter(), &controls, Timestamp(3_000)),
                expected,
                "{controls:?}"
            );
        }
    }
}
