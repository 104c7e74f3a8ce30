//! Refusals: a status, and a JSON body that names the problem and the remedy.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gristmill_engine::EngineError;
use gristmill_model::JobId;
use gristmill_operations::Refused;
pub use gristmill_protocol::Refusal;
use gristmill_store::StoreError;

use crate::limits::{BODY_ARRIVES_WITHIN, BODY_BYTES_PER_SECOND_MIN, BODY_GRACE};

/// A refused or failed request. The store keeps no part of it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiError {
    /// The token is missing or invalid.
    #[error("{0}")]
    Unauthorized(String),
    /// The token does not allow this.
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
        /// The kind of object: `job`, `batch`, …
        what: &'static str,
        /// The id in the request.
        id: String,
    },
    /// No operation has this path.
    #[error("no operation has the path `{0}`")]
    NoSuchPath(String),
    /// The path does not have this method.
    #[error("this path does not support the method {method}")]
    NoSuchMethod {
        /// The method of the request.
        method: String,
        /// The methods of the path, separated by commas.
        allowed: String,
    },
    /// The request is wrong.
    #[error("{error}")]
    Invalid {
        /// The problem, and its place.
        error: String,
        /// The remedy.
        remedy: String,
    },
    /// The operation does not read this type of body.
    #[error("the body has the type `{found}`")]
    MediaType {
        /// The type in the request.
        found: String,
        /// The remedy.
        expected: &'static str,
    },
    /// The request exceeds a limit of size.
    #[error("{what} exceeds the limit of {limit}")]
    TooLarge {
        /// The object that is too large.
        what: String,
        /// The limit with its unit.
        limit: String,
    },
    /// The request exceeds a limit of rate or number.
    #[error("{what}; the limit is {limit}")]
    TooMany {
        /// The exceeded quantity.
        what: &'static str,
        /// The limit with its unit.
        limit: String,
        /// The delay before a retry. Seconds.
        retry_after_s: u64,
    },
    /// The body did not arrive in time.
    #[error(
        "the body arrives too slowly; the limits are {BODY_BYTES_PER_SECOND_MIN} bytes a second after the first {} s, and {} s \
         in all",
        BODY_GRACE.as_secs(),
        BODY_ARRIVES_WITHIN.as_secs()
    )]
    Slow,
    /// The store is read-only, so it records no events for listeners.
    #[error("this server can only read its store, and records no events")]
    NoEvents,
    /// The worker is not, or no longer, registered.
    #[error("worker {0} is not, or no longer, registered")]
    WorkerUnknown(i64),
    /// The request repeats an exchange whose answer is gone.
    #[error("the server answered request {number} of worker {worker} before, and no longer has the answer")]
    Stale {
        /// The worker.
        worker: i64,
        /// The request.
        number: u64,
    },
    /// A worker sends output of a job that it does not hold.
    #[error("worker {worker} sends output of job {job}, which it does not hold")]
    NotHeld {
        /// The worker.
        worker: i64,
        /// One of the jobs.
        job: String,
    },
    /// An event is sent to a flow that has ended.
    #[error("job {0} has ended; the event is not sent")]
    FlowEnded(JobId),
    /// A flow has too many events that it has not awaited.
    #[error("job {flow} has {limit} events that it has not awaited; the event is not sent")]
    EventsFull {
        /// The flow.
        flow: JobId,
        /// The limit.
        limit: u32,
    },
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// The store does not answer.
    #[error("the store does not answer")]
    NotReady,
    /// The trust folder cannot be read.
    #[error("the server cannot read its trust folder: {0}")]
    Trust(String),
    /// The server has no knowledge base.
    #[error("the server serves no knowledge base")]
    NoKnowledge,
    /// The knowledge base failed.
    #[error("the knowledge base failed: {0}")]
    Knowledge(String),
    /// The store failed or refused.
    #[error(transparent)]
    Store(StoreError),
}

impl ApiError {
    /// An invalid request.
    pub fn invalid(error: impl Into<String>, remedy: impl Into<String>) -> Self {
        ApiError::Invalid {
            error: error.into(),
            remedy: remedy.into(),
        }
    }

    /// A request that the token does not allow.
    pub fn forbidden(error: impl Into<String>, remedy: impl Into<String>) -> Self {
        ApiError::Forbidden {
            error: error.into(),
            remedy: remedy.into(),
        }
    }

    /// The status of the refusal.
    pub fn status(&self) -> StatusCode {
        match self {
            ApiError::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            ApiError::Forbidden { .. } => StatusCode::FORBIDDEN,
            ApiError::NotFound { .. } | ApiError::NoSuchPath(_) | ApiError::NoKnowledge => {
                StatusCode::NOT_FOUND
            }
            ApiError::Knowledge(_) => StatusCode::SERVICE_UNAVAILABLE,
            ApiError::NoSuchMethod { .. } => StatusCode::METHOD_NOT_ALLOWED,
            ApiError::Invalid { .. } => StatusCode::BAD_REQUEST,
            ApiError::MediaType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ApiError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            ApiError::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            ApiError::Slow => StatusCode::REQUEST_TIMEOUT,
            ApiError::WorkerUnknown(_)
            | ApiError::Stale { .. }
            | ApiError::NotHeld { .. }
            | ApiError::FlowEnded(_)
            | ApiError::EventsFull { .. }
            | ApiError::NoEvents => StatusCode::CONFLICT,
            ApiError::Stopping | ApiError::NotReady | ApiError::Trust(_) => StatusCode::SERVICE_UNAVAILABLE,
            ApiError::Store(error) => match error {
                StoreError::InvalidBatch(_)
                | StoreError::InvalidPacked(_)
                | StoreError::InvalidInput(_)
                | StoreError::PrerequisiteUnknown(_) => StatusCode::BAD_REQUEST,
                StoreError::WorkerUnknown(_)
                | StoreError::RunExists(_)
                | StoreError::DuplicateKey { .. }
                | StoreError::KeyFull { .. } => StatusCode::CONFLICT,
                StoreError::RunUnknown(_) => StatusCode::NOT_FOUND,
                StoreError::Locked { .. }
                | StoreError::LayoutChanged { .. }
                | StoreError::Moved { .. }
                | StoreError::Changed { .. }
                | StoreError::ReadOnly { .. }
                | StoreError::ReadOnlyDatabase { .. }
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
            ApiError::NoKnowledge => "no_knowledge",
            ApiError::NoEvents => "no_events",
            ApiError::Knowledge(_) => "knowledge",
            ApiError::NoSuchMethod { .. } => "no_such_method",
            ApiError::Invalid { .. } => "invalid",
            ApiError::MediaType { .. } => "media_type",
            ApiError::TooLarge { .. } => "too_large",
            ApiError::TooMany { .. } => "too_many",
            ApiError::Slow => "slow",
            ApiError::WorkerUnknown(_) | ApiError::Store(StoreError::WorkerUnknown(_)) => "worker_unknown",
            ApiError::Stale { .. } => "stale",
            ApiError::NotHeld { .. } => "not_held",
            ApiError::FlowEnded(_) => "flow_ended",
            ApiError::EventsFull { .. } => "events_full",
            ApiError::Stopping => "stopping",
            ApiError::NotReady => "not_ready",
            ApiError::Trust(_) => "trust",
            ApiError::Store(StoreError::DuplicateKey { .. }) => "duplicate_key",
            ApiError::Store(StoreError::Damaged { .. }) => "damaged",
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
            ApiError::NotFound { what, .. } => {
                format!("name an existing {what}; a prune deletes ended batches")
            }
            ApiError::NoSuchPath(_) => "see /api/v1/openapi.json for all operations".to_owned(),
            ApiError::NoSuchMethod { allowed, .. } => {
                format!("use {allowed}; see /api/v1/openapi.json for all operations")
            }
            ApiError::NoKnowledge => "start it with `gristmill serve --memory KB`".to_owned(),
            ApiError::NoEvents => {
                "listen to a server that may write the store; here, ask for jobs and queues again and again"
                    .to_owned()
            }
            ApiError::Knowledge(_) => "retry; if the error persists, see the server's log".to_owned(),
            ApiError::MediaType { expected, .. } => format!("send `Content-Type: {expected}`"),
            ApiError::TooLarge { .. } => "send it in several requests, or send a reference to it".to_owned(),
            ApiError::TooMany { retry_after_s, .. } => format!("retry after {retry_after_s} s"),
            ApiError::Slow => "send smaller requests, or compress them with zstd".to_owned(),
            ApiError::WorkerUnknown(_) | ApiError::Store(StoreError::WorkerUnknown(_)) => {
                "register again; other workers claim its jobs".to_owned()
            }
            ApiError::Stale { .. } => "give each new request a higher number than the last".to_owned(),
            ApiError::Stopping | ApiError::NotReady => "retry in a moment".to_owned(),
            ApiError::Trust(_) => {
                "repair or restore the folder; the server refuses all requests until then".to_owned()
            }
            ApiError::NotHeld { .. } => {
                "send output only of jobs that the worker has claimed and not reported, with their kind"
                    .to_owned()
            }
            ApiError::FlowEnded(_) => "retry the job first, or send the event to another one".to_owned(),
            ApiError::EventsFull { .. } => {
                "send the event once the flow has awaited others, and only names that it awaits".to_owned()
            }
            ApiError::Store(StoreError::DuplicateKey { .. }) => {
                "omit the job, or choose another `on_duplicate`".to_owned()
            }
            ApiError::Store(_) if self.status().is_client_error() => "correct the request".to_owned(),
            ApiError::Store(StoreError::LayoutChanged { .. }) => {
                "use another server, or retry after an upgrade of this one".to_owned()
            }
            ApiError::Store(StoreError::ReadOnly { .. } | StoreError::ReadOnlyDatabase { .. }) => {
                "change jobs where the store may be written; here it can only be read".to_owned()
            }
            ApiError::Store(StoreError::Damaged { .. }) => {
                "leave the batch out; on the server's machine, `gristmill check` lists all damage".to_owned()
            }
            ApiError::Store(StoreError::Unknown { .. }) => {
                "check the store before you repeat the request; repeating an exchange is safe".to_owned()
            }
            ApiError::Store(_) => "retry; if the error persists, see the server's log".to_owned(),
        }
    }

    /// The body of the refusal. Internal errors of files and the database appear only in the server's log.
    pub fn refusal(&self) -> Refusal {
        let error = if let ApiError::Store(StoreError::Damaged { batch, .. }) = self {
            format!("batch {batch} is damaged")
        } else if self.status() == StatusCode::INTERNAL_SERVER_ERROR {
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
                ApiError::Store(StoreError::ReadOnly { .. } | StoreError::ReadOnlyDatabase { .. }) => {
                    "the store may not be written by this server".to_owned()
                }
                ApiError::Store(StoreError::Moved { .. }) => {
                    "the store's file was moved, removed or replaced under this server".to_owned()
                }
                ApiError::Store(StoreError::Changed { .. }) => {
                    "the store changed while it was read".to_owned()
                }
                ApiError::Store(StoreError::Unreachable { .. }) => {
                    "the database cannot be reached".to_owned()
                }
                ApiError::Store(StoreError::Unknown { .. }) => {
                    "the connection to the database broke during COMMIT: the request may or may not be stored"
                        .to_owned()
                }
                ApiError::Knowledge(_) => "the knowledge base failed".to_owned(),
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

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Invalid { error, remedy } => ApiError::Invalid { error, remedy },
            Refused::TooLarge { what, limit } => ApiError::TooLarge { what, limit },
            Refused::Forbidden { error, remedy } => ApiError::Forbidden { error, remedy },
            Refused::NotFound { what, id } => ApiError::NotFound { what, id },
            Refused::Store(error) => ApiError::Store(error),
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
        Refused::from(error).into()
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
            ApiError::NoSuchMethod { allowed, .. } => {
                if let Ok(allowed) = HeaderValue::from_str(allowed) {
                    headers.insert(header::ALLOW, allowed);
                }
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

    /// Another server of the store may be newer, so the client should try there. The refusal does not tell where the
    /// store is.
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

    #[test]
    fn damage_is_named() {
        let refusal = ApiError::from(StoreError::Damaged {
            batch: gristmill_model::BatchId(7),
            table: "report",
            what: "its checksum differs".to_owned(),
        })
        .refusal();
        assert_eq!(
            (&*refusal.code, &*refusal.error),
            ("damaged", "batch 7 is damaged")
        );
    }
}
