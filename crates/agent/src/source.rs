//! A server as a worker's source.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use gristmill_batching::BatchStats;
use gristmill_model::limits::{
    FINALIZED_JOBS_MAX, LEASE_LOST_AFTER_MS_MAX, LEASE_LOST_AFTER_MS_MIN, heartbeat_every_ms,
};
use gristmill_model::{
    BatchId, Clock, Followed, JobProgress, Lease, LeaseId, Positions, Printed, Receipt, Report, Rng,
    Timestamp,
};
use gristmill_server::endpoints::workers::children::{ChildrenAnswer, ChildrenRequest};
use gristmill_server::endpoints::workers::heartbeat::{HeartbeatAnswer, HeartbeatRequest};
use gristmill_server::endpoints::workers::register::{RegisterRequest, Registered};
use gristmill_server::protocol::{EXCHANGE_TYPE, ExchangeRequest, ExchangeResponse};
use gristmill_store::{ChildOutcome, Exchanged, Heartbeat, Want};
use gristmill_worker::{Source, SourceError, SourceErrorKind};
use reqwest::Method;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::connection::{Connection, Request};
use crate::error::AgentError;
use crate::held::Held;
use crate::options::HttpSourceOptions;
use crate::split::{Parts, REQUEST_BYTES_TARGET, merged, split};

/// How long a heartbeat may take: the next one should not be late.
pub(crate) const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(4);

/// The pause after something that should have taken longer: a wait that came back at once, or a claim that is left
/// to the request that waits at the server.
const PAUSE: Duration = Duration::from_millis(200);

/// How often one claim is sent where each time another server answers than the one that it names.
const SERVERS_TRIED_MAX: u32 = 16;

/// A server as a worker's source: every answer of the server is got, once, however often a request is sent.
pub struct HttpSource {
    shared: Arc<Shared>,
}

impl fmt::Debug for HttpSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HttpSource")
            .field("servers", &self.shared.options.base_urls)
            .finish_non_exhaustive()
    }
}

pub(crate) struct Shared {
    connection: Connection,
    options: HttpSourceOptions,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// The request that waits for work has come back.
    came_back: Notify,
    /// An answer has told anew which jobs somebody follows.
    pub(crate) learned: Notify,
}

#[derive(Default)]
pub(crate) struct State {
    registration: Option<Registration>,
    /// Requests that are under way, by number.
    under_way: BTreeSet<u64>,
    numbered: u64,
    heartbeats: u64,
    held: Held,
    /// The worker may have a claim that it never received: it claims no more, and leaves when it holds nothing, which
    /// releases such a claim. It then re-registers.
    renew: bool,
    /// The last wish, for the request that waits for work.
    want: Option<Want>,
    waiting: Option<AbortHandle>,
    /// The result of a wait that was not delivered yet.
    ahead: VecDeque<Lease>,
    /// The last claim's news about later jobs.
    outlook: Outlook,
    /// Requests with reports so far: each may have made jobs claimable.
    reported: u64,
    /// The request that waited for work failed; the next ordinary one will say how.
    waiting_failed: bool,
    /// Whether the worker last heard that more jobs become claimable later.
    expects: bool,
    /// The request that waited for work found that this is so no longer.
    waited_in_vain: bool,
    /// Which jobs somebody follows, as an answer told and nobody has asked for yet.
    pub(crate) followed: Option<Vec<Followed>>,
}

/// A claim's news about later jobs.
#[derive(Debug, Clone, Copy, Default)]
struct Outlook {
    /// When more can be claimed, by this machine's clock.
    next_run_at: Option<Timestamp>,
    /// Whether jobs wait until others are over.
    limited: bool,
    /// How many requests with reports had been sent then.
    reported: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Registration {
    pub(crate) worker: i64,
    instance: String,
    heartbeat_every: Duration,
}

/// A numbered request, under way until it is dropped.
struct Numbered<'s> {
    shared: &'s Shared,
    registration: Registration,
    number: u64,
    acknowledged: u64,
}

impl Drop for Numbered<'_> {
    fn drop(&mut self) {
        self.shared.lock().under_way.remove(&self.number);
    }
}

impl Drop for HttpSource {
    fn drop(&mut self) {
        self.shared.stop_waiting();
    }
}

impl HttpSource {
    /// A worker at a server, not registered yet. `rng` draws the pauses between attempts.
    pub fn new(
        options: HttpSourceOptions,
        clock: Arc<dyn Clock>,
        rng: Box<dyn Rng>,
    ) -> Result<HttpSource, AgentError> {
        let connection = Connection::new(&options, rng)?;
        let shared = Shared {
            connection,
            options,
            clock,
            state: Mutex::default(),
            came_back: Notify::new(),
            learned: Notify::new(),
        };
        Ok(HttpSource {
            shared: Arc::new(shared),
        })
    }

    /// Begins to wait at the server, unless a request does so already. Whether there is something to take, or a
    /// failure to meet, at once.
    fn wait_at_server(&self) -> bool {
        let mut state = self.shared.lock();
        let has_failed = std::mem::take(&mut state.waiting_failed);
        if std::mem::take(&mut state.waited_in_vain) || has_failed || !state.ahead.is_empty() {
            return true;
        }
        let Some(want) = state
            .want
            .clone()
            .filter(|_| state.waiting.is_none() && !state.renew)
        else {
            return false;
        };
        let shared = self.shared.clone();
        let task = tokio::spawn(async move { shared.wait_for_lease(want).await });
        state.waiting = Some(task.abort_handle());
        false
    }
}

impl AsRef<Connection> for Shared {
    fn as_ref(&self) -> &Connection {
        &self.connection
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop_waiting(&self) {
        if let Some(waiting) = self.lock().waiting.take() {
            waiting.abort();
        }
    }

    pub(crate) fn registration(&self) -> Result<Registration, SourceError> {
        self.lock().registration.clone().ok_or_else(|| SourceError {
            message: "the worker is not registered".to_owned(),
            kind: SourceErrorKind::Unregistered,
        })
    }

    fn number(&self) -> Result<Numbered<'_>, SourceError> {
        let registration = self.registration()?;
        let mut state = self.lock();
        state.numbered += 1;
        let number = state.numbered;
        state.under_way.insert(number);
        // Whatever is before the oldest request that is under way has been answered.
        let acknowledged = state.under_way.first().map_or(0, |oldest| oldest - 1);
        drop(state);
        Ok(Numbered {
            shared: self,
            registration,
            number,
            acknowledged,
        })
    }

    /// One request, sent until it is answered.
    async fn exchange(
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
        let reported = {
            let mut state = self.lock();
            state.reported += u64::from(!exchange.reports.is_empty());
            state.reported
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
        if has_claimed {
            self.look_out(&response.exchanged, reported);
        }
        Ok(response)
    }

    /// Claims, even if each request reaches a different server. A server claims only for requests that name it, so only
    /// one server handles a request that reaches two; each answer names its server.
    async fn claim(&self, want: Option<Want>, wait: Duration) -> Result<Exchanged, SourceError> {
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
        // By this machine's clock, however it differs from the server's.
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
                "a claim's answer was lost with its server; beginning anew when what is held is reported"
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

    /// Stores a claim's news about later jobs, unless a later claim has newer ones.
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
    async fn wait_for_lease(self: Arc<Self>, want: Want) {
        let begun = Instant::now();
        let answer = self.claim(Some(want), self.options.wait).await;
        if matches!(&answer, Ok(exchanged) if exchanged.lease.is_none()) && begun.elapsed() < PAUSE {
            tokio::time::sleep(PAUSE).await;
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
                }
            }
        }
        self.came_back.notify_waiters();
    }

    /// Sends JSON, or nothing, and reads JSON.
    pub(crate) async fn send_json<T: DeserializeOwned>(
        &self,
        request: &Request,
        body: &impl serde::Serialize,
    ) -> Result<T, SourceError> {
        let body: Bytes = serde_json::to_vec(body).map_err(not_ours)?.into();
        let answer = self.connection.send(request, |_| body.clone()).await?;
        serde_json::from_slice(&answer).map_err(not_ours)
    }

    async fn end(&self, worker: i64) -> Result<(), SourceError> {
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

    fn soon(&self) -> Timestamp {
        self.clock
            .now()
            .plus_ms(i64::try_from(PAUSE.as_millis()).unwrap_or(i64::MAX))
    }

    /// The answer to a claim while a request waits at the server.
    fn left_to_waiting(&self, state: &State) -> Exchanged {
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

/// Whether an answer says that there is nothing to claim, now or later.
fn is_nothing(answer: &Exchanged) -> bool {
    answer.lease.is_none() && answer.next_run_at.is_none() && !answer.limited
}

/// Where a claim comes from.
enum Claim {
    /// Nothing is wanted, or others see to it; answered with this.
    Else(Exchanged),
    /// The server is asked.
    Now(Want),
}

impl HttpSource {
    fn plan(&self, want: Option<Want>, has_reports: bool) -> Claim {
        let Some(mut want) = want else {
            return Claim::Else(Exchanged::default());
        };
        want.jobs_max = want.jobs_max.min(self.shared.options.jobs_max());
        let mut state = self.shared.lock();
        if let Some(lease) = state.ahead.pop_front() {
            return Claim::Else(Exchanged {
                lease: Some(lease),
                ..Exchanged::default()
            });
        }
        state.want = Some(want.clone());
        // A report since the last claim may have made jobs claimable: then that claim's answer says nothing.
        let is_known = !has_reports && state.outlook.reported == state.reported;
        if state.waiting.is_some() && is_known {
            return Claim::Else(self.shared.left_to_waiting(&state));
        }
        if state.renew {
            // Check again soon: the held jobs may have been reported by then.
            return Claim::Else(Exchanged {
                next_run_at: Some(self.shared.soon()),
                ..Exchanged::default()
            });
        }
        Claim::Now(want)
    }

    /// Sends reports in as many requests as they need, the last of which claims.
    async fn report_and_claim(
        &self,
        reports: Vec<Report>,
        want: Option<Want>,
    ) -> Result<Exchanged, SourceError> {
        let count = reports.len();
        let Parts { mut parts, origins } = split(reports, REQUEST_BYTES_TARGET);
        let last = parts.pop().unwrap_or_default();
        let mut receipts: Vec<Receipt> = Vec::with_capacity(origins.len());
        for part in parts {
            let response = self.shared.exchange(part, None, Duration::ZERO).await?;
            receipts.extend(response.exchanged.receipts);
        }
        let mut answer = Exchanged::default();
        if !last.is_empty() || want.is_some() {
            let mut response = self.shared.exchange(last, want.clone(), Duration::ZERO).await?;
            receipts.append(&mut response.exchanged.receipts);
            answer = match response.is_left_to_another() {
                true => self.shared.claim(want, Duration::ZERO).await?,
                false => response.exchanged,
            };
        }
        answer.receipts = merged(receipts, &origins, count);
        Ok(answer)
    }
}

#[async_trait]
impl Source for HttpSource {
    async fn register(&self) -> Result<(), SourceError> {
        let shared = &self.shared;
        shared.stop_waiting();
        let before = shared.lock().registration.take();
        if let Some(before) = before
            && let Err(error) = shared.end(before.worker).await
        {
            // It is not known any more, or it will be missed soon.
            tracing::debug!(%error, worker = before.worker, "the former worker could not leave");
        }
        let request = Request {
            method: Method::POST,
            path: "/workers".to_owned(),
            content_type: "application/json",
            timeout: shared.options.request_timeout,
            insist: true,
            // A worker that stops before its first registration does not wait for it. Later, outcomes wait for this one.
            must_arrive: true,
        };
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = match host.trim() {
            "" => "unknown",
            host => &host[..host.floor_char_boundary(100)],
        };
        let body = RegisterRequest {
            name: shared.options.name.clone(),
            host: host.to_owned(),
            process_id: std::process::id(),
        };
        let registered: Registered = shared.send_json(&request, &body).await?;
        let mut state = shared.lock();
        state.registration = Some(Registration {
            worker: registered.worker,
            instance: registered.instance,
            heartbeat_every: heartbeat_every(registered.heartbeat_every_ms),
        });
        state.held.clear();
        state.ahead.clear();
        state.under_way.clear();
        (
            state.numbered,
            state.heartbeats,
            state.renew,
            state.waiting_failed,
        ) = (0, 0, false, false);
        (state.outlook, state.reported) = (Outlook::default(), 0);
        (state.expects, state.waited_in_vain) = (false, false);
        Ok(())
    }

    async fn exchange(&self, reports: Vec<Report>, want: Option<Want>) -> Result<Exchanged, SourceError> {
        if reports.iter().any(|report| !report.writes.is_empty()) {
            return Err(SourceError {
                message: "a job writes in the transaction of its report, which only a worker on the store itself can: \
                          run its kind there"
                    .to_owned(),
                kind: SourceErrorKind::Fatal,
            });
        }
        let begin_anew = {
            let state = self.shared.lock();
            state.renew && state.held.is_empty() && reports.is_empty()
        };
        if begin_anew {
            self.register().await?;
        }
        match self.plan(want, !reports.is_empty()) {
            Claim::Now(want) => {
                let mut answer = self.report_and_claim(reports, Some(want)).await?;
                let mut state = self.shared.lock();
                if is_nothing(&answer) && (state.waiting.is_some() || !state.ahead.is_empty()) {
                    // The request that waits at the server may have claimed the last jobs. The server ends its wait.
                    answer.limited = true;
                    state.outlook.limited = true;
                }
                state.expects = answer.limited || answer.next_run_at.is_some();
                drop(state);
                Ok(answer)
            }
            Claim::Else(mut answer) => {
                answer.receipts = self.report_and_claim(reports, None).await?.receipts;
                Ok(answer)
            }
        }
    }

    async fn heartbeat(
        &self,
        stats: BatchStats,
        progress: Vec<JobProgress>,
    ) -> Result<Heartbeat, SourceError> {
        let shared = &self.shared;
        let Registration { worker, .. } = shared.registration()?;
        let number = {
            let mut state = shared.lock();
            state.heartbeats += 1;
            state.heartbeats
        };
        let request = Request {
            method: Method::POST,
            path: format!("/workers/{worker}/heartbeat"),
            content_type: "application/json",
            timeout: HEARTBEAT_TIMEOUT,
            insist: false,
            must_arrive: true,
        };
        let body = HeartbeatRequest {
            number,
            hops: stats,
            progress,
        };
        match shared.send_json::<HeartbeatAnswer>(&request, &body).await {
            Ok(answer) => {
                Connection::look_back(shared.clone());
                let mut state = shared.lock();
                answer
                    .revoked
                    .iter()
                    .for_each(|revoked| state.held.revoked(revoked));
                Ok(Heartbeat {
                    known: answer.known,
                    revoked: answer.revoked,
                    followed: answer.followed,
                })
            }
            Err(error) if error.kind == SourceErrorKind::Unregistered => Ok(Heartbeat {
                known: false,
                ..Heartbeat::default()
            }),
            Err(error) => Err(error),
        }
    }

    async fn put_output(&self, printed: Vec<Printed>) -> Result<(), SourceError> {
        self.shared.put_output(printed).await
    }

    async fn followed(&self) -> Vec<Followed> {
        self.shared.followed().await
    }

    async fn leave(&self, stats: BatchStats) -> Result<(), SourceError> {
        self.shared.stop_waiting();
        if self.shared.connection.is_given_up() {
            // Without heartbeats the leases expire, and the jobs go back.
            return Ok(());
        }
        if let Err(error) = self.heartbeat(stats, Vec::new()).await {
            tracing::debug!(%error, "the last statistics did not arrive");
            if self.shared.connection.is_given_up() {
                return Ok(());
            }
        }
        let Some(registration) = self.shared.lock().registration.take() else {
            return Ok(());
        };
        match self.shared.end(registration.worker).await {
            Err(error) if error.kind != SourceErrorKind::Unregistered => {
                // Everything is reported. The store releases the rest when heartbeats stop.
                tracing::warn!(%error, "the worker could not leave");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn children(
        &self,
        _: LeaseId,
        batch: BatchId,
        parents: &Positions,
    ) -> Result<Vec<Vec<ChildOutcome>>, SourceError> {
        let shared = &self.shared;
        let Registration { worker, .. } = shared.registration()?;
        let request = Request {
            method: Method::POST,
            path: format!("/workers/{worker}/children"),
            content_type: "application/json",
            timeout: shared.options.request_timeout,
            insist: true,
            must_arrive: true,
        };
        let mut all = Vec::with_capacity(parents.len() as usize);
        let mut left = parents.clone();
        while !left.is_empty() {
            let body = ChildrenRequest {
                batch: batch.0,
                positions: left.take_first(FINALIZED_JOBS_MAX),
            };
            let answer: ChildrenAnswer = shared.send_json(&request, &body).await?;
            all.extend(answer.children);
        }
        Ok(all)
    }

    async fn wait_for_work(&self) {
        loop {
            let mut came_back = std::pin::pin!(self.shared.came_back.notified());
            came_back.as_mut().enable();
            if self.wait_at_server() {
                return;
            }
            if self.shared.lock().renew {
                tokio::time::sleep(PAUSE).await;
                return;
            }
            came_back.await;
        }
    }

    fn stop(&self) {
        self.shared.connection.stop();
    }

    fn heartbeat_every(&self) -> Option<Duration> {
        let state = self.shared.lock();
        state.registration.as_ref().map(|own| own.heartbeat_every)
    }
}

/// How often the server expects a heartbeat, whatever it says: at least as often as with the longest lease, and not
/// so often that the agent does nothing else.
fn heartbeat_every(ms: i64) -> Duration {
    let (least, most) = (
        heartbeat_every_ms(LEASE_LOST_AFTER_MS_MIN),
        heartbeat_every_ms(LEASE_LOST_AFTER_MS_MAX),
    );
    Duration::from_millis(ms.clamp(least, most).unsigned_abs())
}
