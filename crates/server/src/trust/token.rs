//! The claims of a token, signed and listed.

use gristmill_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::caller::Role;

/// The signed claims: RFC 7519's names, and two of our own. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claims {
    /// The worker group, or the submitting program.
    pub sub: String,
    /// The token's role.
    pub role: Role,
    /// The queues that it reaches; `*` for all.
    pub queues: Vec<String>,
    /// When it was made.
    pub iat: i64,
    /// When it ends. Mandatory.
    pub exp: i64,
    /// Its own id.
    pub jti: String,
}

/// A token as the list has it: without its signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Its own id.
    pub jti: String,
    /// The worker group, or the submitting program.
    pub subject: String,
    /// Its role.
    pub role: Role,
    /// The queues that it reaches; `*` for all.
    pub queues: Vec<String>,
    /// The key that signed it.
    pub kid: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// When it was revoked, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}
