//! Detection of a connection pooler such as PgBouncer. Behind a pooler, a session may last only for a transaction.
//!
//! A server's process sends its number to each new connection, for the cancelling of queries. A pooler sends a number
//! of its own, because the connection has no fixed process. The number of the process that answers a query then
//! differs.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::{Client, Error};

/// The kind of pooler between this process and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pooler {
    /// A pooler that lends a server for a transaction: `pooler=transaction`.
    Transaction,
    /// A pooler that lends a server for a session, or no pooler: `pooler=session`.
    Session,
}

/// The words of the option `pooler`.
pub(crate) const WORDS: &[(&str, Pooler)] =
    &[("transaction", Pooler::Transaction), ("session", Pooler::Session)];

/// The code of a request for TLS, in place of a version (PostgreSQL's documentation, section "Message Formats").
const TLS_REQUEST: [u8; 4] = 80_877_103_u32.to_be_bytes();

/// Reports whether another process answers a connection than the one that was announced to it.
pub(crate) async fn stands_between(client: &Client) -> Result<bool, Error> {
    let answering: i32 = client
        .query_typed_one("SELECT pg_backend_pid()", &[])
        .await?
        .try_get(0)?;
    Ok(told(client).await.is_some_and(|told| told != answering))
}

/// The number that was announced to a connection. A request to cancel repeats it, and here the request goes to nobody else.
async fn told(client: &Client) -> Option<i32> {
    let (stream, mut other) = duplex(64);
    let token = client.cancel_token();
    let request = token.cancel_query_raw(stream, Bare);
    let number = async {
        let mut head = [0; 8];
        other.read_exact(&mut head).await.ok()?;
        if head[4..] == TLS_REQUEST {
            other.write_all(b"S").await.ok()?;
            other.read_exact(&mut head).await.ok()?;
        }
        other.read_i32().await.ok()
    };
    let (sent, number) = tokio::join!(request, number);
    sent.ok().and(number)
}

/// Stands in for TLS on a stream within this process.
struct Bare;

struct BareStream(DuplexStream);

impl TlsConnect<DuplexStream> for Bare {
    type Stream = BareStream;
    type Error = Infallible;
    type Future = Ready<Result<BareStream, Infallible>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        ready(Ok(BareStream(stream)))
    }
}

impl TlsStream for BareStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for BareStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for BareStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio_postgres::NoTls;

    use super::*;

    /// A server announces the number of the process that answers, with and without TLS.
    #[tokio::test]
    async fn a_server_is_no_pooler() {
        let url = gristmill_private_postgres::shared().create_database().unwrap();
        for mode in ["disable", "prefer"] {
            let url = format!("{url}&sslmode={mode}");
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
            tokio::spawn(connection);
            assert!(told(&client).await.is_some());
            assert!(!stands_between(&client).await.unwrap());
        }
    }
}
