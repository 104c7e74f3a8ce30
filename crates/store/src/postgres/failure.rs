//! What goes wrong inside the store, before the database's name is known.

use gristmill_model::positions::ParsePositionsError;
use tokio_postgres::error::SqlState;

use super::open::WRITER_LAYOUT;
use crate::StoreError;

/// Why an operation or a query failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The database said so, or the connection to it was lost.
    Postgres(tokio_postgres::Error),
    /// There is no connection, for a reason that may pass.
    Disconnected(String),
    /// A row does not hold what this program writes.
    Damaged(String),
    /// The store refuses.
    Refused(StoreError),
    /// Others have changed what was looked at.
    Overtaken,
}

pub(super) type Result<T> = std::result::Result<T, Failure>;

/// What helps against a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Another connection.
    Reconnect,
    /// The same again: others got in the way.
    Again,
    /// Nothing.
    None,
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Failure::Postgres(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Refused(error)
    }
}

impl From<ParsePositionsError> for Failure {
    fn from(error: ParsePositionsError) -> Self {
        Failure::Damaged(error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Failure::Damaged(format!("a JSON column cannot be read: {error}"))
    }
}

impl Failure {
    /// What helps.
    pub fn remedy(&self) -> Remedy {
        let error = match self {
            Failure::Disconnected(_) => return Remedy::Reconnect,
            Failure::Damaged(_) | Failure::Refused(_) => return Remedy::None,
            Failure::Overtaken => return Remedy::Again,
            Failure::Postgres(error) => error,
        };
        let Some(state) = error.code() else {
            // Without an answer of the server, the connection is at fault, unless a value could not be converted.
            return match source_is_io(error) || error.is_closed() {
                true => Remedy::Reconnect,
                false => Remedy::None,
            };
        };
        let passing = [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::IDLE_SESSION_TIMEOUT,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            // A server that became a standby while the connection stood.
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
        match conflicts.contains(state) {
            true => Remedy::Again,
            false => Remedy::None,
        }
    }

    /// Whether it only says that the statements before it failed.
    pub fn is_aftermath(&self) -> bool {
        matches!(self, Failure::Postgres(error) if error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION))
    }

    /// What was wrong, in words.
    pub fn reason(&self) -> String {
        match self {
            Failure::Postgres(error) => match error.as_db_error() {
                Some(error) => match (error.detail(), error.hint()) {
                    (Some(detail), _) => format!("{} ({detail})", error.message()),
                    (None, Some(hint)) => format!("{} ({hint})", error.message()),
                    (None, None) => error.message().to_owned(),
                },
                None => match std::error::Error::source(error) {
                    Some(source) => format!("{error}: {source}"),
                    None => error.to_string(),
                },
            },
            Failure::Disconnected(reason) | Failure::Damaged(reason) => reason.clone(),
            Failure::Refused(error) => error.to_string(),
            Failure::Overtaken => "others changed the same jobs again and again meanwhile".to_owned(),
        }
    }

    /// Whether the database has another layout since this process opened it.
    fn is_of_changed_layout(&self) -> bool {
        let Failure::Postgres(error) = self else {
            return false;
        };
        let constraint = error.as_db_error().and_then(|error| error.constraint());
        error.code() == Some(&SqlState::CHECK_VIOLATION) && constraint == Some(WRITER_LAYOUT)
    }

    /// The error that callers see who open a database.
    pub fn at_open(self, database: &str) -> StoreError {
        let reason = self.reason();
        match (self.remedy(), self) {
            (_, Failure::Refused(error)) => error,
            (Remedy::Reconnect, _) => StoreError::Unreachable {
                database: database.to_owned(),
                waited_ms: 0,
                reason,
            },
            _ => StoreError::Open {
                path: database.into(),
                reason,
            },
        }
    }

    /// The error that callers see.
    pub fn at(self, database: &str) -> StoreError {
        if self.is_of_changed_layout() {
            return StoreError::LayoutChanged {
                path: database.into(),
            };
        }
        let reason = self.reason();
        let state = match &self {
            Failure::Refused(error) => return error.clone(),
            Failure::Damaged(_) => {
                return StoreError::Database(format!(
                    "{database} holds what this program did not write: {reason}"
                ));
            }
            Failure::Disconnected(_) | Failure::Overtaken => None,
            Failure::Postgres(error) => error.code(),
        };
        match state {
            Some(state) if *state == SqlState::DISK_FULL => StoreError::DiskFull {
                path: database.into(),
            },
            Some(state)
                if [
                    SqlState::READ_ONLY_SQL_TRANSACTION,
                    SqlState::INSUFFICIENT_PRIVILEGE,
                ]
                .contains(state) =>
            {
                StoreError::ReadOnly {
                    path: database.into(),
                    reason,
                }
            }
            // A limit of Gristmill's own, or one of PostgreSQL's.
            Some(state) if *state == SqlState::PROGRAM_LIMIT_EXCEEDED => StoreError::InvalidInput(reason),
            Some(state) if *state == SqlState::CHARACTER_NOT_IN_REPERTOIRE => StoreError::InvalidInput(
                format!("PostgreSQL refuses a text: {reason}; remove its NUL characters"),
            ),
            _ => StoreError::Database(format!("{database}: {reason}")),
        }
    }
}

fn source_is_io(error: &tokio_postgres::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error.is::<std::io::Error>() {
            return true;
        }
        source = error.source();
    }
    false
}
