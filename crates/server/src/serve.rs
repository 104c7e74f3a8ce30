//! A server's start and end.

use std::fs;
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum_server::tls_rustls::RustlsConfig;
use axum_server::{Handle, Server};
use bytes::Bytes;
use futures::future::BoxFuture;
use gristmill_engine::Engine;
use gristmill_protocol::metric::MetricFamily;
use gristmill_store::WorkSeen;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};

use crate::app::App;
use crate::connections::{ConnectionLimits, Connections, Doorkeeper, Watch};
use crate::dashboard;
use crate::error::ApiError;
use crate::knowledge::Knowledge;
use crate::limits::{
    HEAD_BYTES_MAX, HEAD_BYTES_MAX_HTTP2, POLL_EVERY, REQUESTS_BURST_MAX, REQUESTS_PER_SECOND_MAX,
    SHUTDOWN_GRACE, STREAMS_PER_CONNECTION_MAX,
};
use crate::openapi;
use crate::rate::RateLimiter;
use crate::rules;
use crate::trust::{Trust, TrustError};

/// Smaller answers are not compressed. Bytes.
const COMPRESSED_FROM_BYTES: u64 = 8 << 10;

/// The files of a certificate for TLS.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate and its chain to the root, as PEM.
    pub certificate: PathBuf,
    /// Its key, as PEM.
    pub key: PathBuf,
}

/// The settings of a server.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The address to listen on. An address other than loopback needs `trust`.
    pub listen: SocketAddr,
    /// The folder of keys and tokens; without one, the server gives every caller on loopback full access.
    pub trust: Option<PathBuf>,
    /// The files for TLS. `None` means plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The number of requests per second for each token.
    pub requests_per_second: u32,
    /// The limits of connections.
    pub connections: ConnectionLimits,
    /// The knowledge base that it shows, if any.
    pub knowledge: Option<Arc<dyn Knowledge>>,
    /// True if tokens for `monitor` may read payloads, values, tracebacks and logs of jobs.
    pub monitors_see_payloads: bool,
}

impl Default for ServeOptions {
    /// Loopback, port 8378, plain HTTP, no tokens.
    fn default() -> Self {
        ServeOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 8378)),
            trust: None,
            tls: None,
            requests_per_second: REQUESTS_PER_SECOND_MAX,
            connections: ConnectionLimits::default(),
            knowledge: None,
            monitors_see_payloads: false,
        }
    }
}

/// The error of a server that did not start, or that ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Every caller could do everything.
    #[error(
        "refusing to listen on {0} without tokens: every caller could run jobs; \
         create a token with `gristmill token create --trust DIR` and start with `--trust DIR`, or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    /// The trust folder cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The server cannot listen on the address.
    #[error("cannot listen on {address}: {reason}; choose another with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's message.
        reason: String,
    },
    /// The certificate or its key cannot be used.
    #[error("the certificate {} and its key {} cannot be used: {reason}; give PEM files with --tls-cert and --tls-key",
        certificate.display(), key.display())]
    Tls {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The problem.
        reason: String,
    },
    /// The system gave no random numbers.
    #[error("the system's random number generator failed: {0}")]
    Random(String),
    /// The connections ended with an error.
    #[error("the server ended: {0}")]
    Ended(std::io::Error),
}

/// A server that listens, but does not answer yet.
#[derive(Debug)]
pub struct BoundServer {
    app: App,
    router: Router,
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<RustlsConfig>,
    connections: ConnectionLimits,
}

/// Serves until `shutdown` resolves. Then it ends all waits, finishes requests, and returns. The engine stays open.
pub async fn serve(
    engine: Engine,
    options: ServeOptions,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    bind(engine, options).await?.run(shutdown).await
}

/// Checks the options and listens.
pub async fn bind(engine: Engine, options: ServeOptions) -> Result<BoundServer, ServeError> {
    let trust = match options.trust {
        Some(folder) => Trust::tokens(folder, engine.clock().clone())?,
        None if options.listen.ip().is_loopback() => Trust::Loopback,
        None => return Err(ServeError::Open(options.listen)),
    };
    let ServeOptions {
        listen,
        requests_per_second,
        connections,
        ..
    } = options;
    let tls = match options.tls {
        Some(files) => Some(read_tls(files).await?),
        None => None,
    };
    let refused = |error: std::io::Error| ServeError::Listen {
        address: listen,
        reason: error.to_string(),
    };
    let listener = TcpListener::bind(listen).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let burst = requests_per_second.saturating_mul(2).clamp(1, REQUESTS_BURST_MAX);
    let rate = RateLimiter::new(engine.clock().clone(), requests_per_second, burst);
    let (app, router) = routes(engine, trust, rate)?;
    app.monitors_see_payloads
        .store(options.monitors_see_payloads, Ordering::Relaxed);
    if let Some(knowledge) = options.knowledge {
        // The cell is new and empty.
        let _ = app.knowledge.set(knowledge);
    }
    Ok(BoundServer {
        app,
        router,
        listener,
        address,
        tls,
        connections,
    })
}

/// The whole API over an engine, without a listener.
pub fn routes(engine: Engine, trust: Trust, rate: RateLimiter) -> Result<(App, Router), ServeError> {
    let mut drawn = [0u8; 8];
    getrandom::fill(&mut drawn).map_err(|error| ServeError::Random(error.to_string()))?;
    let instance = drawn.iter().map(|byte| format!("{byte:02x}")).collect();
    let (routes, description) = openapi::router();
    // The description consists of this program's own types, so serialising it cannot fail.
    let description: Bytes = serde_json::to_vec(&description).unwrap_or_default().into();
    let app = App::new(engine, trust, rate, instance, description);
    let compressed =
        SizeAbove::new(COMPRESSED_FROM_BYTES).and(NotForContentType::const_new("text/event-stream"));
    let guarded = routes
        .guarded
        .fallback(no_such_path)
        .layer(middleware::from_fn_with_state(app.clone(), rules::guard))
        .layer(CompressionLayer::new().zstd(true).compress_when(compressed));
    let probes = routes.probes.method_not_allowed_fallback(no_such_probe);
    let router = guarded
        .merge(probes)
        .merge(dashboard::routes(&app))
        .layer(middleware::from_fn(name_host))
        .with_state(app.clone());
    Ok((app, router))
}

/// Adds the Host header to a request that names its host in the URI, as all requests over HTTP/2 do. If both name a
/// host, the URI counts.
///
/// Refuses a request with several Host headers (RFC 9112, section 3.2): a proxy before the server may have used another
/// of them than the checks of foreign pages do.
async fn name_host(mut request: Request, next: Next) -> Response {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    if hosts > 1 {
        let refused = ApiError::invalid(
            format!("the request has {hosts} Host headers"),
            "send one; a proxy has to replace the header (nginx: `proxy_set_header Host $host`), and not to add another",
        );
        return refused.into_response();
    }
    let authority = request.uri().authority().map(Authority::as_str);
    let host = authority.map(|text| text.rsplit_once('@').map_or(text, |(_, host)| host));
    if let Some(host) = host.and_then(|host| HeaderValue::from_str(host).ok()) {
        request.headers_mut().insert(header::HOST, host);
    }
    next.run(request).await
}

/// Never runs, because the guard answers first. It exists so that the guard sees such requests.
async fn no_such_path(request: Request) -> ApiError {
    ApiError::NoSuchPath(request.uri().path().chars().take(200).collect())
}

/// Answers other methods than the one of a probe.
async fn no_such_probe(request: Request) -> ApiError {
    rules::no_such_method(&request, "GET, HEAD".to_owned())
}

async fn read_tls(files: TlsFiles) -> Result<RustlsConfig, ServeError> {
    // An error means that the process already has a provider, which also works.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let read = async {
        let certificate = fs::read(&files.certificate)?;
        let mode = fs::metadata(&files.key)?.mode() & 0o777;
        if mode & 0o007 != 0 {
            let reason = format!(
                "everybody may read the key (mode {mode:o}): allow it to the server alone with chmod 600"
            );
            return Err(std::io::Error::other(reason));
        }
        let key = fs::read(&files.key)?;
        RustlsConfig::from_pem(certificate, key).await
    };
    read.await.map_err(|error| ServeError::Tls {
        reason: error.to_string(),
        certificate: files.certificate.clone(),
        key: files.key.clone(),
    })
}

impl BoundServer {
    /// The address of the server. It has the chosen port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://…` or `https://…`.
    pub fn base_url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Reads the metrics as the operation `metrics` shows them. The result is `None` while the store does not answer.
    pub fn metrics_reader(
        &self,
    ) -> impl Fn() -> BoxFuture<'static, Option<Vec<MetricFamily>>> + Send + use<> {
        let app = self.app.clone();
        move || {
            let app = app.clone();
            Box::pin(async move {
                let metrics = app.store().metrics().await.ok()?;
                Some(app.metrics.families(&metrics, app.store().now()))
            })
        }
    }

    /// Serves until `shutdown` resolves.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), ServeError> {
        let BoundServer {
            app,
            router,
            listener,
            tls,
            connections,
            ..
        } = self;
        let handle = Handle::new();
        let services = Doorkeeper {
            connections: Connections::new(connections),
            services: router.into_make_service(),
        };
        let serving = {
            let handle = handle.clone();
            async move {
                match tls {
                    Some(tls) => {
                        let mut server = axum_server::from_tcp_rustls(listener, tls)?
                            .map(|acceptor| acceptor.acceptor(Watch))
                            .handle(handle);
                        bound_requests(&mut server);
                        server.serve(services).await
                    }
                    None => {
                        let mut server = axum_server::from_tcp(listener)?.acceptor(Watch).handle(handle);
                        bound_requests(&mut server);
                        server.serve(services).await
                    }
                }
            }
        };
        let work_seen = WorkSeen::default();
        let watching = app
            .wake
            .watch(|| app.store().wait_for_work(&work_seen), POLL_EVERY);
        let stopping = async {
            shutdown.await;
            // End the waits first: they hold connections that would delay the shutdown.
            app.stopping.send_replace(true);
            handle.graceful_shutdown(Some(SHUTDOWN_GRACE));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            ended = serving => ended.map_err(ServeError::Ended),
            () = watching => Ok(()),
            () = stopping => Ok(()),
        }
    }
}

/// Limits what one connection may send before its requests are checked.
fn bound_requests<A>(server: &mut Server<SocketAddr, A>) {
    let builder = server.http_builder();
    builder.http1().max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .max_header_list_size(HEAD_BYTES_MAX_HTTP2);
}
