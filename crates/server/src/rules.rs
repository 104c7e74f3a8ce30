//! Authorisation rules. An operation without a rule is denied to every caller.
//!
//! The description of the API gets each operation's `x-gristmill-roles` and `x-gristmill-queues` from the same table,
//! and the tests of authorisation are generated from the description.

use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::caller::{Caller, Role};
use crate::error::ApiError;

/// The queues that an operation touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueRule {
    /// No queue.
    None,
    /// The queues that the request names, or that its jobs are in. The token must give access to them.
    Named,
    /// The queues of the token. Others are not shown.
    Shown,
    /// All queues. The token's queues must be `*`.
    All,
    /// The queues of a worker that was registered with the same token.
    Worker,
}

impl QueueRule {
    /// The rule's name in the description.
    pub const fn name(self) -> &'static str {
        match self {
            QueueRule::None => "none",
            QueueRule::Named => "named",
            QueueRule::Shown => "shown",
            QueueRule::All => "all",
            QueueRule::Worker => "worker",
        }
    }
}

/// The rule of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// `GET`, `POST`, …
    pub method: &'static str,
    /// The path below `/api/v1`, as in the router.
    pub path: &'static str,
    /// The roles that may use it.
    pub roles: &'static [Role],
    /// The queues that it touches.
    pub queues: QueueRule,
}

/// The path of all operations.
pub const BASE: &str = "/api/v1";

/// The operation that a token for one event allows.
const SEND_EVENT: &str = "/jobs/{job}/events";

const ALL: &[Role] = &Role::ALL;
const ADMIN: &[Role] = &[Role::Admin];
const OPERATORS: &[Role] = &[Role::Admin, Role::Operator];
const SUBMITTERS: &[Role] = &[Role::Admin, Role::Submit];
const CLIENTS: &[Role] = &[Role::Admin, Role::Operator, Role::Submit];
const MONITORS: &[Role] = &[Role::Admin, Role::Operator, Role::Monitor];
const READERS: &[Role] = &[Role::Admin, Role::Operator, Role::Submit, Role::Monitor];
const AGENT: &[Role] = &[Role::Agent];

/// All rules.
pub const RULES: &[Rule] = &[
    rule("POST", "/jobs", SUBMITTERS, QueueRule::Named),
    rule("POST", "/jobs/stream", SUBMITTERS, QueueRule::Named),
    rule("GET", "/jobs", READERS, QueueRule::Named),
    rule("GET", "/jobs/count", READERS, QueueRule::Named),
    rule("GET", "/jobs/ids", READERS, QueueRule::Named),
    rule("GET", "/jobs/{job}", READERS, QueueRule::Named),
    rule("GET", "/jobs/{job}/steps", READERS, QueueRule::Named),
    rule("POST", SEND_EVENT, CLIENTS, QueueRule::Named),
    rule("POST", "/jobs/events", CLIENTS, QueueRule::Named),
    rule("GET", "/flows", READERS, QueueRule::Shown),
    rule("GET", "/flows/kinds", READERS, QueueRule::Shown),
    rule("GET", "/batches", READERS, QueueRule::Named),
    rule("GET", "/tags/{tag}", READERS, QueueRule::All),
    rule("GET", "/groups", READERS, QueueRule::Named),
    rule("POST", "/jobs/cancel", CLIENTS, QueueRule::Named),
    rule("POST", "/jobs/retry", CLIENTS, QueueRule::Named),
    rule("POST", "/jobs/discard", CLIENTS, QueueRule::Named),
    rule("POST", "/jobs/prioritise", CLIENTS, QueueRule::Named),
    rule("POST", "/jobs/pause", CLIENTS, QueueRule::Named),
    rule("POST", "/jobs/resume", CLIENTS, QueueRule::Named),
    rule("POST", "/jobs/fork", SUBMITTERS, QueueRule::Named),
    rule("POST", "/jobs/memos", CLIENTS, QueueRule::All),
    rule("POST", "/operations", CLIENTS, QueueRule::Named),
    rule("GET", "/operations", READERS, QueueRule::Shown),
    rule("GET", "/operations/{operation}", READERS, QueueRule::Named),
    rule("DELETE", "/operations/{operation}", CLIENTS, QueueRule::Named),
    rule("GET", "/results", CLIENTS, QueueRule::Named),
    rule("GET", "/queues", READERS, QueueRule::Shown),
    rule("GET", "/backlog", READERS, QueueRule::Named),
    rule("GET", "/workers", MONITORS, QueueRule::All),
    rule("GET", "/stats", MONITORS, QueueRule::All),
    rule("GET", "/runs", READERS, QueueRule::All),
    rule("GET", "/history", READERS, QueueRule::Named),
    rule("GET", "/schedules", MONITORS, QueueRule::All),
    rule("GET", "/schedules/{schedule}", MONITORS, QueueRule::All),
    rule("PUT", "/schedules/{schedule}", ADMIN, QueueRule::All),
    rule("DELETE", "/schedules/{schedule}", ADMIN, QueueRule::All),
    rule("POST", "/schedules/{schedule}/pause", OPERATORS, QueueRule::All),
    rule("POST", "/schedules/{schedule}/resume", OPERATORS, QueueRule::All),
    rule("POST", "/schedules/{schedule}/trigger", OPERATORS, QueueRule::All),
    rule("GET", "/memory", OPERATORS, QueueRule::All),
    rule("GET", "/memory/recall", OPERATORS, QueueRule::All),
    rule("GET", "/controls", MONITORS, QueueRule::All),
    rule("PUT", "/controls", OPERATORS, QueueRule::All),
    rule("POST", "/controls/lift", OPERATORS, QueueRule::All),
    rule("GET", "/events", READERS, QueueRule::All),
    rule("GET", "/logs", CLIENTS, QueueRule::Named),
    rule("GET", "/metrics", MONITORS, QueueRule::All),
    rule("GET", "/health", ALL, QueueRule::None),
    rule("GET", "/ready", ALL, QueueRule::None),
    rule("GET", "/openapi.json", ALL, QueueRule::None),
    rule("POST", "/workers", AGENT, QueueRule::None),
    rule("POST", "/workers/{worker}/exchange", AGENT, QueueRule::Worker),
    rule("POST", "/workers/{worker}/heartbeat", AGENT, QueueRule::Worker),
    rule("POST", "/workers/{worker}/output", AGENT, QueueRule::Worker),
    rule("POST", "/workers/{worker}/children", AGENT, QueueRule::Worker),
    rule("POST", "/workers/{worker}/step", AGENT, QueueRule::Worker),
    rule(
        "POST",
        "/workers/{worker}/prerequisites",
        AGENT,
        QueueRule::Worker,
    ),
    rule("DELETE", "/workers/{worker}", AGENT, QueueRule::Worker),
    rule("POST", "/workers/{worker}/drain", OPERATORS, QueueRule::All),
    rule("POST", "/claims", AGENT, QueueRule::Named),
    rule("POST", "/reports", AGENT, QueueRule::Worker),
];

const fn rule(method: &'static str, path: &'static str, roles: &'static [Role], queues: QueueRule) -> Rule {
    Rule {
        method,
        path,
        roles,
        queues,
    }
}

/// The rule of an operation, by its method and its path below `/api/v1`.
pub fn find(method: &Method, path: &str) -> Option<&'static Rule> {
    let method = if method == Method::HEAD {
        &Method::GET
    } else {
        method
    };
    RULES
        .iter()
        .find(|rule| rule.method == method.as_str() && rule.path == path)
}

/// Passes a request to its operation or refuses it, and counts it.
pub async fn guard(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let matched = request
        .extensions()
        .get::<MatchedPath>()
        .map(|path| path.as_str().to_owned());
    let path = matched.as_deref().and_then(|path| path.strip_prefix(BASE));
    let rule = path.and_then(|path| find(request.method(), path));
    let response = match admit(&app, rule, &request) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    };
    app.metrics.request(rule, response.status(), begun.elapsed());
    response
}

/// The caller, if the rule allows the request.
fn admit(app: &App, rule: Option<&Rule>, request: &Request) -> Result<Caller, ApiError> {
    let caller = app.trust.authenticate(request.headers())?;
    app.rate.take(&caller.token)?;
    let Some(rule) = rule else {
        return Err(no_such_operation(request));
    };
    if let Some(role) = caller.role
        && !rule.roles.contains(&role)
    {
        let roles: Vec<&str> = rule.roles.iter().map(|role| role.name()).collect();
        return Err(ApiError::forbidden(
            format!(
                "a token for `{role}` does not allow {} {BASE}{}",
                rule.method, rule.path
            ),
            format!("use a token for: {}", roles.join(", ")),
        ));
    }
    if let Some(event) = &caller.event
        && rule.path != SEND_EVENT
    {
        return Err(ApiError::forbidden(
            format!(
                "the token of `{}` allows nothing but an event",
                caller.access.subject
            ),
            format!(
                "POST {BASE}/jobs/{}/events with the name `{}`",
                event.job, event.name
            ),
        ));
    }
    if rule.queues == QueueRule::All {
        caller.access.check_all_queues()?;
    }
    Ok(caller)
}

/// The answer to a path or a method that no operation has.
fn no_such_operation(request: &Request) -> ApiError {
    let Some(matched) = request.extensions().get::<MatchedPath>() else {
        return ApiError::NoSuchPath(request.uri().path().chars().take(200).collect());
    };
    let path = matched.as_str().strip_prefix(BASE);
    let methods = RULES
        .iter()
        .filter(|rule| path == Some(rule.path))
        .map(|rule| rule.method);
    no_such_method(request, methods.collect::<Vec<_>>().join(", "))
}

/// The answer to a method that a path does not have.
pub fn no_such_method(request: &Request, allowed: String) -> ApiError {
    ApiError::NoSuchMethod {
        method: request.method().as_str().chars().take(20).collect(),
        allowed,
    }
}
