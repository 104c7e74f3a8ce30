//! `POST /workers/{worker}/exchange`: takes reports, and answers with receipts and a lease.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{FromRequest, Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gristmill_model::batch::check_name;
use gristmill_model::limits::LEASE_JOBS_MAX;
use gristmill_model::{JobId, JobState, Lease, Positions, Receipt, Report, WorkerId};
use gristmill_operations::Refused;
use gristmill_operations::access::has_batch;
use gristmill_operations::limits::WAIT_MS_MAX;
use gristmill_protocol::{EXCHANGE_TYPE, ExchangeRequest, ExchangeResponse};
use gristmill_store::{Exchanged, StoreError, Want};
use tokio::sync::watch;

use super::worker_id;
use crate::app::App;
use crate::body::{Body, NoQuery, PathText, Query, check_type};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::{KINDS_MAX, LONG_POLLS_MAX, QUEUES_MAX};
use crate::sessions::Session;
use crate::wake::is_nothing;

/// Report outcomes and claim jobs
///
/// Commits both in one transaction. The store accepts or refuses each item of a report: it refuses items that the
/// worker's lease no longer holds. The body and the answer have the type `application/vnd.gristmill.exchange.v1`: the
/// bytes `GMX1`, the length of a JSON head (4 bytes, little-endian), the head, and then each segment after its length
/// (4 bytes, little-endian). The head of a request has `number` (from 1 upwards for each worker), `attempt` (from 1;
/// higher when it is sent again), `acknowledged` (no request up to this number is sent again), `instance` (from the
/// last answer), `reports` (each with `lease`, `batch`, `attempt`, and the positions `completed` and `released`, the
/// lists `failed`, `suspended`, `siblings` and `logs`, and, for jobs that failed and ran again in the same slot, the
/// count `repeats` and their failures `earlier`), `want` (`jobs_max`, `queues`, `kinds`) and `wait_ms`; each report
/// with completed jobs has two segments, the values (a JSON array) and the durations (32-bit little-endian numbers,
/// microseconds). The head of an answer has `instance`, `receipts` (each with the positions `accepted`, `refused`,
/// `dead`), `lease` (`id` and `slices`), `next_run_at`, `now`, `claim_unknown`, `not_claimed`, and `followed` if that has
/// changed (as in answers to heartbeats); each slice has one
/// segment, its payloads (a JSON array with one item a line), and `memos` if its jobs finalize: their children have
/// ended. `suspended` jobs wait for children that the report stores: `positions`, `memos`, `on_failure` (`fail` or
/// `collect`) and `children` (each `kind`, `payloads` and `shares`: the number of each job's children; optionally
/// `queue`, `options`, `tags` and `after`). `siblings` are jobs that completed jobs spawned for their parents:
/// `positions`, and `children` of the same form. A repeated request with the same number gets the first answer and
/// claims nothing more.
#[utoipa::path(
    post,
    path = "/workers/{worker}/exchange",
    tag = "agents",
    operation_id = "exchange",
    params(("worker" = i64, Path, description = "The id from its registration")),
    request_body(content = Vec<u8>, content_type = "application/vnd.gristmill.exchange.v1"),
    responses(
        (status = 200, description = "Receipts and a lease", content_type = "application/vnd.gristmill.exchange.v1", body = Vec<u8>),
        (status = "4XX", description = "Refused; nothing is committed or claimed", body = Refusal),
    )
)]
pub async fn exchange(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathText(worker): PathText,
    Query(NoQuery {}): Query<NoQuery>,
    request: Request,
) -> Result<Response, ApiError> {
    let worker = worker_id(&worker)?;
    check_type(request.headers(), EXCHANGE_TYPE)?;
    let session = app.sessions.of_caller(&**app.store(), &caller, worker).await?;
    let mut body = Body::from_request(request, &app).await?;
    let exchange = body.read(|message| {
        ExchangeRequest::decode(message).map_err(|error| {
            ApiError::invalid(error.to_string(), "see this operation in /api/v1/openapi.json")
        })
    });
    let exchange = exchange.await?;
    check(&exchange, &caller)?;
    let (number, acknowledged) = (exchange.number, exchange.acknowledged);
    let (answer, _waiter) = session.answer(number, acknowledged, |waiters| {
        let (app, caller, session) = (app.clone(), caller.clone(), session.clone());
        // Reports are as large as their body. A request without reports waits for work, and takes no room meanwhile.
        let body = (!exchange.reports.is_empty()).then_some(body);
        async move {
            let answer = carry_out(app, caller, session, exchange, waiters).await;
            drop(body);
            answer
        }
    })?;
    let answer = match answer.await {
        // The store may have made a claim that nobody knows of. The agent registers as another worker, and this one
        // leaves, which releases the jobs of such a claim.
        Err(ApiError::Store(StoreError::Unknown { .. })) => Err(ApiError::Stale {
            worker: worker.0,
            number,
        }),
        answer => answer,
    };
    if matches!(answer, Err(ApiError::Store(StoreError::WorkerUnknown(_)))) {
        app.sessions.end(worker);
    }
    Ok(([(header::CONTENT_TYPE, EXCHANGE_TYPE)], answer?).into_response())
}

fn check(exchange: &ExchangeRequest, caller: &Caller) -> Result<(), ApiError> {
    let invalid = |error: String, remedy: &str| Err(ApiError::invalid(error, remedy));
    if exchange.number == 0 || exchange.number <= exchange.acknowledged {
        return invalid(
            format!(
                "request {} after {} was acknowledged",
                exchange.number, exchange.acknowledged
            ),
            "number each new request higher than the last, from 1",
        );
    }
    if exchange.wait_ms > WAIT_MS_MAX {
        return invalid(format!("`wait_ms` is {}", exchange.wait_ms), "give at most 30000");
    }
    check_children(&exchange.reports, caller)?;
    match &exchange.want {
        Some(want) => check_want(want, caller),
        None => Ok(()),
    }
}

/// Refuses children on queues to which the caller has no access. They go to the queue of their parents, unless they name another
/// one.
pub(super) fn check_children(reports: &[Report], caller: &Caller) -> Result<(), ApiError> {
    for report in reports {
        let suspended = report.suspended.iter().map(|one| (&one.positions, &one.children));
        let siblings = report.siblings.iter().map(|one| (&one.positions, &one.children));
        for (parents, children) in suspended.chain(siblings) {
            for children in children {
                let Some(queue) = &children.queue else { continue };
                caller.access.check_queue(queue).map_err(|refused| {
                    let place = children.shares.iter().position(|share| *share > 0);
                    let position = parents.iter().nth(place.unwrap_or(0)).unwrap_or_default();
                    let batch = report.batch;
                    of_job(JobId { batch, position }, refused)
                })?;
            }
        }
    }
    Ok(())
}

/// Names the job whose children are refused.
fn of_job(job: JobId, refused: Refused) -> ApiError {
    match refused {
        Refused::Forbidden { error, remedy } => ApiError::Forbidden {
            error: format!("the children of job {job} are refused: {error}"),
            remedy,
        },
        refused => refused.into(),
    }
}

/// Refuses a claim that is too large or outside of the caller's queues.
pub(super) fn check_want(want: &Want, caller: &Caller) -> Result<(), ApiError> {
    let invalid = |error: String, remedy: &str| Err(ApiError::invalid(error, remedy));
    if want.jobs_max == 0 || want.jobs_max > LEASE_JOBS_MAX {
        return invalid(
            format!("`want.jobs_max` is {}", want.jobs_max),
            "give 1 to 10000, or no `want`",
        );
    }
    if want.queues.is_empty() {
        return invalid("`want` names no queue".to_owned(), "name at least one");
    }
    // The queues of reports need no check: the store accepts a report only for jobs that this worker holds, and the
    // worker claimed them here with the same token.
    check_lanes("`want`", &want.queues, &want.kinds, caller)
}

/// Refuses queues and kinds that a worker cannot serve. `of` names their place.
pub(super) fn check_lanes(
    of: &str,
    queues: &[Arc<str>],
    kinds: &[Arc<str>],
    caller: &Caller,
) -> Result<(), ApiError> {
    if queues.len() > QUEUES_MAX || kinds.len() > KINDS_MAX {
        return Err(ApiError::invalid(
            format!("{of} names too many queues or kinds"),
            format!("name at most {QUEUES_MAX} queues and {KINDS_MAX} kinds"),
        ));
    }
    let named = queues.iter().map(|queue| ("queue", queue));
    for (what, name) in named.chain(kinds.iter().map(|kind| ("kind", kind))) {
        if let Err(error) = check_name(what, name) {
            let remedy = "name queues and kinds as they were submitted";
            return Err(ApiError::invalid(error.to_string(), remedy));
        }
    }
    Ok(queues
        .iter()
        .try_for_each(|queue| caller.access.check_queue(queue))?)
}

/// Commits and claims. Waits for jobs if the request asks for that.
async fn carry_out(
    app: App,
    caller: Caller,
    session: Arc<Session>,
    exchange: ExchangeRequest,
    waiters: watch::Receiver<usize>,
) -> Result<Bytes, ApiError> {
    let worker = session.worker;
    let ExchangeRequest {
        number,
        attempt,
        instance,
        reports,
        want,
        wait_ms,
        ..
    } = exchange;
    let is_ours = instance == app.instance;
    let (wanted, want) = (want.is_some(), want.filter(|_| is_ours));
    let waits = reports.is_empty() && wait_ms > 0;
    let mut exchanged = app
        .store()
        .exchange(worker, reports.clone(), want.clone())
        .await?;
    note(&app, &reports, &exchanged);
    if attempt > 1 {
        recall(&app, &caller, worker, &reports, &mut exchanged.receipts).await?;
    }
    match want {
        Some(want) if waits && jobs(&exchanged) == 0 => {
            let ended = ended(&app, &caller, &session, number, wait_ms, waiters);
            exchanged = wait_for_work(&app, worker, &want, exchanged, ended).await?;
        }
        Some(_) if is_nothing(&exchanged) => session.found_nothing(number),
        _ => {}
    }
    app.metrics.exchanged("claimed", jobs(&exchanged));
    let response = ExchangeResponse {
        instance: app.instance.clone(),
        exchanged,
        now: app.clock().now(),
        claim_unknown: wanted && !is_ours && attempt > 1,
        not_claimed: wanted && !is_ours,
        followed: session.news_of(&app.interest),
    };
    Ok(response.encode())
}

/// Corrects the receipts of a repeated request. If the first one was carried out by another server, or by this server
/// before its restart, and its answer was lost, the receipts become those of the first time. The worker is still
/// registered, so nobody has taken its leases: it has itself reported the jobs that they no longer hold, unless these
/// jobs were cancelled. Reports of batches outside of the caller's queues stay refused, because it never held their
/// jobs.
pub(super) async fn recall(
    app: &App,
    caller: &Caller,
    worker: WorkerId,
    reports: &[Report],
    receipts: &mut [Receipt],
) -> Result<(), ApiError> {
    if receipts.iter().all(|receipt| receipt.refused.is_empty()) {
        return Ok(());
    }
    let workers = app.store().workers().await?;
    let Some(row) = workers.iter().find(|row| row.id == worker) else {
        return Ok(());
    };
    for (report, receipt) in reports.iter().zip(receipts) {
        if receipt.refused.is_empty() {
            continue;
        }
        if !has_batch(&**app.store(), &caller.access, report.batch).await? {
            continue;
        }
        let Some(outcomes) = app.store().outcomes(report.batch).await? else {
            continue;
        };
        let mut ended = Positions::new();
        // A job that ended on a later attempt failed on this one.
        let earlier = outcomes
            .reports
            .iter()
            .filter(|stored| stored.attempt <= report.last_attempt());
        for stored in earlier {
            let known = stored.positions.intersection(&receipt.refused);
            ended = ended.union(&known);
            if stored.attempt != report.last_attempt() || stored.worker.as_deref() != Some(&*row.worker.name)
            {
                continue;
            }
            match stored.state {
                JobState::Completed => receipt.accepted = receipt.accepted.union(&known),
                JobState::Dead => {
                    receipt.accepted = receipt.accepted.union(&known);
                    receipt.dead = receipt.dead.union(&known);
                }
                _ => {}
            }
        }
        // A job that waits, or has waited, for its children did so by this report.
        for suspended in &report.suspended {
            let waiting = suspended.positions.intersection(&receipt.refused);
            if waiting.is_empty() {
                continue;
            }
            let stored = app.store().suspensions(report.batch, &waiting).await?;
            let memos = suspended.memos.select(&suspended.positions.indexes_of(&waiting));
            for ((position, stored), memo) in waiting.iter().zip(stored).zip(memos.items()) {
                // A flow suspends many times. A stored suspension with another memo is an earlier or a later one.
                if stored.iter().any(|one| one.memo == memo) {
                    receipt.accepted.insert(position);
                }
            }
        }
        // A failed job that is tried again and a released job have no outcome yet.
        let failed: Positions = report.failed.iter().map(|failed| failed.position).collect();
        let back = failed.union(&report.released).intersection(&receipt.refused);
        receipt.accepted = receipt.accepted.union(&back.difference(&ended));
        receipt.refused = receipt.refused.difference(&receipt.accepted);
    }
    Ok(())
}

pub(super) fn jobs(exchanged: &Exchanged) -> u32 {
    exchanged.lease.as_ref().map_or(0, Lease::jobs)
}

pub(super) fn note(app: &App, reports: &[Report], exchanged: &Exchanged) {
    for (report, receipt) in reports.iter().zip(&exchanged.receipts) {
        app.metrics.exchanged("accepted", receipt.accepted.len());
        app.metrics.exchanged("refused", receipt.refused.len());
        app.committed(report);
    }
}

/// Claims whenever there may be work, until it gets jobs or `ended` resolves.
pub(super) async fn wait_for_work(
    app: &App,
    worker: WorkerId,
    want: &Want,
    first: Exchanged,
    ended: impl Future<Output = ()>,
) -> Result<Exchanged, ApiError> {
    let _room = app
        .long_polls
        .clone()
        .try_acquire_owned()
        .map_err(|_| ApiError::TooMany {
            what: "too many claims wait for work",
            limit: format!("{LONG_POLLS_MAX} at once"),
            retry_after_s: 5,
        })?;
    let claim = || app.store().exchange(worker, Vec::new(), Some(want.clone()));
    let waited = app
        .wake
        .claim_when_there_is_work(want, app.clock(), first, claim, ended);
    Ok(waited.await?)
}

/// Resolves when a longer wait is useless: the time is up, the server stops, the token ends, another request of the
/// worker found that no jobs are left, or nobody waits for the answer (an agent that died must not get jobs).
async fn ended(
    app: &App,
    caller: &Caller,
    session: &Session,
    number: u64,
    wait_ms: u64,
    mut waiters: watch::Receiver<usize>,
) {
    tokio::select! {
        _ = app.token_ended(caller) => {}
        () = session.later_found_nothing(number) => {}
        () = tokio::time::sleep(Duration::from_millis(wait_ms)) => {}
        _ = waiters.wait_for(|waiters| *waiters == 0) => {}
        () = app.stopped() => {}
    }
}
