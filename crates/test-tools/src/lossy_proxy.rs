//! A network that drops, delays and repeats requests, drawn from a seed.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use gristmill_model::{Rng, SplitMix64};

/// What befalls one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It arrives and is answered.
    Fine,
    /// It is lost on its way.
    Lost,
    /// It arrives, and its answer is lost.
    AnswerLost,
    /// It arrives twice, and the second answer comes back.
    Twice,
    /// It arrives, and again a while later, when nobody waits for an answer.
    AgainLater,
    /// It arrives late.
    Late,
}

#[derive(Clone)]
struct Proxy {
    client: reqwest::Client,
    targets: Arc<[SocketAddr]>,
    rng: Arc<Mutex<SplitMix64>>,
}

/// A client that speaks to servers.
pub fn client() -> reqwest::Client {
    // An error says that the process has a provider already, which does as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// Starts a proxy to servers, one of which gets each request, and returns its URL.
pub async fn lossy_proxy(targets: &[SocketAddr], seed: u64) -> String {
    let proxy = Proxy {
        client: client(),
        targets: targets.into(),
        rng: Arc::new(Mutex::new(SplitMix64::new(seed))),
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(pass).with_state(proxy);
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

impl Proxy {
    fn below(&self, bound: u64) -> u64 {
        self.rng.lock().unwrap().below(bound)
    }

    fn fate(&self) -> Fate {
        match self.below(100) {
            0..8 => Fate::Lost,
            8..18 => Fate::AnswerLost,
            18..26 => Fate::Twice,
            26..34 => Fate::AgainLater,
            34..44 => Fate::Late,
            _ => Fate::Fine,
        }
    }

    /// One of the servers. What is repeated comes to the same one again, as on a connection; what is sent again may come
    /// to another.
    fn target(&self) -> SocketAddr {
        self.targets[self.below(self.targets.len() as u64) as usize]
    }
}

/// Sends a request on to a server. Nothing where no answer came.
pub async fn forward(
    client: &reqwest::Client,
    target: SocketAddr,
    parts: &axum::http::request::Parts,
    body: Bytes,
) -> Option<Response> {
    let url = format!("http://{target}{}", parts.uri);
    let mut headers = parts.headers.clone();
    headers.remove("host");
    headers.remove("content-length");
    let sent = client
        .request(parts.method.clone(), url)
        .headers(headers)
        .body(body)
        .send()
        .await
        .ok()?;
    let (status, headers) = (sent.status(), sent.headers().clone());
    let mut answer = Response::new(Body::from(sent.bytes().await.ok()?));
    *answer.status_mut() = status;
    for name in ["content-type", "content-encoding"] {
        if let Some(value) = headers.get(name) {
            answer.headers_mut().insert(name, value.clone());
        }
    }
    Some(answer)
}

/// A connection that ends in the middle of its answer.
pub fn lost() -> Response {
    let broken = futures::stream::once(async { Err::<Bytes, _>(std::io::Error::other("lost")) });
    Body::from_stream(broken).into_response()
}

async fn pass(State(proxy): State<Proxy>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        return lost();
    };
    let (fate, target) = (proxy.fate(), proxy.target());
    let later = Duration::from_millis(proxy.below(200));
    match fate {
        Fate::Lost => return lost(),
        Fate::Late => tokio::time::sleep(later).await,
        Fate::Twice => {
            forward(&proxy.client, target, &parts, body.clone()).await;
        }
        Fate::AgainLater => {
            let (proxy, parts, body) = (proxy.clone(), parts.clone(), body.clone());
            tokio::spawn(async move {
                tokio::time::sleep(later).await;
                forward(&proxy.client, target, &parts, body).await;
            });
        }
        Fate::Fine | Fate::AnswerLost => {}
    }
    let answer = forward(&proxy.client, target, &parts, body).await;
    answer.filter(|_| fate != Fate::AnswerLost).unwrap_or_else(lost)
}
