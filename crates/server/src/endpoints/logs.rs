//! `GET /logs`: streams the output of running jobs.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Extension;
use axum::extract::State;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures::future::BoxFuture;
use futures::{Stream, stream};
use gristmill_engine::live_logs::{FollowedJobs, LiveLogs};
use gristmill_model::{BatchId, LogEvent, TagCondition};
use gristmill_operations::access::run_id;
use gristmill_operations::jobs::details::details_of;
use gristmill_operations::read_job;
use gristmill_store::JobFilter;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use utoipa::IntoParams;

use super::events::ServerSentEvent;
use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::LOG_STREAMS_MAX;

/// The followed jobs: one, or all running jobs that match.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogsQuery {
    /// This job alone; excludes the other parameters.
    #[serde(default)]
    #[param(example = "42:7")]
    job: Option<String>,
    /// Only of this kind.
    #[serde(default)]
    kind: Option<String>,
    /// Only on this queue. Required for a token with several queues but not all.
    #[serde(default)]
    queue: Option<String>,
    /// Only of this group.
    #[serde(default)]
    group: Option<String>,
    /// Only of this run.
    #[serde(default)]
    run: Option<String>,
    /// Only of this batch.
    #[serde(default)]
    batch: Option<i64>,
    /// Only with all of these tags, separated by commas: `name=value`, `name` (any value), or `name*` (a prefix of the
    /// name).
    #[serde(default)]
    #[param(example = "customer=7")]
    tags: Option<String>,
}

impl LogsQuery {
    /// The followed jobs, within the caller's queues.
    async fn followed(self, app: &App, caller: &Caller) -> Result<FollowedJobs, ApiError> {
        let names_others = self.kind.is_some()
            || self.queue.is_some()
            || self.group.is_some()
            || self.run.is_some()
            || self.batch.is_some()
            || self.tags.is_some();
        if self.job.is_some() == names_others {
            return Err(ApiError::invalid(
                "the request needs either `job` or a filter",
                "give `job`, or at least one of kind, queue, group, run, batch and tags",
            ));
        }
        if let Some(job) = self.job {
            let job = read_job(&job)?;
            details_of(&**app.store(), &caller.access, job).await?;
            return Ok(FollowedJobs::Job(job));
        }
        Ok(FollowedJobs::Matching(Box::new(JobFilter {
            kind: self.kind,
            queue: caller.access.filter_queue(self.queue)?,
            group: self.group,
            run: match self.run {
                Some(run) => Some(run_id(&**app.store(), &caller.access, &run).await?),
                None => None,
            },
            batch: self.batch.map(BatchId),
            tags: self
                .tags
                .iter()
                .flat_map(|tags| tags.split(','))
                .map(TagCondition::parse)
                .collect(),
            ..JobFilter::default()
        })))
    }
}

struct Follower {
    app: App,
    logs: Option<LiveLogs>,
    token_ended: BoxFuture<'static, ApiError>,
    _room: OwnedSemaphorePermit,
}

impl Follower {
    /// The next event. `None` when the job has ended, the server stops, the token ends or the store fails. The client
    /// then connects again.
    async fn next(&mut self) -> Option<SseEvent> {
        let logs = self.logs.as_mut()?;
        let event = tokio::select! {
            biased;
            () = self.app.stopped() => return None,
            _ = &mut self.token_ended => return None,
            event = logs.next() => event,
        };
        match event {
            Ok(event) => written(&event?).ok(),
            Err(error) => {
                tracing::warn!(%error, "live output could not be read");
                None
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let Some(logs) = self.logs.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // Without this, the store forgets the follower only after some seconds.
                if let Err(error) = logs.leave().await {
                    tracing::debug!(%error, "a follower could not leave");
                }
            });
        }
    }
}

/// Follow logs
///
/// Server-sent events of the output of running jobs: `printed` (`job`, `kind`, `attempt`, `offset`, `text`, and the
/// `id` and `at` of this piece), `attempt_ended` (`job`, `attempt`, and the whole `log`), `ended` (`job`, `state`), and
/// `left_out` (`jobs`: the number of further running jobs that match, beyond the 100 that are followed). With `job`,
/// the earlier attempts come first, and the stream ends with the job. With a filter, the stream follows running jobs
/// and joins jobs that begin later; it ends with the client, the server or the token. If much output arrives at once,
/// the oldest is left out: the next `offset` is then greater than the end of the text before it.
#[utoipa::path(
    get,
    path = "/logs",
    tag = "watching",
    operation_id = "logs",
    params(LogsQuery),
    responses(
        (status = 200, description = "Events", content_type = "text/event-stream", body = ServerSentEvent),
        (status = "4XX", description = "Refused, or not there", body = Refusal),
    )
)]
pub async fn logs(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<LogsQuery>,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, ApiError> {
    let followed = query.followed(&app, &caller).await?;
    let room = app
        .log_streams
        .clone()
        .try_acquire_owned()
        .map_err(|_| ApiError::TooMany {
            what: "too many followers of logs",
            limit: format!("{LOG_STREAMS_MAX} at once"),
            retry_after_s: 10,
        })?;
    let number = app.state::<Followers>().0.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}-{number}", app.instance);
    let logs = LiveLogs::new(app.store().clone(), name, followed, app.interest.clone());
    let follower = Follower {
        token_ended: app.end_of_token(caller),
        app,
        logs: Some(logs),
        _room: room,
    };
    let events = stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok(event), follower))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// The number of followers of logs so far. It makes their names unique.
#[derive(Debug, Default)]
struct Followers(AtomicU64);

fn written(event: &LogEvent) -> Result<SseEvent, axum::Error> {
    let name = match event {
        LogEvent::Printed(_) => "printed",
        LogEvent::AttemptEnded { .. } => "attempt_ended",
        LogEvent::Ended { .. } => "ended",
        LogEvent::LeftOut { .. } => "left_out",
    };
    SseEvent::default().event(name).json_data(event)
}
