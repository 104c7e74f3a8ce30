//! The address of a database, and connections to it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Connect};
use futures::FutureExt;
use futures::future::BoxFuture;
use gristmill_store::StoreError;
use tokio::task::JoinHandle;
use tokio_postgres::config::{
    ChannelBinding, Host, LoadBalanceHosts, SslMode, SslNegotiation, TargetSessionAttrs,
};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::limits::CONNECT_WAIT_MAX;
use crate::password_file::{self, PORT, host_name};
use crate::pooler::{self, Pooler};
use crate::settings::{Environment, POOLER, Settings};
use crate::tls::{self, Asked, Verification};

/// The time without a sign of the server after which a connection is tested, and the pause between the tests.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The time that sent data may go without the other machine's acknowledgement. After it, the connection counts as cut
/// off. (Without this, the system would keep sending for a quarter of an hour.)
const UNANSWERED_MAX: Duration = Duration::from_secs(20);

/// The first word of the name of each connection.
const PROGRAM: &str = "gristmill";

/// The address of a PostgreSQL database: a connection URL with libpq's meaning, including TLS, completed by libpq's
/// variables, its service file and its password file. It makes connections, also for pools.
#[derive(Clone)]
pub struct Address {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    /// The URL without its password.
    shown: String,
    application: Option<String>,
    /// The kind of pooler, if the URL names it or a connection has found it out.
    pooler: OnceLock<Pooler>,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Address").field(&self.shown).finish()
    }
}

impl Address {
    /// Reads a connection URL (`postgresql://user@host/database?sslmode=verify-full`), or settings in libpq's form. The
    /// variables and files of libpq give the settings that it omits.
    ///
    /// # Errors
    ///
    /// [`StoreError::Open`] with the reason.
    pub fn parse(place: &str) -> Result<Address, StoreError> {
        Address::parse_in(place, &|name| std::env::var(name).ok())
    }

    fn parse_in(place: &str, environment: Environment<'_>) -> Result<Address, StoreError> {
        let read = |place: &str| -> Result<Address, String> {
            let settings = Settings::gather(place, environment)?;
            let mut config = config(&settings, environment)?;
            Ok(Address {
                tls: tls(&mut config, &settings, environment)?,
                shown: shown(place, &settings, &config),
                application: application(&settings).map(str::to_owned),
                pooler: settings
                    .word(POOLER, pooler::WORDS)?
                    .map_or_else(OnceLock::new, OnceLock::from),
                config,
            })
        };
        read(place).map_err(|reason| StoreError::Open {
            path: without_password(place).into(),
            reason,
        })
    }

    /// The address without its password.
    pub fn as_str(&self) -> &str {
        &self.shown
    }

    /// The name that the server shows for a connection: `gristmill`, then the purpose of this connection, if given, and
    /// then the name in `application_name`.
    pub fn application_name(&self, connection: Option<&str>) -> String {
        let parts = [Some(PROGRAM), connection, self.application.as_deref()];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// Finds out through a new connection whether there is a pooler, unless the URL says so. A pooler may lend another
    /// server for each transaction, and the store then works without sessions.
    ///
    /// # Errors
    ///
    /// The errors of the driver.
    pub async fn find_pooler(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        if self.pooler.get().is_none() {
            let found = if pooler::stands_between(client).await? {
                Pooler::Transaction
            } else {
                Pooler::Session
            };
            if self.pooler.get_or_init(|| found) == &Pooler::Transaction {
                tracing::info!(
                    "a connection pooler stands before the database: no session is relied on (pooler=session says otherwise)"
                );
            }
        }
        Ok(())
    }

    /// Reports whether settings, prepared statements and locks of a session may be gone after a transaction.
    pub fn is_pooled(&self) -> bool {
        self.pooler.get() == Some(&Pooler::Transaction)
    }

    /// A new connection.
    ///
    /// # Errors
    ///
    /// The errors of the driver.
    pub async fn connect(&self) -> Result<ClientWrapper, tokio_postgres::Error> {
        self.connect_beside(std::future::pending()).await
    }

    /// A new connection. Its task also runs `beside`, and closes the connection when that ends.
    ///
    /// # Errors
    ///
    /// The errors of the driver.
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
    /// The errors of the driver.
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

/// For pools of [`deadpool_postgres`]. Their own settings of an address are not used.
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
            // Answers are passed on before new ones are read.
            biased;
            ended = connection => {
                // The client reports the error to callers that wait for answers.
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection to PostgreSQL ended");
                }
                // Answers that came with the end are still read.
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

/// The settings in the form of the driver.
fn config(settings: &Settings, environment: Environment<'_>) -> Result<Config, String> {
    let mut config = Config::new();
    places(&mut config, settings)?;
    match settings.get("user") {
        Some(user) => config.user(user),
        None => config.user(environment("USER").unwrap_or_else(|| "postgres".to_owned())),
    };
    if let Some(database) = settings.get("dbname") {
        config.dbname(database);
    }
    config.application_name(
        [Some(PROGRAM), application(settings)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" "),
    );
    if let Some(options) = settings.get("options") {
        config.options(options);
    }
    if let Some(attributes) = settings.word("target_session_attrs", TARGETS)? {
        config.target_session_attrs(attributes);
    } else if config.get_hosts().len() > 1 {
        // Of several servers, use the writable one. After a failover, this is another one.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    if let Some(binding) = settings.word("channel_binding", BINDINGS)? {
        config.channel_binding(binding);
    }
    if let Some(order) = settings.word("load_balance_hosts", ORDERS)? {
        config.load_balance_hosts(order);
    }
    times(&mut config, settings)?;
    let password = settings.get("password").map(str::to_owned);
    if let Some(password) =
        password.or_else(|| password_file::password(&config, settings.get("passfile"), environment))
    {
        config.password(password);
    }
    Ok(config)
}

fn application(settings: &Settings) -> Option<&str> {
    settings
        .get("application_name")
        .or_else(|| settings.get("fallback_application_name"))
}

const TARGETS: &[(&str, TargetSessionAttrs)] = &[
    ("any", TargetSessionAttrs::Any),
    ("read-write", TargetSessionAttrs::ReadWrite),
    ("read-only", TargetSessionAttrs::ReadOnly),
];

const BINDINGS: &[(&str, ChannelBinding)] = &[
    ("disable", ChannelBinding::Disable),
    ("prefer", ChannelBinding::Prefer),
    ("require", ChannelBinding::Require),
];

const ORDERS: &[(&str, LoadBalanceHosts)] = &[
    ("disable", LoadBalanceHosts::Disable),
    ("random", LoadBalanceHosts::Random),
];

/// The servers: hosts, their addresses, their ports.
fn places(config: &mut Config, settings: &Settings) -> Result<(), String> {
    let named = settings.get("host").or_else(|| settings.get("hostaddr"));
    for host in named.unwrap_or("localhost").split(',') {
        config.host(if host.is_empty() { "localhost" } else { host });
    }
    let addresses = settings
        .get("hostaddr")
        .into_iter()
        .flat_map(|addresses| addresses.split(','));
    for address in addresses {
        let address = address.parse();
        config.hostaddr(
            address
                .map_err(|_| settings.wrong("hostaddr", "write addresses as numbers, such as 10.0.0.7"))?,
        );
    }
    for port in settings
        .get("port")
        .into_iter()
        .flat_map(|ports| ports.split(','))
    {
        let number = if port.is_empty() { Ok(PORT) } else { port.parse() };
        config.port(number.map_err(|_| settings.wrong("port", "write a number up to 65535"))?);
    }
    let (hosts, ports) = (config.get_hosts().len(), config.get_ports().len());
    if ports > 1 && ports != hosts {
        return Err(settings.wrong(
            "port",
            &format!("there are {ports} ports for {hosts} hosts: give one, or one for each"),
        ));
    }
    let addresses = config.get_hostaddrs().len();
    if addresses > 0 && addresses != hosts {
        return Err(settings.wrong(
            "hostaddr",
            &format!("there are {addresses} addresses for {hosts} hosts: give one for each"),
        ));
    }
    Ok(())
}

/// The times for which a server may be silent.
fn times(config: &mut Config, settings: &Settings) -> Result<(), String> {
    let seconds = |name: &str, default: Duration| -> Result<Duration, String> {
        let given = settings.number(name)?.filter(|seconds| *seconds > 0);
        Ok(given.map_or(default, Duration::from_secs))
    };
    // In libpq, 0 means no limit. Gristmill never waits without a limit.
    config.connect_timeout(seconds("connect_timeout", CONNECT_WAIT_MAX)?);
    config.keepalives(settings.number("keepalives")? != Some(0));
    config.keepalives_idle(seconds("keepalives_idle", KEEPALIVE)?);
    config.keepalives_interval(seconds("keepalives_interval", KEEPALIVE)?);
    if let Some(count) = settings.number("keepalives_count")?.filter(|count| *count > 0) {
        config.keepalives_retries(
            u32::try_from(count).map_err(|_| settings.wrong("keepalives_count", "it is too large"))?,
        );
    }
    // The unit is milliseconds in libpq. The driver's own reader of URLs takes seconds.
    let unanswered = settings.number("tcp_user_timeout")?.filter(|ms| *ms > 0);
    config.tcp_user_timeout(unanswered.map_or(UNANSWERED_MAX, Duration::from_millis));
    Ok(())
}

/// The maker of TLS connections. `None` without TLS.
fn tls(
    config: &mut Config,
    settings: &Settings,
    environment: Environment<'_>,
) -> Result<Option<MakeRustlsConnect>, String> {
    let file = |setting: &str, own: &str| -> Option<PathBuf> {
        let own = || Some(Path::new(&environment("HOME")?).join(".postgresql").join(own));
        let file = settings.get(setting).map(PathBuf::from);
        file.or_else(|| own().filter(|path| path.exists()))
    };
    let authorities = settings.get("sslrootcert");
    let full = match (settings.get("sslmode"), authorities) {
        // This follows libpq, whose default would accept any certificate.
        (None, Some("system")) | (Some("verify-full"), _) => true,
        (Some("disable" | "prefer" | "require") | None, None) | (Some("disable"), _) => false,
        (Some("prefer" | "require") | None, Some(_)) => {
            return Err(settings.wrong("sslrootcert", "it needs sslmode=verify-full"));
        }
        (Some(_), _) => {
            return Err(settings.wrong("sslmode", "write disable, prefer, require or verify-full"));
        }
    };
    config.ssl_mode(match settings.get("sslmode") {
        Some("disable") => SslMode::Disable,
        Some("prefer") => SslMode::Prefer,
        None if !full => SslMode::Prefer,
        _ => SslMode::Require,
    });
    let negotiations = [
        ("postgres", SslNegotiation::Postgres),
        ("direct", SslNegotiation::Direct),
    ];
    let direct = match settings.word("sslnegotiation", &negotiations)? {
        Some(SslNegotiation::Direct) if config.get_ssl_mode() != SslMode::Require => {
            return Err(settings.wrong("sslnegotiation", "it needs sslmode=require or verify-full"));
        }
        negotiation => negotiation == Some(SslNegotiation::Direct),
    };
    if direct {
        config.ssl_negotiation(SslNegotiation::Direct);
    }
    let versions = [
        ("TLSv1", false),
        ("TLSv1.1", false),
        ("TLSv1.2", false),
        ("TLSv1.3", true),
    ];
    let asked = Asked {
        verification: if full {
            Verification::Full {
                authorities: match authorities {
                    Some("system") => None,
                    _ => file("sslrootcert", "root.crt"),
                },
            }
        } else {
            Verification::None
        },
        certificate: match (
            file("sslcert", "postgresql.crt"),
            file("sslkey", "postgresql.key"),
        ) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (Some(_), None) if settings.get("sslcert").is_some() => {
                return Err(settings.wrong("sslcert", "name its key by sslkey"));
            }
            (None, Some(_)) if settings.get("sslkey").is_some() => {
                return Err(settings.wrong("sslkey", "name its certificate by sslcert"));
            }
            _ => None,
        },
        newest_alone: settings.word("ssl_min_protocol_version", &versions)? == Some(true),
        direct,
    };
    let local = config.get_hostaddrs().is_empty()
        && config
            .get_hosts()
            .iter()
            .all(|host| matches!(host, Host::Unix(_)));
    if local || config.get_ssl_mode() == SslMode::Disable {
        Ok(None)
    } else {
        Ok(Some(tls::connector(&asked)?))
    }
}

/// The place in a form without secrets. If the environment or a service names the server, it is the server.
fn shown(place: &str, settings: &Settings, config: &Config) -> String {
    let named = ["host", "hostaddr", "dbname"]
        .iter()
        .any(|name| settings.get(name).is_some() && !settings.is_given(name));
    if !named {
        return without_password(place);
    }
    let hosts: Vec<String> = config.get_hosts().iter().map(host_name).collect();
    let port = settings
        .get("port")
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!(
        "postgresql://{}@{}{port}/{database}",
        config.get_user().unwrap_or_default(),
        hosts.join(",")
    )
}

/// A connection URL in a form without secrets.
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
    if query.is_empty() {
        format!("{scheme}://{rest}")
    } else {
        format!("{scheme}://{rest}?{}", query.join("&"))
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

    fn of(place: &str, variables: &[(&str, &str)]) -> Result<Address, String> {
        let parsed = Address::parse_in(place, &|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        parsed.map_err(|error| error.to_string())
    }

    /// Checks the driver's settings for libpq's options.
    #[test]
    fn options_reach_the_driver() {
        let address = of(
            "postgresql://me@one,two:7/jobs?hostaddr=10.0.0.1,10.0.0.2&connect_timeout=3&keepalives_idle=4&keepalives_count=5\
             &tcp_user_timeout=1500&target_session_attrs=read-only&channel_binding=require&load_balance_hosts=random\
             &options=-c%20jit%3Doff&sslmode=disable",
            &[("PGPASSWORD", "secret")],
        );
        let config = address.unwrap().config;
        assert_eq!(config.get_hostaddrs().len(), 2);
        assert_eq!(config.get_ports(), [5432, 7]);
        assert_eq!(config.get_connect_timeout(), Some(&Duration::from_secs(3)));
        assert_eq!(config.get_keepalives_idle(), Duration::from_secs(4));
        assert_eq!(config.get_keepalives_retries(), Some(5));
        assert_eq!(config.get_tcp_user_timeout(), Some(&Duration::from_millis(1500)));
        assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadOnly);
        assert_eq!(config.get_channel_binding(), ChannelBinding::Require);
        assert_eq!(config.get_load_balance_hosts(), LoadBalanceHosts::Random);
        assert_eq!(config.get_options(), Some("-c jit=off"));
        assert_eq!(config.get_password(), Some(&b"secret"[..]));
        let standby = of("postgresql://one,two/jobs", &[]).unwrap().config;
        assert_eq!(standby.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
    }

    #[test]
    fn the_environment_gives_what_the_url_leaves_out() {
        let variables = [
            ("PGHOST", "/run/db"),
            ("PGPORT", "5433"),
            ("PGDATABASE", "jobs"),
            ("PGUSER", "me"),
        ];
        let address = of("postgresql://", &variables).unwrap();
        assert_eq!(address.config.get_hosts(), [Host::Unix("/run/db".into())]);
        assert_eq!(address.as_str(), "postgresql://me@/run/db:5433/jobs");
        let address = of("postgresql://you@there/work", &variables).unwrap();
        assert_eq!(address.config.get_hosts(), [Host::Tcp("there".into())]);
        assert_eq!(address.as_str(), "postgresql://you@there/work");
    }

    #[test]
    fn modes_of_tls_are_distinguished() {
        let mode = |place: &str| of(place, &[]).map(|address| address.config.get_ssl_mode());
        for (query, expected) in [
            ("", SslMode::Prefer),
            ("?sslmode=disable", SslMode::Disable),
            ("?sslmode=require", SslMode::Require),
        ] {
            assert_eq!(mode(&format!("postgresql://h/d{query}")), Ok(expected), "{query}");
        }
        for (query, reason) in [
            ("?sslmode=verify-ca", "sslmode=verify-ca: write disable"),
            ("?sslmode=allow", "sslmode=allow: write disable"),
            (
                "?sslrootcert=ca.pem",
                "sslrootcert=ca.pem: it needs sslmode=verify-full",
            ),
            (
                "?sslmode=verify-full&sslrootcert=missing.pem",
                "sslrootcert `missing.pem` cannot be read",
            ),
            ("?sslcert=mine.pem", "sslcert=mine.pem: name its key by sslkey"),
            (
                "?sslnegotiation=direct",
                "sslnegotiation=direct: it needs sslmode=require",
            ),
            ("?port=1,2", "there are 2 ports for 1 hosts"),
            (
                "?keepalives_idle=soon",
                "keepalives_idle=soon: write a whole number",
            ),
        ] {
            let error = of(&format!("postgresql://h/d{query}"), &[]).unwrap_err();
            assert!(error.contains(reason), "{query}: {error}");
        }
        // The settings ask for this machine's authorities, whether it has any or not.
        match of("postgresql://h/d?sslrootcert=system", &[]) {
            Ok(address) => assert_eq!(address.config.get_ssl_mode(), SslMode::Require),
            Err(error) => assert!(error.contains("needs authorities"), "{error}"),
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
