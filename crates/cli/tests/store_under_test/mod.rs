//! Which store a test of the program works on.

#![allow(dead_code, reason = "each test binary uses its share")]

use std::sync::Arc;
use std::time::Duration;

use gristmill_model::Timestamp;
use gristmill_private_postgres::{PrivatePostgres, Proxy};
use gristmill_store::Store;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};

use crate::workspace::Workspace;

/// A new store that processes can share.
pub enum StoreUnderTest {
    /// A file in the workspace.
    Sqlite,
    /// A database of a server of its own, which can be killed, and its URL.
    Postgres(PrivatePostgres, String, Option<Box<Link>>),
}

/// What lies between the processes and their database.
pub struct Link {
    pub proxy: Proxy,
    /// The database's URL by way of it.
    url: String,
}

impl StoreUnderTest {
    /// The store of that name: `sqlite` or `postgres`.
    pub fn new(name: &str) -> StoreUnderTest {
        match name {
            "sqlite" => StoreUnderTest::Sqlite,
            "postgres" => {
                // Shorter than the shortest lease of a test, so that a stopped process holds up nobody's heartbeat for it.
                let settings = [("idle_in_transaction_session_timeout", "500ms")];
                let server = PrivatePostgres::start(&settings).unwrap_or_else(|error| panic!("{error}"));
                let url = server.create_database().unwrap_or_else(|error| panic!("{error}"));
                StoreUnderTest::Postgres(server, url, None)
            }
            other => panic!("STORE={other} is not a store; there are `sqlite` and `postgres`"),
        }
    }

    /// Puts a link between the processes and the database that cuts answers into the pieces of a slow network, and can go
    /// silent.
    pub fn behind_link(self, seed: u64) -> StoreUnderTest {
        let StoreUnderTest::Postgres(server, url, _) = self else {
            return self;
        };
        let proxy = server.proxy(seed).unwrap_or_else(|error| panic!("{error}"));
        proxy.split(1..=1_448, Duration::from_micros(50));
        let path = url.trim_start_matches("postgresql:///");
        let database = path.split('?').next().unwrap_or_default();
        let link = Link {
            url: proxy.url(database),
            proxy,
        };
        StoreUnderTest::Postgres(server, url, Some(Box::new(link)))
    }

    /// What lies before the database, where something does.
    pub fn link(&self) -> Option<&Link> {
        match self {
            StoreUnderTest::Sqlite => None,
            StoreUnderTest::Postgres(_, _, link) => link.as_deref(),
        }
    }

    /// What `--store` is told.
    pub fn location(&self) -> &str {
        match self {
            StoreUnderTest::Sqlite => "gristmill.db",
            StoreUnderTest::Postgres(_, url, None) => url,
            StoreUnderTest::Postgres(_, _, Some(link)) => &link.url,
        }
    }

    /// Opens it, beside whoever has it open.
    pub async fn open(&self, workspace: &Workspace) -> Arc<dyn Store> {
        match self {
            StoreUnderTest::Sqlite => {
                let path = workspace.path("gristmill.db");
                Arc::new(SqliteStore::open(path, SqliteOptions::default()).unwrap())
            }
            StoreUnderTest::Postgres(_, url, _) => Arc::new(
                PostgresStore::open(url, PostgresOptions::default())
                    .await
                    .unwrap(),
            ),
        }
    }

    /// Whether others can write while a process is stopped.
    pub async fn is_writable(&self, workspace: &Workspace) -> bool {
        let StoreUnderTest::Sqlite = self else {
            // Whatever it holds is a few rows, which others step over.
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

    /// What the database's sessions are doing.
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

    /// The database's server, where it has one.
    pub fn server(&self) -> Option<&PrivatePostgres> {
        match self {
            StoreUnderTest::Sqlite => None,
            StoreUnderTest::Postgres(server, ..) => Some(server),
        }
    }

    /// How many servers and how many workers stand before it at once.
    pub fn processes(&self) -> usize {
        match self {
            StoreUnderTest::Sqlite => 1,
            StoreUnderTest::Postgres(..) => 2,
        }
    }
}
