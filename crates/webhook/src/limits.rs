//! The limits of webhooks.

use std::time::Duration;

/// The number of requests that one worker sends at a time.
pub const REQUESTS_AT_ONCE: usize = 8;

/// The time limit for a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time limit for the answer to a request. A shorter timeout of the job also applies.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// The smallest number of bytes in a secret: half of a SHA-256 digest.
pub const SECRET_BYTES_MIN: usize = 16;
