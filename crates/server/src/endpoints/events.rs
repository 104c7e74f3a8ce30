//! `GET /events`: streams events from any cursor.

use std::convert::Infallible;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures::future::BoxFuture;
use futures::{Stream, stream};
use gristmill_engine::{EventCursor, Events, RecordedEvent};
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::EVENT_STREAMS_MAX;

/// The place where the events begin.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Only events after this `id`; new events by default. The header `Last-Event-ID`, which clients send when they
    /// reconnect, takes precedence.
    #[serde(default)]
    #[param(example = "0-17", pattern = "^[0-9]{1,18}-[0-9]{1,18}$")]
    after: Option<String>,
}

/// One event of a stream of server-sent events, as the API describes it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ServerSentEvent {
    /// The place to resume with the header `Last-Event-ID`. Some streams have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The name of the event.
    pub event: String,
    /// The event as JSON.
    pub data: String,
}

struct Listener {
    app: App,
    events: Events,
    token_ended: BoxFuture<'static, ApiError>,
    _room: OwnedSemaphorePermit,
}

impl Listener {
    /// The next event. `None` when the server stops, the token ends or the store fails. The client then connects again
    /// and resumes at the last event.
    async fn next(&mut self) -> Option<SseEvent> {
        let event = tokio::select! {
            biased;
            () = self.app.stopped() => return None,
            _ = &mut self.token_ended => return None,
            event = self.events.next() => event,
        };
        let written = match event {
            Ok(event) => written(&event),
            Err(error) => {
                tracing::warn!(%error, "the events could not be read");
                return None;
            }
        };
        written.ok()
    }
}

/// Watch events
///
/// Streams server-sent events of the whole store in commit order: `submitted`, `completed`, `retried` (an attempt
/// failed, and the next one begins at `run_at`), `dead`, `cancelled` and `expired` (each with `batch`, `positions`,
/// `kind` and `queue`), `progress` (`worker`, and the progress of its `running` jobs), and `missed` if earlier events
/// are gone. The data is JSON with `cursor`, `at` and `type` beside these. The `id` is a cursor: any server of the same
/// store resumes after it. The store keeps events for an hour after the last listener. The stream ends when the server
/// stops, and when the token expires or is revoked. A server that can only read its store (a standby, a file without write
/// permission) records none, and refuses with status 409.
#[utoipa::path(
    get,
    path = "/events",
    tag = "watching",
    operation_id = "events",
    params(EventsQuery),
    responses(
        (status = 200, description = "Events", content_type = "text/event-stream", body = ServerSentEvent),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn events(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, ApiError> {
    let last = headers
        .get("last-event-id")
        .map(|value| value.to_str().unwrap_or("?"));
    let after = last.or(query.after.as_deref()).map(parse_cursor).transpose()?;
    let room = app
        .event_streams
        .clone()
        .try_acquire_owned()
        .map_err(|_| ApiError::TooMany {
            what: "too many listeners to events",
            limit: format!("{EVENT_STREAMS_MAX} at once"),
            retry_after_s: 10,
        })?;
    let events = app.engine.events(after).await.map_err(store_error)?;
    let listener = Listener {
        token_ended: app.end_of_token(caller),
        app,
        events,
        _room: room,
    };
    let events = stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok(event), listener))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

fn store_error(error: gristmill_engine::EngineError) -> ApiError {
    match error {
        gristmill_engine::EngineError::Store(error) if error.is_read_only() => ApiError::NoEvents,
        gristmill_engine::EngineError::Store(error) => ApiError::Store(error),
        other => ApiError::Store(gristmill_store::StoreError::Database(other.to_string())),
    }
}

fn parse_cursor(text: &str) -> Result<EventCursor, ApiError> {
    text.parse()
        .map_err(|error: gristmill_store::event::ParseEventCursorError| {
            ApiError::invalid(error.to_string(), "give the `id` of an event")
        })
}

fn written(event: &RecordedEvent) -> Result<SseEvent, axum::Error> {
    SseEvent::default()
        .id(event.cursor.to_string())
        .event(event.event.name())
        .json_data(event)
}
