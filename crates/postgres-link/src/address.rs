//! Where the database is, and how it is connected to.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Connect};
use futures::FutureExt;
use futures::future::BoxFuture;
use gristmill_store::StoreError;
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::limits::CONNECT_WAIT_MAX;
use crate::{password_file, tls};

/// Seconds without a sign of the server after which a connection is tested, and between the tests.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// How long what was sent may go without the other machine's acknowledgement: it was cut off then. (Without this, the
/// system goes on to send it for a quarter of an hour.)
const UNANSWERED_MAX: Duration = Duration::from_secs(20);

/// Where a PostgreSQL database is: a connection URL with the meaning that libpq gives it, TLS included, and with the
/// password from `PGPASSWORD` or `~/.pgpass` where it tells none. Makes connections, for pools too.
#[derive(Clone)]
pub struct Address {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    /// The URL without its password.
    shown: String,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Address").field(&self.shown).finish()
    }
}

impl Address {
    /// Reads a connection URL (`postgresql://user@host/database?sslmode=verify-full`), or settings as libpq takes them.
    ///
    /// # Errors
    ///
    /// [`StoreError::Open`] with the reason.
    pub fn parse(url: &str) -> Result<Address, StoreError> {
        let refuse = |reason: String| StoreError::Open {
            path: without_password(url).into(),
            reason,
        };
        let (url, verification) = tls::split(url).map_err(refuse)?;
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            refuse(format!(
                "{error}{}; write postgresql://user@host/database",
                source.unwrap_or_default()
            ))
        })?;
        if config.get_hosts().is_empty() {
            config.host("localhost");
        }
        if config.get_user().is_none() {
            config.user(std::env::var("USER").unwrap_or_else(|_| "postgres".to_owned()));
        }
        if config.get_password().is_none() {
            let password = std::env::var("PGPASSWORD").ok();
            if let Some(password) = password.or_else(|| password_file::password(&config)) {
                config.password(password);
            }
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_WAIT_MAX);
        }
        // Of several servers, the one that can be written to: after a failover, that is another one.
        if config.get_hosts().len() > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        config.keepalives_idle(KEEPALIVE).keepalives_interval(KEEPALIVE);
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(UNANSWERED_MAX);
        }
        let local = config
            .get_hosts()
            .iter()
            .all(|host| matches!(host, Host::Unix(_)));
        let tls = match (local, config.get_ssl_mode()) {
            (true, _) | (_, SslMode::Disable) => None,
            _ => Some(tls::connector(&verification).map_err(refuse)?),
        };
        Ok(Address {
            config,
            tls,
            shown: without_password(&url),
        })
    }

    /// The address without its password.
    pub fn as_str(&self) -> &str {
        &self.shown
    }

    /// A new connection.
    ///
    /// # Errors
    ///
    /// Those of the driver.
    pub async fn connect(&self) -> Result<ClientWrapper, tokio_postgres::Error> {
        self.connect_beside(std::future::pending()).await
    }

    /// A new connection, whose task does something `beside`, and closes the connection when that ends.
    ///
    /// # Errors
    ///
    /// Those of the driver.
    pub async fn connect_beside<F>(&self, beside: F) -> Result<ClientWrapper, tokio_postgres::Error>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (client, driver) = self.open(beside).await?;
        Ok(ClientWrapper::new(client, driver))
    }

    async fn open<F>(&self, beside: F) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        match &self.tls {
            None => Ok(driven(self.config.connect(NoTls).await?, beside)),
            Some(tls) => Ok(driven(self.config.connect(tls.clone()).await?, beside)),
        }
    }

    /// A new connection that passes the payload of each notification to `listener`, which also ends with it.
    ///
    /// # Errors
    ///
    /// Those of the driver.
    pub async fn connect_with<F>(&self, listener: F) -> Result<ClientWrapper, tokio_postgres::Error>
    where
        F: FnMut(&str) + Send + 'static,
    {
        match &self.tls {
            None => listening(&self.config, NoTls, listener).await,
            Some(tls) => listening(&self.config, tls.clone(), listener).await,
        }
    }
}

/// For pools of [`deadpool_postgres`]; what they know of the address is not asked.
impl Connect for Address {
    fn connect(&self, _: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), tokio_postgres::Error>> {
        self.open(std::future::pending()).boxed()
    }
}

fn driven<S, F>(
    (client, connection): (Client, tokio_postgres::Connection<Socket, S>),
    beside: F,
) -> (Client, JoinHandle<()>)
where
    S: tokio_postgres::tls::TlsStream + Unpin + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let driver = tokio::spawn(async move {
        let mut beside = std::pin::pin!(beside);
        tokio::select! {
            // Answers are handed over before they are taken in.
            biased;
            ended = connection => {
                // The client tells the callers that wait for answers.
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection to PostgreSQL ended");
                }
                // Answers that came with the end are taken in.
                beside.await;
            }
            () = &mut beside => {}
        }
    });
    (client, driver)
}

async fn listening<T, F>(
    config: &Config,
    tls: T,
    mut listener: F,
) -> Result<ClientWrapper, tokio_postgres::Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    F: FnMut(&str) + Send + 'static,
{
    let (client, mut connection) = config.connect(tls).await?;
    let driver = tokio::spawn(async move {
        while let Some(message) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            match message {
                Ok(tokio_postgres::AsyncMessage::Notification(notification)) => {
                    listener(notification.payload());
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "a connection that waits for notifications ended");
                    return;
                }
            }
        }
    });
    Ok(ClientWrapper::new(client, driver))
}

/// A connection URL as it may be shown.
pub fn without_password(url: &str) -> String {
    let hidden = |part: &str| {
        let name = part.split('=').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("password")
    };
    let Some((scheme, rest)) = url.split_once("://") else {
        let parts = url.split_whitespace().filter(|part| !hidden(part));
        return parts.collect::<Vec<_>>().join(" ");
    };
    let (rest, query) = rest
        .split_once('?')
        .map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let rest = match rest.rsplit_once('@') {
        Some((user, place)) => format!("{}@{place}", user.split(':').next().unwrap_or_default()),
        None => rest.to_owned(),
    };
    let query: Vec<&str> = query
        .unwrap_or_default()
        .split('&')
        .filter(|part| !part.is_empty() && !hidden(part))
        .collect();
    match query.is_empty() {
        true => format!("{scheme}://{rest}"),
        false => format!("{scheme}://{rest}?{}", query.join("&")),
    }
}

/// An address that several pools and listeners share.
pub type SharedAddress = Arc<Address>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (url, expected) in [
            (
                "postgresql://me:secret@there:5432/work",
                "postgresql://me@there:5432/work",
            ),
            (
                "postgres:///work?user=me&host=/run&password=secret",
                "postgres:///work?user=me&host=/run",
            ),
            (
                "postgresql://there/work?password=secret",
                "postgresql://there/work",
            ),
            ("host=there user=me password=secret", "host=there user=me"),
        ] {
            assert_eq!(without_password(url), expected);
        }
    }

    #[test]
    fn a_wrong_url_is_named_without_its_password() {
        let error = Address::parse("postgresql://me:secret@there:port/work").unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("postgresql://me@there:port/work") && !text.contains("secret"),
            "{text}"
        );
    }
}
