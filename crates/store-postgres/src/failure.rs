//! Failures inside the store, before the database's name is known.

use gristmill_model::positions::ParsePositionsError;
use gristmill_postgres_link::failure;
pub(crate) use gristmill_postgres_link::failure::Remedy;
use gristmill_store::StoreError;
use gristmill_store::rules::lanes::Lane;
use tokio_postgres::error::SqlState;

/// The constraint that refuses writers of other layouts.
pub(crate) const WRITER_LAYOUT: &str = "writer_layout";

/// The remedy if a database does not accept writes.
pub(crate) const STANDBY_REMEDY: &str = "name the server that takes writes";

/// The remedy if a role lacks a right.
pub(crate) const ROLE_REMEDY: &str =
    "use the role that owns the schema gristmill, or grant what this one lacks";

/// Why an operation or a query failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database reported an error, or the connection was lost.
    Postgres(tokio_postgres::Error),
    /// There is no connection, for a reason that may pass.
    Disconnected(String),
    /// The connection gave no answer, and was closed. Older connections may be silent, too.
    Silent(String),
    /// A new connection gave no answer.
    Unanswered(String),
    /// A row has contents that this program does not write.
    Damaged(String),
    /// The store refuses.
    Refused(StoreError),
    /// The database does not accept writes, and did not before.
    ReadOnly(String),
    /// Others have changed the rows that were read.
    Overtaken,
    /// Known lanes are deleted, or about to be: they have to be made again.
    LanesGone(Vec<Lane>),
    /// All connections were in use for too long.
    Crowded,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

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
    /// The remedy that may help.
    pub fn remedy(&self) -> Remedy {
        match self {
            Failure::Disconnected(_) | Failure::Silent(_) | Failure::Unanswered(_) => Remedy::Reconnect,
            Failure::Damaged(_) | Failure::Refused(_) | Failure::ReadOnly(_) | Failure::Crowded => {
                Remedy::None
            }
            // Its transaction has waited as long as it may.
            Failure::Postgres(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Remedy::None,
            Failure::Overtaken | Failure::LanesGone(_) => Remedy::Again,
            Failure::Postgres(error) => failure::remedy(error),
        }
    }

    /// Reports whether a batch was not stored because its lane is deleted, or about to be.
    pub fn lane_gone(&self) -> bool {
        let Failure::Postgres(error) = self else {
            return false;
        };
        error.as_db_error().is_some_and(|error| {
            *error.code() == SqlState::NOT_NULL_VIOLATION
                && error.table() == Some("batch")
                && error.column() == Some("lane_id")
        })
    }

    /// Reports whether it only says that an earlier statement failed.
    pub fn is_aftermath(&self) -> bool {
        matches!(self, Failure::Postgres(error) if error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION))
    }

    /// Reports whether no further connection is available, although the database answers: a limit is reached, or a
    /// pooler lets new ones wait.
    pub fn is_shortage(&self) -> bool {
        match self {
            Failure::Unanswered(_) => true,
            Failure::Postgres(error) => error.code().is_some_and(|state| {
                // Poolers report it as a violation of the protocol.
                [SqlState::TOO_MANY_CONNECTIONS, SqlState::PROTOCOL_VIOLATION].contains(state)
            }),
            _ => false,
        }
    }

    /// Reports whether others held a lock, or all connections, for too long.
    pub fn is_locked(&self) -> bool {
        match self {
            Failure::Crowded => true,
            Failure::Postgres(error) => error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE),
            _ => false,
        }
    }

    /// The reason in words.
    pub fn reason(&self) -> String {
        match self {
            Failure::Postgres(error) if error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS) => format!(
                "{}; docs/operations.md says how many connections programs need",
                failure::reason(error)
            ),
            Failure::Postgres(error) => failure::reason(error),
            Failure::Disconnected(reason)
            | Failure::Silent(reason)
            | Failure::Unanswered(reason)
            | Failure::Damaged(reason)
            | Failure::ReadOnly(reason) => reason.clone(),
            Failure::Refused(error) => error.to_string(),
            Failure::LanesGone(_) => {
                "the names of kinds, queues and groups were deleted again and again meanwhile".to_owned()
            }
            Failure::Overtaken => "others changed the same jobs again and again meanwhile".to_owned(),
            Failure::Crowded => "all connections were in use by operations that wait for others".to_owned(),
        }
    }

    /// Reports whether the layout of the database changed after this process opened it.
    fn is_of_changed_layout(&self) -> bool {
        let Failure::Postgres(error) = self else {
            return false;
        };
        let constraint = error.as_db_error().and_then(|error| error.constraint());
        error.code() == Some(&SqlState::CHECK_VIOLATION) && constraint == Some(WRITER_LAYOUT)
    }

    /// Why the database does not accept writes, if that is the failure.
    pub fn read_only(&self) -> Option<String> {
        match self {
            Failure::ReadOnly(reason) => Some(reason.clone()),
            Failure::Postgres(error) if error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => {
                Some(format!("{}; {STANDBY_REMEDY}", failure::reason(error)))
            }
            _ => None,
        }
    }

    /// Reports whether the role lacks the right.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Failure::Postgres(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE))
    }

    /// The error that callers see when they open a database.
    pub fn at_open(self, database: &str) -> StoreError {
        if let Some(reason) = self.read_only() {
            return StoreError::ReadOnlyDatabase {
                database: database.to_owned(),
                reason,
            };
        }
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
        if let Some(reason) = self.read_only() {
            return StoreError::ReadOnlyDatabase {
                database: database.to_owned(),
                reason,
            };
        }
        let reason = self.reason();
        if self.is_forbidden() {
            return StoreError::ReadOnlyDatabase {
                database: database.to_owned(),
                reason: format!("{reason}; {ROLE_REMEDY}"),
            };
        }
        let state = match &self {
            Failure::Refused(error) => return error.clone(),
            Failure::Damaged(_) => {
                return StoreError::Database(format!(
                    "{database} holds what this program did not write: {reason}"
                ));
            }
            Failure::Disconnected(_)
            | Failure::ReadOnly(_)
            | Failure::Silent(_)
            | Failure::Unanswered(_)
            | Failure::Overtaken
            | Failure::LanesGone(_)
            | Failure::Crowded => None,
            Failure::Postgres(error) => error.code(),
        };
        match state {
            Some(state) if *state == SqlState::DISK_FULL => StoreError::DiskFull {
                path: database.into(),
            },
            // A limit of Gristmill, or one of PostgreSQL.
            Some(state) if *state == SqlState::PROGRAM_LIMIT_EXCEEDED => StoreError::InvalidInput(reason),
            Some(state) if *state == SqlState::CHARACTER_NOT_IN_REPERTOIRE => StoreError::InvalidInput(
                format!("PostgreSQL refuses a text: {reason}; remove its NUL characters"),
            ),
            _ => StoreError::Database(format!("{database}: {reason}")),
        }
    }
}
