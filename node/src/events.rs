//! Events for JavaScript.

use std::time::Duration;

use gristmill_engine::{Engine, EventCursor, Events as Inner};
use gristmill_store::event::ParseEventCursorError;
use napi::Result;
use napi_derive::napi;
use tokio::sync::Mutex;

use crate::limits::{EVENTS_TAKEN_MAX, WAIT_MS_MAX};
use crate::store_error;

/// A listener to the events of a store.
#[napi]
pub struct Events {
    inner: Mutex<Inner>,
}

impl Events {
    /// A listener to the events after a cursor, or from now on.
    pub async fn listen(engine: &Engine, after: Option<String>) -> Result<Events> {
        let after: Option<EventCursor> = after
            .map(|text| text.parse())
            .transpose()
            .map_err(|error: ParseEventCursorError| store_error(error))?;
        let inner = engine.events(after).await.map_err(store_error)?;
        Ok(Events {
            inner: Mutex::new(inner),
        })
    }
}

#[napi]
impl Events {
    /// The next events, each as JSON; none after `wait_ms`, which is at most [`WAIT_MS_MAX`].
    #[napi]
    pub async fn take(&self, wait_ms: u32) -> Result<Vec<String>> {
        let mut events = self.inner.lock().await;
        let mut taken = Vec::new();
        let mut wait = Duration::from_millis(u64::from(wait_ms.min(WAIT_MS_MAX)));
        // After the first event, only those that are there already.
        while taken.len() < EVENTS_TAKEN_MAX
            && let Ok(event) = tokio::time::timeout(wait, events.next()).await
        {
            let event = event.map_err(store_error)?;
            taken.push(serde_json::to_string(&event).map_err(store_error)?);
            wait = Duration::ZERO;
        }
        Ok(taken)
    }
}
