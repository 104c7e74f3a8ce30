//! The network: it delays, loses, repeats and cuts off the messages between nodes.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Response, header};
use futures::stream;
use http_body_util::{BodyExt, Limited};
use tokio::net::UnixListener;
use tokio::task::AbortHandle;

use crate::limits::{DELAY_MS_MAX, MESSAGE_BYTES_MAX, MESSAGE_FAULTS_PERMILLE, SLOW_DELAY_MS_MAX};
use crate::links::Answer;
use crate::world::World;

/// The reason a request got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// No answer ever arrives.
    Silent,
    /// The connection breaks.
    Broken,
}

/// Aborts a request when its connection breaks on the server's side.
struct EndOnDrop(AbortHandle);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The way in which the sender notices a lost message.
fn lost(world: &World) -> Lost {
    if world.happens(500) {
        Lost::Silent
    } else {
        Lost::Broken
    }
}

/// Draws whether a message is lost.
fn is_lost(world: &World) -> bool {
    !world.network.is_sound() && world.happens(MESSAGE_FAULTS_PERMILLE)
}

async fn travel(world: &World, node: &str) {
    let most_ms = if world.network.is_slow(node) {
        SLOW_DELAY_MS_MAX
    } else {
        DELAY_MS_MAX
    };
    tokio::time::sleep(world.draw_time(most_ms)).await;
}

/// A copy of a request with its whole body.
fn copy(request: &axum::http::Request<Bytes>) -> Request {
    let mut copy = Request::new(Body::from(request.body().clone()));
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy
}

/// Carries a request from a node to a server, and the answer back.
pub async fn deliver(
    world: &World,
    node: &str,
    server: usize,
    request: axum::http::Request<Bytes>,
) -> Result<Answer, Lost> {
    let what = format!(
        "{node} -> {server}: {} {}",
        request.method(),
        request.uri().path()
    );
    travel(world, node).await;
    if world.network.is_cut(node, server) || is_lost(world) {
        world.note(format_args!("{what} lost"));
        return Err(lost(world));
    }
    let Some(listening) = world.network.server(server) else {
        world.note(format_args!("{what} refused"));
        return Err(Lost::Broken);
    };
    if is_lost(world) {
        world.note(format_args!("{what} arrives twice"));
        // The sender never sees the first answer.
        drop(listening.take(copy(&request)));
        travel(world, node).await;
    }
    let (handle, answer) = listening.take(copy(&request));
    // A server may not notice that nobody waits for its answer.
    let _ended = world.happens(500).then(|| EndOnDrop(handle));
    let Ok(answer) = answer.await else {
        world.note(format_args!("{what} unanswered"));
        return Err(lost(world));
    };
    travel(world, node).await;
    if world.network.is_cut(node, server) || is_lost(world) {
        world.note(format_args!("{what} {} lost", answer.status().as_u16()));
        return Err(lost(world));
    }
    world.note(format_args!("{what} {}", answer.status().as_u16()));
    Ok(answer)
}

/// The connection of one node to the network.
#[derive(Clone)]
struct Link {
    world: Arc<World>,
    node: Arc<str>,
}

/// Carries the requests of a node from its socket, until the task is aborted. The port in the header `Host` is the
/// number of the server.
pub async fn carry_for(world: Arc<World>, node: Arc<str>, listener: UnixListener) {
    let link = Link { world, node };
    let router = Router::new().fallback(carry).with_state(link);
    let _ = axum::serve(listener, router).await;
}

async fn carry(State(link): State<Link>, request: Request) -> axum::response::Response {
    let host = request.headers().get(header::HOST);
    let port = host.and_then(|host| host.to_str().ok()?.rsplit_once(':')?.1.parse().ok());
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, MESSAGE_BYTES_MAX).collect().await;
    let (Some(server), Ok(body)) = (port, body) else {
        return broken();
    };
    let request = axum::http::Request::from_parts(parts, body.to_bytes());
    match deliver(&link.world, &link.node, server, request).await {
        Ok(answer) => answer.map(Body::from),
        Err(Lost::Silent) => std::future::pending().await,
        Err(Lost::Broken) => broken(),
    }
}

/// An answer whose connection breaks.
fn broken() -> axum::response::Response {
    let error = io::Error::from(io::ErrorKind::ConnectionReset);
    Response::new(Body::from_stream(stream::iter([Err::<Bytes, io::Error>(error)])))
}
