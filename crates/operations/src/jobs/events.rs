//! Events for many flows, which are named by their ids or by their deduplication keys.

use gristmill_engine::Engine;
use gristmill_engine::flow_steps::{KeyedFlow, with_key};
use gristmill_model::{JobId, bounded};
use gristmill_store::{FlowEvent, FlowEventReceipt, JobFilter, Store};
use serde::{Deserialize, Serialize};

use super::details::details_of;
use crate::access::Access;
use crate::flow_event::{AddressedEvent, FlowAddress, FlowEventRequest};
use crate::limits::{EVENTS_PER_REQUEST_MAX, EVENTS_READ_MAX};
use crate::refused::Refused;

/// Events for flows.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EventsRequest<'a> {
    /// The events, which are sent in this order: at most 1,000.
    #[serde(borrow, deserialize_with = "bounded::list::<_, _, EVENTS_READ_MAX>")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<serde_json::Value>, max_items = 1_000,
        example = json!([{"key": "order-17", "kind": "ship", "name": "paid", "value": {"by": "Ada"}}])))]
    events: Vec<FlowEventRequest<'a>>,
}

/// What became of the events.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SentEvents {
    /// In the order of the request.
    pub events: Vec<SentEvent>,
}

/// What became of one event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SentEvent {
    /// The flow as the event names it: its id, or `key=` and its key.
    #[cfg_attr(feature = "schema", schema(example = "key=order-17"))]
    pub flow: String,
    /// The flow, if it is open.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "42:7"))]
    pub job: Option<JobId>,
    /// The name of the event.
    pub name: String,
    /// `delivered` where the flow awaited the event; `kept` until it does; or not sent, because the flow has `ended`, is
    /// `unknown`, or has 1,000 events that it has not awaited (`full`).
    #[cfg_attr(feature = "schema", schema(example = "delivered"))]
    pub receipt: &'static str,
}

/// Events whose flows are found.
#[derive(Debug)]
pub struct FoundEvents {
    found: Vec<SentEvent>,
    events: Vec<FlowEvent>,
}

/// The receipt of an event before it is sent.
const NOT_SENT: &str = "";

impl EventsRequest<'_> {
    /// Checks the events.
    ///
    /// # Errors
    ///
    /// The first wrong event, or too many events.
    pub fn check(self) -> Result<Vec<AddressedEvent>, Refused> {
        if self.events.len() > EVENTS_PER_REQUEST_MAX {
            return Err(Refused::invalid(
                format!("there are more than {EVENTS_PER_REQUEST_MAX} events"),
                "send them in several requests",
            ));
        }
        self.events.into_iter().map(FlowEventRequest::check).collect()
    }
}

impl FoundEvents {
    /// Finds the flows of events, on the caller's queues.
    ///
    /// # Errors
    ///
    /// Several open jobs have a key, or the store fails.
    pub async fn of(
        store: &dyn Store,
        access: &Access,
        events: Vec<AddressedEvent>,
    ) -> Result<Self, Refused> {
        let mut all = FoundEvents {
            found: Vec::with_capacity(events.len()),
            events: Vec::with_capacity(events.len()),
        };
        for AddressedEvent {
            flow,
            name,
            value_json,
        } in events
        {
            let (flow, found) = match flow {
                FlowAddress::Job(job) => (job.to_string(), Ok(job)),
                FlowAddress::Key { key, kind } => {
                    let found = find(store, access, &key, kind, &name).await?;
                    (format!("key={key}"), found)
                }
            };
            let found = match found {
                Ok(job) if !is_reached(store, access, job).await? => Err("unknown"),
                found => found,
            };
            if let Ok(job) = found {
                all.events.push(FlowEvent::new(job, name.clone(), &value_json)?);
            }
            all.found.push(SentEvent {
                flow,
                job: found.ok(),
                name,
                receipt: found.err().unwrap_or(NOT_SENT),
            });
        }
        Ok(all)
    }

    /// Takes the events to send.
    pub fn events(&mut self) -> Vec<FlowEvent> {
        std::mem::take(&mut self.events)
    }

    /// What became of the events, by the receipts of those that were sent.
    pub fn told(self, receipts: Vec<FlowEventReceipt>) -> Vec<SentEvent> {
        let mut receipts = receipts.into_iter();
        let told = self.found.into_iter().map(|mut event| {
            if event.receipt == NOT_SENT {
                event.receipt = receipts.next().map_or("unknown", receipt_name);
            }
            event
        });
        let told = told.collect();
        assert!(
            receipts.next().is_none(),
            "each receipt is of an event that was sent"
        );
        told
    }
}

/// Sends events to flows, in one transaction.
///
/// # Errors
///
/// An event is wrong, or the store fails; none is sent then.
pub async fn send_events(
    engine: &Engine,
    access: &Access,
    events: Vec<AddressedEvent>,
) -> Result<SentEvents, Refused> {
    let mut found = FoundEvents::of(&**engine.store(), access, events).await?;
    let events = found.events();
    let receipts = match events.is_empty() {
        true => Vec::new(),
        false => engine.send_events(events).await?,
    };
    Ok(SentEvents {
        events: found.told(receipts),
    })
}

/// Reports whether the caller may send events to a job. A caller with all queues learns from the receipt whether the job exists.
async fn is_reached(store: &dyn Store, access: &Access, job: JobId) -> Result<bool, Refused> {
    if access.check_all_queues().is_ok() {
        return Ok(true);
    }
    match details_of(store, access, job).await {
        Err(Refused::NotFound { .. }) => Ok(false),
        details => details.map(|_| true),
    }
}

/// The open flow with a key, or the receipt of an event for none.
async fn find(
    store: &dyn Store,
    access: &Access,
    key: &str,
    kind: Option<String>,
    name: &str,
) -> Result<Result<JobId, &'static str>, Refused> {
    let filter = JobFilter {
        kind,
        // A token with several queues looks at all of them, and learns below only of its own.
        queue: access.filter_queue(None).unwrap_or_default(),
        ..JobFilter::default()
    };
    match with_key(store, key, filter).await? {
        KeyedFlow::Open(job) => Ok(Ok(job)),
        KeyedFlow::Ended(job) if is_reached(store, access, job).await? => Ok(Err("ended")),
        KeyedFlow::Ended(_) => Ok(Err("unknown")),
        KeyedFlow::Unknown => Ok(Err("unknown")),
        KeyedFlow::Ambiguous => Err(Refused::invalid(
            format!(
                "several open jobs have the key `{key}`: the event `{name}` and those beside it are not sent"
            ),
            "name the kind, with --kind or `kind`",
        )),
    }
}

const fn receipt_name(receipt: FlowEventReceipt) -> &'static str {
    match receipt {
        FlowEventReceipt::Delivered => "delivered",
        FlowEventReceipt::Kept => "kept",
        FlowEventReceipt::Ended => "ended",
        FlowEventReceipt::Unknown => "unknown",
        FlowEventReceipt::Full => "full",
    }
}
