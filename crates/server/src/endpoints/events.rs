//! `GET /events`: what happens, as it happens.

use std::convert::Infallible;

use axum::extract::State;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures::{Stream, stream};
use gristmill_engine::{Event, Events};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::{self, error::RecvError};

use crate::app::App;
use crate::body::{NoQuery, Query};
use crate::error::{ApiError, Refusal};
use crate::limits::EVENT_STREAMS_MAX;

struct Listener {
    app: App,
    engine: Events,
    agents: broadcast::Receiver<Event>,
    _room: OwnedSemaphorePermit,
}

impl Listener {
    /// The next event through this server; `None` once it stops.
    async fn next(&mut self) -> Option<Event> {
        tokio::select! {
            // Submits first: they come before what is committed of them.
            biased;
            event = self.engine.next() => event,
            event = self.agents.recv() => match event {
                Ok(event) => Some(event),
                Err(RecvError::Lagged(events)) => Some(Event::Missed { events }),
                Err(RecvError::Closed) => None,
            },
            () = self.app.stopped() => None,
        }
    }
}

/// Watch events
///
/// Server-sent events of what is submitted and committed through this server, from now on: `submitted` (`batch`,
/// `jobs`), `committed` (`batch`, and the positions `completed`, `retried`, `dead`), and `missed` (`events`) for a
/// listener that is too slow. The stream ends when the server stops.
#[utoipa::path(
    get,
    path = "/events",
    tag = "watching",
    operation_id = "events",
    responses(
        (status = 200, description = "Events", content_type = "text/event-stream", body = String),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn events(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, ApiError> {
    let room = app
        .event_streams
        .clone()
        .try_acquire_owned()
        .map_err(|_| ApiError::TooMany {
            what: "too many listeners to events",
            limit: format!("{EVENT_STREAMS_MAX} at once"),
            retry_after_s: 10,
        })?;
    let (engine, agents) = (app.engine.events(), app.events.subscribe());
    let listener = Listener {
        app,
        engine,
        agents,
        _room: room,
    };
    let events = stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok(written(&event)), listener))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

fn written(event: &Event) -> SseEvent {
    let (name, data) = match event {
        Event::Submitted { batch, jobs } => ("submitted", json!({"batch": batch, "jobs": jobs})),
        Event::Committed {
            batch,
            completed,
            retried,
            dead,
        } => (
            "committed",
            json!({"batch": batch, "completed": completed, "retried": retried, "dead": dead}),
        ),
        Event::Missed { events } => ("missed", json!({"events": events})),
    };
    SseEvent::default().event(name).data(data.to_string())
}
