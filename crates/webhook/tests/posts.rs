//! Tests that summaries of ended batches reach an allowed server with a signature, and reach no other server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use gristmill_engine::testing::TestEngine;
use gristmill_model::{HookTarget, Hooks, JobError, JobId, JobState, NewBatch, PackedArray};
use gristmill_webhook::{WebhookOptions, webhook_handler};
use gristmill_worker::{Job, job_handler};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const SECRET: &str = "a secret of enough bytes";

/// A request that arrived.
#[derive(Debug, Clone)]
struct Received {
    path: String,
    id: String,
    timestamp: String,
    signature: String,
    body: String,
}

#[derive(Debug, Clone, Default)]
struct Recipient {
    received: Arc<Mutex<Vec<Received>>>,
}

impl Recipient {
    /// Answers with 500 once, and then with success. Redirects requests for `/away`.
    async fn take(State(this): State<Recipient>, uri: Uri, headers: HeaderMap, body: String) -> Response {
        let header = |name: &str| headers[name].to_str().unwrap().to_owned();
        let mut received = this.received.lock().unwrap();
        received.push(Received {
            path: uri.path().to_owned(),
            id: header("webhook-id"),
            timestamp: header("webhook-timestamp"),
            signature: header("webhook-signature"),
            body,
        });
        match (uri.path(), received.len()) {
            ("/away", _) => Redirect::temporary("/inside").into_response(),
            (_, 1) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            _ => StatusCode::NO_CONTENT.into_response(),
        }
    }

    async fn start(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = axum::Router::new()
            .fallback(Recipient::take)
            .with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        format!("http://{address}")
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

/// Runs one job whose hook is this URL to its end. Then runs webhooks with `allowed` for all of their attempts. Returns
/// the engine and the hook's job.
async fn hook(url: &str, allowed: &str) -> (TestEngine, JobId) {
    let engine = TestEngine::new().await;
    let mut new = NewBatch::new("work", PackedArray::parse("[1]").unwrap());
    new.options.hooks = Hooks::of(Some(HookTarget::Url(url.to_owned())), None);
    let ended = engine.submit_one(new).await.unwrap();
    let options = WebhookOptions {
        allowed: vec![allowed.parse().unwrap()],
        secret: SECRET.parse().unwrap(),
        clock: engine.clock().clone(),
    };
    let webhooks = webhook_handler(options).unwrap();
    for _ in 0..3 {
        let mut worker = engine.worker();
        let work = job_handler(|job: Job<u32>| async move { Ok::<_, JobError>(job.payload) });
        worker.handler("work", work).handler("http", webhooks.clone());
        engine.drain(&mut worker).await;
        engine.advance(Duration::from_secs(600)).await;
    }
    let batch = gristmill_model::BatchId(ended.batch.0 + 1);
    (engine, JobId { batch, position: 0 })
}

async fn state(engine: &TestEngine, job: JobId) -> (JobState, Vec<String>) {
    let details = engine.job(job).await.unwrap().unwrap();
    let failures = details
        .failures
        .iter()
        .map(|failure| failure.error.message.clone());
    (details.row.state, failures.collect())
}

#[tokio::test]
async fn a_summary_is_signed_and_a_retry_keeps_its_id() {
    let recipient = Recipient::default();
    let base = recipient.start().await;
    let (engine, job) = hook(&format!("{base}/done?token=hidden"), &base).await;
    let (state, failures) = state(&engine, job).await;
    assert_eq!((state, failures.len()), (JobState::Completed, 1), "{failures:?}");
    assert!(
        failures[0].contains("500") && !failures[0].contains("hidden"),
        "{failures:?}"
    );
    let received = recipient.received();
    assert_eq!(received.len(), 2);
    assert_eq!(
        (received[0].path.as_str(), &received[0].id),
        ("/done", &received[1].id)
    );
    assert_eq!(received[0].id, format!("job_{job}"));
    assert_ne!(
        received[0].timestamp, received[1].timestamp,
        "each attempt has its own date"
    );
    for request in &received {
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
        mac.update(format!("{}.{}.{}", request.id, request.timestamp, request.body).as_bytes());
        let expected = format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()));
        assert_eq!(request.signature, expected);
        let body: serde_json::Value = serde_json::from_str(&request.body).unwrap();
        assert_eq!(
            (&body["outcome"], &body["completed"]),
            (&"success".into(), &1.into())
        );
    }
}

#[tokio::test]
async fn a_host_that_is_not_allowed_gets_no_request() {
    let recipient = Recipient::default();
    let base = recipient.start().await;
    let (engine, job) = hook(&format!("{base}/done"), "hooks.example").await;
    let (state, failures) = state(&engine, job).await;
    assert_eq!(
        (state, failures.len()),
        (JobState::Dead, 1),
        "a refused job is not tried again"
    );
    assert!(failures[0].contains("--http-hooks"), "{failures:?}");
    assert_eq!(recipient.received().len(), 0);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let recipient = Recipient::default();
    let base = recipient.start().await;
    let (engine, job) = hook(&format!("{base}/away"), &base).await;
    let (state, failures) = state(&engine, job).await;
    assert_eq!((state, failures.len()), (JobState::Dead, 3), "{failures:?}");
    let received = recipient.received();
    assert!(
        received.iter().all(|request| request.path == "/away"),
        "{received:?}"
    );
}
