//! Connections that send nothing or half of a head, before a token is checked.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use axum::http::StatusCode;
use gristmill_server::limits::STREAMS_PER_CONNECTION_MAX;
use gristmill_server::{ConnectionLimits, ServeOptions, TlsFiles, bind};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{BYSTANDER_WITHIN, PATIENCE};
use crate::support::engine_on;

const HALF_A_HEAD: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-";
const WHOLE_HEAD: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// The preface of HTTP/2, and settings without any entry.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A server on a port of its own, with or without TLS.
struct Server {
    address: SocketAddr,
    scheme: &'static str,
    client: reqwest::Client,
    task: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start(tls: bool, connections: ConnectionLimits) -> Server {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let engine = engine_on(&folder).await;
        let mut builder = reqwest::Client::builder()
            .timeout(PATIENCE)
            .pool_max_idle_per_host(0);
        let mut files = None;
        if tls {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
            std::fs::write(&certificate, made.cert.pem()).unwrap();
            std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
            let trusted = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
            builder = builder.tls_certs_only([trusted]);
            files = Some(TlsFiles { certificate, key });
        }
        let options = ServeOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: files,
            connections,
            ..ServeOptions::default()
        };
        let server = bind(engine, options).await.unwrap();
        Server {
            address: server.address(),
            scheme: if tls { "https" } else { "http" },
            client: builder.build().unwrap(),
            task: tokio::spawn(async move { server.run(std::future::pending()).await.unwrap() }),
            _folder: folder,
        }
    }

    async fn connect(&self, sent: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(sent).await.unwrap();
        stream
    }

    async fn status(&self, path: &str) -> StatusCode {
        let url = format!("{}://localhost:{}{path}", self.scheme, self.address.port());
        self.client.get(url).send().await.unwrap().status()
    }
}

/// Reads until the server closes the connection.
async fn closed(stream: &mut TcpStream) {
    let mut read = Vec::new();
    let end = timeout(PATIENCE, stream.read_to_end(&mut read)).await;
    // An end or a reset: both close the connection.
    let _ = end.expect("the server closes the connection");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_wait_cost_nobody_a_request() {
    let limits = ConnectionLimits {
        all_max: 60,
        by_address_max: 30,
        // The limit of time does not close them. The connections that come later do.
        head_within: 2 * PATIENCE,
        ..ConnectionLimits::default()
    };
    for tls in [false, true] {
        let server = Server::start(tls, limits).await;
        for sent in [b"".as_slice(), HALF_A_HEAD, HTTP2] {
            let mut waiting = Vec::new();
            for _ in 0..200 {
                waiting.push(server.connect(sent).await);
            }
            let health = timeout(BYSTANDER_WITHIN, server.status("/healthz")).await;
            assert_eq!(health.unwrap(), StatusCode::OK);
            closed(&mut waiting[0]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_a_request_ends_in_time() {
    let limits = ConnectionLimits {
        head_within: Duration::from_millis(200),
        idle_max: Duration::from_millis(200),
        ..ConnectionLimits::default()
    };
    for tls in [false, true] {
        let server = Server::start(tls, limits).await;
        for sent in [b"".as_slice(), HALF_A_HEAD, HTTP2] {
            closed(&mut server.connect(sent).await).await;
        }
    }
    let server = Server::start(false, limits).await;
    for second in [b"".as_slice(), HALF_A_HEAD] {
        let mut kept = server.connect(WHOLE_HEAD).await;
        let mut answer = [0; 12];
        kept.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        kept.write_all(second).await.unwrap();
        closed(&mut kept).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_under_way_is_not_cut_off() {
    let limits = ConnectionLimits {
        all_max: 2,
        by_address_max: 2,
        head_within: Duration::from_secs(1),
        idle_max: Duration::from_secs(1),
    };
    let server = Server::start(false, limits).await;
    let batch = {
        let url = format!("http://{}/api/v1/jobs", server.address);
        let body = json!({"kind": "a", "payload": 1}).to_string();
        let submit = server.client.post(url).header("content-type", "application/json");
        let answer = submit.body(body).send().await.unwrap().bytes().await.unwrap();
        serde_json::from_slice::<serde_json::Value>(&answer).unwrap()["batches"][0]["batch"].clone()
    };
    let wait = async {
        server
            .status(&format!("/api/v1/results?batches={batch}&wait_ms=4000"))
            .await
    };
    let flood = async {
        loop {
            // Each accepted connection takes the place of the last.
            let mut stream = server.connect(HALF_A_HEAD).await;
            closed(&mut stream).await;
        }
    };
    tokio::select! {
        status = wait => assert_eq!(status, StatusCode::OK),
        () = flood => {}
    }
}

#[tokio::test]
async fn a_connection_of_http2_has_a_limit_of_requests() {
    let server = Server::start(false, ConnectionLimits::default()).await;
    let mut stream = server.connect(HTTP2).await;
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "a frame of settings comes first");
    let mut settings = vec![0; usize::from(head[2])];
    stream.read_exact(&mut settings).await.unwrap();
    let streams_max = settings.chunks(6).find_map(|setting| match setting {
        [0, 3, value @ ..] => Some(u32::from_be_bytes(value.try_into().unwrap())),
        _ => None,
    });
    assert_eq!(streams_max, Some(STREAMS_PER_CONNECTION_MAX));
}
