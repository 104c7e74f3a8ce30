//! The caller of a request and its rights. They come from the token alone, never from a request's body.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use gristmill_model::JobId;
use gristmill_operations::Access;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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

/// The one event that a token may send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventScope {
    /// The flow.
    pub job: JobId,
    /// The name of the event.
    pub name: String,
}

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The queues that it may touch, and its name: the token's subject, which is the worker group of agents.
    pub access: Access,
    /// The token's own id.
    pub token: Arc<str>,
    /// The role of the token; `None` for a caller of a loopback server without a trust folder, who may do everything.
    pub role: Option<Role>,
    /// The one event that it may send, if it may do nothing else.
    pub event: Option<Arc<EventScope>>,
}

impl Caller {
    /// The caller of a server without a trust folder, which listens on loopback only.
    pub fn local() -> Self {
        Caller {
            access: Access::all(),
            token: "local".into(),
            role: None,
            event: None,
        }
    }
}
