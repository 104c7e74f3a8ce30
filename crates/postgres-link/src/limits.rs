//! The limits of connections to PostgreSQL.

use std::time::Duration;

/// How long one attempt to connect may take.
pub(crate) const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);

/// The first wait between two attempts to connect; each further one is twice as long.
pub const RECONNECT_WAIT_FIRST: Duration = Duration::from_millis(10);

/// The longest wait between two attempts to connect.
pub const RECONNECT_WAIT_MAX: Duration = Duration::from_secs(1);
