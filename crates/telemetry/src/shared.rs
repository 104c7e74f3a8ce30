//! What the layer and the exports share.

use reqwest::Client;
use tokio::sync::watch;

use crate::otlp;
use crate::queue::Queue;
use crate::settings::{Settings, Signal};

/// The settings, the queues, and the way out.
#[derive(Debug)]
pub struct Shared {
    pub settings: Settings,
    /// As JSON.
    pub resource: String,
    pub client: Client,
    pub spans: Queue,
    pub logs: Queue,
    /// Nothing waits in it: it counts what is lost.
    pub metrics: Queue,
    /// Whether the program ends.
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
