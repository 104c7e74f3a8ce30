//! The meaning of a driver's error: whether another connection or another try helps, and its text.

use gristmill_store::StoreError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// The remedy for a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Use another connection.
    Reconnect,
    /// Try again: others got in the way.
    Again,
    /// Nothing helps.
    None,
}

/// The remedy for an error of the driver.
pub fn remedy(error: &Error) -> Remedy {
    let Some(state) = error.code() else {
        // Without an answer from the server, the connection is at fault, unless a value could not be converted.
        return if source_is_io(error) || error.is_closed() {
            Remedy::Reconnect
        } else {
            Remedy::None
        };
    };
    let passing = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::IDLE_SESSION_TIMEOUT,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        // The server became a standby while the connection was open.
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ];
    if passing.contains(state) || state.code().starts_with("08") {
        return Remedy::Reconnect;
    }
    let conflicts = [
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::LOCK_NOT_AVAILABLE,
    ];
    if conflicts.contains(state) {
        Remedy::Again
    } else {
        Remedy::None
    }
}

/// The text of an error of the driver.
pub fn reason(error: &Error) -> String {
    match error.as_db_error() {
        Some(error) => match (error.detail(), error.hint()) {
            (Some(detail), _) => format!("{} ({detail})", error.message()),
            (None, Some(hint)) => format!("{} ({hint})", error.message()),
            (None, None) => error.message().to_owned(),
        },
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

/// The error that callers see if the first connection to a database fails.
pub(crate) fn at_open(error: &Error, database: &str) -> StoreError {
    let reason = reason(error);
    match remedy(error) {
        Remedy::Reconnect => StoreError::Unreachable {
            database: database.to_owned(),
            waited_ms: 0,
            reason,
        },
        Remedy::Again | Remedy::None => StoreError::Open {
            path: database.into(),
            reason,
        },
    }
}

fn source_is_io(error: &Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error.is::<std::io::Error>() {
            return true;
        }
        source = error.source();
    }
    false
}
