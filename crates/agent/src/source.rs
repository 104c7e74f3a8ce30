//! A server as a worker's source.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_batching::BatchStats;
use gristmill_model::limits::FINALIZED_JOBS_MAX;
use gristmill_model::{
    BatchId, Clock, Followed, JobId, JobProgress, LeaseId, Positions, Printed, Receipt, Report, Rng,
};
use gristmill_protocol::worker::{
    ChildrenAnswer, ChildrenRequest, HeartbeatAnswer, HeartbeatRequest, JobQuestion, PrerequisitesAnswer,
    RegisterRequest, Registered, StepAnswer,
};
use gristmill_store::family::StepPlace;
use gristmill_store::{ChildOutcome, Exchanged, Heartbeat, Want};
use gristmill_worker::{Source, SourceError, SourceErrorKind};
use reqwest::Method;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::connection::{Connection, Request};
use crate::error::AgentError;
use crate::options::HttpSourceOptions;
use crate::registration::{Outlook, Registration, Shared, heartbeat_every};
use crate::requests::{HEARTBEAT_TIMEOUT, PAUSE, is_nothing};
use crate::split::{Parts, REQUEST_BYTES_TARGET, merged, split};

/// A server as a worker's source. It receives every answer of the server once, however often a request is sent.
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
            wait_ends: Notify::new(),
            learned: Notify::new(),
        };
        Ok(HttpSource {
            shared: Arc::new(shared),
        })
    }

    /// Starts to wait at the server, unless a request already does. Returns whether there is a lease to take or an
    /// error to return at once.
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

/// The way to answer a claim.
enum Claim {
    /// No request is sent, because nothing is wanted or another request waits. This is the answer.
    Else(Exchanged),
    /// The server is asked.
    Now(Want),
}

impl HttpSource {
    /// Asks the server about a job that this worker holds.
    async fn ask<T: DeserializeOwned>(&self, about: &str, job: JobId) -> Result<T, SourceError> {
        let shared = &self.shared;
        let Registration { worker, .. } = shared.registration()?;
        let request = Request {
            method: Method::POST,
            path: format!("/workers/{worker}/{about}"),
            content_type: "application/json",
            timeout: shared.options.request_timeout,
            insist: true,
            must_arrive: true,
        };
        shared.send_json(&request, &JobQuestion { job }).await
    }

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
        // A report since the last claim may have made jobs claimable, so that claim's answer is out of date.
        let is_known = !has_reports && state.outlook.reported == state.reported;
        if state.waiting.is_some() && is_known {
            return Claim::Else(self.shared.left_to_waiting(&state));
        }
        if state.renew {
            // Check again soon, because the held jobs may have been reported by then.
            return Claim::Else(Exchanged {
                next_run_at: Some(self.shared.soon()),
                ..Exchanged::default()
            });
        }
        Claim::Now(want)
    }

    /// Sends reports in as many requests as they need. The last one also claims.
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
            answer = if response.is_left_to_another() {
                self.shared.claim(want, Duration::ZERO).await?
            } else {
                response.exchanged
            };
        }
        answer.receipts = merged(receipts, &origins, count);
        Ok(answer)
    }
}

#[async_trait]
impl Source for HttpSource {
    fn will_serve(&self, queues: Vec<Arc<str>>, kinds: Vec<Arc<str>>) {
        let mut state = self.shared.lock();
        (state.queues, state.kinds) = (queues, kinds);
    }

    async fn register(&self) -> Result<(), SourceError> {
        let shared = &self.shared;
        shared.stop_waiting();
        let before = shared.lock().registration.take();
        if let Some(before) = before
            && let Err(error) = shared.end(before.worker).await
        {
            // The server no longer knows the former worker, or will soon miss it.
            tracing::debug!(%error, worker = before.worker, "the former worker could not leave");
        }
        let request = Request {
            method: Method::POST,
            path: "/workers".to_owned(),
            content_type: "application/json",
            timeout: shared.options.request_timeout,
            insist: true,
            // A worker that stops before its first registration does not wait for it. Later, outcomes wait for a
            // registration.
            must_arrive: true,
        };
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = match host.trim() {
            "" => "unknown",
            host => &host[..host.floor_char_boundary(100)],
        };
        let (queues, kinds) = {
            let state = shared.lock();
            (state.queues.clone(), state.kinds.clone())
        };
        let body = RegisterRequest {
            name: shared.options.name.clone(),
            host: host.to_owned(),
            process_id: std::process::id(),
            queues,
            kinds,
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
        (state.outlook, state.reported, state.committed) = (Outlook::default(), 0, 0);
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
                    self.shared.wait_ends.notify_one();
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
        idle: Option<Want>,
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
            idle,
        };
        let answer = shared.send_json::<HeartbeatAnswer>(&request, &body).await;
        let is_former = shared
            .lock()
            .registration
            .as_ref()
            .is_none_or(|own| own.worker != worker);
        if is_former {
            // The worker has registered again meanwhile, so this answer does not apply to its current jobs.
            return Ok(Heartbeat {
                known: true,
                ..Heartbeat::default()
            });
        }
        match answer {
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
                    drain: answer.drain,
                    held_back: answer.held_back,
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
            // Without heartbeats the leases expire, and the store releases the jobs.
            return Ok(());
        }
        if let Err(error) = self.heartbeat(stats, Vec::new(), None).await {
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
                // All outcomes are reported. The store releases the remaining jobs when heartbeats stop.
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

    async fn prerequisites(&self, job: JobId) -> Result<Vec<ChildOutcome>, SourceError> {
        let answer: PrerequisitesAnswer = self.ask("prerequisites", job).await?;
        Ok(answer.outcomes)
    }

    async fn step(&self, job: JobId) -> Result<Option<StepPlace>, SourceError> {
        let answer: StepAnswer = self.ask("step", job).await?;
        Ok(answer.step)
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

    fn claim_jobs_max(&self) -> u32 {
        self.shared.options.jobs_max()
    }

    fn stop(&self) {
        self.shared.connection.stop();
    }

    fn heartbeat_every(&self) -> Option<Duration> {
        let state = self.shared.lock();
        state.registration.as_ref().map(|own| own.heartbeat_every)
    }
}
