//! The claims of a token, signed and listed.

use gristmill_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::caller::{EventScope, Role};

/// The signed claims: names of RFC 7519, and some of our own. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claims {
    /// The worker group, or the submitting program.
    pub sub: String,
    /// The token's role.
    pub role: Role,
    /// The queues that it gives access to; `*` for all.
    pub queues: Vec<String>,
    /// The one event that it may send, if it may do nothing else. It reaches no queues then: a server that does not know this
    /// claim lets it do nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventScope>,
    /// The time of its creation.
    pub iat: i64,
    /// Its end. Mandatory.
    pub exp: i64,
    /// Its own id.
    pub jti: String,
}

/// A token in the list, without its signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Its own id.
    pub jti: String,
    /// The worker group, or the submitting program.
    pub subject: String,
    /// Its role.
    pub role: Role,
    /// The queues that it gives access to; `*` for all.
    pub queues: Vec<String>,
    /// The one event that it may send, if it may do nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventScope>,
    /// The key that signed it.
    pub kid: String,
    /// The time of its creation.
    pub created_at: Timestamp,
    /// Its end.
    pub expires_at: Timestamp,
    /// The time of its revocation, if it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}
