//! The store of a test of the program.

use std::sync::Arc;
use std::time::Duration;

use gristmill_model::Timestamp;
use gristmill_private_postgres::{Pooler, PoolerKind, PrivatePostgres, Proxy};
use gristmill_store::Store;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};

use crate::workspace::Workspace;

/// A new store that processes can share.
pub enum StoreUnderTest {
    /// A file in the workspace.
    Sqlite,
    /// A database of a server of its own.
    Postgres(Box<OwnServer>),
}

/// A server that can be killed, and what lies between the processes and their database.
pub struct OwnServer {
    // The fields are dropped in this order: everything before the server goes first.
    pub link: Option<Proxy>,
    pub pooler: Option<Pooler>,
    pub server: PrivatePostgres,
    /// The database's URL.
    url: String,
    /// The URL of the pooler or the link.
    location: String,
}

impl OwnServer {
    fn database(&self) -> &str {
        let path = self.url.trim_start_matches("postgresql:///");
        path.split('?').next().unwrap_or_default()
    }
}

impl StoreUnderTest {
    /// The store with this name: `sqlite` or `postgres`.
    pub fn new(name: &str) -> StoreUnderTest {
        match name {
            "sqlite" => StoreUnderTest::Sqlite,
            "postgres" => {
                // This is shorter than the shortest lease of a test, so that a stopped process does not block another's
                // heartbeat for long.
                let settings = [("idle_in_transaction_session_timeout", "500ms")];
                let server = PrivatePostgres::start(&settings).unwrap_or_else(|error| panic!("{error}"));
                let url = server.create_database().unwrap_or_else(|error| panic!("{error}"));
                StoreUnderTest::Postgres(Box::new(OwnServer {
                    link: None,
                    pooler: None,
                    server,
                    location: url.clone(),
                    url,
                }))
            }
            other => panic!("STORE={other} is not a store; there are `sqlite` and `postgres`"),
        }
    }

    /// Puts a pooler between the processes and the database.
    pub fn behind_pooler(mut self, kind: PoolerKind) -> StoreUnderTest {
        if let StoreUnderTest::Postgres(own) = &mut self {
            let pooler = own.server.pooler(kind).unwrap_or_else(|error| panic!("{error}"));
            own.location = pooler.url(own.database());
            own.pooler = Some(pooler);
        }
        self
    }

    /// Puts a link between the processes and the database or its pooler. The link cuts answers into small pieces, like
    /// a slow network, and can go silent.
    pub fn behind_link(mut self, seed: u64) -> StoreUnderTest {
        if let StoreUnderTest::Postgres(own) = &mut self {
            let proxy = match &own.pooler {
                Some(pooler) => pooler.proxy(seed),
                None => own.server.proxy(seed),
            };
            let proxy = proxy.unwrap_or_else(|error| panic!("{error}"));
            proxy.split(1..=1_448, Duration::from_micros(50));
            let option = own.pooler.as_ref().map_or("", Pooler::option);
            own.location = format!("{}{option}", proxy.url(own.database()));
            own.link = Some(proxy);
        }
        self
    }

    /// Its server, if it has one.
    pub fn own(&self) -> Option<&OwnServer> {
        match self {
            StoreUnderTest::Sqlite => None,
            StoreUnderTest::Postgres(own) => Some(own),
        }
    }

    /// The link before the database, if there is one.
    pub fn link(&self) -> Option<&Proxy> {
        self.own()?.link.as_ref()
    }

    /// The pooler that lends connections to the store, if there is one.
    pub fn pooler(&mut self) -> Option<&mut Pooler> {
        match self {
            StoreUnderTest::Sqlite => None,
            StoreUnderTest::Postgres(own) => own.pooler.as_mut(),
        }
    }

    /// The value of `--store`.
    pub fn location(&self) -> &str {
        match self {
            StoreUnderTest::Sqlite => "gristmill.db",
            StoreUnderTest::Postgres(own) => &own.location,
        }
    }

    /// Opens the store, also while others have it open.
    pub async fn open(&self, workspace: &Workspace) -> Arc<dyn Store> {
        match self {
            StoreUnderTest::Sqlite => {
                let path = workspace.path("gristmill.db");
                Arc::new(SqliteStore::open(path, SqliteOptions::default()).unwrap())
            }
            StoreUnderTest::Postgres(own) => Arc::new(
                PostgresStore::open(&own.url, PostgresOptions::default())
                    .await
                    .unwrap(),
            ),
        }
    }

    /// Reports whether others can write while a process is stopped.
    pub async fn is_writable(&self, workspace: &Workspace) -> bool {
        let StoreUnderTest::Sqlite = self else {
            // A stopped process holds only a few rows, which others skip.
            return true;
        };
        let options = SqliteOptions {
            busy_timeout_ms: 100,
            ..SqliteOptions::default()
        };
        let store = SqliteStore::open(workspace.path("gristmill.db"), options);
        match store {
            Ok(store) => store.rescue(Timestamp(0), Vec::new()).await.is_ok(),
            Err(_) => false,
        }
    }

    /// The activity of the database's sessions.
    pub fn sessions(&self) -> String {
        let Some(server) = self.server() else {
            return String::new();
        };
        let sql = "SELECT pid, application_name, state, wait_event_type, wait_event, clock_timestamp() - state_change, \
                   pg_blocking_pids(pid), query FROM pg_stat_activity WHERE datname LIKE 'database_%'";
        server
            .psql("postgres", sql)
            .unwrap_or_else(|error| error.to_string())
    }

    /// The database's server, if it has one.
    pub fn server(&self) -> Option<&PrivatePostgres> {
        Some(&self.own()?.server)
    }

    /// The number of servers, and of workers, that run at the same time.
    pub fn processes(&self) -> usize {
        match self {
            StoreUnderTest::Sqlite => 1,
            StoreUnderTest::Postgres(..) => 2,
        }
    }
}
