//! `POST /jobs/{job}/events` and `POST /jobs/events`: send events to flows.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_model::JobId;
use gristmill_model::limits::KEPT_EVENTS_MAX;
use gristmill_operations::jobs;
use gristmill_operations::jobs::details::details_of;
use gristmill_operations::jobs::events::{EventsRequest, SentEvents};
use gristmill_operations::submit::even_null;
use gristmill_operations::{checked_event_name, read_job};
use gristmill_store::{FlowEvent, FlowEventReceipt};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::app::App;
use crate::body::{JsonBody, NoQuery, PathText, Query, json};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// An event for a flow.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowEventBody<'a> {
    /// The name that the flow awaits.
    #[schema(min_length = 1, max_length = 200, example = "approve")]
    name: String,
    /// The value of the event: any JSON; `null` by default.
    #[serde(default, borrow, deserialize_with = "even_null")]
    #[schema(value_type = Option<serde_json::Value>)]
    value: Option<&'a RawValue>,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventReceipt {
    /// The flow waited for the event, and has it now.
    Delivered,
    /// The flow does not wait for the event yet. The store keeps it until it does.
    Kept,
}

/// The answer to an event.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventSent {
    /// What became of the event.
    receipt: EventReceipt,
}

/// Send an event to a flow
///
/// The event is on disk when the answer comes. A flow that awaits it goes on; one that does not await it yet gets it when it
/// does. Two events of one name are two: repeat a request only if its answer is lost and the flow awaits the name once.
#[utoipa::path(
    post,
    path = "/jobs/{job}/events",
    tag = "jobs",
    operation_id = "send_event",
    params((
        "job" = String, Path, description = "The flow's id: its batch and position", example = "42:7",
        pattern = "^[0-9]{1,18}:[0-9]{1,9}$"
    )),
    request_body = FlowEventBody,
    responses(
        (status = 200, description = "The event is delivered or kept", body = EventSent),
        (status = "4XX", description = "Refused: the flow is not found, has ended (`flow_ended`), or has too many events that it has not \
            awaited (`events_full`)", body = Refusal),
    )
)]
pub async fn send_event(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathText(job): PathText,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<EventSent>, ApiError> {
    let id: JobId = read_job(&job)?;
    let read = body.read_with(move |bytes| {
        let event: FlowEventBody<'_> = json(bytes)?;
        let name = checked_event_name(event.name)?;
        Ok(FlowEvent::new(
            id,
            name,
            event.value.map_or("null", RawValue::get),
        )?)
    });
    let event = read.await?;
    match &caller.event {
        Some(only) if (only.job, &only.name) != (id, &event.name) => {
            return Err(ApiError::forbidden(
                format!(
                    "the token allows only the event `{}` of job {}",
                    only.name, only.job
                ),
                "use a token for a role, or one for this event",
            ));
        }
        // It names the flow, and reaches no queue.
        Some(_) => {}
        None => drop(details_of(&**app.store(), &caller.access, id).await?),
    }
    let receipts = app.engine.send_events(vec![event]).await?;
    let receipt = match receipts.first() {
        Some(FlowEventReceipt::Delivered) => EventReceipt::Delivered,
        Some(FlowEventReceipt::Kept) => EventReceipt::Kept,
        Some(FlowEventReceipt::Ended) => return Err(ApiError::FlowEnded(id)),
        Some(FlowEventReceipt::Full) => {
            return Err(ApiError::EventsFull {
                flow: id,
                limit: KEPT_EVENTS_MAX,
            });
        }
        Some(FlowEventReceipt::Unknown) | None => {
            return Err(ApiError::NotFound {
                what: "job",
                id: id.to_string(),
            });
        }
    };
    // The flow may be claimable now.
    app.wake.ring();
    Ok(Json(EventSent { receipt }))
}

/// Send events to many flows
///
/// An event names its flow by `job`, or by `key` (and `kind`, where several open jobs have the key), and has a `name` and perhaps a
/// `value`. All are sent in one transaction. An event of which the flow has ended or is not found is told in the answer.
#[utoipa::path(
    post,
    path = "/jobs/events",
    tag = "jobs",
    operation_id = "send_events",
    request_body = EventsRequest,
    responses(
        (status = 200, description = "What became of each event", body = SentEvents),
        (status = "4XX", description = "Refused; no event is sent", body = Refusal),
    )
)]
pub async fn send_events(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<SentEvents>, ApiError> {
    let read = body.read_with(|bytes| Ok(json::<EventsRequest<'_>>(bytes)?.check()?));
    let events = read.await?;
    let sent = jobs::events::send_events(&app.engine, &caller.access, events).await?;
    app.wake.ring();
    Ok(Json(sent))
}
