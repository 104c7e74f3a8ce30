//! Providers that refuse all requests of the key. Their jobs wait, because each would fail.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::provider::Provider;
use crate::service::ServiceError;

/// Providers that refuse all requests of the key.
#[derive(Debug, Default)]
pub struct Denials {
    /// The times at which they are asked again; never, if there is none.
    until: Mutex<BTreeMap<Provider, Option<Instant>>>,
    /// The last refusal.
    pub last: watch::Sender<Option<String>>,
}

impl Denials {
    /// Notes a refusal. Nothing is sent to the provider before `pause` has passed.
    pub fn note(&self, provider: Provider, pause: Option<Duration>, error: &ServiceError) {
        let until = pause.map(|pause| Instant::now() + pause);
        let mut known = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(provider, until);
        drop(known);
        let text = error.to_string();
        self.last.send_if_modified(|last| {
            let is_new = last.as_ref() != Some(&text);
            *last = Some(text);
            is_new
        });
    }

    /// Waits until the provider may be asked. A drain gives jobs back that wait here.
    pub async fn passed(&self, provider: Provider) {
        loop {
            let until = {
                let known = self.until.lock().unwrap_or_else(PoisonError::into_inner);
                known.get(&provider).copied()
            };
            match until {
                None => return,
                Some(None) => std::future::pending().await,
                Some(Some(until)) if until <= Instant::now() => return,
                Some(Some(until)) => tokio::time::sleep_until(until).await,
            }
        }
    }
}
