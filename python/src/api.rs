//! The operations of the HTTP API in this process: those that a server would offer, without a server.

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Request, header};
use gristmill_engine::Engine;
use gristmill_server::rate::RateLimiter;
use gristmill_server::rules::BASE;
use gristmill_server::serve::routes;
use gristmill_server::trust::Trust;
use tower::ServiceExt;

use crate::limits::ANSWER_BYTES_MAX;

/// The operations on an engine. Nothing limits how often this process may ask itself.
pub fn operations(engine: &Engine) -> Result<Router, String> {
    let rate = RateLimiter::new(engine.clock().clone(), u32::MAX, u32::MAX);
    let routes = routes(engine.clone(), Trust::Loopback, rate);
    routes
        .map(|(_, router)| router)
        .map_err(|error| error.to_string())
}

/// Carries out one operation: its status and body. `target` is a path below the API's, with its query.
pub async fn carry_out(
    operations: Router,
    method: String,
    target: String,
    body: Option<Vec<u8>>,
) -> Result<(u16, Bytes), String> {
    let request = Request::builder()
        .method(method.as_str())
        .uri(format!("{BASE}{target}"))
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json")
        .body(body.map_or_else(Body::empty, Body::from))
        .map_err(|error| format!("{method} {target} is no request: {error}"))?;
    let response = match operations.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let status = response.status().as_u16();
    let bytes = to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
    bytes
        .map(|bytes| (status, bytes))
        .map_err(|error| format!("the answer to {method} {target} cannot be read: {error}"))
}
