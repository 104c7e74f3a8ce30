//! A network that holds the answer to the first waiting claim that gets jobs, and then loses it. It also holds reports
//! if a test asks for that.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use gristmill_protocol::{ExchangeRequest, ExchangeResponse};
use gristmill_test_tools::lossy_proxy::{client, forward, lost};
use tokio::sync::{Notify, watch};

/// The held answer.
pub struct HeldAnswer {
    target: SocketAddr,
    client: reqwest::Client,
    is_over: AtomicBool,
    /// Notified when the server has claimed jobs for the request, and the answer is held.
    pub claimed: Notify,
    /// Notify this to lose the answer.
    pub lose: Notify,
    /// While true, reports are held before they reach the server.
    pub holds_reports: watch::Sender<bool>,
    /// Notified when a report is held.
    pub reported: Notify,
    /// The number of waiting claims that have passed.
    pub waiting: watch::Sender<u32>,
}

/// Starts such a network before a server, and returns its URL.
pub async fn holding_proxy(target: SocketAddr) -> (String, Arc<HeldAnswer>) {
    let held = Arc::new(HeldAnswer {
        target,
        client: client(),
        is_over: AtomicBool::new(false),
        claimed: Notify::new(),
        lose: Notify::new(),
        holds_reports: watch::Sender::new(false),
        reported: Notify::new(),
        waiting: watch::Sender::new(0),
    });
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(pass).with_state(held.clone());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, held)
}

async fn pass(State(held): State<Arc<HeldAnswer>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let exchange = ExchangeRequest::decode(&body).ok();
    let waits = exchange.as_ref().is_some_and(|exchange| exchange.wait_ms > 0);
    if waits {
        held.waiting.send_modify(|waiting| *waiting += 1);
    }
    if exchange.is_some_and(|exchange| !exchange.reports.is_empty()) {
        let mut holds = held.holds_reports.subscribe();
        held.reported.notify_one();
        holds.wait_for(|holds| !*holds).await.unwrap();
    }
    let Some(answer) = forward(&held.client, held.target, &parts, body).await else {
        return lost();
    };
    if !waits || held.is_over.load(Ordering::Relaxed) {
        return answer;
    }
    let (head, body) = answer.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let has_claimed =
        ExchangeResponse::decode(&body).is_ok_and(|response| response.exchanged.lease.is_some());
    if has_claimed {
        held.is_over.store(true, Ordering::Relaxed);
        held.claimed.notify_one();
        held.lose.notified().await;
        return lost();
    }
    Response::from_parts(head, body.into())
}
