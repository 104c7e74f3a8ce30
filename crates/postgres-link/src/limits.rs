//! The limits of connections to PostgreSQL.

use std::time::Duration;

/// How long one attempt to connect may take.
pub(crate) const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);

/// The first wait between two attempts to connect; each further one is twice as long.
pub const RECONNECT_WAIT_FIRST: Duration = Duration::from_millis(10);

/// The longest wait between two attempts to connect.
pub const RECONNECT_WAIT_MAX: Duration = Duration::from_secs(1);

/// How long the taking of a name may last: a connection, the end of the former one, and an answer.
pub(crate) const TAKEN_WITHIN: Duration = Duration::from_secs(20);

/// How long the connection that holds a name may give no answer: as long as the connections of a store.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(20);
