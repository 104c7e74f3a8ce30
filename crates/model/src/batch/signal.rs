//! Signals: ends of jobs that no worker runs.
//!
//! A flow waits for an event or for a moment as it waits for any child: by a job. Such a job is blocked until its signal
//! arrives. Nothing claims it.

use serde::{Deserialize, Serialize};

use crate::batch::{InvalidBatch, check_name};

/// The kind of jobs that wait for an event.
pub const EVENT_KIND: &str = "gristmill.event";

/// The kind of jobs that wait for a moment.
pub const SLEEP_KIND: &str = "gristmill.sleep";

/// The signal that ends the jobs of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Signal {
    /// An event of this name that is sent to their parent. A job completes with the value of the event. It expires at
    /// the batch's `expires_at`, if there is one.
    Event(String),
    /// The moment of the batch's `expires_at`, at which the jobs expire.
    Time,
}

impl Signal {
    /// The kind of the jobs.
    pub const fn kind(&self) -> &'static str {
        match self {
            Signal::Event(_) => EVENT_KIND,
            Signal::Time => SLEEP_KIND,
        }
    }

    /// The name of the event, if it is one.
    pub fn event(&self) -> Option<&str> {
        match self {
            Signal::Event(name) => Some(name),
            Signal::Time => None,
        }
    }

    /// Checks the signal of a batch.
    pub(crate) fn check(&self, kind: &str, expires: bool) -> Result<(), InvalidBatch> {
        if kind != self.kind() {
            return Err(InvalidBatch::SignalKind(self.kind()));
        }
        match self {
            Signal::Event(name) => check_name("event", name),
            Signal::Time if expires => Ok(()),
            Signal::Time => Err(InvalidBatch::SleepsForEver),
        }
    }
}
