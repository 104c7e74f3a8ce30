//! Tokens that end during a request.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use gristmill_model::{Clock, ManualClock, SystemClock};
use gristmill_server::rate::RateLimiter;
use gristmill_server::serve::routes;
use gristmill_server::trust::Trust;
use gristmill_server::{Role, TokenRecord};
use http_body_util::BodyExt;
use serde_json::json;
use tokio::time::timeout;
use tower::ServiceExt;

use super::PATIENCE;
use crate::support::{Api, create, read, request};

/// A server whose tokens end by the test's clock.
struct World {
    api: Api,
    router: Router,
    clock: Arc<ManualClock>,
    batch: i64,
}

impl World {
    async fn new() -> World {
        let api = Api::new().await;
        let batch = api.submit("work", json!([1])).await;
        let clock = Arc::new(ManualClock::new(SystemClock.now()));
        let folder = api.folder.path().join("trust");
        let trust = Trust::reloading(folder, clock.clone(), Duration::ZERO).unwrap();
        let rate = RateLimiter::new(clock.clone(), 100_000, 100_000);
        let (_, router) = routes(api.engine.clone(), trust, rate).unwrap();
        World {
            api,
            router,
            clock,
            batch,
        }
    }

    fn token(&self, role: Role) -> (String, TokenRecord) {
        create(&self.api.folder, "late", role, &["*"], &*self.clock)
    }

    /// Ends the token in one of two ways.
    fn end(&self, token: &TokenRecord, by_revoking: bool) {
        if by_revoking {
            self.api.trust().revoke(&token.jti, &*self.clock).unwrap();
        } else {
            self.clock.advance_ms(3_600_000);
        }
    }

    async fn open(&self, token: &str, path: &str) -> Body {
        let request = request("GET", path, Some(token), None, Bytes::new());
        let response = self.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        response.into_body()
    }
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    for by_revoking in [true, false] {
        for path in ["/events", "/logs?kind=work"] {
            let world = World::new().await;
            let (token, record) = world.token(Role::Submit);
            let stream = world.open(&token, path).await;
            let reading = tokio::spawn(stream.collect());
            world.end(&record, by_revoking);
            let ended = timeout(PATIENCE, reading).await;
            ended.expect("the stream ends").unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn a_wait_ends_with_its_token() {
    for by_revoking in [true, false] {
        let world = World::new().await;
        let (token, record) = world.token(Role::Submit);
        let path = format!("/results?batches={}&wait_ms=30000", world.batch);
        let request = request("GET", &path, Some(&token), None, Bytes::new());
        let waiting = tokio::spawn(world.router.clone().oneshot(request));
        // The request is let in before its token ends.
        tokio::task::yield_now().await;
        world.end(&record, by_revoking);
        let answer = timeout(Duration::from_secs(15), waiting).await;
        let answer = answer.expect("the wait ends").unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    }
}

#[tokio::test]
async fn a_claim_that_waits_gets_nothing_after_its_token_has_ended() {
    let api = Api::new().await;
    let (token, record) = create(&api.folder, "group", Role::Agent, &["default"], &SystemClock);
    let worker = api.register(&token).await;
    let mut exchange = api.wanting(1, 1);
    exchange.wait_ms = 30_000;
    let claimed = {
        let waiting = timeout(Duration::from_secs(15), api.exchange(&token, worker, exchange));
        let revoke = async { api.trust().revoke(&record.jti, &SystemClock).unwrap() };
        // The claim is polled first, and let in.
        tokio::join!(biased; waiting, revoke).0.expect("the wait ends")
    };
    assert!(read(&claimed).exchanged.lease.is_none());
    let late = api.exchange(&token, worker, api.wanting(2, 1)).await;
    assert_eq!(late.status, StatusCode::UNAUTHORIZED);
}
