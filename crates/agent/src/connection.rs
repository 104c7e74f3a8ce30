//! Requests to servers, and their retries.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gristmill_model::Rng;
use gristmill_protocol::Refusal;
use gristmill_worker::{SourceError, SourceErrorKind};
use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING};
use reqwest::{Certificate, Client, Method, Response, StatusCode};
use tokio::sync::watch;

use crate::error::AgentError;
use crate::options::HttpSourceOptions;
use crate::servers::{Server, Servers};
use crate::token::AgentToken;

/// Larger bodies are compressed for a server on another machine. Bytes.
const COMPRESSED_FROM_BYTES: usize = 8 << 10;

/// zstd's fastest ordinary level: packed JSON shrinks to about a fifth, at some 500 MB/s.
const COMPRESSION_LEVEL: i32 = 1;

/// The largest answer: several leases of large payloads fit. Bytes.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// The first and the longest pause between two attempts. Each pause is drawn from zero to twice the last one.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The time in which a server must begin a streamed answer.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);

/// The time in which a server must report that it is back.
const LOOK_BACK_TIMEOUT: Duration = Duration::from_secs(2);

/// The connection of one agent to its servers.
pub(crate) struct Connection {
    client: Client,
    servers: Servers,
    token: Option<AgentToken>,
    give_up_after: Option<Duration>,
    /// True after the agent was asked to stop.
    stopping: watch::Sender<bool>,
    is_looking_back: AtomicBool,
    rng: Mutex<Box<dyn Rng>>,
}

/// One request, which may be sent several times.
pub(crate) struct Request {
    pub method: Method,
    /// The path below `/api/v1`.
    pub path: String,
    pub content_type: &'static str,
    /// The time limit of one attempt.
    pub timeout: Duration,
    /// The request is sent again until a server answers it.
    pub insist: bool,
    /// The request is still sent after the agent was asked to stop.
    pub must_arrive: bool,
}

/// The answer to a request that is no longer needed.
fn stopped() -> SourceError {
    SourceError {
        message: "the agent is asked to stop, and no server has answered yet".to_owned(),
        kind: SourceErrorKind::Transient,
    }
}

impl Connection {
    pub fn new(options: &HttpSourceOptions, rng: Box<dyn Rng>) -> Result<Connection, AgentError> {
        let servers = Servers::new(options)?;
        // An error means that the process already has a provider, which also works.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("gristmill-agent/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(5))
            .tcp_nodelay(true);
        if let Some(path) = &options.ca_certificate {
            let refused = |reason: String| AgentError::Certificate {
                path: path.clone(),
                reason,
            };
            let pem = std::fs::read(path).map_err(|error| refused(error.to_string()))?;
            let certificate = Certificate::from_pem(&pem).map_err(|error| refused(error.to_string()))?;
            builder = builder.tls_certs_merge([certificate]);
        }
        if let Some(path) = &options.unix_socket {
            builder = builder.unix_socket(path.as_path());
        }
        let client = builder
            .build()
            .map_err(|error| AgentError::Client(error.to_string()))?;
        Ok(Connection {
            client,
            servers,
            token: options.token.clone(),
            give_up_after: options.give_up_after,
            stopping: watch::Sender::new(false),
            is_looking_back: AtomicBool::new(false),
            rng: Mutex::new(rng),
        })
    }

    /// Abandons requests that carry no reports, now and later.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Reports whether further messages are useless: the agent stops, and no server answers.
    pub fn is_given_up(&self) -> bool {
        *self.stopping.borrow() && self.servers.are_all_lost()
    }

    /// Sends a request and returns the body of the answer. `body` makes the request's body for each attempt (from 1).
    /// If a server does not answer, the next one is tried at once. After the last one there is a pause.
    pub async fn send(&self, request: &Request, body: impl Fn(u32) -> Bytes) -> Result<Bytes, SourceError> {
        let begun = Instant::now();
        let mut pause = PAUSE_FIRST;
        let mut tried = 0;
        for attempt in 1.. {
            let refused = tokio::select! {
                () = self.given_up(request) => return Err(stopped()),
                answer = self.send_once(request, body(attempt)) => match answer {
                    Ok(answer) => return Ok(answer),
                    Err(refused) => refused,
                },
            };
            let (is_server_lost, error) = (refused.is_server_lost(), refused.error);
            tried += 1;
            if is_server_lost && tried < self.servers.len() {
                continue;
            }
            tried = 0;
            if error.kind != SourceErrorKind::Transient || !request.insist {
                return Err(error);
            }
            let tried_for = begun.elapsed();
            if self.give_up_after.is_some_and(|most| tried_for >= most) {
                let message = format!("gave up after {} s: {}", tried_for.as_secs(), error.message);
                return Err(SourceError {
                    message,
                    kind: SourceErrorKind::Fatal,
                });
            }
            let most_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            let drawn_ms = self
                .rng
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .below(most_ms + 1);
            tokio::select! {
                () = self.given_up(request) => return Err(stopped()),
                () = tokio::time::sleep(Duration::from_millis(drawn_ms)) => {}
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
        unreachable!("attempts are counted without an end")
    }

    /// Opens a `GET` with a streamed answer. Each server is tried once.
    pub async fn open(&self, path: &str) -> Result<Response, Refused> {
        let (mut tried, mut has_reread) = (0, false);
        loop {
            let (index, server) = self.servers.current();
            let mut builder = self
                .client
                .get(format!("{}{path}", server.api))
                .header("accept-encoding", "identity");
            if let Some(token) = &self.token {
                builder = builder.header(AUTHORIZATION, token.header());
            }
            let began = Instant::now();
            let opened = match tokio::time::timeout(OPEN_TIMEOUT, builder.send()).await {
                Err(_) => Err(Refused::silent(OPEN_TIMEOUT)),
                Ok(Err(error)) => Err(Refused::lost(&error)),
                Ok(Ok(response)) if response.status().is_success() => Ok(response),
                Ok(Ok(response)) => {
                    let status = response.status();
                    read(response)
                        .await
                        .and_then(|bytes| Err(Refused::by(status, &bytes)))
                }
            };
            let Err(refused) = &opened else {
                self.servers.answered(index, Instant::now());
                return opened;
            };
            if refused.status == Some(StatusCode::UNAUTHORIZED)
                && !std::mem::replace(&mut has_reread, true)
                && self.token.as_ref().is_some_and(AgentToken::reread)
            {
                continue;
            }
            if !refused.is_server_lost() {
                return opened;
            }
            self.servers
                .lost(index, &refused.error.message, began, Instant::now());
            tried += 1;
            if tried >= self.servers.len() {
                return opened;
            }
        }
    }

    /// Resolves when a request is no longer needed.
    async fn given_up(&self, request: &Request) {
        if request.must_arrive {
            return std::future::pending().await;
        }
        // `self` holds the sender, so it is not gone.
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// Starts a task that looks whether lost servers answer again.
    pub fn look_back(shared: Arc<impl AsRef<Connection> + Send + Sync + 'static>) {
        let connection = (*shared).as_ref();
        if connection.servers.left_behind().is_empty()
            || connection.is_looking_back.swap(true, Ordering::Relaxed)
        {
            return;
        }
        tokio::spawn(async move {
            let connection = (*shared).as_ref();
            let request = Request {
                method: Method::GET,
                path: "/health".to_owned(),
                content_type: "application/json",
                timeout: LOOK_BACK_TIMEOUT,
                insist: false,
                must_arrive: false,
            };
            for (index, server) in connection.servers.left_behind() {
                if connection.try_once(server, &request, &Bytes::new()).await.is_ok() {
                    connection.servers.answered(index, Instant::now());
                }
            }
            connection.is_looking_back.store(false, Ordering::Relaxed);
        });
    }

    /// Sends a request once to the current server, and notes whether it answers.
    async fn send_once(&self, request: &Request, body: Bytes) -> Result<Bytes, Refused> {
        let (index, server) = self.servers.current();
        let began = Instant::now();
        let answer = match self.try_once(server, request, &body).await {
            Err(error) if error.status == Some(StatusCode::UNAUTHORIZED) => {
                let reread = self.token.as_ref().is_some_and(AgentToken::reread);
                if reread {
                    self.try_once(server, request, &body).await
                } else {
                    Err(error)
                }
            }
            answer => answer,
        };
        match &answer {
            Err(refused) if refused.is_server_lost() => {
                self.servers
                    .lost(index, &refused.error.message, began, Instant::now());
            }
            _ => self.servers.answered(index, Instant::now()),
        }
        answer
    }

    async fn try_once(&self, server: &Server, request: &Request, body: &Bytes) -> Result<Bytes, Refused> {
        let mut builder = self
            .client
            .request(request.method.clone(), format!("{}{}", server.api, request.path))
            .timeout(request.timeout)
            .header("content-type", request.content_type)
            .header(
                "accept-encoding",
                if server.compress { "zstd" } else { "identity" },
            );
        if let Some(token) = &self.token {
            builder = builder.header(AUTHORIZATION, token.header());
        }
        let compressed = (server.compress && body.len() >= COMPRESSED_FROM_BYTES)
            .then(|| zstd::bulk::compress(body, COMPRESSION_LEVEL).ok())
            .flatten();
        builder = match compressed {
            Some(compressed) => builder.header(CONTENT_ENCODING, "zstd").body(compressed),
            None => builder.body(body.clone()),
        };
        let response = builder.send().await.map_err(|error| Refused::lost(&error))?;
        let status = response.status();
        let is_compressed = response
            .headers()
            .get(CONTENT_ENCODING)
            .is_some_and(|encoding| encoding == "zstd");
        let bytes = read(response).await?;
        let bytes = if is_compressed { decompress(&bytes)? } else { bytes };
        if status.is_success() {
            Ok(bytes)
        } else {
            Err(Refused::by(status, &bytes))
        }
    }
}

pub(crate) async fn read(mut response: Response) -> Result<Bytes, Refused> {
    let mut bytes = bytes::BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| Refused::lost(&error))? {
        if (bytes.len() + chunk.len()) as u64 > ANSWER_BYTES_MAX {
            return Err(Refused::fatal(format!(
                "the server's answer is over {ANSWER_BYTES_MAX} bytes"
            )));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

fn decompress(bytes: &[u8]) -> Result<Bytes, Refused> {
    use std::io::Read;
    let wrong = |error: std::io::Error| Refused::fatal(format!("the server's answer is not zstd: {error}"));
    let mut decoded = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(wrong)?;
    decoder
        .take(ANSWER_BYTES_MAX + 1)
        .read_to_end(&mut decoded)
        .map_err(wrong)?;
    if decoded.len() as u64 > ANSWER_BYTES_MAX {
        return Err(Refused::fatal(format!(
            "the server's answer is over {ANSWER_BYTES_MAX} bytes"
        )));
    }
    Ok(decoded.into())
}

/// A request that did not succeed.
pub(crate) struct Refused {
    pub status: Option<StatusCode>,
    pub error: SourceError,
}

impl Refused {
    /// Reports whether another server may succeed: this one is gone, or about to end.
    pub fn is_server_lost(&self) -> bool {
        self.error.kind == SourceErrorKind::Transient
            && self.status.is_none_or(|status| status.is_server_error())
    }

    /// The error of a server that takes too long.
    pub fn silent(timeout: Duration) -> Refused {
        Refused {
            status: None,
            error: SourceError {
                message: format!("the server sent nothing for {} s", timeout.as_secs()),
                kind: SourceErrorKind::Transient,
            },
        }
    }

    /// The error of a request that the server may or may not have received.
    pub fn lost(error: &reqwest::Error) -> Refused {
        use std::error::Error;
        // The cause says more than the error itself, which names only the URL.
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        Refused {
            status: None,
            error: SourceError {
                message,
                kind: SourceErrorKind::Transient,
            },
        }
    }

    pub fn fatal(message: String) -> Refused {
        Refused {
            status: None,
            error: SourceError {
                message,
                kind: SourceErrorKind::Fatal,
            },
        }
    }

    /// The error that the server reports itself.
    fn by(status: StatusCode, body: &[u8]) -> Refused {
        let refusal: Option<Refusal> = serde_json::from_slice(body).ok();
        let kind = match status {
            // The server does not know the worker, or no longer keeps an answer for it. A new worker begins.
            StatusCode::CONFLICT => SourceErrorKind::Unregistered,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => SourceErrorKind::Transient,
            status if status.is_server_error() => SourceErrorKind::Transient,
            _ => SourceErrorKind::Fatal,
        };
        let message = match refusal {
            Some(refusal) => {
                format!(
                    "the server refused with {}: {}; {}",
                    status.as_u16(),
                    refusal.error,
                    refusal.remedy
                )
            }
            None => format!("the server answered {status}, and not as a Gristmill server; see --base-url"),
        };
        Refused {
            status: Some(status),
            error: SourceError { message, kind },
        }
    }
}
