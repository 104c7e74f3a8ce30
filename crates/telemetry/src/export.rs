//! Requests to a receiver, with retries.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use tokio::sync::watch;

use crate::limits::{ANSWER_BYTES_MAX, ATTEMPTS_MAX, COMPLAINT_EVERY, RETRY_PAUSE_FIRST, RETRY_PAUSE_MAX};
use crate::otlp;
use crate::settings::{Endpoint, Signal};
use crate::shared::Shared;

/// Sends one signal to its receiver, one request at a time.
pub struct Exporter {
    shared: Arc<Shared>,
    signal: Signal,
    endpoint: Endpoint,
    headers: HeaderMap,
    ending: watch::Receiver<bool>,
    complained_at: Option<Instant>,
}

/// The reason a receiver did not take a request.
struct Failure {
    reason: String,
    /// The pause before a retry, if the receiver asked for one. The outer option is `None` if a retry is useless.
    again: Option<Option<Duration>>,
}

impl Exporter {
    pub fn new(shared: Arc<Shared>, signal: Signal, endpoint: Endpoint) -> Exporter {
        let mut headers = HeaderMap::new();
        for (name, value) in &endpoint.headers {
            match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                (Ok(name), Ok(mut value)) => {
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
                _ => tracing::error!(
                    name,
                    "OTEL_EXPORTER_OTLP_HEADERS contains a header that HTTP does not allow; the header is ignored"
                ),
            }
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Exporter {
            ending: shared.ending.subscribe(),
            shared,
            signal,
            endpoint,
            headers,
            complained_at: None,
        }
    }

    fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// Resolves when the program ends.
    pub async fn ended(&mut self) {
        // An error means that the sender is gone. The program has ended then, too.
        let _ = self.ending.wait_for(|ending| *ending).await;
    }

    /// Sends the records of the queue, until the program ends and the queue is empty.
    pub async fn drain(mut self, every: Duration) {
        let shared = self.shared.clone();
        let queue = shared.queue(self.signal);
        loop {
            let is_last = self.is_ending();
            loop {
                let taken = queue.take();
                if taken.count == 0 {
                    break;
                }
                self.send(&taken.text, taken.count, ATTEMPTS_MAX).await;
            }
            if is_last {
                return;
            }
            tokio::select! {
                () = self.ended() => {}
                () = queue.enough.notified() => {}
                () = tokio::time::sleep(every) => {}
            }
        }
    }

    /// Sends records. Drops and counts the records that the receiver does not take within this many attempts.
    pub async fn send(&mut self, records: &str, count: u64, attempts_max: u32) {
        assert!(count > 0, "an export has at least one record");
        assert!(attempts_max > 0, "an export has at least one attempt");
        let body = otlp::body(self.signal, &self.shared.resource, records);
        let mut pause = RETRY_PAUSE_FIRST;
        for attempt in 1.. {
            // After the end there is only one more attempt.
            let is_last = attempt >= attempts_max || self.is_ending();
            let failure = match self.post(&body).await {
                Ok(None) => return,
                Ok(Some((refused, reason))) => {
                    self.lose(
                        refused.min(count),
                        &format!("it refused {refused} of {count}: {reason}"),
                    );
                    return;
                }
                Err(failure) => failure,
            };
            let Some(asked) = failure.again.filter(|_| !is_last) else {
                assert!(
                    attempt <= attempts_max,
                    "an export makes at most {attempts_max} attempts"
                );
                self.lose(count, &failure.reason);
                return;
            };
            tracing::debug!(
                signal = self.signal.name(),
                reason = failure.reason,
                "sending again"
            );
            tokio::select! {
                () = self.ended() => {}
                () = tokio::time::sleep(asked.unwrap_or(pause).min(RETRY_PAUSE_MAX)) => {}
            }
            debug_assert!(
                pause <= RETRY_PAUSE_MAX,
                "a pause between attempts never grows beyond its limit"
            );
            pause = (2 * pause).min(RETRY_PAUSE_MAX);
        }
    }

    fn lose(&mut self, records: u64, reason: &str) {
        let queue = self.shared.queue(self.signal);
        queue.drop_counted(records);
        if self
            .complained_at
            .is_none_or(|at| at.elapsed() >= COMPLAINT_EVERY)
        {
            self.complained_at = Some(Instant::now());
            tracing::error!(
                dropped = queue.dropped(),
                "{} for OpenTelemetry are lost: {}: {reason}",
                self.signal.name(),
                self.endpoint.url
            );
        }
    }

    /// Makes one attempt. Returns the number of records that the receiver refused, and its reason.
    async fn post(&self, body: &str) -> Result<Option<(u64, String)>, Failure> {
        let later = |error: reqwest::Error| Failure {
            reason: chain(&error.without_url()),
            again: Some(None),
        };
        let request = self.shared.client.post(&self.endpoint.url);
        let request = request
            .headers(self.headers.clone())
            .timeout(self.endpoint.timeout)
            .body(body.to_owned());
        let mut response = request.send().await.map_err(later)?;
        let status = response.status();
        if !status.is_success() {
            let asked = response.headers().get(RETRY_AFTER);
            let asked = asked.and_then(|value| value.to_str().ok()?.parse().ok());
            let is_busy = [
                StatusCode::TOO_MANY_REQUESTS,
                StatusCode::BAD_GATEWAY,
                StatusCode::SERVICE_UNAVAILABLE,
                StatusCode::GATEWAY_TIMEOUT,
            ]
            .contains(&status);
            return Err(Failure {
                reason: format!("it answered with status {status}"),
                again: is_busy.then(|| asked.map(Duration::from_secs)),
            });
        }
        let mut answer = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            if answer.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Ok(None);
            }
            answer.extend_from_slice(&chunk);
        }
        Ok(otlp::refused(self.signal, &answer))
    }
}

/// The text of an error and its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
