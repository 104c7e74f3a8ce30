//! Where the database is, and how it is connected to.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Config, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::{Failure, Result};
use super::limits::CONNECT_WAIT_MAX;
use super::password_file;
use super::tls;
use crate::StoreError;

/// Seconds without a sign of the server after which a connection is tested, and between the tests.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Where the database is.
pub(super) struct Address {
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
    /// Reads a connection URL (`postgresql://user@host/database`), or settings as libpq takes them.
    pub fn parse(url: &str) -> std::result::Result<Address, StoreError> {
        let refuse = |reason: String| StoreError::Open {
            path: shown(url).into(),
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
            shown: shown(&url),
        })
    }

    /// The address without its password.
    pub fn as_str(&self) -> &str {
        &self.shown
    }

    /// A new connection.
    pub async fn connect(&self) -> Result<ClientWrapper> {
        match &self.tls {
            None => Ok(into_client(self.config.connect(NoTls).await?)),
            Some(tls) => Ok(into_client(self.config.connect(tls.clone()).await?)),
        }
    }

    /// A new connection whose notifications go to `listener`, which also ends with it.
    pub async fn connect_with<F>(&self, listener: F) -> Result<ClientWrapper>
    where
        F: FnMut() + Send + 'static,
    {
        match &self.tls {
            None => listening(&self.config, NoTls, listener).await,
            Some(tls) => listening(&self.config, tls.clone(), listener).await,
        }
    }
}

fn into_client<S>(
    (client, connection): (tokio_postgres::Client, tokio_postgres::Connection<Socket, S>),
) -> ClientWrapper
where
    S: tokio_postgres::tls::TlsStream + Unpin + Send + 'static,
{
    let driver = tokio::spawn(async move {
        // Whoever waits for an answer is told by the client.
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to PostgreSQL ended");
        }
    });
    ClientWrapper::new(client, driver)
}

async fn listening<T, F>(config: &Config, tls: T, mut listener: F) -> Result<ClientWrapper>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    F: FnMut() + Send + 'static,
{
    let (client, mut connection) = config.connect(tls).await.map_err(Failure::from)?;
    let driver = tokio::spawn(async move {
        while let Some(message) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            match message {
                Ok(tokio_postgres::AsyncMessage::Notification(_)) => listener(),
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "the connection that waits for work ended");
                    return;
                }
            }
        }
    });
    Ok(ClientWrapper::new(client, driver))
}

/// The URL without its password.
fn shown(url: &str) -> String {
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

/// For sharing between pools.
pub(super) type SharedAddress = Arc<Address>;

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
            assert_eq!(shown(url), expected);
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
