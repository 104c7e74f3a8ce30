//! The connections of a server. Their number is bounded, in all and by address, and so is the time that they wait for a
//! request.
//!
//! A connection waits while it has no request under way: it is new, sends a head byte by byte, or is kept for a next request.
//! If there are too many, a new connection replaces the one that has waited longest. Half-sent heads and silent
//! connections therefore cost no other client a request, even before a token is checked, behind TLS and with HTTP/2. A
//! connection with a request under way is never closed for another.

use std::collections::{BTreeMap, HashMap};
use std::future::{Future, Ready, ready};
use std::io::{Error, ErrorKind, IoSlice, Result as IoResult};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready as polled};
use std::time::Duration;

use axum::BoxError;
use axum::body::Body;
use axum::response::Response;
use axum_server::accept::Accept;
use futures::future::BoxFuture;
use futures::task::AtomicWaker;
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tower::Service;

use crate::limits::{
    ANSWER_STALLS_MAX, CONNECTION_IDLE_MAX, CONNECTIONS_MAX, HEAD_WITHIN, SHARE_OF_CONNECTIONS,
};

/// The limits of a server's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The largest number of connections.
    pub all_max: usize,
    /// The largest number of connections from one address.
    pub by_address_max: usize,
    /// The time in which a new connection must send the head of its first request.
    pub head_within: Duration,
    /// The longest time that a connection may wait for its next request.
    pub idle_max: Duration,
}

impl Default for ConnectionLimits {
    /// As many connections as the process may have open files, up to a limit.
    fn default() -> Self {
        let all_max = files_max().map_or(CONNECTIONS_MAX, |files| CONNECTIONS_MAX.min(files / 4 * 3));
        ConnectionLimits {
            all_max,
            by_address_max: all_max / SHARE_OF_CONNECTIONS,
            head_within: HEAD_WITHIN,
            idle_max: CONNECTION_IDLE_MAX,
        }
    }
}

/// The number of files that the process may open, if the system tells it and sets a limit.
fn files_max() -> Option<usize> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The connections of a server.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: ConnectionLimits,
    begun: Instant,
    state: Mutex<State>,
}

/// The origin of connections that are counted together: an address, or a network of 64 bits for IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Origin(IpAddr);

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        Origin(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        })
    }
}

#[derive(Debug, Default)]
struct State {
    /// A counter that numbers connections and the times at which they begin to wait.
    last: u64,
    open: HashMap<u64, Open>,
    /// The waiting connections. The one that has waited longest is first.
    waiting: BTreeMap<u64, u64>,
    origins: HashMap<Origin, OfOrigin>,
}

#[derive(Debug, Default)]
struct OfOrigin {
    open: usize,
    waiting: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Open {
    origin: Origin,
    requests: usize,
    waits_since: Option<u64>,
    signal: Arc<Signal>,
}

/// The state that a connection shares with its stream.
#[derive(Debug, Default)]
struct Signal {
    is_closed: AtomicBool,
    /// The end of the wait, in milliseconds since the start of the server. `u64::MAX` while a request is under way.
    waits_until_ms: AtomicU64,
    waker: AtomicWaker,
}

/// One connection, open until it is dropped.
#[derive(Debug)]
struct Connection {
    connections: Arc<Connections>,
    number: u64,
    signal: Arc<Signal>,
}

impl State {
    fn begin_to_wait(&mut self, number: u64) {
        self.last += 1;
        let since = self.last;
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        let before = open.waits_since.replace(since);
        assert!(
            before.is_none() && open.requests == 0,
            "a connection that waits or has a request cannot begin to wait"
        );
        let before = self.waiting.insert(since, number);
        assert!(before.is_none(), "each wait has its own number");
        if let Some(origin) = self.origins.get_mut(&open.origin) {
            origin.waiting.insert(since, number);
        }
    }

    fn end_to_wait(&mut self, number: u64) {
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        let Some(since) = open.waits_since.take() else {
            return;
        };
        let waited = self.waiting.remove(&since);
        assert_eq!(waited, Some(number), "a wait belongs to its connection");
        if let Some(origin) = self.origins.get_mut(&open.origin) {
            let waited = origin.waiting.remove(&since);
            assert_eq!(
                waited,
                Some(number),
                "an origin lists the waits of its connections"
            );
        }
    }

    fn remove(&mut self, number: u64) -> Option<Open> {
        self.end_to_wait(number);
        let open = self.open.remove(&number)?;
        if let Some(origin) = self.origins.get_mut(&open.origin) {
            assert!(origin.open > 0, "an origin counts each of its connections");
            origin.open -= 1;
            if origin.open == 0 {
                self.origins.remove(&open.origin);
            }
        }
        Some(open)
    }

    /// Closes the connection that has waited longest.
    fn close(&mut self, longest: Option<u64>) -> bool {
        let Some(open) = longest.and_then(|number| self.remove(number)) else {
            return false;
        };
        assert_eq!(open.requests, 0, "only a connection without requests is closed");
        open.signal.is_closed.store(true, Ordering::Release);
        open.signal.waker.wake();
        true
    }

    fn has_room(&mut self, origin: Origin, limits: &ConnectionLimits) -> bool {
        let of_origin = self.origins.get(&origin);
        if of_origin.is_some_and(|of_origin| of_origin.open >= limits.by_address_max) {
            let longest = of_origin.and_then(|of_origin| of_origin.waiting.values().next().copied());
            return self.close(longest);
        }
        if self.open.len() >= limits.all_max {
            let longest = self.waiting.values().next().copied();
            return self.close(longest);
        }
        true
    }
}

impl Connections {
    /// Starts without connections.
    pub fn new(limits: ConnectionLimits) -> Arc<Connections> {
        Arc::new(Connections {
            limits,
            begun: Instant::now(),
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a connection, and closes another one if it must. Returns `None` if all others of the address, or all
    /// others of the server, have requests under way.
    fn open(self: &Arc<Self>, address: IpAddr) -> Option<Connection> {
        let origin = Origin::from(address);
        let signal = Arc::new(Signal::default());
        let mut state = self.lock();
        if !state.has_room(origin, &self.limits) {
            return None;
        }
        state.last += 1;
        let number = state.last;
        let open = Open {
            origin,
            requests: 0,
            waits_since: None,
            signal: signal.clone(),
        };
        let before = state.open.insert(number, open);
        // A panic here would end the loop that accepts connections.
        debug_assert!(before.is_none(), "each connection has its own number");
        let of_origin = state.origins.entry(origin).or_default();
        of_origin.open += 1;
        debug_assert!(
            of_origin.open <= self.limits.by_address_max,
            "{} connections of one address exceed the limit of {}",
            of_origin.open,
            self.limits.by_address_max
        );
        debug_assert!(
            state.open.len() <= self.limits.all_max,
            "{} connections exceed the limit of {}",
            state.open.len(),
            self.limits.all_max
        );
        state.begin_to_wait(number);
        debug_assert_eq!(
            state.origins.values().map(|origin| origin.open).sum::<usize>(),
            state.open.len(),
            "the connections of all origins add up"
        );
        drop(state);
        self.set_wait(&signal, self.limits.head_within);
        Some(Connection {
            connections: self.clone(),
            number,
            signal,
        })
    }

    fn set_wait(&self, signal: &Signal, wait: Duration) {
        let until = (self.begun.elapsed() + wait).as_millis();
        let until_ms = u64::try_from(until).unwrap_or(u64::MAX);
        signal.waits_until_ms.store(until_ms, Ordering::Release);
    }
}

impl Connection {
    fn begin_request(self: &Arc<Self>) -> UnderWay {
        self.signal.waits_until_ms.store(u64::MAX, Ordering::Release);
        let mut state = self.connections.lock();
        state.end_to_wait(self.number);
        if let Some(open) = state.open.get_mut(&self.number) {
            open.requests += 1;
        }
        UnderWay(self.clone())
    }

    fn end_request(&self) {
        let mut state = self.connections.lock();
        let Some(open) = state.open.get_mut(&self.number) else {
            return;
        };
        assert!(open.requests > 0, "only a request that began can end");
        open.requests -= 1;
        if open.requests == 0 {
            state.begin_to_wait(self.number);
            let idle_max = self.connections.limits.idle_max;
            self.connections.set_wait(&self.signal, idle_max);
        }
    }

    /// The time at which the connection has waited too long. `None` while a request is under way.
    fn waits_until(&self) -> Option<Instant> {
        match self.signal.waits_until_ms.load(Ordering::Acquire) {
            u64::MAX => None,
            until_ms => Some(self.connections.begun + Duration::from_millis(until_ms)),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.lock().remove(self.number);
    }
}

/// A request, until its answer is written or dropped.
struct UnderWay(Arc<Connection>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.end_request();
    }
}

/// Opens each connection in the order in which the server accepts it, before a task of its own takes the connection over. Tasks begin
/// in any order: if they opened connections, a burst of waiting clients could count as younger than the request behind them.
#[derive(Debug, Clone)]
pub(crate) struct Doorkeeper<M> {
    pub connections: Arc<Connections>,
    pub services: M,
}

impl<M> Service<SocketAddr> for Doorkeeper<M>
where
    M: Service<SocketAddr>,
    M::Error: Into<BoxError>,
    M::Future: Send + 'static,
{
    type Response = CountingService<M::Response>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.services.poll_ready(context).map_err(Into::into)
    }

    /// Fails if there is no room for the connection, which the server then drops.
    fn call(&mut self, client: SocketAddr) -> Self::Future {
        let Some(connection) = self.connections.open(client.ip()) else {
            return Box::pin(async { Err("too many connections".into()) });
        };
        let service = self.services.call(client);
        Box::pin(async move {
            Ok(CountingService {
                service: service.await.map_err(Into::into)?,
                connection: Arc::new(connection),
            })
        })
    }
}

/// Gives each stream the limits of its connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch;

impl<S> Accept<TcpStream, CountingService<S>> for Watch {
    type Stream = WatchedStream;
    type Service = CountingService<S>;
    type Future = Ready<IoResult<(WatchedStream, CountingService<S>)>>;

    fn accept(&self, stream: TcpStream, service: CountingService<S>) -> Self::Future {
        // Without this, the end of a streamed answer would wait for the client's acknowledgement, usually 40 ms.
        let watched = stream
            .set_nodelay(true)
            .map(|()| WatchedStream::new(stream, service.connection.clone()));
        ready(watched.map(|watched| (watched, service)))
    }
}

/// A stream that ends when its connection is closed, has waited too long, or has an answer that the client does not read.
#[derive(Debug)]
pub(crate) struct WatchedStream {
    stream: TcpStream,
    connection: Arc<Connection>,
    /// Fires at the earliest time at which the wait can be over, and is then set again.
    wait: Pin<Box<Sleep>>,
    stall: Option<Pin<Box<Sleep>>>,
}

impl WatchedStream {
    fn new(stream: TcpStream, connection: Arc<Connection>) -> Self {
        let until = connection.waits_until().unwrap_or_else(Instant::now);
        WatchedStream {
            stream,
            connection,
            wait: Box::pin(sleep_until(until)),
            stall: None,
        }
    }

    fn check_open(&self) -> IoResult<()> {
        if self.connection.signal.is_closed.load(Ordering::Acquire) {
            Err(Error::new(
                ErrorKind::ConnectionAborted,
                "closed for another connection",
            ))
        } else {
            Ok(())
        }
    }

    fn check_wait(&mut self, context: &mut Context<'_>) -> IoResult<()> {
        self.connection.signal.waker.register(context.waker());
        self.check_open()?;
        while self.wait.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            let until = self.connection.waits_until();
            if until.is_some_and(|until| until <= now) {
                return Err(Error::new(ErrorKind::TimedOut, "no request came in time"));
            }
            let idle_max = self.connection.connections.limits.idle_max;
            self.wait.as_mut().reset(until.unwrap_or(now + idle_max));
        }
        Ok(())
    }

    /// Notes whether a write makes progress, and ends the connection if it does not.
    fn watch_write<T>(&mut self, context: &mut Context<'_>, written: Poll<IoResult<T>>) -> Poll<IoResult<T>> {
        if written.is_ready() {
            self.stall = None;
            return written;
        }
        let stall = self
            .stall
            .get_or_insert_with(|| Box::pin(sleep(ANSWER_STALLS_MAX)));
        polled!(stall.as_mut().poll(context));
        Poll::Ready(Err(Error::new(
            ErrorKind::TimedOut,
            "the client does not read its answer",
        )))
    }
}

impl AsyncRead for WatchedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<IoResult<()>> {
        let watched = self.get_mut();
        watched.check_wait(context)?;
        Pin::new(&mut watched.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<IoResult<usize>> {
        let watched = self.get_mut();
        watched.check_open()?;
        let written = Pin::new(&mut watched.stream).poll_write(context, bytes);
        watched.watch_write(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<IoResult<usize>> {
        let watched = self.get_mut();
        watched.check_open()?;
        let written = Pin::new(&mut watched.stream).poll_write_vectored(context, slices);
        watched.watch_write(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// A service that counts the requests of its connection.
#[derive(Debug, Clone)]
pub(crate) struct CountingService<S> {
    service: S,
    connection: Arc<Connection>,
}

impl<S, R> Service<R> for CountingService<S>
where
    S: Service<R, Response = Response>,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let under_way = self.connection.begin_request();
        let answer = self.service.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            Ok(answer.map(|body| {
                // The body owns `under_way`: the request ends when the body is written or dropped.
                Body::new(body.map_err(move |error| {
                    let _request = &under_way;
                    error
                }))
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    fn connections(all_max: usize, by_address_max: usize) -> Arc<Connections> {
        Connections::new(ConnectionLimits {
            all_max,
            by_address_max,
            ..ConnectionLimits::default()
        })
    }

    fn open(connections: &Arc<Connections>, address: &str) -> Option<Arc<Connection>> {
        connections.open(address.parse().unwrap()).map(Arc::new)
    }

    fn is_closed(connection: &Connection) -> bool {
        connection.signal.is_closed.load(Ordering::Acquire)
    }

    #[tokio::test]
    async fn the_one_that_waits_longest_makes_room() {
        let connections = connections(3, 3);
        let opened: Vec<_> = (1..4)
            .map(|host| open(&connections, &format!("192.0.2.{host}")).unwrap())
            .collect();
        let first_request = opened[0].begin_request();
        let fourth = open(&connections, "192.0.2.4").unwrap();
        assert_eq!(
            [&opened[0], &opened[1], &opened[2]].map(|one| is_closed(one)),
            [false, true, false]
        );
        // The first connection waits again, behind the others.
        drop(first_request);
        let requests = [opened[2].begin_request(), fourth.begin_request()];
        let fifth = open(&connections, "192.0.2.5").unwrap();
        assert!(is_closed(&opened[0]));
        let fifth_request = fifth.begin_request();
        assert!(
            open(&connections, "192.0.2.6").is_none(),
            "all have requests under way"
        );
        drop((requests, fifth_request));
        assert!(open(&connections, "192.0.2.6").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_reads_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, client) = listener.accept().await.unwrap();
        let connection = open(&connections(2, 2), &client.ip().to_string()).unwrap();
        let _request = connection.begin_request();
        let mut watched = WatchedStream::new(stream, connection);
        let begun = Instant::now();
        let error = loop {
            if let Err(error) = watched.write_all(&[0; 1 << 16]).await {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(begun.elapsed() >= ANSWER_STALLS_MAX);
    }

    #[tokio::test]
    async fn connections_open_in_the_order_in_which_they_are_accepted() {
        let mut doorkeeper = Doorkeeper {
            connections: connections(2, 2),
            services: tower::service_fn(async |_client: SocketAddr| Ok::<_, BoxError>(())),
        };
        let client: SocketAddr = "192.0.2.1:1".parse().unwrap();
        let [first, second, third] = [(); 3].map(|()| doorkeeper.call(client));
        let third = third.await.unwrap();
        let second = second.await.unwrap();
        let first = first.await.unwrap();
        assert_eq!(
            [&first, &second, &third].map(|service| is_closed(&service.connection)),
            [true, false, false]
        );
        let _requests = [&second, &third].map(|service| service.connection.begin_request());
        assert!(doorkeeper.call(client).await.is_err());
    }

    #[tokio::test]
    async fn an_address_has_its_part() {
        let connections = connections(9, 2);
        let own = [
            open(&connections, "2001:db8::1"),
            open(&connections, "2001:db8::2"),
        ]
        .map(Option::unwrap);
        let other = open(&connections, "2001:db8:0:1::1").unwrap();
        let third = open(&connections, "2001:db8::3").unwrap();
        assert_eq!(
            [&own[0], &own[1], &other].map(|one| is_closed(one)),
            [true, false, false]
        );
        let requests = [own[1].begin_request(), third.begin_request()];
        assert!(open(&connections, "2001:db8::4").is_none());
        assert!(open(&connections, "192.0.2.1").is_some());
        assert_eq!(
            Origin::from("::ffff:192.0.2.1".parse::<IpAddr>().unwrap())
                .0
                .to_string(),
            "192.0.2.1"
        );
        drop((own, other, third, requests));
        let state = connections.lock();
        assert!(state.open.is_empty() && state.waiting.is_empty() && state.origins.is_empty());
    }
}
