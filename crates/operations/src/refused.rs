//! The refusal of a request.

#[cfg(feature = "engine")]
use gristmill_engine::EngineError;
use gristmill_store::StoreError;

/// The reason of a refusal. No part of the request is stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refused {
    /// The request is wrong.
    #[error("{error}")]
    Invalid {
        /// The problem, and its place.
        error: String,
        /// The remedy.
        remedy: String,
    },
    /// The caller may not do this.
    #[error("{error}")]
    Forbidden {
        /// The problem.
        error: String,
        /// The remedy.
        remedy: String,
    },
    /// The object does not exist.
    #[error("{what} `{id}` does not exist")]
    NotFound {
        /// `job`, `batch`, …
        what: &'static str,
        /// As the request names it.
        id: String,
    },
    /// The request is over a limit of size.
    #[error("{what} exceeds the limit of {limit}")]
    TooLarge {
        /// The object that is too large.
        what: String,
        /// The limit with its unit.
        limit: String,
    },
    /// The store failed or refused.
    #[error(transparent)]
    Store(StoreError),
}

impl Refused {
    /// The problem and the remedy in one line.
    pub fn told(&self) -> String {
        match self {
            Refused::Invalid { error, remedy } | Refused::Forbidden { error, remedy }
                if !error.contains(remedy) =>
            {
                format!("{error}: {remedy}")
            }
            _ => self.to_string(),
        }
    }

    /// A wrong request.
    pub fn invalid(error: impl Into<String>, remedy: impl Into<String>) -> Self {
        Refused::Invalid {
            error: error.into(),
            remedy: remedy.into(),
        }
    }

    /// A request that the caller's rights do not allow.
    pub fn forbidden(error: impl Into<String>, remedy: impl Into<String>) -> Self {
        Refused::Forbidden {
            error: error.into(),
            remedy: remedy.into(),
        }
    }

    /// A request about something that does not exist. A long id is cut.
    pub fn not_found(what: &'static str, id: &str) -> Self {
        Refused::NotFound {
            what,
            id: id.chars().take(80).collect(),
        }
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Refused::Store(error)
    }
}

#[cfg(feature = "engine")]
impl From<EngineError> for Refused {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => Refused::Store(error),
            other => Refused::invalid(other.to_string(), "correct the request"),
        }
    }
}
