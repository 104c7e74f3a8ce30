//! The caller of a request and its rights. They come from the token alone, never from a request's body.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use gristmill_model::KeyScope;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ApiError;

/// The role of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May do everything that clients may: submits, queries and changes jobs, schedules and limits, and sees workers
    /// and metrics.
    Admin,
    /// Queries and changes jobs and limits, pauses and triggers schedules. It submits no jobs and makes no schedules.
    Operator,
    /// Submits, queries and changes jobs of its queues.
    Submit,
    /// Claims and reports jobs of its queues.
    Agent,
    /// Reads everything except results, logs and memory. Payloads are visible only if the server shows them to monitors.
    Monitor,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 5] = [
        Role::Admin,
        Role::Operator,
        Role::Submit,
        Role::Agent,
        Role::Monitor,
    ];

    /// The role's name, as in `--role agent`.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Operator => "operator",
            Role::Submit => "submit",
            Role::Agent => "agent",
            Role::Monitor => "monitor",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The text is not a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a role: give admin, operator, submit, agent or monitor")]
pub struct ParseRoleError(String);

impl FromStr for Role {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Role::ALL
            .into_iter()
            .find(|role| role.name() == text)
            .ok_or_else(|| ParseRoleError(text.to_owned()))
    }
}

/// The queues that a caller may access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueScope {
    /// All queues, written `*`.
    All,
    /// Only these queues.
    Named(BTreeSet<String>),
}

impl QueueScope {
    /// The scope of a token's list of queues. A `*` in it stands for all.
    pub fn new<'a>(queues: impl IntoIterator<Item = &'a str>) -> Self {
        let named: BTreeSet<String> = queues.into_iter().map(str::to_owned).collect();
        if named.contains("*") {
            QueueScope::All
        } else {
            QueueScope::Named(named)
        }
    }

    /// Reports whether `queue` is in the scope.
    pub fn contains(&self, queue: &str) -> bool {
        match self {
            QueueScope::All => true,
            QueueScope::Named(named) => named.contains(queue),
        }
    }
}

impl fmt::Display for QueueScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueScope::All => formatter.write_str("*"),
            QueueScope::Named(named) => {
                formatter.write_str(&named.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The token's subject: for agents, the worker group.
    pub subject: Arc<str>,
    /// The token's own id.
    pub token: Arc<str>,
    /// The role of the token. `None` for a caller of a loopback server without a trust folder. Such a caller may do
    /// everything.
    pub role: Option<Role>,
    /// The queues that the caller may use.
    pub queues: QueueScope,
}

impl Caller {
    /// The caller of a server without a trust folder, which listens on loopback only.
    pub fn local() -> Self {
        Caller {
            subject: "local".into(),
            token: "local".into(),
            role: None,
            queues: QueueScope::All,
        }
    }

    /// Refuses a queue that is not in the caller's scope.
    pub fn check_queue(&self, queue: &str) -> Result<(), ApiError> {
        if self.queues.contains(queue) {
            return Ok(());
        }
        let queue: String = queue.chars().take(80).collect();
        Err(ApiError::forbidden(
            format!(
                "the token of `{}` does not give access to the queue `{queue}`",
                self.subject
            ),
            format!("its queues are: {}", self.queues),
        ))
    }

    /// Refuses keys of a kind, because they could reach jobs on queues outside of the caller's scope.
    pub fn check_key_scope(&self, scope: KeyScope) -> Result<(), ApiError> {
        if scope == KeyScope::Kind && self.queues != QueueScope::All {
            return Err(ApiError::forbidden(
                "keys of a kind apply to all queues, and the token gives access to some queues only",
                "give `unique` with the scope `queue`",
            ));
        }
        Ok(())
    }

    /// Refuses callers without access to all queues.
    pub fn check_all_queues(&self) -> Result<(), ApiError> {
        match self.queues {
            QueueScope::All => Ok(()),
            QueueScope::Named(_) => Err(ApiError::forbidden(
                format!(
                    "this operation needs all queues, and the token of `{}` gives access only to: {}",
                    self.subject, self.queues
                ),
                "use a token whose queues are `*`",
            )),
        }
    }

    /// The queue of a filter: the named one, or the caller's only one, or all (`None`).
    pub fn filter_queue(&self, named: Option<String>) -> Result<Option<String>, ApiError> {
        match (named, &self.queues) {
            (Some(queue), _) => self.check_queue(&queue).map(|()| Some(queue)),
            (None, QueueScope::All) => Ok(None),
            (None, QueueScope::Named(own)) if own.len() == 1 => Ok(own.first().cloned()),
            (None, QueueScope::Named(_)) => Err(ApiError::invalid(
                "the request names no queue, and the token does not give access to all",
                format!("name one of its queues: {}", self.queues),
            )),
        }
    }
}
