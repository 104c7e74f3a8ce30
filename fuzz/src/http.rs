//! Requests to the server.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, Uri};
use gristmill_engine::{Engine, EngineSettings};
use gristmill_model::SystemClock;
use gristmill_server::rate::RateLimiter;
use gristmill_server::serve::routes;
use gristmill_server::trust::Trust;
use gristmill_server::{NewToken, Role, TrustFolder};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};
use http_body_util::BodyExt;
use tokio::runtime::Runtime;
use tower::ServiceExt;

/// Requests to one server; the next server has an empty store.
const REQUESTS_MAX: u32 = 20_000;

/// How long to wait for an answer, because some wait for events or jobs.
const PATIENCE: Duration = Duration::from_millis(20);

struct Server {
    runtime: Runtime,
    router: Router,
    token: String,
    requests: u32,
    _folder: tempfile::TempDir,
}

thread_local! {
    static SERVER: RefCell<Option<Server>> = const { RefCell::new(None) };
}

fn start() -> Server {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("an event loop");
    let folder = tempfile::tempdir().expect("a folder");
    let trust_folder = folder.path().join("trust");
    let new = NewToken {
        subject: "fuzz".to_owned(),
        role: Role::Admin,
        queues: vec!["*".to_owned()],
        life_ms: 86_400_000,
    };
    let token = TrustFolder::new(trust_folder.clone())
        .create(&new, &SystemClock)
        .expect("a token")
        .0;
    let router = runtime.block_on(async {
        let store = SqliteStore::open(folder.path().join("jobs.db"), SqliteOptions::default());
        let settings = EngineSettings {
            housekeeping: false,
            ..EngineSettings::default()
        };
        let engine = Engine::new(Arc::new(store.expect("opens")), settings);
        let trust = Trust::reloading(trust_folder, Arc::new(SystemClock), Duration::from_secs(60));
        let rate = RateLimiter::new(Arc::new(SystemClock), 1_000_000, 1_000_000);
        routes(engine.await.expect("starts"), trust.expect("opens"), rate)
            .expect("routes")
            .1
    });
    Server {
        runtime,
        router,
        token,
        requests: 0,
        _folder: folder,
    }
}

/// The first line is the request line: method, path and type of the body. The rest is the body.
pub fn request(data: &[u8]) {
    let line_end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (line, body) = data.split_at(line_end);
    let Ok(line) = std::str::from_utf8(line) else {
        return;
    };
    let mut words = line.split(' ');
    let method = words.next().and_then(|word| word.parse::<Method>().ok());
    let uri = words
        .next()
        .and_then(|word| format!("/api/v1{word}").parse::<Uri>().ok());
    let (Some(method), Some(uri)) = (method, uri) else {
        return;
    };
    let body = body.get(1..).unwrap_or_default().to_vec();
    SERVER.with_borrow_mut(|server| {
        if server
            .as_ref()
            .is_some_and(|server| server.requests >= REQUESTS_MAX)
        {
            *server = None;
        }
        let server = server.get_or_insert_with(start);
        server.requests += 1;
        let request = Request::builder()
            .method(method.clone())
            .uri(uri.clone())
            .header("host", "localhost")
            .header("authorization", format!("Bearer {}", server.token))
            .header("content-type", words.next().unwrap_or("application/json"))
            .body(Body::from(body));
        let Ok(request) = request else { return };
        let router = server.router.clone();
        let answer = server.runtime.block_on(async {
            let answered = async {
                let response = router.oneshot(request).await.expect("an answer");
                let (parts, body) = response.into_parts();
                (parts.status, body.collect().await.ok())
            };
            tokio::time::timeout(PATIENCE, answered).await.ok()
        });
        if let Some((status, body)) = answer {
            let said = body.map(|body| body.to_bytes()).unwrap_or_default();
            assert!(
                !status.is_server_error(),
                "{method} {uri}: {status} {}",
                String::from_utf8_lossy(&said)
            );
        }
    });
}
