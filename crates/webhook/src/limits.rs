//! The limits of webhooks.

use std::time::Duration;

/// Requests that one worker sends at a time.
pub const REQUESTS_AT_ONCE: usize = 8;

/// How long a connection may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the answer to a request may take. A shorter timeout of the job holds, too.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Bytes of a secret at least: half of a SHA-256 digest.
pub const SECRET_BYTES_MIN: usize = 16;
