//! The state that the layer and the exports share.

use reqwest::Client;
use tokio::sync::watch;

use crate::otlp;
use crate::queue::Queue;
use crate::settings::{Settings, Signal};

/// The settings, the queues, the HTTP client, and the signal of the end.
#[derive(Debug)]
pub struct Shared {
    pub settings: Settings,
    /// The resource as JSON.
    pub resource: String,
    pub client: Client,
    pub spans: Queue,
    pub logs: Queue,
    /// A queue that stays empty and only counts lost metrics.
    pub metrics: Queue,
    /// Set when the program ends.
    pub ending: watch::Sender<bool>,
}

impl Shared {
    pub fn new(settings: Settings, client: Client) -> Shared {
        Shared {
            resource: otlp::resource(&settings.resource),
            settings,
            client,
            spans: Queue::default(),
            logs: Queue::default(),
            metrics: Queue::default(),
            ending: watch::Sender::new(false),
        }
    }

    pub fn queue(&self, signal: Signal) -> &Queue {
        match signal {
            Signal::Traces => &self.spans,
            Signal::Metrics => &self.metrics,
            Signal::Logs => &self.logs,
        }
    }
}
