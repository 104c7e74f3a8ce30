//! Why a request was refused, as a status and a JSON body that says what was wrong and what would be right.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gristmill_engine::EngineError;
use gristmill_store::StoreError;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refusal {
    /// What kind of refusal, for programs: one word, stable.
    pub code: String,
    /// What was wrong, and where.
    pub error: String,
    /// What would be right.
    pub remedy: String,
}

/// Why a request was refused or failed. Nothing of it is stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiError {
    /// No token, or one that does not hold.
    #[error("{0}")]
    Unauthorized(String),
    /// The token does not allow this.
    #[error("{error}")]
    Forbidden {
        /// What is not allowed.
        error: String,
        /// What would be.
        remedy: String,
    },
    /// There is no such thing.
    #[error("there is no {what} `{id}`")]
    NotFound {
        /// `job`, `batch`, …
        what: &'static str,
        /// As it was asked for.
        id: String,
    },
    /// No operation has this path.
    #[error("there is nothing at `{0}`")]
    NoSuchPath(String),
    /// The path has other methods.
    #[error("this path has no method {0}")]
    NoSuchMethod(String),
    /// The request is wrong.
    #[error("{error}")]
    Invalid {
        /// What, and where.
        error: String,
        /// What would be right.
        remedy: String,
    },
    /// The body has another type than the operation reads.
    #[error("the body is of type `{found}`")]
    MediaType {
        /// What the request says.
        found: String,
        /// What would be right.
        expected: &'static str,
    },
    /// Over a limit of size.
    #[error("{what} is over the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: String,
        /// The limit with its unit.
        limit: String,
    },
    /// Over a limit of rate or number.
    #[error("{what}; the limit is {limit}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The limit with its unit.
        limit: String,
        /// When to try again. Seconds.
        retry_after_s: u64,
    },
    /// The body did not arrive in time.
    #[error("the body did not arrive within {0} s")]
    Slow(u64),
    /// The worker is not registered (any more).
    #[error("worker {0} is not registered (any more)")]
    WorkerUnknown(i64),
    /// An exchange that was answered long ago came again.
    #[error("request {number} of worker {worker} was answered before, and its answer is no longer kept")]
    Stale {
        /// Whose.
        worker: i64,
        /// Which.
        number: u64,
    },
    /// The server is being stopped.
    #[error("the server is stopping")]
    Stopping,
    /// The trust folder cannot be read.
    #[error("the server cannot read its trust folder: {0}")]
    Trust(String),
    /// The store did not do it.
    #[error(transparent)]
    Store(StoreError),
}

impl ApiError {
    /// A wrong request.
    pub fn invalid(error: impl Into<String>, remedy: impl Into<String>) -> Self {
        ApiError::Invalid {
            error: error.into(),
            remedy: remedy.into(),
        }
    }

    /// Something that the token does not allow.
    pub fn forbidden(error: impl Into<String>, remedy: impl Into<String>) -> Self {
        ApiError::Forbidden {
            error: error.into(),
            remedy: remedy.into(),
        }
    }

    /// The status that the refusal is sent with.
    pub fn status(&self) -> StatusCode {
        match self {
            ApiError::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            ApiError::Forbidden { .. } => StatusCode::FORBIDDEN,
            ApiError::NotFound { .. } | ApiError::NoSuchPath(_) => StatusCode::NOT_FOUND,
            ApiError::NoSuchMethod(_) => StatusCode::METHOD_NOT_ALLOWED,
            ApiError::Invalid { .. } => StatusCode::BAD_REQUEST,
            ApiError::MediaType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ApiError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            ApiError::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            ApiError::Slow(_) => StatusCode::REQUEST_TIMEOUT,
            ApiError::WorkerUnknown(_) | ApiError::Stale { .. } => StatusCode::CONFLICT,
            ApiError::Stopping | ApiError::Trust(_) => StatusCode::SERVICE_UNAVAILABLE,
            ApiError::Store(error) => match error {
                StoreError::InvalidBatch(_)
                | StoreError::InvalidPacked(_)
                | StoreError::InvalidInput(_)
                | StoreError::PrerequisiteUnknown(_) => StatusCode::BAD_REQUEST,
                StoreError::WorkerUnknown(_) | StoreError::RunExists(_) | StoreError::DuplicateKey { .. } => {
                    StatusCode::CONFLICT
                }
                StoreError::RunUnknown(_) => StatusCode::NOT_FOUND,
                StoreError::Locked { .. }
                | StoreError::LayoutChanged { .. }
                | StoreError::Closed
                | StoreError::Unreachable { .. }
                | StoreError::Unknown { .. } => StatusCode::SERVICE_UNAVAILABLE,
                StoreError::DiskFull { .. } => StatusCode::INSUFFICIENT_STORAGE,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
        }
    }

    /// The kind of refusal, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            ApiError::Unauthorized(_) => "unauthorized",
            ApiError::Forbidden { .. } => "forbidden",
            ApiError::NotFound { .. } | ApiError::NoSuchPath(_) => "not_found",
            ApiError::NoSuchMethod(_) => "no_such_method",
            ApiError::Invalid { .. } => "invalid",
            ApiError::MediaType { .. } => "media_type",
            ApiError::TooLarge { .. } => "too_large",
            ApiError::TooMany { .. } => "too_many",
            ApiError::Slow(_) => "slow",
            ApiError::WorkerUnknown(_) | ApiError::Store(StoreError::WorkerUnknown(_)) => "worker_unknown",
            ApiError::Stale { .. } => "stale",
            ApiError::Stopping => "stopping",
            ApiError::Trust(_) => "trust",
            ApiError::Store(StoreError::DuplicateKey { .. }) => "duplicate_key",
            ApiError::Store(_) if self.status() == StatusCode::BAD_REQUEST => "invalid",
            ApiError::Store(_) => "store",
        }
    }

    fn remedy(&self) -> String {
        match self {
            ApiError::Unauthorized(_) => {
                "send `Authorization: Bearer TOKEN` with a token of `gristmill token create`".to_owned()
            }
            ApiError::Forbidden { remedy, .. } | ApiError::Invalid { remedy, .. } => remedy.clone(),
            ApiError::NotFound { what, .. } => format!("name a {what} that was submitted and not pruned"),
            ApiError::NoSuchPath(_) | ApiError::NoSuchMethod(_) => {
                "see /api/v1/openapi.json for what there is".to_owned()
            }
            ApiError::MediaType { expected, .. } => format!("send `Content-Type: {expected}`"),
            ApiError::TooLarge { .. } => "send it in several requests, or send a reference to it".to_owned(),
            ApiError::TooMany { retry_after_s, .. } => format!("try again in {retry_after_s} s"),
            ApiError::Slow(_) => "send smaller requests, or compress them with zstd".to_owned(),
            ApiError::WorkerUnknown(_) | ApiError::Store(StoreError::WorkerUnknown(_)) => {
                "register again; what it held is claimed by others".to_owned()
            }
            ApiError::Stale { .. } => "number each new request higher than the last".to_owned(),
            ApiError::Stopping => "try again in a moment".to_owned(),
            ApiError::Trust(_) => "repair or restore the folder; nobody is let in until then".to_owned(),
            ApiError::Store(StoreError::DuplicateKey { .. }) => {
                "leave the job out, or say what else becomes of duplicates".to_owned()
            }
            ApiError::Store(_) if self.status().is_client_error() => "correct the request".to_owned(),
            ApiError::Store(StoreError::LayoutChanged { .. }) => {
                "ask another server, or try again once this one is upgraded".to_owned()
            }
            ApiError::Store(StoreError::Unknown { .. }) => {
                "look what is stored before sending it again, unless it is an exchange".to_owned()
            }
            ApiError::Store(_) => "try again; if it goes on, see the server's log".to_owned(),
        }
    }

    /// The body of the refusal. What a broken server says of its files and database stays in its log.
    pub fn refusal(&self) -> Refusal {
        let error = if self.status() == StatusCode::INTERNAL_SERVER_ERROR {
            "the store failed".to_owned()
        } else {
            match self {
                ApiError::Store(StoreError::Locked { .. }) => {
                    "the store is locked by another process".to_owned()
                }
                ApiError::Store(StoreError::DiskFull { .. }) => "the server's disk is full".to_owned(),
                ApiError::Store(StoreError::LayoutChanged { .. }) => {
                    "a newer version has changed the layout of the store, and this server is older".to_owned()
                }
                ApiError::Store(StoreError::Unreachable { .. }) => {
                    "the database cannot be reached".to_owned()
                }
                ApiError::Store(StoreError::Unknown { .. }) => {
                    "the database was lost while it committed: what was sent may or may not be stored"
                        .to_owned()
                }
                ApiError::Trust(_) => "the server cannot read its trust folder".to_owned(),
                other => other.to_string(),
            }
        };
        Refusal {
            code: self.code().to_owned(),
            error,
            remedy: self.remedy(),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        ApiError::Store(error)
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => ApiError::Store(error),
            other => ApiError::invalid(other.to_string(), "correct the request"),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        if status.is_server_error() && !matches!(self, ApiError::Stopping) {
            tracing::error!(error = %self, "a request failed");
        }
        let mut response = (status, Json(self.refusal())).into_response();
        let headers = response.headers_mut();
        match &self {
            ApiError::Unauthorized(_) => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            ApiError::TooMany { retry_after_s, .. } => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(*retry_after_s));
            }
            ApiError::Stopping => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another server of the store may be newer, so the client may try again there; it does not learn where the store is.
    #[test]
    fn an_outdated_server_sends_its_clients_to_others() {
        let error = ApiError::from(StoreError::LayoutChanged {
            path: "/srv/jobs.db".into(),
        });
        assert_eq!(error.status(), StatusCode::SERVICE_UNAVAILABLE);
        let refusal = error.refusal();
        assert!(!refusal.error.contains("/srv"), "{}", refusal.error);
        assert!(refusal.remedy.contains("another server"), "{}", refusal.remedy);
    }
}
