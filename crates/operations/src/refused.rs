//! The refusal of a request.

/// The reason of a refusal. No part of the request is stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The request is wrong.
    #[error("{error}")]
    Invalid {
        /// The problem, and its place.
        error: String,
        /// The remedy.
        remedy: String,
    },
    /// The request is over a limit of size.
    #[error("{what} exceeds the limit of {limit}")]
    TooLarge {
        /// The object that is too large.
        what: String,
        /// The limit with its unit.
        limit: String,
    },
}

impl Refused {
    /// The problem and the remedy in one line.
    pub fn told(&self) -> String {
        match self {
            Refused::Invalid { error, remedy } => format!("{error}: {remedy}"),
            Refused::TooLarge { .. } => self.to_string(),
        }
    }

    /// A wrong request.
    pub fn invalid(error: impl Into<String>, remedy: impl Into<String>) -> Self {
        Refused::Invalid {
            error: error.into(),
            remedy: remedy.into(),
        }
    }
}
