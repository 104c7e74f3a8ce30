//! The errors of webhooks.

use crate::limits::SECRET_BYTES_MIN;

/// The reason webhooks cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The text is not a host.
    #[error(
        "`{0}` is not a host for webhooks: write a name with an optional port, as in hooks.example:8443 \
             (or http://127.0.0.1:9000 for plain HTTP)"
    )]
    Host(String),
    /// The secret is too short, or has a prefix without valid base64.
    #[error(
        "the secret of webhooks is not usable: give at least {SECRET_BYTES_MIN} bytes, or whsec_ and base64"
    )]
    Secret,
    /// The HTTP client cannot be made.
    #[error("the HTTP client of webhooks: {0}")]
    Client(String),
}
