//! A link to a server that behaves as bad networks, proxies and poolers do: it cuts what passes into pieces, holds it up, and
//! goes silent, which means that it takes bytes and passes nothing on, with its connections open.

use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gristmill_model::{Rng as _, SplitMix64};

use crate::PostgresError;

/// Bytes that the link takes at once.
const BUFFER_BYTES: usize = 64 << 10;

/// A link to one server, on a port of this machine. Dropped, it closes its connections.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    user: String,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    socket: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    rng: SplitMix64,
    /// How the server's answers are cut, and for how long the link rests after each piece.
    pieces: Option<(RangeInclusive<usize>, Duration)>,
    connections: Vec<Connection>,
    /// Whether new connections are silent too.
    is_silent: bool,
    closed: bool,
}

#[derive(Debug)]
struct Connection {
    client: TcpStream,
    server: UnixStream,
    silence: Option<Silence>,
}

/// What does not pass any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// Nothing does.
    Both,
    /// Requests pass, and their answers do not.
    Answers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Answers,
}

impl Proxy {
    pub(crate) fn start(socket: PathBuf, user: String, seed: u64) -> Result<Proxy, PostgresError> {
        let failed =
            |error: std::io::Error| PostgresError::Missing(format!("no proxy can be started: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let shared = Arc::new(Shared {
            socket,
            state: Mutex::new(State {
                rng: SplitMix64::new(seed),
                pieces: None,
                connections: Vec::new(),
                is_silent: false,
                closed: false,
            }),
            changed: Condvar::new(),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.state().closed {
                    return;
                }
                // A client that cannot be served sees its connection closed.
                if let Ok(client) = client {
                    let _ = accepting.connect(client);
                }
            }
        });
        Ok(Proxy { port, user, shared })
    }

    /// The connection URL of a database by this link.
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgresql://{}@127.0.0.1:{}/{database}?sslmode=disable",
            self.user, self.port
        )
    }

    /// Cuts the server's answers into pieces of so many bytes, and rests after each.
    pub fn split(&self, bytes: RangeInclusive<usize>, rest: Duration) {
        self.shared.state().pieces = Some((bytes, rest));
    }

    /// Lets the connections of this moment go silent for good. Later ones pass everything.
    pub fn silence_connections(&self, silence: Silence) {
        for connection in &mut self.shared.state().connections {
            connection.silence = Some(silence);
        }
    }

    /// Lets all connections go silent, and new ones until [`speak`](Proxy::speak).
    pub fn silence(&self) {
        self.shared.state().is_silent = true;
        self.silence_connections(Silence::Both);
    }

    /// Lets new connections pass everything again. Those that went silent stay so.
    pub fn speak(&self) {
        self.shared.state().is_silent = false;
    }

    /// How many connections were made by this link.
    pub fn connections(&self) -> usize {
        self.shared.state().connections.len()
    }

    /// Waits until there were more connections than so many.
    pub fn wait_for_connection(&self, after: usize) {
        let state = self.shared.state();
        let made = self
            .shared
            .changed
            .wait_while(state, |state| state.connections.len() <= after);
        drop(made.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.closed = true;
        for connection in &state.connections {
            // It may have been closed by then.
            let _ = connection.client.shutdown(Shutdown::Both);
            let _ = connection.server.shutdown(Shutdown::Both);
        }
        drop(state);
        self.shared.changed.notify_all();
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(self: &Arc<Self>, client: TcpStream) -> std::io::Result<()> {
        let server = UnixStream::connect(&self.socket)?;
        client.set_nodelay(true)?;
        let (client_reader, server_reader) = (client.try_clone()?, server.try_clone()?);
        let (client_writer, server_writer) = (client.try_clone()?, server.try_clone()?);
        let number = {
            let mut state = self.state();
            let silence = state.is_silent.then_some(Silence::Both);
            state.connections.push(Connection {
                client,
                server,
                silence,
            });
            state.connections.len() - 1
        };
        self.changed.notify_all();
        let (requests, answers) = (self.clone(), self.clone());
        std::thread::spawn(move || requests.pass(number, Direction::Requests, client_reader, server_writer));
        std::thread::spawn(move || answers.pass(number, Direction::Answers, server_reader, client_writer));
        Ok(())
    }

    /// Passes bytes on until one side closes its connection.
    fn pass(
        &self,
        number: usize,
        direction: Direction,
        mut from: impl std::io::Read,
        mut to: impl std::io::Write,
    ) {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Ok(count) = from.read(&mut buffer)
            && count > 0
            && self.write(number, direction, &buffer[..count], &mut to).is_ok()
        {}
        let state = self.state();
        let connection = &state.connections[number];
        // What one side closes, the other sees as closed, unless the link is silent.
        if connection.silence.is_none() {
            let _ = connection.client.shutdown(Shutdown::Both);
            let _ = connection.server.shutdown(Shutdown::Both);
        }
    }

    fn write(
        &self,
        number: usize,
        direction: Direction,
        mut bytes: &[u8],
        to: &mut impl std::io::Write,
    ) -> std::io::Result<()> {
        while !bytes.is_empty() {
            let mut state = self.state();
            match (state.connections[number].silence, direction) {
                (Some(Silence::Both), _) | (Some(Silence::Answers), Direction::Answers) => return Ok(()),
                (Some(Silence::Answers), Direction::Requests) | (None, _) => {}
            }
            let pieces = state.pieces.clone().filter(|_| direction == Direction::Answers);
            let (piece, rest) = match pieces {
                Some((sizes, rest)) => {
                    let more = state.rng.below((sizes.end() - sizes.start()) as u64 + 1);
                    (bytes.len().min(sizes.start() + more as usize), rest)
                }
                None => (bytes.len(), Duration::ZERO),
            };
            drop(state);
            let (head, tail) = bytes.split_at(piece);
            to.write_all(head)?;
            bytes = tail;
            if !rest.is_zero() {
                self.rest(rest);
            }
        }
        Ok(())
    }

    /// Waits for so long, or for the end of the link.
    fn rest(&self, rest: Duration) {
        let state = self.state();
        let rested = self
            .changed
            .wait_timeout_while(state, rest, |state| !state.closed);
        drop(rested.unwrap_or_else(PoisonError::into_inner));
    }
}
