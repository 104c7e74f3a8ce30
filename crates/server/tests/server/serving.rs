//! A server on the network: its start, its end, TLS, compression.

use std::net::SocketAddr;
use std::time::Duration;

use gristmill_server::{ServeError, ServeOptions, TlsFiles, bind};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;

use crate::support::{create, engine_on};

/// No test waits longer for what must happen.
const PATIENCE: Duration = Duration::from_secs(30);

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn client() -> reqwest::ClientBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().timeout(PATIENCE)
}

#[tokio::test]
async fn an_open_address_without_tokens_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine_on(&folder).await;
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let options = ServeOptions {
            listen: address.parse().unwrap(),
            ..ServeOptions::default()
        };
        let error = bind(engine.clone(), options).await.unwrap_err();
        assert!(matches!(error, ServeError::Open(_)), "{error}");
        assert!(error.to_string().contains("gristmill token create"), "{error}");
    }
    create(
        &folder,
        "admin",
        gristmill_server::Role::Admin,
        &["*"],
        &gristmill_model::SystemClock,
    );
    let trust = Some(folder.path().join("trust"));
    let options = ServeOptions {
        listen: "0.0.0.0:0".parse().unwrap(),
        trust,
        ..ServeOptions::default()
    };
    bind(engine, options).await.unwrap();
}

/// A proxy may have gone by the one, and the checks of foreign pages by the other (RFC 9112, section 3.2).
#[tokio::test]
async fn a_request_with_several_hosts_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = ServeOptions {
        listen: any_port(),
        ..ServeOptions::default()
    };
    let server = bind(engine_on(&folder).await, options).await.unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    for (hosts, status) in [
        ("host: 127.0.0.1\r\n", "200"),
        ("host: 127.0.0.1\r\nhost: 127.0.0.1\r\n", "400"),
        ("host: 127.0.0.1\r\nHost: rebound.example\r\n", "400"),
        ("host: rebound.example\r\nhost: 127.0.0.1\r\n", "400"),
    ] {
        for path in ["/healthz", "/api/v1/health", "/"] {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\n{hosts}connection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            let read = stream.read_to_string(&mut answer);
            tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{path} {hosts:?}: {answer}"
            );
            let told =
                answer.contains("the request has 2 Host headers") && answer.contains("proxy_set_header");
            assert_eq!(told, status == "400", "{answer}");
        }
    }
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_cannot_be_used_is_named_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine_on(&folder).await;
    let taken = std::net::TcpListener::bind(any_port()).unwrap();
    let listen = taken.local_addr().unwrap();
    let error = bind(
        engine.clone(),
        ServeOptions {
            listen,
            ..ServeOptions::default()
        },
    )
    .await
    .unwrap_err();
    assert!(error.to_string().contains("--listen"), "{error}");
    let trust = Some(folder.path().join("nowhere"));
    let options = ServeOptions {
        listen: any_port(),
        trust,
        ..ServeOptions::default()
    };
    let error = bind(engine.clone(), options).await.unwrap_err();
    assert!(error.to_string().contains("keys.json"), "{error}");
    let tls = Some(TlsFiles {
        certificate: folder.path().join("c.pem"),
        key: folder.path().join("k.pem"),
    });
    let error = bind(
        engine,
        ServeOptions {
            listen: any_port(),
            tls,
            ..ServeOptions::default()
        },
    )
    .await
    .unwrap_err();
    assert!(error.to_string().contains("c.pem"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_served_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine_on(&folder).await;
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = TlsFiles {
        certificate: folder.path().join("cert.pem"),
        key: folder.path().join("key.pem"),
    };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let options = || ServeOptions {
        listen: any_port(),
        tls: Some(files.clone()),
        ..ServeOptions::default()
    };
    let allow = |mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&files.key, permissions).unwrap();
    };
    for mode in [0o644, 0o604, 0o602] {
        allow(mode);
        let error = bind(engine.clone(), options()).await.unwrap_err().to_string();
        assert!(
            error.contains("key.pem") && error.contains("chmod 600"),
            "{error}"
        );
    }
    // As packages of Debian keep keys, for a group of servers.
    allow(0o640);
    let server = bind(engine, options()).await.unwrap();
    let url = format!("https://localhost:{}/api/v1/health", server.address().port());
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async move { drop(stopped.await) }));
    let certificate = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
    let trusting = client().tls_certs_only([certificate]).build().unwrap();
    assert!(trusting.get(&url).send().await.unwrap().status().is_success());
    assert!(
        client().build().unwrap().get(&url).send().await.is_err(),
        "a certificate that nobody vouches for"
    );
    drop(trusting);
    stop.send(()).unwrap();
    tokio::time::timeout(PATIENCE, running)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_lets_waiting_requests_go_and_finishes() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine_on(&folder).await;
    let server = bind(
        engine,
        ServeOptions {
            listen: any_port(),
            ..ServeOptions::default()
        },
    )
    .await
    .unwrap();
    let base = format!("{}/api/v1", server.base_url());
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async move { drop(stopped.await) }));
    let client = client().build().unwrap();
    let body = json!({"kind": "a", "payload": "x".repeat(50_000)}).to_string();
    let submit = client
        .post(format!("{base}/jobs"))
        .header("content-type", "application/json")
        .body(body);
    let submitted: serde_json::Value =
        serde_json::from_slice(&submit.send().await.unwrap().bytes().await.unwrap()).unwrap();
    // Large answers are compressed for those who understand them.
    let job = client.get(format!("{base}/jobs/{}", submitted["first"].as_str().unwrap()));
    let answer = job.header("accept-encoding", "zstd").send().await.unwrap();
    assert_eq!(answer.headers()["content-encoding"], "zstd");
    let packed = answer.bytes().await.unwrap();
    assert!(packed.len() < 5_000);
    assert!(zstd::decode_all(&packed[..]).unwrap().len() > 50_000);
    // So are answers that turn out to be empty.
    let batch = submitted["batches"][0]["batch"].as_i64().unwrap();
    let none = client.get(format!("{base}/results?batches={batch}"));
    let answer = none.header("accept-encoding", "zstd").send().await.unwrap();
    assert_eq!(zstd::decode_all(&answer.bytes().await.unwrap()[..]).unwrap(), b"");

    let events = client.get(format!("{base}/events")).send().await.unwrap();
    let results = client
        .get(format!("{base}/results?batches={batch}&wait_ms=30000"))
        .send();
    let waiting = tokio::spawn(results);
    let begun = std::time::Instant::now();
    stop.send(()).unwrap();
    assert!(
        events.bytes().await.is_ok(),
        "the stream of events ends in good order"
    );
    // It was let go before its time, or came too late to be let in.
    let _ = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    tokio::time::timeout(PATIENCE, running)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20));
}
