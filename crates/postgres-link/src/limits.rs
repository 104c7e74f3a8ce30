//! The limits of connections to PostgreSQL.

use std::time::Duration;

/// The time limit of one attempt to connect.
pub(crate) const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);

/// The first wait between two attempts to connect. Each later one is twice as long.
pub const RECONNECT_WAIT_FIRST: Duration = Duration::from_millis(10);

/// The longest wait between two attempts to connect.
pub const RECONNECT_WAIT_MAX: Duration = Duration::from_secs(1);

/// The time limit of taking a name: a connection, the end of the former one, and an answer.
pub(crate) const TAKEN_WITHIN: Duration = Duration::from_secs(20);

/// The time that the connection with a name may give no answer, as for the connections of a store.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(20);
