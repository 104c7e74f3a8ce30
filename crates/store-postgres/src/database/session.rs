//! The settings of a connection's session.

use std::time::Duration;

use crate::database::answers::SilencePatience;
use crate::limits::{IDLE_IN_TRANSACTION, LOCK_TIMEOUT_MIN, SILENT_UNASKED_MAX, STATEMENT_TIMEOUT_MIN};
use crate::open::LAYOUT;

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Operations. The server knows the connection as a writer, see the table of that name. It reads by index, whatever
    /// the statistics say: most tables grow and shrink faster than they are analysed, and a plan that was made for an
    /// empty table would be kept for a large one. For the same reason, rows that an index returns in nearly the right
    /// order are sorted in parts, as far as they are read, and not as a whole.
    Write,
    /// Queries.
    Read,
}

/// How long the statements of a connection may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    /// For a lock of another transaction.
    pub lock: Duration,
    /// For anything, locks included, before the server ends the statement.
    pub statement: Duration,
    /// For an unreachable database, before the operation fails; without a limit if `None`.
    pub unreachable: Option<Duration>,
}

impl Waits {
    /// How long a connection may be silent. An answer needs some time on its way.
    pub fn silence(self) -> SilencePatience {
        let max = self.statement + self.statement / 4;
        SilencePatience {
            unasked: self.lock + SILENT_UNASKED_MAX.min(self.statement / 16),
            max,
        }
    }
}

/// The settings at the start of each transaction behind a pooler. Settings of a session would reach the transactions of
/// others there.
pub(crate) fn settings_of_transaction(role: Role, waits: Waits) -> String {
    let bounds = format!(
        "SET LOCAL jit = off; SET LOCAL idle_in_transaction_session_timeout = {}; SET LOCAL lock_timeout = {}; \
         SET LOCAL statement_timeout = {}",
        IDLE_IN_TRANSACTION.as_millis(),
        waits.lock.as_millis().max(1),
        waits.statement.as_millis().max(1),
    );
    match role {
        Role::Read => bounds,
        Role::Write => format!(
            "{bounds}; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off; \
             SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL gristmill.layout = '{}'",
            LAYOUT.layout.id()
        ),
    }
}

/// The statements that make the settings.
pub(crate) fn settings(role: Role, waits: Waits) -> String {
    let bounds = bounds(waits);
    match role {
        Role::Read => format!("SET jit = off; {bounds}"),
        Role::Write => format!(
            "SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; \
             SET plan_cache_mode = force_generic_plan; SET default_transaction_isolation = 'read committed'; \
             SET gristmill.layout = '{}'; {bounds}",
            LAYOUT.layout.id()
        ),
    }
}

/// Limits how long the server waits for this process within a transaction, for locks of others, and for the end of a
/// statement. A shorter limit of the server, the database or the role stays, unless it is so short that operations
/// would fail without need.
fn bounds(waits: Waits) -> String {
    let (idle_ms, lock_ms, statement_ms) = (
        IDLE_IN_TRANSACTION.as_millis(),
        waits.lock.as_millis().max(1),
        waits.statement.as_millis().max(1),
    );
    let (lock_min_ms, statement_min_ms) = (LOCK_TIMEOUT_MIN.as_millis(), STATEMENT_TIMEOUT_MIN.as_millis());
    format!(
        "SELECT set_config(b.name, b.ms::text, false) FROM (SELECT s.name, s.setting::bigint AS found_ms, \
         CASE s.setting WHEN '0' THEN l.max_ms ELSE least(greatest(s.setting::bigint, l.min_ms), l.max_ms) END AS ms \
         FROM pg_settings s JOIN (VALUES ('idle_in_transaction_session_timeout', {idle_ms}, {idle_ms}), \
         ('tcp_user_timeout', 1, {idle_ms}), ('lock_timeout', {lock_min_ms}, {lock_ms}), \
         ('statement_timeout', {statement_min_ms}, {statement_ms})) AS l (name, min_ms, max_ms) ON l.name = s.name) b \
         WHERE b.ms <> b.found_ms"
    )
}
