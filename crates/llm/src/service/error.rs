//! The reasons why a service gave no answer.

use serde_json::Value;

/// The reason why a service gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// The service refused this request permanently. Others may be answered.
    #[error(
        "the model service refused the request ({status}): {reason}; check the address, the model's name and the key"
    )]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The text of the answer.
        reason: String,
    },
    /// The service refuses all requests: the key, the model or the address is wrong, or nothing is left of the quota.
    #[error(
        "the model service refuses all requests ({status}): {reason}; check the key, its quota, the model's name and the address"
    )]
    Denied {
        /// The HTTP status.
        status: u16,
        /// The text of the answer.
        reason: String,
    },
    /// The model declined to answer, or a filter held its answer back.
    #[error("the model declined to answer: {reason}")]
    Declined {
        /// The model's words.
        reason: String,
    },
    /// Every try failed.
    #[error("the model service did not answer after {tries} tries: {reason}")]
    Unavailable {
        /// Number of tries.
        tries: u32,
        /// The failure of the last try.
        reason: String,
    },
    /// The service is unreachable.
    #[error(
        "the model service at {base_url} cannot be reached: {reason}; check that it runs, and its address"
    )]
    Unreachable {
        /// Its address.
        base_url: String,
        /// The error of the connection.
        reason: String,
    },
    /// The settings are invalid.
    #[error("{0}")]
    Settings(String),
}

/// The kind of [`ServiceError::Denied`].
pub const DENIED: &str = "denied";

impl ServiceError {
    /// The word that groups errors of this kind: `refused`, `denied`, `declined`, `unavailable`, `settings`.
    pub const fn kind(&self) -> &'static str {
        match self {
            ServiceError::Refused { .. } => "refused",
            ServiceError::Denied { .. } => DENIED,
            ServiceError::Declined { .. } => "declined",
            ServiceError::Unavailable { .. } | ServiceError::Unreachable { .. } => "unavailable",
            ServiceError::Settings(_) => "settings",
        }
    }

    /// Whether the service refuses all requests of this key, and not only those of one model: the key is wrong, or nothing
    /// is left of its quota. The same request may be answered once the key is mended.
    pub const fn is_of_key(&self) -> bool {
        matches!(self, ServiceError::Denied { status, .. } if !matches!(*status, 403 | 404))
    }
}

/// Words in the body of a refusal that no other request would avoid: nothing is left to spend.
const SPENT: [&str; 6] = [
    "insufficient_quota",
    "billing_hard_limit_reached",
    "billing_not_active",
    "credit balance is too low",
    "insufficient credits",
    "insufficient balance",
];

/// Words of a refusal with status 403 that are about the one text.
const MODERATED: [&str; 3] = ["moderation", "flagged", "content policy"];

/// Whether a refusal with this status and body would meet all other requests as well.
pub(super) fn is_denial(status: u16, body: &str) -> bool {
    let body = body.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| body.contains(word));
    match status {
        401 | 402 | 404 => true,
        403 => !has(&MODERATED),
        429 => has(&SPENT),
        400 => is_spent(&body),
        _ => false,
    }
}

/// Whether a refusal with status 400 says that nothing is left to spend. Such refusals also repeat the words of the request, so
/// these count only as the code of the error, or at the beginning of its message.
fn is_spent(body: &str) -> bool {
    let parsed: Value = serde_json::from_str(body).unwrap_or_default();
    let codes = [
        &parsed["error"]["code"],
        &parsed["error"]["type"],
        &parsed["code"],
    ];
    let message = reason(body);
    let message = message.strip_prefix("your ").unwrap_or(&message);
    SPENT
        .iter()
        .any(|word| codes.into_iter().any(|code| code == word) || message.starts_with(word))
}

/// The message in an error's body, on one short line.
pub(super) fn reason(text: &str) -> String {
    let parsed: Option<Value> = serde_json::from_str(text).ok();
    let told = parsed.as_ref().and_then(|body| {
        let fields = [
            &body["error"]["message"],
            &body["error"],
            &body["message"],
            &body["detail"],
        ];
        fields.into_iter().find_map(Value::as_str)
    });
    let line = told
        .unwrap_or(text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    line.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_refusals_of_all_requests() {
        let quota =
            r#"{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}"#;
        assert!(is_denial(429, quota));
        assert!(!is_denial(429, "too many"));
        let credit = r#"{"error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access"}}"#;
        assert!(is_denial(400, quota) && is_denial(400, credit));
        let repeated =
            r#"{"error": {"message": "Invalid value: 'insufficient_quota'.", "code": "invalid_value"}}"#;
        assert!(!is_denial(400, repeated), "a request chose these words");
        assert!(is_denial(401, "") && is_denial(404, "The model `x` does not exist"));
        assert!(!is_denial(403, "Your input was flagged"));
        let denied = |status| ServiceError::Denied {
            status,
            reason: String::new(),
        };
        assert!(
            [400, 401, 402, 429]
                .into_iter()
                .all(|status| denied(status).is_of_key())
        );
        assert!(!denied(404).is_of_key() && !denied(403).is_of_key());
        assert_eq!(reason(quota), "You exceeded your current quota");
        assert_eq!(reason(r#"{"error": "no  model"}"#), "no model");
    }
}
