//! Why webhooks cannot be served.

use crate::limits::SECRET_BYTES_MIN;

/// Why webhooks cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The text names no host.
    #[error(
        "`{0}` is not a host for webhooks: write a name with an optional port, as in hooks.example:8443 \
             (or http://127.0.0.1:9000 for plain HTTP)"
    )]
    Host(String),
    /// The secret is too short, or not base64 after its prefix.
    #[error(
        "the secret of webhooks is not usable: give at least {SECRET_BYTES_MIN} bytes, or whsec_ and base64"
    )]
    Secret,
    /// The HTTP client cannot be made.
    #[error("the HTTP client of webhooks: {0}")]
    Client(String),
}
