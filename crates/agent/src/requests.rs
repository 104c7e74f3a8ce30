//! The requests of a worker: exchanges, and the claim that waits at the server.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gristmill_model::{Report, Timestamp};
use gristmill_protocol::{EXCHANGE_TYPE, ExchangeRequest, ExchangeResponse};
use gristmill_store::{Exchanged, Want};
use gristmill_worker::{SourceError, SourceErrorKind};
use reqwest::Method;
use serde::de::DeserializeOwned;

use crate::connection::Request;
use crate::registration::{Numbered, Outlook, Registration, Shared, State};

/// The time limit of a heartbeat. The next one should not be late.
pub(crate) const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(4);

/// The pause after an answer that came too early: a wait that returned at once, or a claim that is left to the request
/// that waits at the server.
pub(crate) const PAUSE: Duration = Duration::from_millis(200);

/// The number of times that one claim is sent if each time another server answers than the one that it names.
const SERVERS_TRIED_MAX: u32 = 16;

impl Shared {
    /// Sends one request until it is answered.
    pub(crate) async fn exchange(
        &self,
        reports: Vec<Report>,
        want: Option<Want>,
        wait: Duration,
    ) -> Result<ExchangeResponse, SourceError> {
        let numbered = self.number()?;
        let Registration { worker, instance, .. } = &numbered.registration;
        let request = Request {
            method: Method::POST,
            path: format!("/workers/{worker}/exchange"),
            content_type: EXCHANGE_TYPE,
            timeout: self.options.request_timeout + wait,
            insist: true,
            must_arrive: !reports.is_empty(),
        };
        let exchange = ExchangeRequest {
            number: numbered.number,
            attempt: 1,
            acknowledged: numbered.acknowledged,
            instance: instance.clone(),
            reports,
            want,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        };
        let body = |attempt| {
            ExchangeRequest {
                attempt,
                ..exchange.clone()
            }
            .encode()
        };
        let has_reports = !exchange.reports.is_empty();
        // A claim sees the reports in its own request, and those that were committed before it was sent.
        let reported = {
            let mut state = self.lock();
            state.reported += u64::from(has_reports);
            if has_reports {
                state.reported
            } else {
                state.committed
            }
        };
        let answer = self.connection.send(&request, body).await?;
        let mut response = ExchangeResponse::decode(&answer).map_err(not_ours)?;
        if response.exchanged.receipts.len() != exchange.reports.len() {
            return Err(not_ours(
                "it has another number of receipts than there were reports",
            ));
        }
        let has_claimed = exchange.want.is_some() && !response.not_claimed;
        self.take(&numbered, &exchange.reports, &mut response);
        if has_reports {
            self.lock().committed = reported;
        }
        if has_claimed && response.exchanged.lease.is_none() {
            self.look_out(&response.exchanged, reported);
        }
        Ok(response)
    }

    /// Claims, even if each request reaches a different server. A server claims only for requests that name it, so only
    /// one server handles a request that reaches two. Each answer names its server.
    pub(crate) async fn claim(&self, want: Option<Want>, wait: Duration) -> Result<Exchanged, SourceError> {
        let mut response = self.exchange(Vec::new(), want.clone(), wait).await?;
        for _ in 1..SERVERS_TRIED_MAX {
            if !response.is_left_to_another() {
                break;
            }
            response = self.exchange(Vec::new(), want.clone(), wait).await?;
        }
        Ok(response.exchanged)
    }

    fn take(&self, numbered: &Numbered<'_>, reports: &[Report], response: &mut ExchangeResponse) {
        let behind_ms = self.clock.now().since_ms(response.now);
        let exchanged = &mut response.exchanged;
        // Converted to this machine's clock, whatever the difference to the server's clock.
        exchanged.next_run_at = exchanged.next_run_at.map(|at| at.plus_ms(behind_ms));
        let mut state = self.lock();
        let Some(registration) = state
            .registration
            .as_mut()
            .filter(|own| own.worker == numbered.registration.worker)
        else {
            return;
        };
        registration.instance.clone_from(&response.instance);
        if let Some(followed) = response.followed.take() {
            state.followed = Some(followed);
            self.learned.notify_one();
        }
        if response.claim_unknown {
            tracing::warn!(
                "a claim's answer was lost with its server; the worker registers again after it has reported its jobs"
            );
            state.renew = true;
        }
        for (report, receipt) in reports.iter().zip(&exchanged.receipts) {
            state.held.reported(report, receipt);
        }
        if let Some(lease) = &exchanged.lease {
            state.held.claimed(lease);
        }
    }

    /// Stores the news about later jobs from an empty claim, unless a later claim has newer ones.
    fn look_out(&self, exchanged: &Exchanged, reported: u64) {
        let mut state = self.lock();
        if state.outlook.reported <= reported {
            state.outlook = Outlook {
                next_run_at: exchanged.next_run_at,
                limited: exchanged.limited,
                reported,
            };
        }
    }

    /// Waits once at the server, and stores the result.
    pub(crate) async fn wait_for_lease(self: Arc<Self>, want: Want) {
        let begun = Instant::now();
        let answer = self.claim(Some(want), self.options.wait).await;
        if matches!(&answer, Ok(exchanged) if exchanged.lease.is_none()) && begun.elapsed() < PAUSE {
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = self.wait_ends.notified() => {}
            }
        }
        {
            let mut state = self.lock();
            state.waiting = None;
            match answer {
                Ok(exchanged) => {
                    state.waited_in_vain = state.expects && is_nothing(&exchanged);
                    state.ahead.extend(exchanged.lease);
                }
                Err(error) => {
                    tracing::debug!(%error, "waiting for work failed");
                    state.waiting_failed = true;
                    // The answer is given up, or the server no longer keeps it, and it may have been a claim. Other
                    // requests keep succeeding, so only leaving releases the claim. An agent that stops leaves in any
                    // case.
                    state.renew |= error.kind != SourceErrorKind::Transient;
                }
            }
        }
        self.came_back.notify_waiters();
    }

    /// Sends JSON or no body, and reads JSON.
    pub(crate) async fn send_json<T: DeserializeOwned>(
        &self,
        request: &Request,
        body: &impl serde::Serialize,
    ) -> Result<T, SourceError> {
        let body: Bytes = serde_json::to_vec(body).map_err(not_ours)?.into();
        let answer = self.connection.send(request, |_| body.clone()).await?;
        serde_json::from_slice(&answer).map_err(not_ours)
    }

    pub(crate) async fn end(&self, worker: i64) -> Result<(), SourceError> {
        let request = Request {
            method: Method::DELETE,
            path: format!("/workers/{worker}"),
            content_type: "application/json",
            timeout: HEARTBEAT_TIMEOUT,
            insist: false,
            must_arrive: true,
        };
        self.connection.send(&request, |_| Bytes::new()).await.map(|_| ())
    }

    pub(crate) fn soon(&self) -> Timestamp {
        self.clock
            .now()
            .plus_ms(i64::try_from(PAUSE.as_millis()).unwrap_or(i64::MAX))
    }

    /// The answer to a claim while a request waits at the server.
    pub(crate) fn left_to_waiting(&self, state: &State) -> Exchanged {
        Exchanged {
            next_run_at: state.outlook.next_run_at.map(|at| at.max(self.soon())),
            limited: state.outlook.limited,
            ..Exchanged::default()
        }
    }
}

fn not_ours(error: impl fmt::Display) -> SourceError {
    let message = format!("the server's answer cannot be read: {error}; use the same version on both sides");
    SourceError {
        message,
        kind: SourceErrorKind::Fatal,
    }
}

/// Reports whether an answer says that there is nothing to claim, now or later.
pub(crate) fn is_nothing(answer: &Exchanged) -> bool {
    answer.lease.is_none() && answer.next_run_at.is_none() && !answer.limited
}
