//! The API over a new SQLite store, with tokens, for tests.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use gristmill_engine::{Engine, EngineSettings};
use gristmill_model::{Clock, Completed, Lease, ManualClock, PackedArray, Positions, Report, SystemClock};
use gristmill_protocol::{EXCHANGE_TYPE, ExchangeRequest, ExchangeResponse};
use gristmill_server::app::App;
use gristmill_server::rate::RateLimiter;
use gristmill_server::serve::routes;
use gristmill_server::trust::Trust;
use gristmill_server::{NewToken, Role, TokenRecord, TrustFolder};
use gristmill_store::{Store, Want};
use gristmill_store_postgres::{PostgresOptions, PostgresStore};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

pub struct Api {
    pub app: App,
    pub router: Router,
    pub engine: Engine,
    pub folder: tempfile::TempDir,
    pub admin: String,
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub body: Bytes,
    pub headers: axum::http::HeaderMap,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The body of a refusal, which says what was wrong and what would be right.
    pub fn refusal(&self) -> String {
        assert!(
            self.status.is_client_error(),
            "{} {}",
            self.status,
            String::from_utf8_lossy(&self.body)
        );
        let refusal = self.json();
        let text = |name: &str| {
            refusal[name]
                .as_str()
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let (Some(error), Some(remedy), Some(_)) = (text("error"), text("remedy"), text("code")) else {
            panic!("not a refusal: {refusal}");
        };
        format!("{error}; {remedy}")
    }
}

pub async fn engine_on(folder: &tempfile::TempDir) -> Engine {
    let store = SqliteStore::open(folder.path().join("gristmill.db"), SqliteOptions::default()).unwrap();
    engine_over(Arc::new(store)).await
}

async fn engine_over(store: Arc<dyn Store>) -> Engine {
    let settings = EngineSettings {
        housekeeping: false,
        ..EngineSettings::default()
    };
    Engine::new(store, settings).await.unwrap()
}

impl Api {
    pub async fn new() -> Api {
        let folder = tempfile::tempdir().unwrap();
        let engine = engine_on(&folder).await;
        Api::on(folder, engine)
    }

    /// The API over a new PostgreSQL store.
    pub async fn on_postgres() -> Api {
        let url = gristmill_private_postgres::shared().create_database().unwrap();
        let store = PostgresStore::open(&url, PostgresOptions::default());
        let engine = engine_over(Arc::new(store.await.unwrap())).await;
        Api::on(tempfile::tempdir().unwrap(), engine)
    }

    fn on(folder: tempfile::TempDir, engine: Engine) -> Api {
        let admin = create(&folder, "admin", Role::Admin, &["*"], &SystemClock).0;
        let trust =
            Trust::reloading(folder.path().join("trust"), Arc::new(SystemClock), Duration::ZERO).unwrap();
        let rate = RateLimiter::new(Arc::new(SystemClock), 100_000, 100_000);
        let (app, router) = routes(engine.clone(), trust, rate).unwrap();
        Api {
            app,
            router,
            engine,
            folder,
            admin,
        }
    }

    pub fn trust(&self) -> TrustFolder {
        TrustFolder::new(self.folder.path().join("trust"))
    }

    pub fn token(&self, subject: &str, role: Role, queues: &[&str]) -> String {
        create(&self.folder, subject, role, queues, &SystemClock).0
    }

    pub fn expired_token(&self, role: Role) -> String {
        let past = ManualClock::new(SystemClock.now().plus_ms(-86_400_000));
        // The list forgets expired tokens when a new one is made, so this one is to be used before.
        create(&self.folder, "late", role, &["*"], &past).0
    }

    pub fn revoked_token(&self, role: Role) -> String {
        let (token, record) = create(&self.folder, "revoked", role, &["*"], &SystemClock);
        self.trust().revoke(&record.jti, &SystemClock).unwrap();
        token
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            body,
            headers: parts.headers,
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(request("GET", path, Some(&self.admin), None, Bytes::new()))
            .await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_text(path, &body.to_string()).await
    }

    pub async fn post_text(&self, path: &str, body: &str) -> Answer {
        self.call_text("POST", path, body).await
    }

    /// A request of any method; without a body where `body` is null.
    pub async fn call(&self, method: &str, path: &str, body: &Value) -> Answer {
        match body {
            Value::Null => {
                self.send(request(method, path, Some(&self.admin), None, Bytes::new()))
                    .await
            }
            body => self.call_text(method, path, &body.to_string()).await,
        }
    }

    async fn call_text(&self, method: &str, path: &str, body: &str) -> Answer {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let content_type = Some("application/json");
        self.send(request(method, path, Some(&self.admin), content_type, body))
            .await
    }

    pub async fn submit(&self, kind: &str, payloads: Value) -> i64 {
        let answer = self
            .post("/jobs", &json!({"kind": kind, "payloads": payloads}))
            .await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.json());
        answer.json()["batches"][0]["batch"].as_i64().unwrap()
    }

    /// Registers a worker with `token` and returns its id.
    pub async fn register(&self, token: &str) -> i64 {
        let body = json!({"name": "agent", "host": "machine", "process_id": 1}).to_string();
        let answer = self
            .send(request(
                "POST",
                "/workers",
                Some(token),
                Some("application/json"),
                body.into(),
            ))
            .await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.json());
        answer.json()["worker"].as_i64().unwrap()
    }

    pub async fn exchange(&self, token: &str, worker: i64, exchange: ExchangeRequest) -> Answer {
        let path = format!("/workers/{worker}/exchange");
        self.send(request(
            "POST",
            &path,
            Some(token),
            Some(EXCHANGE_TYPE),
            exchange.encode(),
        ))
        .await
    }

    /// Claims by an exchange that finds jobs.
    pub async fn claim(&self, token: &str, worker: i64, exchange: ExchangeRequest) -> Lease {
        let answer = read(&self.exchange(token, worker, exchange).await);
        answer.exchanged.lease.unwrap()
    }

    /// Sends a report as exchange `number`. All of it is accepted.
    pub async fn report(&self, token: &str, worker: i64, number: u64, report: Report) {
        let mut exchange = self.wanting(number, 0);
        exchange.reports = vec![report];
        let answer = read(&self.exchange(token, worker, exchange).await);
        assert!(answer.exchanged.receipts[0].refused.is_empty());
    }

    /// An exchange that wants up to `jobs_max` jobs of the default queue, none for 0.
    pub fn wanting(&self, number: u64, jobs_max: u32) -> ExchangeRequest {
        ExchangeRequest {
            number,
            attempt: 1,
            acknowledged: number - 1,
            instance: self.app.instance.clone(),
            reports: Vec::new(),
            want: (jobs_max > 0).then(|| Want {
                jobs_max,
                queues: vec!["default".into()],
                kinds: Vec::new(),
                priority_min: None,
            }),
            wait_ms: 0,
        }
    }
}

/// A report that completes positions of the first slice of a lease. `values` is a JSON array with a value for each.
pub fn completing(lease: &Lease, positions: &str, values: &str) -> Report {
    let slice = &lease.slices[0];
    let positions: Positions = positions.parse().unwrap();
    let mut report = Report::new(lease.id, slice.batch, slice.attempt);
    report.completed = Some(Completed {
        durations_us: vec![1; positions.len() as usize],
        positions,
        values: PackedArray::parse(values).unwrap(),
    });
    report
}

pub fn read(answer: &Answer) -> ExchangeResponse {
    assert_eq!(
        answer.status,
        StatusCode::OK,
        "{}",
        String::from_utf8_lossy(&answer.body)
    );
    ExchangeResponse::decode(&answer.body).unwrap()
}

pub fn create(
    folder: &tempfile::TempDir,
    subject: &str,
    role: Role,
    queues: &[&str],
    clock: &dyn Clock,
) -> (String, TokenRecord) {
    let new = NewToken {
        subject: subject.to_owned(),
        role,
        queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
        event: None,
        life_ms: 3_600_000,
    };
    TrustFolder::new(folder.path().join("trust"))
        .create(&new, clock)
        .unwrap()
}

pub fn request(
    method: &str,
    path: &str,
    token: Option<&str>,
    content_type: Option<&str>,
    body: Bytes,
) -> Request<Body> {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("/api/v1{path}"))
        .header("host", "localhost");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    if let Some(content_type) = content_type {
        request = request.header("content-type", content_type);
    }
    request.body(Body::from(body)).unwrap()
}
