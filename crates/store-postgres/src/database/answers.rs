//! The answers of one connection: the task that drives the connection takes each answer as it comes, whoever awaits it.
//!
//! The driver of the protocol delivers answers in the order of the requests, and stops if one is not taken. So an
//! answer that waited for its caller would block all later ones, even one that this caller awaits first.
//!
//! A connection that gives no sign for a while may wait for a long statement, or may have lost the server. Another
//! connection asks the server whether it works for the silent one. If it does not, or does not answer, the connection
//! is closed, and its operations are looked up and retried, as after any lost connection. The server ends a statement
//! after a limit (`statement_timeout`), so a connection that is silent for longer is closed in any case.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use gristmill_postgres_link::SharedAddress;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_postgres::types::{ToSql, Type};

use crate::database::handle_cache::lock;
use crate::failure::{Failure, Result};
use crate::limits::{ASKING_MAX, LINK_BYTES_PER_S_MIN};

/// An answer that has come or will come.
#[derive(Debug)]
pub(crate) struct Pending<T>(oneshot::Receiver<Result<T>>);

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let answer = std::task::ready!(self.0.poll_unpin(context));
        Poll::Ready(answer.unwrap_or_else(|_| Err(Failure::Disconnected(CLOSED.to_owned()))))
    }
}

const CLOSED: &str = "the connection was closed before its answer came";

/// The side of a connection that asks.
#[derive(Debug)]
pub(crate) struct Answers {
    under_way: mpsc::UnboundedSender<BoxFuture<'static, ()>>,
    pub silence: Arc<Silence>,
}

/// The side of a connection that takes the answers. It runs beside the driver of the protocol, and ends the connection
/// when it ends.
pub(crate) struct Taker {
    sent: mpsc::UnboundedReceiver<BoxFuture<'static, ()>>,
    silence: Arc<Silence>,
}

/// Makes both sides of a connection to this server.
pub(crate) fn answers(address: SharedAddress, patience: SilencePatience) -> (Answers, Taker) {
    let (under_way, sent) = mpsc::unbounded_channel();
    let silence = Arc::new(Silence::new(address, patience));
    let answers = Answers {
        under_way,
        silence: silence.clone(),
    };
    (answers, Taker { sent, silence })
}

impl Answers {
    /// Sends a request: polls it once, which sends it, and leaves the rest to the other side.
    pub fn send<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Pending<T> {
        let (sender, receiver) = oneshot::channel();
        let mut answer = async move {
            // A caller that no longer awaits the answer does not need it.
            let _ = sender.send(request.await);
        }
        .boxed();
        if (&mut answer).now_or_never().is_none() {
            // If the connection is closed, this drops the sender, and the answer fails.
            let _ = self.under_way.send(answer);
        }
        Pending(receiver)
    }
}

impl Taker {
    /// Takes answers until the connection is dropped, or silent for too long.
    pub async fn run(mut self) {
        let mut answers = FuturesUnordered::new();
        let silence = self.silence.clone();
        let mut silent = std::pin::pin!(silence.is_too_long());
        loop {
            tokio::select! {
                biased;
                sent = self.sent.recv() => match sent {
                    Some(answer) => answers.push(answer),
                    None => return,
                },
                Some(()) = answers.next(), if !answers.is_empty() => {}
                () = &mut silent => return,
            }
        }
    }
}

/// How long a connection that owes answers may give no sign.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SilencePatience {
    /// The time before the server is asked whether it works for the connection.
    pub unasked: Duration,
    /// The limit in any case.
    pub max: Duration,
}

/// How long a connection that owes answers has given no sign.
#[derive(Debug)]
pub(crate) struct Silence {
    address: SharedAddress,
    patience: SilencePatience,
    /// Empty until the connection is made.
    worked_for_by: OnceLock<Backend>,
    wait: Mutex<Wait>,
    closed: AtomicBool,
}

/// The server's process that works for a connection.
#[derive(Debug)]
pub(crate) enum Backend {
    /// The process of this number.
    Process(i32),
    /// Behind a pooler: for the time of a transaction, the process whose name begins with this text.
    Named(String),
}

/// Reports whether the process is working, and waits neither for a request nor for an answer to be taken.
const AT_WORK: &str = "SELECT EXISTS (SELECT FROM pg_stat_activity \
     WHERE (pid = $1 OR starts_with(application_name, $2)) AND state = 'active' \
     AND wait_event_type IS DISTINCT FROM 'Client')";

#[derive(Debug)]
struct Wait {
    requests: usize,
    /// The last sign, or the first request after a time without requests.
    since: Instant,
    /// The time in which a slow link carries the bytes of the requests.
    sending: Duration,
}

/// A request whose answer has not come yet.
#[derive(Debug)]
pub(crate) struct Awaited<'a> {
    silence: &'a Silence,
    sending_ms: AtomicU64,
}

impl Silence {
    fn new(address: SharedAddress, patience: SilencePatience) -> Self {
        Silence {
            address,
            patience,
            worked_for_by: OnceLock::new(),
            wait: Mutex::new(Wait {
                requests: 0,
                since: Instant::now(),
                sending: Duration::ZERO,
            }),
            closed: AtomicBool::new(false),
        }
    }

    /// Stores which process of the server answers. Only the first call counts.
    pub fn is_worked_for_by(&self, backend: Backend) {
        let _ = self.worked_for_by.set(backend);
    }

    /// Begins to wait for an answer.
    pub fn begin(&self) -> Awaited<'_> {
        let mut wait = self.wait();
        if wait.requests == 0 {
            wait.since = Instant::now();
        }
        wait.requests += 1;
        Awaited {
            silence: self,
            sending_ms: AtomicU64::new(0),
        }
    }

    /// The reason, if the connection was closed because of its silence.
    pub fn reason(&self) -> Option<String> {
        self.closed.load(Ordering::Acquire).then(|| {
            format!(
                "the connection gave no answer for {} ms, and the server is not at work for it: a proxy, a pooler or the \
                 network between holds it up",
                self.patience.unasked.as_millis()
            )
        })
    }

    /// Resolves when an answer is awaited, no sign has come for too long, and the server does not work for the connection.
    async fn is_too_long(&self) {
        let mut asked: Option<(Instant, Instant)> = None;
        loop {
            let (requests, since, sending) = {
                let wait = self.wait();
                (wait.requests, wait.since, wait.sending)
            };
            // When the server was asked, if that was after the last sign.
            let asked_at = asked.filter(|(sign, _)| *sign == since).map(|(_, at)| at);
            let deadline = asked_at.unwrap_or(since) + self.patience.unasked + sending;
            if requests == 0 {
                tokio::time::sleep(self.patience.unasked).await;
            } else if Instant::now() < deadline {
                tokio::time::sleep_until(deadline).await;
            } else if since.elapsed() < self.patience.max + sending && self.is_at_work().await {
                asked = Some((since, Instant::now()));
            } else if self.wait().since == since {
                self.closed.store(true, Ordering::Release);
                return;
            }
        }
    }

    /// Asks the server over another connection whether it works for this one.
    async fn is_at_work(&self) -> bool {
        let (process, name) = match self.worked_for_by.get() {
            Some(Backend::Process(process)) => (Some(*process), None),
            Some(Backend::Named(name)) => (None, Some(name.as_str())),
            None => return false,
        };
        let asked = async {
            let client = self.address.connect().await?;
            let params: [(&(dyn ToSql + Sync), Type); 2] = [(&process, Type::INT4), (&name, Type::TEXT)];
            client.query_typed_one(AT_WORK, &params).await?.try_get(0)
        };
        // Boxed: it is large, is rarely needed, and would lie within the task of each connection.
        let answer = tokio::time::timeout(ASKING_MAX.min(self.patience.max), asked.boxed()).await;
        matches!(answer, Ok(Ok(true)))
    }

    fn wait(&self) -> MutexGuard<'_, Wait> {
        lock(&self.wait)
    }
}

impl Awaited<'_> {
    /// Allows for the time in which a slow link carries this many bytes.
    pub fn sends(&self, bytes: usize) {
        let sending_ms = bytes as u64 * 1_000 / LINK_BYTES_PER_S_MIN;
        if sending_ms > 0 {
            self.sending_ms.fetch_add(sending_ms, Ordering::Relaxed);
            self.silence.wait().sending += Duration::from_millis(sending_ms);
        }
    }

    /// Records that a row has come.
    pub fn is_coming(&self) {
        self.silence.wait().since = Instant::now();
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let mut wait = self.silence.wait();
        wait.requests -= 1;
        let sending = Duration::from_millis(*self.sending_ms.get_mut());
        wait.sending = wait.sending.saturating_sub(sending);
        wait.since = Instant::now();
    }
}
